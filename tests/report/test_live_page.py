"""The page of a run in progress: what it says of its state, and how it is renewed."""

import base64
import fcntl
import hashlib
import json
import re
import shlex
import time

import pytest
from test_page import Page, edit

from mvcl.report import _state, write_report


def page_of(*runs, out):
    return Page(write_report(runs, out).read_text())


def beat(run, step=300, doing="training", steps=1000, ago=12.0):
    content = {"step": step, "steps": steps, "doing": doing, "unix_time": time.time() - ago}
    (run / "heartbeat.json").write_text(json.dumps(content))


@pytest.fixture
def alive(run):
    """A run in progress: its folder is locked, and what comes at the end is missing."""
    for name in ("evaluation.json", "embeddings.npz"):
        (run / name).unlink()
    with open(run / ".lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        beat(run)
        yield run


def test_a_run_in_progress(alive, tmp_path):
    with (alive / "metrics.jsonl").open("a") as file:
        file.write('{"step": 350, "knn": 0.875, "score": "knn"}\n{"step": 395, "lo')
    page = page_of(alive, out=tmp_path / "r.html")
    assert page.titles[0] == "State"
    assert "Training: step 300 of 1,000." in page.text
    assert "Last sign of life 12 s before this page was written" in page.text
    assert "Last evaluation during training: knn 0.8750 at step 350." in page.text
    assert "come after the last step" in page.text
    assert "Missing" not in page.titles
    assert [i["type"] for i in page.all("input")] == ["checkbox"]
    assert "checked" not in page.all("input")[0]


def test_the_time_left(alive, tmp_path):
    rows = [{"step": step, "loss": 1.0, "time": 5e8 + 2.0 * step} for step in range(0, 310, 10)]
    (alive / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert "step 300 of 1,000, about 23m20s left." in page_of(alive, out=tmp_path / "r.html").text


def test_the_last_full_evaluation_keeps_its_step(run, tmp_path):
    with open(run / ".lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        beat(run, step=500)
        page = page_of(run, out=tmp_path / "r.html")
    assert "The evaluation table is of step 399." in page.text
    assert "Measured at step 399" in page.text
    assert "Test embeddings" not in page.titles  # t-SNE is for the end


@pytest.mark.parametrize("doing", ["training", "saving", "stopped"])
def test_a_run_that_was_killed_or_stopped_does_not_look_alive(run, tmp_path, doing):
    (run / ".lock").write_text("")
    beat(run, doing=doing, ago=0.1)
    page = page_of(run, out=tmp_path / "r.html")
    assert f"Stopped at step 300 of 1,000: repeat the command to resume, or: mvcl train {run}" in page.text
    assert page.all("input") == page.all("script") == []


def test_the_command_that_resumes_can_be_pasted(make_run, tmp_path):
    run = make_run("my run")
    beat(run, doing="stopped")
    folder = shlex.quote(str(run))
    assert f"or: mvcl train {folder} --workdir {folder}" in page_of(run, out=tmp_path / "r.html").text
    edit(run, "config.json", lambda c: c["objective"].update(_digest="0123"))  # needs the file of its code
    page = page_of(run, out=tmp_path / "r.html")
    assert "repeat the command to resume" in page.text
    assert "or: mvcl train" not in page.text


@pytest.mark.parametrize(("doing", "drawn"), [("done", True), ("stopped", False), ("evaluating", False)])
def test_embeddings_are_drawn_when_the_run_is_done(run, tmp_path, doing, drawn):
    beat(run, doing=doing)
    assert ("Test embeddings" in page_of(run, out=tmp_path / "r.html").titles) == drawn


def test_a_finished_page_has_no_state_and_no_script(run, tmp_path):
    beat(run, step=1000, doing="done")
    page = page_of(run, out=tmp_path / "r.html")
    assert "State" not in page.titles
    assert "finished" in page.text
    assert page.all("input") == page.all("script") == []
    again = page_of(run, out=tmp_path / "s.html")
    assert (tmp_path / "r.html").read_text() == (tmp_path / "s.html").read_text()
    assert again.titles == page.titles


def test_a_run_that_has_just_begun(tmp_path):
    (tmp_path / "metrics.jsonl").write_text("")
    (tmp_path / "config.json").write_text("{}")
    with open(tmp_path / ".lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        beat(tmp_path, step=0, doing="starting")
        page = page_of(tmp_path, out=tmp_path / "r.html")
    assert "Starting: step 0 of 1,000." in page.text
    assert "No evaluation yet." in page.text
    assert "Missing" not in page.titles


def test_several_of_which_one_trains(alive, make_run, tmp_path):
    other, stopped = make_run("second", k=3), make_run("third", k=2)
    beat(other, step=1000, doing="done")
    beat(stopped, step=7)
    page = page_of(alive, other, stopped, out=tmp_path / "r.html")
    assert "first: Training: step 300 of 1,000." in page.text
    assert "third: Stopped at step 7 of 1,000" in page.text
    assert "Finished: 1 of 3 runs." in page.text
    assert len(page.all("script")) == 2
    beat(stopped, step=1000, doing="done")
    beat(alive, step=1000, doing="done")
    assert "State" not in page_of(alive, other, stopped, out=tmp_path / "r.html").titles


def test_only_the_scripts_of_the_page_may_run(alive, tmp_path):
    text = write_report([alive], tmp_path / "r.html").read_text()
    policy = next(
        m["content"] for m in Page(text).all("meta") if m.get("http-equiv") == "Content-Security-Policy"
    )
    [script] = re.findall("<script>(.*?)</script>", text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'; " in policy
    assert "default-src 'none'" in policy


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        '{"step": 1}',
        '{"step": "x", "steps": 1, "doing": ""}',
        '{"step": Infinity, "steps": 1, "doing": "training", "unix_time": 1}',
        '{"step": 1, "steps": 1, "doing": "training", "unix_time": -1e300}',
    ],
)
def test_a_damaged_heartbeat_tells_no_state(run, tmp_path, content):
    (run / "heartbeat.json").write_text(content)
    assert "State" not in page_of(run, out=tmp_path / "r.html").titles


def test_looking_at_the_lock_does_not_keep_it(run):
    (run / ".lock").write_text("")
    beat(run)
    from mvcl.report import _read

    assert _state.state_of(_read.read_run(run)).live is False
    with open(run / ".lock") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert _state.state_of(_read.read_run(run)).live is True
