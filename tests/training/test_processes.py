"""Runs in separate processes: several processes of one run, and killed ones."""

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest

from mvcl import training

ROOT = Path(__file__).parents[2]
OPTIONS = [
    "--train.steps", "20", "--train.batch-size", "32", "--train.log-every", "1", "--views.k", "3",
    "--encoder.widths", "4", "8", "--head.out", "8", "--evaluation.draws", "2", "--checkpoint.every-steps", "3",
]  # fmt: skip

pytestmark = pytest.mark.slow


def start(workdir, tfds, devices=1, **environment):
    command = [
        Path(sys.executable).with_name("mvcl"),
        "train",
        "digits",
        "--workdir",
        workdir,
        *OPTIONS,
    ]
    env = os.environ | {
        "TFDS_DATA_DIR": tfds,
        "MVCL_CACHE": str(ROOT / ".cache" / "jax"),
        "JAX_NUM_CPU_DEVICES": str(devices),
        **environment,
    }
    return subprocess.Popen(
        command, cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def finish(*processes):
    outputs = [p.communicate(timeout=600)[0] for p in processes]
    assert all(p.returncode == 0 for p in processes), "\n".join(outputs)
    return outputs


def losses(workdir):
    rows = [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]
    return np.array([row["loss"] for row in rows if "loss" in row])


def parameters(workdir):
    _, state = training.open_run(workdir)
    return jax.device_get(state["params"])


@pytest.fixture(scope="module")
def whole(tfds, tmp_path_factory):
    workdir = tmp_path_factory.mktemp("runs") / "whole"
    finish(start(workdir, tfds))
    return workdir


def test_two_processes_equal_one(whole, tfds, tmp_path):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    workdir = tmp_path / "two"
    outputs = finish(
        *(
            start(
                workdir,
                tfds,
                devices=2,
                JAX_COORDINATOR_ADDRESS=f"127.0.0.1:{port}",
                JAX_NUM_PROCESSES="2",
                JAX_PROCESS_ID=str(rank),
            )
            for rank in (0, 1)
        )
    )
    np.testing.assert_allclose(losses(workdir), losses(whole), rtol=1e-5)
    assert "trained encoder" in outputs[0]
    assert "step" not in outputs[1]  # only process 0 logs


@pytest.mark.parametrize("devices", [2, 8])
def test_training_does_not_depend_on_devices(whole, tfds, tmp_path, devices):
    finish(start(tmp_path / "run", tfds, devices=devices))
    np.testing.assert_allclose(losses(tmp_path / "run"), losses(whole), rtol=1e-5)


@pytest.mark.parametrize("trial", range(3))
def test_resumes_bit_identically_after_a_kill(whole, tfds, tmp_path, trial):
    workdir, kills = tmp_path / "run", 0
    rng = random.Random(trial)
    while kills < 3:
        process = start(workdir, tfds)
        log = workdir / "metrics.jsonl"
        before = log.stat().st_size if log.is_file() else 0
        while process.poll() is None and (not log.is_file() or log.stat().st_size <= before):
            time.sleep(0.02)
        time.sleep(rng.uniform(0, 0.4))
        if process.poll() is not None:
            break
        process.send_signal(signal.SIGKILL)
        process.communicate()
        kills += 1
    assert kills > 0
    finish(start(workdir, tfds))
    jax.tree.map(np.testing.assert_array_equal, parameters(workdir), parameters(whole))
    np.testing.assert_array_equal(losses(workdir), losses(whole))


def test_sigterm_saves_a_checkpoint(whole, tfds, tmp_path):
    workdir = tmp_path / "run"
    process = start(workdir, tfds)
    while not (workdir / "metrics.jsonl").is_file() or not losses(workdir).size:
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    output = process.communicate(timeout=120)[0]
    assert process.returncode == 128 + signal.SIGTERM, output
    step = int(output.split("saved at step ")[1].split()[0])
    _, state = training.open_run(workdir)
    assert int(state["step"]) == step
    finish(start(workdir, tfds))
    jax.tree.map(np.testing.assert_array_equal, parameters(workdir), parameters(whole))
