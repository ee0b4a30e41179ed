import io
import re
import time

import pytest

from mvcl import _progress
from mvcl._progress import Progress, duration, untracked


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def quick(monkeypatch):
    """Lines after hundredths of a second."""
    for name in ("_UPDATE", "_FIRST", "_EVERY"):
        monkeypatch.setattr(_progress, name, 0.02)


def slow(items):
    for item in items:
        time.sleep(0.05)
        yield item


def test_a_file_gets_lines_with_done_rate_and_time_left(quick):
    out = io.StringIO()
    assert list(Progress(out)(slow("abcd"), "reading x", 4, "letters")) == list("abcd")
    lines = out.getvalue().splitlines()
    assert any(
        re.fullmatch(r"reading x: [1-4] of 4 letters, .* letters/s, \d+ s left", line) for line in lines
    )
    assert all(line.startswith("reading x: ") for line in lines)
    assert "\r" not in out.getvalue()


def test_a_terminal_gets_one_line_that_is_cleared(quick):
    out = Terminal()
    assert list(Progress(out)(slow("abc"), "reading", 3, "letters")) == list("abc")
    shown = out.getvalue().split("\r\033[K")
    assert "\n" not in out.getvalue()
    assert len(shown) > 3
    assert shown[-1] == ""


def test_a_file_gets_nothing_of_short_work():
    out = io.StringIO()
    assert list(Progress(out)(range(1000), "counting")) == list(range(1000))
    with Progress(out).during("compiling"):
        pass
    assert out.getvalue() == ""


def test_work_without_items_shows_how_long_it_has_taken(quick):
    out = io.StringIO()
    with Progress(out).during("compiling the step"):
        time.sleep(0.1)
    assert out.getvalue().splitlines()[0] == "compiling the step: 0 s"


def test_an_unknown_total_has_no_time_left(quick):
    out = io.StringIO()
    list(Progress(out)(slow("abc"), "reading", unit="letters"))
    assert re.fullmatch(r"reading: [1-3] letters, .* letters/s, \d+ s", out.getvalue().splitlines()[-1])


def test_errors_pass_and_end_the_report(quick):
    out = Terminal()
    with pytest.raises(KeyError), Progress(out).during("work"):
        time.sleep(0.05)
        raise KeyError
    length = len(out.getvalue())
    time.sleep(0.1)
    assert len(out.getvalue()) == length


def test_silent_progress_and_untracked_yield_the_items(quick):
    out = io.StringIO()
    assert list(Progress(out, silent=True)(slow("ab"), "reading")) == ["a", "b"]
    assert out.getvalue() == ""
    assert list(untracked("ab", "reading")) == ["a", "b"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0 s"), (59.6, "1m00s"), (185, "3m05s"), (7620, "2h07m"), (3 * 86400 + 60, "3 days 0h01m")],
)
def test_durations(seconds, text):
    assert duration(seconds) == text


def test_slow_items_have_seconds_instead_of_a_rate():
    work = _progress._Work("fitting", 10, "fits")
    work._started -= 40
    work.done = 2
    assert str(work) == "fitting: 2 of 10 fits, 20 s each, 2m40s left"
