"""A run that goes on in a folder: its state, clock and log, and what is done with them between two steps."""

import dataclasses
import json
import math
import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import jax
import numpy as np

from mvcl import _buckets, _files, _progress, data, metrics
from mvcl.training import _evaluate, _folder
from mvcl.training._config import Config
from mvcl.training._processes import Interrupted, Stop
from mvcl.training._program import State
from mvcl.training._run import Run, sharded_as, with_initial

# Phases of the clock that a logged row tells: the time between two rows without saving and evaluating.
_PHASES = {"seconds_data": "data", "seconds_step": "training", "seconds_log": "logging"}
_PAGES = Path("/proc/self/statm")  # the memory of this process, on Linux
_PATIENCE = 5  # consecutive logged steps at chance level, or with a collapsed rank, before a warning
# Dense bfloat16 TFLOP/s of one jax device, as the vendors state it, by the start of its `device_kind`.
_PEAK_TFLOPS = {
    **{"TPU v2": 22.5, "TPU v3": 61.5},  # per core: jax has two devices per chip
    **{"TPU v4 lite": 138.0, "TPU v4": 275.0, "TPU v5 lite": 197.0, "TPU v5e": 197.0, "TPU v5": 459.0},
    **{"TPU v6 lite": 918.0, "TPU v6e": 918.0},
    **{"NVIDIA A100": 312.0, "NVIDIA H100 PCIe": 756.0, "NVIDIA H100": 989.0, "NVIDIA H200": 989.0},
    **{"NVIDIA L4": 121.0, "NVIDIA L40": 181.0, "NVIDIA L40S": 362.0},
    **{"Tesla V100": 125.0, "Tesla T4": 65.0},
}
Page = Callable[[], Path] | None  # writes the page of a run and returns its path


class Diverged(RuntimeError):
    """The loss became NaN or infinite."""


class Clock:
    """Seconds of a run by phase, over all its sessions: of the innermost that is entered, `other` outside of all.

    Earlier sessions are in a file; if it is missing or damaged they do not count.
    """

    def __init__(self, file: Path) -> None:
        self._file, self._doing, self._last = file, ["other"], time.monotonic()
        self._seconds: Any = Counter()
        with suppress(OSError, ValueError, TypeError, AttributeError):
            self._seconds.update({name: float(x) for name, x in json.loads(file.read_text()).items()})

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time within counts as this phase."""
        self.seconds()
        self._doing.append(name)
        try:
            yield
        finally:
            self.seconds()
            self._doing.pop()

    def seconds(self) -> dict[str, float]:
        """Seconds of each phase until now."""
        now = time.monotonic()
        self._seconds[self._doing[-1]] += now - self._last
        self._last = now
        return dict(self._seconds)

    def write(self) -> None:
        """Write the file, for later sessions."""
        rounded = {name: round(value, 3) for name, value in self.seconds().items()}
        _files.write_whole(self._file, json.dumps(rounded) + "\n")


def full_speed(config: Config, outline: data.Outline, mesh: jax.sharding.Mesh) -> float | None:
    """Steps per second at the peak FLOP/s of all devices; None if it is unknown."""
    train = config.train
    device, tflops = mesh.devices.flat[0], train.peak_tflops
    if tflops is None and train.precision != "float32":
        known = [name for name in _PEAK_TFLOPS if device.device_kind.startswith(name)]
        tflops = _PEAK_TFLOPS[max(known, key=len)] if known else None
    if tflops is None:
        return None
    from mvcl.training import _memory

    train = dataclasses.replace(train, remat="none", microbatch=None)  # computing again is no use of a device
    config = dataclasses.replace(config, train=train)
    return tflops * 1e12 / _memory.Model(config, outline, device.platform).on(mesh.size).flops


class Log:
    """A line of progress and a row of metrics.jsonl and TensorBoard for each logged step, scores, and warnings.

    A bucket's objects cannot grow: its log is written to a temporary folder, which `upload` copies.
    """

    def __init__(self, workdir: Path, clock: Clock, run: Run, step: int) -> None:
        """Add to the log of a folder, which ends at `step`."""
        from tensorboardX import SummaryWriter  # takes half a second with the clients of cloud storage

        self._workdir, self._clock, self._steps = workdir, clock, run.program.steps
        self._views = run.config.examples * run.config.views.k  # of a step
        self._full_speed = full_speed(run.config, run.outline, run.program.mesh)  # steps per second
        self._folder, rows = workdir, workdir / _folder.LOG
        self._remote = tempfile.TemporaryDirectory(prefix="mvcl_") if _buckets.is_remote(workdir) else None
        if self._remote is not None:
            self._folder = Path(self._remote.name)
            (self._folder / rows.name).write_text(rows.read_text() if rows.is_file() else "")
        self._file = open(self._folder / _folder.LOG, "a", buffering=1)
        # Its queue has no limit: its thread ends at a full disk, and a full queue would hold this one for ever.
        self._board = SummaryWriter(str(self._folder / "tensorboard"), max_queue=0, purge_step=step or None)
        self._last, self._before, self._started = step, clock.seconds(), time.monotonic()
        # Time never decreases, even if the machine's clock is set back.
        last = max((row.get("time", 0.0) for row in _folder.read_log(rows)), default=0.0)
        self._wall = max(time.time(), last) - self._started
        self._signs: dict[str, int] = {}

    def row(self, step: int, values: dict[str, Any]) -> None:
        """Log a step's values, among them `loss` and `effective_rank`, and its time; warn of what they show."""
        seconds, done = self._clock.seconds(), max(step - self._last, 1)
        parts = {name: (seconds.get(p, 0.0) - self._before.get(p, 0.0)) / done for name, p in _PHASES.items()}
        self._before, self._last = seconds, step
        each = max(sum(parts.values()), 1e-9)
        row = {"step": step, **values, **parts, "views_per_second": self._views / each}
        used = jax.local_devices()[0].memory_stats() or {}  # of a CPU there are none
        for name, key in (("memory_gib", "bytes_in_use"), ("memory_peak_gib", "peak_bytes_in_use")):
            row |= {name: used[key] / 2**30} if key in used else {}
        if not used and _PAGES.is_file():
            row["memory_gib"] = int(_PAGES.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**30
        if self._full_speed is not None:
            row["model_flops_utilisation"] = 1 / (each * self._full_speed)
        now = time.monotonic()
        row |= {"seconds": now - self._started, "time": round(self._wall + now, 3)}
        row = {k: v for k, v in row.items() if not (isinstance(v, float) and not math.isfinite(v))}
        self._file.write(json.dumps(row) + "\n")
        for name, value in row.items():
            if name not in ("step", "time"):
                self._board.add_scalar(name, value, step, walltime=row["time"])
        chance = f" (chance {values['chance']:.4f})" if "chance" in values else ""
        _progress.show(
            f"step {step:>{len(str(self._steps))}}/{self._steps}  loss {values['loss']:.4f}{chance}  "
            f"rank {values['effective_rank']:.1f}  {self._views / each:,.0f} views/s  "
            f"{_progress.duration((self._steps - step) * each)} left"
        )
        self._warn(values)

    def _warn(self, values: dict[str, Any]) -> None:
        chance, rank = values.get("chance", math.inf), values["effective_rank"]
        signs = {
            "chance": math.isfinite(chance) and values["loss"] > chance - 0.01 * (1 + abs(chance)),
            "rank": rank < 1.5,
            "solver": values.get("solver_unconverged", 0) > 0 or "solver" in self._signs,  # once
        }
        self._signs = {name: self._signs.get(name, 0) + 1 for name, holds in signs.items() if holds}
        if self._signs.get("chance") == _PATIENCE:
            what = f"the loss has stayed at the chance level {chance:.4f} for {_PATIENCE} logged steps: the features"
            how = "Check the learning rate, the temperature and the views"
            _progress.line(f"warning: {what} do not separate the instances. {how}")
        if self._signs.get("rank") == _PATIENCE:
            what = f"the effective rank of the embeddings has fallen to {rank:.2f}: they collapse to one direction"
            how = "Check the objective (has it negatives?), the head and the learning rate"
            _progress.line(f"warning: {what}. {how}")
        if self._signs.get("solver") == 1:
            _progress.line(
                f"warning: the transport solver stopped after {values['solver_iterations']:.0f} iterations with "
                f"marginals wrong by {values['solver_error']:.2g}: the loss is an upper bound of M3G. Raise "
                "--objective.max-iterations or --objective.epsilon"
            )

    def scores(self, step: int, values: Mapping[str, float], **more: str) -> None:
        """Log several evaluations of one step in one row, with `more` entries; nothing without values."""
        if not values:
            return
        self._file.write(json.dumps({"step": step, **values, **more}) + "\n")
        for name, value in values.items():
            self._board.add_scalar(name, value, step, walltime=self._wall + time.monotonic())
        _progress.line(f"step {step}: " + ", ".join(f"{name} {value:.4f}" for name, value in values.items()))
        self.upload()

    def upload(self) -> None:
        """Bring the log to the bucket of the run, if it is in one."""
        if self._remote is not None:
            self._board.flush()
            _buckets.upload(self._folder, self._workdir)

    def close(self) -> None:
        """Print where the time went, and close the files."""
        seconds = self._clock.seconds()
        whole, longest = max(sum(seconds.values()), 1e-3), sorted(seconds, key=lambda name: -seconds[name])
        shares = [f"{name} {100 * seconds[name] / whole:.0f} %" for name in longest]
        _progress.line(", ".join([f"time: {_progress.duration(whole)}", *shares]))
        for file in (self._file, self._board):
            with suppress(OSError):  # a full disk: the first write that failed has raised
                file.close()
        if self._remote is not None:
            try:
                _buckets.upload(self._folder, self._workdir)
            except OSError as error:  # it must not hide why the run ends
                _progress.line(f"mvcl: the end of the log was not uploaded: {error}")
            self._remote.cleanup()


class Session:
    """One session of a run in `workdir`; it alone owns `state`, that after `step` steps.

    `scores` are those of the checkpoints; process 0 has a `log` from `begin` on; `files` are closed with the
    session.
    """

    state: State
    log: Log | None = None

    def __init__(
        self, run: Run, workdir: Path, clock: Clock, stop: Stop, files: ExitStack, page: Page
    ) -> None:
        """Read the newest checkpoint of the folder that can be read, or begin."""
        config, program = run.config, run.program
        self.workdir, self.clock, self.stop, self.files, self._page = workdir, clock, stop, files, page
        self.checkpoints = _folder.Checkpoints(workdir / "checkpoints", config.checkpoint.keep)
        self.scores = self.checkpoints.scores
        files.push(self.close)
        with _progress.during("reading the newest checkpoint"):
            restored = self.checkpoints.restore(program.abstract_state)
        if restored is not None:
            self.state, record = restored
            _progress.line(f"resuming from step {record['step']} of {program.steps}")
        else:
            every = " (the whole split)" if config.examples == run.outline.examples else ""
            batch = f"{config.examples} examples{every} x {config.views.k} views{config.batch_origin}"
            _progress.line(f"training {program.steps} steps of {batch}")
            with _progress.during("initialising the parameters"):
                self.state, record = program.init(), {"step": 0, "corrupt": ()}
            if config.train.initial is not None:
                self.state = with_initial(run, self.state)
        self.step = int(record["step"])
        reading = data.Reading(config.train.corrupt_limit, set(record["corrupt"]))
        self.run = dataclasses.replace(run, reading=reading)
        for later in [step for step in self.scores if step > self.step]:  # it will be trained again
            del self.scores[later]

    def close(self, kind: type | None, error: BaseException | None, _: Any) -> None:
        """Wait for pending checkpoints, unless other processes may have ended."""
        if jax.process_count() == 1 or error is None or isinstance(error, (Interrupted, Diverged)):
            self.checkpoints.close()

    def begin(self) -> _evaluate.Table | None:
        """The table of a run that has ended; else None, and process 0 goes on with the log from the session's step."""
        steps, first = self.run.program.steps, jax.process_index() == 0
        if self.step >= steps and (ended := _evaluate.saved(self.run, self.workdir, self.step)):
            table, score = ended
            if first and score is not None and self.step not in self.scores:  # the run was killed before
                row = {"step": self.step, score[0]: score[1], _folder.SCORE: score[0]}
                _files.append(self.workdir / _folder.LOG, json.dumps(row) + "\n")
            return table
        if first:
            _folder.rewind_log(self.workdir, self.step, done=self.step >= steps)
            self.log = Log(self.workdir, self.clock, self.run, self.step)
            self.files.callback(self.log.close)
            self.files.callback(self.clock.write)
        return None

    def due(self) -> set[str]:
        """What is due after this step: to `log`, to `save`, to `score` and to measure the `geometry`, unless its log
        has it. The evaluation after it scores the last step."""
        config, step, program = self.run.config, self.step, self.run.program
        train, epoch = config.train, program.steps_per_epoch
        scored, measured = round(train.evaluate_every * epoch), round(train.geometry_every * epoch)
        due = {"log"} if step % train.log_every == 0 else set()
        if scored > 0 and 0 < step < program.steps and step % scored == 0 and step not in self.scores:
            due |= {"score"} if config.evaluation.scored else set()
        if train.geometry_every > 0 and step > 0 and step % max(1, measured) == 0:
            rows = _folder.read_log(self.workdir / _folder.LOG)
            if not any(row.get("step") == step and "encoder_uniformity" in row for row in rows):
                due.add("geometry")
        saved = step == program.steps or step % config.checkpoint.every_steps == 0
        return due | {"save"} if saved or due & {"score", "geometry"} else due

    def save(self) -> None:
        """Start writing a checkpoint of this step."""
        with self.clock.phase("saving"), _progress.during(f"saving step {self.step}"):
            if self.log is not None:
                self.log.upload()
                self.clock.write()
            self.checkpoints.save(self.step, self.state, {"corrupt": sorted(self.run.reading.passed)})

    def measure(self, due: set[str]) -> None:
        """Score this step, which is saved, and log its geometry, where they are due; a stop signal interrupts it."""
        if not due & {"score", "geometry"}:
            return
        with self.clock.phase("saving"):
            self.checkpoints.wait()  # a kill while it is measured must not cost a step
        with self.clock.phase("evaluating"), _progress.checked(self._check_stop):
            if "score" in due:
                encoded = _evaluate.encode_readable(self.run, self.state)
                self._record_score(self.run.config.evaluation.score(*encoded))
            if "geometry" in due:
                from mvcl.training import _geometry

                found = _geometry.scores(self.run, self.state)
                if self.log is not None:
                    self.log.scores(self.step, found)
            if self._page is not None and self.log is not None:
                try:
                    self._page()
                except Exception as error:  # a run must not end for its page
                    _progress.line(f"warning: the report was not written: {type(error).__name__}: {error}")

    def evaluate(self) -> _evaluate.Table:
        """The table of the last state; a stop signal raises `Interrupted`, and the finished rows are kept."""
        with self.clock.phase("saving"):
            self.checkpoints.wait()
        _progress.line("evaluating")
        with self.clock.phase("evaluating"), _progress.checked(self._check_stop):
            table, score = _evaluate.evaluated(self.run, self.state, self.workdir)
            self._record_score(score)
        if self.stop.signal and jax.process_count() == 1:  # too late to stop this run, but not those after it
            raise Interrupted(self.stop.signal, self.step, self.step, "ending")
        return table

    def refresh(self) -> None:
        """Refresh the method's statistics before the next step, and renew optimiser states that start again, if due;
        after the last step only refresh.jsonl gets its line."""
        program, epoch = self.run.program, self.run.program.steps_per_epoch
        learner, last = program.learner, self.step == program.steps
        if learner.due(self.step, epoch):
            split, before = self.run.splits["train"], self.state["statistics"]
            with _progress.during("refreshing the method's statistics"):
                inputs = data.inputs(split, np.arange(len(split)))
                new, record = learner.refresh(self.state["params"], before, inputs, self.step, epoch)
            if self.log is not None:  # how they came about, and how the clusters fit the classes
                agreement = {}
                if len(split.class_names) > 1 and "clusters_all" in record:
                    both = split.labels, np.asarray(record["clusters_all"])
                    agreement["acc_all"] = metrics.clustering_accuracy(*both)
                    agreement["nmi_all"] = metrics.normalized_mutual_information(*both)
                plain = {name: np.asarray(value).tolist() for name, value in record.items()}
                row = {"step": self.step, **agreement, **plain}
                _files.append(self.workdir / "refresh.jsonl", json.dumps(row) + "\n")
                self.log.scores(self.step, agreement)
            if not last:
                new = sharded_as(new, program.abstract_state["statistics"])
                self.state = {**self.state, "statistics": new}
        if not last and (parts := learner.restarts(self.step, epoch)):
            self.state = program.restart(self.state, parts)

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
