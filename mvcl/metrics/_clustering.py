"""How well one labelling of the same samples tells another."""

import numpy as np
from numpy.typing import ArrayLike


def clustering_accuracy(labels: ArrayLike, clusters: ArrayLike) -> float:
    """Share of samples that the best one-to-one matching of clusters with classes gets right.

    The matching is Hungarian; a cluster left without a class is wrong throughout.

    Args:
      labels: (n,) integers, the classes.
      clusters: (n,) integers; their names do not matter.

    Returns:
      A number in (0, 1].

    Raises:
      ValueError: for other shapes or dtypes.
    """
    from scipy.optimize import linear_sum_assignment  # half a second to import

    table = _contingency(labels, clusters)
    rows, columns = linear_sum_assignment(-table)
    return float(table[rows, columns].sum() / table.sum())


def purity(labels: ArrayLike, clusters: ArrayLike) -> float:
    """Share of samples that belong to the largest class of their cluster.

    Args:
      labels: (n,) integers, the classes.
      clusters: (n,) integers.

    Returns:
      A number in (0, 1]; 1 if every sample has a cluster of its own.

    Raises:
      ValueError: for other shapes or dtypes.
    """
    table = _contingency(labels, clusters)
    return float(table.max(axis=0).sum() / table.sum())


def normalized_mutual_information(labels: ArrayLike, clusters: ArrayLike) -> float:
    """NMI = 2 I / (H_1 + H_2), the mutual information of two labellings by their mean entropy.

    Args:
      labels: (n,) integers.
      clusters: (n,) integers.

    Returns:
      A number in [0, 1]; 1 for two labellings without entropy.

    Raises:
      ValueError: for other shapes or dtypes.
    """
    table = _contingency(labels, clusters)
    joint = table / table.sum()
    a, b = joint.sum(1), joint.sum(0)
    entropies = -(a @ np.log(a)) - b @ np.log(b)
    if entropies == 0:
        return 1.0
    there = joint > 0
    information = np.sum(joint[there] * np.log(joint[there] / np.outer(a, b)[there]))
    return float(np.clip(2 * information / entropies, 0, 1))


def adjusted_rand_index(labels: ArrayLike, clusters: ArrayLike) -> float:
    """ARI: pairs of samples on which two labellings agree, 0 by chance, 1 at best. Hubert & Arabie 1985.

    Args:
      labels: (n,) integers, n >= 2.
      clusters: (n,) integers.

    Returns:
      A number in [-0.5, 1]; 1 for two equal labellings.

    Raises:
      ValueError: for other shapes or dtypes.
    """
    table = _contingency(labels, clusters)

    def pairs(counts: np.ndarray) -> float:
        return float((counts * (counts - 1.0)).sum() / 2)

    both, first, second = pairs(table), pairs(table.sum(1)), pairs(table.sum(0))
    every = pairs(table.sum())
    expected = first * second / every if every else 0.0
    most = (first + second) / 2
    return 1.0 if most == expected else float((both - expected) / (most - expected))


def _contingency(labels: ArrayLike, clusters: ArrayLike) -> np.ndarray:
    """(classes, clusters) counts."""
    arrays = []
    for name, value in (("labels", labels), ("clusters", clusters)):
        a = np.asarray(value)
        if a.ndim != 1 or a.size == 0 or not np.issubdtype(a.dtype, np.integer):
            raise ValueError(f"{name} must be integers of shape (n,), got {a.dtype} {a.shape}")
        arrays.append(np.unique(a, return_inverse=True)[1])
    first, second = arrays
    if first.shape != second.shape:
        raise ValueError(f"clusters must have the shape of labels, {first.shape}, got {second.shape}")
    table = np.zeros((first.max() + 1, second.max() + 1), np.int64)
    np.add.at(table, (first, second), 1)
    return table
