"""What is due after which step, and how a run is stopped; no program is compiled."""

import signal
from contextlib import contextmanager
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from jax.sharding import Mesh

from mvcl import training
from mvcl.training import _session, _train
from mvcl.training._processes import Interrupted, Stop, handling


def session_of(tmp_path, *, scores=(), scored=True, **train):
    """A session of 20 steps, 10 an epoch, saved every 8 steps, in a folder without files."""
    config = SimpleNamespace(
        train=SimpleNamespace(**{"evaluate_every": 0.0, "geometry_every": 0.0, "log_every": 3} | train),
        checkpoint=SimpleNamespace(every_steps=8, keep=2),
        evaluation=SimpleNamespace(scored=scored),
    )
    run = SimpleNamespace(config=config, program=SimpleNamespace(steps=20, steps_per_epoch=10))
    session = object.__new__(_session.Session)
    session.run, session.workdir, session.scores = run, tmp_path, dict.fromkeys(scores, 0.5)
    session.checkpoints = SimpleNamespace(close=lambda: session.closed.append(True))
    session.closed, session.log, session._page = [], None, None
    return session


OFTEN = {"evaluate_every": 0.5}


@pytest.mark.parametrize(
    ("options", "what", "steps"),
    [
        ({}, "log", [0, 3, 6, 9, 12, 15, 18]),
        ({}, "save", [0, 8, 16, 20]),  # by interval, and the last step
        (OFTEN | {"scores": [10]}, "save", [0, 5, 8, 15, 16, 20]),  # what is scored unless it has a score
        (OFTEN | {"scores": [10]}, "score", [5, 15]),  # the last is scored by its evaluation
        (OFTEN | {"scored": False}, "score", []),  # by a protocol without a score
        ({"geometry_every": 1.0}, "geometry", [10, 20]),  # at the last step too, not before the first
    ],
)
def test_steps_after_which_something_is_due(tmp_path, options, what, steps):
    session = session_of(tmp_path, **options)
    assert [session.step for session.step in range(21) if what in session.due()] == steps


def test_geometry_that_is_logged_is_not_due(tmp_path):
    session = session_of(tmp_path, geometry_every=1.0)
    (tmp_path / "metrics.jsonl").write_text('{"step": 10, "encoder_uniformity": -1.0}\n')
    assert [session.step for session.step in range(21) if "geometry" in session.due()] == [20]


@pytest.mark.parametrize(
    ("error", "processes", "waits"),
    [
        (None, 2, True),
        (Interrupted(signal.SIGTERM, 3, 20), 2, True),
        (training.Diverged("nan"), 2, True),
        (OSError("lost"), 2, False),  # the other processes may have ended
        (OSError("full"), 1, True),
    ],
)
def test_pending_checkpoints_are_waited_for(tmp_path, monkeypatch, error, processes, waits):
    session = session_of(tmp_path)
    monkeypatch.setattr(jax, "process_count", lambda: processes)
    session.close(type(error), error, None)
    assert bool(session.closed) == waits


def mesh(devices):
    return Mesh(np.asarray(devices).reshape(-1, 1), ("data", "fsdp"))


MESH = mesh(jax.devices()[:1])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_is_kept_until_it_is_asked_for(number):
    before, stop = signal.getsignal(number), Stop(MESH)
    with handling(stop.handle):
        assert stop.agreed() == 0
        signal.raise_signal(number)
        assert stop.agreed() == number
    assert signal.getsignal(number) is before


def test_a_second_interrupt_ends_at_once():
    stop = Stop(MESH)
    with handling(stop.handle):
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGTERM)  # another signal does not
        assert stop.agreed() == signal.SIGTERM
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_processes_agree_two_calls_later(monkeypatch):
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    stop, found = Stop(mesh(jax.devices())), []
    for _ in range(4):
        found.append(stop.agreed())
        stop.signal = signal.SIGTERM
    assert found == [0, 0, 0, signal.SIGTERM]


@pytest.mark.parametrize(
    ("step", "last", "steps", "traced"),
    [
        (0, 20, 5, (3, 8)),  # after three steps that compile and fill queues
        (0, 4, 2, (2, 4)),  # the run ends
        (0, 4, 9, (0, 4)),
        (6, 7, 1, (6, 7)),
        (20, 20, 5, None),
    ],
)
def test_profile_begins_and_ends(tmp_path, monkeypatch, step, last, steps, traced):
    calls = []

    @contextmanager
    def recorded(*_, **__):
        calls.append(now)
        yield
        calls.append(now)

    monkeypatch.setattr(jax.profiler, "trace", recorded)
    with _train.traced(tmp_path, steps, step, last) as hook:
        for now in range(step, last + 1):
            hook(now, {}, {})
    assert tuple(calls) == (traced or ())
