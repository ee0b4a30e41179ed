"""Train a run from its newest checkpoint, then evaluate it."""

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import jax

from mvcl import _buckets, data
from mvcl._progress import Progress
from mvcl.training import _evaluate, _folder, _goodput, _pictures, _processes, _program, _watch
from mvcl.training._checkpoints import Checkpoints
from mvcl.training._config import Config, how_many
from mvcl.training._goodput import Goodput
from mvcl.training._guard import Guard
from mvcl.training._initial import initial_state
from mvcl.training._live import LivePage
from mvcl.training._log import Log, log_line
from mvcl.training._loop import Diverged, Tools, log_geometry, loop, record_score
from mvcl.training._preemption import notices
from mvcl.training._run import Run, prepare
from mvcl.training._scores import append_score, scores
from mvcl.training._signals import Interrupted, stop_signals

# Steps before a profile starts: they compile and fill queues.
_UNPROFILED = 3


def train(
    config: Config,
    workdir: Path,
    *,
    profile: int = 0,
    reference: Config | None = None,
    progress: Progress | None = None,
    page: Callable[[], Path] | None = None,
) -> _evaluate.Table:
    """Train a config in a folder, from the newest checkpoint if there is one, and evaluate.

    Args:
      config: the experiment.
      workdir: folder of the run; created if missing.
      profile: number of steps to trace into workdir/profile.
      reference: a config with the functions and classes of the user's own that the run of train.initial uses.
      progress: as for `prepare`.
      page: writes the page of the run and returns its path. Process 0 calls it in a thread while the run trains; an
        error is logged.

    Returns:
      The evaluation table: row name -> results.

    Raises:
      ValueError: the config is invalid, or the folder belongs to another config.
      Diverged: the loss became NaN or infinite.
      Interrupted: a process received SIGTERM or SIGINT, or a notice of pre-emption; the state is saved.
      DamagedCheckpoints: no checkpoint of the folder can be read.
      CorruptExample: more than train.corrupt_limit examples cannot be read.
      StalledReader: no batch arrived within train.stall_seconds.
      LostProcess: another process of the run has ended.
    """
    workdir = _buckets.path(workdir)
    with _goodput.measured() as goodput:
        run = prepare(config, progress)
        try:
            if jax.process_index() > 0:
                return _continue(run, workdir, goodput, profile, reference, page)
            with _folder.locked(workdir):
                _folder.claim(workdir, run.config)
                return _continue(run, workdir, goodput, profile, reference, page)
        except Exception as error:
            if _processes.means_lost(error):
                raise _processes.LostProcess(workdir) from error
            raise


def _continue(
    run: Run,
    workdir: Path,
    goodput: Goodput,
    profile: int,
    reference: Config | None,
    page: Callable[[], Path] | None,
) -> _evaluate.Table:
    """Train the remaining steps, and carry out what is left of the evaluation."""
    checkpoints = Checkpoints(workdir / "checkpoints", run.config.checkpoint.keep, scores(workdir))
    steps = run.program.steps
    with stop_signals() as stop, notices(stop), ExitStack() as files:
        try:
            state, record = _restored(run, checkpoints, reference)
            step = int(record["step"])
            checkpoints.rewind(step)
            reading = data.Reading(run.config.train.corrupt_limit, record["corrupt"])
            found = _evaluate.saved(run, workdir, step) if step == steps else None
            if found is not None:
                return _finished(workdir, step, found, checkpoints)
            heartbeat = _begin(run, workdir, step, goodput) if jax.process_index() == 0 else None
            tools = _tools(
                run,
                workdir,
                step,
                checkpoints,
                reading,
                heartbeat,
                stop,
                profile=profile,
                goodput=goodput,
                page=page,
            )
            files.enter_context(run.progress.showing())  # of the log
            files.callback(tools.close)
            if step < steps:
                with goodput.during("training"):
                    state = loop(run, state, step, tools)
            tools.pictures()  # of a run that was killed before they were written
        except Exception as error:
            if jax.process_count() > 1 and not isinstance(error, (Interrupted, Diverged)):
                checkpoints.abandon()  # pending writes wait for processes that may have ended
            raise
        finally:
            with goodput.during("saving"), run.progress.during("writing the last checkpoint"):
                checkpoints.close()
        log_geometry(run, state, steps, tools)
        with goodput.during("evaluating"):
            table = _evaluated(run, state, tools)
    if stop["signal"] and jax.process_count() == 1:  # too late to stop this run, but not those after it
        raise Interrupted(stop["signal"], steps, steps, "ending")
    return table


def _finished(
    workdir: Path, step: int, found: _evaluate.Evaluated, checkpoints: Checkpoints
) -> _evaluate.Table:
    """The table of a run that has ended; logs its score, and that it is done, if the run was killed before that."""
    if jax.process_index() == 0:
        if found.score is not None and checkpoints.score(step) is None:
            append_score(workdir, step, *found.score)
        _watch.say_done(workdir / "heartbeat.json")
    _evaluate.forget_unfinished(workdir)
    return found.table


def _restored(
    run: Run, checkpoints: Checkpoints, reference: Config | None
) -> tuple[_program.State, dict[str, Any]]:
    """State and record of the newest checkpoint, or new ones."""
    with run.progress.during("reading the newest checkpoint"):
        restored = checkpoints.restore(run.program.abstract_state(), log=log_line)
    if restored is not None:
        log_line(f"resuming from step {restored[1]['step']} of {run.program.steps}")
        return restored
    config = run.config
    every = " (the whole split)" if config.examples == run.outline.examples else ""
    log_line(
        f"training {run.program.steps} steps of {config.examples} examples{every} x {config.views.k} views"
        f"{how_many(config)}"
    )
    return initial_state(run, reference), {"step": 0, "corrupt": ()}


def _evaluated(run: Run, state: _program.State, tools: Tools) -> _evaluate.Table:
    """Evaluate the last state, which is saved, and log its score."""
    steps = run.program.steps
    run.progress.line("evaluating")
    if tools.heartbeat is not None:
        tools.heartbeat.beat(steps, "evaluating", now=True)
    tools.page.close()  # the evaluation may draw as well, and matplotlib's settings are not those of a thread
    found = _evaluate.evaluated(run, state, tools.workdir, tools.reading, tools.guard(steps))
    if found.score is not None:
        record_score(steps, found.score, tools.checkpoints, tools.log)
    if tools.heartbeat is not None:
        tools.heartbeat.beat(steps, "done", now=True)
    return found.table


def _begin(run: Run, workdir: Path, step: int, goodput: Goodput) -> _watch.Heartbeat:
    """Prepare the folder for training from a step, in process 0."""
    goodput.resume(workdir)
    clock = _watch.Clock(max((row.get("time", 0.0) for row in _folder.read_log(workdir)), default=0.0))
    heartbeat = _watch.Heartbeat(workdir / "heartbeat.json", run.program.steps, clock, goodput)
    heartbeat.beat(step, "starting", now=True)
    _folder.rewind_log(workdir, step, done=step >= run.program.steps)
    data.save_scaling(run.splits["train"], workdir / "scaling.json")
    return heartbeat


def _tools(
    run: Run,
    workdir: Path,
    step: int,
    checkpoints: Checkpoints,
    reading: data.Reading,
    heartbeat: _watch.Heartbeat | None,
    stop: dict[str, int],
    *,
    profile: int,
    goodput: Goodput,
    page: Callable[[], Path] | None,
) -> Tools:
    """What the rest of a run uses; process 0 opens the log."""
    steps, log = run.program.steps, None
    if heartbeat is not None:
        log = Log(
            workdir,
            steps=steps,
            first_step=step,
            views_per_step=run.config.examples * run.config.views.k,
            progress=run.progress,
            clock=heartbeat.clock,
        )
    first = max(min(step + _UNPROFILED, steps - profile), step)
    trace = _watch.Profile(workdir / "profile", first, profile if log is not None else 0)
    if log is not None and profile:
        log.line(f"profiling {profile} steps from step {first + 1} into {workdir / 'profile'}")

    def pictures() -> None:
        if heartbeat is not None:
            _pictures.save_views(run, workdir / "views.npz", reading)

    guard = partial(
        Guard,
        steps=steps,
        stop=stop,
        exchange=_processes.Flags(run.program.mesh, 1).exchange,
        heartbeat=heartbeat,
        progress=run.progress,
    )
    return Tools(
        checkpoints=checkpoints,
        log=log,
        heartbeat=heartbeat,
        trace=trace,
        reading=reading,
        stop=stop,
        workdir=workdir,
        guard=guard,
        goodput=goodput,
        pictures=pictures,
        page=LivePage(None if heartbeat is None else page, run.progress.line),
    )
