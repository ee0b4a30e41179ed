"""SEM's tables: rows with shared reconstruction, and reading the run folders."""

import dataclasses

import jax
import numpy as np
import pytest

from benchmarks import sem
from mvcl import evaluation, training

RECIPE = training.load(f"{sem.RECIPES}:digits_views")
METHOD = dataclasses.replace(
    RECIPE.method,
    hidden=(32,),
    features=16,
    embedding=8,
    pretrain_epochs=2,
    update_epochs=2,
    watch_epochs=0,
    k_means_starts=2,
)
TABLE = sem.Table(
    "digits",
    dataclasses.replace(
        RECIPE,
        method=METHOD,
        train=dataclasses.replace(RECIPE.train, epochs=4),
        mesh=training.Mesh(data=1),
        evaluation=evaluation.Clustering(features="head", svm_share=0, runs=2, starts=1),
    ),
    sem.ROWS,
)
NAMED = sem.NAMED


@pytest.mark.parametrize(
    "name",
    [
        "SEM, PSCL, JSD",
        "InfoNCE without W and R",
        "SEM, optimiser restarts",
        "SEM, InfoNCE, CMI, sample weights",
    ],
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
    assert sem.lines_of(continued / "metrics.jsonl")[0]["step"] >= 2 * (1797 // 256)


@pytest.mark.slow
def test_tables_are_read_from_the_run_folders(tmp_path, monkeypatch):
    method = dataclasses.replace(METHOD, pretrain_epochs=1, update_epochs=1)
    short = dataclasses.replace(TABLE.recipe.train, epochs=2)
    table = dataclasses.replace(
        TABLE, name="OTHER", recipe=dataclasses.replace(TABLE.recipe, method=method, train=short)
    )
    row = NAMED["SEM, InfoNCE, CMI"]
    folder = sem.trained(table, row, 0, tmp_path)
    assert folder == tmp_path / "OTHER" / "SEM_InfoNCE_CMI" / "0"
    trial = sem.trial(folder)
    assert trial["epochs"] == [1, 2]
    assert np.shape(trial["views"]) == (2, 6)
    assert np.shape(trial["weights"]) == (1, 6, 6)
    assert np.shape(trial["rounds"]) == (2, 2)
    rounds = sem.rounds_table(table, tmp_path)
    assert rounds[0] == "| | seeds | reconstruction alone, ACC, NMI | after round 1, ACC, NMI |"
    assert f"| 1 | {100 * trial['rounds'][0][0]:.1f}, " in rounds[-1]
    lines = sem.main_table(table, tmp_path)
    assert [line.split(" | ")[0] for line in lines[2:]] == [
        "| K-Means-BSV, the best view raw",
        "| K-means, all views raw",
        "| SEM, InfoNCE, CMI",
    ]
    assert f"| 1 | {100 * trial['ACC']:.1f} |" in lines[-1]
    assert len(sem.main_table(sem.Table(sem.HANDWRITTEN, RECIPE, sem.ROWS), tmp_path)) == 2


def test_rows_change_what_their_names_say():
    recipe = training.load(f"{sem.RECIPES}:handwritten")
    table = sem.Table("x", recipe, sem.ROWS)
    for row in sem.ROWS:
        config = sem.config_of(table, row, 3)
        differing = {
            field.name
            for field in dataclasses.fields(config.method)
            if getattr(config.method, field.name) != getattr(recipe.method, field.name)
        }
        assert differing == {name for name in row.method if row.method[name] != getattr(recipe.method, name)}
        assert config.train.seed == 3
        assert config.train.epochs - config.method.pretrain_epochs == 100
    assert NAMED["SEM, InfoNCE, CMI, MAE"].reconstruction == "reconstruction, reconstruction mae"
    assert (
        NAMED["InfoNCE without R"].reconstruction
        == NAMED["SEM, PSCL, JSD"].reconstruction
        == "reconstruction"
    )


def test_rows_are_chosen_by_their_whole_names():
    tables = [TABLE, dataclasses.replace(TABLE, rows=sem.DIGIT_ROWS)]
    assert sem.named(["SEM, PSCL, CMI", "SEM as released"], tables) == ["SEM, PSCL, CMI", "SEM as released"]
    assert sem.named([], tables) == list(NAMED)
    with pytest.raises(ValueError, match=r"there is no row 'SEM'; there are 'SEM, InfoNCE, CMI', 'InfoNCE w"):
        sem.named(["SEM"], tables)


def test_each_option_of_the_released_training_has_a_row():
    recipe = training.load(f"{sem.RECIPES}:handwritten")
    released = dataclasses.replace(recipe.method, as_released=True)._resolved()
    parts = {
        field.name: getattr(released, field.name)
        for field in dataclasses.fields(released)
        if getattr(released, field.name) != getattr(recipe.method, field.name)
    }
    assert parts.pop("as_released")
    assert len(parts) == 4
    for name, value in parts.items():
        assert {name: value} in [row.method for row in sem.ROWS]


def test_a_table_has_the_name_the_schedule_and_the_runs_of_its_own_data(tmp_path):
    first, second = tmp_path / "a" / "T.npz", tmp_path / "b" / "T.npz"
    for i, file in enumerate((first, second)):
        file.parent.mkdir()
        np.savez(file, X1=np.full((4, 2), i), X2=np.ones((4, 3)))
    table = sem.table_of(f"{sem.RECIPES}:tables", first, 3)
    assert table.name == "T"
    assert table.recipe.data.path == str(first)
    assert table.recipe.train.epochs == 100 + 3 * 50
    caltech = sem.table_of(f"{sem.RECIPES}:caltech", first, None)
    assert caltech.recipe.train.epochs == 400
    out = tmp_path / "runs"
    sem.claim(table, out, first)
    moved = tmp_path / "c" / "T.npz"
    moved.parent.mkdir()
    moved.write_bytes(first.read_bytes())
    sem.claim(sem.table_of(f"{sem.RECIPES}:tables", moved, 3), out, moved)
    with pytest.raises(ValueError, match="T has runs of other data of that name"):
        sem.claim(sem.table_of(f"{sem.RECIPES}:tables", second, 3), out, second)
    with pytest.raises(ValueError, match="T has runs of another recipe of that name"):
        sem.claim(sem.table_of(f"{sem.RECIPES}:tables", first, 2), out, first)
