"""The goodput of a run that was killed between two checkpoints."""

import json
import time

import pytest
from campaign import finish, wait_for_step

pytestmark = pytest.mark.slow


def test_steps_after_the_last_checkpoint_count_as_repeated(runs, tmp_path, report):
    workdir, options = tmp_path / "run", ("--checkpoint.every-steps", 25)
    begun = time.monotonic()
    process = runs.start(workdir, *options)
    wait_for_step(process, workdir, 40)
    process.kill()
    process.communicate()
    first = json.loads((workdir / "heartbeat.json").read_text())
    assert first["goodput"]["seconds"]["repeated"] == 0
    output = finish(runs.start(workdir, *options))
    whole = time.monotonic() - begun
    goodput = json.loads((workdir / "heartbeat.json").read_text())["goodput"]
    seconds = goodput["seconds"]
    assert (goodput["sessions"], goodput["furthest"]) == (2, 60)
    assert seconds["repeated"] > 0
    assert seconds["training"] >= first["goodput"]["seconds"]["training"]
    assert seconds["compiling"] > first["goodput"]["seconds"]["compiling"]
    assert sum(seconds.values()) < whole
    line = next(line for line in output.splitlines() if line.startswith("goodput "))
    assert "in 2 sessions" in line
    assert "Wall time" in (workdir / "report.html").read_text()
    report("kill -9 after step 40, saved at 25", line)
