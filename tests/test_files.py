"""Files are written atomically."""

import numpy as np
import pytest

from mvcl import _files


def test_an_error_keeps_the_old_file_and_no_temporary_file(tmp_path):
    path = tmp_path / "a.txt"
    _files.write_whole(path, "old")
    with pytest.raises(RuntimeError, match="later"):
        _fails(path)
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt"]
    assert path.read_text() == "old"
    _files.write_whole(path, b"new", sync=False)
    assert path.read_bytes() == b"new"


def _fails(path):
    with _files.replacing(path) as beside:
        beside.write_text("half")
        assert path.read_text() == "old"
        raise RuntimeError("later")


def test_arrays(tmp_path):
    _files.save_arrays(tmp_path / "a.npz", x=np.arange(3), names=np.asarray(("a", "b")))
    with np.load(tmp_path / "a.npz", allow_pickle=False) as found:
        assert found["x"].tolist() == [0, 1, 2]
        assert found["names"].tolist() == ["a", "b"]
