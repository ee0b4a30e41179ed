"""The training loop: step, log, save, then score."""

import dataclasses
import itertools
import math
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path

import jax

from mvcl import data
from mvcl.training import _evaluate, _geometry, _input, _processes, _program, _watch
from mvcl.training._checkpoints import Checkpoints
from mvcl.training._goodput import Goodput
from mvcl.training._guard import Guard
from mvcl.training._live import LivePage
from mvcl.training._log import Log
from mvcl.training._refresh import recorded_at_end, refreshed, restarted
from mvcl.training._run import Run
from mvcl.training._signals import Interrupted


class Diverged(RuntimeError):
    """The loss became NaN or infinite."""


@dataclasses.dataclass(frozen=True)
class Tools:
    """Objects that the loop uses; only process 0 has a log and a heartbeat."""

    checkpoints: Checkpoints
    log: Log | None
    heartbeat: _watch.Heartbeat | None
    trace: _watch.Profile
    reading: data.Reading
    stop: dict[str, int]
    workdir: Path
    guard: Callable[[int], Guard]
    """Step -> guard of the work after it."""
    goodput: Goodput
    pictures: Callable[[], None]
    """Writes the pictures of the views, if they are missing."""
    page: LivePage

    def close(self) -> None:
        """Write the last heartbeat, close the log with the run's goodput, write the page of a run that has stopped, and
        end the profile."""
        with ExitStack() as rest:  # all of it, whichever fails
            rest.callback(self.trace.close)
            if self.heartbeat is not None and not self.heartbeat.is_done:
                rest.callback(self.page.close)
            if self.log is not None:
                rest.callback(self.log.close)
                rest.callback(self.log.line, str(self.goodput))
            if self.heartbeat is not None:
                rest.callback(self.heartbeat.close)


def loop(run: Run, state: _program.State, step: int, tools: Tools) -> _program.State:
    """Train from `step` to the end of the run.

    A step that is scored or whose geometry is logged is saved first. If this is stopped, the next call begins with it.

    Raises:
      Interrupted: a process received a stop signal; all processes saved the same step.
      Diverged: the loss became NaN or infinite.
    """
    config, program = run.config, run.program
    every = round(config.train.evaluate_every * program.steps_per_epoch)
    if _is_scored(step, every, program.steps) and tools.checkpoints.score(step) is None:
        _score(run, state, step, tools)
    if step:
        log_geometry(run, state, step, tools)
    host = _input.batches(run, step, tools.reading)
    stream = data.to_devices(host, program.batch_sharding)
    flags = _processes.Flags(program.mesh, 1 + _processes.MAX_ROWS)
    with tools.goodput.during("data"), run.progress.during("reading the first batch"):
        first = next(stream)
    stream = itertools.chain([first], stream)
    watch = _watch.Watch(program.mesh.size, _flops(run, state, first), _peak(run), step)
    pending: list[dict[str, jax.Array]] = []
    compiling: AbstractContextManager[None] = run.progress.during("compiling the training step")
    begun, chance = step, {}
    while step < program.steps:
        state = restarted(run, refreshed(run, state, step, tools.workdir, tools.log), step)
        with watch.data(), tools.goodput.during("data"):
            batch = next(stream)
        with tools.trace.step(step), compiling:
            state, values = program.step(state, batch)
        if step == begun:  # while the devices compute it
            compiling, chance = nullcontext(), _chance(run)
        tools.trace.after(step, values)
        step += 1
        pending.append(values)
        last = step == program.steps
        stopping = _processes.should_stop(flags, tools.stop, tools.reading, step)
        scoring = _is_scored(step, every, program.steps)
        measuring = not last and _geometry.is_due(run, step)
        saving = last or scoring or measuring or stopping > 0 or step % config.checkpoint.every_steps == 0
        logging = step % config.train.log_every == 0
        if saving or logging:
            fetched = jax.device_get(pending)
            pending = []
            for back, row in enumerate(reversed(fetched)):
                _check_finite(float(row["loss"]), step - back, tools.checkpoints)
            if logging:
                _log(
                    run,
                    step,
                    {name: float(value) for name, value in (fetched[-1] | chance).items()}
                    | {"goodput": tools.goodput.share()},
                    watch,
                    tools.log,
                )
        if step == begun + 1:
            with watch.log():
                tools.pictures()
        if tools.heartbeat is not None:
            tools.heartbeat.beat(step, "saving" if saving else "training", now=saving)
        if last:
            recorded_at_end(run, state, tools.workdir, tools.log)
        if saving:
            _save(run, state, step, tools)
        if stopping:
            _wait(run, tools)
            raise Interrupted(stopping, step, program.steps)
        if scoring or measuring:
            _wait(run, tools)  # a kill during the scoring must not cost a step
        if scoring:
            _score(run, state, step, tools)
        if measuring:
            log_geometry(run, state, step, tools)
        if step == begun + 1 or scoring or measuring:
            tools.page.ask()
        if saving:
            _restart_clocks(watch, step, tools)
    host.close()  # stops the readers
    return state


def _restart_clocks(watch: _watch.Watch, step: int, tools: Tools) -> None:
    """The next logged step begins now: what was saved and scored before is not its time."""
    watch.restart(step)
    if tools.log is not None:
        tools.log.restart_clock()


def _chance(run: Run) -> dict[str, jax.Array]:
    """The chance level, to log, if the method has one."""
    with run.progress.during("compiling the chance level"):
        return {} if run.program.chance is None else {"chance": run.program.chance()}


def _log(run: Run, step: int, values: dict[str, float], watch: _watch.Watch, log: Log | None) -> None:
    """Log the values of a step and the times since the last row."""
    if log is None:
        return
    row = {
        **values,
        "epoch": step / run.program.steps_per_epoch,
        "learning_rate": float(run.program.learning_rate(step - 1)),
        **watch.row(step),
    }
    with watch.log():
        log.row(step, row)


def _is_scored(step: int, every: int, steps: int) -> bool:
    """Whether a step is scored during training; the last is scored by the evaluation after it."""
    return every > 0 and 0 < step < steps and step % every == 0


def _score(run: Run, state: _program.State, step: int, tools: Tools) -> None:
    """Score a saved state."""
    if tools.heartbeat is not None:
        tools.heartbeat.beat(step, "evaluating", now=True)
    with tools.goodput.during("evaluating"):
        found = _evaluate.score(run, state, tools.reading, tools.guard(step))
    if tools.heartbeat is not None:
        tools.heartbeat.beat(step, "training", now=True)
    if found is not None:
        record_score(step, found, tools.checkpoints, tools.log)


def log_geometry(run: Run, state: _program.State, step: int, tools: Tools) -> None:
    """Log the geometry of the embeddings of a saved state, if it is due and not in the log.

    Raises:
      Interrupted: the guard stopped it.
    """
    if not _geometry.is_due(run, step) or _geometry.is_logged(tools.workdir, step):
        return
    if tools.heartbeat is not None:
        tools.heartbeat.beat(step, "evaluating", now=True)
    with tools.goodput.during("evaluating"):
        found = _geometry.scores(run, state, tools.reading, tools.guard(step))
    if tools.heartbeat is not None:
        tools.heartbeat.beat(step, "training", now=True)
    if tools.log is not None:
        tools.log.scores(step, found)
        tools.log.upload()


def record_score(step: int, found: _evaluate.Score, checkpoints: Checkpoints, log: Log | None) -> None:
    """Log the score of a step, unless this score was logged before."""
    name, value = found
    if log is not None and checkpoints.score(step) != value:
        log.score(step, name, value)
        log.upload()
    checkpoints.scored(step, value)


def _save(run: Run, state: _program.State, step: int, tools: Tools) -> None:
    """Write a checkpoint, and now and then a line of goodput."""
    record = {
        "seed": run.config.train.seed,
        "epoch": step // run.program.steps_per_epoch,
        "corrupt": sorted(tools.reading.passed),
    }
    with tools.goodput.during("saving"), run.progress.during(f"saving step {step}"):
        if tools.log is not None:
            tools.log.upload()
        tools.checkpoints.save(step, state, record)
    if tools.log is not None and tools.goodput.line_is_due():
        tools.log.line(str(tools.goodput))


def _wait(run: Run, tools: Tools) -> None:
    """Wait until checkpoints are written."""
    with tools.goodput.during("saving"), run.progress.during("writing checkpoints"):
        tools.checkpoints.wait()


def _check_finite(loss: float, step: int, checkpoints: Checkpoints) -> None:
    if math.isfinite(loss):
        return
    good = [s for s in checkpoints.steps() if s < step]
    last = f"the last checkpoint before it is step {good[-1]}" if good else "there is no checkpoint before it"
    raise Diverged(
        f"the loss is {loss} at step {step}; {last}. Try a lower learning rate, a higher "
        "temperature, --train.precision float32 or --optimizer.clip-norm 1.0, and check the images of that step"
    )


def _peak(run: Run) -> float | None:
    """Peak FLOP/s of a device in the precision of the run; None if unknown."""
    if run.config.train.peak_tflops is None and run.config.train.precision == "float32":
        return None
    return _watch.peak_flops(run.config.train.peak_tflops)


def _flops(run: Run, state: _program.State, batch: data.Batch) -> float | None:
    """FLOPs of a step, if the utilisation is logged; None with microbatches, whose loop XLA counts once."""
    if jax.process_index() > 0 or run.config.train.microbatch is not None or _peak(run) is None:
        return None
    with run.progress.during("counting the FLOPs of a step"):
        return _watch.step_flops(run.program.step, state, batch)
