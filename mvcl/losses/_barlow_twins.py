"""Barlow Twins: no negatives, the features of two views as independent of one another as can be."""

import dataclasses

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike

from mvcl import _checks, _numerics
from mvcl.losses import _pairs, _statistics
from mvcl.losses._declaration import Operands, declare


@declare(operands=Operands.PAIR, mask=True, axis_name=True)
def barlow_twins(
    x: ArrayLike,
    y: ArrayLike,
    redundancy: ArrayLike = 5e-3,
    eps: ArrayLike = 1e-5,
    *,
    mask: ArrayLike | None = None,
    axis_name: str | None = None,
) -> jax.Array:
    """Barlow Twins: the cross-correlation matrix of two views' features is to be the identity.

        Σ_a (1 - c_aa)² + redundancy Σ_{a != b} c_ab²
        c = x̂^T ŷ / n,   x̂_ia = (x_ia - mean_i x_ia) / sqrt(var_i x_ia + eps), ŷ alike

    Zbontar 2021 (ICML), Eqs. 1 and 2, with the variance over n and eps inside the root, as the batch normalisation of
    the released code has them; the paper has no eps. On several processes the gradient of that code is this one over
    their number, since it sums c over them in a step that is not differentiated. Vectors are compared as they are, not
    projected. A term belongs to the whole batch and not to an instance, so that instances cannot be weighted. Devices
    exchange d² + 4 d numbers, 4 d (d + 4) bytes, whatever n is.

    Cost: n d² multiply-adds in the forward pass.

    Args:
      x: (n, d) floating, n >= 2: one view.
      y: (n, d), of the same dtype: the other view of the same instances.
      redundancy: factor of the entries off the diagonal.
      eps: positive number added to each variance; a constant feature is then zero.
      mask: (2, n) bool, False where x (row 0) or y (row 1) lacks the instance. The batch is the instances with both.
      axis_name: mesh axis over which the instances are split, inside `shard_map`.

    Returns:
      Scalar, float32 or wider: d where all vectors coincide, or where no instance has both views.

    Raises:
      ValueError: for shapes, dtypes or values other than these.
    """
    e = _pairs.two(x, y, False, mask, axis_name)
    weight = _checks.scalar("redundancy", redundancy, e.z.dtype)
    small = _checks.scalar("eps", eps, e.z.dtype, positive=True)
    both = None if e.keep is None else jnp.broadcast_to(e.keep.all(0)[None], e.keep.shape)
    e = dataclasses.replace(e, keep=both)
    vectors, _ = _statistics.centred(e)
    count = jnp.maximum(_statistics.counts(e), 1)
    variance = _statistics.total(jnp.sum(vectors**2, axis=1), axis_name) / count[:, None]
    features = vectors * lax.rsqrt(variance + small)[:, None]
    products = _statistics.total(_numerics.inner("ia,ib->ab", *features), axis_name)
    correlation = products / count[0]
    identity = jnp.eye(e.z.shape[2], dtype=bool)
    return jnp.sum(jnp.where(identity, (1 - correlation) ** 2, weight * correlation**2))
