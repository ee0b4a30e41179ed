"""VISReg: the views of an instance at one place, each view's mean, deviations and shape those of a standard normal."""

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike

from mvcl import _checks, _numerics
from mvcl.losses import _slices, _statistics, _views
from mvcl.losses._declaration import declare


@declare(mask=True, axis_name=True, key=True, global_views=True)
def visreg(
    z: ArrayLike,
    key: jax.Array,
    weight: ArrayLike = 0.9,
    slices: int = 4096,
    scale: ArrayLike = 1.0,
    shape: ArrayLike = 1.0,
    center: ArrayLike = 1.0,
    global_views: int | None = None,
    *,
    eps: ArrayLike = 1e-4,
    mask: ArrayLike | None = None,
    axis_name: str | None = None,
) -> jax.Array:
    """VISReg: an instance's views at their mean; of each view deviations 1, mean 0 and normal projections.

        (1 - weight) mean_{l,i,a} (z_lia - c_ia)² + weight mean_l (scale S_l + shape W_l + center C_l)
        C_l = mean_a μ_la²,   μ_la = mean_i z_lia;      S_l = mean_a (1 - σ_la)²,   σ_la² = mean_i (z_lia - μ_la)²
        W_l = mean_{u,r} ( p_(r) - Φ^-1(r / (n + 1)) )²,   p_i = Σ_a u_a (z_lia - μ_la) / (sg(σ_la) + eps)

    over `slices` random unit vectors u, the same for all views, and ranks r = 1..n of the projections p; c_i is the
    mean of the first `global_views` views, Φ the normal distribution function, and sg holds σ constant, so that the
    gradient is not the derivative of the value. Wu 2026 (arXiv 2606.02572). The released code adds 1e-6 to σ in S and
    in W and has no eps; `eps=1e-6` gives its numbers to 1e-6. Its trainer draws other directions on each process and
    says that c_i is held constant, which it is not, nor here. Vectors are compared as they are, not projected.

    The directions are drawn from `key` alone: one key gives one loss on any number of devices, in float32 and
    float64. They are taken in blocks, so that no (k, n, slices) array is held. Ranks are of the global batch: every
    device gathers the k n d centred numbers, 4 k n d bytes, and as many are scattered back in the backward pass, fewer
    than the k n slices projections where d < slices; it takes an equal part of the directions. Where two projections
    differ by a rounding error their order depends on that of the sums: over devices the float32 gradient differs by
    some 1e-4 of its largest entry.

    Cost: k n d slices multiply-adds and k slices sorts of n numbers in the forward pass.

    Args:
      z: (k, n, d) floating, k >= 2, n >= 2; half precision is summed in float32.
      key: `jax.random` key of the directions.
      weight: share of the regulariser; 1 - weight is the share of the squared distances.
      slices: number of directions.
      scale: factor of S.
      shape: factor of W.
      center: factor of C.
      global_views: how many views, the first ones, make the mean to which all views are pulled; None: all.
      eps: positive number added to the deviations by which the features are divided.
      mask: (k, n) bool, False for a view that an instance lacks. n of S, W and C is then the number of instances with
        view l; means are over the vectors and the views that are there, and an instance that lacks all global views
        has no squared distances.
      axis_name: mesh axis over which the instances are split, inside `shard_map`.

    Returns:
      Scalar, float32 or wider: weight (scale + shape mean_r Φ^-1(r / (n + 1))²) for vectors that are all zero. The
      gradient of S by a feature that is constant is zero.

    Raises:
      ValueError: for shapes, dtypes or values other than these.
    """
    e = _views.embedded(_checks.views(z, axis_name), False, mask, axis_name)
    dtype, d = e.z.dtype, e.z.shape[2]
    named = {"weight": weight, "scale": scale, "shape": shape, "center": center}
    share, of_scale, of_shape, of_center = (_checks.scalar(n, v, dtype) for n, v in named.items())
    small = _checks.scalar("eps", eps, dtype, positive=True)
    slices = _checks.whole("slices", slices)
    pull = _statistics.pull(e, global_views)
    count = _statistics.counts(e)
    vectors, mean = _statistics.centred(e)
    number = jnp.maximum(count, 1)[:, None]
    variance = _statistics.total(jnp.sum(vectors**2, axis=1), axis_name) / number
    some = variance > 0
    deviation = jnp.where(some, jnp.sqrt(jnp.where(some, variance, 1)), variance)
    features = vectors / (lax.stop_gradient(deviation) + small)[:, None]
    drawn = _slices.directions(key, slices, d, dtype)
    shapes = _shapes(features, e.keep, drawn, count, axis_name) / (number[:, 0] * slices)
    terms = of_scale * jnp.mean((1 - deviation) ** 2, axis=1) + of_center * jnp.mean(mean[:, 0] ** 2, axis=1)
    return (1 - share) * pull + share * _statistics.mean_of_views(terms + of_shape * shapes, count)


def _shapes(
    features: jax.Array, keep: jax.Array | None, drawn: jax.Array, count: jax.Array, axis_name: str | None
) -> jax.Array:
    """`(k,)`: the sum over directions and ranks of the squared distances from the normal quantiles."""
    rows = _numerics.gather(features, axis_name, 1)
    there = None if keep is None else _numerics.gather(keep, axis_name, 1)[:, :, None]
    ranks = jnp.arange(1, rows.shape[1] + 1, dtype=rows.dtype)[None]
    among = ranks <= count[:, None]
    quantiles = jax.scipy.special.ndtri(jnp.where(among, ranks / (count[:, None] + 1), 0.5))
    if axis_name is not None:  # this device's directions, the last part filled with zeros
        part = -(-len(drawn) // lax.axis_size(axis_name))
        first = part * lax.axis_index(axis_name)
        padded = jnp.pad(drawn, ((0, part * lax.axis_size(axis_name) - len(drawn)), (0, 0)))
        drawn = lax.dynamic_slice_in_dim(padded, first, part)
    sums = _slices.over_directions(
        _to_quantiles, None, rows, drawn, (there, among[:, :, None], quantiles[:, :, None])
    )
    return _statistics.total(sums, axis_name)


def _to_quantiles(
    p: jax.Array, there: jax.Array | None, among: jax.Array, quantiles: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Σ_r (p_(r) - q_r)² of (k, n, slices) projections, (k, slices), and its derivative by them."""
    ordered = p if there is None else jnp.where(there, p, jnp.inf)  # what is not there comes last
    place = lax.broadcasted_iota(jnp.int32, p.shape, 1)
    ordered, place = lax.sort((ordered, place), dimension=1, num_keys=1)
    apart = jnp.where(among, ordered - quantiles, 0)
    slope = jnp.put_along_axis(jnp.zeros_like(p), place, 2 * apart, axis=1, inplace=False)
    return jnp.sum(apart**2, axis=1), slope
