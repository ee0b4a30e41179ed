"""Runs of several seeds: their folders, seeds, mean and deviation."""

import numpy as np
import pytest

from mvcl import evaluation, training
from mvcl.training import _train


def test_averages_the_tables_of_consecutive_seeds(monkeypatch, tmp_path):
    values = {4: (0.25, None), 5: (0.75, 0.5)}
    seen = []

    def train(config, folder, *, page):
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
