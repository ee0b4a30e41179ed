"""The log of a run: a line of progress, metrics.jsonl, TensorBoard, and warnings."""

import json
import math
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax

from mvcl import _buckets, _files, _progress
from mvcl.training._clock import Clock, memory

if TYPE_CHECKING:
    from tensorboardX import SummaryWriter

SCORE = "score"
"""A row of metrics.jsonl with this key is a score; its value is the name of the entry with the number."""
# Phases of the clock that a logged row tells: the time between two rows without saving and evaluating.
_PHASES = {"seconds_data": "data", "seconds_step": "training", "seconds_log": "logging"}
# Consecutive logged steps at chance level, or with a collapsed rank, before a warning.
_PATIENCE = 5


class Log:
    """Writes a row for each logged step, and scores; only process 0 has a log."""

    def __init__(self, workdir: Path, clock: Clock, *, step: int, steps: int, views_per_step: int) -> None:
        """Add to the log of a folder, which ends at `step`.

        A bucket's objects cannot grow: its log is written to a temporary folder, which `upload` copies.
        """
        self._workdir, self._clock, self._steps, self._views = workdir, clock, steps, views_per_step
        self._folder, self._temporary = workdir, None
        if _buckets.is_remote(workdir):
            self._temporary = tempfile.TemporaryDirectory(prefix="mvcl_")
            self._folder = Path(self._temporary.name)
            rows = workdir / "metrics.jsonl"
            (self._folder / rows.name).write_text(rows.read_text() if rows.is_file() else "")
        self._file = open(self._folder / "metrics.jsonl", "a", buffering=1)
        self._first = self._last = step
        self._before, self._started = clock.seconds(), time.monotonic()
        # Time never decreases, even if the machine's clock is set back.
        last = max((float(row.get("time", 0.0)) for row in read_log(workdir)), default=0.0)
        self._wall = max(time.time(), last) - self._started
        self._at_chance = self._collapsed = 0
        self._unconverged = False

    def row(self, step: int, values: dict[str, Any], full_speed: float | None = None) -> None:
        """Log the values of a step and the time since the last row; warn of chance, collapse and a stopped solver.

        Args:
          step: number of updates done.
          values: name -> number, with `loss` and `effective_rank`.
          full_speed: steps per second at the devices' peak FLOP/s, for the utilisation; None: unknown.
        """
        seconds, done = self._clock.seconds(), max(step - self._last, 1)
        parts = {name: (seconds.get(p, 0.0) - self._before.get(p, 0.0)) / done for name, p in _PHASES.items()}
        self._before, self._last = seconds, step
        each = max(sum(parts.values()), 1e-9)
        row = {"step": step, **values, **parts, **memory(), "views_per_second": self._views / each}
        if full_speed is not None:
            row["model_flops_utilisation"] = 1 / (each * full_speed)
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
        if self._temporary is not None:
            self._board.flush()
            _buckets.upload(self._folder, self._workdir)

    def close(self) -> None:
        """Print where the time went, and close the files."""
        _progress.line(str(self._clock))
        for file in (self._file, vars(self).get("_board")):
            with suppress(OSError):  # a full disk: the first write that failed has raised
                if file is not None:
                    file.close()
        if self._temporary is not None:
            try:
                _buckets.upload(self._folder, self._workdir)
            except OSError as error:  # it must not hide why the run ends
                _progress.line(f"mvcl: the end of the log was not uploaded: {error}")
            self._temporary.cleanup()

    @cached_property
    def _board(self) -> "SummaryWriter":
        from tensorboardX import SummaryWriter  # takes half a second with the clients of cloud storage

        return SummaryWriter(str(self._folder / "tensorboard"), purge_step=self._first or None)

    def _warn(self, values: dict[str, Any]) -> None:
        chance = values.get("chance", math.inf)
        at_chance = math.isfinite(chance) and values["loss"] > chance - 0.01 * (1 + abs(chance))
        self._at_chance = self._at_chance + 1 if at_chance else 0
        if self._at_chance == _PATIENCE:
            _progress.line(
                f"warning: the loss has stayed at the chance level {chance:.4f} for {_PATIENCE} logged steps: the "
                "features do not separate the instances. Check the learning rate, the temperature and the views"
            )
        if values.get("solver_unconverged", 0) > 0 and not self._unconverged:
            self._unconverged = True
            _progress.line(
                f"warning: the transport solver stopped after {values['solver_iterations']:.0f} iterations with "
                f"marginals wrong by {values['solver_error']:.2g}: the loss is a lower bound. Raise "
                "--objective.max-iterations or --objective.epsilon"
            )
        collapsed = values["effective_rank"] < 1.5
        self._collapsed = self._collapsed + 1 if collapsed else 0
        if self._collapsed == _PATIENCE:
            _progress.line(
                f"warning: the effective rank of the embeddings has fallen to {values['effective_rank']:.2f}: they "
                "collapse to one direction. Check the objective (has it negatives?), the head and the learning rate"
            )


def read_log(workdir: Path, name: str = "metrics.jsonl") -> list[dict[str, Any]]:
    """The rows of a log file; an incomplete last line and damaged ones are skipped."""
    path = workdir / name
    rows = []
    for line in path.read_bytes().decode(errors="replace").splitlines() if path.is_file() else []:
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            continue
        numbers = [row.get("step", 0), row.get("time", 0.0)] if isinstance(row, dict) else [None]
        if all(isinstance(number, (int, float)) for number in numbers):
            rows.append(row)
    return rows


def read_scores(workdir: Path) -> dict[int, float]:
    """Step -> score, of the log of a run folder."""
    rows = read_log(workdir)
    found = [(row.get("step"), row.get(str(row[SCORE]))) for row in rows if SCORE in row]
    return {step: value for step, value in found if isinstance(step, int) and isinstance(value, float)}


def rewind_log(workdir: Path, step: int, *, done: bool = False) -> None:
    """Remove the rows after this step, which will be logged again; `done`: it is the last step of the run."""
    rows = [row for row in read_log(workdir) if row.get("step", 0) <= step]
    _files.write_whole(workdir / "metrics.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    if (workdir / "refresh.jsonl").is_file():  # a refresh precedes its step, which is not done yet
        rows = [row for row in read_log(workdir, "refresh.jsonl") if row.get("step", 0) < step + done]
        _files.write_whole(workdir / "refresh.jsonl", "".join(json.dumps(row) + "\n" for row in rows))


def append_row(path: Path, row: dict[str, Any]) -> None:
    """Add a row to a log file that is not open."""
    _files.append(path, json.dumps(row) + "\n")


def log_line(text: str) -> None:
    """Print a line in the first process of a run."""
    if jax.process_index() == 0:
        _progress.line(text)
