"""Runs in a bucket, on a local server of Google Cloud Storage: killed and resumed, they equal a local run."""

import json
import os
import re
import shutil
import signal
import subprocess

import bucket_server
import pytest
from campaign import MVCL, ROOT, finish, same_bits, start, until

from mvcl import _buckets

pytestmark = pytest.mark.slow


def checkpoints(run, *, whole):
    """Steps of the checkpoints that are complete, or of those that are not."""
    files = _buckets._client().find(str(run / "checkpoints"))
    steps = {int(found[1]) for file in files if (found := re.search(r"/checkpoints/(\d+)/", file))}
    done = {step for step in steps if any(file.endswith(f"/{step}/commit_success.txt") for file in files)}
    return done if whole else steps - done


def test_kill_9_in_a_bucket(whole, tmp_path):
    with bucket_server.connected() as environment:
        run = _buckets.path(f"gs://{bucket_server.BUCKET}/run")
        for kill in range(3):
            kill_it(run, environment, kill)
        output = finish(start(run, env=environment))
        assert re.search(r"resuming from step (\d+)", output)
        mvcl("evaluate", run, environment)
        (run / "report.html").unlink()
        mvcl("report", run, environment)
        assert (run / "report.html").read_text().startswith("<!doctype html>")
        shutil.copytree(_buckets.local_copy(run), tmp_path / "copy")
    same_bits(tmp_path / "copy", whole)
    assert list((tmp_path / "copy" / "tensorboard").iterdir())
    table = json.loads((tmp_path / "copy" / "evaluation.json").read_text())
    assert table == json.loads((whole / "evaluation.json").read_text())
    assert not (ROOT / "gs:").exists()


def kill_it(run, environment, kill):
    """Start the run, kill it at some moment and check what it leaves."""
    before = checkpoints(run, whole=True)
    process = start(run, env=environment)
    if kill == 1:
        stale = checkpoints(run, whole=False)
        until(process, lambda: checkpoints(run, whole=False) - stale)
    else:
        until(process, lambda: len(checkpoints(run, whole=True) - before) >= 2)
    assert process.poll() is None, process.communicate()[0]
    process.send_signal(signal.SIGKILL)
    process.communicate()
    done = checkpoints(run, whole=True)
    assert done - before or kill == 1
    logged = [json.loads(line)["step"] for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert max(logged) >= max(done)  # all that the newest checkpoint stands for


def mvcl(command, run, environment):
    words, env = [MVCL, command, str(run)], os.environ | environment
    subprocess.run(words, cwd=ROOT, env=env, check=True, capture_output=True, timeout=600)
