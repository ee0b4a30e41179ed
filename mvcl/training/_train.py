"""Train a run from its newest checkpoint and evaluate it."""

from pathlib import Path
from typing import Any

import jax

from mvcl import data
from mvcl.training import _evaluate, _folder, _pictures, _processes, _program, _watch
from mvcl.training._checkpoints import Checkpoints
from mvcl.training._config import Config, how_many
from mvcl.training._initial import initial_state
from mvcl.training._log import Log, log_line
from mvcl.training._loop import Diverged, Tools, loop
from mvcl.training._run import Run, prepare
from mvcl.training._signals import Interrupted, stop_signals

# Steps before a profile starts: they compile and fill queues.
_UNPROFILED = 3


def train(
    config: Config, workdir: Path, *, profile: int = 0, reference: Config | None = None
) -> _evaluate.Table:
    """Train a config in a folder, from the newest checkpoint if there is one, and evaluate.

    Args:
      config: the experiment.
      workdir: folder of the run; created if missing.
      profile: number of steps to trace into workdir/profile.
      reference: a config with the functions and classes of the user's own that the run of train.initial uses.

    Returns:
      The evaluation table: row name -> results.

    Raises:
      ValueError: the config is invalid, or the folder belongs to another config.
      Diverged: the loss became NaN or infinite.
      Interrupted: the process received SIGTERM or SIGINT; the state is saved.
      DamagedCheckpoints: no checkpoint of the folder can be read.
      CorruptExample: more than train.corrupt_limit examples cannot be read.
      StalledReader: no batch arrived within train.stall_seconds.
      LostProcess: another process of the run has ended.
    """
    run = prepare(config)
    try:
        if jax.process_index() > 0:
            return _continue(run, workdir, profile, reference)
        with _folder.locked(workdir):
            _folder.claim(workdir, run.config)
            return _continue(run, workdir, profile, reference)
    except Exception as error:
        if _processes.means_lost(error):
            raise _processes.LostProcess(workdir) from error
        raise


def _continue(run: Run, workdir: Path, profile: int, reference: Config | None) -> _evaluate.Table:
    """Train the remaining steps, and evaluate if evaluation.json is missing."""
    config, program = run.config, run.program
    checkpoints = Checkpoints(workdir / "checkpoints", config.checkpoint.keep)
    try:
        restored = checkpoints.restore(program.abstract_state(), log=log_line)
        fresh: dict[str, Any] = {"step": 0, "corrupt": ()}
        state, record = (initial_state(run, reference), fresh) if restored is None else restored
        step = int(record["step"])
        _log_start(run, step, resumed=restored is not None)
        reading = data.Reading(config.train.corrupt_limit, record["corrupt"])
        heartbeat = None
        if jax.process_index() == 0:
            heartbeat = _begin(run, workdir, step, reading)
        if step < program.steps:
            state = _train(run, state, step, checkpoints, heartbeat, reading, workdir, profile)
    except Exception as error:
        if jax.process_count() > 1 and not isinstance(error, (Interrupted, Diverged)):
            checkpoints.abandon()  # pending writes wait for processes that may have ended
        raise
    finally:
        checkpoints.close()
    table = _evaluate.saved_table(workdir, program.steps)
    if table is not None:
        return table
    log_line("evaluating")
    if heartbeat is not None:
        heartbeat.beat(program.steps, "evaluating", now=True)
    table = _evaluate.evaluate(run, state, workdir, reading)
    if heartbeat is not None:
        heartbeat.beat(program.steps, "done", now=True)
    return table


def _log_start(run: Run, step: int, *, resumed: bool) -> None:
    config, steps = run.config, run.program.steps
    if resumed:
        log_line(f"resuming from step {step} of {steps}")
    else:
        every = " (the whole split)" if config.examples == run.outline.examples else ""
        log_line(
            f"training {steps} steps of {config.examples} examples{every} x {config.views.k} views{how_many(config)}"
        )


def _begin(run: Run, workdir: Path, step: int, reading: data.Reading) -> _watch.Heartbeat:
    """Prepare the folder for training from a step, in process 0."""
    clock = _watch.Clock(max((row.get("time", 0.0) for row in _folder.read_log(workdir)), default=0.0))
    heartbeat = _watch.Heartbeat(workdir / "heartbeat.json", run.program.steps, clock)
    heartbeat.beat(step, "starting", now=True)
    _folder.rewind_log(workdir, step, done=step >= run.program.steps)
    data.save_scaling(run.splits["train"], workdir / "scaling.json")
    if not (workdir / "views.npz").is_file():
        _pictures.save_views(run, workdir / "views.npz", reading)
    return heartbeat


def _train(
    run: Run,
    state: _program.State,
    step: int,
    checkpoints: Checkpoints,
    heartbeat: _watch.Heartbeat | None,
    reading: data.Reading,
    workdir: Path,
    profile: int,
) -> _program.State:
    """Run the loop with an open log and profile; return the final state."""
    steps, log = run.program.steps, None
    if heartbeat is not None:
        log = Log(
            workdir,
            steps=steps,
            first_step=step,
            views_per_step=run.config.examples * run.config.views.k,
            clock=heartbeat.clock,
        )
    first = max(min(step + _UNPROFILED, steps - profile), step)
    trace = _watch.Profile(workdir / "profile", first, profile if log is not None else 0)
    if log is not None and profile:
        log.line(f"profiling {profile} steps from step {first + 1} into {workdir / 'profile'}")
    try:
        with stop_signals() as stop:
            return loop(run, state, step, Tools(checkpoints, log, heartbeat, trace, reading, stop, workdir))
    finally:
        trace.close()
        if log is not None:
            log.close()
