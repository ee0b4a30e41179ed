"""The command of a study: run its cells here, in several processes or on SLURM, and write its page.

Each of several processes is the same command with `--worker`: it takes cells that no other process holds. Nothing hands
out work, so a process may die, and more may be started, at any time.
"""

import collections
import contextlib
import dataclasses
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

from mvcl import _extras, _progress
from mvcl.studies import _run, _table
from mvcl.studies._grid import Opened

_LOOK_SECONDS = 2.0


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


def run_study(opened: Opened, folder: Path, options: Options) -> tuple[Path, int]:
    """Run what is missing or has failed, and write the page; after an interruption too, of what there is.

    Returns:
      The page, and the number of runs that failed or are missing.

    Raises:
      Interrupted: a signal stopped a run; its state is saved.
      RuntimeError: another process ended by a signal of its own.
    """
    try:
        if options.executor == "slurm":
            _run_slurm(opened, folder, options)
        elif options.jobs > 1:
            _run_local(opened, folder, options)
        else:
            _run.run(opened.study, folder, again=options.again)
    finally:
        with _progress.during("writing the page"):
            content = _table.numbers(opened, folder)
            page = _table.write(content, folder, opened.name)
            if options.write is not None:
                _table.write(content, options.write, f"{opened.name}_{opened.scale}")
    states = [state for cell in content["cells"] for state in cell["status"].values()]
    return page, states.count("failed") + states.count("missing")


def overview(opened: Opened, folder: Path) -> str:
    """The runs of a study by state, one in a line, with the reasons of those that are stale or failed."""
    looks = [(place, _run.look(place)) for place in _run.places(opened.study, folder)]
    lines = [
        f"{look.state:8}  {place.name}" + (f": {'; '.join(look.reasons[:3])}" if look.reasons else "")
        for place, look in looks
    ]
    counts = collections.Counter(look.state for _, look in looks)
    total = ", ".join(f"{count} {state}" for state, count in counts.items())
    return "\n".join([*lines, "", f"{len(looks)} runs: {total}", f"cost of all: {opened.study.cost}"])


def _run_local(opened: Opened, folder: Path, options: Options) -> None:
    """Several processes of this machine, each on its share of the cores; they end with this one."""
    logs = folder / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    workers: list[subprocess.Popen[bytes]] = []
    try:
        with _run.ending(), contextlib.ExitStack() as files:
            for number in range(options.jobs):
                out = files.enter_context(open(logs / f"worker{number}.log", "a"))
                command = _command(opened, folder, options)
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


def _run_slurm(opened: Opened, folder: Path, options: Options) -> None:
    """Submit an array of jobs, and wait for them; Ctrl-C leaves them running."""
    with _extras.needed("slurm", by="mvcl study --executor slurm"):
        import submitit

    slurm = options.slurm
    given = {"mem_gb": slurm.memory_gb, "slurm_partition": slurm.partition, "slurm_account": slurm.account}
    executor = submitit.AutoExecutor(folder=folder / "logs" / "%j", cluster="slurm")
    executor.update_parameters(
        name=f"mvcl-{opened.name}",
        timeout_min=slurm.minutes,
        cpus_per_task=slurm.cpus,
        gpus_per_node=slurm.gpus,
        **{name: value for name, value in given.items() if value is not None},
    )
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
    arguments = [*opened.arguments, "--workdir", str(folder), "--worker", *["--again"] * options.again]
    return [sys.executable, "-m", "mvcl", "study", *arguments]


def _watch(opened: Opened, folder: Path, options: Options, running: Callable[[], int]) -> None:
    """Report the runs that are done until no process is left."""
    left = _run.open_places(opened.study, folder, options.again)
    before = {place: place.written() for place in left}

    def finished() -> Iterator[None]:
        done, alive = 0, True
        while alive:
            alive = running() > 0
            now = sum(place.written() != before[place] for place in left)
            yield from [None] * (now - done)
            done = max(now, done)
            time.sleep(_LOOK_SECONDS if alive else 0)

    for _ in _progress.track(finished(), f"{opened.name}, {running()} processes", len(left), "runs"):
        pass
