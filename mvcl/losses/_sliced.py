"""Losses that make random projections of each view normal, a block of directions at a time: LeJEPA and VISReg."""

from collections.abc import Callable
from functools import partial
from typing import Any, Unpack

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike

from mvcl import _checks, _numerics
from mvcl.losses import _embeddings as emb
from mvcl.losses._declaration import OfRows, declare
from mvcl.losses._lse.whole import Two
from mvcl.losses._moments import centred, distance_from_centre

__all__ = ["lejepa", "visreg"]


@declare()
def lejepa(
    z: ArrayLike,
    key: jax.Array,
    weight: ArrayLike = 0.05,
    slices: int = 1024,
    knots: int = 17,
    t_max: float = 3.0,
    *,
    global_views: int | None = None,
    **shared: Unpack[OfRows],
) -> jax.Array:
    """LeJEPA: an instance's views at their mean, random projections of each view normal (SIGReg).

        (1 - weight) mean_{l,i,a} (z_lia - c_ia)² + weight mean_{l,u} T_l(u)
        T_l(u) = n Σ_t w_t φ(t) [ (mean_i cos(t <u, z_li>) - φ(t))² + (mean_i sin(t <u, z_li>))² ],   φ(t) = exp(-t²/2)

    over `slices` random unit vectors u, the same for all views, and `knots` even points t of [0, t_max]; w_t = 2 Δt
    inside and Δt at both ends; c_i the mean of the first `global_views` views. T is the Epps-Pulley statistic of the
    projections, the distance of their characteristic function from that of the standard normal.

    Balestriero 2025 (arXiv 2511.08544), as the released SlicingUnivariateTest and EppsPulley compute it. The paper
    integrates over 17 points of [-5, 5], which is `knots=9, t_max=5.0`. The released minimal example is `weight=0.02,
    slices=256`. One key gives one loss on any number of devices; directions are taken in blocks, so that no (k, n,
    slices) array is held. Devices exchange 8 (knots - 1) k slices bytes, whatever n is.

    Cost: k n d slices multiply-adds and 4 k n slices knots for the sums in the forward pass.

    Args:
      key: `jax.random` key of the directions.
      weight: share of SIGReg; 1 - weight is the share of the squared distances.
      slices: number of directions.
      knots: number of points t, at least 2.
      t_max: the largest t.
      global_views: how many views, the first ones, make the mean to which all views are pulled; None: all.
      mask: n of T_l is then the number of instances with view l; means are over the vectors and the views that are
        there, and an instance that lacks all global views has no squared distances.

    Returns:
      Scalar, float32 or wider: weight n Σ_t w_t φ(t) (1 - φ(t))² for vectors that are all zero.
    """
    e = emb.embedded(z, normalize=False, **shared)
    dtype, d = e.z.dtype, e.z.shape[2]
    share = _checks.scalar("weight", weight, dtype)
    slices, knots = _checks.whole("slices", slices), _checks.whole("knots", knots, 2)
    longest = _checks.real("t_max", t_max, positive=True)
    _checks.scalar("t_max", longest, dtype, positive=True)
    pull = distance_from_centre(e, global_views)
    count = emb.counts(e)
    there = None if e.keep is None else e.keep[:, :, None].astype(dtype)
    drawn, statistic = directions(key, slices, d, dtype), partial(_epps_pulley, knots, longest, e.axis_name)
    statistics = over_directions(statistic, e.axis_name, e.z, drawn, (there, count))
    return (1 - share) * pull + share * emb.mean_where(statistics / slices, count > 0, None)


def _epps_pulley(
    knots: int, t_max: float, axis_name: str | None, p: jax.Array, there: jax.Array | None, count: jax.Array
) -> Two:
    """T of (k, n, slices) projections, (k, slices), and its derivative by them."""
    t = np.linspace(0, t_max, knots)
    step = float(t[1])
    normal = np.exp(-t * t / 2)
    factors = normal * np.where(np.arange(knots) < knots - 1, 2 * step, step)
    # At t = 0 both terms are zero. What is not there starts the recurrence at zero, and stays there.
    cos, sin = jnp.cos(step * p), jnp.sin(step * p)
    first = (cos, sin) if there is None else (there * cos, there * sin)

    def turn(powers: Two, _: None) -> tuple[Two, jax.Array]:
        x, y = powers
        return (x * cos - y * sin, y * cos + x * sin), jnp.stack([jnp.sum(x, axis=1), jnp.sum(y, axis=1)])

    _, sums = lax.scan(turn, first, None, length=knots - 1)
    number = jnp.maximum(count, 1)[None, :, None]
    means = _numerics.device_sum(sums, axis_name) / number[None]
    of_cos, of_sin = means[:, 0], means[:, 1]  # (knots - 1, k, slices)
    apart = of_cos - jnp.asarray(normal[1:], p.dtype)[:, None, None]
    scale = jnp.asarray(factors[1:], p.dtype)[:, None, None]
    values = jnp.sum(scale * (apart**2 + of_sin**2), axis=0) * count[:, None]
    # The derivative is Σ_m a_m cos(mθ) - b_m sin(mθ) = Re Σ_m (a_m + i b_m) e^{imθ}: Horner's rule in e^{iθ}.
    scale = scale * jnp.asarray(2 * t[1:], p.dtype)[:, None, None] * (count[:, None] / number[0])[None]
    a, b = scale * of_sin, scale * apart
    x, y = a[-1][:, None], b[-1][:, None]
    for m in range(knots - 3, -1, -1):
        x, y = x * cos - y * sin + a[m][:, None], x * sin + y * cos + b[m][:, None]
    slope = x * cos - y * sin
    return values, slope if there is None else slope * there


@declare()
def visreg(
    z: ArrayLike,
    key: jax.Array,
    weight: ArrayLike = 0.9,
    slices: int = 4096,
    scale: ArrayLike = 1.0,
    shape: ArrayLike = 1.0,
    center: ArrayLike = 1.0,
    *,
    global_views: int | None = None,
    eps: ArrayLike = 1e-4,
    **shared: Unpack[OfRows],
) -> jax.Array:
    """VISReg: an instance's views at their mean; of each view deviations 1, mean 0 and normal projections.

        (1 - weight) mean_{l,i,a} (z_lia - c_ia)² + weight mean_l (scale S_l + shape W_l + center C_l)
        C_l = mean_a μ_la²,   μ_la = mean_i z_lia;      S_l = mean_a (1 - σ_la)²,   σ_la² = mean_i (z_lia - μ_la)²
        W_l = mean_{u,r} ( p_(r) - Φ^-1(r / (n + 1)) )²,   p_i = Σ_a u_a (z_lia - μ_la) / (sg(σ_la) + eps)

    over `slices` random unit vectors u, the same for all views, and ranks r = 1..n of the projections p; c_i is the
    mean of the first `global_views` views, Φ the normal distribution function, and sg holds σ constant, so that the
    gradient is not the derivative of the value. Wu 2026 (arXiv 2606.02572). The released code adds 1e-6 to σ in S and
    in W and has no eps; `eps=1e-6` gives its numbers to 1e-6. Its trainer draws other directions on each process.

    The directions are those of `lejepa`, in blocks too. Ranks are of the global batch: every device gathers the centred
    vectors, 4 k n d bytes, and takes an equal part of the directions. Where two projections differ by a rounding error
    their order is that of the sums: over devices the float32 gradient differs by some 1e-4 of its largest entry.

    Cost: k n d slices multiply-adds and k slices sorts of n numbers in the forward pass.

    Args:
      key: `jax.random` key of the directions.
      weight: share of the regulariser; 1 - weight is the share of the squared distances.
      slices: number of directions.
      scale: factor of S.
      shape: factor of W.
      center: factor of C.
      global_views: how many views, the first ones, make the mean to which all views are pulled; None: all.
      eps: positive number added to the deviations by which the features are divided.
      mask: as in `lejepa`, n of S, W and C.

    Returns:
      Scalar, float32 or wider: weight (scale + shape mean_r Φ^-1(r / (n + 1))²) for vectors that are all zero. The
      gradient of S by a feature that is constant is zero.
    """
    e = emb.embedded(z, normalize=False, **shared)
    dtype, d = e.z.dtype, e.z.shape[2]
    named = {"weight": weight, "scale": scale, "shape": shape, "center": center}
    share, of_scale, of_shape, of_center = (_checks.scalar(n, v, dtype) for n, v in named.items())
    small = _checks.scalar("eps", eps, dtype, positive=True)
    slices = _checks.whole("slices", slices)
    pull = distance_from_centre(e, global_views)
    count = emb.counts(e)
    vectors, mean = centred(e)
    number = jnp.maximum(count, 1)[:, None]
    variance = _numerics.device_sum(jnp.sum(vectors**2, axis=1), e.axis_name) / number
    some = variance > 0
    deviation = jnp.where(some, jnp.sqrt(jnp.where(some, variance, 1)), variance)
    features = vectors / (lax.stop_gradient(deviation) + small)[:, None]
    rows = _numerics.gather(features, e.axis_name, 1)
    there = None if e.keep is None else _numerics.gather(e.keep, e.axis_name, 1)[:, :, None]
    ranks = jnp.arange(1, rows.shape[1] + 1, dtype=dtype)[None]
    among = ranks <= count[:, None]
    quantiles = jax.scipy.special.ndtri(jnp.where(among, ranks / (count[:, None] + 1), 0.5))
    drawn = directions(key, slices, d, dtype)
    if e.axis_name is not None:  # this device's directions, the last part filled with zeros
        part = -(-slices // lax.axis_size(e.axis_name))
        padded = jnp.pad(drawn, ((0, part * lax.axis_size(e.axis_name) - slices), (0, 0)))
        drawn = lax.dynamic_slice_in_dim(padded, part * lax.axis_index(e.axis_name), part)
    constants = there, among[:, :, None], quantiles[:, :, None]
    distances = over_directions(_to_quantiles, None, rows, drawn, constants)
    shapes = _numerics.device_sum(distances, e.axis_name) / (number[:, 0] * slices)
    terms = of_scale * jnp.mean((1 - deviation) ** 2, axis=1) + of_center * jnp.mean(mean[:, 0] ** 2, axis=1)
    return (1 - share) * pull + share * emb.mean_where(terms + of_shape * shapes, count > 0, None)


def _to_quantiles(p: jax.Array, there: jax.Array | None, among: jax.Array, quantiles: jax.Array) -> Two:
    """Σ_r (p_(r) - q_r)² of (k, n, slices) projections, (k, slices), and its derivative by them."""
    ordered = p if there is None else jnp.where(there, p, jnp.inf)  # what is not there comes last
    place = lax.broadcasted_iota(jnp.int32, p.shape, 1)
    ordered, place = lax.sort((ordered, place), dimension=1, num_keys=1)
    apart = jnp.where(among, ordered - quantiles, 0)
    slope = jnp.put_along_axis(jnp.zeros_like(p), place, 2 * apart, axis=1, inplace=False)
    return jnp.sum(apart**2, axis=1), slope


# `statistic(p, *constants)` of (k, n, slices) projections: its values (k, slices) and the derivative of their sum by
# p, of the shape of p. The constants are arrays that are not differentiated.
Statistic = Callable[..., Two]
Arguments = tuple[jax.Array, jax.Array, tuple[Any, ...]]

# Projections of a block: few enough for the cache of a processor, enough for an accelerator.
_PROJECTIONS = 2**19


def directions(key: jax.Array, slices: int, d: int, dtype: jnp.dtype) -> jax.Array:
    """`(slices, d)` random unit vectors; float32 and float64 have the same ones."""
    drawn = jax.random.normal(_checks.key("key", key), (slices, d), jnp.float32)
    return _numerics.unit(drawn.astype(dtype))


@partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def over_directions(
    statistic: Statistic, axis_name: str | None, z: jax.Array, a: jax.Array, constants: tuple[Any, ...]
) -> jax.Array:
    """`(k,)`: the sum over the directions a, (slices, d), of the statistic of the projections of z, (k, n, d).

    A direction that is zero counts as none. The derivative by z is computed with the value, so that in either mode of
    differentiation a block's projections are computed once and not kept.
    """
    return _streamed(statistic, z, a, constants, False)[0]


@over_directions.defjvp
def _(statistic: Statistic, axis_name: str | None, primals: Arguments, tangents: Arguments) -> Two:
    values, slope = _streamed(statistic, *primals, True)
    return values, _numerics.device_sum(jnp.sum(slope * tangents[0], axis=(1, 2)), axis_name)


def _streamed(
    statistic: Statistic, z: jax.Array, a: jax.Array, constants: tuple[Any, ...], differentiated: bool
) -> Two:
    """The values, and their derivative by z where it is asked for."""
    k, n, d = z.shape
    blocks = -(-len(a) // max(1, _PROJECTIONS // (k * n)))
    size = -(-len(a) // blocks)
    drawn = jnp.pad(a, ((0, blocks * size - len(a)), (0, 0))).reshape(blocks, size, d)

    def block(slope: jax.Array, a: jax.Array) -> Two:
        counts = jnp.any(a != 0, axis=1)[None]
        values, by_projection = statistic(_numerics.inner("lid,sd->lis", z, a), *constants)
        if differentiated:
            by_projection = jnp.where(counts[None], by_projection, 0)
            slope = slope + _numerics.inner("lis,sd->lid", by_projection, a)
        return slope, jnp.sum(jnp.where(counts, values, 0), axis=1)

    slope, values = lax.scan(block, _numerics.vary_as(jnp.zeros_like(z), z), drawn)
    return jnp.sum(values, axis=0), slope
