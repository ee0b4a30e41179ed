"""Paths in buckets of Google Cloud Storage, `gs://`."""

import functools
import hashlib
import importlib
import logging
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from mvcl import _lazy, _progress


def path(given: str | os.PathLike[str]) -> Path:
    """The path that a user gave: local, or with `gs://` in a bucket, as an `epath.Path`.

    `Path("gs://bucket/run")` has lost a slash; it is taken for the bucket too. `ValueError` for another scheme, or a
    bucket that is not there or gives no access; `MissingExtra` without the packages for buckets.
    """
    text = os.fspath(given)
    found = re.match(r"gs:/+(.*)", text)
    if found is None:
        if other := re.match(r"([A-Za-z][\w+.-]+):/", text):
            raise ValueError(f"{text}: paths are local or start with gs://, not with {other[1]}:/")
        return given if isinstance(given, Path) else Path(text)
    bucket = found[1].partition("/")[0]
    if not bucket:
        raise ValueError(f"{text} names no bucket; write gs://BUCKET/FOLDER")
    _reach(bucket)
    with _lazy.needed("bucket", by=text):
        from etils import epath

    return cast(Path, epath.Path(f"gs://{found[1]}"))  # it has pathlib's methods


def is_remote(place: str | os.PathLike[str]) -> bool:
    """Whether a path is in a bucket."""
    return os.fspath(place).startswith("gs://")


@contextmanager
def named(place: str | os.PathLike[str]) -> Iterator[None]:
    """Raise the errors of a bucket's client as `OSError` with the path."""
    try:
        yield
    except (FileNotFoundError, FileExistsError, ValueError):
        raise
    except Exception as error:  # the client has errors of its own
        raise OSError(f"{place} cannot be read or written ({reason(error)})") from error


def upload(folder: Path, place: Path) -> None:
    """Copy the files of a local folder into a folder of a bucket, each whole, in the order of their last changes."""
    files = [file for file in folder.rglob("*") if file.is_file()]
    files.sort(key=lambda file: file.stat().st_mtime_ns)
    with named(place):
        for file in _progress.track(files, f"copying to {place}", len(files), "files"):
            _client().put_file(str(file), f"{place}/{file.relative_to(folder).as_posix()}")


def uploaded(place: Path, write: Callable[[str], object]) -> Path:
    """Call `write` with a temporary local folder, copy the folder to a bucket and return its place there."""
    with tempfile.TemporaryDirectory(prefix="mvcl_") as temporary:
        write(temporary)
        upload(Path(temporary), place)
    return place


def local_copy(given: str | os.PathLike[str]) -> Path:
    """A local path to a file or folder for reading: itself, or a copy of what is in a bucket.

    The copy is in MVCL_CACHE or ~/.cache/mvcl, whole or not at all, and is made again when the listing of the bucket
    (names, sizes, tags of the content) changes. A path that does not exist is returned as it is. `ValueError` if the
    disk is full.
    """
    place = path(given)
    if not is_remote(place):
        return place
    with named(place):
        found = _client().find(str(place), detail=True)
    # A name with a slash at its end marks an empty folder.
    objects = {name: o for name, o in found.items() if o["type"] == "file" and not name.endswith("/")}
    if not objects:
        return place
    tags = repr(sorted((name, o["size"], o.get("etag")) for name, o in objects.items()))
    cache = Path(os.environ.get("MVCL_CACHE") or Path.home() / ".cache" / "mvcl") / "buckets"
    folder = cache / hashlib.sha256(tags.encode()).hexdigest()[:16]
    copy = folder / place.name
    if copy.exists():
        return copy
    size = sum(o["size"] for o in objects.values())
    cache.mkdir(parents=True, exist_ok=True)
    if size > (free := shutil.disk_usage(cache).free):
        sizes = f"{size / 2**30:.1f} GiB and {cache} has {free / 2**30:.1f} GiB left"
        raise ValueError(f"{place} has {sizes} for a copy; set MVCL_CACHE to a larger disk")
    _progress.line(f"copying {place} ({len(objects)} files, {size / 2**20:,.1f} MiB) to {copy}")
    root = str(place.parent).removeprefix("gs://")
    with tempfile.TemporaryDirectory(dir=cache, prefix=".unfinished_") as temporary:
        whole = Path(temporary) / "whole"
        files = [whole / Path(name).relative_to(root) for name in objects]
        with named(place), _progress.during("copying from the bucket"):
            _client().get(list(objects), list(map(str, files)))
        for file, (name, o) in zip(files, objects.items()):
            if not file.is_file() or file.stat().st_size != o["size"]:
                raise OSError(f"the copy of {name} has not its {o['size']} bytes")
        try:
            whole.rename(folder)
        except OSError:  # another process was faster
            if not copy.exists():
                raise
    return copy


def _client() -> Any:
    """fsspec's file system of the buckets."""
    with _lazy.needed("bucket", by="gs://"):
        import fsspec
    return fsspec.filesystem("gs")


@functools.cache
def _reach(bucket: str) -> None:
    """Import the client of a bucket and list one object."""
    where = f"gs://{bucket}"
    with _lazy.needed("bucket", by=where):
        importlib.import_module("gcsfs")
        import fsspec
    os.environ.setdefault("EPATH_USE_TF", "false")  # one client, whether TensorFlow is installed or not
    # Tensorstore and other processes write too, so a cached listing may be old.
    fsspec.config.conf.setdefault("gs", {}).setdefault("use_listings_cache", False)
    logging.getLogger("gcsfs").setLevel(logging.CRITICAL)  # it prints the traceback of each error, and raises
    try:
        _client().call("GET", "b/{}/o", bucket, maxResults=1, json_out=True)
    except Exception as error:  # the client has errors of its own
        if isinstance(error, FileNotFoundError) or "NoSuchBucket" in str(error):
            raise ValueError(f"there is no bucket {where}; make it, or correct its name") from error
        how = "`gcloud auth application-default login`, or GOOGLE_APPLICATION_CREDENTIALS"
        what = f"bucket {where} cannot be reached ({reason(error)})"
        raise ValueError(f"{what}; check its name, the network and your credentials: {how}") from error


def reason(error: BaseException) -> str:
    """The text of an error in a line of at most 200 characters, or the name of its class."""
    return " ".join(str(error).split())[:200] or type(error).__name__
