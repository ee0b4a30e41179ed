"""What a run is doing, in words."""

import dataclasses
import shlex
import time
from collections.abc import Sequence
from datetime import UTC, datetime

import numpy as np

from mvcl._progress import duration
from mvcl.report._read import DONE, Run

_LONGEST = 1e9  # seconds left, of a log that is not damaged
_INTERVALS = 20  # between logged steps, of which the time left is estimated
# What a heartbeat says -> on the page, of a run that is alive.
_DOING = {"starting": "Starting", "training": "Training", "saving": "Training", "evaluating": "Evaluating"}


@dataclasses.dataclass(frozen=True)
class State:
    """What runs are doing.

    Attributes:
      live: whether one of them is alive, so that the page will be written again.
      short: a word or two for a table.
      lines: sentences.
      written: when the page is written, in seconds since 1970; 0 for runs that have ended, whose page has no time.
    """

    live: bool
    short: str
    lines: list[str]
    written: float


def state_of(run: Run) -> State | None:
    """The state of a run; None without a heartbeat that tells it."""
    beat = run.beat
    if beat is None:
        return None
    of = f"step {beat.step:,} of {beat.steps:,}"
    if beat.doing == DONE:
        return State(False, "finished", [f"Finished: {beat.steps:,} steps."], 0.0)
    if not beat.alive:
        repeat = "repeat the command to resume"
        if not run.has_own_code:
            folder = shlex.quote(str(run.path))
            repeat += f", or: mvcl train {folder} --workdir {folder}"
        return State(False, f"stopped at {of}", [f"Stopped at {of}: {repeat}.", *_last(run)], 0.0)
    now = time.time()
    doing = _DOING.get(beat.doing, "Training")
    left = _seconds_left(run)
    about = "" if left is None or beat.step >= beat.steps else f", about {duration(left)} left"
    seen = f"Last sign of life {duration(max(now - beat.time, 0))} before this page was written, at {_clock(now)}."
    return State(True, f"{doing.lower()}, {of}", [f"{doing}: {of}{about}.", seen, *_last(run)], now)


def state_of_all(runs: Sequence[Run], names: Sequence[str]) -> State | None:
    """The states of several runs; None if all have finished, or do not tell."""
    states = [(name, state) for name, state in zip(names, map(state_of, runs)) if state is not None]
    if all(run.beat is None or run.beat.doing == DONE for run in runs):
        return None
    lines = [f"{name}: {' '.join(state.lines)}" for name, state in states if state.short != "finished"]
    finished = sum(state.short == "finished" for _, state in states)
    lines += [f"Finished: {finished} of {len(runs)} runs."]
    live = any(state.live for _, state in states)
    return State(live, "", lines, max(state.written for _, state in states))


def _last(run: Run) -> list[str]:
    """The last evaluation during training, and of which step the table is."""
    lines = []
    if run.score is not None:
        step, name, value = run.score
        lines.append(f"Last evaluation during training: {name} {value:.4f} at step {step:,}.")
    elif run.is_live:
        lines.append("No evaluation yet.")
    if run.evaluation_step is not None:
        lines.append(f"The evaluation table is of step {run.evaluation_step:,}.")
    elif run.is_live:
        lines.append("The evaluation table and the plot of the embeddings come after the last step.")
    return lines


def _seconds_left(run: Run) -> float | None:
    """By the median time of a step in the last rows of the log; None with fewer than two."""
    assert run.beat is not None
    rows = [(step, row["time"]) for step, row in run.scalars.items() if np.isfinite(row.get("time", np.nan))]
    steps, times = np.array(rows[-_INTERVALS - 1 :], float).reshape(-1, 2).T
    if len(steps) < 2:
        return None
    left = float(np.median(np.diff(times) / np.diff(steps))) * max(run.beat.steps - run.beat.step, 0)
    return left if 0 <= left < _LONGEST else None


def _clock(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
