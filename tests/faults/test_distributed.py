"""Several processes on CPU (`make test-distributed`): losses and checkpoints do not depend on processes and devices."""

import json
import re
import signal

import numpy as np
import pytest
from campaign import STEPS, finish, losses, start, start_many, wait_for_step

pytestmark = pytest.mark.slow


def worst(one, other):
    """Largest relative difference of two loss curves."""
    assert len(one) == len(other) == STEPS
    return float(np.max(np.abs(one - other) / np.abs(other)))


@pytest.fixture(scope="module")
def on_one_device(whole):
    return losses(whole)


@pytest.fixture(scope="module")
def of_two_processes(tmp_path_factory):
    workdir = tmp_path_factory.mktemp("runs") / "two"
    output = finish(start_many(workdir, devices=4))
    logging = set(re.findall(r"^(...).*(?:step +\d+/60|evaluating|report:)", output, re.MULTILINE))
    assert logging == {"[0]"}  # only process 0 logs and reports
    return workdir


def test_two_processes_of_four_devices(of_two_processes, on_one_device):
    assert worst(losses(of_two_processes), on_one_device) < 1e-5


def test_evaluates_uneven_splits(of_two_processes, whole):
    """1437 and 360 examples in batches of 512: the last batch is incomplete."""
    with np.load(of_two_processes / "embeddings.npz") as two, np.load(whole / "embeddings.npz") as one:
        np.testing.assert_array_equal(two["labels"], one["labels"])
        assert two["features"].shape == one["features"].shape == (360, 8)
        np.testing.assert_allclose(two["features"], one["features"], atol=1e-3)
    tables = [json.loads((run / "evaluation.json").read_text())["rows"] for run in (of_two_processes, whole)]
    for row in tables[0]:
        for ours, theirs in zip(tables[0][row], tables[1][row]):
            assert ours["name"] == theirs["name"]
            assert abs(ours["value"] - theirs["value"]) <= 2 / 360


@pytest.mark.parametrize(
    ("processes", "devices", "fsdp", "slices"),
    [(1, 8, 1, 1), (1, 8, 8, 1), (1, 8, 2, 1), (2, 4, 4, 1), (2, 4, 2, 2)],
)
def test_parameters_split_over_devices(on_one_device, tmp_path, processes, devices, fsdp, slices):
    workdir, options = tmp_path / "run", ("--mesh.fsdp", fsdp, "--mesh.slices", slices)
    launched = start if processes == 1 else start_many
    finish(launched(workdir, *options, devices=devices))
    assert worst(losses(workdir), on_one_device) < 1e-5


def test_resumes_on_other_devices(on_one_device, tmp_path):
    """8 devices in one process, then 2 processes of one, then 8 devices again."""
    workdir, moves = tmp_path / "run", []
    process = start(workdir, devices=8)
    wait_for_step(process, workdir, 5)
    process.send_signal(signal.SIGTERM)
    moves.append(saved(finish(process, 143)))
    launcher = start_many(workdir)
    wait_for_step(launcher, workdir, moves[0] + 5)
    launcher.send_signal(signal.SIGTERM)
    output = finish(launcher, 143)
    assert f"resuming from step {moves[0]} of {STEPS}" in output
    moves.append(saved(output))
    output = finish(start(workdir, devices=8))
    assert f"resuming from step {moves[1]} of {STEPS}" in output
    assert worst(losses(workdir), on_one_device) < 1e-5


def saved(output):
    step = int(re.search(rf"saved at step (\d+) of {STEPS}", output)[1])
    assert step < STEPS
    return step
