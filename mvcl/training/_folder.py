"""The files of a run folder: its lock, its config and its logs."""

import fcntl
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from mvcl import _buckets, _files, _progress
from mvcl.training import _serialise
from mvcl.training._config import Config, free

SCORE = "score"
"""A row of metrics.jsonl with this key is a score; its value is the name of the entry with the number."""


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
    with file or nullcontext():
        for wait in (0.01, 0.1, None):  # a report that looks whether a run is alive holds it for less
            try:
                if file is not None:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError as error:
                if wait is None:
                    raise Locked(
                        f"another run is using {workdir}; wait until it ends, or choose another --workdir"
                    ) from error
                time.sleep(wait)
        yield


def claim(workdir: Path, config: Config) -> None:
    """Write the config, or check that the folder's config is the same; log which user code has changed.

    Raises:
      ValueError: the folder belongs to another config, or holds other files.
    """
    path = workdir / "config.json"
    if not path.is_file():
        there = workdir.iterdir() if workdir.is_dir() else ()  # a new folder in a bucket is not there yet
        unexpected = sorted(p.name for p in there if not p.name.startswith("."))
        if unexpected:
            raise ValueError(
                f"--workdir {workdir} has files ({', '.join(unexpected[:3])}) but no run; choose an empty folder"
            )
        _files.write_whole(path, _serialise.to_json(config))
        return
    given = _serialise.tree(config)
    with _files.reading(path, "config"):
        saved = _files.read_json(path)
        old, before = _serialise.flatten(saved), _serialise.digests(saved)
    differing = differences(old, _serialise.flatten(given), free("resume"))
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


def read_log(workdir: Path, name: str = "metrics.jsonl") -> list[dict[str, Any]]:
    """The rows of a log file; an incomplete last line and damaged ones are skipped."""
    path = workdir / name
    rows = []
    for line in path.read_bytes().decode(errors="replace").splitlines() if path.is_file() else []:
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            continue
        numbers = [row.get("step", 0), row.get("time", 0.0)] if isinstance(row, dict) else [None]
        if all(isinstance(number, (int, float)) for number in numbers):
            rows.append(row)
    return rows


def read_scores(workdir: Path) -> dict[int, float]:
    """Step -> score, of the log of a run folder."""
    rows = read_log(workdir)
    found = [(row.get("step"), row.get(str(row[SCORE]))) for row in rows if SCORE in row]
    return {step: value for step, value in found if isinstance(step, int) and isinstance(value, float)}


def rewind_log(workdir: Path, step: int, *, done: bool = False) -> None:
    """Remove the rows after this step, which will be logged again; `done`: it is the last step of the run.

    A refresh precedes its step, which is not done yet.
    """
    for name, end in (("metrics.jsonl", step + 1), ("refresh.jsonl", step + done)):
        if name == "metrics.jsonl" or (workdir / name).is_file():
            rows = [row for row in read_log(workdir, name) if row.get("step", 0) < end]
            _files.write_whole(workdir / name, "".join(json.dumps(row) + "\n" for row in rows))


def append_row(path: Path, row: dict[str, Any]) -> None:
    """Add a row to a log file that is not open."""
    _files.append(path, json.dumps(row) + "\n")
