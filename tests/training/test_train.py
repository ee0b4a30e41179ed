"""The loop: resume, signals, bad folders, non-finite losses, several seeds."""

import fcntl
import json
import os
import signal
import subprocess
import sys
import threading

import jax
import numpy as np
import pytest

from mvcl import _files, evaluation, training
from mvcl.studies import changed
from mvcl.training import _folder, _session, _train


def test_run_writes_its_files(whole, tiny, rows):
    workdir, table = whole
    assert list(table) == ["trained encoder", "untrained encoder", "raw input"]
    log = [row for row in rows(workdir) if "loss" in row]
    assert [row["step"] for row in log] == [2, 4, 6]
    assert [row["step"] for row in rows(workdir) if "score" in row] == [2, 4, 6]
    assert not (workdir / "evaluation.unfinished.json").exists()
    assert all(row["loss"] > 0 and row["chance"] > 0 and row["effective_rank"] > 1 for row in log)
    assert training.to_json(training.load(workdir)) == training.to_json(tiny)
    with np.load(workdir / "views.npz", allow_pickle=False) as views:
        assert (views["views"].shape, views["views"].dtype) == ((8, 3, 8, 8, 1), np.uint8)
    with np.load(workdir / "embeddings.npz", allow_pickle=False) as embeddings:
        assert embeddings["features"].shape == (44, 8)
    assert list((workdir / "tensorboard").iterdir())


def test_finished_run_is_not_repeated(whole, tiny):
    workdir, table = whole
    before = (workdir / "evaluation.json").stat().st_mtime_ns
    assert training.train(tiny, workdir) == table
    assert (workdir / "evaluation.json").stat().st_mtime_ns == before


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_resumes_bit_identically_after_a_signal(whole, tiny, tmp_path, monkeypatch, number, rows):
    workdir = tmp_path / "run"

    def in_the_third_step(session):
        if session.step == 2:
            signal.raise_signal(number)

    monkeypatch.setattr(_session.Session, "refresh", in_the_third_step)
    with pytest.raises(training.Interrupted, match="saved at step 3 of 6") as stopped:
        training.train(tiny, workdir)
    assert stopped.value.signal == number
    monkeypatch.undo()
    _files.append(workdir / "metrics.jsonl", json.dumps({"step": 4, "loss": 0.0}) + "\n")
    # the evaluation may differ when a run resumes
    training.train(changed(tiny, {"evaluation.labels_per_class": (), "evaluation.baselines": False}), workdir)
    states = [training.open_run(folder)[1] for folder in (workdir, whole[0])]
    jax.tree.map(np.testing.assert_array_equal, *(jax.device_get(state["params"]) for state in states))
    for value in ("loss", "score"):
        assert [row["step"] for row in rows(workdir) if value in row] == [2, 4, 6]


def test_raises_on_another_config_in_the_folder(whole, tiny, tmp_path):
    workdir, _ = whole
    with pytest.raises(ValueError, match=r"another config: objective.temperature was 0.5 and is 0.7"):
        training.train(changed(tiny, {"objective.temperature": 0.7}), workdir)
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(ValueError, match=r"has files \(thesis.txt\) but no run"):
        training.train(tiny, tmp_path)
    assert (tmp_path / "thesis.txt").read_text() == "mine"


def test_a_folder_belongs_to_its_data_and_to_a_run_that_took_a_step(tiny, tmp_path):
    first, other = tiny.data.open(), changed(tiny, {"data.seed": 1}).data.open()
    assert first["train"].digest() == tiny.data.open()["train"].digest() != other["train"].digest()
    _folder.claim(tmp_path, tiny, first)
    wider = changed(tiny, {"head.out": 9})
    _folder.claim(tmp_path, wider, other)  # nothing was logged or saved
    assert training.load(tmp_path).head == wider.head
    _files.append(tmp_path / "metrics.jsonl", json.dumps({"step": 2, "loss": 0.0}) + "\n")
    message = r"was trained on other data: split train differs .* remove .*data\.json"
    with pytest.raises(ValueError, match=message):
        _folder.claim(tmp_path, wider, first)


def lock_of(folder):
    """The lock of a folder, held by a file of its own, as by another process."""
    file = open(folder / ".lock", "w")
    fcntl.flock(file, fcntl.LOCK_EX)
    return file


def test_a_lock_held_for_a_moment_is_waited_for_and_one_that_stays_shortly(tiny, tmp_path, monkeypatch):
    other = lock_of(tmp_path)
    ends = threading.Timer(0.05, other.close)
    ends.start()
    with _folder.locked(tmp_path):  # raises if it did not wait
        assert other.closed
    ends.join()
    waits = []
    monkeypatch.setattr(_folder.time, "sleep", waits.append)
    with lock_of(tmp_path), pytest.raises(training.Locked, match="another run is using"):
        training.train(tiny, tmp_path)
    assert 0 < sum(waits) < 1


def test_a_non_finite_loss_ends_the_run(tiny, tmp_path):
    far = changed(tiny, {"optimizer": training.Sgd(learning_rate=1e38)})
    with pytest.raises(training.Diverged, match=r"the loss is (nan|inf) at step 2; there is no checkpoint"):
        training.train(far, tmp_path)
    assert not list(tmp_path.glob("checkpoints/*/state"))


def test_opens_and_embeds_a_run(whole, tmp_path):
    run, state = training.open_run(whole[0], "6")
    shape, _ = training.embed(run, state, "train", tmp_path / "z.npz")
    assert shape == (88, 8)
    with np.load(tmp_path / "z.npz", allow_pickle=False) as z, np.load(whole[0] / "embeddings.npz") as test:
        assert z["features"].shape == shape
        np.testing.assert_array_equal(z["labels"], run.splits["train"].labels)
        again, _ = training.encode(run, state, ("test",))
        np.testing.assert_allclose(test["features"], again["test"], rtol=1e-5, atol=1e-6)
    with pytest.raises(ValueError, match="--split must be one of 'train', 'test', got 'val'"):
        training.embed(run, state, "val", tmp_path / "y.npz")
    with pytest.raises(ValueError, match="latest, best or one of the steps 4, 6; got '5'"):
        training.open_run(whole[0], "5")
    with pytest.raises(ValueError, match="not a run folder"):
        training.open_run(tmp_path)


def test_averages_the_tables_of_consecutive_seeds(monkeypatch, tmp_path):
    values, seen = {4: (0.25, None), 5: (0.75, 0.5)}, []

    def train(config, folder, *, page):
        seen.append((config.train.seed, folder))
        results = [[evaluation.Result("MAE", value, 0.1, "how")] for value in values[config.train.seed]]
        return dict(zip(("trained encoder", "raw input"), results))

    monkeypatch.setattr(_train, "train", train)
    config = training.Config(train=training.Train(seed=4))
    rows = training.train_seeds(config, tmp_path, 2)
    assert seen == [(4, tmp_path / "seed4"), (5, tmp_path / "seed5")]
    [mean], [raw] = rows["trained encoder"], rows["raw input"]
    assert (mean.name, mean.value) == ("MAE", 0.5)
    np.testing.assert_allclose(mean.deviation, np.std([0.25, 0.75], ddof=1))
    assert mean.protocol == "how, mean and standard deviation of 2 seeds"
    assert raw.value is None  # one of the runs did not measure it
    with pytest.raises(ValueError, match="seeds must be a whole number >= 1, got 0"):
        training.train_seeds(config, tmp_path, 0)


COMPILE = """
import jax
from mvcl import training
training.compilation_cache()
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
jax.jit(lambda x: x + 1)(1.0)
"""


@pytest.mark.parametrize(("devices", "kept"), [(1, True), (2, False)])
def test_compilation_cache_is_off_for_several_cpu_devices(tmp_path, devices, kept):
    env = os.environ | {"MVCL_CACHE": str(tmp_path / "cache"), "JAX_NUM_CPU_DEVICES": str(devices)}
    subprocess.run([sys.executable, "-c", COMPILE], env=env, check=True)
    assert bool(list((tmp_path / "cache").glob("*"))) == kept
