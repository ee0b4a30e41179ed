"""The study of epsilon: it goes on where it stopped, and its page shows its rows."""

import json

import pytest

from benchmarks import epsilon

ROWS = json.loads((epsilon.ROOT / "docs" / "design" / "epsilon.json").read_text())


def row_of(n, k, e, seed):
    return {"n": n, "k": k, "epsilon": e, "seed": seed, "accuracy": 0.5, "mass": 0.1, "seconds": 0.0}


def test_every_run_of_the_page_is_made_once():
    done = [tuple(row[name] for name in epsilon.CELL) for row in ROWS]
    assert sorted(done) == sorted(set(epsilon.cells()))
    assert len(epsilon.cells()) == len(set(epsilon.cells()))


def test_page_is_that_of_its_rows():
    text = (epsilon.ROOT / "docs" / "design" / "epsilon.md").read_text()
    assert text.startswith(epsilon.page(ROWS) + epsilon.FINDINGS), "run python -m benchmarks.epsilon --page"


def test_goes_on_with_the_runs_that_are_missing(tmp_path, monkeypatch):
    path, trained = tmp_path / "rows.json", []

    def run(*cell):
        trained.append(cell)
        if len(trained) == 3:
            raise KeyboardInterrupt
        return row_of(*cell)

    monkeypatch.setattr(epsilon, "run", run)
    with pytest.raises(KeyboardInterrupt):
        epsilon.train_missing(path, 1.0)
    assert len(json.loads(path.read_text())) == 2
    rows = epsilon.train_missing(path, 1.0)
    assert len(rows) == len(epsilon.cells())
    assert len(trained) == len(epsilon.cells()) + 1  # that of the interruption twice
    assert epsilon.train_missing(path, 1.0) == rows
    assert len(trained) == len(epsilon.cells()) + 1


def test_log_odds_are_0_at_chance():
    row = row_of(64, 3, 0.1, 0)
    assert abs(epsilon.log_odds(row | {"mass": 64.0**-2})) < 1e-9
    assert epsilon.log_odds(row) > 0
