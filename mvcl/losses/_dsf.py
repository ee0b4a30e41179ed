"""Divergence-based similarity of two groups of views, and the Bessel functions that it is made of."""

import functools
import math
from fractions import Fraction
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike

from mvcl import _checks, _numerics
from mvcl.losses import _embeddings as emb
from mvcl.losses import _lse
from mvcl.losses._combine import groups
from mvcl.losses._declaration import Operands, QueueRows, declare, filled

__all__ = ["dsf", "log_bessel_i"]

One = tuple[jax.Array]
Two = tuple[jax.Array, jax.Array]


def _measured(
    queries: ArrayLike, keys: ArrayLike, queue: ArrayLike | None = None, **options: Any
) -> tuple[jax.Array, dict[str, jax.Array]]:
    s = _similarities(queries, keys, **filled(dsf, options | {"queue": queue}))
    return _loss(s), lax.stop_gradient(_measures(s))


@declare(measured=_measured, operands=Operands.GROUPS, queue="queue", queue_rows=QueueRows.GROUP_MEAN)
def dsf(
    queries: ArrayLike,
    keys: ArrayLike,
    queue: ArrayLike | None = None,
    *,
    temperature: ArrayLike = 1.0,
    resultant_scale: float = 0.95,
    normalize_concentration: bool = True,
    mean_resultant: Literal["estimate", "exact"] = "estimate",
    queue_concentration: Literal["own", "batch_mean"] = "own",
    in_batch_negatives: bool = True,
    normalize: bool = True,
    mask: ArrayLike | None = None,
    axis_name: str | None = None,
    block_size: int | None = None,
) -> jax.Array:
    """DSF: contrast von Mises-Fisher distributions, one fitted to each group of views of an instance.

        -mean_i log softmax_j( -D(i || j) / temperature )[i]
        D(i || j) = (d/2 - 1) log(κ_i / κ_j) + log I_{d/2-1}(κ_j) - log I_{d/2-1}(κ_i)
                    + A_i (κ_i - κ_j <μ_i, μ_j>)

    i from the queries, j over the keys; μ is the direction of the group's mean z̄, R = resultant_scale
    ||z̄||, κ = R (d - R²) / (1 - R²). Jeon 2025 (arXiv 2507.06560), Eqs. 3-11; the temperature is Table 3's.

    By default D is not a Kullback-Leibler divergence, though the paper calls it one: with A = R, as the released code
    trains, it can be negative. At d = 128, for equal directions and lengths ||z̄|| of 0.8 and 1, it is -5.64. D is
    the divergence for `mean_resultant="exact"`, whose A = I_{d/2}(κ) / I_{d/2-1}(κ) is about κ/d for small κ. With
    κ divided by d that leaves a similarity hardly any range: at d = 128 and 4,096 negatives the loss cannot fall
    below 6.86, where chance is 8.32; with A = R it can fall to 0.00004. To train with `exact`, set
    `normalize_concentration=False`.

    What depends on i alone cancels in the softmax, so that a similarity is <A_i μ_i, κ_j μ_j> minus a function of
    κ_j that is smooth at 0. The released code expands log I to three terms; for MoCo v3 it subtracts the logarithm of
    the series ratio where it must be added, for MoCo v2 it takes A = 1 at m = 1.

    Cost: n² d multiply-adds in the forward pass.

    Args:
      queries: (m, n, d) floating, m >= 1, n >= 2: one group of views.
      keys: (m', n, d), of the same dtype: the other group.
      queue: (q, d) further negatives, means z̄ of earlier groups of unit vectors, whose lengths give their κ; a row
        longer than 1 counts as a unit vector. Without gradient.
      temperature: positive divisor of the similarities.
      resultant_scale: factor of ||z̄|| that keeps R below one.
      normalize_concentration: divide κ by d, as the released models were trained.
      mean_resultant: "estimate" takes A_i = R_i, as trained; "exact" takes I_{d/2}(κ_i) / I_{d/2-1}(κ_i), the
        true Kullback-Leibler divergence.
      queue_concentration: "own" gives each row of the queue the κ of its own length, as Eq. 11; "batch_mean" gives all
        of them the mean over the batch's 2n concentrations, as the released code.
      in_batch_negatives: False leaves each instance's own key and the queue, as MoCo v2 does.
      normalize: project vectors onto the unit sphere first; without it they must be no longer than 1.
      mask: (m + m', n) bool, the queries' first: a group's mean is over the views that are there; the mean
        over instances is over those with both groups.

    Returns:
      Scalar, float32 or wider. Where all groups coincide it is log(n), the chance level.
    """
    return _loss(_similarities(**locals()))  # every argument, by name


class _Similarities(NamedTuple):
    """Vectors with <x_i, y_j> + alone_i = -D(i || j) / temperature, and what they were made of."""

    queries: _lse.Vectors  # (1, n, d + 1)
    keys: _lse.Vectors
    queue: _lse.Vectors | None  # (1, q, d + 1)
    alone: jax.Array  # (n,), what depends on the query alone
    resultant: jax.Array  # (2, n)
    kappa: jax.Array  # (2, n)
    exists: jax.Array | None  # (2, n) bool
    in_batch_negatives: bool
    axis_name: str | None
    block_size: int | None


def _similarities(
    queries: ArrayLike,
    keys: ArrayLike,
    *,
    queue: ArrayLike | None,
    temperature: ArrayLike,
    resultant_scale: float,
    normalize_concentration: bool,
    mean_resultant: str,
    queue_concentration: str,
    in_batch_negatives: bool,
    normalize: bool,
    mask: ArrayLike | None,
    axis_name: str | None,
    block_size: int | None,
) -> _Similarities:
    q, k = groups(queries, keys, axis_name)
    d = q.shape[2]
    if d < 2:
        raise ValueError(f"queries must have d >= 2 features, got {q.shape}")
    _checks.option("mean_resultant", mean_resultant, ("estimate", "exact"))
    _checks.option("queue_concentration", queue_concentration, ("own", "batch_mean"))
    if not in_batch_negatives and queue is None:
        raise ValueError("queue must be given with in_batch_negatives=False, got None")
    e = emb.embedded(jnp.concatenate([q, k]), normalize, mask, axis_name, block_size)
    scale = _checks.scalar("resultant_scale", resultant_scale, e.z.dtype, positive=True)
    t = _checks.scalar("temperature", temperature, e.z.dtype, positive=True)
    means, exists = emb.group_means(e, q.shape[0])
    direction, resultant, kappa = _fit(means, scale, normalize_concentration)
    order = d / 2 - 1
    own = resultant[0] if mean_resultant == "estimate" else bessel_ratio(order, kappa[0])
    mean_kappa = lax.stop_gradient(_numerics.mean_where(kappa, exists, axis_name))
    # A constant added to every similarity changes nothing; this one keeps them small.
    constant = log_series(order, mean_kappa)
    flags = [None, None] if exists is None else [exists[0][None], exists[1][None]]
    x = _vectors(own[:, None] * direction[0] / t, jnp.ones_like(own) / t, flags[0])
    y = _vectors(kappa[1][:, None] * direction[1], constant - log_series(order, kappa[1]), flags[1])
    extra = None
    if queue is not None:
        along, _, far = _fit(_queue(queue, d, e.z.dtype), scale, normalize_concentration)
        if queue_concentration == "batch_mean":
            far = jnp.broadcast_to(mean_kappa, far.shape)
        extra = _vectors(far[:, None] * along, constant - log_series(order, far), None)
    alone = (log_series(order, kappa[0]) - constant - own * kappa[0]) / t
    return _Similarities(
        *(x, y, extra, alone, resultant, kappa, exists), in_batch_negatives, axis_name, e.block_size
    )


def _loss(s: _Similarities) -> jax.Array:
    positive = jnp.sum(s.queries.z * s.keys.z, axis=-1)  # (1, n)
    # The positive, with terms of size κ, is summed once and not found again in a matrix product: its rounding
    # cancels.
    energies = [positive]
    if s.in_batch_negatives:
        energies.append(_across(s, s.keys, gathered=True))
    if s.queue is not None:
        energies.append(_across(s, s.queue, gathered=False))
    both = None if s.exists is None else s.exists.all(0)[None]
    return _numerics.mean_where(emb.lse_union(*(energy - positive for energy in energies)), both, s.axis_name)


def _measures(s: _Similarities) -> dict[str, jax.Array]:
    """Means over the batch: R, κ, and the similarities -D / temperature of positives and of negatives."""
    x, y = s.queries.z[0], s.keys.z[0]
    there = jnp.ones(y.shape[:1], bool) if s.exists is None else s.exists[1]
    both = None if s.exists is None else s.exists.all(0)
    positive = jnp.where(there, jnp.sum(x * y, axis=-1), 0)
    total, count = jnp.zeros_like(positive), jnp.zeros_like(positive)
    if s.in_batch_negatives:
        # The sum of the similarities with all keys is that with the keys' sum.
        keys, number = jnp.sum(jnp.where(there[:, None], y, 0), axis=0), there.sum().astype(y.dtype)
        if s.axis_name is not None:
            keys, number = lax.psum((keys, number), s.axis_name)
        total = total + _numerics.inner("id,d->i", x, keys) - positive
        count = count + number - there.astype(y.dtype)
    if s.queue is not None:
        total = total + _numerics.inner("id,d->i", x, s.queue.z[0].sum(0))
        count = count + s.queue.z.shape[1]
    mean = lambda a, where: _numerics.mean_where(a, where, s.axis_name)  # noqa: E731
    return {
        "resultant": mean(s.resultant, s.exists),
        "concentration": mean(s.kappa, s.exists),
        "positive_similarity": mean(positive + s.alone, both),
        "negative_similarity": mean(total / jnp.maximum(count, 1) + s.alone, both),
    }


def _fit(
    means: jax.Array, scale: jax.Array, normalize_concentration: bool
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """μ (..., d), R and κ (...) of the groups' mean vectors (..., d)."""
    d = means.shape[-1]
    resultant = scale * _length(means)
    kappa = resultant * (d - resultant**2) / (1 - resultant**2)
    return _numerics.unit(means), resultant, kappa / d if normalize_concentration else kappa


def _queue(queue: ArrayLike, d: int, dtype: jnp.dtype) -> jax.Array:
    """The queue's mean vectors, those longer than 1 as unit vectors."""
    extra = _checks.array("queue", queue, "q d")
    if extra.shape[1] != d:
        raise ValueError(f"queue must have shape (q, {d}), got {extra.shape}")
    extra = lax.stop_gradient(extra).astype(dtype)
    return jnp.where(_length(extra)[:, None] > 1, _numerics.unit(extra), extra)


def _length(x: jax.Array) -> jax.Array:
    """||x|| with gradient zero at zero."""
    square = jnp.sum(x * x, axis=-1)
    some = square > 0
    return jnp.where(some, jnp.sqrt(jnp.where(some, square, 1)), 0)


def _vectors(z: jax.Array, last: jax.Array, keep: jax.Array | None) -> _lse.Vectors:
    """`(1, n, d + 1)` vectors from (n, d) and one more feature, (n,)."""
    z = jnp.concatenate([z, last[:, None]], axis=1)[None]
    return _lse.Vectors(z, keep, jnp.max(jnp.sum(lax.stop_gradient(z) ** 2, axis=-1)))


def _across(s: _Similarities, y: _lse.Vectors, *, gathered: bool) -> jax.Array:
    """`(1, n)`: the log-sum-exp over the keys of other instances, or over the queue."""
    return _lse.across(
        s.queries,
        y,
        ((0, 0),),
        diagonal=not gathered,
        columns=False,
        axis_name=s.axis_name,
        gathered=gathered,
        block_size=s.block_size,
    )[0]


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
    a Taylor series around the root keeps full relative precision there.

    Args:
      order: 0 <= ν <= 1e9, a Python number.
      x: floating array of any shape, x >= 0.

    Returns:
      log I_ν(x) of x's shape, float32 or wider: to 1e-6 of max(1, |log I|) in float32, 1e-12 in float64, for
      ν up to 2048 and x up to 1e6. -inf at x = 0 unless ν = 0. Its derivative is I_{ν+1}/I_ν + ν/x.

    Raises:
      ValueError: for an order outside that range or an integer dtype.
    """
    if not 0 <= _checks.real("order", order) <= _LARGEST_ORDER:
        raise ValueError(f"order must lie in [0, {_LARGEST_ORDER:g}], got {order}")
    x = _checks.floating("x", x)
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
        ratio = _expansion(nu, m)[0] / _expansion_at_zero(nu)
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


def _expansion_at_zero(nu: float) -> float:
    """Σ_k p_k(1) / ν^k, the expansion at x = 0."""
    return float(_polynomials().sum(1) @ nu ** -np.arange(_TERMS + 1.0))


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
    """ν η = m + ν log(x / (ν + m)), to full relative precision."""
    plain = m + nu * jnp.log(x / (nu + m))
    root = Fraction(nu) * _ROOT
    near = jnp.abs(x - float(root)) < 0.25 * nu
    high, low = _split(root, x.dtype)
    # x - high is exact within a factor 2 of the root: no digit of x is lost. The division stands between the two
    # subtractions because XLA would fold the constants of (x - high) - low into one, and lose `low`.
    offset = jnp.where(near, (x - high) / nu - low / nu, 0)
    series = jnp.zeros_like(x)
    for c in reversed(_taylor()):
        series = (series + c) * offset
    return jnp.where(near, nu * series, plain)


@functools.cache
def _taylor() -> list[float]:
    """Coefficients of η around its root from the first power on: the integral of sqrt(1 + z²) / z."""
    z, count = float(_ROOT), 48
    square = np.zeros(count)
    square[:3] = 1 + z * z, 2 * z, 1
    root = np.zeros(count)
    root[0] = math.sqrt(square[0])
    for i in range(1, count):
        root[i] = (square[i] - root[1:i] @ root[i - 1 : 0 : -1]) / (2 * root[0])
    slope = np.zeros(count)
    for i in range(count):
        slope[i] = (root[i] - (slope[i - 1] if i else 0)) / z
    return [float(c / (i + 1)) for i, c in enumerate(slope)]


def _log_quotient(x: jax.Array, c: float) -> jax.Array:
    """log(x / c) to full relative precision also where x is close to c."""
    high, low = _split(Fraction(c), x.dtype)
    near = jnp.abs(x - c) < c / 2
    return jnp.where(near, jnp.log1p(jnp.where(near, (x - high) / c - low / c, 0)), jnp.log(x / c))


def _split(value: Fraction, dtype: jnp.dtype) -> tuple[float, float]:
    """value as a number of the dtype and what is left over."""
    high = float(np.asarray(float(value), dtype))
    return high, float(value - Fraction(high))
