"""PMRL: the views of an instance along one direction, the directions of instances apart."""

import dataclasses

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from mvcl import _checks, _numerics
from mvcl.losses import _views
from mvcl.losses._declaration import declare


@declare(mask=True, axis_name=True, block_size=True, normalize=True)
def pmrl(
    z: ArrayLike,
    temperature: ArrayLike = 0.05,
    instance_temperature: ArrayLike = 0.1,
    weight: ArrayLike = 1.0,
    *,
    normalize: bool = True,
    mask: ArrayLike | None = None,
    axis_name: str | None = None,
    block_size: int | None = None,
) -> jax.Array:
    """PMRL: one singular value of an instance's views is to be larger than all others; leading vectors differ.

        mean_i [ -σ_i1 / temperature + LSE_m σ_im / temperature ]
          + weight · mean_i [ -<u_i, u_i> / instance_temperature + LSE_j <u_i, u_j> / instance_temperature ]

    σ_i1 >= σ_i2 >= ... are the min(d, k) singular values of the d x k matrix of the views of instance i, u_i is its
    leading left singular vector with the sign that makes <u_i, Σ_l z_li> > 0, or, where that is zero, as it is for two
    unit vectors of negative cosine, the product with the first view that is there. Liu 2025 (arXiv 2507.17343). The
    released code leaves the sign of u_i to its SVD, so that its second term has another value with another library,
    and j runs over the instances of one device; its first term is this one's.

    Equal singular values have one of their subgradients, and where the leading one is not single no derivative of u_i
    by a turn within its space is taken.

    Cost: n² d + 2 n k² d multiply-adds in the forward pass, and n singular value decompositions of k x k.

    Args:
      z: (k, n, d) floating, k >= 2, n >= 2; half precision is computed in float32.
      temperature: positive divisor of the singular values, no unit.
      instance_temperature: positive divisor of the inner products of leading vectors, no unit.
      weight: factor of the second mean.
      normalize: project vectors onto the unit sphere first; zero stays zero.
      mask: (k, n) bool, False for a view that an instance lacks. The matrix of an instance is of the views that it
        has; the first mean is over the instances with two views or more, the second over those with one or more.
      axis_name: mesh axis over which the instances are split, inside `shard_map`.
      block_size: rows of inner products held at once; None decides.

    Returns:
      Scalar, float32 or wider. For coinciding unit vectors:
      log(1 + (min(d, k) - 1) exp(-sqrt(k) / temperature)) + weight · log(n).

    Raises:
      ValueError: for shapes, dtypes or values other than these.
    """
    e = _views.embedded(_checks.views(z, axis_name), normalize, mask, axis_name, block_size)
    t = _checks.scalar("temperature", temperature, e.z.dtype, positive=True)
    factor = _checks.scalar("weight", weight, e.z.dtype)
    views = jnp.swapaxes(e.z, 0, 1)  # (n, k, d)
    right = _right_vectors(views)
    values = _singular_values(views) / t
    smaller = values[:, 1:] - values[:, :1]
    several = some = None
    if e.keep is not None:  # a matrix of m columns has at most m singular values
        count = e.keep.sum(0)
        smaller = jnp.where(jnp.arange(1, values.shape[1])[None, :] < count[:, None], smaller, -jnp.inf)
        several, some = count > 1, count > 0
    alignment = jnp.log1p(jnp.sum(jnp.exp(smaller), axis=1))
    there = None if some is None else some[None]
    e = dataclasses.replace(e, z=_leading(views, right[:, :, 0])[None], keep=there, projected=True)
    _checks.scalar("instance_temperature", instance_temperature, e.z.dtype, positive=True)
    s = _views.similarities(e, instance_temperature, None)
    own = jnp.sum(s.vectors.z[0] ** 2, axis=1)
    # LSE_j - own, whose digits would be lost where no other instance is near.
    spread = jax.nn.softplus(_views.within(s)[0] - own)
    mean = _numerics.mean_where(alignment, several, axis_name)
    return mean + factor * _numerics.mean_where(spread, some, axis_name)


def _leading(views: jax.Array, right: jax.Array) -> jax.Array:
    """(n, d) leading left singular vectors of (n, k, d) views, from the right ones (n, k)."""
    along = jnp.sum(right[:, :, None] * views, axis=1)
    of_views = jnp.sum(along[:, None] * views, axis=2)
    total = of_views.sum(1)
    # Of two vectors of negative cosine the sum is at a right angle to u, so that its sign is that of rounding.
    rounding = 64 * jnp.finfo(views.dtype).eps * jnp.abs(of_views).sum(1)
    first = jnp.take_along_axis(of_views, jnp.argmax(of_views != 0, axis=1)[:, None], axis=1)[:, 0]
    sign = jnp.where(jnp.where(jnp.abs(total) > rounding, total, first) >= 0, 1, -1)
    return _numerics.unit(along * sign.astype(views.dtype)[:, None])


@jax.custom_jvp
def _right_vectors(z: jax.Array) -> jax.Array:
    """`(n, k, k)`: in columns the right singular vectors of each d x k matrix whose columns are z_i, (n, k, d)."""
    triangle = jnp.linalg.qr(jnp.swapaxes(z, 1, 2), mode="r")  # min(d, k) rows, the same singular values
    return jnp.swapaxes(jnp.linalg.svd(triangle, full_matrices=True)[2], 1, 2)


@_right_vectors.defjvp
def _(primals: tuple[jax.Array], tangents: tuple[jax.Array]) -> tuple[jax.Array, jax.Array]:
    (z,), (dz,) = primals, tangents
    v = _right_vectors(z)
    scaled, change = (_numerics.inner("nkd,nkm->nmd", a, v) for a in (z, dz))  # σ_m u_m, and dZ v_m
    half = _numerics.inner("nmd,npd->nmp", scaled, change)
    square = jnp.sum(scaled * scaled, axis=2)
    gap = square[:, None, :] - square[:, :, None]
    apart = jnp.abs(gap) > 8 * jnp.finfo(z.dtype).eps * square[:, :1, None]
    turn = jnp.where(apart, (half + jnp.swapaxes(half, 1, 2)) / jnp.where(apart, gap, 1), 0)
    return v, _numerics.inner("nkm,nmp->nkp", v, turn)


@jax.custom_jvp
def _singular_values(z: jax.Array) -> jax.Array:
    """`(n, min(d, k))`: of each d x k matrix whose columns are z_i, (n, k, d), the largest first."""
    scaled = _numerics.inner("nkd,nkm->nmd", z, _right_vectors(z))[:, : z.shape[2]]
    return jnp.sqrt(jnp.sum(scaled * scaled, axis=2))


@_singular_values.defjvp
def _(primals: tuple[jax.Array], tangents: tuple[jax.Array]) -> tuple[jax.Array, jax.Array]:
    (z,), (dz,) = primals, tangents
    v = _right_vectors(z)
    scaled, change = (_numerics.inner("nkd,nkm->nmd", a, v)[:, : z.shape[2]] for a in (z, dz))
    # What rounding leaves of a singular value of zero has no direction; of its subgradients this is the middle one.
    square = jnp.sum(scaled * scaled, axis=2, keepdims=True)
    real = square > (8 * jnp.finfo(z.dtype).eps) ** 2 * square[:, :1]
    left = _numerics.unit(jnp.where(real, scaled, 0))
    return _singular_values(z), jnp.sum(left * change, axis=2)
