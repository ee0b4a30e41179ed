"""Progress of long work: what is being done, how much of it, the rate and the time left.

On a terminal rich draws a line for each work that goes on; in a file a line is written now and then. Work is reported
by module-level functions, so that no function takes an object for it.
"""

import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, Protocol, TextIO, TypeVar

_Item = TypeVar("_Item")
# Seconds before the first line in a file, and between lines.
_FIRST, _EVERY = 10.0, 30.0
_CLEAR = "\r\033[K"


class _State:
    """What is shown; one for the process."""

    silent = False
    bars: Any = None  # rich's Progress, while work goes on at a terminal
    names: list[str]  # of the work that goes on, the outermost first
    due = 0.0  # time of the next line in a file
    check: Callable[[], None] | None = None  # called before each item


_state = _State()
_state.names = []


def track(
    items: Iterable[_Item], what: str, total: int | None = None, unit: str = "batches"
) -> Iterator[_Item]:
    """The items, one after the other; reports how many are done.

    Args:
      items: of any kind.
      what: the work, for a message: "encoding train".
      total: number of items, if it is known.
      unit: what an item is, in the plural.
    """
    started = time.monotonic()
    with _shown(what, total, unit) as task:
        for done, item in enumerate(items, 1):
            if _state.check is not None:
                _state.check()
            yield item
            if task is not None:
                _state.bars.update(task, completed=done, rate=_rate(done, started, unit))
            elif time.monotonic() >= _state.due and not _state.silent:
                _write(f"{': '.join(_state.names)}: {_counted(done, total, unit, started)}")


@contextmanager
def during(what: str) -> Iterator[None]:
    """Context of work without items, such as compiling; in a file, work of many seconds has a line at its end."""
    if _state.check is not None:
        _state.check()
    started = time.monotonic()
    with _shown(what, None, "") as task:
        yield
        if task is None and not _state.silent and time.monotonic() - started > _FIRST:
            _write(f"{': '.join(_state.names)}: {duration(time.monotonic() - started)}")


@contextmanager
def showing(what: str) -> Iterator[None]:
    """Context of work that reports itself with `show`, such as the steps of training."""
    with _shown(what, None, ""):
        yield


def show(text: str) -> None:
    """Report the innermost work: on a terminal the text of its line, in a file a line of its own."""
    if _state.bars is not None:
        _state.bars.update(_state.bars.task_ids[-1], description=text)
    else:
        line(text)


def line(text: str) -> None:
    """Print a line, on a terminal above the work that is shown; nothing where `silence` was called."""
    if not _state.silent:
        _write(text)


def silence() -> None:
    """Report nothing in this process: another one of the run does."""
    _state.silent = True


@contextmanager
def checked(check: Callable[[], None]) -> Iterator[None]:
    """Context in which `check` is called before each item of `track` and at the start of each `during`.

    An exception that it raises ends the work there.
    """
    before, _state.check = _state.check, check
    try:
        yield
    finally:
        _state.check = before


def write_line(text: str, out: TextIO | None = None) -> None:
    """Print a line to `out`, by default the standard output; on a terminal in place of what is shown there."""
    out = sys.stdout if out is None else out
    out.write((_CLEAR if out.isatty() else "") + f"{text}\n")
    out.flush()


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


@contextmanager
def _shown(what: str, total: int | None, unit: str) -> Iterator[int | None]:
    """Show work while it goes on: rich's number of its line on a terminal, else None."""
    outermost = not _state.names
    if outermost:
        _state.due = time.monotonic() + _FIRST
        if sys.stdout.isatty() and not _state.silent:
            _state.bars = _terminal()
            _state.bars.start()
    _state.names.append(what)
    bars = _state.bars
    task = None if bars is None else bars.add_task(what, total=total, rate=f" {unit}" if unit else "")
    try:
        yield task
    finally:
        del _state.names[len(_state.names) - 1 - _state.names[::-1].index(what)]
        if task is not None:
            bars.remove_task(task)
        if outermost and bars is not None:
            bars.stop()
            _state.bars = None


def _terminal() -> Any:
    from rich import progress  # a tenth of a second: only at a terminal

    count = progress.TextColumn("{task.completed:,.0f} of {task.total}{task.fields[rate]}")
    columns = [
        progress.TextColumn("{task.description}", markup=False),
        progress.BarColumn(bar_width=20),
        count,
    ]
    return progress.Progress(
        *columns, progress.TimeElapsedColumn(), progress.TimeRemainingColumn(), transient=True
    )


def _write(text: str) -> None:
    if _state.bars is not None:
        _state.bars.console.print(text, markup=False, highlight=False, soft_wrap=True)
    else:
        write_line(text)
    _state.due = time.monotonic() + _EVERY


def _counted(done: int, total: int | None, unit: str, started: float) -> str:
    """`40 of 100 batches, 12 batches/s, 5 s left`."""
    of = "" if total is None else f" of {total:,}"
    text = f"{done:,}{of}{_rate(done, started, unit)}"
    if total is None:
        return text
    return f"{text}, {duration(max(total - done, 0) * (time.monotonic() - started) / done)} left"


def _rate(done: int, started: float, unit: str) -> str:
    """` batches, 12 batches/s`; of slow work the seconds of an item."""
    rate = done / max(time.monotonic() - started, 1e-9)
    if rate < 1:
        return f" {unit}, {1 / rate:.3g} s each"
    return f" {unit}, {rate:,.0f}/s" if rate >= 100 else f" {unit}, {rate:.3g}/s"


# The old way; it goes when nobody uses it.
_UPDATE = 0.5
_COLUMNS = 80


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

    Of work within work only the innermost is reported, behind the names of the work around it: "seed 2 of 3: encoding
    test: 40 of 100 batches, 12 batches/s, 5 s left". Nothing is printed in a file of work that ends within seconds. A
    thread prints, so that a line is up to date even while an item takes long, as the first does that compiles a
    program.
    """

    def __init__(self, out: TextIO | None = None, *, silent: bool = False) -> None:
        """Print to `out`, by default the standard output; with `silent` nothing."""
        self._out = sys.stdout if out is None else out
        self._silent = silent
        self._terminal = not silent and self._out.isatty()
        self._lock = threading.RLock()  # of all fields below and of the output; signal handlers may print
        self._nested: list[_Work | _Own] = []
        self._ended: threading.Event | None = None
        self._drawn = ""  # on the terminal's line
        self._due = time.monotonic() + _EVERY

    def __call__(
        self, items: Iterable[_Item], what: str, total: int | None = None, unit: str = "batches"
    ) -> Iterator[_Item]:
        """The items; a `Track`."""
        work = _Work(what, total, unit)
        with self._inside(work):
            for item in items:
                yield item
                work.next()

    @contextmanager
    def during(self, what: str) -> Iterator[None]:
        """Context of work without items, such as compiling: reports how long it has taken so far."""
        with self._inside(_Work(what, None, "")):
            yield

    @contextmanager
    def showing(self) -> Iterator[None]:
        """Context of work that reports itself with `show`."""
        with self._inside(_Own()):
            yield

    def show(self, text: str) -> None:
        """Report the work of `showing`: on a terminal the line that is updated, in a file a line of its own."""
        if self._silent:
            return
        with self._lock:
            if (own := self._own()) is not None:
                own.shown = text
            if self._terminal:
                self._draw()
            else:
                self._write(f"{self._behind_names(own, text)}\n")

    def line(self, text: str) -> None:
        """Print a line; on a terminal it takes the place of what was shown, or appears above work that goes on."""
        if not self._silent:
            with self._lock:
                self._write((_CLEAR if self._terminal else "") + f"{text}\n")
                self._drawn = ""
                if (own := self._own()) is not None:
                    own.shown = ""

    def _own(self) -> "_Own | None":
        return next((work for work in reversed(self._nested) if isinstance(work, _Own)), None)

    @contextmanager
    def _inside(self, work: "_Work | _Own") -> Iterator[None]:
        if self._silent:
            yield
            return
        with self._lock:
            self._nested.append(work)
            if self._ended is None and isinstance(work, _Work):
                self._ended = threading.Event()
                self._due = min(self._due, time.monotonic() + _FIRST)
                threading.Thread(target=self._report, args=(self._ended,), daemon=True).start()
        try:
            yield
        finally:
            self._leave(work)

    def _leave(self, work: "_Work | _Own") -> None:
        with self._lock:
            place = next((i for i, other in enumerate(self._nested) if other is work), None)
            if place is None:
                return  # ended with the work around it
            del self._nested[place:]
            if self._ended is not None and not any(isinstance(left, _Work) for left in self._nested):
                self._ended.set()
                self._ended = None
            with suppress(OSError, ValueError):  # as in _report
                if self._drawn and isinstance(work, _Own):
                    self._write("\n")  # its last line stays
                    self._drawn = ""
                elif self._drawn and self._ended is None and self._drawn != self._text():
                    self._draw()  # otherwise the thread does

    def _report(self, ended: threading.Event) -> None:
        # A closed pipe or file: the next line that the program prints itself raises the error.
        with suppress(OSError, ValueError):
            while not ended.wait(_UPDATE):
                with self._lock:
                    if ended.is_set():
                        return
                    if self._terminal:
                        self._draw()
                    elif isinstance(work := self._nested[-1], _Work) and time.monotonic() >= self._due:
                        self._write(f"{self._behind_names(work, str(work))}\n")

    def _draw(self) -> None:
        """Draw the terminal's line again."""
        text = self._text()
        if text or self._drawn:
            self._write(_CLEAR + text)
            self._drawn = text

    def _text(self) -> str:
        """The terminal's line."""
        work = self._nested[-1] if self._nested else None
        text = "" if work is None else str(work)
        # The cursor needs the last column.
        return self._behind_names(work, text, _columns(self._out) - 1) if text else ""

    def _behind_names(self, work: "_Work | _Own | None", text: str, width: int | None = None) -> str:
        """The text behind the names of the work around; of those the outermost are left out first, for the width."""
        names = []
        for around in self._nested:
            if around is work:
                break
            names.append(around.name())
        parts = [part for part in (*names, text) if part]
        if len(parts) > 1:
            outer, _, last = parts[-2].rpartition(": ")
            if text.startswith(f"{last}: "):  # a part of an evaluation often has the name of the loop in it
                parts = [part for part in (*parts[:-2], outer, text) if part]
        while width is not None and len(parts) > 1 and len(": ".join(parts)) > width:
            parts = parts[1:]
        return ": ".join(parts)[:width]

    def _write(self, text: str) -> None:
        # In one piece, since other threads print as well.
        self._out.write(text)
        self._out.flush()
        self._due = time.monotonic() + _EVERY


class _Work:
    """What is done and how much of it; its text is the line that is printed."""

    def __init__(self, what: str, total: int | None, unit: str) -> None:
        self._what, self._total, self._unit = what, total, unit
        self._started = self._item_started = time.monotonic()
        self._longest = 0.0
        self.done = 0

    def next(self) -> None:
        """Count an item."""
        now = time.monotonic()
        self.done += 1
        self._longest = max(self._longest, now - self._item_started)
        self._item_started = now

    def name(self) -> str:
        """The text before the text of work within an item."""
        if not self._unit:
            return self._what
        if self._total is None:
            return f"{self._what} {self.done + 1:,}"
        text = f"{self._what} {self.done + 1:,} of {self._total:,}"
        if not self.done:
            return text
        # By the longest, since items that were finished in an earlier call take no time.
        left = self._longest * (self._total - self.done) - (time.monotonic() - self._item_started)
        return f"{text} ({duration(max(left, 0))} left in all)"

    def __str__(self) -> str:
        seconds, done = time.monotonic() - self._started, self.done
        if not self._unit:
            return f"{self._what}: {duration(seconds)}"
        of = "" if self._total is None else f" of {self._total:,}"
        text = f"{self._what}: {done:,}{of} {self._unit}"
        if not done:
            return f"{text}, {duration(seconds)}"
        text += f", {_old_rate(done / seconds, self._unit)}"
        if self._total is None:
            return f"{text}, {duration(seconds)}"
        return f"{text}, {duration(max(self._total - done, 0) * seconds / done)} left"


class _Own:
    """Work that reports itself; its text is what it has shown last."""

    def __init__(self) -> None:
        self.shown = ""

    def name(self) -> str:
        return ""

    def __str__(self) -> str:
        return self.shown


def _columns(out: TextIO) -> int:
    try:
        return os.get_terminal_size(out.fileno()).columns or _COLUMNS
    except OSError:
        return _COLUMNS


def _old_rate(rate: float, unit: str) -> str:
    """A rate of three digits; of slow work the seconds of an item."""
    if rate >= 1:
        return f"{rate:,.0f} {unit}/s" if rate >= 100 else f"{rate:.3g} {unit}/s"
    return f"{1 / rate:.3g} s each"
