"""The command of a study: run its cells, here, in several processes or on SLURM, and write its page."""

import collections
import dataclasses
from pathlib import Path
from typing import Literal

from mvcl._progress import Progress
from mvcl.studies import _engine, _jobs, _numbers, _write
from mvcl.studies._open import Opened


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """How a study is run."""

    workdir: Path | None = None
    """Folder of the runs and of the page; None: runs/studies/NAME_SCALE. Repeating the command goes on with what is
    missing or has failed."""
    again: bool = False
    """Also run cells again whose config or code has changed since, from nothing."""
    jobs: int = 1
    """Number of processes, each on its share of the cores; with --executor slurm, of SLURM jobs."""
    executor: Literal["local", "slurm"] = "local"
    """`slurm` submits the processes as jobs (needs mvcl[slurm]); --workdir must be on a disk that all machines see."""
    slurm: _jobs.Slurm = dataclasses.field(default_factory=_jobs.Slurm)
    write: Path | None = None
    """Further folder to write the page and its files to, such as docs/studies."""
    dry_run: bool = False
    """List the runs with their state, and exit."""
    worker: bool = False
    """Run cells and write no page: what --jobs and --executor start."""


def run_study(opened: Opened, folder: Path, options: Options, progress: Progress) -> tuple[Path, int]:
    """Run what is missing or has failed, and write the page; after an interruption too, of what there is.

    Returns:
      The page, and the number of runs that failed or are missing.

    Raises:
      Interrupted: a signal stopped the run of a cell; its state is saved.
    """
    try:
        if options.executor == "slurm":
            _jobs.run_slurm(opened, folder, options.jobs, options.slurm, progress, again=options.again)
        elif options.jobs > 1:
            _jobs.run_local(opened, folder, options.jobs, progress, again=options.again)
        else:
            _engine.run(opened.study, folder, progress, again=options.again)
    finally:
        with progress.during("writing the page"):
            content = _numbers.numbers(opened, folder)
            page = _write.write(content, folder, opened.name)
            if options.write is not None:
                _write.write(content, options.write, f"{opened.name}_{opened.scale}")
    states = [state for cell in content["cells"] for state in cell["status"].values()]
    return page, states.count("failed") + states.count("missing")


def overview(opened: Opened, folder: Path) -> str:
    """The runs of a study by state, one in a line, with the reasons of those that are stale or failed."""
    looks = [(place, _engine.look(place)) for place in _engine.places(opened.study, folder)]
    lines = [
        f"{look.state:8}  {place.name}" + (f": {'; '.join(look.reasons[:3])}" if look.reasons else "")
        for place, look in looks
    ]
    counts = collections.Counter(look.state for _, look in looks)
    total = ", ".join(f"{count} {state}" for state, count in counts.items())
    return "\n".join([*lines, "", f"{len(looks)} runs: {total}", f"cost of all: {opened.study.cost}"])
