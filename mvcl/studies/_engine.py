"""Run a study: each cell with each seed in a folder of its own; what is finished is not run again."""

import contextlib
import dataclasses
import json
import re
import shutil
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from mvcl import _files, training
from mvcl._progress import Progress
from mvcl.studies import _code, _machine
from mvcl.studies._study import Cell, Study

State = Literal["finished", "stale", "failed", "missing"]
# Fields of a config that do not change what is measured.
_FREE = tuple(
    f"config.{name}"
    for name in (
        "mesh.",
        "checkpoint.",
        "train.seed",
        "train.log_every",
        "train.threads",
        "train.corrupt_limit",
        "train.stall_seconds",
        "train.peak_tflops",
        "data.directory",
    )
)


@dataclasses.dataclass(frozen=True, eq=False)
class Place:
    """A cell with one seed.

    Attributes:
      cell: the cell.
      seed: the seed.
      folder: of the work. Beside it are SEED.json, the record of a finished one, SEED.begun.json and SEED.log.
    """

    cell: Cell
    seed: int
    folder: Path

    @property
    def record(self) -> Path:
        """What was measured, by which code, and when."""
        return self.folder.with_name(f"{self.seed}.json")

    def written(self) -> float:
        """When the record was written; 0 if it is missing."""
        try:
            return self.record.stat().st_mtime
        except FileNotFoundError:
            return 0.0

    @property
    def begun(self) -> Path:
        """The task and code that the folder was begun with."""
        return self.folder.with_name(f"{self.seed}.begun.json")

    @property
    def log(self) -> Path:
        """What the work printed."""
        return self.folder.with_name(f"{self.seed}.log")

    @property
    def name(self) -> str:
        """For messages: "objective MV-DHEL, k 4, seed 0"."""
        return f"{self.cell.name}, seed {self.seed}"


@dataclasses.dataclass(frozen=True)
class Look:
    """The state of a place.

    Attributes:
      state: `stale` if its task or the code that it uses has changed since.
      record: content of its file; empty if it is missing.
      reasons: why it is stale, or how it failed.
    """

    state: State
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
        found += [Place(cell, seed, folder / "cells" / slug / str(seed)) for seed in range(study.seeds)]
    return found


def look(place: Place) -> Look:
    """Read the state of a place.

    Raises:
      ValueError: its record is damaged.
    """
    file = place.record
    if not file.is_file():
        return Look("missing", {})
    with _files.reading(file, "record of a finished cell"):
        record = _files.read_json(file)
        if "error" in record:
            return Look("failed", record, (str(record["error"]),))
        reasons = _changes(record, _origin(place.cell))
    return Look("stale" if reasons else "finished", record, tuple(reasons))


def open_places(study: Study, folder: Path, again: bool) -> list[Place]:
    """The places that `run` will run."""
    states = ("missing", "failed", "stale") if again else ("missing", "failed")
    return [place for place in places(study, folder) if look(place).state in states]


def _origin(cell: Cell) -> dict[str, Any]:
    """What the results of a cell depend on: its task, and the code that it uses."""
    return {
        "task": json.loads(json.dumps(training.tree(cell.task))),
        "code": _code.code_of(cell.task),
    }


def _changes(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """What differs between two origins, in words."""
    reasons = training.differences(training.flatten(old["task"]), training.flatten(new["task"]), _FREE)
    both = [  # of code in mvcl, and outside
        (old["code"], new["code"]),
        (training.digests(old["task"]), training.digests(new["task"])),
    ]
    for before, now in both:  # what is no longer used was used by something that has changed
        reasons += [f"{name} has changed" for name in sorted(now) if before.get(name) != now[name]]
    return reasons


def run(study: Study, folder: Path, progress: Progress, *, again: bool = False) -> int:
    """Run what is missing or has failed, and with `again` what is stale; other processes may do so at the same time.

    A process takes the seeds of a cell one after the other, which compile once; then seeds of cells that others began.

    Args:
      study: the study.
      folder: of its cells.
      progress: shows what is run.
      again: whether to run stale cells again, from nothing.

    Returns:
      The number of places that failed.

    Raises:
      Interrupted: a signal stopped the run of a cell; its state is saved.
    """
    written = {place: place.written() for place in open_places(study, folder, again)}
    failures = 0
    for place in progress(_taken([*written]), "runs", len(written), "runs"):
        if place.written() == written[place]:  # no other process has run it since then
            with progress.during(place.name):
                failures += not _done(place, progress)
    return failures


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


def _is_of_another(place: Place, origin: dict[str, Any]) -> bool:
    """Whether the folder was begun, and perhaps not finished, with another task or other code."""
    if not place.begun.is_file():
        return look(place).state == "stale"
    with _files.reading(place.begun, "record of a cell that was begun"):
        return bool(_changes(_files.read_json(place.begun), origin))


def _done(place: Place, progress: Progress) -> bool:
    """Run a place and write its record; False if it failed."""
    folder, task = place.folder, place.cell.task
    origin = _origin(place.cell)
    if _is_of_another(place, origin):
        shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    _files.write_whole(place.begun, json.dumps(origin) + "\n")
    record: dict[str, Any] = {**origin, **_machine.provenance()}
    started = time.monotonic()
    try:
        with open(place.log, "a") as out, contextlib.redirect_stdout(out):
            values = [dict(row) for row in task.run(folder, place.seed, Progress(out))]
        record |= {"values": values, "seconds": round(time.monotonic() - started, 3)}
    except training.Interrupted:
        raise
    except Exception as error:  # whatever it is: the other cells go on, and the page names it
        record |= {"error": f"{type(error).__name__}: {error}", "traceback": traceback.format_exc()}
    _files.write_whole(place.record, json.dumps(record, indent=1) + "\n")
    if "error" in record:
        progress.line(f"{place.name} failed: {record['error']} (see {place.log})")
    return "error" not in record
