"""The benchmark of accelerators, in its small size: slices, what they keep, and the page."""

import json
from pathlib import Path

import pytest

from benchmarks import accelerator
from benchmarks import accelerator_cases as cases

DOCS = Path(__file__).parents[2] / "docs"
ALL = accelerator.names(cases.SMALL)


def call(folder, *arguments):
    return accelerator.main(["--size", "small", "--out", str(folder), *arguments])


def record_of(folder):
    return json.loads((folder / "small.json").read_text())


def test_page_in_docs_is_made_from_its_record():
    record = accelerator.read(DOCS / "design" / "accelerator.json", "full")
    assert (DOCS / "design" / "accelerator.md").read_text() == accelerator.page(record, "full")


@pytest.mark.exhaustive
def test_small_size_is_measured(tmp_path):
    """Without PyTorch; the ratios are positive, and the products of the floor are counted by hand."""
    assert call(tmp_path) == 0
    results = {name: piece["result"] for name, piece in record_of(tmp_path)["pieces"].items()}
    assert list(results) == ALL
    loss, transported, step = (results[ALL[i]] for i in (0, 2, 3))
    assert loss["floor_gflop"] == pytest.approx(4 * 2 * 2 * 32**2 * 16 / 1e9)
    for found in (loss["over_floor"], transported["over_floor"], transported["ott_over_ours"]):
        assert 0 < found["low"] <= found["median"] <= found["high"]
    assert transported["converged"]
    assert (step["k"], step["examples"]) == (4, 4)
    assert step["tflop"] > 0
    assert step["of_peak"] is None  # of a CPU none is known
