"""A run that goes on in a folder: its state, its files, and what is done with them between two steps."""

import json
from collections.abc import Callable
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import jax
import numpy as np

from mvcl import _files, _progress, data
from mvcl.training import _clock, _evaluate, _log
from mvcl.training._checkpoints import Checkpoints
from mvcl.training._clock import Clock
from mvcl.training._log import Log, log_line
from mvcl.training._processes import Interrupted, Stop
from mvcl.training._program import State, abstract_batch
from mvcl.training._run import Run, initial_state

_GEOMETRY = "encoder_uniformity"  # in every row of the log with a geometry


class Diverged(RuntimeError):
    """The loss became NaN or infinite."""


class Session:
    """One session of a run; it alone owns the state.

    Attributes:
      run: config, data and compiled functions.
      workdir: folder of the run.
      state: the state after `step` steps.
      step: number of steps done.
      clock: seconds by phase.
      stop: signals.
      checkpoints: of the folder.
      reading: the unreadable examples so far.
      log: of process 0, from `open_log` on; else None.
      files: closed with the session.
    """

    state: State
    step: int
    reading: data.Reading

    def __init__(
        self, run: Run, workdir: Path, clock: Clock, stop: Stop, page: Callable[[], Path] | None
    ) -> None:
        self.run, self.workdir, self.clock, self.stop, self._page = run, workdir, clock, stop, page
        self.log: Log | None = None
        self.files = ExitStack()
        self._config, self._program = run.config, run.program
        self.checkpoints = Checkpoints(
            workdir / "checkpoints", run.config.checkpoint.keep, _log.read_scores(workdir)
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, _: Any) -> None:
        """Close everything; pending checkpoints are waited for unless other processes may have ended."""
        if jax.process_count() == 1 or error is None or isinstance(error, (Interrupted, Diverged)):
            self.files.callback(self.checkpoints.close)
        self.files.close()

    def restore_or_begin(self, reference: Any) -> None:
        """Set the state: that of the newest checkpoint that can be read, or the initial one."""
        config, program = self._config, self._program
        with _progress.during("reading the newest checkpoint"):
            restored = self.checkpoints.restore(program.abstract_state, log=log_line)
        if restored is not None:
            self.state, record = restored
            log_line(f"resuming from step {record['step']} of {program.steps}")
        else:
            every = " (the whole split)" if config.examples == self.run.outline.examples else ""
            log_line(
                f"training {program.steps} steps of {config.examples} examples{every} x {config.views.k} views"
                f"{config.batch_origin}"
            )
            self.state, record = initial_state(self.run, reference), {"step": 0, "corrupt": ()}
        self.step = int(record["step"])
        self.reading = data.Reading(config.train.corrupt_limit, record["corrupt"])
        self.checkpoints.rewind(self.step)

    def finished_table(self) -> _evaluate.Table | None:
        """The table of a run that has ended; None if there is something left to do."""
        found = _evaluate.saved(self.run, self.workdir, self.step)
        if found is None or self.step < self._program.steps:
            return None
        table, score = found
        if score is not None and self.checkpoints.score(self.step) is None and jax.process_index() == 0:
            row = {"step": self.step, score[0]: score[1], _log.SCORE: score[0]}
            _log.append_row(self.workdir / "metrics.jsonl", row)  # the run was killed before
        return table

    def open_log(self) -> None:
        """Let process 0 go on with the log from the session's step."""
        if jax.process_index() > 0:
            return
        steps = self._program.steps
        self.clock.resume(self.workdir / "time.json")
        _log.rewind_log(self.workdir, self.step, done=self.step >= steps)
        if scaling := self.run.splits["train"].scaling:  # of tables, for data.scaling_file
            _files.write_whole(self.workdir / "scaling.json", json.dumps(scaling) + "\n")
        views = self._config.examples * self._config.views.k
        self.log = Log(self.workdir, self.clock, step=self.step, steps=steps, views_per_step=views)
        self.files.callback(self.log.close)
        self.files.callback(lambda: self.clock.write(self.workdir / "time.json"))

    def logging_is_due(self) -> bool:
        """Whether the values of this step are logged."""
        return self.step % self._config.train.log_every == 0

    def saving_is_due(self) -> bool:
        """Whether this step is saved."""
        last = self.step == self._program.steps
        return last or self._unmeasured() or self.step % self._config.checkpoint.every_steps == 0

    def log_row(self, values: dict[str, np.ndarray]) -> None:
        """Log the values of this step, if they are due."""
        if not self.logging_is_due():
            return
        chance = self._chance  # of all devices: every process takes part
        if self.log is None:
            return
        with self.clock.phase("logging"):
            row = {name: float(value) for name, value in (values | chance).items()}
            row |= {
                "epoch": self.step / self._program.steps_per_epoch,
                "learning_rate": float(self._program.learning_rate(self.step - 1)),
            }
            self.log.row(self.step, row, self._full_speed)

    def save(self) -> None:
        """Start writing a checkpoint of this step."""
        with self.clock.phase("saving"), _progress.during(f"saving step {self.step}"):
            if self.log is not None:
                self.log.upload()
                self.clock.write(self.workdir / "time.json")
            record = {
                "seed": self._config.train.seed,
                "epoch": self.step // self._program.steps_per_epoch,
                "corrupt": sorted(self.reading.passed),
            }
            self.checkpoints.save(self.step, self.state, record)

    def wait(self) -> None:
        """Wait until the checkpoints are written."""
        with self.clock.phase("saving"), _progress.during("writing checkpoints"):
            self.checkpoints.wait()

    def measure(self) -> None:
        """Score this step, which is saved, and log its geometry: what of it is due and not in the log.

        Raises:
          Interrupted: a process received a stop signal.
        """
        if not self._unmeasured():
            return
        self.wait()  # a kill while it is measured must not cost a step
        with self.clock.phase("evaluating"), _progress.checked(self._check_stop):
            if self._score_is_due():
                self._record_score(_evaluate.score(self.run, self.state, self.reading))
            if self._geometry_is_due():
                from mvcl.training import _geometry

                found = _geometry.scores(self.run, self.state, self.reading)
                if self.log is not None:
                    self.log.scores(self.step, found)
            self._write_page()

    def evaluate(self) -> _evaluate.Table:
        """The table of the last state.

        Raises:
          Interrupted: a process received a stop signal; the finished rows are kept.
        """
        self.wait()
        log_line("evaluating")
        with self.clock.phase("evaluating"), _progress.checked(self._check_stop):
            table, score = _evaluate.evaluated(self.run, self.state, self.workdir, self.reading)
            self._record_score(score)
        if self.stop.signal and jax.process_count() == 1:  # too late to stop this run, but not those after it
            raise Interrupted(self.stop.signal, self.step, self.step, "ending")
        return table

    def _unmeasured(self) -> bool:
        return self._score_is_due() or self._geometry_is_due()

    def _score_is_due(self) -> bool:
        """Whether this step is to be scored; the last one is scored by the evaluation after it."""
        every = round(self._config.train.evaluate_every * self._program.steps_per_epoch)
        due = every > 0 and 0 < self.step < self._program.steps and self.step % every == 0
        return due and self._config.evaluation.scored and self.checkpoints.score(self.step) is None

    def _geometry_is_due(self) -> bool:
        """Whether the geometry of this step is due, by train.geometry_every, and not in the log."""
        every = self._config.train.geometry_every
        steps = max(1, round(every * self._program.steps_per_epoch))
        if every <= 0 or self.step == 0 or self.step % steps:
            return False
        rows = _log.read_log(self.workdir)
        return not any(row.get("step") == self.step and _GEOMETRY in row for row in rows)

    def _record_score(self, score: _evaluate.Score | None) -> None:
        """Log the score of this step, unless this score was logged before."""
        if score is None:
            return
        name, value = score
        if self.log is not None and self.checkpoints.score(self.step) != value:
            self.log.scores(self.step, {name: value}, **{_log.SCORE: name})
        self.checkpoints.scored(self.step, value)

    def _check_stop(self) -> None:
        if reason := self.stop.agreed():
            raise Interrupted(reason, self.step, self._program.steps, "evaluating")

    def _write_page(self) -> None:
        """Write the page of the run in process 0; an error is logged, for a run must not end for its page."""
        if self._page is None or self.log is None:
            return
        try:
            self._page()
        except Exception as error:
            _progress.line(f"warning: the report was not written: {type(error).__name__}: {error}")

    @cached_property
    def _chance(self) -> dict[str, Any]:
        """The chance level, to log, if the method has one."""
        with self.clock.phase("compiling"), _progress.during("compiling the chance level"):
            return {} if self._program.chance is None else {"chance": self._program.chance()}

    @cached_property
    def _full_speed(self) -> float | None:
        """Steps per second at the peak FLOP/s of all devices; None if it is unknown.

        Microbatches are a loop, which XLA counts once.
        """
        train, mesh = self._config.train, self._program.mesh
        if train.microbatch is not None or (train.peak_tflops is None and train.precision == "float32"):
            return None
        peak, flops = _clock.peak_flops(train.peak_tflops), None
        if peak is not None:
            batch = abstract_batch(self._program, self._config, self.run.outline)
            flops = _clock.step_flops(self._program.step, self._program.abstract_state, batch)
        return None if peak is None or not flops else mesh.size * peak / flops
