"""Long work of a run: reported, and stopped by a signal in all processes at the same place."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TypeVar

import jax
import numpy as np

from mvcl._progress import Progress
from mvcl.training import _watch
from mvcl.training._signals import Interrupted

_Item = TypeVar("_Item")
_NEVER: Mapping[str, int] = {"signal": 0}


def progress() -> Progress:
    """Progress that only the first process of a run prints."""
    return Progress(silent=jax.process_index() > 0)


def _no(mine: np.ndarray) -> np.ndarray:
    return mine[None]


@dataclass(frozen=True)
class Guard:
    """Goes through long work of a run after a step; it can be stopped between two items.

    All processes call it for the same items in the same order, so that they stop at the same one.
    """

    step: int = 0
    """Step of the state; it is saved."""
    steps: int = 0
    """Steps of the run."""
    stop: Mapping[str, int] = field(default_factory=lambda: _NEVER)
    """From `stop_signals`; by default nothing stops the work."""
    exchange: Callable[[np.ndarray], np.ndarray] = _no
    """`_processes.Flags.exchange` of one flag."""
    heartbeat: _watch.Heartbeat | None = None
    """Of the run, in process 0."""
    progress: Progress = field(default_factory=progress)
    """Reports the work."""

    def track(
        self, items: Iterable[_Item], what: str, total: int | None = None, unit: str = "batches"
    ) -> Iterator[_Item]:
        """The items; an `mvcl._progress.Track`. Raises `Interrupted` before an item after a signal."""
        for item in self.progress(items, what, total, unit):
            self.check()
            yield item

    def during(self, what: str) -> AbstractContextManager[None]:
        """Context of work without items."""
        return self.progress.during(what)

    def check(self) -> None:
        """Raise `Interrupted` if any process has a reason to stop."""
        if self.heartbeat is not None:
            self.heartbeat.beat(self.step, "evaluating")
        mine = np.asarray([self.stop["signal"]], np.int32)
        if reason := int(self.exchange(mine).max()):
            raise Interrupted(reason, self.step, self.steps, "evaluating")
