"""Distribution of embeddings on the unit sphere."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike

from mvcl import _checks, _numerics

_ROWS = 512  # rows of similarities per block


def alignment(x: ArrayLike, y: ArrayLike, alpha: float = 2.0, *, normalize: bool = True) -> jax.Array:
    """Alignment of positives: mean_i ||x_i - y_i||^alpha.

    Wang & Isola 2020 (ICML), Eq. 2.

    Args:
      x: (n, d) floating, n >= 2: one view.
      y: (n, d), of the same dtype: the other view.
      alpha: positive exponent.
      normalize: project vectors onto the unit sphere first.

    Returns:
      Scalar, float32 or wider; 0 for coinciding views, 2^alpha for opposite unit vectors.

    Raises:
      ValueError: invalid shapes, dtypes or values.
    """
    z = _prepare(_checks.pair(x, y), normalize)
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
      normalize: project vectors onto the unit sphere first.

    Returns:
      Scalar, float32 or wider: 0 if all vectors coincide, at least -4 t on the sphere.

    Raises:
      ValueError: invalid shapes, dtypes or values.
    """
    z = _prepare(_checks.array("x", x, "n d", (2, 1)), normalize)
    rate = _checks.scalar("t", t, z.dtype, positive=True)
    n = z.shape[0]
    square = jnp.sum(z * z, axis=-1)

    def row(i: jax.Array) -> jax.Array:
        distance = square[i] + square - 2 * _numerics.inner("d,jd->j", z[i], z)
        return _numerics.logsumexp(-rate * jnp.maximum(distance, 0), axis=0, where=jnp.arange(n) != i)

    rows = lax.map(jax.checkpoint(row), jnp.arange(n), batch_size=min(n, _ROWS))
    return _numerics.logsumexp(rows, axis=0) - math.log(n * (n - 1))


def mean_cosines(x: ArrayLike, y: ArrayLike) -> tuple[jax.Array, jax.Array]:
    """Mean cosine of the positives (x_i, y_i), and of the negatives (x_i, y_j), j != i.

    Args:
      x: (n, d) floating, n >= 2: one view.
      y: (n, d), of the same dtype: the other view.

    Returns:
      Two scalars in [-1, 1], float32 or wider.

    Raises:
      ValueError: invalid shapes or dtypes.
    """
    z = _numerics.unit(_checks.pair(x, y))
    n = z.shape[1]
    same = jnp.sum(z[0] * z[1])
    # Σ_ij <x_i, y_j> = <Σ_i x_i, Σ_j y_j>: needs no matrix.
    every = jnp.sum(z[0].sum(0) * z[1].sum(0))
    return same / n, (every - same) / (n * (n - 1))


def wasserstein_uniformity(x: ArrayLike) -> float:
    """1-D Wasserstein distance between the pairwise cosines and those of uniform points.

        ∫ |F_n(c) - F(c)| dc

    F_n is the law of the n (n-1) / 2 cosines of distinct pairs, F that of two independent uniform points on
    the sphere in d dimensions, density ∝ (1 - c²)^{(d-3)/2}. Exact: between two jumps of F_n the integral has a closed
    form.

    Args:
      x: (n, d) floating, n >= 2, d >= 2; only directions matter.

    Returns:
      A number in [0, 2], in float64: about 1 if all vectors coincide.

    Raises:
      ValueError: invalid shapes or dtypes.
    """
    from scipy.special import betainc, betaln  # its import is slow

    z = np.asarray(_checks.array("x", x, "n d", (2, 2)), np.float64)
    n, d = z.shape
    z = z / np.maximum(np.linalg.norm(z, axis=1, keepdims=True), np.finfo(float).tiny)
    cosines = np.clip(np.sort((z @ z.T)[np.triu_indices(n, 1)]), -1, 1)
    shape = (d - 1) / 2
    log_constant = -betaln(shape, shape) - (d - 2) * math.log(2)

    def cumulated(c: np.ndarray) -> np.ndarray:
        return betainc(shape, shape, (1 + c) / 2)

    def partial_mean(c: np.ndarray) -> np.ndarray:
        """∫_{-1}^c t p(t) dt"""
        return -np.exp(log_constant) * (1 - c * c) ** shape / (d - 1)

    levels, quantiles = _uniform_quantiles(len(cosines), shape)
    low, high = quantiles[:-1], quantiles[1:]
    split = np.clip(cosines, low, high)
    share = np.clip(cumulated(split), levels[:-1], levels[1:])
    below = cosines * (share - levels[:-1]) - (partial_mean(split) - partial_mean(low))
    above = partial_mean(high) - partial_mean(split) - cosines * (levels[1:] - share)
    return float(np.sum(below + above))


@functools.lru_cache(maxsize=2)  # the slowest part, equal for all views of a data set
def _uniform_quantiles(count: int, shape: float) -> tuple[np.ndarray, np.ndarray]:
    """The levels 0, 1 / count, ..., 1 and the quantiles of the cosine of two uniform points."""
    from scipy.special import betaincinv

    levels = np.arange(count + 1) / count
    return levels, 2 * betaincinv(shape, shape, levels) - 1


def _prepare(z: jax.Array, normalize: bool) -> jax.Array:
    return _numerics.unit(z) if normalize else _numerics.widen(z)
