"""Neighbours and clusters: a vote of the nearest, recall of an instance's own key, K-means and agreement with classes.

The arithmetic of clusters is scikit-learn's, which has neither purity nor the accuracy of the best matching.
"""

import warnings
from collections.abc import Callable, Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike

from mvcl import _checks, _numerics

_CELLS = 1 << 24  # scores per block: 64 MiB in float32
_MINI_BATCH = 5000  # rows, as in Xu 2023's released code


def weighted_knn(
    train_features: ArrayLike,
    train_labels: ArrayLike,
    test_features: ArrayLike,
    *,
    num_classes: int,
    k: int = 200,
    temperature: float = 0.07,
) -> jax.Array:
    """Labels by a vote of the k nearest training features, each weighted by its similarity.

        argmax_c  sum_{i in N_k(x), y_i = c} exp( cos(x, x_i) / temperature )

    N_k(x) is the set of the k training rows of largest cosine. Wu 2018 (arXiv 1805.01978), Section 3.4, with its
    k = 200 and temperature = 0.07. In blocks of test rows, so memory is O(n + m d), not O(n m).

    Args:
      train_features, test_features: (n, d) and (m, d) floating.
      train_labels: (n,) integers in [0, num_classes).
      k: number of voting neighbours, at most n.
      temperature: positive divisor of the cosine, no unit.

    Returns:
      (m,) int32 labels; the lowest of classes with equal votes. A zero vector has cosine 0 with every vector.
    """
    train = _checks.finite("train_features", _checks.array("train_features", train_features, "n d"))
    test = _checks.finite("test_features", _checks.array("test_features", test_features, "m d"))
    labels = jnp.asarray(train_labels)
    if train.shape[1] != test.shape[1]:
        what = f"test_features must be {train.shape[1]} wide, as train_features"
        raise ValueError(f"{what}, got {test.shape[1]}")
    k, num_classes = _checks.whole("k", k), _checks.whole("num_classes", num_classes)
    _checks.labels("train_labels", labels, train.shape[0], num_classes)
    scale = _checks.scalar("temperature", temperature, jnp.dtype(jnp.float32), positive=True)
    return _vote(train, labels, test, scale, num_classes=num_classes, k=min(k, train.shape[0]))


@partial(jax.jit, static_argnames=("num_classes", "k"))
def _vote(
    train: jax.Array, labels: jax.Array, test: jax.Array, temperature: jax.Array, *, num_classes: int, k: int
) -> jax.Array:
    train, test = _numerics.unit(train), _numerics.unit(test)

    def one(row: jax.Array) -> jax.Array:
        cosine = _numerics.inner("nd,d->n", train, row)
        nearest, where = lax.top_k(cosine, k)
        # Divide by the largest weight: the vote is the same and nothing overflows.
        weight = jnp.exp((nearest - nearest[0]) / temperature)
        votes = jnp.zeros(num_classes, weight.dtype).at[labels[where]].add(weight)
        return jnp.argmax(votes).astype(jnp.int32)

    return lax.map(one, test, batch_size=max(1, min(test.shape[0], _CELLS // train.shape[0])))


def recall_at(queries: ArrayLike, keys: ArrayLike, ks: Sequence[int] = (1, 5, 10)) -> jax.Array:
    """Recall at k: the share of rows whose own key is among the k nearest by cosine; a tie is a miss.

        R@k = mean_i [ r_i < k ],  r_i = #{ j != i : cos(q_i, key_j) >= cos(q_i, key_i) }

    A key that is as near as the own one ranks before it, so embeddings that all coincide have recall 0 for k < n.
    Cosines that differ by less than 2 sqrt(d) eps count as equal. In blocks: memory is O(n d), not O(n²).

    Args:
      queries: (n, d) floating; half precision is computed in float32.
      keys: (n, d), of the same dtype: row i is the own key of query i.
      ks: whole numbers >= 1, at least one. For k >= n the recall is 1.

    Returns:
      (len(ks),) recalls in [0, 1], float32 or wider; k / n is chance. NaN and infinity raise an error; under `jit` a
      row with NaN is a miss, as is a zero query.
    """
    q, z = _checks.array("queries", queries, "n d"), _checks.array("keys", keys, "n d")
    _checks.same_shape("queries", q, "keys", z)
    return _recall(_cosine_ranks, q, z, ks, "queries")


def volume_recall_at(others: ArrayLike, keys: ArrayLike, ks: Sequence[int] = (1, 5, 10)) -> jax.Array:
    """Recall at k of one view from several others by GRAM's volume, the smallest first; a tie is a miss.

        R@k = mean_i [ r_i < k ],  r_i = #{ j != i : V_ij <= V_ii },  V_ij = sqrt det G_ij

    G_ij is the Gram matrix of the unit vectors of key j and of the others of instance i. Cicchetti 2024
    (arXiv 2412.11959). Keys are ranked by the projection onto the span of the others, the largest first, which is the
    order of the volumes, and of the distances from the span where all volumes are 0. Values that differ by less than
    4 sqrt(d) eps count as equal. Memory is O(k n d). `keys`, `ks`, the result and the errors are those of `recall_at`.

    Args:
      others: (k, n, d) floating, k >= 1 views of n instances; half precision is computed in float32.
    """
    q, z = _checks.array("others", others, "k n d"), _checks.array("keys", keys, "n d")
    _checks.same_shape("each of others", q[0], "keys", z)
    return _recall(_volume_ranks, q, z, ks, "others")


def _recall(
    ranks: Callable[..., jax.Array], queries: jax.Array, keys: jax.Array, ks: Sequence[int], name: str
) -> jax.Array:
    whole, n = [_checks.whole("ks", k) for k in _checks.several("ks", ks)], len(keys)
    if not whole:
        raise ValueError("ks must be whole numbers >= 1, at least one, got none")
    found = ranks(_checks.finite(name, queries), _checks.finite("keys", keys))
    hits = jnp.stack([jnp.sum(found < min(k, n), dtype=jnp.int32) for k in whole])
    return hits.astype(jnp.promote_types(keys.dtype, jnp.float32)) / n


@jax.jit
def _cosine_ranks(queries: jax.Array, keys: jax.Array) -> jax.Array:
    queries, keys = _numerics.unit(queries), _numerics.unit(keys)
    return _ranks(lambda q: _numerics.inner("bd,nd->bn", q, keys), queries, 2 * _rounding(keys))


@jax.jit
def _volume_ranks(others: jax.Array, keys: jax.Array) -> jax.Array:
    keys = _numerics.unit(keys)
    basis: list[jax.Array] = []  # of each instance's vectors, by Gram-Schmidt; zeros for dependent ones
    for view in _numerics.unit(others):
        v = _numerics.orthogonal_part(view, basis)
        length = jnp.sqrt(jnp.sum(v * v, axis=-1, keepdims=True))
        basis.append(jnp.where(length > 4 * _rounding(v), _numerics.unit(v), 0))

    def score(basis: jax.Array) -> jax.Array:
        """(b, n) squared lengths of the projections of the keys onto the spans of (b, k, d) bases."""
        first, *more = (_numerics.inner("bd,nd->bn", basis[:, m], keys) ** 2 for m in range(basis.shape[1]))
        return sum(more, start=first)

    return _ranks(score, jnp.swapaxes(jnp.stack(basis), 0, 1), 4 * _rounding(keys))


def _rounding(z: jax.Array) -> float:
    return float(jnp.finfo(z.dtype).eps) * z.shape[-1] ** 0.5


def _ranks(score: Callable[[jax.Array], jax.Array], queries: jax.Array, tie: float) -> jax.Array:
    """(n,) int32: the number of other keys whose score is at least the own one's, up to `tie`.

    `score` maps b queries to (b, n) scores. The own scores are entries of the same matrix as the others.
    """
    n = len(queries)

    def block(at: jax.Array) -> jax.Array:
        scores = score(queries[at])
        own = jnp.take_along_axis(scores, at[:, None], axis=1)
        before = ~(scores < own - tie)  # NaN counts as before
        return jnp.sum(before, axis=1, dtype=jnp.int32) - 1  # the own key is not another

    size = max(1, min(n, _CELLS // n))
    blocks = -(-n // size)
    at = jnp.minimum(jnp.arange(blocks * size), n - 1).reshape(blocks, size)
    return lax.map(block, at).reshape(-1)[:n]


def k_means(
    features: ArrayLike, clusters: int, *, seed: int = 0, starts: int = 10, mini_batch_above: int = 0
) -> tuple[np.ndarray, float]:
    """K-means labels of the start with the least inertia, and that inertia.

    scikit-learn's, on one thread: on a busy machine several wait for each other.

    Args:
      features: (n, d) floating and finite.
      clusters: number of clusters, 2 <= clusters <= n.
      seed, starts: of the k-means++ starts.
      mini_batch_above: for more rows than this, K-means takes mini-batches of 5,000 rows (Sculley 2010), and the
        start is the one with the least inertia on three mini-batches; 0: never.

    Returns:
      (n,) int32 cluster numbers, and Σ_i ||x_i - centre of x_i||².
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


def centres(features: np.ndarray, clusters: np.ndarray) -> np.ndarray:
    """(c, d): the mean of the (n, d) features of each cluster, of (n,) cluster numbers, in the order of the numbers."""
    return np.stack([features[clusters == number].mean(0) for number in np.unique(clusters)])


def nearest_centre(features: np.ndarray, centres: np.ndarray) -> np.ndarray:
    """(n,): the centre, of (c, d), with the least Euclidean distance to each of (n, d) features."""
    return np.argmin((centres**2).sum(1) - 2 * features @ centres.T, axis=1)


def clustering_accuracy(labels: ArrayLike, clusters: ArrayLike) -> float:
    """Clustering accuracy: share of correct samples under the best one-to-one matching of clusters and classes.

    The Hungarian algorithm finds the matching; all samples of an unmatched cluster count as wrong. Both are (n,)
    integers, whose numbering does not matter; the result is in (0, 1].
    """
    from scipy.optimize import linear_sum_assignment  # its import takes half a second

    table = _contingency(labels, clusters)
    rows, columns = linear_sum_assignment(-table)
    return float(table[rows, columns].sum() / table.sum())


def purity(labels: ArrayLike, clusters: ArrayLike) -> float:
    """Share of samples that belong to the largest class of their cluster, in (0, 1]; 1 if every cluster has one sample.

    Both are (n,) integers.
    """
    table = _contingency(labels, clusters)
    return float(table.max(axis=0).sum() / table.sum())


def normalized_mutual_information(labels: ArrayLike, clusters: ArrayLike) -> float:
    """NMI = 2 I / (H_1 + H_2): mutual information of two labellings, (n,) integers, divided by their mean entropy.

    In [0, 1]; 1 if both labellings have one class.
    """
    from sklearn.metrics import normalized_mutual_info_score  # its import takes a second

    with warnings.catch_warnings(action="ignore", category=UserWarning):  # for more classes than n / 2
        return float(normalized_mutual_info_score(*_labellings(labels, clusters)))


def adjusted_rand_index(labels: ArrayLike, clusters: ArrayLike) -> float:
    """ARI: share of pairs on which two labellings agree, scaled to 0 at chance and 1 at best (Hubert & Arabie 1985).

    Both are (n,) integers, n >= 2; the result is in [-0.5, 1], 1 for two equal labellings.
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
    from sklearn.metrics.cluster import contingency_matrix

    return contingency_matrix(*_labellings(labels, clusters))
