"""A run folder: its lock and its config."""

import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from mvcl import _buckets, _files, _progress
from mvcl.training import _serialise
from mvcl.training._config import Config, free


class Locked(ValueError):
    """Another run is using the folder."""


@contextmanager
def locked(workdir: Path, name: str = ".lock") -> Iterator[None]:
    """Lock the folder, which is made if it is missing, for this run.

    The lock is `flock` of a file, which ends with the process. A folder in a bucket has no lock.

    Raises:
      Locked: another run holds the lock.
      ValueError: the folder is not writable.
    """
    try:
        workdir.mkdir(parents=True, exist_ok=True)
        file = None if _buckets.is_remote(workdir) else open(workdir / name, "w")
    except OSError as error:
        raise ValueError(f"--workdir {workdir} is not writable ({error}); choose another") from error
    if file is None:
        yield
        return
    with file:
        try:
            _flock(file)
        except OSError as error:
            raise Locked(
                f"another run is using {workdir}; wait until it ends, or choose another --workdir"
            ) from error
        yield


def _flock(file: TextIO) -> None:
    """Take the lock of a file; raises `OSError` if another process holds it."""
    for seconds in (0.01, 0.1):  # a report that looks whether a run is alive holds it for less
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            time.sleep(seconds)
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def claim(workdir: Path, config: Config) -> None:
    """Write the config, or check that the folder's config is the same; log which user code has changed.

    Raises:
      ValueError: the folder belongs to another config, or holds other files.
    """
    path = workdir / "config.json"
    if not path.is_file():
        unexpected = sorted(p.name for p in workdir.iterdir() if not p.name.startswith("."))
        if unexpected:
            raise ValueError(
                f"--workdir {workdir} has files ({', '.join(unexpected[:3])}) but no run; choose an empty folder"
            )
        content = _serialise.to_json(config)
        try:
            _files.write_whole(path, content)
        except OSError as error:
            raise ValueError(f"--workdir {workdir} is not writable ({error}); choose another") from error
        return
    given = _serialise.tree(config)
    with _files.reading(path, "config"):
        saved = _files.read_json(path)
        old, before = _serialise.flatten(saved), _serialise.digests(saved)
    new = _serialise.flatten(given)
    differing = differences(old, new, free("resume"))
    if differing:
        more = f" (and {len(differing) - 3} more)" if len(differing) > 3 else ""
        raise ValueError(
            f"--workdir {workdir} belongs to another config: {'; '.join(differing[:3])}{more}. "
            "Choose another --workdir, or pass the same options to resume it"
        )
    now = _serialise.digests(given)
    for name, digest in before.items():
        if digest != now.get(name):
            _progress.line(
                f"{name} has changed since this run started (digest {digest}, now {now.get(name)}); the run resumes "
                "with the new code"
            )
    if saved != given:
        _files.write_whole(path, _serialise.to_json(config))


def differences(old: dict[str, Any], new: dict[str, Any], free: tuple[str, ...] = ()) -> list[str]:
    """The leaves that differ between two flat trees, in words; names that begin with one of `free` may."""
    return [
        f"{name} was {old.get(name)!r} and is {new.get(name)!r}"
        for name in sorted(old.keys() | new.keys())
        if old.get(name) != new.get(name) and not name.startswith(free)
    ]
