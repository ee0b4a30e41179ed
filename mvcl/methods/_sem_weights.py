"""What a refresh of SEM computes of the whole data set: clusters of each view and weights of the pairs of views."""

from collections.abc import Callable
from itertools import combinations_with_replacement
from typing import Any

import jax
import numpy as np

from mvcl import losses, metrics
from mvcl._progress import track

_PAIR_ROWS = 256  # rows of the batches over which a refresh measures the pairs' losses


def view_clusters(
    features: np.ndarray,
    clusters: int,
    present: np.ndarray,
    k_means: Callable[..., tuple[np.ndarray, float]] = metrics.k_means,
) -> np.ndarray:
    """(k, n) K-means labels of (k, n, d) features, per view; -1 for missing views (k, n)."""
    labels = np.full(present.shape, -1, np.int32)
    views = zip(features, present, labels)
    for view, here, into in track(views, "K-means", len(features), "views"):
        into[here] = k_means(view[here], min(clusters, int(here.sum())))[0]
    return labels


def pair_measures(
    z: np.ndarray, present: np.ndarray, pair: Callable[..., Any] | None
) -> dict[str, np.ndarray]:
    """The loss and the similarity of each pair of views, as Figs. 2b and 5b of Xu 2023 have them.

    Args:
      z: (k, n, d) unit vectors of the whole data set.
      present: (k, n) bool.
      pair: the pair loss; None: no losses.

    Returns:
      "cosines" (k, k), means over the instances that have both views; "losses" (k, k), the pair loss of batches of
      256 instances in order, as their mean. NaN for pairs that fewer than two instances share.
    """
    k = len(z)
    cosines, values = np.full((k, k), np.nan), np.full((k, k), np.nan)
    for m, n in combinations_with_replacement(range(k), 2):
        both = np.flatnonzero(present[m] & present[n])
        if len(both) < 2:
            continue
        u, v = z[m, both], z[n, both]
        cosines[m, n] = cosines[n, m] = np.mean(np.sum(u * v, axis=1))
        if pair is not None:
            starts = range(0, len(both) - len(both) % _PAIR_ROWS or len(both), _PAIR_ROWS)
            batches = [pair(u[i : i + _PAIR_ROWS], v[i : i + _PAIR_ROWS]) for i in starts]
            values[m, n] = values[n, m] = np.mean(jax.device_get(batches))
    return {"cosines": cosines} if pair is None else {"cosines": cosines, "losses": values}


def view_weights(features: np.ndarray, labels: np.ndarray, kind: str, present: np.ndarray) -> np.ndarray:
    """W (k, k) float32 of (k, n, d) features and (k, n) cluster labels, over the instances that have both views.

    Args:
      features: of the whole data set.
      labels: their clusters, used by kind "cmi" only.
      kind: "cmi", "jsd", "mmd" (see `mvcl.losses`) or "none", all ones.
      present: (k, n) bool.

    Returns:
      W; 0 for pairs of views shared by fewer than two instances.
    """
    k = len(features)
    if kind == "none":
        return np.ones((k, k), np.float32)
    of = {"jsd": losses.jsd_weights, "mmd": losses.mmd_weights}

    def weigh(rows: Any, here: np.ndarray) -> np.ndarray:
        if kind == "cmi":
            return np.asarray(losses.cmi_weights(labels[rows][:, here]))
        return np.asarray(jax.jit(of[kind])(features[rows][:, here]), np.float32)

    if present.all():
        return weigh(slice(None), np.ones(present.shape[1], bool))
    weights = np.zeros((k, k), np.float32)
    for m in range(k):
        for n in range(m, k):
            here = present[m] & present[n]
            if here.sum() >= 2:
                weights[m, n] = weights[n, m] = weigh([m, n], here)[0, 1]
    return weights


def cluster_agreement(labels: np.ndarray, clusters: int) -> np.ndarray:
    """Agreement of the clusters of one view with those of another, (k, k, clusters, clusters) float32.

        A_mn[a, b] = sqrt( P(c_n = b | c_m = a) P(c_m = a | c_n = b) ),   divided by its mean over instances

    1 everywhere if the clusters of two views are the same sets; below 1 for an instance whose two clusters rarely
    coincide. Not from the paper, whose W is one number per pair of views.

    Args:
      labels: (k, n) integers in [0, clusters), -1 where the view is missing.
      clusters: number of clusters.
    """
    k = len(labels)
    agreement = np.ones((k, k, clusters, clusters), np.float32)
    for m in range(k):
        for n in range(k):
            both = (labels[m] >= 0) & (labels[n] >= 0)
            table = np.zeros((clusters, clusters))
            np.add.at(table, (labels[m][both], labels[n][both]), 1.0)
            size = np.sqrt(table.sum(1)[:, None] * table.sum(0)[None, :])
            share = np.divide(table, size, out=np.zeros_like(table), where=size > 0)
            mean = (share * table).sum() / max(table.sum(), 1)
            if mean > 0:
                agreement[m, n] = share / mean
    return agreement
