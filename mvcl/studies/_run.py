"""Run a study, each cell with each seed in a folder of its own; here, in several processes or on SLURM.

Each of several processes is the same command with `--worker`: it takes cells that no other process holds. Nothing hands
out work, so a process may die, and more may be started, at any time.
"""

import collections
import contextlib
import dataclasses
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

import jax

from mvcl import _extras, _files, _progress, training
from mvcl.studies._grid import Cell, Opened, Study

# Fields of a config that do not change what is measured.
_FREE = tuple(f"config.{name}" for name in training.free("seeds"))
_LOOK_SECONDS = 2.0
_PACKAGES = ("mvcl", "jax", "jaxlib", "flax", "optax", "numpy")


@dataclasses.dataclass(frozen=True, eq=False)
class Place:
    """A cell with one seed, and the folder of its work."""

    cell: Cell
    seed: int
    folder: Path
    task: Any  # the cell's, as a config is saved, with digests of the code in the study file that it uses

    def file(self, ending: str) -> Path:
        """Beside the folder: "json" has the results, "begun.json" the task that was begun, "log" what was printed."""
        return self.folder.with_name(f"{self.seed}.{ending}")

    def written(self) -> float:
        """When the record was written; 0 if it is missing."""
        file = self.file("json")
        return file.stat().st_mtime if file.is_file() else 0.0

    @property
    def name(self) -> str:
        """For messages: "objective MV-DHEL, k 4, seed 0"."""
        return f"{self.cell.name}, seed {self.seed}"


@dataclasses.dataclass(frozen=True)
class Look:
    """The state of a place; `stale` if its config, or code of the study file that it uses, has changed since."""

    state: Literal["finished", "stale", "failed", "missing"]
    record: dict[str, Any]  # content of its file; empty if it is missing
    reasons: tuple[str, ...] = ()  # why it is stale, or how it failed


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


def _left(study: Study, folder: Path, again: bool) -> dict[Place, float]:
    """The places that `run` will run, and when their records were written."""
    states = ("missing", "failed", "stale") if again else ("missing", "failed")
    return {place: place.written() for place in places(study, folder) if look(place).state in states}


def _changes(old: Any, new: Any) -> list[str]:
    """What differs between two tasks, in words; code that is no longer used was used by code that has changed."""
    before, now = training.digests(old), training.digests(new)
    return [
        *training.differences(training.flatten(old), training.flatten(new), _FREE),
        *(f"{name} has changed" for name in sorted(now) if before.get(name) != now[name]),
    ]


def run(study: Study, folder: Path, *, again: bool = False) -> int:
    """Run what is missing or failed, and with `again` what is stale, from nothing; several processes may do so at once.

    A process takes the seeds of a cell one after the other, which compile once; then seeds of cells that others began.
    A signal ends it: a run saves its state, and nothing else begins.

    Returns:
      The number of places that failed.

    Raises:
      Interrupted: a signal stopped a run; its state is saved.
      KeyboardInterrupt: a signal came at another time.
    """
    left, failures = _left(study, folder, again), 0
    with _ending():
        for place in _progress.track(_taken([*left]), "runs", len(left), "runs"):
            if place.written() == left[place]:  # no other process has run it since then
                with _progress.during(place.name):
                    failures += not _done(place)
    return failures


@contextlib.contextmanager
def _ending() -> Iterator[None]:
    """Context in which SIGTERM and SIGINT raise `KeyboardInterrupt`; in it a run handles both itself."""
    stop = signal.default_int_handler
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
    another = look(place).state == "stale"
    if begun.is_file():
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
    """Machine, versions, commit ("+" if files have changed since; "" outside a checkout) and date of this process."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    processor = platform.processor() or platform.machine()
    with contextlib.suppress(OSError):
        text = Path("/proc/cpuinfo").read_text()
        processor = next(iter(re.findall(r"^model name\s*: (.+)$", text, re.MULTILINE)), processor)
    machine = f"{processor}, {cores} {'core' if cores == 1 else 'cores'}"
    if (device := jax.devices()[0]).platform != "cpu":
        machine = f"{jax.device_count()} x {device.device_kind}; {machine}"
    commit, git = "", ["git", "-C", str(Path(__file__).resolve().parents[2])]
    with contextlib.suppress(OSError, subprocess.CalledProcessError):
        commit = subprocess.check_output(
            [*git, "rev-parse", "--short=10", "HEAD"], stderr=subprocess.DEVNULL, text=True
        ).strip()
        commit += "+" * subprocess.call([*git, "diff", "--quiet", "HEAD", "--", "mvcl", "configs"])
    return {
        "machine": machine,
        "versions": {"python": platform.python_version()}
        | {name: metadata.version(name) for name in _PACKAGES},
        "commit": commit,
        "date": datetime.now(UTC).date().isoformat(),
    }


@dataclasses.dataclass(frozen=True, kw_only=True)
class Slurm:
    """Resources of each SLURM job; there are `--jobs` of them."""

    partition: str | None = None
    """Partition; None: the cluster's default."""
    minutes: int = 240
    """Time limit. At its end a job saves the run of its cell; repeating the command goes on."""
    cpus: int = 8
    """Processor cores."""
    gpus: int = 1
    """GPUs."""
    memory_gb: int | None = None
    """Memory in GB; None: the cluster's default."""
    account: str | None = None
    """Account that is charged; None: the user's default."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """How a study is run."""

    workdir: Path | None = None
    """Folder of the runs and of the page; None: runs/studies/NAME_SCALE. Repeating the command goes on with what is
    missing or has failed."""
    again: bool = False
    """Also run cells again whose config or study file has changed since, from nothing."""
    jobs: int = 1
    """Number of processes, each on its share of the cores; with --executor slurm, of SLURM jobs."""
    executor: Literal["local", "slurm"] = "local"
    """`slurm` submits the processes as jobs (needs mvcl[slurm]); --workdir must be on a disk that all machines see."""
    slurm: Slurm = dataclasses.field(default_factory=Slurm)
    write: Path | None = None
    """Further folder to write the page and its files to, such as docs/studies."""
    dry_run: bool = False
    """List the runs with their state, and exit."""
    worker: bool = False
    """Run cells and write no page: what --jobs and --executor start."""


def overview(opened: Opened, folder: Path) -> str:
    """The runs of a study by state, one in a line, with the reasons of those that are stale or failed."""
    lines, counts = [], collections.Counter[str]()
    for place in places(opened.study, folder):
        state, _, reasons = dataclasses.astuple(look(place))
        lines.append(f"{state:8}  {place.name}" + (f": {'; '.join(reasons[:3])}" if reasons else ""))
        counts[state] += 1
    total = ", ".join(f"{count} {state}" for state, count in counts.items())
    return "\n".join([*lines, "", f"{len(lines)} runs: {total}", f"cost of all: {opened.study.cost}"])


def on_this_machine(opened: Opened, folder: Path, options: Options) -> None:
    """Several processes of this machine, each on its share of the cores; they end with this one."""
    logs = folder / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    command = _command(opened, folder, options)
    workers: list[subprocess.Popen[bytes]] = []
    try:
        with _ending():
            for number in range(options.jobs):
                with open(logs / f"worker{number}.log", "a") as out:
                    workers.append(subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT))
                if cores:  # several that compete for all cores are slower
                    os.sched_setaffinity(workers[-1].pid, cores[number % len(cores) :: options.jobs])
            _watch(opened, folder, options, lambda: sum(worker.poll() is None for worker in workers))
    finally:
        for worker in workers:
            if worker.poll() is None:
                worker.terminate()  # a run saves its state
        codes = [worker.wait() for worker in workers]
    if lost := [number for number, code in enumerate(codes) if code not in (0, 1)]:
        raise RuntimeError(
            f"worker {lost[0]} ended with exit code {codes[lost[0]]} (see worker{lost[0]}.log in {logs}); repeat the "
            "command to go on"
        )


def on_slurm(opened: Opened, folder: Path, options: Options) -> None:
    """Submit an array of jobs, and wait for them; Ctrl-C leaves them running."""
    with _extras.needed("slurm", by="mvcl study --executor slurm"):
        import submitit

    slurm = options.slurm
    given = {"mem_gb": slurm.memory_gb, "slurm_partition": slurm.partition, "slurm_account": slurm.account}
    given |= {"timeout_min": slurm.minutes, "cpus_per_task": slurm.cpus, "gpus_per_node": slurm.gpus}
    given = {name: value for name, value in given.items() if value is not None}
    executor = submitit.AutoExecutor(folder=folder / "logs" / "%j", cluster="slurm")
    executor.update_parameters(name=f"mvcl-{opened.name}", **given)
    command = _command(opened, folder, options)
    with executor.batch():
        submitted = [executor.submit(in_job, command) for _ in range(options.jobs)]
    names = ", ".join(job.job_id for job in submitted)
    _progress.line(f"submitted jobs {names}; Ctrl-C leaves them running")
    _watch(opened, folder, options, lambda: sum(not job.done() for job in submitted))


def in_job(command: list[str]) -> int:
    """Run a worker inside a SLURM job, and return its exit code.

    Before its time is over a job gets SIGUSR2, which submitit turns into an exception. The worker, which may get the
    same signal, ignores it; it gets SIGTERM, so that it saves the state of its run.
    """
    handler = signal.signal(signal.SIGUSR2, signal.SIG_IGN)  # a process inherits that a signal is ignored
    try:
        worker = subprocess.Popen(command)
    finally:
        signal.signal(signal.SIGUSR2, handler)
    with worker:
        try:
            return worker.wait()
        finally:
            worker.terminate()


def _command(opened: Opened, folder: Path, options: Options) -> list[str]:
    study = [sys.executable, "-m", "mvcl", "study", *opened.arguments]
    return [*study, "--workdir", str(folder), "--worker", *["--again"] * options.again]


def _watch(opened: Opened, folder: Path, options: Options, running: Callable[[], int]) -> None:
    """Report the runs that are done until no process is left."""
    left = _left(opened.study, folder, options.again)

    def finished() -> Iterator[None]:
        done, alive = 0, True
        while alive:
            alive = running() > 0
            now = sum(place.written() != before for place, before in left.items())
            yield from [None] * (now - done)
            done = max(now, done)
            time.sleep(_LOOK_SECONDS if alive else 0)

    for _ in _progress.track(finished(), f"{opened.name}, {running()} processes", len(left), "runs"):
        pass
