"""Run folders and pages that several tests read."""

import json

import pytest
from run_pages import drawn, edit, measured, write_decomposition, write_geometry, write_refreshes, write_run


@pytest.fixture
def make_run(tmp_path):
    return lambda name, **options: write_run(tmp_path / name, **options)


@pytest.fixture
def run(make_run):
    return make_run("first")


@pytest.fixture(scope="session")
def whole(tmp_path_factory):
    """A run with all files, on tables of two kinds, and its page, drawn once."""
    run = write_refreshes(write_geometry(write_run(tmp_path_factory.mktemp("whole") / "run", k=2)))
    write_decomposition(run)
    edit(run, "evaluation.json", lambda c: c.update(warnings=["the features have collapsed"]))
    (run / "time.json").write_text(json.dumps({"training": 3000.0, "evaluating": 600.0, "compiling": 400.0}))
    return run, drawn(run, out=run.parent / "new" / "report.html")


@pytest.fixture(scope="session")
def two_by_three(tmp_path_factory):
    """Two configurations with three seeds each, and their page, drawn once."""
    folder = tmp_path_factory.mktemp("seeds")
    values = {("low", 0.1): (0.80, 0.82, 0.84), ("high", 0.2): (0.90, 0.91, 0.95)}
    runs = [
        measured(write_run(folder / f"{name}/seed{seed}", epsilon=epsilon), seed, knn)
        for (name, epsilon), of in values.items()
        for seed, knn in enumerate(of)
    ]
    return runs, drawn(*runs, out=folder / "report.html")
