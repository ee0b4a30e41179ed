"""Our side of the benchmark beside released code, and the numbers that docs/reference/objectives.md has of both."""

import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from parametrize import some

from benchmarks import released, smoke
from docs import objectives

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "reference" / "objectives.md"
RESULTS = json.loads((DOCS / "design" / "released.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("place", some(range(len(released.DIFFERENCES)), fast=[7]))
def test_page_has_our_values_and_options_give_the_released_ones(place, tmp_path, monkeypatch):
    text, case = PAGE.read_text(encoding="utf-8"), released.DIFFERENCES[place]
    part = re.search(r"<!-- released values -->\n(.*?)<!-- end -->", text, re.DOTALL)[1]
    line = [line for line in part.splitlines() if line.startswith("| `")][place]
    row = [cell.strip() for cell in line.strip("|").split("|")]
    monkeypatch.setattr(released, "DIFFERENCES", [case])
    [ours] = released.values(released.Torch(None, None, tmp_path))
    assert row[:4] == ours[:4], "python -m benchmarks.released --values --write docs/reference/objectives.md"
    assert ours[4] == "-"
    if case.code is None:
        assert not np.isclose(float(row[4]), float(row[2].split()[0]), rtol=1e-5)
    else:
        # of float32, and of the last of six decimals
        np.testing.assert_allclose(float(row[4]), float(row[3].split()[0]), rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("name", some(released.edges(), fast=["vicreg"]))
def test_gradients_at_edges_are_finite(name):
    _, z = released.edges()[name]
    assert np.isfinite(released.gradient_of(name, z)).all()


def test_page_has_the_measured_numbers():
    page = DOCS / "design" / "released.md"
    expected = objectives.written(page, released.parts(RESULTS))
    assert page.read_text(encoding="utf-8") == expected, f"python -m benchmarks.released --write {page}"


def test_measured_are_the_cases_with_values_and_gradients_of_the_released_code():
    """Or the page says why not."""
    rows = {row["name"]: row for row in RESULTS["rows"]}
    assert rows.keys() == released.CASES.keys()
    for name, case in released.CASES.items():
        row = rows[name]
        assert (row["loss"], row["shape"]) == (released.expression(case.loss), list(case.shape))
        assert row["released_ms"] > 0
        if not case.differs:
            np.testing.assert_allclose(row["value"], row["released_value"], rtol=1e-4)
            assert row["gradient_difference"] < 1e-4


def test_a_failure_fails_the_smoke_run_at_its_end(monkeypatch, capsys):
    monkeypatch.setattr(smoke.cli, "main", lambda arguments: 2)
    monkeypatch.setattr(sys, "argv", ["smoke", "first", "second"])
    assert smoke.main() == 1
    assert "0 of 2 pass" in capsys.readouterr().out
