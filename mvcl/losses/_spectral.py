"""The spectral contrastive loss of two views."""

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike

from mvcl import _checks
from mvcl.losses import _pairs, _views
from mvcl.losses._declaration import Operands, declare


def _terms(
    e: _views.Embedded, pairs: _views.Pairs, *, radius: ArrayLike | None, extra_negatives: ArrayLike | None
) -> tuple[_pairs.Terms, ...]:
    z, keep, (left, right) = _clip(e.z, radius), e.keep, _views.columns_of(pairs)
    squares = _views.sum_over(
        lambda inner, same: jnp.where(same, 0, inner * inner),
        *(z, z, pairs, keep, keep),
        axis_name=e.axis_name,
        block_size=e.block_size,
    )  # (pairs, n)
    # By anchor: how many other instances the second view has.
    if keep is None:
        count = jnp.full(squares.shape, _views.rows_everywhere(z, e.axis_name) - 1, z.dtype)
    else:
        total = jnp.sum(keep, axis=1, dtype=z.dtype)
        total = total if e.axis_name is None else lax.psum(total, e.axis_name)
        count = jnp.where(keep[left], total[right][:, None] - keep[right].astype(z.dtype), 0)
    queue = _views.queue_embeddings(extra_negatives, e)
    if queue is not None:
        squares = squares + _views.sum_over(
            lambda inner, _: inner * inner,
            *(z, _clip(queue.z, radius), tuple((int(l), 0) for l in left), None, None),
            axis_name=e.axis_name,
            block_size=e.block_size,
            gathered=False,
        )
        anchors = jnp.ones_like(count) if keep is None else keep[left].astype(z.dtype)
        count = count + anchors * queue.z.shape[1]
    alignment = _pairs.Terms(-2 * _views.positives(z, pairs), _views.both_there(keep, pairs))
    return _pairs.Terms(squares, count), alignment


def _clip(e: jax.Array, radius: ArrayLike | None) -> jax.Array:
    if radius is None:
        return e
    longest = _checks.scalar("radius", radius, e.dtype, positive=True)
    square = jnp.sum(e * e, axis=-1, keepdims=True)
    longer = square > longest
    return e * jnp.where(longer, jnp.sqrt(longest) * lax.rsqrt(jnp.where(longer, square, 1)), 1)


@declare(
    operands=Operands.PAIR,
    terms=_terms,
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

    Cost: n² d multiply-adds in the forward pass.

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
    e = _pairs.two(x, y, normalize, mask, axis_name, block_size)
    return _pairs.loss(_terms, e, radius=radius, extra_negatives=extra_negatives)
