"""The benchmark for accelerators on a CPU: its slices, without running them, and pieces in this process."""

import json
import stat
from pathlib import Path

import jax
import pytest
from parametrize import some

from benchmarks import accelerator
from docs import objectives

DESIGN = Path(__file__).parents[2] / "docs" / "design"
STEPS = ["steps ConvNet 16 none", "steps ConvNet 16 blocks", "steps ConvNet 16 full"]


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A slice of the three steps, of which `of` says what each finds; the states of the record that it leaves."""

    def slice_of(of, *again):
        monkeypatch.setattr(accelerator, "started", lambda name, *_: of(name.split()[-1]))
        arguments = ["--size", "small", "--out", str(tmp_path), "--only", "steps", *again]
        code = accelerator.main(arguments)
        record = accelerator.read(tmp_path / "small.json", "small")
        return code, [accelerator.state(record["pieces"].get(name, {})) for name in STEPS]

    return slice_of


def found(policy):
    return {"device": "GPU", "ms": 2.0}


def test_memory_that_runs_out_ends_one_piece(run):
    def of(policy):
        return found(policy) | ({"failed": "RESOURCE_EXHAUSTED"} if policy == "none" else {})

    assert run(of) == (1, ["failed", "done", "done"])


def test_a_killed_slice_goes_on_with_the_piece_that_it_had_begun(run):
    def killed(policy):
        if policy == "blocks":
            raise KeyboardInterrupt
        return found(policy)

    with pytest.raises(KeyboardInterrupt):
        run(killed)
    done = []
    assert run(lambda policy: done.append(policy) or found(policy)) == (0, ["done"] * 3)
    assert done == ["blocks", "full"]


def test_a_piece_that_never_ends_fails_at_its_third_start(run):
    left = [run(lambda policy: None if policy == "none" else found(policy))[1][0] for _ in range(3)]
    assert left == ["left", "left", "failed"]


def test_a_record_is_of_one_device(run, capsys):
    run(found)
    assert run(lambda policy: found(policy) | {"device": "TPU"}, "--again", STEPS[1]) == (
        2,
        ["done", "left", "done"],
    )
    assert "was measured on GPU, and this is TPU" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("script", "ends"), [("exit 3", {"failed": "exit code 3: no output"}), ("sleep 9", None)]
)
def test_a_piece_that_ends_its_process_has_failed_and_one_that_takes_too_long_has_not(
    script, ends, tmp_path, monkeypatch
):
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(python.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr(accelerator.sys, "executable", str(python))
    assert accelerator.started(STEPS[0], accelerator.parsed(["--size", "small"]), 0.5) == ends


def test_what_was_known_before_memory_ran_out_is_kept(tmp_path, monkeypatch):
    def of_loss(found, *_):
        found["ours_mb"] = 5.0
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 9 GiB.")

    monkeypatch.setattr(accelerator, "of_loss", of_loss)
    piece = accelerator.measured("losses mv_cl1 1", accelerator.parsed(["--size", "small"]), tmp_path)
    assert piece["ours_mb"] == 5.0
    assert "Out of memory" in piece["failed"]


def test_the_full_size_is_refused_without_an_accelerator(tmp_path):
    assert "refused" in accelerator.measured("steps ResNet-50 256 none", accelerator.parsed([]), tmp_path)


@pytest.mark.parametrize("name", some(accelerator.PIECES["small"], fast=[STEPS[1]]))
def test_a_piece_has_what_its_table_prints(name, tmp_path):
    piece = accelerator.measured(name, accelerator.parsed(["--size", "small"]), tmp_path)
    record = {
        "size": "small",
        "device": "cpu",
        "pieces": {name: json.loads(json.dumps(piece)) | {"took": 1.0}},
    }
    part = name.split()[0]
    row = next(
        r for r in accelerator.parts(record)[part].splitlines() if r.startswith(f"| {name.split()[1]} |")
    )
    _, columns = accelerator.TABLES[part]
    empty = {key for _, key, _ in columns if piece.get(key) is None}
    assert empty <= {"of_peak", "peak_bytes", "released_over_ours", "released_mb", "gradient_difference"}
    assert row.count("| - ") == len(empty)


def test_page_is_made_from_its_record():
    page, record = DESIGN / "accelerator.md", accelerator.read(DESIGN / "accelerator.json", "full")
    assert page.read_text() == objectives.written(page, accelerator.parts(record))
