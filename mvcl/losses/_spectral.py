"""The spectral contrastive loss of two views."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike

from mvcl import _checks, _numerics
from mvcl.losses import _views
from mvcl.losses._declaration import Operands, declare


def _of_pairs(
    z: jax.Array,
    pairs: _views.Pairs,
    *,
    radius: ArrayLike | None,
    normalize: bool,
    mask: Any,
    extra_negatives: ArrayLike | None,
    axis_name: str | None,
    block_size: int | None,
) -> jax.Array:
    mask, block_size = _checks.mask(mask, z.shape[:2]), _checks.block_size(block_size)
    e = _views.embeddings(z, normalize, mask)
    if radius is not None:
        e = _clip(e, _checks.scalar("radius", radius, e.dtype, positive=True))
    left, right = _views.columns_of(pairs)
    squares = _views.sum_over(
        lambda inner, same: jnp.where(same, 0, inner * inner),
        *(e, e, pairs, mask, mask),
        axis_name=axis_name,
        block_size=block_size,
    )  # (pairs, n)
    exists = _views.both_there(mask, pairs)
    # By anchor: how many other instances the second view has.
    if mask is None:
        count = jnp.full(squares.shape, _views.rows_everywhere(z, axis_name) - 1, e.dtype)
    else:
        total = jnp.sum(mask, axis=1, dtype=e.dtype)
        total = total if axis_name is None else lax.psum(total, axis_name)
        count = jnp.where(mask[left], total[right][:, None] - mask[right].astype(e.dtype), 0)
        squares = jnp.where(mask[left], squares, 0)
    queue = _views.queue_embeddings(extra_negatives, e, normalize)
    if queue is not None:
        more = queue if radius is None else _clip(queue, _checks.scalar("radius", radius, e.dtype))
        extra = _views.sum_over(
            lambda inner, _: inner * inner,
            *(e, more, tuple((int(l), 0) for l in left), None, None),
            axis_name=axis_name,
            block_size=block_size,
            gathered=False,
        )
        anchors = jnp.ones_like(count) if mask is None else mask[left].astype(e.dtype)
        squares, count = squares + extra, count + anchors * more.shape[1]
    sums = squares.sum(1), count.sum(1)
    numerator, denominator = sums if axis_name is None else lax.psum(sums, axis_name)
    alignment = _numerics.mean_where(_views.positives(e, pairs), exists, axis_name, axis=1)
    return numerator / jnp.maximum(denominator, 1) - 2 * alignment


def _clip(e: jax.Array, radius: jax.Array) -> jax.Array:
    square = jnp.sum(e * e, axis=-1, keepdims=True)
    longer = square > radius
    return e * jnp.where(longer, jnp.sqrt(radius) * lax.rsqrt(jnp.where(longer, square, 1)), 1)


@_views.many_pairs(_of_pairs)
@declare(
    operands=Operands.PAIR,
    mask=True,
    axis_name=True,
    block_size=True,
    normalize=True,
    queue="extra_negatives",
)
def spectral(
    x: ArrayLike,
    y: ArrayLike,
    radius: float | None = None,
    *,
    normalize: bool = True,
    mask: ArrayLike | None = None,
    extra_negatives: ArrayLike | None = None,
    axis_name: str | None = None,
    block_size: int | None = None,
) -> jax.Array:
    """Spectral contrastive loss: positives to inner product one, all others to zero.

        -2 mean_i <x_i, y_i> + mean_{i != j} <x_i, y_j>²

    the second mean over the n (n-1) entries off the diagonal. Xu 2023 (SEM), PSCL; HaoChen 2021.

    Args:
      x: (n, d) floating, n >= 2: one view.
      y: (n, d), of the same dtype: the other view of the same instances.
      radius: squared norm to which longer vectors are shortened, after the projection if there is one; None
        leaves them. The released code uses 3 with `normalize=False`.
      normalize: project vectors onto the unit sphere first; zero stays zero.
      mask: (2, n) bool, False where x (row 0) or y (row 1) lacks the instance. The first mean is over the
        instances with both, the second over all pairs of different instances that are there.
      extra_negatives: (q, d) vectors whose squared products with every x_i join the second mean. Inside
        `shard_map` every device holds all of them.
      axis_name: mesh axis over which the instances are split, inside `shard_map`.
      block_size: rows of similarities held at once; None decides.

    Returns:
      Scalar, float32 or wider: -1 for coinciding unit vectors, -2 where instances are orthogonal.

    Raises:
      ValueError: for shapes, dtypes or values other than these.
    """
    z = _checks.pair(x, y, axis_name)
    return _of_pairs(
        z,
        ((0, 1),),
        radius=radius,
        normalize=normalize,
        mask=mask,
        extra_negatives=extra_negatives,
        axis_name=axis_name,
        block_size=block_size,
    )[0]
