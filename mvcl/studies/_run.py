"""Run a study: each cell with each seed in a folder of its own; what is finished is not run again."""

import contextlib
import dataclasses
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import time
import traceback
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

import jax

from mvcl import _files, _progress, training
from mvcl.studies._grid import Cell, Study

# Fields of a config that do not change what is measured.
_FREE = tuple(f"config.{name}" for name in training.free("seeds"))
_PACKAGES = ("mvcl", "jax", "jaxlib", "flax", "optax", "numpy")


@dataclasses.dataclass(frozen=True, eq=False)
class Place:
    """A cell with one seed.

    Attributes:
      cell: the cell.
      seed: the seed.
      folder: of the work.
      task: that of the cell as a config is saved, with digests of the code in the study file that it uses.
    """

    cell: Cell
    seed: int
    folder: Path
    task: Any

    def file(self, ending: str) -> Path:
        """Beside the folder: "json" has the results, "begun.json" the task that was begun, "log" what was printed."""
        return self.folder.with_name(f"{self.seed}.{ending}")

    def written(self) -> float:
        """When the record was written; 0 if it is missing."""
        with contextlib.suppress(FileNotFoundError):
            return self.file("json").stat().st_mtime
        return 0.0

    @property
    def name(self) -> str:
        """For messages: "objective MV-DHEL, k 4, seed 0"."""
        return f"{self.cell.name}, seed {self.seed}"


@dataclasses.dataclass(frozen=True)
class Look:
    """The state of a place.

    Attributes:
      state: `stale` if its config, or code of the study file that it uses, has changed since.
      record: content of its file; empty if it is missing.
      reasons: why it is stale, or how it failed.
    """

    state: Literal["finished", "stale", "failed", "missing"]
    record: dict[str, Any]
    reasons: tuple[str, ...] = ()


def places(study: Study, folder: Path) -> list[Place]:
    """All cells with all seeds, in order; those of a cell in one folder, which `cells/` holds."""
    found, used = [], set()
    for cell in study.cells:
        slug = re.sub(r"[^A-Za-z0-9.=]+", "-", cell.name).strip("-")
        while slug.casefold() in used:  # names that differ in other signs only
            slug += "-2"
        used.add(slug.casefold())
        task = json.loads(json.dumps(training.tree(cell.task)))
        found += [Place(cell, seed, folder / "cells" / slug / str(seed), task) for seed in range(study.seeds)]
    return found


def look(place: Place) -> Look:
    """Read the state of a place.

    Raises:
      ValueError: its record is damaged.
    """
    file = place.file("json")
    if not file.is_file():
        return Look("missing", {})
    with _files.reading(file, "record of a finished cell"):
        record = _files.read_json(file)
        if "error" in record:
            return Look("failed", record, (str(record["error"]),))
        reasons = _changes(record["task"], place.task)
    return Look("stale" if reasons else "finished", record, tuple(reasons))


def open_places(study: Study, folder: Path, again: bool) -> list[Place]:
    """The places that `run` will run."""
    states = ("missing", "failed", "stale") if again else ("missing", "failed")
    return [place for place in places(study, folder) if look(place).state in states]


def _changes(old: Any, new: Any) -> list[str]:
    """What differs between two tasks, in words; code that is no longer used was used by code that has changed."""
    before, now = training.digests(old), training.digests(new)
    return [
        *training.differences(training.flatten(old), training.flatten(new), _FREE),
        *(f"{name} has changed" for name in sorted(now) if before.get(name) != now[name]),
    ]


def run(study: Study, folder: Path, *, again: bool = False) -> int:
    """Run what is missing or has failed, and with `again` what is stale; other processes may do so at the same time.

    A process takes the seeds of a cell one after the other, which compile once; then seeds of cells that others began.
    A signal ends it: a run saves its state, and nothing else begins.

    Args:
      study: the study.
      folder: of its cells.
      again: whether to run stale cells again, from nothing.

    Returns:
      The number of places that failed.

    Raises:
      Interrupted: a signal stopped a run; its state is saved.
      KeyboardInterrupt: a signal came at another time.
    """
    written = {place: place.written() for place in open_places(study, folder, again)}
    failures = 0
    with ending():
        for place in _progress.track(_taken([*written]), "runs", len(written), "runs"):
            if place.written() == written[place]:  # no other process has run it since then
                with _progress.during(place.name):
                    failures += not _done(place)
    return failures


@contextlib.contextmanager
def ending() -> Iterator[None]:
    """Context in which SIGTERM and SIGINT raise `KeyboardInterrupt`; in it a run handles both itself."""

    def stop(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _taken(left: list[Place]) -> Iterator[Place]:
    """The places, each while this process holds its lock; those that another process holds are left out."""
    kept: list[Place] = []
    for cell in dict.fromkeys(place.folder.parent for place in left):
        mine = [place for place in left if place.folder.parent == cell]
        with contextlib.suppress(training.Locked), training.locked(cell):
            for place in mine:
                yield from _locked(place)
            continue
        kept += mine
    for place in kept:
        yield from _locked(place)


def _locked(place: Place) -> Iterator[Place]:
    with contextlib.suppress(training.Locked), training.locked(place.folder.parent, f".{place.seed}.lock"):
        yield place


def _done(place: Place) -> bool:
    """Run a place and write its record; False if it failed."""
    begun = place.file("begun.json")
    if not begun.is_file():
        another = look(place).state == "stale"
    else:
        with _files.reading(begun, "record of a cell that was begun"):
            another = bool(_changes(_files.read_json(begun)["task"], place.task))
    if another:
        shutil.rmtree(place.folder, ignore_errors=True)
    place.folder.mkdir(parents=True, exist_ok=True)
    _files.write_whole(begun, json.dumps({"task": place.task}) + "\n")
    record = {"task": place.task, **_provenance()}
    started = time.monotonic()
    try:
        with open(place.file("log"), "a") as out, contextlib.redirect_stdout(out):
            values = [dict(row) for row in place.cell.task.run(place.folder, place.seed)]
        record |= {"values": values, "seconds": round(time.monotonic() - started, 3)}
    except training.Interrupted:
        raise
    except Exception as error:  # whatever it is: the other cells go on, and the page names it
        record |= {"error": f"{type(error).__name__}: {error}", "traceback": traceback.format_exc()}
        _progress.line(f"{place.name} failed: {record['error']} (see {place.file('log')})")
    _files.write_whole(place.file("json"), json.dumps(record, indent=1) + "\n")
    return "error" not in record


@cache
def _provenance() -> dict[str, Any]:
    """Machine, versions, commit and date of the results of this process."""
    device, count = jax.devices()[0], jax.device_count()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    processor = f"{_processor()}, {cores} {'core' if cores == 1 else 'cores'}"
    return {
        "machine": processor if device.platform == "cpu" else f"{count} x {device.device_kind}; {processor}",
        "versions": {
            "python": platform.python_version(),
            **{name: metadata.version(name) for name in _PACKAGES},
        },
        "commit": _commit(),
        "date": datetime.now(UTC).date().isoformat(),
    }


def _processor() -> str:
    with contextlib.suppress(OSError):
        if found := re.search(r"^model name\s*: (.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE):
            return found[1]
    return platform.processor() or platform.machine()


def _commit() -> str:
    """The commit of the checkout, with "+" if files have changed since; "" outside a checkout."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(Path(__file__).resolve().parents[2]), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        head = git("rev-parse", "--short=10", "HEAD")
        changed = git("status", "--porcelain", "--untracked-files=no", "--", "mvcl", "configs")
    except (OSError, subprocess.CalledProcessError):
        return ""
    return head + ("+" if changed else "")
