"""Runs of several seeds: their folders, seeds, mean and deviation."""

import json

import numpy as np
import pytest

from mvcl import cli, evaluation, training
from mvcl.training import _train


def test_averages_the_tables_of_consecutive_seeds(monkeypatch, tmp_path):
    values = {4: (0.25, None), 5: (0.75, 0.5)}
    seen = []

    def train(config, folder, *, reference, page):
        seen.append((config.train.seed, folder))
        return {
            row: [evaluation.Result("MAE", value, 0.1, "how")]
            for row, value in zip(("trained encoder", "raw input"), values[config.train.seed])
        }

    monkeypatch.setattr(_train, "train", train)
    config = training.Config(train=training.Train(seed=4))
    rows = training.train_seeds(config, tmp_path, 2)
    assert seen == [(4, tmp_path / "seed4"), (5, tmp_path / "seed5")]
    [mean], [raw] = rows["trained encoder"], rows["raw input"]
    assert (mean.name, mean.value) == ("MAE", 0.5)
    np.testing.assert_allclose(mean.deviation, np.std([0.25, 0.75], ddof=1))
    assert mean.protocol == "how, mean and standard deviation of 2 seeds"
    assert raw.value is None  # one of the runs did not measure it


def test_no_seed_is_refused(tmp_path):
    with pytest.raises(ValueError, match="seeds must be at least 1, got 0"):
        training.train_seeds(training.Config(), tmp_path, 0)


@pytest.mark.slow  # two runs
def test_sentiment_is_averaged_over_seeds_and_layers(tmp_path, capsys):
    options = ["--seeds", "2", "--workdir", str(tmp_path), "--train.steps", "2"]
    assert cli.main(["train", "koromilas/sentiment:smoke", *options]) == 0
    saved = json.loads((tmp_path / "results.json").read_text())["trained encoder"]
    of_seeds = [json.loads((tmp_path / f"seed{s}" / "evaluation.json").read_text()) for s in (0, 1)]
    values = [table["rows"]["trained encoder"][0]["value"] for table in of_seeds]
    assert saved[0]["name"] == "MAE"
    np.testing.assert_allclose(saved[0]["value"], np.mean(values))
    assert "mean of 3 linear layers" in saved[0]["protocol"]
    assert "of 2 seeds" in saved[0]["protocol"]
    assert values[0] != values[1]
    assert (tmp_path / "report.html").is_file()
    assert "report:" in capsys.readouterr().out
