"""Agreement of two labellings of the same samples.

NMI, ARI and the contingency table are scikit-learn's, which has neither purity nor the accuracy of the best matching.
"""

import warnings

import numpy as np
from numpy.typing import ArrayLike


def clustering_accuracy(labels: ArrayLike, clusters: ArrayLike) -> float:
    """Clustering accuracy: share of correct samples under the best one-to-one matching of clusters and classes.

    The Hungarian algorithm finds the matching; all samples of an unmatched cluster count as wrong.

    Args:
      labels: (n,) integers, the classes.
      clusters: (n,) integers; the numbering does not matter.

    Returns:
      A number in (0, 1].

    Raises:
      ValueError: invalid shapes or dtypes.
    """
    from scipy.optimize import linear_sum_assignment  # its import takes half a second

    table = _contingency(labels, clusters)
    rows, columns = linear_sum_assignment(-table)
    return float(table[rows, columns].sum() / table.sum())


def purity(labels: ArrayLike, clusters: ArrayLike) -> float:
    """Share of samples that belong to the largest class of their cluster.

    Args:
      labels: (n,) integers, the classes.
      clusters: (n,) integers.

    Returns:
      A number in (0, 1]; 1 if every cluster has one sample.

    Raises:
      ValueError: invalid shapes or dtypes.
    """
    table = _contingency(labels, clusters)
    return float(table.max(axis=0).sum() / table.sum())


def normalized_mutual_information(labels: ArrayLike, clusters: ArrayLike) -> float:
    """NMI = 2 I / (H_1 + H_2): mutual information of two labellings divided by their mean entropy.

    Args:
      labels: (n,) integers.
      clusters: (n,) integers.

    Returns:
      A number in [0, 1]; 1 if both labellings have one class.

    Raises:
      ValueError: invalid shapes or dtypes.
    """
    from sklearn.metrics import normalized_mutual_info_score  # its import takes a second

    with warnings.catch_warnings(action="ignore", category=UserWarning):  # for more classes than n / 2
        return float(normalized_mutual_info_score(*_labellings(labels, clusters)))


def adjusted_rand_index(labels: ArrayLike, clusters: ArrayLike) -> float:
    """ARI: share of sample pairs on which two labellings agree, scaled to 0 at chance and 1 at best. Hubert & Arabie
    1985.

    Args:
      labels: (n,) integers, n >= 2.
      clusters: (n,) integers.

    Returns:
      A number in [-0.5, 1]; 1 for two equal labellings.

    Raises:
      ValueError: invalid shapes or dtypes.
    """
    from sklearn.metrics import adjusted_rand_score

    with warnings.catch_warnings(action="ignore", category=UserWarning):
        return float(adjusted_rand_score(*_labellings(labels, clusters)))


def _labellings(labels: ArrayLike, clusters: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    first, second = np.asarray(labels), np.asarray(clusters)
    for name, a in (("labels", first), ("clusters", second)):
        if a.ndim != 1 or a.size == 0 or not np.issubdtype(a.dtype, np.integer):
            raise ValueError(f"{name} must be integers of shape (n,), got {a.dtype} {a.shape}")
    if first.shape != second.shape:
        raise ValueError(f"clusters must have the shape of labels, {first.shape}, got {second.shape}")
    return first, second


def _contingency(labels: ArrayLike, clusters: ArrayLike) -> np.ndarray:
    """(classes, clusters) counts."""
    from sklearn.metrics.cluster import contingency_matrix

    return contingency_matrix(*_labellings(labels, clusters))
