"""Several processes for one study: on this machine, or submitted to SLURM.

Each is the same command with `--worker`: it takes cells that no other process holds. Nothing hands out work, so a
process may die, and more may be started, at any time.
"""

import contextlib
import dataclasses
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

from mvcl import _extras
from mvcl._progress import Progress
from mvcl.studies import _engine
from mvcl.studies._open import Opened

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


def run_local(opened: Opened, folder: Path, jobs: int, progress: Progress, *, again: bool = False) -> None:
    """Run a study in several processes of this machine, each on its share of the cores.

    Args:
      opened: the study.
      folder: of its cells.
      jobs: number of processes.
      progress: shows how many runs are done.
      again: whether to run stale cells again.

    Raises:
      RuntimeError: a process ended by a signal of its own.
    """
    logs = folder / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as files, _terminated_together() as workers:
        for number in range(jobs):
            out = files.enter_context(open(logs / f"worker{number}.log", "a"))
            with _share(number, jobs):
                workers.append(
                    subprocess.Popen(_command(opened, folder, again), stdout=out, stderr=subprocess.STDOUT)
                )
        _watched(opened, folder, progress, lambda: sum(worker.poll() is None for worker in workers), again)
    if lost := [number for number, worker in enumerate(workers) if worker.returncode not in (0, 1)]:
        raise RuntimeError(
            f"worker {lost[0]} ended with exit code {workers[lost[0]].returncode} (see worker{lost[0]}.log in {logs}); "
            "repeat the command to go on"
        )


def run_slurm(
    opened: Opened, folder: Path, jobs: int, options: Slurm, progress: Progress, *, again: bool = False
) -> None:
    """Submit a study to SLURM as an array of jobs, and wait for them; Ctrl-C leaves them running.

    Args:
      opened: the study.
      folder: of its cells, which all machines must see.
      jobs: number of jobs.
      options: resources of each.
      progress: shows how many runs are done.
      again: whether to run stale cells again.
    """
    with _extras.needed("slurm", by="mvcl study --executor slurm"):
        import submitit

    executor = submitit.AutoExecutor(folder=folder / "logs" / "%j", cluster="slurm")
    executor.update_parameters(
        name=f"mvcl-{opened.name}",
        timeout_min=options.minutes,
        cpus_per_task=options.cpus,
        gpus_per_node=options.gpus,
        **({} if options.memory_gb is None else {"mem_gb": options.memory_gb}),
        **({} if options.partition is None else {"slurm_partition": options.partition}),
        **({} if options.account is None else {"slurm_account": options.account}),
    )
    command = _command(opened, folder, again)
    with executor.batch():
        submitted = [executor.submit(in_job, command) for _ in range(jobs)]
    progress.line(f"submitted jobs {', '.join(job.job_id for job in submitted)}; Ctrl-C leaves them running")
    _watched(opened, folder, progress, lambda: sum(not job.done() for job in submitted), again)


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


def _command(opened: Opened, folder: Path, again: bool) -> list[str]:
    arguments = [*opened.arguments, "--workdir", str(folder), "--worker", *(["--again"] if again else [])]
    return [sys.executable, "-m", "mvcl", "study", *arguments]


def _watched(
    opened: Opened, folder: Path, progress: Progress, running: Callable[[], int], again: bool
) -> None:
    """Show the runs that are done until no process is left."""
    left = _engine.open_places(opened.study, folder, again)
    before = {place: place.written() for place in left}

    def finished() -> Iterator[None]:
        done = 0
        while True:
            alive = running()
            now = sum(place.written() != before[place] for place in left)
            for _ in range(now - done):
                yield None
            done = max(now, done)
            if not alive:
                return
            time.sleep(_LOOK_SECONDS)

    for _ in progress(finished(), f"{opened.name}, {running()} processes", len(left), "runs"):
        pass


@contextlib.contextmanager
def _share(number: int, of: int) -> Iterator[None]:
    """Context in which processes are started on their share of the cores, so that several do not compete for all."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(cores)[number % len(cores) :: of])
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


@contextlib.contextmanager
def _terminated_together() -> Iterator[list[subprocess.Popen[bytes]]]:
    """A list of processes that get SIGTERM, and are waited for, when this one gets it, is interrupted, or fails."""
    workers: list[subprocess.Popen[bytes]] = []

    def stop(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGTERM, stop)
    try:
        yield workers
    finally:
        for worker in workers:
            if worker.poll() is None:
                worker.terminate()  # a run saves its state
        for worker in workers:
            worker.wait()
        signal.signal(signal.SIGTERM, previous)
