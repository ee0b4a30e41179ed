"""Effective dimension of a set of embeddings."""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from mvcl import _checks, _numerics


def effective_rank(z: ArrayLike) -> jax.Array:
    """RankMe: the exponential of the entropy of the normalised singular values.

        exp( -sum_i p_i log p_i ),  p_i = sigma_i / sum_j sigma_j + 1e-7

    over the min(n, d) singular values of z itself, not centred. Garrido 2023, RankMe
    (arXiv 2210.02885), Eq. 1.

    Args:
      z: (n, d) floating; half precision is decomposed in float32.

    Returns:
      Scalar, float32 or wider, from 1 (one direction) to min(n, d). n orthonormal rows give n; an all-zero z
      gives 1.
    """
    z = _numerics.widen(_checks.array("z", z, "n d"))
    sigma = jnp.linalg.svd(z, compute_uv=False)
    total = jnp.sum(sigma)
    p = sigma / jnp.where(total > 0, total, 1) + 1e-7
    return jnp.exp(-jnp.sum(p * jnp.log(p)))


def matrix_rank(z: ArrayLike, *, tolerance: float = 1e-5) -> jax.Array:
    """Rank of the covariance of z: number of its eigenvalues above `tolerance`.

        #{ i : lambda_i > tolerance },  lambda the eigenvalues of (z - mean)^T (z - mean) / (n - 1)

    The tolerance is absolute, so it has the unit of z squared. The eigenvalues are computed as squared singular values
    of the centred z: in float32 this resolves 1e-5 next to eigenvalues of 1e6, which the covariance matrix does not.

    Args:
      z: (n, d) floating, n >= 2.
      tolerance: eigenvalues up to this count as zero.

    Returns:
      Scalar int32. Points on a line give 1, coinciding points 0.
    """
    z = _checks.finite("z", _numerics.widen(_checks.array("z", z, "n d", (2, 1))))
    if _checks.real("tolerance", tolerance) < 0:
        raise ValueError(f"tolerance must be >= 0, got {tolerance}")
    sigma = jnp.linalg.svd(z - jnp.mean(z, axis=0, keepdims=True), compute_uv=False)
    return jnp.sum(sigma**2 / (z.shape[0] - 1) > tolerance, dtype=jnp.int32)
