"""Weighted k-NN and recall against loops over cosines and determinants, clustering scores against pairwise formulas."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from parametrize import some

from mvcl import metrics
from mvcl.metrics import _neighbours, recall_at, volume_recall_at, weighted_knn
from tests.losses.brute_force import unit


def by_hand(score, n, ks):
    """Recall, where `score(i, j)` says how near the key of instance j is to instance i; a tie is a miss."""
    ranks = [sum(score(i, j) >= score(i, i) for j in range(n) if j != i) for i in range(n)]
    return np.array([np.mean([rank < k for rank in ranks]) for k in ks])


@pytest.fixture(params=[None, 100], ids=["one block", "blocks"])
def blocks(request, monkeypatch):
    """Blocks of one or two rows, the last one not full; programs are compiled again."""
    if request.param is None:
        yield
        return
    monkeypatch.setattr(_neighbours, "_CELLS", request.param)
    programs = _neighbours._vote, _neighbours._cosine_ranks, _neighbours._volume_ranks
    for program in programs:
        program.clear_cache()
    yield
    for program in programs:
        program.clear_cache()


def test_equals_the_loop(x64, rng, blocks):
    n, d = 43, 5
    ks = (1, 3, 10, n - 1)
    keys = rng.normal(size=(n, d))
    queries = keys + 0.4 * rng.normal(size=(n, d))
    expected = by_hand(lambda i, j: unit(queries[i]) @ unit(keys[j]), n, ks)
    np.testing.assert_allclose(recall_at(queries, keys, ks), expected, rtol=1e-14)
    assert 0 < expected[0] < expected[2] <= expected[3]
    assert recall_at(keys, queries, ks).tolist() != expected.tolist()  # the two directions differ


@pytest.mark.parametrize("others", some([1, 2, 4], fast=[2]))
def test_volume_equals_the_loop(x64, rng, blocks, others):
    ks, n = (1, 2, 5), 31
    views = rng.normal(size=(others + 1, n, 6))
    views = views[-1] + 0.8 * views * np.exp(rng.normal(size=(others + 1, n, 1)))

    def score(i, j):
        a = np.stack([*(unit(view[i]) for view in views[:-1]), unit(views[-1, j])])
        return -np.sqrt(max(np.linalg.det(a @ a.T), 0))

    expected = by_hand(score, n, ks)
    np.testing.assert_allclose(volume_recall_at(views[:-1], views[-1], ks), expected, rtol=1e-14)
    assert 0 < expected[0] < 1


@pytest.mark.parametrize("d", some([1, 3, 64, 515], fast=[64]))
@pytest.mark.parametrize("n", some([2, 37, 130], fast=[37]))
def test_coinciding_vectors_tie(rng, n, d):
    """Products of equal vectors may differ by rounding with their place in the matrix."""
    same = np.broadcast_to(rng.normal(size=d), (n, d)).astype(np.float32)
    expected = [0, 0, 1, 1]
    np.testing.assert_array_equal(recall_at(same, same, (1, n - 1, n, 9 * n)), expected)
    np.testing.assert_array_equal(volume_recall_at(same[None], same, (1, n - 1, n, 9 * n)), expected)
    half = jnp.asarray(same, jnp.bfloat16)
    np.testing.assert_array_equal(recall_at(half, half, (1, n)), [0, 1])


def test_zero_vectors_and_lengths(rng):
    keys = rng.normal(size=(12, 5)).astype(np.float32)
    queries = keys.copy()
    queries[3] = 0  # cosine 0 with all
    np.testing.assert_allclose(recall_at(queries, keys, (1, 11, 12)), [11 / 12, 11 / 12, 1])
    eye = np.eye(4, dtype=np.float32)
    assert recall_at(eye, np.float32(1e30) * eye, (1,)) == 1
    np.testing.assert_array_equal(recall_at(eye, -eye, (3, 4)), [0, 1])
    zero = np.zeros((5, 2), np.float32)
    np.testing.assert_array_equal(recall_at(zero, zero, (4, 5)), [0, 1])
    np.testing.assert_array_equal(volume_recall_at(zero[None], zero, (4, 5)), [0, 1])
    assert recall_at(zero[:1], zero[:1]).tolist() == [1, 1, 1]


def test_nan_is_a_value_error_and_no_hit_under_jit(rng):
    x = rng.normal(size=(6, 3)).astype(np.float32)
    bad = x.copy()
    bad[2, 1] = np.nan
    jitted = jax.jit(lambda q, z: recall_at(q, z, (1,)))
    for of_queries, of_keys, name in ((bad, x, "queries"), (x, bad, "keys")):
        with pytest.raises(ValueError, match=f"{name} must be finite, got 1 entries"):
            recall_at(of_queries, of_keys)
        assert jitted(of_queries, of_keys) < 0.9
    with pytest.raises(ValueError, match="others must be finite"):
        volume_recall_at(bad[None], x)
    assert jitted(x, x) == 1


@pytest.mark.parametrize(("k", "temperature"), [(5, 0.07), (20, 0.5), (200, 0.07)])
def test_vote_equals_the_formula(x64, rng, blocks, k, temperature):
    train, test = rng.normal(size=(40, 3)), rng.normal(size=(61, 3))
    labels = rng.integers(0, 4, size=40)
    found = weighted_knn(train, labels, test, num_classes=4, k=k, temperature=temperature)
    for x, predicted in zip(test, found, strict=True):
        cosine = [u @ x / np.linalg.norm(u) / np.linalg.norm(x) for u in train]
        votes = np.zeros(4)
        for i in sorted(range(len(train)), key=lambda i, of=cosine: -of[i])[:k]:
            votes[labels[i]] += np.exp(cosine[i] / temperature)
        assert predicted == votes.argmax()


def entropy(*labellings):
    """Of the joint law of one or two labellings."""
    names = list(zip(*labellings))
    return -sum(names.count(v) / len(names) * math.log(names.count(v) / len(names)) for v in set(names))


def rand_index_adjusted_for_chance(labels, clusters):
    pairs = list(itertools.combinations(range(len(labels)), 2))
    first = sum(labels[i] == labels[j] for i, j in pairs)
    second = sum(clusters[i] == clusters[j] for i, j in pairs)
    both = sum(labels[i] == labels[j] and clusters[i] == clusters[j] for i, j in pairs)
    expected = first * second / len(pairs)
    return (both - expected) / ((first + second) / 2 - expected)


@pytest.mark.parametrize(("classes", "clusters"), [(4, 4), (3, 5), (5, 2)])
def test_scores_equal_their_formulas(rng, classes, clusters):
    labels, found = rng.integers(classes, size=60), rng.integers(clusters, size=60)
    a, b = entropy(labels), entropy(found)
    namings = itertools.permutations(range(max(classes, clusters)), clusters)
    expected = {
        metrics.normalized_mutual_information: 2 * (a + b - entropy(labels, found)) / (a + b),
        metrics.adjusted_rand_index: rand_index_adjusted_for_chance(labels, found),
        metrics.clustering_accuracy: max(np.mean(np.array(names)[found] == labels) for names in namings),
        metrics.purity: sum(np.bincount(labels[found == c]).max() for c in np.unique(found)) / 60,
    }
    for score, value in expected.items():
        np.testing.assert_allclose(score(labels, found), value, rtol=1e-9)
        np.testing.assert_allclose(score(labels, 10 - labels), 1, rtol=1e-12)


X = np.ones((4, 3), np.float32)
VOTE = {"train_features": X, "train_labels": np.zeros(4, int), "test_features": X, "num_classes": 2}
WRONG_VOTES = [
    ({"test_features": X[:, :2]}, "test_features must be 3 wide, as train_features, got 2"),
    ({"train_labels": np.zeros(3, int)}, r"train_labels must be 4 integers.* got int(32|64)\[3\]"),
    ({"train_features": X.astype(np.int32)}, "train_features must have a floating dtype"),
    ({"k": 0}, "k must be a whole number >= 1, got 0"),
    ({"temperature": 0}, "temperature must be positive, got 0"),
]


@pytest.mark.parametrize(
    ("function", "arguments", "message"),
    [
        (recall_at, (X, X[:3]), r"keys must have the shape of queries, \(4, 3\), got \(3, 3\)"),
        (recall_at, (X, X, ()), "ks must be whole numbers >= 1, at least one, got none"),
        *((recall_at, (X, X, (k,)), "ks must be a whole number >= 1, got") for k in (0, 1.5, True)),
        (volume_recall_at, (X, X), r"others must have shape \(k, n, d\), got \(4, 3\)"),
        (metrics.purity, (np.ones(3), np.ones(3, int)), r"labels must be integers .* got float64 \(3,\)"),
        (metrics.purity, ([1, 1, 1], [1, 1]), r"clusters must have the shape of labels, \(3,\), got \(2,\)"),
        *((lambda change: weighted_knn(**VOTE | change), (of,), message) for of, message in WRONG_VOTES),
    ],
)
def test_raises_on_bad_arguments(function, arguments, message):
    with pytest.raises(ValueError, match=message):
        function(*arguments)
