"""k-nearest-neighbour classification."""

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike

from mvcl import _checks, _numerics

_CELLS = 1 << 24  # similarities per block: 64 MiB in float32


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

    N_k(x) is the set of the k training rows of largest cosine. Wu 2018, Unsupervised Feature Learning via
    Non-Parametric Instance Discrimination (arXiv 1805.01978), Section 3.4, with its k = 200 and
    temperature = 0.07.

    Test rows are processed in blocks, so memory is O(n + m d), not O(n m).

    Args:
      train_features: (n, d) floating.
      train_labels: (n,) integers in [0, num_classes).
      test_features: (m, d) floating.
      num_classes: number of classes.
      k: number of voting neighbours, at most n.
      temperature: positive divisor of the cosine, no unit.

    Returns:
      (m,) int32 labels; the lowest of classes with equal votes. A zero vector has cosine 0 with every vector.
    """
    train = _checks.array("train_features", train_features, "n d")
    test = _checks.array("test_features", test_features, "m d")
    for name, features in (("train_features", train), ("test_features", test)):
        _checks.finite(name, features)
    labels = jnp.asarray(train_labels)
    if train.shape[1] != test.shape[1]:
        raise ValueError(
            f"test_features must be as wide as train_features, {train.shape[1]}, got {test.shape[1]}"
        )
    if labels.shape != train.shape[:1] or not jnp.issubdtype(labels.dtype, jnp.integer):
        raise ValueError(
            f"train_labels must be {train.shape[0]} integers, one per row, "
            f"got {labels.dtype}{list(labels.shape)}"
        )
    k, num_classes = _checks.whole("k", k), _checks.whole("num_classes", num_classes)
    if (
        not isinstance(labels, jax.core.Tracer)
        and not 0 <= int(labels.min()) <= int(labels.max()) < num_classes
    ):
        raise ValueError(
            f"train_labels must be in [0, num_classes = {num_classes}), "
            f"got {int(labels.min())} to {int(labels.max())}"
        )
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
