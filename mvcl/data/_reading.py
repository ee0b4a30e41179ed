"""Corrupt examples and stalled readers: how many to skip, and how long to wait."""

import queue
import sys
import threading
import time
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from mvcl._progress import write_line
from mvcl.data._splits import CorruptExample

T = TypeVar("T")


class StalledReader(RuntimeError):
    """No batch arrived in time; the message names the file being read."""


class Reading:
    """Records what is being read and which examples are corrupt.

    Up to `limit` corrupt examples are skipped in a run, each counted once. Thread-safe.
    """

    def __init__(self, limit: int = 0, known: Iterable[int] = ()) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._busy: dict[int, tuple[str, float]] = {}
        self._found: dict[tuple[str, int], tuple[int, str]] = {}  # (split, row) -> first step, message
        self._shared: set[int] = set(known)
        self.passed: set[int] = set(known)

    @contextmanager
    def at(self, what: str) -> Iterator[None]:
        """Context of reading `what` in this thread."""
        thread = threading.get_ident()
        self._busy[thread] = (what, time.monotonic())
        try:
            yield
        finally:
            del self._busy[thread]

    def corrupt(self, split: str, row: int, step: int, error: CorruptExample) -> None:
        """Count an example that cannot be read.

        Raises:
          CorruptExample: the limit is exceeded.
        """
        with self._lock:
            new = (split, row) not in self._found
            if new:
                self._found[split, row] = (step, str(error))
            again = {("train", r) for r in self.passed} - self._found.keys()
            count = len(self._found) + len(again)
        if count > self._limit:
            raise CorruptExample(self._limit_message(str(error), count)) from error
        if new:
            write_line(f"mvcl: skipped a corrupt example: {error}", sys.stderr)

    def unshared(self, step: int, most: int) -> list[int]:
        """At most `most` corrupt training rows of batches up to this step that were not shared yet; marks them as
        shared."""
        with self._lock:
            rows = [
                row
                for (split, row), (first, _) in self._found.items()
                if split == "train" and first <= step and row not in self._shared
            ][:most]
            self._shared.update(rows)
        return rows

    def add_shared(self, rows: Iterable[int]) -> None:
        """Add corrupt training rows received from all processes.

        Raises:
          CorruptExample: the limit is exceeded.
        """
        new = [row for row in rows if row not in self.passed]
        self.passed.update(new)
        if new and len(self.passed) > self._limit:
            mine = next((row for row in new if ("train", row) in self._found), None)
            message = (
                f"training example {new[-1]} cannot be read; the process that read it printed the reason"
            )
            message = message if mine is None else self._found["train", mine][1]
            raise CorruptExample(self._limit_message(message, len(self.passed)))

    def longest(self) -> tuple[str, float] | None:
        """The longest current read and its seconds; None if nothing is being read."""
        busy = list(self._busy.values())
        if not busy:
            return None
        what, since = min(busy, key=lambda entry: entry[1])
        return what, time.monotonic() - since

    def _limit_message(self, message: str, count: int) -> str:
        return f"{message}; this is corrupt example {count}, and --train.corrupt-limit is {self._limit}"


def watched(stream: Iterator[T], seconds: float, reading: Reading) -> Generator[T, None, None]:
    """The items of a stream, read in another thread; raises an error if an item takes too long.

    Args:
      stream: the items.
      seconds: how long to wait for an item; 0: no limit.
      reading: records what is being read, for the error message.

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
        except BaseException as error:  # raised in the consuming thread
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
    where = f"{at[0]} has been read for {at[1]:.0f} s" if at else "no example is being read"
    return (
        f"no batch for {seconds:g} s (--train.stall-seconds): {where}. Check that file and its disk or network; "
        "repeat the command to resume from the newest checkpoint"
    )
