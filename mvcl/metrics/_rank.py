"""Effective dimension of a set of embeddings."""

import math

import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
from jax.typing import ArrayLike

from mvcl import _checks, _numerics

_EPSILON = 1e-7  # of RankMe


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

    Example:
      >>> import jax.numpy as jnp
      >>> from mvcl import metrics
      >>> print(f"{metrics.effective_rank(jnp.eye(4, 16)):.3f}")
      4.000
    """
    z = _numerics.widen(_checks.array("z", z, "n d"))
    return _exponential_entropy(jnp.linalg.svd(z, compute_uv=False))


def lidar(z: ArrayLike, delta: ArrayLike = 1e-4) -> jax.Array:
    """LiDAR: the effective rank of the linear discriminant analysis whose classes are the instances.

        exp( -sum_i p_i log p_i ),  p_i = lambda_i / sum_j lambda_j + 1e-7,
        lambda the d eigenvalues of  S_w^{-1/2} S_b S_w^{-1/2},
        S_b = sum_i (m_i - m) (m_i - m)^T / (n - 1),
        S_w = sum_{l,i} (z_li - m_i) (z_li - m_i)^T / (n (k - 1)) + delta I

    m_i is the mean of instance i's views and m the mean of all. Thilak 2024, LiDAR (arXiv 2312.04000), Eqs. 1 to 4,
    with the unbiased estimates of both covariances. Directions in which the views of an instance differ as much as
    instances do count little, unlike in `effective_rank`. The paper calls delta and the constant in p small and
    positive; 1e-4 is used by Skean 2025 (arXiv 2502.02013), 1e-7 is RankMe's. It has about n = 1000 instances of k = 50
    views; only values at equal n, k and d are comparable.

    delta is absolute, so the value depends on the scale of z where the variance within instances is about delta or
    less. S_w is not formed: its triangular factor is that of the QR decomposition of the vectors and sqrt(delta) I,
    which in float32 resolves variances of 1e-7 beside variances of 1.

    Args:
      z: (k, n, d) floating, k >= 2 views of n >= 2 instances; half precision is decomposed in float32.
      delta: positive, added to the variance of every direction within instances; it has the unit of z squared.

    Returns:
      Scalar, float32 or wider, from 1 (one direction) to min(d, n - 1). n orthonormal instances whose views coincide
      give n - 1; if all vectors coincide it is 1.

    Raises:
      ValueError: invalid shapes, dtypes or delta.
    """
    z = _numerics.widen(_checks.views(z))
    delta = _checks.scalar("delta", delta, z.dtype, positive=True)
    k, n, d = z.shape
    z = z - jnp.mean(z, axis=(0, 1), keepdims=True)
    means = jnp.mean(z, axis=0)
    between = (means - jnp.mean(means, axis=0, keepdims=True)) / math.sqrt(n - 1)
    within = (z - means[None]).reshape(-1, d) / math.sqrt(n * (k - 1))
    stacked = jnp.concatenate([within, jnp.sqrt(delta) * jnp.eye(d, dtype=z.dtype)])
    factor = jnp.linalg.qr(stacked, mode="r")  # factor^T factor = S_w
    whitened = solve_triangular(factor, between.T, trans=1)
    sigma = jnp.linalg.svd(whitened, compute_uv=False)
    largest = jnp.max(sigma)
    # Divided by the largest, so that no square underflows.
    return _exponential_entropy((sigma / jnp.where(largest > 0, largest, 1)) ** 2, zeros=d - len(sigma))


def _exponential_entropy(weights: jax.Array, zeros: int = 0) -> jax.Array:
    """exp(-sum p log p) of p = weights / sum + 1e-7, with so many further weights that are zero; 1 if all are."""
    total = jnp.sum(weights)
    p = weights / jnp.where(total > 0, total, 1) + _EPSILON
    return jnp.exp(-jnp.sum(p * jnp.log(p)) - zeros * _EPSILON * math.log(_EPSILON))


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
