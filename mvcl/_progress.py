"""Progress of long work: what is being done, how much of it, the rate and the time left."""

import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Protocol, TextIO, TypeVar

_Item = TypeVar("_Item")
# Seconds: between updates of a terminal's line; before the first line in a file, and between lines.
_UPDATE, _FIRST, _EVERY = 0.5, 10.0, 30.0


class Track(Protocol):
    """Goes through the items of long work, and may report on them or raise an exception between two of them."""

    def __call__(
        self, items: Iterable[_Item], what: str, total: int | None = None, unit: str = "batches"
    ) -> Iterator[_Item]:
        """The items.

        Args:
          items: of any kind.
          what: the work, for a message: "encoding train".
          total: number of items, if it is known.
          unit: what an item is, in the plural.
        """


def untracked(
    items: Iterable[_Item], what: str, total: int | None = None, unit: str = "batches"
) -> Iterator[_Item]:
    """The items, without reports; a `Track`."""
    del what, total, unit
    return iter(items)


class Progress:
    """Prints the progress of work: on a terminal one line that is updated, in a file a line now and then.

    Nothing is printed of work that ends within seconds in a file. A thread prints, so that a line is up to date even
    while an item takes long, as the first does that compiles a program.
    """

    def __init__(self, out: TextIO | None = None, *, silent: bool = False) -> None:
        """Print to `out`, by default the standard output; with `silent` nothing."""
        self._out = sys.stdout if out is None else out
        self._silent = silent

    def __call__(
        self, items: Iterable[_Item], what: str, total: int | None = None, unit: str = "batches"
    ) -> Iterator[_Item]:
        """The items; a `Track`."""
        work = _Work(what, total, unit)
        with self._reported(work):
            for item in items:
                yield item
                work.done += 1

    @contextmanager
    def during(self, what: str) -> Iterator[None]:
        """Context of work without items, such as compiling: reports how long it has taken so far."""
        with self._reported(_Work(what, None, "")):
            yield

    @contextmanager
    def _reported(self, work: "_Work") -> Iterator[None]:
        if self._silent:
            yield
            return
        ended = threading.Event()
        thread = threading.Thread(target=self._report, args=(work, ended), daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def _report(self, work: "_Work", ended: threading.Event) -> None:
        terminal = self._out.isatty()
        wait, printed = _UPDATE if terminal else _FIRST, False
        while not ended.wait(wait):
            printed = True
            if terminal:
                print(f"\r\033[K{work}", end="", file=self._out, flush=True)
            else:
                print(work, file=self._out, flush=True)
                wait = _EVERY
        if terminal and printed:
            print("\r\033[K", end="", file=self._out, flush=True)


class _Work:
    """What is done and how much of it; its text is the line that is printed."""

    def __init__(self, what: str, total: int | None, unit: str) -> None:
        self._what, self._total, self._unit = what, total, unit
        self._started = time.monotonic()
        self.done = 0

    def __str__(self) -> str:
        seconds, done = time.monotonic() - self._started, self.done
        if not self._unit:
            return f"{self._what}: {duration(seconds)}"
        of = "" if self._total is None else f" of {self._total:,}"
        text = f"{self._what}: {done:,}{of} {self._unit}"
        if not done:
            return f"{text}, {duration(seconds)}"
        text += f", {_rate(done / seconds, self._unit)}"
        if self._total is None:
            return f"{text}, {duration(seconds)}"
        return f"{text}, {duration((self._total - done) * seconds / done)} left"


def _rate(rate: float, unit: str) -> str:
    """A rate of three digits; of slow work the seconds of an item."""
    if rate >= 1:
        return f"{rate:,.0f} {unit}/s" if rate >= 100 else f"{rate:.3g} {unit}/s"
    return f"{1 / rate:.3g} s each"


def duration(seconds: float) -> str:
    """A duration in words: 12 s, 3m05s, 2h07m, 3 days 2h07m."""
    whole = timedelta(seconds=round(seconds))
    minutes, seconds = divmod(whole.seconds, 60)
    hours, minutes = divmod(minutes, 60)
    if whole.days:
        return f"{whole.days} days {hours}h{minutes:02d}m"
    if hours:
        return f"{hours}h{minutes:02d}m"
    return f"{minutes}m{int(seconds):02d}s" if minutes else f"{int(seconds)} s"
