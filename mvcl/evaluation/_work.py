"""How an evaluation is carried out: part by part, so that it can be reported on, stopped and continued."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from mvcl._progress import Track, untracked
from mvcl.evaluation._result import Result


class Part(Protocol):
    """Carries out a part of an evaluation."""

    def __call__(self, name: str, compute: Callable[[], list[Result]]) -> list[Result]:
        """The results of `compute()`, or those that were kept under this name from an earlier call.

        The name is unique among the parts of a row of the table. An exception may end the evaluation here.
        """


def _now(name: str, compute: Callable[[], list[Result]]) -> list[Result]:
    del name
    return compute()


@dataclass(frozen=True)
class Work:
    """How a protocol carries out its parts and goes through their items; by default it computes them and no more."""

    part: Part = _now
    """Computes a part, or returns its results if they were computed before."""
    track: Track = untracked
    """Goes through batches, fits or draws."""


AT_ONCE = Work()
"""Computes every part, and keeps and tracks nothing."""
