"""Logarithm of the modified Bessel function of the first kind, for orders and arguments where I itself overflows.

Where ν² + x² < 900 the power series serves, elsewhere the expansion that is uniform in ν and x,

    log I_ν(x) = ν η - log(2 π m) / 2 + log Σ_k p_k(ν²/m²) / m^k,   m = sqrt(ν² + x²),   ν η = m + ν log(x / (ν + m)),

Olver 1954; DLMF 10.41.3 with U_k(t) = t^k p_k(t²). The order ν >= 0 is a Python number.
"""

import functools
import math
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np

from mvcl import _numerics

One = tuple[jax.Array]
Two = tuple[jax.Array, jax.Array]

_TERMS = 16  # of the expansion in 1 / sqrt(ν² + κ²)
_SWITCH = 30.0  # sqrt(ν² + κ²) from which it serves: its first neglected term is below 1e-15 there
_SERIES_TERMS = 50  # of the power series below; the last is below 1e-18 of the sum at κ = 30


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def log_series(order: float, x: jax.Array) -> jax.Array:
    """log I_ν(x) - ν log(x/2) + log Γ(ν+1) = log Σ_m (x²/4)^m / (m! (ν+1)_m): smooth, zero at zero."""
    nu = order
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


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def bessel_ratio(order: float, x: jax.Array) -> jax.Array:
    """I_{ν+1}(x) / I_ν(x), the derivative of `log_series`: 0 at zero, 1 at infinity."""
    return x * _ratio_over_x(order, x)


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
    return jnp.where(
        small, (1 + _power_series(nu + 1, near)) / (2 * (nu + 1) * (1 + _power_series(nu, near))), value
    )


def _expansion(nu: float, m: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Σ_k p_k(s) r^k with r = 1/m, s = (ν/m)², and its derivatives by r and by s."""
    c, count = _polynomials(), np.arange(_TERMS + 1)
    by_r, by_s = np.roll(c * count[:, None], -1, axis=0), np.roll(c * count, -1, axis=1)
    r, s = _powers(1 / m), _powers((nu / m) ** 2)

    def total(coefficients: np.ndarray) -> jax.Array:
        rows = _numerics.inner("ki,i...->k...", jnp.asarray(coefficients, m.dtype), s)
        return jnp.sum(rows * r, axis=0)

    return total(c), total(by_r), total(by_s)


def _powers(base: jax.Array) -> jax.Array:
    out = [jnp.ones_like(base)]
    for _ in range(_TERMS):
        out.append(out[-1] * base)
    return jnp.stack(out)


@functools.cache
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
