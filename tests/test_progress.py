import io
import os
import pty
import re
import threading
import time
from contextlib import contextmanager

import pytest

from mvcl import _progress
from mvcl._progress import Progress, duration, untracked, write_line


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def quick(monkeypatch):
    """Lines after hundredths of a second."""
    for name in ("_UPDATE", "_FIRST", "_EVERY"):
        monkeypatch.setattr(_progress, name, 0.01)


@pytest.fixture
def still(monkeypatch):
    """No thread draws."""
    monkeypatch.setattr(_progress, "_UPDATE", 3600.0)


def until(holds):
    """Wait until something is printed, however slow the machine is."""
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end, "nothing was printed"
        time.sleep(0.005)


def slow(items, out):
    """The items; each takes until two more lines are printed."""
    for item in items:
        before = drawn(out)
        until(lambda before=before: drawn(out) > before + 1)
        yield item


def drawn(out):
    return out.getvalue().count("\r" if out.isatty() else "\n")


def reporters():
    return [t for t in threading.enumerate() if "_report" in t.name]


def test_a_file_gets_lines_with_done_rate_and_time_left(quick):
    out = io.StringIO()
    assert list(Progress(out)(slow("abcd", out), "reading x", 4, "letters")) == list("abcd")
    lines = out.getvalue().splitlines()
    assert re.fullmatch(r"reading x: 0 of 4 letters, \d+ s", lines[0])
    assert re.fullmatch(r"reading x: 3 of 4 letters, .* (letters/s|s each), \d+ s left", lines[-1])
    assert all(line.startswith("reading x: ") for line in lines)
    assert "\r" not in out.getvalue()


def test_a_terminal_gets_one_line_that_is_cleared(quick):
    out = Terminal()
    assert list(Progress(out)(slow("abc", out), "reading", 3, "letters")) == list("abc")
    shown = out.getvalue().split("\r\033[K")
    assert "\n" not in out.getvalue()
    assert shown[1].startswith("reading: 0 of 3 letters, ")
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
        until(out.getvalue)
    assert out.getvalue().splitlines()[0] == "compiling the step: 0 s"


def test_an_unknown_total_has_no_time_left(quick):
    out = io.StringIO()
    list(Progress(out)(slow("abc", out), "reading", unit="letters"))
    assert re.fullmatch(r"reading: 2 letters, .* (letters/s|s each), \d+ s", out.getvalue().splitlines()[-1])


def test_errors_pass_and_end_the_report(quick):
    @contextmanager
    def failing():
        with Progress(out).during("work"):
            until(out.getvalue)
            yield
            raise KeyError

    out = Terminal()
    with pytest.raises(KeyError), failing():
        pass
    assert out.getvalue().endswith("\r\033[K")
    until(lambda: not reporters())


def test_silent_progress_and_untracked_yield_the_items(quick):
    out = io.StringIO()
    silent = Progress(out, silent=True)
    with silent.showing(), silent.during("work"):
        assert list(silent("ab", "reading")) == ["a", "b"]
        silent.show("a row")
        silent.line("a line")
    assert out.getvalue() == ""
    assert list(untracked("ab", "reading")) == ["a", "b"]


# Work within work


def test_only_the_innermost_work_is_reported_behind_the_names_around_it(quick):
    out = io.StringIO()
    progress = Progress(out)
    for _ in progress("ab", "seed", 2, "seeds"):
        with progress.during("trained encoder: linear"):
            list(progress(slow("xy", out), "fits by penalty", 2, "fits"))
    lines = out.getvalue().splitlines()
    places = [re.fullmatch(r"seed ([12]) of 2(.*): trained encoder: linear: fits by (.*)", x) for x in lines]
    assert all(places)
    assert {place[1] for place in places} == {"1", "2"}
    assert {place[2] for place in places if place[1] == "1"} == {""}
    assert all(re.fullmatch(r" \(\d+ s left in all\)", place[2]) for place in places if place[1] == "2")
    assert places[-1][3].startswith("penalty: 1 of 2 fits, ")


def test_a_name_is_not_repeated(quick):
    out = io.StringIO()
    progress = Progress(out)
    with progress.during("raw input: 10 labels/class"):
        list(progress(slow("x", out), "10 labels/class", 5, "draws"))
    assert out.getvalue().splitlines()[-1].startswith("raw input: 10 labels/class: 0 of 5 draws, ")


def test_the_work_around_is_reported_again_after_the_inner(quick):
    out = Terminal()
    progress = Progress(out)
    with progress.during("opening"):
        with progress.during("reading"):
            until(lambda: "opening: reading: 0 s" in out.getvalue())
        before = len(out.getvalue())
        until(lambda: "opening: 0 s" in out.getvalue()[before:])
        assert "reading" not in out.getvalue()[before:].split("\r\033[K", 2)[-1]
    assert out.getvalue().endswith("\r\033[K")


def test_an_abandoned_loop_ends_with_the_work_around_it(quick):
    out = Terminal()
    progress = Progress(out)
    with progress.during("encoding"):
        left_open = progress("abc", "batches")
        next(left_open)
        until(out.getvalue)
    assert out.getvalue().endswith("\r\033[K")
    until(lambda: not reporters())
    left_open.close()
    assert out.getvalue().endswith("\r\033[K")


def test_a_narrow_terminal_gets_the_innermost_names(quick, monkeypatch):
    monkeypatch.setattr(_progress, "_columns", lambda out: 40)
    out = Terminal()
    progress = Progress(out)
    with progress.during("an outer name of many words"), progress.during("an inner name"):
        until(lambda: "an inner name: 0 s" in out.getvalue())
    assert max(len(text) for text in out.getvalue().split("\r\033[K")) < 40
    assert all("words" not in text for text in out.getvalue().split("\r\033[K") if "inner" in text)
    with progress.during("a name that is as long as the terminal is wide"):
        until(lambda: "a name" in out.getvalue())
    assert max(len(text) for text in out.getvalue().split("\r\033[K")) == 39


# Lines of others


def test_a_log_within_work_has_the_line_and_the_name(still):
    out = Terminal()
    progress = Progress(out)
    for seed in progress((1, 2), "seed", 2, "seeds"):
        with progress.showing():
            progress.show("step 10")
            progress.line("warning")
            progress.show(f"step {seed}0")
    assert [text for text in out.getvalue().split("\r\033[K") if text][:3] == [
        "seed 1 of 2: step 10",
        "warning\n",
        "seed 1 of 2: step 10\n",
    ]
    assert re.search(r"seed 2 of 2 \(\d+ s left in all\): step 20\n", out.getvalue())


def test_a_log_is_drawn_again_after_work_within(quick):
    out = Terminal()
    progress = Progress(out)
    with progress.showing():
        progress.show("step 10")
        with progress.during("saving"):
            until(lambda: "saving: 0 s" in out.getvalue())
        assert out.getvalue().endswith("\r\033[Kstep 10")
        until(lambda: not reporters())
    assert out.getvalue().endswith("step 10\n")


def test_a_log_in_a_file_has_each_line_once(quick):
    out = io.StringIO()
    progress = Progress(out)
    for _ in progress("a", "seed", 1, "seeds"):
        with progress.showing():
            progress.show("step 10")
            time.sleep(0.1)  # the thread around it would have printed ten lines
            progress.line("warning")
    assert out.getvalue().splitlines()[:2] == ["seed 1 of 1: step 10", "warning"]


def test_a_line_takes_the_place_of_the_progress_line():
    for out, expected in ((Terminal(), "\r\033[Ktext\n"), (io.StringIO(), "text\n")):
        write_line("text", out)
        assert out.getvalue() == expected


def test_a_closed_output_ends_the_report_without_an_error(quick):
    out = Terminal()
    with Progress(out).during("work"):
        until(out.getvalue)
        out.close()
        until(lambda: not reporters())


def test_on_a_pseudo_terminal(quick):
    """What a person sees in the end: the whole lines, and nothing of the line that was updated."""
    master, slave = pty.openpty()
    received = bytearray()

    def receive():
        try:
            while chunk := os.read(master, 4096):
                received.extend(chunk)
        except OSError:  # the other end is closed
            pass

    reader = threading.Thread(target=receive)
    reader.start()
    with open(slave, "w") as out:
        progress = Progress(out)
        with progress.during("trained encoder: linear"):
            for _ in progress(range(2), "fits", 2, "fits"):
                until(lambda: b"trained encoder: linear: fits: " in received)
            progress.line("a line")
            until(lambda: received.rpartition(b"a line")[2].count(b"linear") > 1)
        with progress.showing():
            progress.show("step 10")
            progress.show("step 20")
    reader.join()
    os.close(master)
    seen = [line.rpartition(b"\r\x1b[K")[2] for line in bytes(received).split(b"\r\n")]
    assert seen == [b"a line", b"step 20", b""]


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


def test_the_time_left_around_other_work_is_by_its_longest_item():
    """Items that were finished in an earlier call take no time."""
    work = _progress._Work("seed", 5, "seeds")
    work.next()
    work._item_started -= 100
    work.next()
    work._item_started -= 20
    assert work.name() == "seed 3 of 5 (4m40s left in all)"
