"""Objectives side by side, with runs that are written and not trained."""

import json

import pytest

import mvcl
from mvcl import cli, losses, studies, training


@pytest.fixture
def trained(monkeypatch):
    """The configs that were trained, of which each has an accuracy near 1."""
    found = []

    def train(config, folder):
        found.append(config)
        accuracy = 1.0 - 0.1 * (config.train.seed == 0) - 0.02 * (config.views.k == 2)
        of = {"name": "k-NN", "value": accuracy, "deviation": None, "protocol": "", "better": "higher"}
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.json").write_text(training.to_json(config))
        (folder / "evaluation.json").write_text(json.dumps({"rows": {"trained encoder": [of]}}))
        (folder / "metrics.jsonl").write_text(json.dumps({"step": 1, "epoch": 1.0, "loss": 0.5}))

    monkeypatch.setattr(training, "train", train)
    return found


def test_intervals_of_shares_and_runs_that_are_kept(trained, tmp_path):
    config, both = training.load("digits:vectors"), (losses.mv_dhel, losses.mv_infonce)
    for _ in range(2):
        found = studies.compare(config, both, tmp_path / "a", seeds=2, levels={"views.k": (2, 4)})
    assert len(trained) == 8  # once
    assert found["mean"].tolist() == pytest.approx([0.93, 0.93, 0.95, 0.95])
    assert found["high"].max() == 1
    assert found["minus_first"].dropna().tolist() == [0, 0]
    expected = 2 * [0.88] + 2 * [0.9] + 2 * [0.98] + 2 * [1]
    assert sorted(mvcl.runs(tmp_path / "cells")["k-NN"]) == pytest.approx(expected)
    (tmp_path / "metrics.jsonl").touch()  # of a run that has logged nothing
    assert (mvcl.curves(tmp_path)["loss"] == 0.5).all()
    assert "| mv_infonce | 4 | 95.0 [31.5, 100.0] |" in (tmp_path / "a" / "compare.md").read_text()
    with pytest.raises(ValueError, match="objectives must be functions of different names"):
        studies.compare(config, [losses.mv_dhel] * 2, tmp_path / "b")


def test_objectives_of_a_file_on_the_command_line(trained, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text("def loss(z, weight=2.0):\n    return weight * (z**2).mean()\n")
    command = ["compare", "digits:vectors", "--seeds", "1", "--objectives", "mv_dhel", "mine.py:loss"]
    assert cli.main([*command, "--set", "views.k=2,4", "--train.steps", "7"]) == 0
    assert [(config.views.k, config.train.steps) for config in trained] == [(2, 7), (2, 7), (4, 7), (4, 7)]
    assert "mine.py:loss" in capsys.readouterr().out
    assert cli.main([*command[:2], "--objectives", "mine.py:other"]) == 2
    assert "mine.py has no function other" in capsys.readouterr().err
