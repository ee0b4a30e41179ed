"""FroSSL: the views at their mean, the features of each view as different as can be by a Frobenius norm."""

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike

from mvcl import _checks, _numerics
from mvcl.losses import _statistics
from mvcl.losses._declaration import declare


@declare(axis_name=True)
def frossl(
    z: ArrayLike, invariance: ArrayLike = 1.0, *, mask: None = None, axis_name: str | None = None
) -> jax.Array:
    """FroSSL: each view's features orthogonal to one another, the views of an instance at their mean.

        Σ_l [ log ‖ẑ_l^T ẑ_l / d‖_F² + invariance k d mean_{i,a} (ẑ_lia - mean_m ẑ_mia)² ]
        ẑ_lia = z_lia / sqrt(Σ_j z_lja²)

    Skean 2023 (arXiv 2310.02903), as the released code computes it for several views. That code divides by the trace of
    ẑ_l^T ẑ_l in place of d, which is less where a feature is zero, and on several processes it computes the loss of
    each process's own instances. Its older function of two views, which the paper's runs used, is the same of
    embeddings whose features have mean 0: subtract the mean of each view first. Devices exchange k d² + 2 k d numbers,
    4 k d (d + 2) bytes, whatever n is.

    Cost: k n d² multiply-adds in the forward pass.

    Args:
      z: (k, n, d) floating, k >= 2, n >= 2; half precision is summed in float32. Vectors are compared as they are; a
        feature that is zero stays zero.
      invariance: factor of the squared distances.
      mask: must be None: columns of length 1 compare views only if all of them have the same instances.
      axis_name: mesh axis over which the instances are split, inside `shard_map`.

    Returns:
      Scalar, float32 or wider: 0 for coinciding vectors, and for views that are zero; at least -k log(min(n, d)) where
      no feature is zero.

    Raises:
      ValueError: for shapes, dtypes or values other than these.
    """
    if mask is not None:
        raise ValueError(
            "mask must be None: frossl divides each feature of a view by its length over the batch, and views that "
            "lack instances would be compared at other lengths"
        )
    z = _numerics.widen(_checks.views(z, axis_name))
    factor = _checks.scalar("invariance", invariance, z.dtype)
    k, _, d = z.shape
    columns = _unit_columns(z, axis_name)
    gram = _statistics.moments(columns, axis_name) / d
    norms = jnp.sum(gram**2, axis=(1, 2))
    distances = _statistics.squared_distances(columns, _statistics.sum_of_views(columns) / k)
    pull = k * d * _numerics.mean_where(distances, None, axis_name, axis=1)
    return jnp.sum(jnp.log(jnp.where(norms == 0, 1, norms)) + factor * pull)


def _unit_columns(z: jax.Array, axis_name: str | None) -> jax.Array:
    """Each column of each view over the norm of all its instances; a zero column stays zero, with gradient zero."""
    largest = lax.stop_gradient(jnp.max(jnp.abs(z), axis=1, keepdims=True))
    largest = largest if axis_name is None else lax.pmax(largest, axis_name)
    z = z / jnp.where(largest > 0, largest, 1)  # a constant factor, so that no square overflows or underflows
    square = _statistics.total(jnp.sum(z * z, axis=1, keepdims=True), axis_name)
    nonzero = square > 0
    return z * jnp.where(nonzero, lax.rsqrt(jnp.where(nonzero, square, 1)), 0)
