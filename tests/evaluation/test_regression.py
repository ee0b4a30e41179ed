"""Sentiment measures against their formulas, scikit-learn and scipy; trained layers; the choice of the rate."""

import dataclasses

import numpy as np
import pytest
import scipy.stats
import sklearn.metrics
from parametrize import some

from mvcl import evaluation
from mvcl.evaluation import MaeProbe
from mvcl.evaluation._regression import _layers


def f1_weighted(true, predicted):
    """Mean of both classes' 2 hits / (rows of the class + rows predicted as it), weighted by the rows of the class."""
    kinds = (true, predicted), (~true, ~predicted)
    return sum(2 * (t & s).sum() / (t.sum() + s.sum()) * t.mean() for t, s in kinds)


def test_measures_equal_their_formulas(rng):
    targets = np.round(rng.normal(size=200), 0)  # many zeros
    predictions = targets + rng.normal(size=200)
    found = evaluation.regression_measures(predictions, targets)
    signed = targets != 0
    expected = {
        "MAE": sklearn.metrics.mean_absolute_error(targets, predictions),
        "Pearson": scipy.stats.pearsonr(targets, predictions).statistic,
        "accuracy non-negative": sklearn.metrics.accuracy_score(targets >= 0, predictions >= 0),
        "F1 non-negative": f1_weighted(targets >= 0, predictions >= 0),
        "accuracy positive": sklearn.metrics.accuracy_score(targets[signed] > 0, predictions[signed] > 0),
        "F1 positive": f1_weighted(targets[signed] > 0, predictions[signed] > 0),
        "accuracy above zero": sklearn.metrics.accuracy_score(targets > 0, predictions > 0),
        "F1 above zero": f1_weighted(targets > 0, predictions > 0),
    }
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-12, err_msg=name)


def test_holds_out_whole_groups():
    # A feature that identifies the speaker predicts within a speaker only: holding out rows would overestimate it.
    rng = np.random.default_rng(3)
    groups = np.repeat(np.arange(20), 10)
    score = rng.normal(size=20)
    names = np.eye(20)[groups] * 5
    x = np.concatenate([names, 0.3 * score[groups][:, None] + 0.3 * rng.normal(size=(200, 1))], 1)
    y = score[groups] + 0.1 * rng.normal(size=200)
    new = np.concatenate([np.zeros((50, 20)), 0.3 * rng.normal(size=(50, 1))], 1)
    given = ((x, y), (new, new[:, -1] / 0.3))
    probe = MaeProbe(learning_rates=(1e-3, 1e-1), layers=1, epochs=30, weight_decay=0.0)
    rows, whole = (evaluation.mae_probe(*given, probe=probe, groups=g) for g in (None, groups))
    assert rows[0].value > whole[0].value
    with pytest.raises(ValueError, match="got 2"):
        evaluation.mae_probe(*given, probe=probe, groups=groups // 10)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"test": (np.ones((3, 5)), np.ones(3))}, "one width"),
        ({"train": (np.ones((10, 4)), np.ones(9))}, r"train must be .* got \(10, 4\) and \(9,\)"),
        ({"test": (np.ones((3, 4)), np.array([1.0, np.nan, 0.0]))}, "test must have finite"),
    ],
)
def test_raises_on_bad_input(change, message):
    given = {"train": (np.eye(10, 4), np.arange(10.0)), "test": (np.ones((3, 4)), np.ones(3))}
    with pytest.raises(ValueError, match=message):
        evaluation.mae_probe(**given | change, probe=MaeProbe())


@pytest.mark.parametrize("decay", some(["constant", "cosine"], fast=["cosine"]))
def test_layers_follow_adamw(rng, decay):
    x, y = rng.normal(size=(20, 3)), rng.normal(size=20)
    rates, steps, decay_of_weights = (0.01, 0.1), 4, 0.3
    probe = MaeProbe(layers=2, epochs=steps, batch_size=99, weight_decay=decay_of_weights, decay=decay)
    first, bias = _layers(probe, x, y, (1e-30,), 7)
    found, found_bias = _layers(probe, x, y, rates, 7)
    assert found.shape == (2, 2, 3)
    assert np.abs(first[0, 0] - first[0, 1]).max() > 0.01  # layers start apart
    assert np.abs(first).max() <= 3**-0.5
    for layer in range(2):
        for r, rate in enumerate(rates):
            w = np.append(first[0, layer], bias[0, layer]).astype(np.float64)
            design = np.concatenate([x, np.ones((20, 1))], 1)
            m, v = np.zeros(4), np.zeros(4)
            for step in range(steps):
                gradient = (np.sign(design @ w - y)[:, None] * design).mean(0)
                m, v = 0.9 * m + 0.1 * gradient, 0.999 * v + 0.001 * gradient**2
                update = (m / (1 - 0.9 ** (step + 1))) / (np.sqrt(v / (1 - 0.999 ** (step + 1))) + 1e-8)
                scale = (1 + np.cos(np.pi * step / steps)) / 2 if decay == "cosine" else 1
                w = w - rate * scale * (update + decay_of_weights * w)
            both = np.append(found[r, layer], found_bias[r, layer])
            np.testing.assert_allclose(both, w, rtol=2e-4, atol=2e-5)


def test_rate_has_the_least_error_on_the_validation_split(rng):
    w = rng.normal(size=4)
    x, v, t = (rng.normal(size=(80, 4)) for _ in range(3))
    rates = (1e-6, 3e-2, 30.0)  # too small to move, good, too large to settle
    probe = MaeProbe(learning_rates=rates, layers=1, epochs=40, batch_size=16, decay="constant")
    rows = ((x, x @ w), (t, t @ w))
    chosen = evaluation.mae_probe(*rows, probe=probe, valid=(v, v @ w))
    held_out = evaluation.mae_probe(*rows, probe=probe)
    each = [dataclasses.replace(probe, learning_rates=(rate,)) for rate in rates]
    alone = [evaluation.mae_probe(*rows, probe=of)[0] for of in each]
    assert alone[1].value < 0.5 * min(alone[0].value, alone[2].value)
    assert chosen[0].value == held_out[0].value == alone[1].value
    on_validation = evaluation.mae_probe(rows[0], (v, v @ w), probe=each[1])
    assert {r.name for r in chosen if r.better == "lower"} == {"MAE", "validation MAE"}
    assert chosen[-1].name == "validation MAE"
    assert chosen[-1].value == pytest.approx(on_validation[0].value)
    assert [result.name for result in held_out] == [result.name for result in chosen[:-1]]
    assert "80 rows of the validation split" in chosen[0].protocol
    assert "a held-out fifth" in held_out[0].protocol
