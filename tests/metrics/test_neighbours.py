"""Weighted k-NN against loops of the formula and scikit-learn's neighbours."""

import jax
import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.neighbors import KNeighborsClassifier

from mvcl.metrics import _neighbours, weighted_knn


def by_hand(train, labels, test, classes, k, temperature):
    predicted = []
    for x in test:
        cosine = [u @ x / np.linalg.norm(u) / np.linalg.norm(x) for u in train]
        votes = np.zeros(classes)
        for i in sorted(range(len(train)), key=lambda i: -cosine[i])[:k]:
            votes[labels[i]] += np.exp(cosine[i] / temperature)
        predicted.append(votes.argmax())
    return predicted


@pytest.mark.parametrize(("k", "temperature"), [(1, 0.07), (5, 0.07), (20, 0.5), (40, 5.0), (200, 0.07)])
def test_equals_the_formula(x64, rng, k, temperature):
    train, test = rng.normal(size=(40, 3)), rng.normal(size=(60, 3))
    labels = rng.integers(0, 4, size=40)
    found = weighted_knn(train, labels, test, num_classes=4, k=k, temperature=temperature)
    np.testing.assert_array_equal(found, by_hand(train, labels, test, 4, k, temperature))


def test_equals_scikit_learn_on_digits():
    x, y = load_digits(return_X_y=True)
    x = (x / 16).astype(np.float32)
    train, test, labels = x[:1200], x[1200:], y[:1200]
    # scikit-learn's cosine distance is 1 - cos, so its weights are e^{1/0.07} too small, all of them.
    reference = KNeighborsClassifier(
        50, metric="cosine", algorithm="brute", weights=lambda distance: np.exp(-distance / 0.07)
    ).fit(train, labels)
    expected, votes = reference.predict(test), np.sort(reference.predict_proba(test), axis=1)
    clear = votes[:, -1] - votes[:, -2] > 1e-4  # the rest may differ by rounding
    found = weighted_knn(train, labels, test, num_classes=10, k=50)
    np.testing.assert_array_equal(found[clear], expected[clear])
    assert clear.sum() > 590


def test_weights_depend_on_temperature():
    """One near neighbour of class 0 against two farther ones of class 1, at two temperatures.

    cos = 1, 0.8, 0.8: 2 e^{-0.2/0.07} = 0.115 < 1, but 2 e^{-0.2/1} = 1.64 > 1.
    """
    train = np.array([[1, 0], [0.8, 0.6], [0.8, -0.6], [-1, 0]], np.float32)
    labels = np.array([0, 1, 1, 2])
    test = np.array([[7, 0]], np.float32)
    for k, temperature, expected in ((3, 0.07, 0), (3, 1.0, 1), (1, 1.0, 0)):
        found = weighted_knn(train, labels, test, num_classes=3, k=k, temperature=temperature)
        assert found.tolist() == [expected]


def test_low_temperature_and_zero_vectors_are_finite():
    train = np.array([[1, 0], [0, 1], [0, 0]], np.float32)
    test = np.array([[0, 2], [3, 1], [0, 0]], np.float32)
    found = weighted_knn(train, np.array([2, 1, 0]), test, num_classes=3, k=3, temperature=1e-3)
    np.testing.assert_array_equal(found[:2], [1, 2])


def test_result_does_not_depend_on_blocks(rng, monkeypatch):
    train, test = rng.normal(size=(30, 4)), rng.normal(size=(17, 4))
    labels = rng.integers(0, 3, size=30)
    whole = weighted_knn(train, labels, test, num_classes=3, k=7)
    monkeypatch.setattr(_neighbours, "_CELLS", 120)  # 4 test rows at once, the last block 1
    jax.clear_caches()
    np.testing.assert_array_equal(weighted_knn(train, labels, test, num_classes=3, k=7), whole)


def test_memory_does_not_grow_with_the_test_split():
    """Similarities of 8 times as many test rows: 2**27 cells, 2**24 at a time."""

    def temporary(m):
        shapes = [jax.ShapeDtypeStruct(s, d) for s, d in (((2**14, 8), np.float32), ((2**14,), np.int32))]
        test = jax.ShapeDtypeStruct((m, 8), np.float32)
        scale = jax.ShapeDtypeStruct((), np.float32)
        compiled = _neighbours._vote.lower(*shapes, test, scale, num_classes=10, k=20).compile()
        return compiled.memory_analysis().temp_size_in_bytes

    assert temporary(2**13) < 1.2 * temporary(2**10) + 2**20


def test_bad_input():
    x, y = np.ones((4, 2), np.float32), np.array([0, 1, 0, 1])
    with pytest.raises(ValueError, match="as wide as train_features, 2, got 3"):
        weighted_knn(x, y, np.ones((4, 3), np.float32), num_classes=2)
    with pytest.raises(ValueError, match=r"train_labels must be 4 integers.* got int64\[3\]|got int32\[3\]"):
        weighted_knn(x, y[:3], x, num_classes=2)
    with pytest.raises(ValueError, match="train_labels must be 4 integers"):
        weighted_knn(x, y.astype(np.float32), x, num_classes=2)
    with pytest.raises(ValueError, match="train_features must have a floating dtype"):
        weighted_knn(x.astype(np.int32), y, x, num_classes=2)
    with pytest.raises(ValueError, match="k must be a whole number >= 1, got 0"):
        weighted_knn(x, y, x, num_classes=2, k=0)
    with pytest.raises(ValueError, match="temperature must be positive, got 0"):
        weighted_knn(x, y, x, num_classes=2, temperature=0)
