"""The page that is written while a run trains: when, and that it changes nothing."""

import json
import threading
import time

import jax
import numpy as np
import pytest

from mvcl import training
from mvcl.training import _live


@pytest.fixture
def at_once(monkeypatch):
    """Pages from the first step on, and without waiting for their share of the time."""
    monkeypatch.setattr(_live, "_FIRST", 0.0)
    monkeypatch.setattr(_live, "_SHARE", 1e9)


def until(true, seconds=20.0):
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_pages_are_written_in_a_thread_when_asked_for(at_once, tmp_path):
    threads, lines = [], []

    def write():
        threads.append(threading.current_thread())
        return tmp_path / "report.html"

    page = _live.LivePage(write, lines.append)
    assert threads == []
    for count in (1, 2, 3):
        page.ask()
        until(lambda count=count: len(threads) >= count)
    page.close()
    assert threading.main_thread() not in threads[:-1]
    assert threads[-1] is threading.main_thread()
    assert lines == [f"report: {tmp_path / 'report.html'} (renewed while the run trains)"]


def test_a_page_that_fails_is_logged_once(at_once):
    calls, lines = [], []

    def write():
        calls.append(1)
        raise OSError(
            28, "no space left", f".report.html.{len(calls)}"
        )  # a temporary file, each time another

    page = _live.LivePage(write, lines.append)
    for count in (1, 2):
        page.ask()
        until(lambda count=count: len(calls) >= count)
    page.close()
    assert lines == [
        "warning: the report was not written: OSError: [Errno 28] no space left: '.report.html.1'"
    ]


def test_a_last_page_that_fails_is_logged(at_once, tmp_path):
    calls, lines = [], []

    def write():
        calls.append(1)
        if len(calls) > 1:
            raise OSError(28, "no space left")
        return tmp_path / "report.html"

    page = _live.LivePage(write, lines.append)
    page.ask()
    until(lambda: lines)
    page.close()
    assert len(calls) == 2
    assert lines[1:] == ["warning: the report was not written: OSError: [Errno 28] no space left"]


def test_a_slow_page_is_not_written_after_the_last(at_once):
    begun, written = threading.Event(), []

    def write():
        slow = not begun.is_set()
        begun.set()
        time.sleep(0.3 if slow else 0)
        written.append(threading.current_thread())

    page = _live.LivePage(write, lambda line: None)
    page.ask()
    assert begun.wait(20)
    page.close()
    assert len(written) == 2
    assert written[-1] is threading.main_thread()


def test_a_closed_log_does_not_end_the_pages(at_once):
    calls = []

    def write():
        calls.append(1)

    def log(line):
        raise ValueError("I/O operation on closed file")

    page = _live.LivePage(write, log)
    for count in (1, 2):
        page.ask()
        until(lambda count=count: len(calls) >= count)
    page.close()
    assert len(calls) >= 3


@pytest.mark.parametrize("doing", ["evaluating", "done"])
def test_the_heartbeat_of_a_finished_run_says_so(tmp_path, doing):
    config = training.load("digits:smoke")
    training.train(config, tmp_path)
    file = tmp_path / "heartbeat.json"
    beat = json.loads(file.read_text())
    assert beat["doing"] == "done"
    file.write_text(json.dumps(beat | {"doing": doing}))  # as a kill before the last heartbeat leaves it
    training.train(config, tmp_path)
    assert json.loads(file.read_text()) == beat


def test_a_run_of_seconds_has_no_page():
    pages = []
    page = _live.LivePage(lambda: pages.append(1), pages.append)
    page.ask()
    page.close()
    assert pages == []
    _live.LivePage(None, pages.append).ask()
    assert pages == []


def test_the_numbers_of_a_run_are_the_same_with_its_page(at_once, tmp_path):
    from mvcl import report

    config = training.load("configs/digits.py:smoke")
    seen = {}
    for name in ("with", "without"):
        folder = tmp_path / name

        def write(folder=folder):
            seen[json.loads((folder / "heartbeat.json").read_text())["doing"]] = True
            return report.write_report([folder], folder / "report.html")

        training.train(config, folder, page=write if name == "with" else None)
    assert seen
    rows = [
        [json.loads(line) for line in (tmp_path / name / "metrics.jsonl").read_text().splitlines()]
        for name in ("with", "without")
    ]
    for a, b in zip(*rows, strict=True):
        assert [a.get(key) for key in ("step", "loss", "gradient_norm", "knn")] == [
            b.get(key) for key in ("step", "loss", "gradient_norm", "knn")
        ]
    states = [training.open_run(tmp_path / name)[1]["params"] for name in ("with", "without")]
    jax.tree.map(np.testing.assert_array_equal, *states)
    assert "State" in (tmp_path / "with" / "report.html").read_text()
    assert not (tmp_path / "without" / "report.html").exists()
