"""A run that goes on in a folder: its state, its files, and what is done with them between two steps."""

import json
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import jax
import numpy as np

from mvcl import _files, _progress, data, metrics
from mvcl.training import _evaluate, _folder
from mvcl.training._checkpoints import Checkpoints
from mvcl.training._config import Config
from mvcl.training._evaluate import Table
from mvcl.training._folder import Clock, Log
from mvcl.training._processes import Interrupted, Stop
from mvcl.training._program import State, full_speed
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
      scores: step -> score of the evaluation protocol, higher is better.
      checkpoints: of the folder.
      reading: the unreadable examples so far.
      log: of process 0, from `begin` on; else None.
      files: closed with the session.
    """

    state: State

    def __init__(
        self,
        run: Run,
        workdir: Path,
        clock: Clock,
        stop: Stop,
        files: ExitStack,
        page: Callable[[], Path] | None,
        reference: Config | None,
    ) -> None:
        """Read the newest checkpoint of the folder that can be read, or begin."""
        config, program = run.config, run.program
        self.run, self.workdir, self.clock, self.stop = run, workdir, clock, stop
        self.files, self._page = files, page
        self.log: Log | None = None
        self.scores = _folder.read_scores(workdir)
        self.checkpoints = Checkpoints(workdir / "checkpoints", config.checkpoint.keep, self.scores)
        files.push(self.close)
        with _progress.during("reading the newest checkpoint"):
            restored = self.checkpoints.restore(program.abstract_state)
        if restored is not None:
            self.state, record = restored
            _progress.line(f"resuming from step {record['step']} of {program.steps}")
        else:
            every = " (the whole split)" if config.examples == run.outline.examples else ""
            _progress.line(
                f"training {program.steps} steps of {config.examples} examples{every} x {config.views.k} views"
                f"{config.batch_origin}"
            )
            self.state, record = initial_state(run, reference), {"step": 0, "corrupt": ()}
        self.step = int(record["step"])
        self.reading = data.Reading(config.train.corrupt_limit, record["corrupt"])
        for later in [step for step in self.scores if step > self.step]:  # it will be trained again
            del self.scores[later]

    def close(self, kind: type | None, error: BaseException | None, _: Any) -> None:
        """Wait for pending checkpoints, unless other processes may have ended."""
        if jax.process_count() == 1 or error is None or isinstance(error, (Interrupted, Diverged)):
            self.checkpoints.close()

    def begin(self) -> Table | None:
        """The table of a run that has ended; else None, and process 0 goes on with the log from the session's step."""
        config, steps, times = self.run.config, self.run.program.steps, self.workdir / "time.json"
        ended = None if self.step < steps else _evaluate.saved(self.run, self.workdir, self.step)
        if ended is not None:
            table, score = ended
            if score is not None and self.step not in self.scores and jax.process_index() == 0:
                row = {"step": self.step, score[0]: score[1], _folder.SCORE: score[0]}
                _folder.append_row(self.workdir / "metrics.jsonl", row)  # the run was killed before
            return table
        if jax.process_index() == 0:
            self.clock.resume(times)
            _folder.rewind_log(self.workdir, self.step, done=self.step >= steps)
            if scaling := self.run.splits["train"].scaling:  # of tables, for data.scaling_file
                _files.write_whole(self.workdir / "scaling.json", json.dumps(scaling) + "\n")
            self.log = Log(
                self.workdir,
                self.clock,
                step=self.step,
                steps=steps,
                views_per_step=config.examples * config.views.k,
                full_speed=full_speed(self.run.program, config, self.run.outline),
            )
            self.files.callback(self.log.close)
            self.files.callback(lambda: self.clock.write(times))
        return None

    def due(self) -> set[str]:
        """What is due after this step: to `log`, to `save`, to `score` and to measure the `geometry`.

        A step is scored or measured once: not if its log has it. The evaluation after it scores the last step.
        """
        train, step, program = self.run.config.train, self.step, self.run.program
        scored, measured = (
            round(every * program.steps_per_epoch) for every in (train.evaluate_every, train.geometry_every)
        )
        due = {"log"} if step % train.log_every == 0 else set()
        if scored > 0 and 0 < step < program.steps and step % scored == 0 and step not in self.scores:
            due |= {"score"} if self.run.config.evaluation.scored else set()
        if train.geometry_every > 0 and step > 0 and step % max(1, measured) == 0:
            rows = _folder.read_log(self.workdir)
            if not any(row.get("step") == step and _GEOMETRY in row for row in rows):
                due.add("geometry")
        saved = step == program.steps or step % self.run.config.checkpoint.every_steps == 0
        return due | {"save"} if saved or due & {"score", "geometry"} else due

    def save(self) -> None:
        """Start writing a checkpoint of this step."""
        with self.clock.phase("saving"), _progress.during(f"saving step {self.step}"):
            if self.log is not None:
                self.log.upload()
                self.clock.write(self.workdir / "time.json")
            self.checkpoints.save(self.step, self.state, {"corrupt": sorted(self.reading.passed)})

    def measure(self) -> None:
        """Score this step, which is saved, and log its geometry: what of it is due and not in the log.

        Raises:
          Interrupted: a process received a stop signal.
        """
        due = self.due()
        if not due & {"score", "geometry"}:
            return
        with self.clock.phase("saving"):
            self.checkpoints.wait()  # a kill while it is measured must not cost a step
        with self.clock.phase("evaluating"), _progress.checked(self._check_stop):
            if "score" in due:
                features, readable = _evaluate.encode_readable(self.run, self.state, self.reading)
                splits = {**self.run.splits, **readable}
                self._record_score(self.run.config.evaluation.score(features, splits))
            if "geometry" in due:
                from mvcl.training import _geometry

                found = _geometry.scores(self.run, self.state, self.reading)
                if self.log is not None:
                    self.log.scores(self.step, found)
            self._write_page()

    def evaluate(self) -> Table:
        """The table of the last state.

        Raises:
          Interrupted: a process received a stop signal; the finished rows are kept.
        """
        with self.clock.phase("saving"):
            self.checkpoints.wait()
        _progress.line("evaluating")
        with self.clock.phase("evaluating"), _progress.checked(self._check_stop):
            table, score = _evaluate.evaluated(self.run, self.state, self.workdir, self.reading)
            self._record_score(score)
        if self.stop.signal and jax.process_count() == 1:  # too late to stop this run, but not those after it
            raise Interrupted(self.stop.signal, self.step, self.step, "ending")
        return table

    def refresh(self) -> None:
        """Refresh the method's statistics before the next step, and renew optimiser states that start again, if due.

        A refresh adds a line to refresh.jsonl; after the last step it does no more, and the state stays as it is.

        Raises:
          ValueError: a refresh is due and the examples have no given views.
        """
        program, epoch = self.run.program, self.run.program.steps_per_epoch
        last = self.step == program.steps
        if program.learner.due(self.step, epoch):
            statistics = self._refreshed()
            place = program.abstract_state["statistics"]
            if not last:
                statistics = jax.tree.map(lambda x, like: jax.device_put(x, like.sharding), statistics, place)
                self.state = {**self.state, "statistics": statistics}
        if (
            program.learner.restarts_parts
            and not last
            and (parts := program.learner.restarts(self.step, epoch))
        ):
            self.state = program.restart(self.state, parts)

    def _refreshed(self) -> Any:
        """The refreshed statistics; process 0 records how they came about, and how the clusters fit the classes."""
        run, state, split = self.run, self.state, self.run.splits["train"]
        if not split.spec.given:
            raise ValueError(
                f"method {type(run.config.method).__name__} needs examples with given views, such as tables of features"
            )
        with _progress.during("refreshing the method's statistics"):
            inputs = data.inputs(split, np.arange(len(split)))
            statistics, record = run.program.learner.refresh(
                state["params"],
                state["statistics"],
                inputs["views"],
                inputs.get("present"),
                self.step,
                run.program.steps_per_epoch,
            )
        if self.log is not None:
            plain = {name: np.asarray(value).tolist() for name, value in record.items()}
            agreement = {}
            if len(split.class_names) > 1 and "clusters_all" in record:
                both = split.labels, np.asarray(record["clusters_all"])
                agreement["acc_all"] = metrics.clustering_accuracy(*both)
                agreement["nmi_all"] = metrics.normalized_mutual_information(*both)
            _folder.append_row(self.workdir / "refresh.jsonl", {"step": self.step, **agreement, **plain})
            self.log.scores(self.step, agreement)
        return statistics

    def _record_score(self, score: _evaluate.Score | None) -> None:
        """Log the score of this step, unless this score was logged before."""
        if score is None:
            return
        name, value = score
        if self.log is not None and self.scores.get(self.step) != value:
            self.log.scores(self.step, {name: value}, **{_folder.SCORE: name})
        self.scores[self.step] = value

    def _check_stop(self) -> None:
        if reason := self.stop.agreed():
            raise Interrupted(reason, self.step, self.run.program.steps, "evaluating")

    def _write_page(self) -> None:
        """Write the page of the run in process 0; an error is logged, for a run must not end for its page."""
        if self._page is None or self.log is None:
            return
        try:
            self._page()
        except Exception as error:
            _progress.line(f"warning: the report was not written: {type(error).__name__}: {error}")
