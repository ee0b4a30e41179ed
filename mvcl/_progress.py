"""Progress of long work: what is being done, how much of it, the rate and the time left.

On a terminal rich draws a line for each work that goes on; in a file a line is written now and then.
"""

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, TypeVar

_Item = TypeVar("_Item")
# Seconds before the first line in a file, and between lines.
_FIRST, _EVERY = 10.0, 30.0
# What is shown: rich's Progress while work goes on at a terminal, the names of the work that goes on (the outermost
# first), the time of the next line in a file, and a function to call before each item.
_state: Any = SimpleNamespace(silent=False, bars=None, names=[], due=0.0, check=None)


def track(
    items: Iterable[_Item], what: str, total: int | None = None, unit: str = "batches"
) -> Iterator[_Item]:
    """The items, one after the other; reports how many of `total`, if it is known, are done.

    `what` is the work, for a message ("encoding train"), `unit` an item in the plural.
    """
    started = time.monotonic()
    with during(what, total, unit) as task:
        for done, item in enumerate(items, 1):
            if _state.check is not None:
                _state.check()
            yield item
            passed = time.monotonic() - started
            rate = done / max(passed, 1e-9)
            a_second = f"{rate:,.0f}/s" if rate >= 100 else f"{rate:.3g}/s"
            speed = f" {unit}, " + (a_second if rate >= 1 else f"{1 / rate:.3g} s each")
            if task is not None:
                _state.bars.update(task, completed=done, rate=speed)
            elif time.monotonic() >= _state.due:
                of = "" if total is None else f" of {total:,}"
                left = "" if total is None else f", {duration(max(total - done, 0) * passed / done)} left"
                line(f"{': '.join(_state.names)}: {done:,}{of}{speed}{left}")


@contextmanager
def during(what: str, total: int | None = None, unit: str = "") -> Iterator[int | None]:
    """Context of work, such as compiling; the value is the number of its line on a terminal. In a file, work of many
    seconds that wrote nothing has a line at its end."""
    if _state.check is not None:
        _state.check()
    outermost, started = not _state.names, time.monotonic()
    if outermost:
        _state.due = started + _FIRST
        if sys.stdout.isatty() and not _state.silent:
            from rich import console, progress  # a tenth of a second: only at a terminal

            _state.bars = progress.Progress(
                progress.TextColumn("{task.description}", markup=False),
                progress.BarColumn(bar_width=20),
                progress.TextColumn("{task.completed:,.0f} of {task.total}{task.fields[rate]}"),
                progress.TimeElapsedColumn(),
                progress.TimeRemainingColumn(),
                # The terminal of now: where a study redirects what a run prints, the bars stay there.
                transient=True,
                console=console.Console(file=sys.stdout),
            )
            _state.bars.start()
    _state.names.append(what)
    bars, due = _state.bars, _state.due
    task = None if bars is None else bars.add_task(what, total=total, rate=f" {unit}" if unit else "")
    try:
        yield task
        passed = time.monotonic() - started
        if task is None and passed > _FIRST and _state.due == due:
            line(f"{': '.join(_state.names)}: {duration(passed)}")
    finally:
        del _state.names[len(_state.names) - 1 - _state.names[::-1].index(what)]
        if task is not None:
            bars.remove_task(task)
        if outermost and bars is not None:
            bars.stop()
            _state.bars = None


def show(text: str) -> None:
    """Report the innermost work: on a terminal the text of its line, in a file a line of its own."""
    if _state.bars is not None:
        _state.bars.update(_state.bars.task_ids[-1], description=text)
    else:
        line(text)


def line(text: str) -> None:
    """Print a line, on a terminal above the work that is shown; nothing where `silence` was called."""
    if not _state.silent:
        print(text, flush=True)
        _state.due = time.monotonic() + _EVERY


def silence() -> None:
    """Report nothing in this process: another one of the run does."""
    _state.silent = True


@contextmanager
def checked(check: Callable[[], None]) -> Iterator[None]:
    """Context in which `check` is called before each item of `track` and at the start of each `during`."""
    before, _state.check = _state.check, check
    try:
        yield
    finally:
        _state.check = before


def duration(seconds: float) -> str:
    """A duration in words: 12 s, 3m05s, 2h07m, 3 days 2h07m."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days or hours:
        return f"{days} days " * (days > 0) + f"{hours}h{minutes:02d}m"
    return f"{minutes}m{rest:02d}s" if minutes else f"{rest} s"
