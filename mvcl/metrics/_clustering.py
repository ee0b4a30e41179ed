"""K-means, and the agreement of two labellings of the same samples.

The arithmetic is scikit-learn's, which has neither purity nor the accuracy of the best matching.
"""

import warnings

import numpy as np
from numpy.typing import ArrayLike

from mvcl import _checks

_MINI_BATCH = 5000  # rows, as in Xu 2023's released code


def k_means(
    features: ArrayLike, clusters: int, *, seed: int = 0, starts: int = 10, mini_batch_above: int = 0
) -> tuple[np.ndarray, float]:
    """K-means labels of the start with the least inertia, and that inertia.

    Uses scikit-learn on one thread: 10 starts on 2000 vectors of 512 features took 0.3 s on a CPU, ott-jax's 1.5 to
    3 s at equal inertia (within 0.1%). On a busy machine several threads wait for each other.

    Args:
      features: (n, d) floating.
      clusters: number of clusters, 2 <= clusters <= n.
      seed: of the k-means++ starts.
      starts: number of starts.
      mini_batch_above: for more rows than this, K-means takes mini-batches of 5,000 rows (Sculley 2010), and the
        start is the one with the least inertia on three mini-batches; 0: never.

    Returns:
      (n,) int32 cluster numbers, and Σ_i ||x_i - centre of x_i||².

    Raises:
      ValueError: invalid shapes or numbers, or features that are not finite.
    """
    from sklearn.cluster import KMeans, MiniBatchKMeans  # the import takes a second
    from threadpoolctl import threadpool_limits

    x = np.asarray(features)
    if x.ndim != 2 or not np.issubdtype(x.dtype, np.floating):
        raise ValueError(f"features must be floating of shape (n, d), got {x.dtype} {x.shape}")
    if not 2 <= _checks.whole("clusters", clusters, 0) <= len(x):
        raise ValueError(f"clusters must be between 2 and n = {len(x)}, got {clusters}")
    _checks.whole("starts", starts)
    _checks.whole("mini_batch_above", mini_batch_above, 0)
    if not np.isfinite(x).all():
        raise ValueError(f"features must be finite, got {np.sum(~np.isfinite(x))} entries that are not")

    # Scale by a power of two, which is exact, so that squares neither overflow nor underflow.
    exponent = int(np.frexp(np.abs(x).max())[1])
    x = np.ldexp(x.astype(np.promote_types(x.dtype, np.float32)), -exponent)
    with threadpool_limits(1), warnings.catch_warnings():
        # Fewer distinct vectors than clusters: some clusters stay empty.
        warnings.filterwarnings("ignore", message="Number of distinct clusters")
        if mini_batch_above and len(x) > mini_batch_above:
            method = MiniBatchKMeans(clusters, batch_size=_MINI_BATCH, n_init=starts, random_state=seed)
        else:
            method = KMeans(clusters, n_init=starts, random_state=seed)
        found = method.fit(x)
    return found.labels_.astype(np.int32), float(np.ldexp(float(found.inertia_), 2 * exponent))


def clustering_accuracy(labels: ArrayLike, clusters: ArrayLike) -> float:
    """Clustering accuracy: share of correct samples under the best one-to-one matching of clusters and classes.

    The Hungarian algorithm finds the matching; all samples of an unmatched cluster count as wrong.

    Args:
      labels: (n,) integers, the classes.
      clusters: (n,) integers; the numbering does not matter.

    Returns:
      A number in (0, 1].
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
