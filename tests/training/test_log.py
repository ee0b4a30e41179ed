"""The log of a run and its clock, without a run."""

import dataclasses
import errno
import json
from functools import partialmethod
from multiprocessing.queues import Queue
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest

from mvcl import _files, data, models, training
from mvcl.training import _folder, _memory, _session


@pytest.fixture
def clock(monkeypatch):
    """A clock that a test sets: `now[0]` is monotonic time, `now[1]` the wall's."""
    now = [50.0, 1000.0]
    monkeypatch.setattr(_session.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(_session.time, "time", lambda: now[1])
    return now


def passing(clock, phase, now, seconds):
    with clock.phase(phase):
        now[0] += seconds


def test_time_counts_as_the_innermost_phase(clock, tmp_path, capsys):
    mine = _session.Clock(tmp_path / "time.json")
    clock[0] += 1
    with mine.phase("training"):
        clock[0] += 2
        passing(mine, "data", clock, 4)
        clock[0] += 8
    clock[0] += 16
    assert mine.seconds() == {"other": 17, "training": 10, "data": 4}
    opened(tmp_path, mine).close()
    assert "time: 31 s, other 55 %, training 32 %, data 13 %" in capsys.readouterr().out


def test_the_clock_adds_earlier_sessions(clock, tmp_path):
    first = _session.Clock(tmp_path / "time.json")
    passing(first, "training", clock, 5)
    first.write()
    second = _session.Clock(tmp_path / "time.json")
    passing(second, "training", clock, 2)
    assert second.seconds()["training"] == 7


@pytest.mark.parametrize("content", ["[1]", '{"training": "long"}'])
def test_the_clock_ignores_a_missing_or_damaged_file(clock, tmp_path, content):
    assert _session.Clock(tmp_path / "time.json").seconds() == {"other": 0}
    (tmp_path / "time.json").write_text(content)
    assert _session.Clock(tmp_path / "time.json").seconds() == {"other": 0}


@pytest.mark.parametrize(("kind", "tflops"), [("TPU v5 lite", 197), ("NVIDIA L4", 121), ("NVIDIA L40S", 362)])
def test_peak_is_that_of_the_longest_name(monkeypatch, kind, tflops):
    memory = SimpleNamespace(flops=1e12)
    monkeypatch.setattr(_memory, "Model", lambda *of: SimpleNamespace(on=lambda devices: memory))
    devices = np.array([SimpleNamespace(device_kind=kind, platform="gpu")])
    mesh = SimpleNamespace(devices=devices, size=1)
    assert _session.full_speed(training.Config(), None, mesh) == tflops
    devices[0].device_kind = "cpu"
    assert _session.full_speed(training.Config(), None, mesh) is None
    assert _session.full_speed(training.Config(train=training.Train(peak_tflops=2.0)), None, mesh) == 2


def test_full_speed_counts_the_products_of_a_step_once():
    """Of two linear layers: forward, and the gradients of weights, and of the second layer's input."""
    source = data.Synthetic(view_shapes=((512,), (512,)), examples=64)
    train = training.Train(batch_size=64, peak_tflops=1e-6, remat="none")
    networks = {"encoder": models.MLP(widths=(2048,), norm="none"), "head": models.MLPHead(layers=1, out=8)}
    networks["mesh"] = training.Mesh(data=1)
    config = training.Config(data=source, train=train, evaluation=None, **networks)
    flops = 2 * 128 * (2 * 512 * 2048 + 3 * 2048 * 8)
    for options in ({}, {"microbatch": 16}):
        of = dataclasses.replace(config, train=dataclasses.replace(train, **options))
        assert full_speed(of) == pytest.approx(1e6 / flops, rel=0.05)  # and the loss
    plain = dataclasses.replace(config, train=training.Train(batch_size=64))
    assert full_speed(plain) is None


def full_speed(config):
    run = training.prepare(config)
    return _session.full_speed(run.config, run.outline, run.program.mesh)


def opened(tmp_path, mine, step=0, full_speed=None):
    config = SimpleNamespace(examples=10, views=SimpleNamespace(k=4))
    run = SimpleNamespace(config=config, program=SimpleNamespace(steps=100, mesh=None), outline=None)
    with mock.patch.object(_session, "full_speed", return_value=full_speed):
        return _session.Log(tmp_path, mine, run, step)


VALUES = {"loss": 2.0, "effective_rank": 5.0}


def test_a_row_has_the_seconds_of_a_step_since_the_last_row(clock, tmp_path, capsys, rows):
    mine = _session.Clock(tmp_path / "time.json")
    log = opened(tmp_path, mine, full_speed=4.0)
    for seconds in (1, 3):
        passing(mine, "training", clock, 6 * seconds)
        passing(mine, "data", clock, 2 * seconds)
        passing(mine, "logging", clock, 2 * seconds)
        passing(mine, "saving", clock, 100)
        log.row(10 * seconds, VALUES | {"chance": float("nan")})
    log.close()
    first, second = rows(tmp_path)
    expected = {"step": 10, "seconds_step": 0.6, "seconds_data": 0.2, "seconds_log": 0.2}
    expected |= {"seconds": 110, "time": 1110, "views_per_second": 40, "model_flops_utilisation": 0.25}
    assert first.items() >= expected.items()
    assert second["seconds_step"] == pytest.approx(18 / 20)
    assert second["views_per_second"] == pytest.approx(40 / 1.5)
    assert "chance" not in first  # JSON has no NaN
    shown = capsys.readouterr().out.splitlines()
    assert "step  10/100  loss 2.0000" in shown[0]
    assert shown[0].endswith("rank 5.0  40 views/s  1m30s left")


def logged(tmp_path, capsys, sequence):
    """The warnings of a log of these values."""
    log = opened(tmp_path, _session.Clock(tmp_path / "time.json"))
    for step, values in enumerate(sequence):
        log.row(step, VALUES | values)
    log.close()
    return [line for line in capsys.readouterr().out.splitlines() if line.startswith("warning")]


@pytest.mark.parametrize(
    ("losses", "warned"),
    [([4.0] * 5, 1), ([4.0] * 20, 1), ([4.0] * 4 + [3.9] + [4.0] * 4, 0), ([3.96] * 5, 1), ([3.94] * 5, 0)],
)
def test_warns_after_five_rows_at_chance(clock, tmp_path, capsys, losses, warned):
    """At chance: within 0.01 (1 + |chance|) of it, here 0.05."""
    found = logged(tmp_path, capsys, [{"loss": loss, "chance": 4.0} for loss in losses])
    assert [("stayed at the chance level 4.0000" in line) for line in found] == [True] * warned


@pytest.mark.parametrize(("ranks", "warned"), [([1.4] * 5, 1), ([1.6] * 9, 0), ([1.4] * 4 + [2.0, 1.4], 0)])
def test_warns_after_five_rows_of_collapse(clock, tmp_path, capsys, ranks, warned):
    found = logged(tmp_path, capsys, [{"effective_rank": rank} for rank in ranks])
    assert [("effective rank of the embeddings has fallen" in line) for line in found] == [True] * warned


def test_warns_once_of_a_solver_that_stopped(clock, tmp_path, capsys):
    solver = {"solver_unconverged": 0.5, "solver_iterations": 7.0, "solver_error": 0.25}
    [line] = logged(tmp_path, capsys, [solver | {"solver_unconverged": 0.0}, solver, solver])
    text = "stopped after 7 iterations with marginals wrong by 0.25: the loss is an upper bound of M3G"
    assert text in line


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_goes_on_where_tensorboard_cannot_write(tmp_path, monkeypatch, rows):
    """The thread that writes its events ends at a full disk. A run must not wait for it: its next file raises."""
    log = opened(tmp_path, _session.Clock(tmp_path / "time.json"))

    def full(*event):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("tensorboardX.event_file_writer.EventsWriter.write_event", full)
    monkeypatch.setattr("multiprocessing.queues.Queue.put", partialmethod(Queue.put, timeout=10))
    for step in range(1, 9):
        log.row(step, VALUES)
    assert len(rows(tmp_path)) == 8
    log.close()


def test_scores_are_read_from_the_log(clock, tmp_path):
    log = opened(tmp_path, _session.Clock(tmp_path / "time.json"))
    log.scores(4, {"knn": 0.5}, score="knn")
    log.scores(5, {"uniformity": -1.0})
    log.scores(6, {})
    log.close()
    _files.append(tmp_path / "metrics.jsonl", json.dumps({"step": 8, "knn": 0.75, "score": "knn"}) + "\n")
    assert _folder.Checkpoints(tmp_path / "checkpoints", 1).scores == {4: 0.5, 8: 0.75}
    assert [row["step"] for row in _folder.read_log(tmp_path / "metrics.jsonl")] == [4, 5, 8]


def test_damaged_rows_are_skipped(tmp_path):
    lines = '{"step": 1}\n{\n{"step": "x"}\n[2]\n{"step": 3, "time": null}\n\xff\n{"step": 4\n\0'
    (tmp_path / "metrics.jsonl").write_bytes(lines.encode("latin-1"))
    assert _folder.read_log(tmp_path / "metrics.jsonl") == [{"step": 1}]


@pytest.mark.parametrize(("done", "refreshes"), [(False, [0, 3]), (True, [0, 3, 4])])
def test_rewound_logs_end_at_the_step(tmp_path, done, refreshes):
    """A refresh precedes its step, unless the step is the last."""
    for name in ("metrics.jsonl", "refresh.jsonl"):
        (tmp_path / name).write_text("".join(f'{{"step": {step}}}\n' for step in (0, 3, 4, 5)))
    _folder.rewind_log(tmp_path, 4, done=done)
    assert [row["step"] for row in _folder.read_log(tmp_path / "metrics.jsonl")] == [0, 3, 4]
    assert [row["step"] for row in _folder.read_log(tmp_path / "refresh.jsonl")] == refreshes
