"""SEM's tables: rows with shared reconstruction, and reading the run folders."""

import dataclasses

import jax
import numpy as np
import pytest

from benchmarks import sem
from mvcl import data, evaluation, training

TABLE = sem.Table(
    "digits",
    data.DigitsViews(),
    sem.ROWS,
    {"hidden": (32,), "features": 16, "embedding": 8},
    pretrain=2,
    rounds=1,
    epochs=2,
    protocol=evaluation.Clustering(features="head", svm_share=0, runs=2, starts=1),
)
NAMED = {row.name: row for row in sem.ROWS}


@pytest.mark.parametrize(
    "name", ["SEM, PSCL, JSD", "InfoNCE without W and R", "SEM, InfoNCE, CMI, sample weights"]
)
@pytest.mark.slow
def test_row_from_the_shared_reconstruction_equals_a_full_run(name, tmp_path):
    row = NAMED[name]
    continued = sem.trained(TABLE, row, 3, tmp_path)
    whole = tmp_path / "whole"
    training.train(sem.config_of(TABLE, row, 3), whole)
    states = [training.open_run(folder)[1] for folder in (continued, whole)]
    for a, b in zip(*map(jax.tree.leaves, states), strict=True):
        np.testing.assert_array_equal(a, b)
    assert (continued / "evaluation.json").read_text() == (whole / "evaluation.json").read_text()
    assert sem.lines_of(continued / "metrics.jsonl")[0]["step"] > 2 * (1797 // sem.BATCH)


@pytest.mark.slow
def test_tables_are_read_from_the_run_folders(tmp_path, monkeypatch):
    table = dataclasses.replace(TABLE, name="OTHER", pretrain=1, epochs=1)
    row = NAMED["SEM, InfoNCE, CMI"]
    folder = sem.trained(table, row, 0, tmp_path)
    assert folder == tmp_path / "OTHER" / "SEM_InfoNCE_CMI" / "0"
    trial = sem.trial(folder)
    assert trial["epochs"] == [1, 2]
    assert np.shape(trial["views"]) == (2, 6)
    assert np.shape(trial["weights"]) == (1, 6, 6)
    lines = sem.main_table(table, tmp_path)
    assert [line.split(" | ")[0] for line in lines[2:]] == [
        "| K-Means-BSV, the best view raw",
        "| K-means, all views raw",
        "| SEM, InfoNCE, CMI",
    ]
    assert f"| 1 | {100 * trial['ACC']:.1f} |" in lines[-1]
    assert len(sem.main_table(sem.Table(sem.HANDWRITTEN, None, sem.ROWS), tmp_path)) == 2
