"""Helpers: start a small run as one or two processes, and read its results."""

import os
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np

from mvcl import training

ROOT = Path(__file__).parents[2]
MVCL = Path(sys.executable).with_name("mvcl")
LOCAL = ROOT / "launch" / "local.py"
STEPS = 60


# A small run on digits: 60 logged steps, a checkpoint every 3.
OPTIONS = (
    *("--train.steps", str(STEPS), "--train.batch-size", "32", "--train.log-every", "1", "--views.k", "3"),
    *("--encoder.widths", "4", "8", "--head.out", "8", "--evaluation.draws", "2"),
    *("--train.evaluate-every", "0", "--checkpoint.every-steps", "3"),
)


def command(workdir, options):
    return [str(word) for word in (MVCL, "train", "digits", "--workdir", workdir, *OPTIONS, *options)]


def environment(devices=1):
    on_cpu = {"JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": str(devices), "PYTHONUNBUFFERED": "1"}
    return os.environ | on_cpu | {"MVCL_CACHE": str(ROOT / ".cache" / "jax")}


def start(workdir, *options, devices=1, env=None, **kwargs):
    """Start the run as one process."""
    return _popen(command(workdir, options), environment(devices) | (env or {}), **kwargs)


def start_many(workdir, *options, devices=1):
    """Start the run as two processes, through launch/local.py."""
    launcher = [sys.executable, str(LOCAL), "--processes", "2", "--devices", str(devices), "--grace", "20"]
    return _popen([*launcher, "--", *command(workdir, options)], environment())


def _popen(words, env, **kwargs):
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen(words, cwd=ROOT, env=env, **pipes, **kwargs)


def finish(process, code=0, timeout=600):
    """Wait for a process, check its exit code and return its output."""
    try:
        output = process.communicate(timeout=timeout)[0]
    except subprocess.TimeoutExpired:
        process.kill()
        raise AssertionError(f"still running after {timeout} s:\n{process.communicate()[0]}") from None
    assert process.returncode == code, f"exit code {process.returncode}, not {code}:\n{output}"
    return output


def rows(workdir):
    return training.read_log(Path(workdir) / "metrics.jsonl")


def losses(workdir):
    """Losses by step; checks that the logged steps are 1, 2, 3, ..., each once."""
    logged = [row for row in rows(workdir) if "loss" in row]
    assert [row["step"] for row in logged] == list(range(1, len(logged) + 1))
    return np.asarray([row["loss"] for row in logged])


def scores(workdir):
    """Scores by step, of the log; checks that each step has one."""
    found = [(row["step"], row[row["score"]]) for row in rows(workdir) if "score" in row]
    assert len(dict(found)) == len(found)
    return dict(found)


def whole_steps(workdir):
    """Steps of the checkpoints with final names."""
    return [int(p.name) for p in (Path(workdir) / "checkpoints").glob("*") if p.name.isdecimal()]


def wait_for_step(process, workdir, step, timeout=300):
    """Wait until the run has logged this step or ended."""
    until(process, lambda: any(row["step"] >= step for row in rows(workdir) if "loss" in row), timeout)


def until(process, condition, timeout=300):
    """Wait until the condition holds or the process ends; return whether it holds."""
    deadline = time.monotonic() + timeout
    while process.poll() is None:
        if condition():
            return True
        if time.monotonic() > deadline:
            process.kill()
            raise AssertionError(f"waited {timeout} s:\n{process.communicate()[0]}")
        time.sleep(0.01)
    return condition()


def parameters(workdir):
    _, state = training.open_run(Path(workdir))
    return jax.device_get(state["params"])


def same_bits(one, other):
    """Check that two runs have bit-identical final parameters and losses."""
    jax.tree.map(np.testing.assert_array_equal, parameters(one), parameters(other))
    np.testing.assert_array_equal(losses(one), losses(other))
    assert len(losses(one)) == STEPS
