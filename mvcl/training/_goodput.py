"""Goodput: the share of a run's wall time, over all its sessions, in which it trained."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax

from mvcl._progress import duration
from mvcl.training import _folder

PARTS = ("training", "compiling", "data", "evaluating", "saving", "repeated", "other")
"""`data` is waiting for batches; `repeated` is training steps again that a session before had trained and not saved;
`other` is starting, stopping and whatever else there is."""
_COMPILES = "/jax/core/compile/"  # events of jax at the start and the end of tracing, lowering and compiling
_LINE_SECONDS = 600.0


class Goodput:
    """Splits the wall time of a run into parts, which add up to it.

    Time counts as the innermost part that is entered, as `other` outside of all. Sessions of a resumed run are added.
    """

    def __init__(self) -> None:
        self._seconds = dict.fromkeys(PARTS, 0.0)
        self._doing = ["other"]
        self._last = self._printed = time.monotonic()
        self._step = self._furthest = 0
        self._sessions = 1

    @contextmanager
    def during(self, part: str) -> Iterator[None]:
        """Time within counts as this part, one of PARTS."""
        self.enter(part)
        try:
            yield
        finally:
            self.leave()

    def enter(self, part: str) -> None:
        """Count as this part from now on."""
        self._count()
        self._doing.append(part)

    def leave(self) -> None:
        """Count as the part from before `enter`."""
        self._count()
        self._doing.pop()

    def reached(self, step: int) -> None:
        """Tell that this step is done: training after it counts as that of the next."""
        self._count()
        self._step = step
        self._furthest = max(self._furthest, step)

    def resume(self, workdir: Path) -> None:
        """Add the earlier sessions, as heartbeat.json and the log tell them; call before either is written.

        A session that was killed counts to its last heartbeat or logged step, whichever came later.
        """
        rows, beat = _folder.read_log(workdir), _read(workdir / "heartbeat.json")
        steps = [row["step"] for row in rows if "step" in row]
        self._furthest = max([0, *steps, beat.get("step", 0)])
        earlier = beat.get("goodput")
        if earlier is None:
            return
        self._furthest = max(self._furthest, earlier["furthest"])
        self._sessions += earlier["sessions"]
        for part in PARTS:
            self._seconds[part] += earlier["seconds"].get(part, 0.0)
        self._seconds["training"] += max([0.0, *(row.get("time", 0.0) - beat["unix_time"] for row in rows)])

    def seconds(self) -> dict[str, float]:
        """Seconds of each part until now."""
        self._count()
        return dict(self._seconds)

    def record(self) -> dict[str, Any]:
        """What `resume` needs, as JSON."""
        seconds = {part: round(value, 3) for part, value in self.seconds().items()}
        return {"sessions": self._sessions, "furthest": self._furthest, "seconds": seconds}

    def share(self) -> float:
        """The share of training, in [0, 1]."""
        return shares(self.seconds())["training"]

    def line_is_due(self) -> bool:
        """True at most every 10 minutes."""
        if time.monotonic() - self._printed < _LINE_SECONDS:
            return False
        self._printed = time.monotonic()
        return True

    def __str__(self) -> str:
        seconds = self.seconds()
        parts = ", ".join(f"{part} {100 * share:.0f}" for part, share in shares(seconds).items())
        sessions = f" in {self._sessions} sessions" if self._sessions > 1 else ""
        return f"goodput {100 * self.share():.0f} %: {parts} % of {duration(sum(seconds.values()))}{sessions}"

    def _count(self) -> None:
        """Add the time since the last call to its part."""
        now, part = time.monotonic(), self._doing[-1]
        if part == "training" and self._step < self._furthest:
            part = "repeated"
        self._seconds[part] += now - self._last
        self._last = now


@contextmanager
def measured() -> Iterator[Goodput]:
    """A goodput that begins now, and within which this thread's compilations count as `compiling`."""
    goodput, thread = Goodput(), threading.get_ident()

    def begins(event: str, value: float | int, **_: str | int) -> None:
        del value
        if event.startswith(_COMPILES) and threading.get_ident() == thread:
            goodput.enter("compiling")

    def ends(event: str, duration_secs: float, **_: str | int) -> None:
        del duration_secs  # by a clock that may be set back
        if event.startswith(_COMPILES) and threading.get_ident() == thread:
            goodput.leave()

    jax.monitoring.register_scalar_listener(begins)
    jax.monitoring.register_event_duration_secs_listener(ends)
    try:
        yield goodput
    finally:
        jax.monitoring.unregister_scalar_listener(begins)
        jax.monitoring.unregister_event_duration_listener(ends)


def shares(seconds: dict[str, float]) -> dict[str, float]:
    """Seconds of each part -> its share of their sum, which is at least 1 ms."""
    whole = max(sum(seconds.values()), 1e-3)
    return {part: value / whole for part, value in seconds.items()}


def _read(path: Path) -> dict[str, Any]:
    """A heartbeat; empty if there is none that can be read."""
    try:
        beat = dict(json.loads(path.read_text()))
        int(beat.get("step", 0))
        if (earlier := beat.get("goodput")) is not None:
            float(beat["unix_time"]), int(earlier["furthest"]), int(earlier["sessions"])
            [float(earlier["seconds"].get(part, 0.0)) for part in PARTS]
        return beat
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return {}
