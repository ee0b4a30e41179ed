"""Fault injection: a disturbed run ends with a message, and the repeated command gives bit-identical results."""

import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import pytest
from campaign import STEPS, finish, same_bits, scores, start, start_many, until, wait_for_step, whole_steps

pytestmark = pytest.mark.slow

KILLS = 4  # per run


@pytest.mark.parametrize("run", range(3))
def test_kill_9(whole, tmp_path, run):
    """Killed while a checkpoint is written, twice, and at random times, twice."""
    rng, workdir = random.Random(run), tmp_path / "run"
    killed, in_a_checkpoint, saved = 0, 0, []
    for kill in range(KILLS):
        stale = half_written(workdir)  # left by the previous process
        process = start(workdir)
        if kill < 2:
            until(process, lambda stale=stale: half_written(workdir) - stale)
        else:
            time.sleep(rng.uniform(0, 4))
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            killed += 1
        process.communicate()
        in_a_checkpoint += bool(half_written(workdir) - stale)
        saved.append(max(whole_steps(workdir), default=0))
    assert killed == KILLS, "a run ended before it was killed"
    assert in_a_checkpoint >= 1
    assert saved == sorted(saved)  # no saved checkpoint is lost
    finish(start(workdir))
    same_bits(workdir, whole)


# Scores every 5 steps, by many small batches, and a final evaluation of three rows.
EVALUATED = (*("--train.evaluate-every", str(5 / 44)), *("--evaluation.batch-size", "16"))
STOPS = 5  # of each kind


@pytest.fixture(scope="module")
def scored(tmp_path_factory):
    """Folder of an undisturbed run that is scored during training."""
    workdir = tmp_path_factory.mktemp("runs") / "scored"
    finish(start(workdir, *EVALUATED))
    assert sorted(scores(workdir)) == list(range(5, STEPS + 1, 5))
    return workdir


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=["SIGKILL", "SIGTERM"])
@pytest.mark.parametrize("stage", ["scoring", "final evaluation"])
def test_stopped_in_an_evaluation(scored, tmp_path, stage, number):
    rng = random.Random(f"{stage} {number}")
    final, workdir, origin = stage == "final evaluation", tmp_path / "run", tmp_path / "start"
    origin.mkdir()
    if final:  # a run whose training is done
        shutil.copytree(scored, origin, dirs_exist_ok=True)
        (origin / "evaluation.json").unlink()
    shutil.copytree(origin, workdir)
    stopped = 0
    while stopped < STOPS:
        process = start(workdir, *EVALUATED)
        step = stop_in_evaluation(process, workdir, number, rng.uniform(0, 2.0 if final else 0.2), final)
        if step is not None:
            stopped += 1
            assert max(whole_steps(workdir)) == step  # what was trained is saved
        elif (workdir / "evaluation.json").is_file():  # it ended before it was stopped: begin again
            shutil.rmtree(workdir)
            shutil.copytree(origin, workdir)
    saved = max(whole_steps(workdir))
    assert f"resuming from step {saved} of {STEPS}" in finish(start(workdir, *EVALUATED))
    same_bits(workdir, scored)
    assert scores(workdir) == scores(scored)
    tables = [json.loads((folder / "evaluation.json").read_text()) for folder in (workdir, scored)]
    assert tables[0] == tables[1]


def stop_in_evaluation(process, workdir, number, wait, final):
    """Send a signal this long after an evaluation has begun; return its step, None if it ended before."""

    def evaluating():
        """The step that is evaluated: it is saved and has no score."""
        step = max(whole_steps(workdir), default=0)
        scored = (workdir / "evaluation.json").is_file() if step == STEPS else step in scores(workdir)
        return step if step and step % 5 == 0 and not scored and (step == STEPS) == final else None

    def handles_signals():
        """A run that resumes begins with the evaluation: its files tell nothing before it has begun."""
        if process.poll() is not None:
            return False
        status = Path(f"/proc/{process.pid}/status").read_text()
        return int(re.search(r"SigCgt:\s*(\w+)", status)[1], 16) >> (signal.SIGTERM - 1) & 1

    until(process, lambda: evaluating() is not None and handles_signals())
    time.sleep(wait)
    step = evaluating()
    in_time = process.poll() is None and step is not None
    process.send_signal(number if in_time else signal.SIGKILL)
    process.communicate()
    return step if in_time and process.returncode in (-signal.SIGKILL, 128 + signal.SIGTERM) else None


def half_written(workdir):
    """Unfinished checkpoints: being written, or left by a kill."""
    found = set()
    for folder in (workdir / "checkpoints").glob("*tmp*"):
        with suppress(FileNotFoundError):  # it has just been renamed
            found.add((folder.name, folder.stat().st_ino))
    return found


@pytest.fixture(scope="module")
def whole_of_two(tmp_path_factory):
    workdir = tmp_path_factory.mktemp("runs") / "two"
    finish(start_many(workdir))
    return workdir


@pytest.mark.parametrize("victim", [0, 1])
def test_one_of_two_processes_is_killed(whole_of_two, tmp_path, victim):
    workdir = tmp_path / "run"
    launcher = start_many(workdir)
    wait_for_step(launcher, workdir, 8)
    os.kill(worker(launcher.pid, victim), signal.SIGKILL)
    output = finish(launcher, 128 + signal.SIGKILL, timeout=120)
    assert f"process {victim} of 2 was killed by SIGKILL" in output
    messages = re.findall(rf"^\[{1 - victim}\].*mvcl:.*$", output, re.MULTILINE)
    assert messages, output
    assert "another process of this run has ended" in messages[-1]
    assert "Traceback" not in output
    finish(start_many(workdir))
    same_bits(workdir, whole_of_two)


def worker(launcher, rank):
    """PID of a rank that local.py started."""
    for entry in Path("/proc").iterdir():
        try:
            if not entry.name.isdecimal() or f"\nPPid:\t{launcher}\n" not in (entry / "status").read_text():
                continue
            if f"JAX_PROCESS_ID={rank}\0".encode() in (entry / "environ").read_bytes():
                return int(entry.name)
        except OSError:
            continue
    raise AssertionError(f"no process {rank} of {launcher}")


def test_disk_full_in_a_checkpoint(whole, tmp_path):
    """Uses a small tmpfs, enlarged later; without permission to mount, a limit on the size of files."""
    workdir = tmp_path / "disk" / "run"
    workdir.parent.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=240k", "tmpfs", workdir.parent]
    mounted = os.geteuid() == 0 and subprocess.run(mount, capture_output=True).returncode == 0
    limit = None if mounted else (lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (12_000, 12_000)))
    try:
        output = finish(start(workdir, preexec_fn=limit), 1)
        message = output.strip().splitlines()[-1]
        assert message.startswith("mvcl: "), output
        assert re.search("No space left on device|File too large", message)
        assert "repeat the command to resume" in message
        assert "Traceback" not in output
        if mounted:
            subprocess.run(["mount", "-o", "remount,size=64m", workdir.parent], check=True)
        finish(start(workdir))
        same_bits(workdir, whole)
    finally:
        if mounted:
            subprocess.run(["umount", workdir.parent], check=True)
