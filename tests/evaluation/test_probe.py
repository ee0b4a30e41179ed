"""Probes against scikit-learn's logistic regression, and properties of the protocols."""

import numpy as np
import pytest
from parametrize import some
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from mvcl.evaluation import draw_labels, few_label_probe, fit_logistic, linear_probe


@pytest.fixture(scope="module")
def digits():
    """The 1437/360 split of scikit-learn's digits: pixels in [0, 1] and labels of each part."""
    x, y = load_digits(return_X_y=True)
    x = (x / 16).astype(np.float32)
    a, b, c, d = train_test_split(x, y, test_size=360, stratify=y, random_state=0)
    return (a, c), (b, d)


@pytest.fixture(autouse=True)
def one_blas_thread():
    """On busy cores, BLAS threads wait for each other in these small fits."""
    with threadpool_limits(1):
        yield


@pytest.mark.parametrize("case", some([(1e-2, 1e-2), (1e-1, 1e-3), (1e-4, None)], fast=[(1e-2, 1e-2)]))
def test_fit_equals_scikit_learn(digits, case):
    penalty, atol = case
    x, y = (a[:300] for a in digits[0])
    reference = LogisticRegression(C=1 / (300 * penalty), tol=1e-8, max_iter=10000).fit(x.astype(float), y)
    found = fit_logistic(x, y, penalty, num_classes=10)

    def value(weights, intercept):
        logits = x @ weights + intercept
        logits -= logits.max(1, keepdims=True)
        log_p = logits - np.log(np.exp(logits).sum(1, keepdims=True))
        return -log_p[np.arange(300), y].mean() + penalty / 2 * np.sum(weights**2)

    least = value(reference.coef_.T, reference.intercept_)
    assert least <= value(found[:-1], found[-1]) < least + 1e-5
    if atol is not None:  # gradient entries of 1e-5 leave weights uncertain by up to 1e-5 / penalty each
        np.testing.assert_allclose(found[:-1], reference.coef_.T, atol=atol)


def test_linear_probe_on_digits_pixels(digits):
    """Equals scikit-learn at the chosen penalty, which is 1e-3."""
    (accuracy,), penalty = linear_probe(*digits, num_classes=10)
    (x, y), (test, answer) = digits
    scale = StandardScaler().fit(x)
    reference = LogisticRegression(C=1 / (len(x) * penalty), max_iter=5000, tol=1e-6)
    reference.fit(scale.transform(x), y)
    assert abs(accuracy - reference.score(scale.transform(test), answer)) <= 1.01 / 360
    assert 0.95 < accuracy < 0.99


def test_linear_probe_chooses_the_penalty_on_the_training_split(rng):
    """Many noise features, few rows: the choice does not depend on the test labels."""
    y = np.repeat(np.arange(2), 30)
    x = rng.normal(size=(60, 200)).astype(np.float32)
    x[:, :20] += 0.5 * y[:, None]
    test, answer = x[:10], 1 - y[:10]  # deliberately wrong
    tests = (test, answer), (test, 1 - answer)
    (wrong, right), penalty = linear_probe((x, y), *tests, num_classes=2, penalties=(1.0, 1e-6))
    _, again = linear_probe((x, y), tests[1], num_classes=2, penalties=(1.0, 1e-6))
    assert penalty == again
    assert wrong < 0.2
    assert wrong + right == 1


def test_draws_are_class_balanced_and_depend_on_seed_and_labels_only(rng):
    y = rng.permutation(np.repeat(np.arange(4), 25))
    rows = draw_labels(y, num_classes=4, labels_per_class=5, draws=6, seed=3)
    assert rows.shape == (6, 20)
    for drawn in rows:
        np.testing.assert_array_equal(np.bincount(y[drawn]), [5, 5, 5, 5])
        assert len(set(drawn)) == 20
    assert len({tuple(drawn) for drawn in rows}) == 6
    np.testing.assert_array_equal(rows, draw_labels(y, num_classes=4, labels_per_class=5, draws=6, seed=3))
    assert (rows != draw_labels(y, num_classes=4, labels_per_class=5, draws=6, seed=4)).any()
    more = draw_labels(y, num_classes=4, labels_per_class=10, draws=8, seed=3)
    np.testing.assert_array_equal(more.reshape(8, 4, 10)[:6, :, :5].reshape(6, 20), rows)


def test_few_label_probe_on_digits_pixels_equals_scikit_learn(digits):
    (x, y), (test, answer) = digits
    found = few_label_probe(*digits, num_classes=10, labels_per_class=10, draws=3)
    scale = np.sqrt(np.mean(np.sum((x - x.mean(0)) ** 2, 1)))
    expected = []
    for rows in draw_labels(y, num_classes=10, labels_per_class=10, draws=3, seed=0):
        model = LogisticRegression(C=1 / (100 * 1e-4), max_iter=10000, tol=1e-7)
        model.fit((x[rows] - x.mean(0)) / scale, y[rows])
        expected.append(model.score((test - x.mean(0)) / scale, answer))
    np.testing.assert_allclose(found, expected, atol=1.01 / 360)


def test_bad_input(digits):
    (x, y), (test, answer) = ((a[:100], b[:100]) for a, b in digits)
    with pytest.raises(ValueError, match=r"must have 50 rows of every class, got \d+ of class 0"):
        few_label_probe((x, y), (test, answer), num_classes=10, labels_per_class=50)
    with pytest.raises(ValueError, match=r"train_labels must be in \[0, 5\), got 0 to 9"):
        linear_probe((x, y), (test, answer), num_classes=5)
    with pytest.raises(ValueError, match="and test_features must be equally wide, got 3 for test and 64"):
        linear_probe((x, y), (test[:, :3], answer), num_classes=10)
    gap = np.where(np.arange(64) + 64 * np.arange(100)[:, None] == 7, np.nan, x)
    with pytest.raises(ValueError, match="train_features must be finite: 1 are not"):
        linear_probe((gap, y), (test, answer), num_classes=10)
    with pytest.raises(ValueError, match="must have 5 rows of some class"):
        linear_probe((x[:4], np.arange(4)), (test, answer), num_classes=10)
