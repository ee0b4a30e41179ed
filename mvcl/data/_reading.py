"""Corrupt examples and stalled readers: what is passed over, and how long to wait."""

import queue
import sys
import threading
import time
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from mvcl.data._splits import CorruptExample

T = TypeVar("T")


class StalledReader(RuntimeError):
    """No batch came for too long; the message names what is being read."""


class Reading:
    """What readers do at the moment, and which examples they could not read.

    A corrupt example is passed over and another takes its place, up to `limit` of them in the run, each counted once
    however often its turn comes. Thread-safe.
    """

    def __init__(self, limit: int = 0, known: Iterable[int] = ()) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._busy: dict[int, tuple[str, float]] = {}
        self._found: dict[
            tuple[str, int], tuple[int, str]
        ] = {}  # (split, row) -> step of first sight, message
        self._shared: set[int] = set(known)
        self.passed: set[int] = set(known)

    @contextmanager
    def at(self, what: str) -> Iterator[None]:
        """Reading this, in this thread."""
        thread = threading.get_ident()
        self._busy[thread] = (what, time.monotonic())
        try:
            yield
        finally:
            del self._busy[thread]

    def corrupt(self, split: str, row: int, step: int, error: CorruptExample) -> None:
        """Count an example that cannot be read.

        Raises:
          CorruptExample: it is one too many.
        """
        with self._lock:
            new = (split, row) not in self._found
            if new:
                self._found[split, row] = (step, str(error))
            again = {("train", r) for r in self.passed} - self._found.keys()
            count = len(self._found) + len(again)
        if count > self._limit:
            raise CorruptExample(self._refusal(str(error), count)) from error
        if new:
            print(f"mvcl: an example is passed over: {error}", file=sys.stderr, flush=True)

    def unshared(self, step: int, most: int) -> list[int]:
        """Rows of the training split, at most so many, found corrupt in batches up to this step, that no other process
        knows; they count as shared from now on."""
        with self._lock:
            rows = [
                row
                for (split, row), (first, _) in self._found.items()
                if split == "train" and first <= step and row not in self._shared
            ][:most]
            self._shared.update(rows)
        return rows

    def add_shared(self, rows: Iterable[int]) -> None:
        """Add the corrupt rows of the training split that all processes shared.

        Raises:
          CorruptExample: together they are too many.
        """
        new = [row for row in rows if row not in self.passed]
        self.passed.update(new)
        if new and len(self.passed) > self._limit:
            mine = next((row for row in new if ("train", row) in self._found), None)
            message = f"training example {new[-1]} cannot be read; the process that read it printed why"
            message = message if mine is None else self._found["train", mine][1]
            raise CorruptExample(self._refusal(message, len(self.passed)))

    def longest(self) -> tuple[str, float] | None:
        """What has been read for the longest time, and for how many seconds; None if nothing is."""
        busy = list(self._busy.values())
        if not busy:
            return None
        what, since = min(busy, key=lambda entry: entry[1])
        return what, time.monotonic() - since

    def _refusal(self, message: str, count: int) -> str:
        counted = f"it is number {count} that cannot be read" if self._limit else "none is passed over"
        return f"{message}; {counted} with --train.corrupt-limit {self._limit}"


def watched(stream: Iterator[T], seconds: float, reading: Reading) -> Generator[T, None, None]:
    """The same items, drawn by another thread; an error names what is read when none comes for so long.

    Args:
      stream: what to draw from.
      seconds: how long to wait for an item; 0 is for ever.
      reading: what the readers do.

    Raises:
      StalledReader: an item took longer.
    """
    ready: queue.Queue[tuple[str, Any]] = queue.Queue(maxsize=1)
    ended = threading.Event()

    def hand_over(kind: str, item: Any) -> None:
        while not ended.is_set():
            try:
                return ready.put((kind, item), timeout=0.2)
            except queue.Full:
                continue

    def draw() -> None:
        try:
            for item in stream:
                hand_over("item", item)
                if ended.is_set():
                    return
            hand_over("end", None)
        except BaseException as error:  # to be raised where the items are taken
            hand_over("error", error)

    threading.Thread(target=draw, name="mvcl reader", daemon=True).start()
    try:
        while True:
            try:
                kind, item = ready.get(timeout=seconds or None)
            except queue.Empty:
                raise StalledReader(_stalled(seconds, reading.longest())) from None
            if kind == "error":
                raise item
            if kind == "end":
                return
            yield item
    finally:
        ended.set()


def _stalled(seconds: float, at: tuple[str, float] | None) -> str:
    where = f"a reader has been at {at[0]} for {at[1]:.0f} s" if at else "no example is being read"
    return (
        f"no batch for {seconds:g} s (--train.stall-seconds): {where}. Look at that file and at the disk or network it "
        "lies on; the same command continues from the newest checkpoint"
    )
