"""Shape of a set of embeddings: its distribution on the unit sphere, and its effective dimension."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.linalg import solve_triangular
from jax.typing import ArrayLike

from mvcl import _checks, _numerics

_EPSILON = 1e-7  # of RankMe
_ROWS = 512  # rows of similarities per block


def alignment(x: ArrayLike, y: ArrayLike, alpha: float = 2.0, *, normalize: bool = True) -> jax.Array:
    """Alignment of positives: mean_i ||x_i - y_i||^alpha.

    Wang & Isola 2020 (ICML), Eq. 2.

    Args:
      x, y: (n, d) floating, of one dtype, n >= 2: two views.
      alpha: positive exponent.

    Returns:
      Scalar, float32 or wider; 0 for coinciding views, 2^alpha for opposite unit vectors.
    """
    z = _checks.pair(x, y)
    z = _numerics.unit(z) if normalize else _numerics.widen(z)
    power = _checks.scalar("alpha", alpha, z.dtype, positive=True)
    square = jnp.sum((z[0] - z[1]) ** 2, axis=-1)
    apart = square != 0  # also true for NaN, which must propagate
    return jnp.mean(jnp.where(apart, jnp.where(apart, square, 1) ** (power / 2), 0))


def uniformity(x: ArrayLike, t: float = 2.0, *, normalize: bool = True) -> jax.Array:
    """Uniformity of vectors: log mean_{i != j} exp(-t ||x_i - x_j||²).

    Wang & Isola 2020 (ICML), Eq. 3, over distinct pairs. O(n d) memory.

    Args:
      x: (n, d) floating, n >= 2.
      t: positive, inverse of a squared length.

    Returns:
      Scalar, float32 or wider: 0 if all vectors coincide, at least -4 t on the sphere.
    """
    z = _checks.array("x", x, "n d", (2, 1))
    z = _numerics.unit(z) if normalize else _numerics.widen(z)
    rate = _checks.scalar("t", t, z.dtype, positive=True)
    n = z.shape[0]
    square = jnp.sum(z * z, axis=-1)

    def row(i: jax.Array) -> jax.Array:
        distance = square[i] + square - 2 * _numerics.inner("d,jd->j", z[i], z)
        return _numerics.logsumexp(-rate * jnp.maximum(distance, 0), axis=0, where=jnp.arange(n) != i)

    rows = lax.map(jax.checkpoint(row), jnp.arange(n), batch_size=min(n, _ROWS))
    return _numerics.logsumexp(rows, axis=0) - math.log(n * (n - 1))


def wasserstein_uniformity(x: ArrayLike) -> float:
    """1-D Wasserstein distance between the pairwise cosines and those of uniform points.

        ∫ |F_n(c) - F(c)| dc

    F_n is the law of the n (n-1) / 2 cosines of distinct pairs, F that of two independent uniform points on the sphere
    in d dimensions, density ∝ (1 - c²)^{(d-3)/2}. Exact: between two jumps of F_n the integral has a closed form.

    Args:
      x: (n, d) floating, n >= 2, d >= 2; only directions matter.

    Returns:
      A number in [0, 2], in float64: about 1 if all vectors coincide.
    """
    from scipy.special import betainc, betaln  # its import is slow

    z = np.asarray(_checks.array("x", x, "n d", (2, 2)), np.float64)
    n, d = z.shape
    z = z / np.maximum(np.linalg.norm(z, axis=1, keepdims=True), np.finfo(float).tiny)
    cosines = np.clip(np.sort((z @ z.T)[np.triu_indices(n, 1)]), -1, 1)
    shape = (d - 1) / 2
    log_constant = -betaln(shape, shape) - (d - 2) * math.log(2)

    def partial_mean(c: np.ndarray) -> np.ndarray:
        """∫_{-1}^c t p(t) dt"""
        return -np.exp(log_constant) * (1 - c * c) ** shape / (d - 1)

    levels, quantiles = _uniform_quantiles(len(cosines), shape)
    low, high = quantiles[:-1], quantiles[1:]
    split = np.clip(cosines, low, high)
    share = np.clip(betainc(shape, shape, (1 + split) / 2), levels[:-1], levels[1:])
    below = cosines * (share - levels[:-1]) - (partial_mean(split) - partial_mean(low))
    above = partial_mean(high) - partial_mean(split) - cosines * (levels[1:] - share)
    return float(np.sum(below + above))


@functools.lru_cache(maxsize=2)  # the slowest part, equal for all views of a data set
def _uniform_quantiles(count: int, shape: float) -> tuple[np.ndarray, np.ndarray]:
    """The levels 0, 1 / count, ..., 1 and the quantiles of the cosine of two uniform points."""
    from scipy.special import betaincinv

    levels = np.arange(count + 1) / count
    return levels, 2 * betaincinv(shape, shape, levels) - 1


def effective_rank(z: ArrayLike) -> jax.Array:
    """RankMe: the exponential of the entropy of the normalised singular values.

        exp( -sum_i p_i log p_i ),  p_i = sigma_i / sum_j sigma_j + 1e-7

    over the min(n, d) singular values of z itself, not centred. Garrido 2023, RankMe (arXiv 2210.02885), Eq. 1.

    Args:
      z: (n, d) floating; half precision is decomposed in float32.

    Returns:
      Scalar, float32 or wider, from 1 (one direction) to min(n, d). n orthonormal rows give n; an all-zero z gives 1.

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
    positive; 1e-4 is used by Skean 2025 (arXiv 2502.02013), 1e-7 is RankMe's. Only values at equal n, k and d are
    comparable. delta is absolute: the value depends on the scale of z where the variance within instances is about it.

    Args:
      z: (k, n, d) floating, k >= 2 views of n >= 2 instances; half precision is decomposed in float32.
      delta: positive, added to the variance of every direction within instances; it has the unit of z squared.

    Returns:
      Scalar, float32 or wider, from 1 (one direction) to min(d, n - 1). n orthonormal instances whose views coincide
      give n - 1; if all vectors coincide it is 1.
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
