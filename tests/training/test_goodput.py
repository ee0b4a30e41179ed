"""The parts of a run's wall time, over restarts."""

import dataclasses
import json
import shutil
import threading
import time

import jax
import jax.numpy as jnp
import pytest

from mvcl import training
from mvcl.training import _folder, _goodput, _watch


class Times:
    """The clocks, set by the tests."""

    def __init__(self, monkeypatch):
        self.now = 100.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now)
        monkeypatch.setattr(time, "time", lambda: self.now)

    def __call__(self, seconds):
        self.now += seconds


@pytest.fixture
def wait(monkeypatch):
    return Times(monkeypatch)


def only(**seconds):
    return dict.fromkeys(_goodput.PARTS, 0.0) | seconds


def fail(goodput, wait):
    with goodput.during("evaluating"):
        wait(5)
        raise KeyError


def test_the_innermost_part_counts(wait):
    goodput = _goodput.Goodput()
    wait(1)
    with goodput.during("training"):
        wait(10)
        with goodput.during("saving"):
            wait(2)
            with goodput.during("compiling"):
                wait(3)
            wait(4)
        with pytest.raises(KeyError):
            fail(goodput, wait)
        wait(20)
    wait(5)
    assert goodput.seconds() == only(training=30, saving=6, compiling=3, evaluating=5, other=6)
    assert goodput.share() == 0.6
    assert str(goodput) == (
        "goodput 60 %: training 60, compiling 6, data 0, evaluating 10, saving 12, repeated 0, other 12 % of 50 s"
    )


def test_a_line_is_due_every_ten_minutes(wait):
    goodput = _goodput.Goodput()
    assert not goodput.line_is_due()
    wait(601)
    assert goodput.line_is_due()
    assert not goodput.line_is_due()


def session(workdir, wait, start, steps, *, logged=True):
    """A session that trains steps of 10 s and writes a heartbeat after each, until it is killed."""
    goodput = _goodput.Goodput()
    goodput.resume(workdir)
    clock = _watch.Clock()
    heartbeat = _watch.Heartbeat(workdir / "heartbeat.json", 100, clock, goodput)
    wait(2)
    heartbeat.beat(start, "starting", now=True)
    _folder.rewind_log(workdir, start)
    goodput.enter("training")
    for step in range(start + 1, start + steps + 1):
        wait(10)
        heartbeat.beat(step)
        if logged:
            _folder.append_line(workdir / "metrics.jsonl", {"step": step, "loss": 1.0, "time": clock.now()})
    return goodput


def test_steps_after_the_last_checkpoint_are_repeated_once(wait, tmp_path):
    session(tmp_path, wait, 0, 5)  # killed at step 5, saved at 2
    session(tmp_path, wait, 2, 2)  # killed at step 4, which was 5 before
    third = session(tmp_path, wait, 4, 3)
    assert third.seconds() == only(training=50 + 20, repeated=20 + 10, other=6)
    assert str(third).endswith("of 1m46s in 3 sessions")


def test_a_killed_session_counts_to_its_last_log_row(wait, tmp_path):
    first = session(tmp_path, wait, 0, 3)
    wait(4)  # no heartbeat in that time
    _folder.append_line(tmp_path / "metrics.jsonl", {"step": 4, "loss": 1.0, "time": wait.now})
    assert sum(first.seconds().values()) == 36
    wait(1000)  # until it is started again
    second = session(tmp_path, wait, 3, 2)
    assert second.seconds() == only(training=34 + 10, repeated=10, other=4)


@pytest.mark.parametrize("content", [None, "", '{"step": 3', "[]", '{"step": 3, "unix_time": 1.0}'])
def test_without_an_earlier_record_the_log_has_the_steps(wait, tmp_path, content):
    if content is not None:
        (tmp_path / "heartbeat.json").write_text(content)
    _folder.append_line(tmp_path / "metrics.jsonl", {"step": 3, "loss": 1.0, "time": 1.0})
    goodput = session(tmp_path, wait, 1, 4, logged=False)
    assert goodput.seconds() == only(repeated=20, training=20, other=2)


def test_compilations_of_this_thread_count_where_they_happen():
    """Also those within others, such as of a constant while a function is traced."""

    def slow(x):
        time.sleep(0.2)
        return x + jax.jit(lambda y: y * 2)(jnp.ones(7)).sum()

    with _goodput.measured() as goodput:
        with goodput.during("evaluating"):
            jax.jit(slow).lower(jnp.ones(3)).compile()
            time.sleep(0.1)
        other = threading.Thread(target=lambda: jax.jit(slow)(jnp.ones(4)))
        other.start()
        other.join()
        with pytest.raises(TypeError):  # ends the part too
            jax.jit(lambda x: x + "text")(1.0)
        seconds = goodput.seconds()
    assert seconds["compiling"] > 0.2
    assert seconds["evaluating"] > 0.1
    assert seconds["other"] > 0.2  # the other thread's
    before = goodput.record()["seconds"]["compiling"]
    jax.jit(lambda x: x - 3)(jnp.ones(5))
    assert goodput.record()["seconds"]["compiling"] == before


def read(workdir):
    return json.loads((workdir / "heartbeat.json").read_text())


def test_parts_of_a_small_run_and_of_its_restart(tiny, tmp_path, capfd):
    config = dataclasses.replace(tiny, train=dataclasses.replace(tiny.train, evaluate_every=0.1, log_every=1))
    begun = time.monotonic()
    training.train(config, tmp_path / "run")
    whole = time.monotonic() - begun
    beat = read(tmp_path / "run")
    assert beat["doing"] == "done"
    seconds = beat["goodput"]["seconds"]
    assert 0.5 * whole < sum(seconds.values()) <= whole
    assert seconds["repeated"] == 0
    assert min(seconds[part] for part in _goodput.PARTS if part != "repeated") > 0
    printed = capfd.readouterr().out
    assert printed.count("goodput") == 1
    rows = [row for row in _folder.read_log(tmp_path / "run") if "loss" in row]
    assert [0 < row["goodput"] < 1 for row in rows] == [True] * 6

    # killed after step 6, of which nothing was saved
    shutil.rmtree(tmp_path / "run" / "checkpoints" / "6")
    (tmp_path / "run" / "evaluation.json").unlink()
    training.train(config, tmp_path / "run")
    again = read(tmp_path / "run")["goodput"]
    assert again["sessions"] == 2
    assert again["seconds"]["repeated"] > 0
    assert again["seconds"]["evaluating"] > seconds["evaluating"]
    assert "in 2 sessions" in capfd.readouterr().out

    training.train(config, tmp_path / "run")  # is finished
    assert read(tmp_path / "run")["doing"] == "done"
    assert read(tmp_path / "run")["goodput"]["seconds"]["evaluating"] == again["seconds"]["evaluating"]
