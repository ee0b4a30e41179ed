"""Run a study, each cell with each seed in a folder of its own; here, in several processes or on SLURM.

The run of a task with a seed is in cells/DIGEST/SEED beside the folders of the studies, which link to it, so that those
with the same task share it. Each of several processes is the same command with `--worker`, which takes cells that no
other process holds: one may die, and more may be started, at any time.
"""

import collections
import contextlib
import dataclasses
import hashlib
import json
import os
import platform
import re
import shlex
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax
import numpy as np

from mvcl import _files, _progress, training
from mvcl.studies._grid import Cell, Opened, Study, chosen

# Fields of a config that do not change what is measured.
_FREE = tuple(f"config.{name}" for name in training.free("seeds"))
_LOOK_SECONDS = 2.0
_PACKAGES = ("mvcl", "jax", "jaxlib", "flax", "optax", "numpy")


@dataclasses.dataclass(frozen=True, eq=False)
class Place:
    """A cell with one seed: the folder of its work, and the link to it among the cells of the study."""

    cell: Cell
    seed: int
    link: Path
    folder: Path
    task: Any  # the cell's, as a config is saved, with digests of the code in the study file that it uses

    def file(self, ending: str) -> Path:
        """Beside the link: "json" has the results, "log" what was printed."""
        return self.link.with_name(f"{self.seed}.{ending}")

    def written(self) -> float:
        """When the record was written; 0 if it is missing."""
        file = self.file("json")
        return file.stat().st_mtime if file.is_file() else 0.0

    def connect(self) -> None:
        """Link to the work and its files, in place of what was there."""
        for ending in ("", ".json", ".log"):
            link, of = (path.with_name(path.name + ending) for path in (self.link, self.folder))
            link.parent.mkdir(parents=True, exist_ok=True)
            beside = link.with_name(f".{link.name}.{os.getpid()}")
            beside.symlink_to(os.path.relpath(of.parent.resolve() / of.name, link.parent.resolve()))
            os.replace(beside, link)

    @property
    def name(self) -> str:
        """For messages: "objective MV-DHEL, k 4, seed 0"."""
        return f"{self.cell.name}, seed {self.seed}"


class Look(NamedTuple):
    """The state of a place; `stale` if its config, or code of the study file that it uses, has changed since."""

    state: Literal["finished", "stale", "failed", "missing"]
    record: dict[str, Any]  # content of its file; empty if it is missing
    reasons: tuple[str, ...] = ()  # why it is stale, or how it failed


def places(study: Study, folder: Path, only: str = "") -> list[Place]:
    """The `chosen` cells with all seeds, in order, with links in `folder`/cells to the work in `folder`/../cells."""
    found, used, names = [], set(), set(chosen(study, only))
    for cell in study.cells:
        slug = re.sub(r"[^A-Za-z0-9.=]+", "-", cell.name).strip("-")
        while slug.casefold() in used:  # names that differ in other signs only
            slug += "-2"
        used.add(slug.casefold())
        if cell.name not in names:
            continue
        task = json.loads(json.dumps(training.tree(cell.task)))
        digest = hashlib.sha256(json.dumps(task, sort_keys=True).encode()).hexdigest()[:16]
        of_cell, work = folder / "cells" / slug, folder.parent / "cells" / digest
        seeded = getattr(cell.task, "seeded", True)  # else one run is that of every seed
        for n in range(study.seeds):
            found.append(Place(cell, n, of_cell / str(n), work / str(n if seeded else 0), task))
    return found


def look(place: Place) -> Look:
    """Read the state of a place, or of work that it shares with another study; `ValueError` if a record is damaged."""
    files = (place.file("json"), place.folder.with_name(f"{place.folder.name}.json"))
    if (file := next((file for file in files if file.is_file()), None)) is None:
        return Look("missing", {})
    with _files.reading(file, "record of a finished cell; delete it to run this seed again"):
        record = json.loads(file.read_text(encoding="utf-8"))
        if "error" in record:
            return Look("failed", record, (str(record["error"]),))
        tasks = (record["task"], place.task)
        before, now = map(training.digests, tasks)
        old, new = map(training.flatten, tasks)
        reasons = training.differences(old, new, _FREE)
        # `now` has the code that the task uses; what it used before and no longer does is no reason.
        reasons += [f"{name} has changed" for name in sorted(now) if before.get(name) != now[name]]
    return Look("stale" if reasons else "finished", record, tuple(reasons))


def _left(study: Study, folder: Path, again: bool, only: str) -> dict[Place, float]:
    """The places that `run` will run, and when their records were written."""
    states = ("missing", "failed", "stale") if again else ("missing", "failed")
    return {place: place.written() for place in places(study, folder, only) if look(place).state in states}


def run(study: Study, folder: Path, *, again: bool = False, only: str = "") -> int:
    """Run what is missing or failed, and with `again` what is stale, from nothing; return how many places failed.

    `only` chooses cells, as `--only`. Several processes may do so at once. The seeds of a cell follow each other, so
    that they compile once.

    Raises:
      Interrupted: a signal stopped a run; its state is saved.
      KeyboardInterrupt: a signal came at another time.
    """
    for place in places(study, folder, only):
        if not place.written() and look(place).state == "finished":
            place.connect()
    left, failures = _left(study, folder, again, only), 0
    with training.handling(signal.default_int_handler):  # a run inside handles both itself
        for place in _progress.track(_taken(left), "runs", len(left), "runs"):
            with _progress.during(place.name):
                failures += not _done(place)
    return failures


def _taken(left: Mapping[Place, float]) -> Iterator[Place]:
    """The places that no other process has run since, each while this process holds its lock: first those of cells that
    no other process holds, then those of all."""
    for alone in (True, False):
        for cell in dict.fromkeys(place.folder.parent for place in left):
            with contextlib.suppress(training.Locked), contextlib.ExitStack() as held:
                if alone:
                    held.enter_context(training.locked(cell))
                for place in (place for place in left if place.folder.parent == cell):
                    lock = training.locked(cell, f".{place.folder.name}.lock")
                    with contextlib.suppress(training.Locked), lock:
                        if place.written() == left[place]:
                            yield place


def _done(place: Place) -> bool:
    """Run a place, unless a study that shares it has, and write its record; False if it failed."""
    file, log = (place.folder.with_name(f"{place.folder.name}.{ending}") for ending in ("json", "log"))
    record = _files.read_json(file) if file.is_file() else {}
    if "values" not in record:
        place.folder.mkdir(parents=True, exist_ok=True)
        record, started = {"task": place.task, **_provenance()}, time.monotonic()
        assert place.cell.task is not None
        try:
            with open(log, "a") as out, contextlib.redirect_stdout(out):
                values = [dict(row) for row in place.cell.task.run(place.folder, place.seed)]
            record |= {"values": values, "seconds": round(time.monotonic() - started, 3)}
        except training.Interrupted:
            raise
        except Exception as error:  # whatever it is: the other cells go on, and the page names it
            record |= {"error": f"{type(error).__name__}: {error}", "traceback": traceback.format_exc()}
            _progress.line(f"{place.name} failed: {record['error']} (see {log})")
        _files.write_whole(file, json.dumps(record, indent=1) + "\n")
    place.connect()
    return "error" not in record


@cache
def _provenance() -> dict[str, Any]:
    """Machine, versions, commit ("+" if files have changed since; "" outside a checkout) and date of this process."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    processor = platform.processor() or platform.machine()
    with contextlib.suppress(OSError):
        text = Path("/proc/cpuinfo").read_text()
        processor = next(iter(re.findall(r"^model name\s*: (.+)$", text, re.MULTILINE)), processor)
    machine = f"{processor}, {cores} {'core' if cores == 1 else 'cores'}"
    if (device := jax.devices()[0]).platform != "cpu":
        machine = f"{jax.device_count()} x {device.device_kind} and {machine}"  # a page joins machines by ";"
    commit, git = "", ["git", "-C", str(Path(__file__).resolve().parents[2])]
    with contextlib.suppress(OSError, subprocess.CalledProcessError):
        head = [*git, "rev-parse", "--short=10", "HEAD"]
        commit = subprocess.check_output(head, stderr=subprocess.DEVNULL, text=True).strip()
        commit += "+" * subprocess.call([*git, "diff", "--quiet", "HEAD", "--", "mvcl", "configs"])
    versions = {"python": platform.python_version()} | {name: metadata.version(name) for name in _PACKAGES}
    date = datetime.now(UTC).date().isoformat()
    return {"machine": machine, "cores": cores, "versions": versions, "commit": commit, "date": date}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """How a study is run."""

    workdir: Path = Path("runs/studies")
    """Folder of studies: NAME_SCALE in it has the page and links to the runs in `cells`, which all studies share.
    Repeating the command goes on with what is missing or has failed."""
    again: bool = False
    """Also run cells again whose config or study file has changed since, from nothing."""
    only: str = ""
    """Run and list some cells only, and judge the claims about them alone: FACTOR=LEVEL,... (objective=mv_dhel,k=4);
    levels of one factor are alternatives. Baselines are always among them."""
    jobs: int = 1
    """Number of processes, each on its share of the cores; with --slurm, of SLURM jobs."""
    slurm: str | None = None
    """Options of sbatch, --slurm="--gpus 1 --time 240": submit the processes as SLURM jobs. --workdir must be
    on a disk that all machines see."""
    write: Path | None = None
    """Further folder to write the page and its files to, such as docs/studies."""
    dry_run: bool = False
    """List the runs with their state and first measures, the data that are absent and the hours left, and exit."""
    worker: bool = False
    """Run cells and write no page: what --jobs and --slurm start."""


def _absent(places: Iterable[Place]) -> tuple[list[str], bool]:
    """Why data of the places cannot be opened here, and whether that is so of all data."""
    configs = {place: config for place in places if (config := getattr(place.cell.task, "config", None))}
    sources = {json.dumps(place.task["config"]["data"]): config.data for place, config in configs.items()}
    absent = [why for source in sources.values() if (why := training.absent(source))]
    return list(dict.fromkeys(absent)), len(absent) == len(sources) > 0


def check_data(study: Study, folder: Path, options: Options) -> None:
    """Raise `ValueError` if runs are left and none of their data can be opened; without some the others run."""
    why, every = _absent(_left(study, folder, options.again, options.only))
    if every:
        raise ValueError("; ".join(why))


def overview(opened: Opened, folder: Path, options: Options) -> tuple[str, int]:
    """The runs of a study by state, one in a line, with what the finished ones measured, and the reasons of those that
    are stale or failed; below them the hours of the runs left and a line for each data set that cannot be opened here.

    Also the number of these data sets.
    """
    lines, counts = [], collections.Counter[str]()
    every = places(opened.study, folder, options.only)
    # Of the finished runs of each cell: of a core (False), and with an accelerator (True).
    kinds: dict[bool, dict[str, list[float]]] = {False: {}, True: {}}
    for place in every:
        state, record, reasons = look(place)
        told = "; ".join(reasons[:3]) or _measured(opened.study, record)
        lines.append(f"{state:8}  {place.name}" + (f": {told}" if told else ""))
        counts[state] += 1
        if "seconds" in record:
            device = re.match(r"\d+ x ", record["machine"]) is not None  # as `_provenance` writes it
            of_cell = kinds[device].setdefault(place.cell.name, [])
            of_cell.append(record["seconds"] * (1 if device else record["cores"]))
    total = ", ".join(f"{count} {state}" for state, count in counts.items())
    absent, _ = _absent(every)
    left = [place.cell.name for place in _left(opened.study, folder, options.again, options.only)]
    whole = len(opened.study.cells) * opened.study.seeds
    cost = f"all {whole} runs: {opened.study.cost}; {len(left)} left, none finished"
    # Of the kind with more runs.
    seconds = max(kinds.values(), key=lambda cells: sum(map(len, cells.values())))
    if known := [second for of in seconds.values() for second in of]:
        hours = sum(float(np.mean(seconds.get(name, known))) for name in left) / 3600
        where, hours = ("one such machine", hours) if seconds is kinds[True] else ("2 cores", hours / 2)
        cost = f"{hours:.2g} hours on {where} for the {len(left)} runs left, by {len(known)} finished"
    ends = [f"{len(lines)} runs: {total}", f"cost: {cost}", *(f"data absent: {why}" for why in absent)]
    return "\n".join([*lines, "", *ends]), len(absent)


def _measured(study: Study, record: Mapping[str, Any]) -> str:
    """The first measures of a run (of several networks the first), and its loss: whether it trains at all."""
    row = {name: x for name, x in next(iter(record.get("values", ())), {}).items() if x is not None}
    known = [(m, row[m.name] * (100 if m.percent else 1)) for m in study.measures[:3] if m.name in row]
    told = [f"{m.label or m.name} {x:.{m.digits}f}" for m, x in known]
    told += [f"{name} {row[name]:.3g}" for name in ("loss", "below chance") if name in row]
    return ", ".join(told)


def in_processes(opened: Opened, folder: Path, options: Options) -> None:
    """Run a study in several processes, of this machine or of SLURM, and wait for them.

    Those of this machine share its cores and end with this one. SLURM's jobs go on without it; before their time is
    over they get SIGTERM, and save the state of their run. `RuntimeError` if a process ended in another way.
    """
    logs = folder / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "mvcl", "study", *opened.arguments]
    command += ["--workdir", str(folder.parent), "--worker", *["--again"] * options.again]
    processes: list[subprocess.Popen[bytes]] = []
    try:
        with training.handling(signal.default_int_handler):
            if options.slurm is not None:
                submit = ["sbatch", "--wait", f"--array=0-{options.jobs - 1}", "--signal=B:TERM@120"]
                submit += [f"--output={logs}/%A_%a.log", *shlex.split(options.slurm)]
                processes.append(subprocess.Popen([*submit, "--wrap", f"exec {shlex.join(command)}"]))
            for number in range(options.jobs if options.slurm is None else 0):
                with open(logs / f"worker{number}.log", "a") as out:
                    processes.append(subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT))
                if hasattr(os, "sched_setaffinity"):  # several that compete for all cores are slower
                    cores = sorted(os.sched_getaffinity(0))
                    os.sched_setaffinity(processes[-1].pid, cores[number % len(cores) :: options.jobs])
            left = _left(opened.study, folder, options.again, options.only)
            for _ in _progress.track(_finished(left, processes), opened.name, len(left), "runs"):
                pass
    finally:
        for process in processes:
            if process.poll() is None:
                process.terminate()  # a run saves its state
        codes = [process.wait() for process in processes]
    lost = [_loss(number, code) for number, code in enumerate(codes) if code not in (0, 1)]
    if lost and _left(opened.study, folder, options.again, options.only):
        raise RuntimeError(f"{'; '.join(lost)} (see {logs}); repeat the command")


def _loss(number: int, code: int) -> str:
    """How a process ended that did not end by itself."""
    by_kernel = code in (-signal.SIGKILL, 128 + signal.SIGKILL)
    killed = ": killed, as a kernel out of memory does" if by_kernel else ""
    return f"process {number} ended with exit code {code}{killed}"


def _finished(left: Mapping[Place, float], processes: list[subprocess.Popen[bytes]]) -> Iterator[None]:
    """An item for each place that is done, until no process is left; reports one that is lost while others go on."""
    done, alive = 0, dict(enumerate(processes))
    while alive:
        ended = {number: code for number, of in alive.items() if (code := of.poll()) is not None}
        alive = {number: of for number, of in alive.items() if number not in ended}
        for number, code in ended.items():
            if alive and code not in (0, 1):
                _progress.line(f"{_loss(number, code)}; the others go on")
        now = sum(place.written() != before for place, before in left.items())
        yield from [None] * (now - done)
        done = max(now, done)
        time.sleep(_LOOK_SECONDS if alive else 0)
