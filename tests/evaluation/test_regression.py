"""Sentiment measures against their formulas, scikit-learn and scipy, and the choice of the penalty."""

import numpy as np
import pytest
import scipy.stats
import sklearn.linear_model
import sklearn.metrics

from mvcl import evaluation


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
    }
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-12, err_msg=name)


def test_constant_predictions_have_zero_correlation():
    found = evaluation.regression_measures(np.ones(4), np.array([1.0, -1.0, 2.0, 0.0]))
    assert found["Pearson"] == 0
    assert found["accuracy positive"] == 2 / 3
    # Only "positive" is predicted: 2 * 2 / (3 + 2), for two of three rows.
    np.testing.assert_allclose(found["F1 positive"], 0.8 * 2 / 3)


def test_ridge_equals_scikit_learn(rng):
    x, y = rng.normal(size=(30, 8)) + 2, rng.normal(size=30)
    weights, intercepts = evaluation.ridge(x, y, [0.01, 1.0])
    for w, b, penalty in zip(weights, intercepts, (0.01, 1.0)):
        reference = sklearn.linear_model.Ridge(alpha=30 * penalty).fit(x, y)
        np.testing.assert_allclose(w, reference.coef_, rtol=1e-9)
        np.testing.assert_allclose(b, reference.intercept_, rtol=1e-9)


def test_penalty_comes_from_the_validation_split_and_test_is_scored_once(rng):
    n, d = 60, 40
    w = rng.normal(size=d)
    train, valid, test = (rng.normal(size=(m, d)) for m in (n, 50, 50))
    y, v, t = (x @ w + 4 * rng.normal(size=len(x)) for x in (train, valid, test))
    penalties = (1e-4, 1e-1, 1.0, 100.0)
    results = evaluation.sentiment_regression(
        train, y, test, t, valid_features=valid, valid_targets=v, penalties=penalties
    )
    scale = train.std(0)
    fits = [sklearn.linear_model.Ridge(alpha=n * p).fit(train / scale, y) for p in penalties]
    best = min(fits, key=lambda fit: np.abs(fit.predict(valid / scale) - v).mean())
    assert best is not fits[0]  # a weak penalty fits the noise
    expected = np.abs(best.predict(test / scale) - t).mean()
    by_name = {r.name: r for r in results}
    np.testing.assert_allclose(by_name["MAE"].value, expected, rtol=1e-6)
    assert "50 rows of the validation split" in by_name["MAE"].protocol


def test_holds_out_whole_groups():
    # A feature that identifies the speaker predicts within a speaker only: holding out rows would overestimate it.
    rng = np.random.default_rng(3)
    groups = np.repeat(np.arange(20), 10)
    score = rng.normal(size=20)
    names = np.eye(20)[groups] * 5
    x = np.concatenate([names, 0.3 * score[groups][:, None] + 0.3 * rng.normal(size=(200, 1))], 1)
    y = score[groups] + 0.1 * rng.normal(size=200)
    options = {"penalties": (1e-3, 30.0)}
    new = np.concatenate([np.zeros((50, 20)), 0.3 * rng.normal(size=(50, 1))], 1)
    answer = new[:, -1] / 0.3
    rows = {r.name: r.value for r in evaluation.sentiment_regression(x, y, new, answer, **options)}
    whole = {
        r.name: r.value for r in evaluation.sentiment_regression(x, y, new, answer, groups=groups, **options)
    }
    assert rows != whole
    with pytest.raises(ValueError, match="got 2"):
        evaluation.sentiment_regression(x, y, new, answer, groups=groups // 10)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"test_features": np.ones((3, 5))}, "one width"),
        ({"train_targets": np.ones(9)}, r"train_features and train_targets .* got \(10, 4\) and \(9,\)"),
        ({"test_targets": np.array([1.0, np.nan, 0.0])}, "test_targets must be finite"),
        ({"penalties": ()}, "positive numbers, at least one"),
        ({"valid_features": np.ones((3, 4))}, "given together"),
    ],
)
def test_raises_on_bad_input(rng, change, message):
    given = {
        "train_features": rng.normal(size=(10, 4)),
        "train_targets": rng.normal(size=10),
        "test_features": rng.normal(size=(3, 4)),
        "test_targets": rng.normal(size=3),
    }
    given |= change
    data = [given.pop(k) for k in ("train_features", "train_targets", "test_features", "test_targets")]
    with pytest.raises(ValueError, match=message):
        evaluation.sentiment_regression(*data, **given)
