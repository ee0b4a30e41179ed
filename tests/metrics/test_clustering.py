"""Clustering scores against pairwise formulas, and the matching against all permutations."""

import itertools
import math

import numpy as np
import pytest

from mvcl import metrics


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


def test_bad_arguments():
    with pytest.raises(ValueError, match=r"labels must be integers of shape \(n,\), got float64 \(3,\)"):
        metrics.purity(np.ones(3), np.ones(3, int))
    with pytest.raises(ValueError, match=r"clusters must have the shape of labels, \(3,\), got \(2,\)"):
        metrics.purity(np.ones(3, int), np.ones(2, int))
