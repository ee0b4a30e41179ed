"""Von Mises-Fisher distributions: their fit, their divergence, and the Bessel functions of both."""

import math
from fractions import Fraction
from functools import cache, partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike

from mvcl import _checks, _numerics
from mvcl.losses import _embeddings as emb
from mvcl.losses._lse.whole import One, Two

__all__ = ["VonMisesFisher", "bessel_ratio", "log_series", "vmf_divergence", "vmf_fit"]


class VonMisesFisher(NamedTuple):
    """Distributions on the unit sphere of R^d with density proportional to exp(κ <μ, x>)."""

    direction: jax.Array
    """μ, (..., d) unit vectors; zero where κ is."""
    resultant: jax.Array
    """R (...,), in [0, 1): the estimate of the length of the distribution's mean."""
    concentration: jax.Array
    """κ (...,), not negative; 0 is the uniform distribution."""


def vmf_fit(
    z: ArrayLike,
    mask: ArrayLike | None = None,
    *,
    resultant_scale: float = 0.95,
    normalize_concentration: bool = True,
) -> VonMisesFisher:
    """The distribution of each instance's views, μ = z̄ / ||z̄||, R = resultant_scale ||z̄||, κ = R (d - R²) / (1 - R²).

    z̄ is the mean of the views. Jeon 2025 (arXiv 2507.06560), Eqs. 3-6, with the κ of Banerjee 2005; `dsf` fits these.

    Args:
      z: (m, n, d) unit vectors, m >= 1.
      mask: (m, n) bool, False for views that are not there; an instance without views has κ = 0.
      resultant_scale: factor of ||z̄|| that keeps R below one.
      normalize_concentration: divide κ by d, as the released models were trained; False for the estimate itself.

    Returns:
      (n, d), (n,) and (n,). One view gives R = resultant_scale.
    """
    z = _numerics.widen(_checks.array("z", z, "m n d"))
    keep = _checks.mask(mask, z.shape[:2])
    means, _ = emb.centres(z if keep is None else jnp.where(keep[:, :, None], z, 0), keep)
    return of_means(means, resultant_scale, normalize_concentration)


def of_means(means: jax.Array, resultant_scale: float, normalize_concentration: bool) -> VonMisesFisher:
    """The distributions of groups with mean vectors (..., d)."""
    if not 0 < _checks.real("resultant_scale", resultant_scale) < 1:
        raise ValueError(f"resultant_scale must be in (0, 1), so that R is below 1, got {resultant_scale}")
    d = means.shape[-1]
    resultant = jnp.asarray(resultant_scale, means.dtype) * length(means)
    kappa = resultant * (d - resultant**2) / (1 - resultant**2)
    kappa = kappa / d if normalize_concentration else kappa
    return VonMisesFisher(_numerics.unit(means), resultant, kappa)


def length(x: jax.Array) -> jax.Array:
    """||x|| with gradient zero at zero."""
    square = jnp.sum(x * x, axis=-1)
    some = square > 0
    return jnp.where(some, jnp.sqrt(jnp.where(some, square, 1)), 0)


def vmf_divergence(
    p: VonMisesFisher, q: VonMisesFisher, mean_resultant: Literal["exact", "estimate"] = "exact"
) -> jax.Array:
    """Kullback-Leibler divergence D(p || q) of two distributions, in nats.

        (d/2 - 1) log(κ_p / κ_q) + log I_{d/2-1}(κ_q) - log I_{d/2-1}(κ_p) + A_p (κ_p - κ_q <μ_p, μ_q>)

    Jeon 2025 (arXiv 2507.06560), Eq. 9. `vmf_divergence(q, p)` is the reverse one.

    Args:
      p, q: distributions whose shapes broadcast, as (n, 1) and (1, n) for all pairs, with d >= 2.
      mean_resultant: A_p. "exact" takes I_{d/2}(κ_p) / I_{d/2-1}(κ_p); the result is not negative and is 0 at p = q.
        "estimate" takes R_p.

    Returns:
      (...,) of the shape that p and q broadcast to. Both uniform: 0.
    """
    _checks.option("mean_resultant", mean_resultant, ("exact", "estimate"))
    mu, nu = (jnp.asarray(of.direction) for of in (p, q))
    if not mu.shape[-1:] == nu.shape[-1:] >= (2,):
        raise ValueError(f"p and q must have directions (..., d), d >= 2, got {mu.shape} and {nu.shape}")
    order = mu.shape[-1] / 2 - 1
    kappa, other = jnp.asarray(p.concentration), jnp.asarray(q.concentration)
    a = jnp.asarray(p.resultant) if mean_resultant == "estimate" else bessel_ratio(order, kappa)
    apart = jnp.sum((mu - nu) ** 2, axis=-1) / 2  # 1 - <μ_p, μ_q>, without its rounding
    return log_series(order, other) - log_series(order, kappa) + a * (kappa - other) + a * other * apart


# log I_ν(x), the modified Bessel function of the first kind. Where ν² + x² < 900 the power series serves, elsewhere
#
#     log I_ν(x) = ν η - log(2 π m) / 2 + log Σ_k p_k(ν²/m²) / m^k,   m = sqrt(ν² + x²),   ν η = m + ν log(x / (ν + m)),
#
# Olver 1954; DLMF 10.41.3 with U_k(t) = t^k p_k(t²).

_TERMS = 16  # of the expansion in 1 / sqrt(ν² + κ²)
_SWITCH = 30.0  # sqrt(ν² + κ²) from which it serves: its first neglected term is below 1e-15 there
_SERIES_TERMS = 50  # of the power series below; the last is below 1e-18 of the sum at κ = 30


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def log_series(order: float, x: ArrayLike) -> jax.Array:
    """log I_ν(x) - ν log(x/2) + log Γ(ν+1) = log Σ_m (x²/4)^m / (m! (ν+1)_m): smooth, zero at zero.

    Args:
      order: ν >= 0, a Python number.
      x: floating, of any shape; finite where I_ν(x) itself is not.

    Raises:
      ValueError: a negative or traced order.
    """
    nu, x = _checked(order, x)
    small = _below(nu, x)
    if small is None:
        m = jnp.sqrt(nu * nu + x * x)
        delta = x * x / (nu + m)  # m - ν
        at_zero = float(_polynomials().sum(1) @ nu ** -np.arange(_TERMS + 1.0))  # Σ_k p_k(1) / ν^k
        ratio = _expansion(nu, m)[0] / at_zero
        return delta - nu * jnp.log1p(delta / (2 * nu)) - jnp.log1p(delta / nu) / 2 + jnp.log(ratio)
    near, far = jnp.where(small, x, 1), jnp.where(small, _SWITCH, x)
    m = jnp.sqrt(nu * nu + far * far)
    large = m - nu * jnp.log((nu + m) / 2) - jnp.log(2 * math.pi * m) / 2 + jnp.log(_expansion(nu, m)[0])
    return jnp.where(small, jnp.log1p(_power_series(nu, near)), large + math.lgamma(nu + 1))


@log_series.defjvp
def _(order: float, primals: One, tangents: One) -> Two:
    return log_series(order, *primals), bessel_ratio(order, *primals) * tangents[0]


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def bessel_ratio(order: float, x: ArrayLike) -> jax.Array:
    """I_{ν+1}(x) / I_ν(x), the derivative of `log_series`: 0 at zero, 1 at infinity. Arguments as there.

    For ν = d/2 - 1 it is A_d(κ), the length of the mean of a von Mises-Fisher distribution on the sphere of R^d.
    """
    nu, x = _checked(order, x)
    return x * _ratio_over_x(nu, x)


@bessel_ratio.defjvp
def _(order: float, primals: One, tangents: One) -> Two:
    (x,) = primals
    # From A_ν = x / D, D = 2(ν+1) + x A_{ν+1}. The textbook 1 - A² - (2ν+1) A/x, which is used for A_{ν+1}
    # here, loses log10(ν) digits at small x; one step of the recurrence multiplies that error by x².
    after = bessel_ratio(order + 1, x)
    after_slope = 1 - after * after - (2 * order + 3) * _ratio_over_x(order + 1, x)
    denominator = 2 * (order + 1) + x * after
    slope = (2 * (order + 1) - x * x * after_slope) / (denominator * denominator)
    return bessel_ratio(order, x), slope * tangents[0]


def _checked(order: float, x: ArrayLike) -> tuple[float, jax.Array]:
    if _checks.real("order", order) < 0:
        raise ValueError(f"order must be at least 0, got {order}")
    return float(order), _numerics.widen(_checks.array("x", x))


def _below(nu: float, x: jax.Array) -> jax.Array | None:
    """Where the power series serves; None: nowhere."""
    return None if nu >= _SWITCH else nu * nu + x * x < _SWITCH**2


def _power_series(nu: float, x: jax.Array) -> jax.Array:
    """Σ_{m>=1} (x²/4)^m / (m! (ν+1)_m), all terms positive."""
    w = x * x / 4
    total = jnp.zeros_like(x)
    for m in range(_SERIES_TERMS, 0, -1):
        total = (1 + total) * (w / (m * (nu + m)))
    return total


def _ratio_over_x(nu: float, x: jax.Array) -> jax.Array:
    """I_{ν+1}(x) / (x I_ν(x)), smooth at zero."""
    small = _below(nu, x)
    far = x if small is None else jnp.where(small, _SWITCH, x)
    m = jnp.sqrt(nu * nu + far * far)
    total, by_inverse, by_square = _expansion(nu, m)
    slope = (by_inverse / m + 2 * by_square * (nu / m) ** 2) / (m * m * total)
    value = 1 / (nu + m) - 1 / (2 * m * m) - slope
    if small is None:
        return value
    near = jnp.where(small, x, 1)
    series = (1 + _power_series(nu + 1, near)) / (2 * (nu + 1) * (1 + _power_series(nu, near)))
    return jnp.where(small, series, value)


def _expansion(nu: float, m: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Σ_k p_k(s) r^k with r = 1/m, s = (ν/m)², and its derivatives by r and by s.

    By Horner's rule in both, so that no array of terms is held.
    """
    r, s = 1 / m, (nu / m) ** 2

    def add(sums: tuple[jax.Array, jax.Array, jax.Array], row: jax.Array) -> tuple[Any, None]:
        total, by_r, by_s = sums
        value = slope = jnp.zeros_like(s)
        for c in row[::-1]:
            value, slope = value * s + c, slope * s + value
        return (total * r + value, by_r * r + total, by_s * r + slope), None

    zero = jnp.zeros_like(r)
    return lax.scan(add, (zero, zero, zero), jnp.asarray(_polynomials()[::-1], m.dtype))[0]


@cache
def _polynomials() -> np.ndarray:
    """p_k of DLMF 10.41.9, U_{k+1} = t²(1-t²)/2 U_k' + 1/8 ∫_0^t (1-5s²) U_k(s) ds, in exact fractions."""
    rows = [[Fraction(1)]]  # [k][i]: of s^i in p_k, of t^(k+2i) in U_k
    for k in range(_TERMS):
        following = [Fraction(0)] * (k + 2)
        for i, c in enumerate(rows[-1]):
            power = k + 2 * i
            following[i] += c * (Fraction(power, 2) + Fraction(1, 8 * (power + 1)))
            following[i + 1] -= c * (Fraction(power, 2) + Fraction(5, 8 * (power + 3)))
        rows.append(following)
    return np.array([[float(c) for c in row] + [0.0] * (_TERMS + 1 - len(row)) for row in rows])
