"""Buckets: paths, files, data and checkpoints on a local server of Google Cloud Storage."""

from pathlib import Path
from types import SimpleNamespace

import bucket_server
import jax
import numpy as np
import pytest
from PIL import Image

from mvcl import _buckets, _files, cli, data, training
from mvcl.training import _folder, _session


@pytest.fixture(scope="module")
def server():
    with bucket_server.connected():
        yield


@pytest.fixture
def bucket(server, request, tmp_path, monkeypatch):
    """An empty folder of a bucket."""
    monkeypatch.setenv("MVCL_CACHE", str(tmp_path / "cache"))
    return _buckets.path(f"gs://{bucket_server.BUCKET}/{request.node.name.partition('[')[0]}")


@pytest.mark.parametrize("given", ["s3://host/run", "hdfs:/host/run"])
def test_raises_on_other_schemes(given, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r"paths are local or start with gs://, not with \w+:/"):
        _buckets.path(Path(given))
    assert cli.main(["report", given]) == 2
    assert not list(tmp_path.iterdir())


def test_a_missing_bucket_is_named(server, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r"there is no bucket gs://nowhere; make it"):
        _buckets.path("gs://nowhere/run")
    with pytest.raises(ValueError, match="names no bucket"):
        _buckets.path("gs://")


def test_files_are_whole(bucket):
    _files.write_whole(bucket / "a.txt", "old")
    with pytest.raises(FileNotFoundError), _files.replacing(bucket / "a.txt"):
        pass  # nothing is written
    assert (bucket / "a.txt").read_text() == "old"
    _files.append(bucket / "a.txt", " and new")
    assert (bucket / "a.txt").read_text() == "old and new"
    _files.save_arrays(bucket / "z.npz", a=np.arange(3))
    with (bucket / "z.npz").open("rb") as file, np.load(file) as arrays:
        np.testing.assert_array_equal(arrays["a"], [0, 1, 2])
    assert sorted(path.name for path in bucket.iterdir()) == ["a.txt", "z.npz"]


def test_copies_follow_the_bucket(bucket, capsys):
    _files.write_whole(bucket / "d/a.txt", "one")
    _files.write_whole(bucket / "d/sub/b.txt", "two")
    first = _buckets.local_copy(bucket / "d")
    assert (first / "sub/b.txt").read_text() == "two"
    assert _buckets.local_copy(str(bucket / "d")) == first
    assert capsys.readouterr().out.count("copying") == 1
    _files.write_whole(bucket / "d/a.txt", "six")  # the same size
    assert (_buckets.local_copy(bucket / "d") / "a.txt").read_text() == "six"
    assert _buckets.local_copy(bucket / "d/a.txt").read_text() == "six"
    assert not list(first.parents[1].glob(".unfinished*"))


def test_a_run_begins_in_a_new_folder(bucket):
    bucket.mkdir(parents=True, exist_ok=True)
    config = training.load("digits")
    splits = config.data.open()
    for _ in range(2):  # it begins, and resumes
        _folder.claim(bucket, config, splits)
    (bucket.parent / "other" / "notes.txt").write_text("x")
    with pytest.raises(ValueError, match=r"has files \(notes.txt\) but no run"):
        _folder.claim(bucket.parent / "other", config, splits)


def test_log_is_uploaded_with_a_checkpoint(bucket, rows):
    values = {"loss": 1.0, "effective_rank": 3.0}
    program = SimpleNamespace(steps=10, mesh=jax.make_mesh((1,), ("data",)))
    run = SimpleNamespace(config=training.load("digits"), program=program, outline=None)
    log = _session.Log(bucket, _session.Clock(bucket / "time.json"), run, 0)
    log.row(1, values)
    assert not (bucket / "metrics.jsonl").exists()
    log.upload()
    assert [row["step"] for row in rows(bucket)] == [1]
    log.row(2, values)
    log.close()
    again = _session.Log(bucket, _session.Clock(bucket / "time.json"), run, 2)
    again.row(3, values)
    again.close()
    assert [row["step"] for row in rows(bucket)] == [1, 2, 3]
    assert list((bucket / "tensorboard").iterdir())


def test_data_are_read_from_a_bucket(bucket, rng, tmp_path):
    images, labels = rng.integers(0, 255, (20, 8, 8, 1), np.uint8), np.arange(20) % 2
    _files.save_arrays(bucket / "arrays.npz", images=images, labels=labels)
    assert len(data.Arrays(path=str(bucket / "arrays.npz")).open()["train"]) == 16  # a fifth is held out
    table = rng.normal(size=(20, 3))
    _files.save_arrays(bucket / "tables.npz", X1=table, X2=table[:, 1:], Y=labels)
    assert len(data.Tables(path=str(bucket / "tables.npz")).open()["train"]) == 20
    for part in ("train", "test"):
        (tmp_path / "images" / part / "a").mkdir(parents=True)
        Image.fromarray(images[0, :, :, 0]).save(tmp_path / "images" / part / "a" / "0.png")
    _buckets.upload(tmp_path / "images", bucket / "images")
    assert len(data.Folder(path=str(bucket / "images")).open()["train"]) == 1
    with pytest.raises(ValueError, match=r"data.path must be an .npz file, got"):
        data.Arrays(path=str(bucket / "none.npz")).open()
