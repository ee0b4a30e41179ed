"""The value and gradient of a whole batch in the memory of a part of it, for a training loop of one's own."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from mvcl import _checks

__all__ = ["microbatched"]

Encode = Callable[[Any], jax.Array]


def microbatched(
    objective: Callable[..., jax.Array], encode: Encode | Sequence[Encode], batch: Any, *, size: int
) -> jax.Array:
    """The objective of a batch that is encoded `size` rows at a time, with the gradient of the whole batch.

    Each part is encoded again in the backward pass, so that its activations are not kept; the embeddings of all are.

        def loss(params):
            return losses.microbatched(losses.mv_dhel, lambda x: apply(params, x), views, size=64)
        value, gradient = jax.value_and_grad(loss)(params)

    With nnx `encode` is the module inside `nnx.value_and_grad`, with equinox `jax.vmap(model)`.

    Args:
      objective: of (k, n, d) embeddings.
      encode: (m, ...) rows of a view -> (m, d), each row by itself: without batch statistics, dropout or other state
        that it changes. A list has one for each view.
      batch: (k, n, ...), or a list or dict of k arrays (n, ...).
      size: rows that are encoded at once, at least 1; the last part is filled up with the last row.

    Returns:
      Scalar, as the objective's.
    """
    given = list(batch.values()) if isinstance(batch, Mapping) else batch
    views, size = _checks.several("batch", given), _checks.whole("size", size)
    encoders = [encode] * len(views) if callable(encode) else list(encode)
    if len(encoders) != len(views):
        raise ValueError(
            f"encode must be a function, or one of each of {len(views)} views, got {len(encoders)}"
        )
    return objective(jnp.stack([_in_parts(f, jnp.asarray(x), size) for f, x in zip(encoders, views)]))


def _in_parts(encode: Encode, rows: jax.Array, size: int) -> jax.Array:
    count, size = len(rows), min(size, len(rows))
    filled = jnp.concatenate([rows, jnp.repeat(rows[-1:], -count % size, axis=0)])
    parts = filled.reshape((-1, size, *rows.shape[1:]))
    found = lax.map(jax.checkpoint(lambda part: encode(part)), parts)
    return found.reshape((-1, *found.shape[2:]))[:count]
