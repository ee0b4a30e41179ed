"""Train a config in a folder: open, restore or begin, loop, evaluate."""

import math
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import jax

from mvcl import _buckets, _progress, data
from mvcl.training import _folder, _input, _processes, _refresh
from mvcl.training._clock import Clock
from mvcl.training._config import Config
from mvcl.training._evaluate import Table
from mvcl.training._profile import Profile
from mvcl.training._program import State
from mvcl.training._run import prepare
from mvcl.training._session import Diverged, Session

Hook = Callable[[int, State, dict[str, jax.Array]], None]
"""Called with the number of steps done, the state and the last step's values: before the first step of a session, with
no values, and after each."""


def train(
    config: Config,
    workdir: Path,
    *,
    profile: int = 0,
    reference: Config | None = None,
    page: Callable[[], Path] | None = None,
) -> Table:
    """Train a config in a folder, from the newest checkpoint if there is one, and evaluate.

    Args:
      config: the experiment.
      workdir: folder of the run; created if missing.
      profile: number of steps to trace into workdir/profile.
      reference: a config with the functions and classes of the user's own that the run of train.initial uses.
      page: writes the page of the run and returns its path; process 0 calls it after each evaluation during training.
        Its errors are logged.

    Returns:
      The evaluation table: row name -> results.

    Raises:
      ValueError: the config is invalid, or the folder belongs to another config.
      Diverged: the loss became NaN or infinite.
      Interrupted: a process received SIGTERM or SIGINT; the state is saved.
      DamagedCheckpoints: no checkpoint of the folder can be read.
      CorruptExample: more than train.corrupt_limit examples cannot be read.
      StalledReader: no batch arrived within train.stall_seconds.
      LostProcess: another process of the run has ended.
    """
    workdir, clock, first = _buckets.path(workdir), Clock(), jax.process_index() == 0
    run = prepare(config)
    with (
        _processes.losses_named(workdir),
        _folder.locked(workdir) if first else nullcontext(),
        _processes.stop_signals(run.program.mesh) as stop,
    ):
        if first:
            _folder.claim(workdir, run.config)
        with Session(run, workdir, clock, stop, page) as session:
            session.restore_or_begin(reference)
            if (table := session.finished_table()) is not None:
                return table
            session.open_log()
            if first:
                _input.save_views(run, workdir / "views.npz", session.reading)
            hooks: list[Hook] = []
            if first and profile:
                trace = Profile(workdir / "profile", steps=profile, step=session.step, last=run.program.steps)
                session.files.callback(trace.close)
                hooks.append(trace)
            loop(session, hooks)
            return session.evaluate()


def loop(session: Session, hooks: list[Hook]) -> None:
    """Train from the session's step to the end of the run.

    A step that is measured (scored, or its geometry logged) is saved first. If this is stopped, the next session begins
    with it.

    Raises:
      Interrupted: a process received a stop signal; all processes saved the same step.
      Diverged: the loss became NaN or infinite.
    """
    run, clock, program = session.run, session.clock, session.run.program
    session.measure()
    host = _input.batches(run, session.step, session.reading)
    stream = data.to_devices(host, program.batch_sharding)
    pending: list[dict[str, jax.Array]] = []  # values of the steps that are not known to be finite
    doing = "compiling"
    for hook in hooks:
        hook(session.step, session.state, {})
    with clock.phase("training"), _progress.during("training"):
        while session.step < program.steps:
            _refresh.before_step(session)
            with clock.phase("data"):
                batch = next(stream)
            with clock.phase(doing), jax.profiler.StepTraceAnnotation("train", step_num=session.step):
                session.state, values = program.step(session.state, batch)
            session.step, doing = session.step + 1, "training"
            pending.append(values)
            for hook in hooks:
                hook(session.step, session.state, values)
            stopping, saving = session.stop.agreed(), session.saving_is_due()
            if saving or stopping or session.logging_is_due():
                rows = jax.device_get(pending)
                pending = []
                _check_finite([float(row["loss"]) for row in rows], session)
                session.log_row(rows[-1])
            if session.step == program.steps:
                _refresh.record_last(session)
            if saving or stopping:
                session.save()
            if stopping:
                session.wait()
                raise _processes.Interrupted(stopping, session.step, program.steps)
            session.measure()
    host.close()  # stops the readers


def _check_finite(losses: list[float], session: Session) -> None:
    """Raise `Diverged` for the first loss, of the last steps, that is not finite."""
    for step, loss in enumerate(losses, session.step - len(losses) + 1):
        if not math.isfinite(loss):
            good = [s for s in session.checkpoints.steps() if s < step]
            last = (
                f"the last checkpoint before it is step {good[-1]}"
                if good
                else "there is no checkpoint before it"
            )
            raise Diverged(
                f"the loss is {loss} at step {step}; {last}. Try a lower learning rate, a higher temperature, "
                "--train.precision float32 or --optimizer.clip-norm 1.0, and check the images of that step"
            )
