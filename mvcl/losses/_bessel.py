"""Logarithm of the modified Bessel function of the first kind, for orders and arguments where I itself overflows."""

import functools
import math
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from mvcl import _checks, _numerics

__all__ = ["log_bessel_i"]

One = tuple[jax.Array]
Two = tuple[jax.Array, jax.Array]

# Root of η(z) = sqrt(1 + z²) + log(z / (1 + sqrt(1 + z²))), the Laplace limit.
_ROOT = Fraction("0.662743419349181580974742097109252907056233549115022417520392535")
_TERMS = 16  # of the expansion in 1 / sqrt(ν² + κ²)
_SWITCH = 30.0  # sqrt(ν² + κ²) from which it serves: its first neglected term is below 1e-15 there
_LARGEST_ORDER = 1e9  # its square is a float32, with room
_SERIES_TERMS = 50  # of the power series below; the last is below 1e-18 of the sum at κ = 30


def log_bessel_i(order: float, x: ArrayLike) -> jax.Array:
    """log I_ν(x), the modified Bessel function of the first kind.

    Where ν² + x² < 900 the power series, elsewhere the expansion that is uniform in ν and x,

        log I_ν(x) = ν η - log(2 π m) / 2 + log Σ_k p_k(ν²/m²) / m^k,   m = sqrt(ν² + x²),
        ν η = m + ν log(x / (ν + m)),

    Olver 1954; DLMF 10.41.3 with U_k(t) = t^k p_k(t²). Near the root of η (x = 0.66 ν) its two terms cancel;
    the difference from the root keeps full relative precision there.

    Args:
      order: 0 <= ν <= 1e9, a Python number.
      x: floating array of any shape, x >= 0.

    Returns:
      log I_ν(x) of x's shape, float32 or wider: to 1e-6 of max(1, |log I|) in float32, 1e-12 in float64, for
      ν up to 2048 and x up to 1e6. -inf at x = 0 unless ν = 0. Its derivative is I_{ν+1}/I_ν + ν/x.
    """
    if not 0 <= _checks.real("order", order) <= _LARGEST_ORDER:
        raise ValueError(f"order must lie in [0, {_LARGEST_ORDER:g}], got {order}")
    x = _checks.array("x", x)
    return _log_i(float(order), x.astype(jnp.promote_types(x.dtype, jnp.float32)))


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def log_series(order: float, x: jax.Array) -> jax.Array:
    """log I_ν(x) - ν log(x/2) + log Γ(ν+1) = log Σ_m (x²/4)^m / (m! (ν+1)_m): smooth, zero at zero, no
    cancellation.
    """
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


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _log_i(order: float, x: jax.Array) -> jax.Array:
    nu = order
    if nu == 0:
        return log_series(0.0, x)
    positive = jnp.where(x > 0, x, 1)
    small = _below(nu, x)
    far = positive if small is None else jnp.where(small, _SWITCH, positive)
    m = jnp.sqrt(nu * nu + far * far)
    value = _exponent(nu, far, m) - jnp.log(2 * math.pi * m) / 2 + jnp.log(_expansion(nu, m)[0])
    if small is not None:
        near = jnp.where(small, positive, 1)
        # ν log(x/2) - log Γ(ν+1) = ν log(x/c)
        series = nu * _log_quotient(near, 2 * math.exp(math.lgamma(nu + 1) / nu))
        value = jnp.where(small, series + jnp.log1p(_power_series(nu, near)), value)
    return jnp.where(x > 0, value, jnp.where(x == 0, -jnp.inf, jnp.nan)).astype(x.dtype)


@_log_i.defjvp
def _(order: float, primals: One, tangents: One) -> Two:
    (x,) = primals
    slope = bessel_ratio(order, x) + (order / x if order else 0)
    return _log_i(order, x), slope * tangents[0]


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
    u: dict[int, Fraction] = {0: Fraction(1)}  # power of t -> coefficient
    out = np.zeros((_TERMS + 1, _TERMS + 1))  # [k, i]: of s^i in p_k
    out[0, 0] = 1
    for k in range(1, _TERMS + 1):
        following: dict[int, Fraction] = {}
        for power, c in u.items():
            for shift, factor in (
                (1, Fraction(power, 2) + Fraction(1, 8 * (power + 1))),
                (3, -Fraction(power, 2) - Fraction(5, 8 * (power + 3))),
            ):
                following[power + shift] = following.get(power + shift, Fraction(0)) + c * factor
        u = following
        out[k, : k + 1] = [float(u[k + 2 * i]) for i in range(k + 1)]
    return out


def _exponent(nu: float, x: jax.Array, m: jax.Array) -> jax.Array:
    """ν η = m + ν log(x / (ν + m)), to full relative precision: near the root of η as the difference from it."""
    plain = m + nu * jnp.log(x / (nu + m))
    root = Fraction(nu) * _ROOT
    near = jnp.abs(x - float(root)) < 0.25 * nu
    high, low = _split(root, x.dtype)
    # x - high is exact within a factor 2 of the root: no digit of x is lost. The division stands between the two
    # subtractions because XLA would fold the constants of (x - high) - low into one, and lose `low`.
    offset = jnp.where(near, (x - high) / nu - low / nu, 0)
    z = float(_ROOT)
    of_root = math.sqrt(1 + z * z)
    longer = offset * (2 * z + offset) / (jnp.sqrt(1 + (z + offset) ** 2) + of_root)  # of sqrt(1 + z²)
    difference = longer + jnp.log1p(offset / z) - jnp.log1p(longer / (1 + of_root))
    return jnp.where(near, nu * difference, plain)


def _log_quotient(x: jax.Array, c: float) -> jax.Array:
    """log(x / c) to full relative precision also where x is close to c."""
    high, low = _split(Fraction(c), x.dtype)
    near = jnp.abs(x - c) < c / 2
    return jnp.where(near, jnp.log1p(jnp.where(near, (x - high) / c - low / c, 0)), jnp.log(x / c))


def _split(value: Fraction, dtype: jnp.dtype) -> tuple[float, float]:
    """value as a number of the dtype and what is left over."""
    high = float(np.asarray(float(value), dtype))
    return high, float(value - Fraction(high))
