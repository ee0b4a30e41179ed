"""Files are written atomically."""

import fcntl
import os

import pytest

from mvcl import _files
from mvcl.report import _read


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
