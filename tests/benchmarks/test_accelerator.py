"""The benchmark for accelerators on a CPU: its slices, without running them, and pieces in this process."""

import json
from pathlib import Path

import jax
import pytest
from parametrize import some

from benchmarks import accelerator
from docs import objectives

DESIGN = Path(__file__).parents[2] / "docs" / "design"
STEPS = ["steps ConvNet 16 none", "steps ConvNet 16 blocks", "steps ConvNet 16 full"]
FOUND, SMALL = {"device": "GPU", "ms": 2.0}, accelerator.parsed(["--size", "small"])


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A slice of the three steps, of which `of` says what each policy finds; the states that it leaves."""

    def slice_of(of, *again):
        monkeypatch.setattr(accelerator, "started", lambda name, *_: of(name.split()[-1]))
        accelerator.main(["--size", "small", "--out", str(tmp_path), "--only", "steps", *again])
        pieces = accelerator.read(tmp_path / "small.json", "small")["pieces"]
        return [accelerator.state(pieces.get(name, {})) for name in STEPS]

    return slice_of


def test_memory_that_runs_out_ends_one_piece(run):
    states = run(lambda policy: FOUND | ({"failed": "memory"} if policy == "none" else {}))
    assert states == ["failed", "done", "done"]


def test_a_killed_slice_goes_on_with_the_piece_that_it_had_begun(run):
    done = []

    def killed(policy):
        done.append(policy)
        if done == ["none", "blocks"]:
            raise KeyboardInterrupt
        return FOUND

    with pytest.raises(KeyboardInterrupt):
        run(killed)
    assert run(killed) == ["done"] * 3
    assert done == ["none", "blocks", "blocks", "full"]


def test_a_piece_that_never_ends_fails_at_its_third_start(run):
    states = [run(lambda policy: None if policy == "none" else FOUND)[0] for _ in range(3)]
    assert states == ["left", "left", "failed"]


def test_a_record_is_of_one_device(run, capsys):
    run(lambda _: FOUND)
    assert run(lambda _: FOUND | {"device": "TPU"}, "--again", STEPS[1]) == ["done", "left", "done"]
    assert "was measured on GPU, and this is TPU" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("script", "found"), [("exit 3", {"failed": "exit code 3: no output"}), ("sleep 9", None)]
)
def test_a_process_that_breaks_off_has_failed_and_one_that_takes_too_long_has_not(
    script, found, tmp_path, monkeypatch
):
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(0o700)
    monkeypatch.setattr(accelerator.sys, "executable", str(python))
    assert accelerator.started(STEPS[0], SMALL, 0.5) == found


def test_what_was_known_before_memory_ran_out_is_kept(tmp_path, monkeypatch):
    def of_loss(found, *_):
        found["ours_mb"] = 5.0
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 9 GiB.")

    monkeypatch.setattr(accelerator, "of_loss", of_loss)
    found = accelerator.measured("losses mv_cl1 1", SMALL, tmp_path)
    assert found["ours_mb"] == 5.0
    assert "Out of memory" in found["failed"]


def test_the_full_size_is_refused_without_an_accelerator(tmp_path):
    assert "refused" in accelerator.measured("steps ResNet-50 256 none", accelerator.parsed([]), tmp_path)


@pytest.mark.parametrize("name", some(accelerator.PIECES["small"], fast=[STEPS[1]]))
def test_a_piece_has_what_its_table_prints(name, tmp_path):
    found = json.loads(json.dumps(accelerator.measured(name, SMALL, tmp_path)))
    part, *rest = name.split()
    empty = {key for _, key, _ in accelerator.TABLES[part][1] if found.get(key) is None}
    assert empty <= {"of_peak", "peak_bytes", "released_over_ours", "released_mb", "gradient_difference"}
    record = {"size": "small", "device": "cpu", "pieces": {name: found | {"took": 1.0}}}
    assert f"| {' | '.join(rest)} | " in accelerator.parts(record)[part]


def test_page_is_made_from_its_record():
    page, record = DESIGN / "accelerator.md", accelerator.read(DESIGN / "accelerator.json", "full")
    assert page.read_text() == objectives.written(page, accelerator.parts(record))
