"""LeJEPA: the views of an instance at one place, each view's vectors distributed as a standard normal."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike

from mvcl import _checks
from mvcl.losses import _slices, _statistics, _views
from mvcl.losses._declaration import declare


@declare(mask=True, axis_name=True, key=True, global_views=True)
def lejepa(
    z: ArrayLike,
    key: jax.Array,
    weight: ArrayLike = 0.05,
    slices: int = 1024,
    knots: int = 17,
    t_max: float = 3.0,
    global_views: int | None = None,
    *,
    mask: ArrayLike | None = None,
    axis_name: str | None = None,
) -> jax.Array:
    """LeJEPA: an instance's views at their mean, random projections of each view normal (SIGReg).

        (1 - weight) mean_{l,i,a} (z_lia - c_ia)² + weight mean_{l,u} T_l(u)
        T_l(u) = n Σ_t w_t φ(t) [ (mean_i cos(t <u, z_li>) - φ(t))² + (mean_i sin(t <u, z_li>))² ],   φ(t) = exp(-t²/2)

    over `slices` random unit vectors u, the same for all views, and `knots` even points t of [0, t_max]; w_t = 2 Δt
    inside and Δt at both ends; c_i the mean of the first `global_views` views. T is the Epps-Pulley statistic of the
    projections, the distance of their characteristic function from that of the standard normal.

    Balestriero 2025 (arXiv 2511.08544), as the released SlicingUnivariateTest and EppsPulley compute it; the factors
    2 Δt stand for the negative half of the axis. The paper integrates over 17 points of [-5, 5], which is
    `knots=9, t_max=5.0`. The released minimal example is `weight=0.02, slices=256`. Vectors are compared as they are,
    not projected.

    The directions are drawn from `key` alone: one key gives one loss on any number of devices, in float32 and
    float64. Cosines and sines of t_m = m Δt follow from those of Δt by the addition theorem, to within m roundings;
    directions are taken in blocks, so that no (k, n, slices) array is held. Devices exchange
    2 (knots - 1) k slices numbers, 8 (knots - 1) k slices bytes, whatever n is.

    Cost: k n d slices multiply-adds and 4 k n slices knots for the sums in the forward pass.

    Args:
      z: (k, n, d) floating, k >= 2, n >= 2; half precision is summed in float32.
      key: `jax.random` key of the directions.
      weight: share of SIGReg; 1 - weight is the share of the squared distances.
      slices: number of directions.
      knots: number of points t, at least 2.
      t_max: the largest t.
      global_views: how many views, the first ones, make the mean to which all views are pulled; None: all.
      mask: (k, n) bool, False for a view that an instance lacks. n of T_l is then the number of instances with view
        l; means are over the vectors and the views that are there, and an instance that lacks all global views has no
        squared distances.
      axis_name: mesh axis over which the instances are split, inside `shard_map`.

    Returns:
      Scalar, float32 or wider: weight n Σ_t w_t φ(t) (1 - φ(t))² for vectors that are all zero.

    Raises:
      ValueError: for shapes, dtypes or values other than these.
    """
    e = _views.embedded(_checks.views(z, axis_name), False, mask, axis_name)
    dtype, d = e.z.dtype, e.z.shape[2]
    share = _checks.scalar("weight", weight, dtype)
    slices, knots = _checks.whole("slices", slices), _checks.whole("knots", knots, 2)
    longest = _checks.real("t_max", t_max, positive=True)
    _checks.scalar("t_max", longest, dtype, positive=True)
    pull = _statistics.pull(e, global_views)
    count = _statistics.counts(e)
    there = None if e.keep is None else e.keep[:, :, None].astype(dtype)
    statistics = _slices.over_directions(
        partial(_epps_pulley, knots, longest, axis_name),
        *(axis_name, e.z, _slices.directions(key, slices, d, dtype), (there, count)),
    )
    return (1 - share) * pull + share * _statistics.mean_of_views(statistics / slices, count)


def _epps_pulley(
    knots: int, t_max: float, axis_name: str | None, p: jax.Array, there: jax.Array | None, count: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """T of (k, n, slices) projections, (k, slices), and its derivative by them."""
    t = np.linspace(0, t_max, knots)
    step = float(t[1])
    normal = np.exp(-t * t / 2)
    factors = normal * np.where(np.arange(knots) < knots - 1, 2 * step, step)
    # At t = 0 both terms are zero. What is not there starts the recurrence at zero, and stays there.
    cos, sin = jnp.cos(step * p), jnp.sin(step * p)
    first = (cos, sin) if there is None else (there * cos, there * sin)

    def turn(powers: tuple[jax.Array, jax.Array], _: None) -> tuple[tuple[jax.Array, jax.Array], jax.Array]:
        x, y = powers
        return (x * cos - y * sin, y * cos + x * sin), jnp.stack([jnp.sum(x, axis=1), jnp.sum(y, axis=1)])

    _, sums = lax.scan(turn, first, None, length=knots - 1)
    number = jnp.maximum(count, 1)[None, :, None]
    means = _statistics.total(sums, axis_name) / number[None]
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
