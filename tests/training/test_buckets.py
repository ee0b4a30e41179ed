"""Buckets: paths, lock, files, data and checkpoints on local servers of Google Cloud Storage and S3."""

import json
import os
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import bucket_servers
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

from mvcl import _buckets, _extras, _files, cli, data
from mvcl._progress import Progress
from mvcl.training import _lease, _staging
from mvcl.training._checkpoints import Checkpoints
from mvcl.training._log import Log


@pytest.fixture(scope="module", params=("gs", "s3"))
def server(request):
    with bucket_servers.connected(request.param):
        yield request.param


@pytest.fixture
def bucket(server, request, tmp_path, monkeypatch):
    """An empty folder of a bucket."""
    monkeypatch.setenv("MVCL_CACHE", str(tmp_path / "cache"))
    return _buckets.path(f"{server}://{bucket_servers.BUCKET}/{request.node.name.partition('[')[0]}")


# Paths


@pytest.mark.parametrize("given", ["hdfs://host/run", "az://box/run", "http://host/run", "hdfs:/host/run"])
def test_other_schemes_are_refused(given, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r"paths are local or start with gs:// or s3://, not with \w+:/"):
        _buckets.path(Path(given))
    assert cli.main(["report", given]) == 2
    assert not list(tmp_path.iterdir())


def test_local_paths_stay(tmp_path):
    assert _buckets.path(str(tmp_path)) == tmp_path
    assert _buckets.path("a:b/c") == Path("a:b/c")
    assert not _buckets.is_remote("runs/gs")
    assert _buckets.local_copy("nothing/here") == Path("nothing/here")


def test_the_extra_is_named(monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "gcsfs", None)
    _buckets._reach.cache_clear()
    with pytest.raises(_extras.MissingExtra, match=r"^gs://b needs gcsfs: pip install 'mvcl\[bucket\]'$"):
        _buckets.path("gs://b/run")
    assert cli.main(["report", "gs://b/run"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_the_extra_has_what_is_imported():
    extras = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    wanted = {text.split(">")[0] for text in extras["optional-dependencies"]["bucket"]}
    assert wanted == {"etils[epath]", "fsspec", "gcsfs", "google-cloud-storage", "s3fs"}


def test_a_missing_bucket_is_named(server, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=rf"there is no bucket {server}://nowhere; make it"):
        _buckets.path(f"{server}://nowhere/run")
    with pytest.raises(ValueError, match="names no bucket"):
        _buckets.path(f"{server}://")


def test_pathlib_loses_a_slash(server):
    path = _buckets.path(Path(f"{server}://{bucket_servers.BUCKET}/run"))
    assert str(path) == f"{server}://{bucket_servers.BUCKET}/run"
    assert str(_buckets.path(path)) == str(path)


# Files


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
    assert not list(first.parents[2].glob(".unfinished*"))


def test_copies_to_and_from_a_bucket_are_reported(bucket, tmp_path, monkeypatch, tracked):
    monkeypatch.setattr(_buckets, "_AT_ONCE", 2)
    for name in "abc":
        (tmp_path / name).write_text(name)
    _buckets.upload(tmp_path, bucket / "d", tracked)
    _buckets.local_copy(bucket / "d", tracked)
    assert tracked == [
        (f"copying to {bucket / 'd'}", 3, "files", 3),
        ("copying from the bucket", 2, "blocks of 2 files", 2),
    ]


def test_a_copy_that_fails_leaves_nothing(bucket, monkeypatch):
    _files.write_whole(bucket / "a.txt", "one")
    listing = _buckets._listing
    monkeypatch.setattr(
        _buckets, "_listing", lambda place: {n: (p, s + 1, t) for n, (p, s, t) in listing(place).items()}
    )
    with pytest.raises(OSError, match=r"a\.txt has not its 4 bytes"):
        _buckets.local_copy(bucket)
    assert not [path for path in Path(os.environ["MVCL_CACHE"]).rglob("*") if path.is_file()]


# The lock


def lock_of(path, **owner):
    mine = json.loads(_lease._content("other")) | owner
    _buckets.filesystem(path).pipe_file(str(path), json.dumps(mine).encode())


def refused(lock, message):
    with pytest.raises(ValueError, match=message), _lease.held(lock):
        pass


def ended():
    """The number of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_one_run_holds_a_folder(bucket):
    lock = bucket / ".lock"
    with _lease.held(lock):
        refused(lock, r"another run is using .*: process \d+ of .*; wait until it ends")
        assert lock.is_file()
    assert not lock.exists()
    with _lease.held(lock):
        pass


def test_only_one_of_two_creates_the_lock(bucket):
    client = _buckets.filesystem(bucket)
    assert _lease._create(client, bucket / ".lock", "a")
    assert not _lease._create(client, bucket / ".lock", "b")
    assert _lease._read(client, bucket / ".lock")["token"] == "a"


def test_a_dead_process_of_this_machine_loses_the_lock_at_once(bucket):
    lines = []
    lock_of(bucket / ".lock", pid=ended())
    with _lease.held(bucket / ".lock", lines.append):
        assert "taking over the lock of process" in lines[0]


@pytest.mark.parametrize("owner", [{"host": "elsewhere"}, {"boot": "before"}], ids=["host", "same name"])
def test_the_lock_of_a_lost_machine_is_taken_over_after_the_lease(bucket, monkeypatch, owner):
    monkeypatch.setattr(_lease, "LEASE_SECONDS", 0.3)
    monkeypatch.setattr(_lease, "_LOOK_SECONDS", 0.05)
    lines, lock = [], bucket / ".lock"
    lock_of(lock, pid=ended(), **owner)
    started = time.monotonic()
    with _lease.held(lock, lines.append):
        assert time.monotonic() - started > 0.3  # whatever the clock of the lost machine says
    assert "waiting for a sign of it" in lines[0]
    assert "taking over the lock" in lines[1]


def test_a_machine_that_renews_its_lock_keeps_it(bucket, monkeypatch):
    lock = bucket / ".lock"
    monkeypatch.setattr(_lease, "_LOOK_SECONDS", 0.05)
    monkeypatch.setattr(_lease.time, "sleep", lambda _: lock_of(lock, host="elsewhere"))
    lock_of(lock, host="elsewhere", time=0.0)
    refused(lock, r"another run is using .*: process \d+ of elsewhere")


def test_the_lock_is_renewed_and_its_loss_stops_the_run(bucket, monkeypatch):
    monkeypatch.setattr(_lease, "_RENEW_SECONDS", 0.05)
    killed, lock, lines = [], bucket / ".lock", []
    monkeypatch.setattr(_lease.os, "kill", lambda *arguments: killed.append(arguments))
    client = _buckets.filesystem(lock)
    with _lease.held(lock, lines.append):
        first = _lease._read(client, lock)["time"]
        while _lease._read(client, lock)["time"] == first:
            time.sleep(0.01)
        while not killed:  # a renewal that was under way may replace it once
            lock_of(lock)
            time.sleep(0.05)
    assert killed == [(os.getpid(), _lease.signal.SIGTERM)]
    assert "another run has taken the lock" in lines[0]
    assert _lease._read(client, lock)["token"] == "other"  # not deleted: it belongs to the other


# Logs and checkpoints


def test_log_is_uploaded_with_a_checkpoint(bucket):
    values = {"loss": 1.0, "effective_rank": 3.0}
    log = Log(bucket, steps=10, first_step=0, views_per_step=2, progress=Progress(silent=True))
    log.row(1, values)
    assert not (bucket / "metrics.jsonl").exists()
    log.upload()
    assert [json.loads(line)["step"] for line in (bucket / "metrics.jsonl").read_text().splitlines()] == [1]
    log.row(2, values)
    log.close()
    again = Log(bucket, steps=10, first_step=2, views_per_step=2, progress=Progress(silent=True))
    again.row(3, values)
    again.close()
    steps = [json.loads(line)["step"] for line in (bucket / "metrics.jsonl").read_text().splitlines()]
    assert steps == [1, 2, 3]
    assert list((bucket / "tensorboard").iterdir())


def test_checkpoints(bucket):
    state = {"w": jnp.arange(1000.0), "b": jnp.ones(3)}
    like = jax.eval_shape(lambda: state)
    folder = bucket / "checkpoints"
    checkpoints = Checkpoints(folder, keep=2)
    for step in (10, 20, 30):
        checkpoints.save(step, jax.tree.map(lambda x: x + step, state), {})  # noqa: B023
    checkpoints.close()
    assert steps_in(folder) == [20, 30]
    client = _buckets.filesystem(folder)
    for name in client.find(f"{folder}/30/state"):
        if "/d/" in name:
            client.pipe_file(name, b"damaged")
    lines = []
    checkpoints = Checkpoints(folder, keep=2)
    restored, record = checkpoints.restore(like, log=lines.append)
    assert record["step"] == 20
    np.testing.assert_array_equal(restored["w"], state["w"] + 20)
    assert "step 30 is damaged" in lines[0]
    assert [path.name.partition("-")[0] for path in (folder / "damaged").iterdir()] == ["30"]
    checkpoints.save(30, state, {})
    checkpoints.close()
    assert steps_in(folder) == [20, 30]
    # a checkpoint without its last object is not complete
    last = "commit_success.txt" if _buckets.scheme(folder) == "gs" else _staging.COMPLETE
    (folder / "30" / last).unlink()
    checkpoints = Checkpoints(folder, keep=2)
    assert checkpoints.steps() == [20]
    checkpoints.close()
    while _buckets.scheme(folder) == "gs" and (folder / "30").is_dir():  # orbax deletes it in the background
        time.sleep(0.05)


def steps_in(folder):
    return sorted(int(path.name) for path in folder.iterdir() if path.name.isdigit())


# Data


def test_data_are_read_from_a_bucket(bucket, rng, tmp_path):
    images = rng.integers(0, 255, (20, 8, 8, 1), np.uint8)
    labels = np.arange(20) % 2
    _files.save_arrays(bucket / "arrays.npz", images=images, labels=labels)
    assert len(data.Arrays(path=str(bucket / "arrays.npz")).open()["train"]) == 16
    _files.save_arrays(
        bucket / "tables.npz", X1=rng.normal(size=(20, 3)), X2=rng.normal(size=(20, 4)), Y=labels
    )
    assert len(data.Tables(path=str(bucket / "tables.npz")).open()["train"]) == 20
    for name in ("a", "b"):
        (tmp_path / "images" / name).mkdir(parents=True)
        for i in range(5):
            Image.fromarray(images[i, :, :, 0]).save(tmp_path / "images" / name / f"{i}.png")
    _buckets.upload(tmp_path / "images", bucket / "images")
    assert len(data.Folder(path=str(bucket / "images")).open()["train"]) == 8
    with pytest.raises(ValueError, match=r"data.path must be an .npz file, got"):
        data.Arrays(path=str(bucket / "none.npz")).open()


def test_prepared_data_in_a_bucket(bucket, monkeypatch):
    prepared = data.prepare("digits", str(bucket / "sets"))
    assert (prepared / "dataset_info.json").is_file()
    assert str(prepared).startswith(str(bucket / "sets" / "mvcl_digits"))
    monkeypatch.setenv("TFDS_DATA_DIR", str(bucket / "sets"))
    splits = data.Digits().open()
    assert (len(splits["train"]), len(splits["test"])) == (1437, 360)
