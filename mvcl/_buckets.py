"""Paths in buckets, `gs://` and `s3://`."""

import functools
import hashlib
import importlib
import json
import logging
import os
import re
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from mvcl import _extras
from mvcl._progress import Track, untracked, write_line

_AT_ONCE = 64  # files that are copied at the same time
# Scheme -> the fsspec package that reads and writes it.
_PACKAGES = {"gs": "gcsfs", "s3": "s3fs"}
_CREDENTIALS = {
    "gs": "`gcloud auth application-default login`, or GOOGLE_APPLICATION_CREDENTIALS",
    "s3": "AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
}


def path(given: str | os.PathLike[str]) -> Path:
    """The path that a user gave: local, or with `gs://` or `s3://` in a bucket, as an `epath.Path`.

    `Path("gs://bucket/run")` has lost a slash; it is taken for the bucket too.

    Raises:
      MissingExtra: the packages for buckets are not installed.
      ValueError: another scheme, no such bucket, or no access to it.
    """
    text = os.fspath(given)
    found = re.match(r"(gs|s3):/+(.*)", text)
    if found is None:
        if other := re.match(r"([A-Za-z][\w+.-]+):/", text):
            raise ValueError(f"{text}: paths are local or start with gs:// or s3://, not with {other[1]}:/")
        return given if isinstance(given, Path) else Path(text)
    scheme, rest = found.groups()
    bucket = rest.partition("/")[0]
    if not bucket:
        raise ValueError(f"{text} names no bucket; write {scheme}://BUCKET/FOLDER")
    _reach(scheme, bucket)
    with _extras.needed("bucket", by=text):
        from etils import epath

    return cast(Path, epath.Path(f"{scheme}://{rest}"))  # it has pathlib's methods


def scheme(place: str | os.PathLike[str]) -> str | None:
    """`gs` or `s3`; None for a local path."""
    found = re.match(r"(gs|s3)://", os.fspath(place))
    return None if found is None else found[1]


def is_remote(place: str | os.PathLike[str]) -> bool:
    """Whether a path is in a bucket."""
    return scheme(place) is not None


@contextmanager
def named(place: str | os.PathLike[str]) -> Iterator[None]:
    """Raise the errors of a bucket's client as `OSError` with the path; local errors pass."""
    try:
        yield
    except (FileNotFoundError, FileExistsError, ValueError):
        raise
    except Exception as error:  # each client has errors of its own
        if not is_remote(place):
            raise
        raise OSError(f"{place} cannot be read or written ({_reason(error)})") from error


def filesystem(place: str | os.PathLike[str]) -> Any:
    """fsspec's file system of a path in a bucket."""
    with _extras.needed("bucket", by=os.fspath(place)):
        import fsspec

    return fsspec.core.url_to_fs(os.fspath(place))[0]


@functools.cache
def _reach(scheme: str, bucket: str) -> None:
    """Import the client of a bucket and list one object."""
    where = f"{scheme}://{bucket}"
    with _extras.needed("bucket", by=where):
        importlib.import_module(_PACKAGES[scheme])
        import fsspec
    os.environ.setdefault("EPATH_USE_TF", "false")  # one client, whether TensorFlow is installed or not
    # Tensorstore and other processes write too, so a cached listing may be old.
    fsspec.config.conf.setdefault(scheme, {}).setdefault("use_listings_cache", False)
    logging.getLogger("gcsfs").setLevel(logging.CRITICAL)  # it prints the traceback of each error, and raises
    try:
        client = filesystem(where)
        if scheme == "gs":
            client.call("GET", "b/{}/o", bucket, maxResults=1, json_out=True)
        else:
            client.call_s3("list_objects_v2", Bucket=bucket, MaxKeys=1)
    except Exception as error:  # each client has errors of its own
        if isinstance(error, FileNotFoundError) or "NoSuchBucket" in str(error):
            raise ValueError(f"there is no bucket {where}; make it, or correct its name") from error
        raise ValueError(
            f"bucket {where} cannot be reached ({_reason(error)}); check its name, the network and your credentials: "
            f"{_CREDENTIALS[scheme]}"
        ) from error


def _reason(error: BaseException) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__


def upload(folder: Path, place: Path, track: Track = untracked) -> None:
    """Copy the files of a local folder into a folder of a bucket, each whole, in the order of their last changes."""
    files = [file for file in folder.rglob("*") if file.is_file()]
    with named(place):
        files.sort(key=lambda file: file.stat().st_mtime_ns)
        for file in track(files, f"copying to {place}", len(files), "files"):
            filesystem(place).put_file(str(file), f"{place}/{file.relative_to(folder).as_posix()}")


def download(place: Path, folder: Path) -> None:
    """Copy the files of a bucket's folder into a local folder."""
    with named(place):
        _copy(filesystem(place), _listing(place), folder)


def move(folder: Path, target: Path) -> None:
    """Move a folder inside a bucket: its objects are copied there, then deleted."""
    with named(folder):
        client = filesystem(folder)
        for name, (remote, *_) in _listing(folder).items():
            client.cp_file(remote, f"{target}/{name}")
        client.rm(str(folder), recursive=True)


def beside(owner: object) -> Path:
    """A local folder for what an object writes to a bucket; it is deleted with the object."""
    folder = tempfile.mkdtemp(prefix="mvcl_")
    weakref.finalize(owner, shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def uploaded(place: Path, write: Callable[[str], object], track: Track = untracked) -> Path:
    """Call `write` with a temporary local folder, copy the folder to a bucket and return its place there."""
    with tempfile.TemporaryDirectory(prefix="mvcl_") as temporary:
        write(temporary)
        upload(Path(temporary), place, track)
    return place


@contextmanager
def at_hand(place: Path) -> Iterator[Path]:
    """A local path to one small file: itself, or a temporary copy of what is in a bucket."""
    if not is_remote(place):
        yield place
        return
    with tempfile.TemporaryDirectory(prefix="mvcl_") as folder:
        copy = Path(folder) / place.name
        with named(place):
            copy.write_bytes(place.read_bytes())
        yield copy


def local_copy(
    given: str | os.PathLike[str], track: Track = untracked, log: Callable[[str], None] = write_line
) -> Path:
    """A local path to a file or folder for reading: itself, or a copy of what is in a bucket.

    The copy is in MVCL_CACHE or ~/.cache/mvcl, whole or not at all. It is made again when the listing of the bucket
    (names, sizes, tags of the content) changes. A path that does not exist is returned as it is.

    Raises:
      OSError: the bucket cannot be read.
      ValueError: the disk has too little space for the copy.
    """
    place = path(given)
    if not is_remote(place):
        return place
    with named(place):
        listing = _listing(place)
    if not listing:
        return place
    tags = hashlib.sha256(json.dumps(sorted((n, *e[1:]) for n, e in listing.items())).encode()).hexdigest()
    cache = Path(os.environ.get("MVCL_CACHE") or Path.home() / ".cache" / "mvcl") / "buckets"
    folder = cache / re.sub(r"\W", "_", str(place.parent)) / tags[:16]
    copy = folder / place.name
    if copy.exists():
        return copy
    size = sum(size for _, size, _ in listing.values())
    cache.mkdir(parents=True, exist_ok=True)
    if size > (free := shutil.disk_usage(cache).free):
        raise ValueError(
            f"{place} has {size / 2**30:.1f} GiB and {cache} has {free / 2**30:.1f} GiB left for a copy; "
            "set MVCL_CACHE to a larger disk"
        )
    log(f"copying {place} ({len(listing)} files, {size / 2**20:,.1f} MiB) to {copy}")
    with tempfile.TemporaryDirectory(dir=cache, prefix=".unfinished_") as temporary:
        whole = Path(temporary) / "whole"
        with named(place):
            _copy(filesystem(place), listing, whole / place.name, track)
        folder.parent.mkdir(parents=True, exist_ok=True)
        try:
            whole.rename(folder)
        except OSError:  # another process was faster
            if not copy.exists():
                raise
    return copy


def _listing(place: Path) -> dict[str, tuple[str, int, str]]:
    """Relative name -> path, size and tag of the objects at or under a path; the file itself has the name ''."""
    found = filesystem(place).find(str(place), detail=True)
    root = str(place).partition("://")[2].rstrip("/")
    return {
        name.removeprefix(root).lstrip("/"): (
            name,
            int(entry["size"]),
            str(entry.get("etag") or entry.get("ETag")),
        )
        for name, entry in found.items()
        if entry["type"] == "file" and not name.endswith("/")  # marks an empty folder
    }


def _copy(
    client: Any, listing: dict[str, tuple[str, int, str]], target: Path, track: Track = untracked
) -> None:
    """Copy listed objects, many at once, and check their sizes."""
    files = [target / name if name else target for name in listing]
    for folder in {file.parent for file in files}:
        folder.mkdir(parents=True, exist_ok=True)
    remotes = [remote for remote, *_ in listing.values()]
    blocks = range(0, len(files), _AT_ONCE)
    for i in track(blocks, "copying from the bucket", len(blocks), f"blocks of {_AT_ONCE} files"):
        client.get(remotes[i : i + _AT_ONCE], [str(file) for file in files[i : i + _AT_ONCE]])
    for file, (remote, size, _) in zip(files, listing.values(), strict=True):
        if not file.is_file() or file.stat().st_size != size:
            raise OSError(f"the copy of {remote} has not its {size} bytes")
