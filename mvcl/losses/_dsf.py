"""Divergence-based similarity of two groups of views."""

import dataclasses
import math
from fractions import Fraction
from functools import cache, partial
from types import SimpleNamespace
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike

from mvcl import _checks, _numerics
from mvcl.losses import _embeddings as emb
from mvcl.losses import _lse
from mvcl.losses._combine import groups
from mvcl.losses._declaration import Operands, declare, filled
from mvcl.losses._lse import Vectors, lse_union

__all__ = ["dsf"]

One = tuple[jax.Array]
Two = tuple[jax.Array, jax.Array]


def _measured(
    queries: ArrayLike, keys: ArrayLike, queue: ArrayLike | None = None, **options: Any
) -> tuple[jax.Array, dict[str, jax.Array]]:
    return _loss(queries, keys, filled(dsf, options | {"queue": queue}))


@declare(measured=_measured, operands=Operands.GROUPS, queue="queue", queue_of_means=True)
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
    divergence: Literal["forward", "reverse", "symmetric"] = "forward",
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
      resultant_scale: factor of ||z̄|| that keeps R below one.
      normalize_concentration: divide κ by d, as the released models were trained.
      mean_resultant: "estimate" takes A_i = R_i, as trained; "exact" takes I_{d/2}(κ_i) / I_{d/2-1}(κ_i), the
        true Kullback-Leibler divergence.
      queue_concentration: "own" gives each row of the queue the κ of its own length, as Eq. 11; "batch_mean" gives all
        of them the mean over the batch's 2n concentrations, as the released code.
      divergence: "forward" is D(i || j), Eq. 9; "reverse" D(j || i); "symmetric" their mean (Jeffreys),
        [A_i κ_i + A_j κ_j - (A_i κ_j + κ_i A_j) <μ_i, μ_j>] / 2. At one view in each group all are InfoNCE.
      in_batch_negatives: False leaves each instance's own key and the queue, as MoCo v2 does.
      normalize: project vectors onto the unit sphere first; without it they must be no longer than 1.
      mask: (m + m', n) bool, the queries' first: a group's mean is over the views that are there; the mean
        over instances is over those with both groups.

    Returns:
      Scalar, float32 or wider. Where all groups coincide it is log(n), the chance level.
    """
    options = locals()  # every argument, by name
    return _loss(options.pop("queries"), options.pop("keys"), options)[0]


def _similarities(
    queries: ArrayLike, keys: ArrayLike, options: dict[str, Any]
) -> tuple[Vectors, Vectors, jax.Array, jax.Array, jax.Array, jax.Array | None]:
    """(1, n, d + 1) vectors, x with a queue of its own, such that <x_i, y_j> + alone_i = -D(i || j) / temperature.

    And what they were made of: alone, (n,); R and κ, (2, n); which groups exist, (2, n).
    """
    given = SimpleNamespace(**options)
    q, k = groups(queries, keys, given.axis_name)
    d = q.shape[2]
    kind = _checked(given, q.shape)
    e = emb.embedded(jnp.concatenate([q, k]), given.normalize, given.mask, given.axis_name, given.block_size)
    scale = jnp.asarray(given.resultant_scale, e.z.dtype)
    t = _checks.scalar("temperature", given.temperature, e.z.dtype, positive=True)
    means, exists = emb.group_means(e, q.shape[0])
    direction, resultant, kappa = _fit(means, scale, given.normalize_concentration)
    order = d / 2 - 1
    estimate = given.mean_resultant == "estimate"
    mean_resultant, mean_kappa = (
        lax.stop_gradient(emb.mean_where(x, exists, given.axis_name)) for x in (resultant, kappa)
    )

    def own(r: jax.Array, concentration: jax.Array) -> jax.Array:
        return r if estimate else bessel_ratio(order, concentration)

    def alone_of(a: jax.Array, c: jax.Array) -> tuple[jax.Array, jax.Array]:
        """What D has of the query alone, and of the key alone."""
        series = log_series(order, c)
        parts = a * c - series, series
        if kind == "symmetric":
            return a * c / 2, a * c / 2
        return parts if kind == "forward" else parts[::-1]

    # A constant added to every similarity changes nothing; this one keeps them small.
    constant = alone_of(own(mean_resultant, mean_kappa), mean_kappa)[1]

    def vectors(a: jax.Array, c: jax.Array, mu: jax.Array, group: int | None) -> Vectors:
        """Of queries (group 0) over the temperature, or of keys, whose last number is what D has of them alone."""
        first, second = (a, c) if group == 0 else (c, a)
        factors = {"forward": [first], "reverse": [second], "symmetric": [first, second]}[kind]
        half = 0.5 if kind == "symmetric" and group == 0 else 1.0
        last = jnp.ones_like(a) if group == 0 else constant - alone_of(a, c)[1]
        z = jnp.concatenate([*(half * f[:, None] * mu for f in factors), last[:, None]], axis=1)[None]
        z = z / t if group == 0 else z
        bound = jnp.max(jnp.sum(lax.stop_gradient(z) ** 2, axis=-1))
        if group is None:  # the queue's, of which every device has all
            return Vectors(z, None, bound=bound)
        return dataclasses.replace(e, z=z, keep=None if exists is None else exists[group][None], bound=bound)

    mine = own(resultant[0], kappa[0])
    x, y = (vectors(own(resultant[g], kappa[g]), kappa[g], direction[g], g) for g in (0, 1))
    if given.queue is not None:
        rows = _checks.array("queue", given.queue, "q d")
        if rows.shape[1] != d:
            raise ValueError(f"queue must have shape (q, {d}), got {rows.shape}")
        rows = lax.stop_gradient(rows).astype(e.z.dtype)
        rows = jnp.where(_length(rows)[:, None] > 1, _numerics.unit(rows), rows)
        along, near, far = _fit(rows, scale, given.normalize_concentration)
        if given.queue_concentration == "batch_mean":
            near, far = (jnp.broadcast_to(mean, far.shape) for mean in (mean_resultant, mean_kappa))
        extra = vectors(own(near, far), far, along, None)
        x = dataclasses.replace(x, queue=extra)
    alone = -(alone_of(mine, kappa[0])[0] + constant) / t
    return x, y, alone, resultant, kappa, exists


def _checked(given: SimpleNamespace, shape: tuple[int, ...]) -> str:
    """Raise for options out of their range; the divergence's name."""
    if shape[2] < 2:
        raise ValueError(f"queries must have d >= 2 features, got {shape}")
    _checks.option("mean_resultant", given.mean_resultant, ("estimate", "exact"))
    _checks.option("queue_concentration", given.queue_concentration, ("own", "batch_mean"))
    if not given.in_batch_negatives and given.queue is None:
        raise ValueError("queue must be given with in_batch_negatives=False, got None")
    if not 0 < _checks.real("resultant_scale", given.resultant_scale) < 1:
        raise ValueError(
            f"resultant_scale must be in (0, 1), so that R is below 1, got {given.resultant_scale}"
        )
    return _checks.option("divergence", given.divergence, ("forward", "reverse", "symmetric"))


def _loss(
    queries: ArrayLike, keys: ArrayLike, options: dict[str, Any]
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """The loss, and means over the batch: R, κ, and the similarities -D / temperature of positives and of negatives.

    And the temperature at which a cosine weighs what <μ_i, μ_j> does on average, temperature / (mean A · mean κ), and
    the standard deviation of log κ.
    """
    x, y, alone, resultant, kappa, exists = _similarities(queries, keys, options)
    positive = jnp.sum(x.z * y.z, axis=-1)  # (1, n)
    left, right, axis = x.z[0], y.z[0], x.axis_name
    total = count = jnp.zeros((), left.dtype)
    # The positive, with terms of size κ, is summed once and not found again in a matrix product: its rounding
    # cancels.
    energies, pair = [positive], ((0, 0),)
    if options["in_batch_negatives"]:
        energies.append(_lse.across(x, y, pair, diagonal=False, columns=False)[0])
        # The sum of the similarities with all keys is that with the keys' sum.
        there = jnp.ones(len(right), bool) if exists is None else exists[1]
        sums = jnp.sum(jnp.where(there[:, None], right, 0), axis=0), there.sum().astype(right.dtype)
        together, number = sums if axis is None else lax.psum(sums, axis)
        total, count = _numerics.inner("id,d->i", left, together) - positive[0], number - 1
    if x.queue is not None:
        energies.append(_lse.across(x, x.queue, pair, columns=False)[0])
        total = total + _numerics.inner("id,d->i", left, x.queue.z[0].sum(0))
        count = count + x.queue.z.shape[1]
    both = None if exists is None else exists.all(0)
    measures = {
        "resultant": (resultant, exists),
        "concentration": (kappa, exists),
        "positive_similarity": (positive[0] + alone, both),
        "negative_similarity": (total / jnp.maximum(count, 1) + alone, both),
    }
    loss = emb.mean_where(
        lse_union(*(e - positive for e in energies)), None if both is None else both[None], axis
    )
    means = {name: emb.mean_where(*of_group, axis) for name, of_group in measures.items()}
    if options["mean_resultant"] == "exact":
        resultant = bessel_ratio(np.shape(queries)[2] / 2 - 1, kappa)
    tiny = jnp.finfo(kappa.dtype).tiny
    slope = emb.mean_where(resultant, exists, axis) * means["concentration"]
    means["effective_temperature"] = options["temperature"] / jnp.maximum(slope, tiny)
    logarithm = jnp.log(jnp.maximum(kappa, tiny))
    square = (logarithm - emb.mean_where(logarithm, exists, axis)) ** 2
    means["log_concentration_deviation"] = jnp.sqrt(emb.mean_where(square, exists, axis))
    return loss, lax.stop_gradient(means)


def _fit(
    means: jax.Array, scale: jax.Array, normalize_concentration: bool
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """μ (..., d), R and κ (...) of the groups' mean vectors (..., d)."""
    d = means.shape[-1]
    resultant = scale * _length(means)
    kappa = resultant * (d - resultant**2) / (1 - resultant**2)
    return _numerics.unit(means), resultant, kappa / d if normalize_concentration else kappa


def _length(x: jax.Array) -> jax.Array:
    """||x|| with gradient zero at zero."""
    square = jnp.sum(x * x, axis=-1)
    some = square > 0
    return jnp.where(some, jnp.sqrt(jnp.where(some, square, 1)), 0)


# log I_ν(x), the modified Bessel function of the first kind, for orders ν >= 0, Python numbers, and arguments where I
# itself overflows. Where ν² + x² < 900 the power series serves, elsewhere the expansion that is uniform in ν and x,
#
#     log I_ν(x) = ν η - log(2 π m) / 2 + log Σ_k p_k(ν²/m²) / m^k,   m = sqrt(ν² + x²),   ν η = m + ν log(x / (ν + m)),
#
# Olver 1954; DLMF 10.41.3 with U_k(t) = t^k p_k(t²).

_TERMS = 16  # of the expansion in 1 / sqrt(ν² + κ²)
_SWITCH = 30.0  # sqrt(ν² + κ²) from which it serves: its first neglected term is below 1e-15 there
_SERIES_TERMS = 50  # of the power series below; the last is below 1e-18 of the sum at κ = 30


@partial(jax.custom_jvp, nondiff_argnums=(0,))
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


@partial(jax.custom_jvp, nondiff_argnums=(0,))
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
