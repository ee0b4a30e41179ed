"""Files are written atomically; progress of long work, in a file and on a terminal."""

import contextlib
import fcntl
import io
import os
import sys

import pytest

from mvcl import _files, _progress
from mvcl.report import _read


def test_a_file_has_a_line_now_and_then(monkeypatch, capsys):
    clock = [100.0]
    monkeypatch.setattr(_progress.time, "monotonic", lambda: clock[0])
    for _ in _progress.track(range(100), "encoding train", 100):
        clock[0] += 1
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        "encoding train: 10 of 100 batches, 1/s, 1m30s left",
        "encoding train: 40 of 100 batches, 1/s, 1m00s left",
        "encoding train: 70 of 100 batches, 1/s, 30 s left",
        "encoding train: 100 of 100 batches, 1/s, 0 s left",
    ]


def test_check_ends_work_before_an_item():
    seen = []

    def check():
        if len(seen) == 2:
            raise KeyboardInterrupt

    def collect():
        for item in _progress.track(range(5), "items"):
            seen.append(item)

    with pytest.raises(KeyboardInterrupt), _progress.checked(check):
        collect()
    assert seen == [0, 1]
    with pytest.raises(KeyboardInterrupt), _progress.checked(check), _progress.during("work"):
        seen.append(2)
    assert list(_progress.track(range(2), "items")) == [0, 1]  # no check after the context
    assert seen == [0, 1]


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_terminal_shows_bars_and_lines_above_them_and_redirected_lines_go_to_their_file(monkeypatch):
    terminal, log = Terminal(), io.StringIO()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("TERM", "xterm")
    for i in _progress.track(range(3), "encoding [test]", 3):
        _progress.line(f"line {i}")
        with contextlib.redirect_stdout(log):
            _progress.line("of the cell")
            _progress._state.bars.refresh()
    assert log.getvalue() == "of the cell\n" * 3
    for text in ("encoding [test]", "of 3 batches", "line 0\n", "line 2\n"):
        assert text in terminal.getvalue()
    assert "of the cell" not in terminal.getvalue()
    assert _progress._state.bars is None


def test_an_error_keeps_the_old_file_and_no_temporary_file(tmp_path):
    path = tmp_path / "a.txt"
    _files.write_whole(path, "old")
    with pytest.raises(RuntimeError, match="later"):
        _fails(path)
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt"]
    assert path.read_text() == "old"
    _files.write_whole(path, b"new")
    assert path.read_bytes() == b"new"


def _fails(path):
    with _files.replacing(path) as temporary:
        temporary.write_text("half")
        assert path.read_text() == "old"
        raise RuntimeError("later")


def test_a_lock_is_seen_and_not_kept(tmp_path, monkeypatch):
    path = tmp_path / ".lock"
    assert not _read.is_locked(path)
    path.write_text("")
    assert not _read.is_locked(path)
    with open(path) as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert _read.is_locked(path)
    assert not _read.is_locked(path)
    monkeypatch.setattr(_read.fcntl, "flock", lambda file, how: os.stat("/nowhere"))  # has no locks: OSError
    assert not _read.is_locked(path)
