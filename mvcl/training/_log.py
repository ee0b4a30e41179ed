"""The log of a run: a progress line, metrics.jsonl, TensorBoard, and warnings."""

import json
import math
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax

from mvcl import _buckets
from mvcl._progress import Progress, duration, write_line
from mvcl.training import _scores
from mvcl.training._watch import Clock

if TYPE_CHECKING:
    from tensorboardX import SummaryWriter

# Consecutive logged steps at chance level, or with a collapsed rank, before a warning.
_PATIENCE = 5
# Time between uploads of the log of a run in a bucket, besides those with the checkpoints.
_UPLOAD_SECONDS = 60.0


class _Mirror:
    """Where a log grows: the run folder, or for a bucket, whose objects cannot grow, a local folder."""

    def __init__(self, workdir: Path) -> None:
        self._workdir, self.folder, self.remote = workdir, workdir, _buckets.is_remote(workdir)
        self._uploaded, self._last = 0, time.monotonic()
        if self.remote:
            self.folder = _buckets.beside(self)
            rows = workdir / "metrics.jsonl"
            (self.folder / rows.name).write_text(rows.read_text() if rows.is_file() else "")

    def upload(self, *, every: float = 0.0) -> None:
        """Write the files whole to the bucket if they have grown, at most once in `every` seconds."""
        if not self.remote or time.monotonic() - self._last < every:
            return
        size = sum(file.stat().st_size for file in self.folder.rglob("*") if file.is_file())
        if size != self._uploaded:
            _buckets.upload(self.folder, self._workdir)
        self._uploaded, self._last = size, time.monotonic()


class Log:
    """Writes one row per logged step; only process 0 has a log."""

    def __init__(
        self,
        workdir: Path,
        *,
        steps: int,
        first_step: int,
        views_per_step: int,
        progress: Progress | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._steps, self._views = steps, views_per_step
        self._progress, self._clock = progress or Progress(), clock or Clock()
        self._mirror, self._purged = _Mirror(workdir), first_step or None
        self._file = open(self._mirror.folder / "metrics.jsonl", "a", buffering=1)
        self._started = self._last = time.monotonic()
        self._first = self._last_step = first_step
        self._at_chance = self._collapsed = 0
        self._unconverged = False

    def line(self, text: str) -> None:
        """Print a line; on a terminal it appears above the progress line."""
        self._progress.line(text)

    def restart_clock(self) -> None:
        """Exclude the time since the last row (compilation, evaluation) from the rate."""
        self._last = time.monotonic()

    def row(self, step: int, values: dict[str, Any]) -> None:
        """Log the values of a step, print progress, and warn if the loss stays at chance or the embeddings collapse."""
        now = time.monotonic()
        done = step - self._last_step
        rate = done / max(now - self._last, 1e-9)
        values = {
            "step": step,
            **values,
            "views_per_second": rate * self._views,
            "seconds": now - self._started,
            "time": round(self._clock.now(), 3),
        }
        self._last, self._last_step = now, step
        finite = {k: v for k, v in values.items() if not (isinstance(v, float) and not math.isfinite(v))}
        self._file.write(json.dumps(finite) + "\n")
        left = (self._steps - step) / rate
        width = len(str(self._steps))
        chance = f" (chance {values['chance']:.4f})" if "chance" in values else ""
        self._progress.show(
            f"step {step:>{width}}/{self._steps}  loss {values['loss']:.4f}{chance}  "
            f"rank {values['effective_rank']:.1f}  {rate * self._views:,.0f} views/s  {duration(left)} left"
        )
        for name, value in finite.items():
            if name not in ("step", "time"):
                self._board.add_scalar(name, value, step, walltime=values["time"])
        self._warn(values)
        with suppress(OSError):  # the next one, or the next checkpoint, tries again
            self._mirror.upload(every=_UPLOAD_SECONDS)

    def upload(self) -> None:
        """Bring the rows so far to the bucket of the run, if it is in one, before a checkpoint that stands for them."""
        if self._mirror.remote:
            self._board.flush()
            self._mirror.upload()

    def score(self, step: int, name: str, value: float) -> None:
        """Log the score of a step; `_scores.scores` reads it."""
        self.scores(step, {name: value}, {_scores.KEY: name})

    def scores(self, step: int, values: Mapping[str, float], more: Mapping[str, str] = {}) -> None:
        """Log several evaluations of one step in one row, with `more` entries; none without values."""
        if not values:
            return
        self._file.write(json.dumps({"step": step, **values, **more}) + "\n")
        for name, value in values.items():
            self._board.add_scalar(name, value, step, walltime=self._clock.now())
        self.line(f"step {step}: " + ", ".join(f"{name} {value:.4f}" for name, value in values.items()))

    def close(self) -> None:
        """Flush and close the files."""
        for file in (self._file, vars(self).get("_board")):
            with suppress(OSError):  # a full disk: the first write that failed has raised
                if file is not None:
                    file.close()
        try:
            self._mirror.upload()
        except OSError as error:  # it must not hide why the run ends
            print(f"mvcl: the end of the log was not uploaded: {error}", file=sys.stderr)

    @cached_property
    def _board(self) -> "SummaryWriter":
        from tensorboardX import SummaryWriter  # takes half a second with the clients of cloud storage

        return SummaryWriter(str(self._mirror.folder / "tensorboard"), purge_step=self._purged)

    def _warn(self, values: dict[str, Any]) -> None:
        chance = values.get("chance", math.inf)
        at_chance = math.isfinite(chance) and values["loss"] > chance - 0.01 * (1 + abs(chance))
        self._at_chance = self._at_chance + 1 if at_chance else 0
        if self._at_chance == _PATIENCE:
            self.line(
                f"warning: the loss has stayed at the chance level {chance:.4f} for {_PATIENCE} logged steps: the "
                "features do not separate the instances. Check the learning rate, the temperature and the views"
            )
        if values.get("solver_unconverged", 0) > 0 and not self._unconverged:
            self._unconverged = True
            self.line(
                f"warning: the transport solver stopped after {values['solver_iterations']:.0f} iterations with "
                f"marginals wrong by {values['solver_error']:.2g}: the loss is a lower bound. Raise "
                "--objective.max-iterations or --objective.epsilon"
            )
        collapsed = values["effective_rank"] < 1.5
        self._collapsed = self._collapsed + 1 if collapsed else 0
        if self._collapsed == _PATIENCE:
            self.line(
                f"warning: the effective rank of the embeddings has fallen to {values['effective_rank']:.2f}: they "
                "collapse to one direction. Check the objective (has it negatives?), the head and the learning rate"
            )


def log_line(text: str) -> None:
    """Print a line in the first process of a run."""
    if jax.process_index() == 0:
        write_line(text)
