"""Losses of singular values: PMRL, of each instance's views; MMCR, of the instances' means."""

import dataclasses
from functools import partial
from numbers import Real
from typing import Unpack

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike

from mvcl import _checks, _numerics
from mvcl.losses import _embeddings as emb
from mvcl.losses import _lse
from mvcl.losses._declaration import OfUnitRows, Shared, declare
from mvcl.losses._lse.whole import One, Two, per

__all__ = ["mmcr", "pmrl"]


@declare()
def pmrl(
    z: ArrayLike,
    temperature: ArrayLike = 0.05,
    instance_temperature: ArrayLike = 0.1,
    weight: ArrayLike = 1.0,
    **shared: Unpack[Shared],
) -> jax.Array:
    """PMRL: one singular value of an instance's views is to be larger than all others; leading vectors differ.

        mean_i [ -σ_i1 / temperature + LSE_m σ_im / temperature ]
          + weight · mean_i [ -<u_i, u_i> / instance_temperature + LSE_j <u_i, u_j> / instance_temperature ]

    σ_i1 >= σ_i2 >= ... are the min(d, k) singular values of the d x k matrix of the views of instance i, u_i is its
    leading left singular vector with the sign that makes <u_i, Σ_l z_li> > 0, or, where that is zero, as it is for two
    unit vectors of negative cosine, the product with the first view that is there. Liu 2025 (arXiv 2507.17343). The
    released code leaves the sign of u_i to its SVD, and j runs over the instances of one device. Equal singular values
    have one of their subgradients.

    Cost: n² d + 2 n k² d multiply-adds in the forward pass, and n singular value decompositions of k x k.

    Args:
      instance_temperature: positive divisor of the inner products of leading vectors, no unit.
      weight: factor of the second mean.
      mask: the matrix of an instance is of the views that it has; the first mean is over the instances with two views
        or more, the second over those with one or more.

    Returns:
      Scalar, float32 or wider. For coinciding unit vectors:
      log(1 + (min(d, k) - 1) exp(-sqrt(k) / temperature)) + weight · log(n).
    """
    e = emb.embedded(z, **shared)
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
    s = emb.scaled(e, instance_temperature, "instance_temperature")
    own = jnp.sum(s.z[0] ** 2, axis=1)
    # LSE_j - own, whose digits would be lost where no other instance is near.
    spread = jax.nn.softplus(_lse.within(s)[0] - own)
    mean = emb.mean_where(alignment, several, e.axis_name)
    return mean + factor * emb.mean_where(spread, some, e.axis_name)


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
def _(primals: One, tangents: One) -> Two:
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
def _(primals: One, tangents: One) -> Two:
    (z,), (dz,) = primals, tangents
    v = _right_vectors(z)
    scaled, change = (_numerics.inner("nkd,nkm->nmd", a, v)[:, : z.shape[2]] for a in (z, dz))
    # What rounding leaves of a singular value of zero has no direction; of its subgradients this is the middle one.
    square = jnp.sum(scaled * scaled, axis=2, keepdims=True)
    real = square > (8 * jnp.finfo(z.dtype).eps) ** 2 * square[:, :1]
    left = _numerics.unit(jnp.where(real, scaled, 0))
    return _singular_values(z), jnp.sum(left * change, axis=2)


@declare()
def mmcr(z: ArrayLike, compression: ArrayLike = 0.0, **shared: Unpack[OfUnitRows]) -> jax.Array:
    """MMCR: maximum manifold capacity, by the singular values of the instances' mean vectors.

        -‖C‖_* + (compression / n) Σ_i ‖Z_i‖_*

    ‖·‖_* is the sum of the singular values, C the (n, d) matrix of the means over views, which are not projected
    again, and Z_i the (k, d) matrix of the views of instance i. Yerxa 2023 (NeurIPS) and the released code, whose λ is
    `compression`, 0 in its runs; on several processes its gradient is this one over their number. The gradient by C is
    U V^T over the directions whose singular value is not zero, right also where some are equal; float32 resolves 1e-4
    of the largest. Devices exchange 8 d² + 4 d bytes, or the rows of C, 4 n d bytes, where n < d.

    Cost: 5 n d² multiply-adds and two eigendecompositions of min(n, d) rows in the forward pass.

    Args:
      compression: factor of the second term, which is not computed where this is the number 0.
      mask: means and Z_i are of the views that are there, and n is the number of instances that have one.

    Returns:
      Scalar, float32 or wider. For coinciding unit vectors: -sqrt(n) + compression sqrt(k); at least
      -sqrt(n min(n, d)) with compression 0.
    """
    e = emb.embedded(z, **shared)
    factor = _checks.scalar("compression", compression, e.z.dtype)
    mean, there = emb.centres(e.z, e.keep)
    if _lse.everywhere(len(mean), e.axis_name) >= mean.shape[1]:
        spread = _nuclear_norm(mean, e.axis_name)
    else:
        spread = _nuclear_norm(_numerics.gather(mean, e.axis_name, 0).T, None)
        spread = spread if e.axis_name is None else lax.pmean(spread, e.axis_name)
    if isinstance(compression, Real) and compression == 0:
        return -spread
    norms = jax.vmap(lambda views: _nuclear_norm(views, None))(e.z.transpose(1, 2, 0))
    return -spread + factor * emb.mean_where(norms, there, e.axis_name)


@partial(jax.custom_jvp, nondiff_argnums=(1,))
def _nuclear_norm(c: jax.Array, axis_name: str | None) -> jax.Array:
    """The sum of the singular values of (n, d) rows, d <= n; the rows of all devices."""
    return _numerics.device_sum(jnp.sum(_polar(c, axis_name) * c), axis_name)


@_nuclear_norm.defjvp
def _(axis_name: str | None, primals: One, tangents: One) -> Two:
    (c,), (dc,) = primals, tangents
    p = _polar(c, axis_name)
    return _numerics.device_sum(jnp.sum(p * c), axis_name), _numerics.device_sum(jnp.sum(p * dc), axis_name)


@partial(jax.custom_jvp, nondiff_argnums=(1,))
def _polar(c: jax.Array, axis_name: str | None) -> jax.Array:
    """`(n, d)`: U V^T of C = U S V^T, over the singular values that are not zero."""
    u, _, v = _singular(c, axis_name)
    return _numerics.inner("ia,ba->ib", u, v)


@_polar.defjvp
def _(axis_name: str | None, primals: One, tangents: One) -> Two:
    (c,), (dc,) = primals, tangents
    u, sigma, v = _singular(c, axis_name)
    turned = _numerics.inner("ia,ab->ib", dc, v)
    inside = _numerics.device_sum(_numerics.inner("ia,ib->ab", u, turned), axis_name)
    pairs = sigma[:, None] + sigma[None, :]
    rotation = jnp.where(pairs > 0, (inside - inside.T) / jnp.where(pairs > 0, pairs, 1), 0)
    outside = (turned - _numerics.inner("ia,ab->ib", u, inside)) * per(sigma)[None]
    change = _numerics.inner("ia,ab->ib", u, rotation) + outside
    return _numerics.inner("ia,ba->ib", u, v), _numerics.inner("ia,ba->ib", change, v)


def _singular(c: jax.Array, axis_name: str | None) -> tuple[jax.Array, jax.Array, jax.Array]:
    """U, (n, d), zero in the columns of the singular values that are zero; these, (d,); V, (d, d)."""

    def gram(w: jax.Array) -> jax.Array:
        return _numerics.device_sum(_numerics.inner("ia,ib->ab", w, w), axis_name)

    squares, v = jnp.linalg.eigh(gram(c))
    # An eigenvalue has the rounding error of the largest. Those far below it, the first, are computed again among
    # themselves; the others' diagonal entries keep them apart, and last.
    small = squares < 1e-2 * squares[-1]
    some = jnp.where(small[None], v, 0)
    apart = jnp.diag(jnp.where(small, 0, jnp.sum(jnp.abs(squares))))
    _, again = jnp.linalg.eigh(gram(_numerics.inner("ia,ab->ib", c, some)) + apart)
    v = jnp.where(small[None], _numerics.inner("ab,bc->ac", some, again), v)
    w = _numerics.inner("ia,ab->ib", c, v)
    sigma = jnp.sqrt(_numerics.device_sum(jnp.sum(w * w, axis=0), axis_name))
    zero = sigma <= c.shape[1] * jnp.finfo(c.dtype).eps * jnp.max(sigma)  # False for NaN, which propagates
    sigma = jnp.where(zero, 0, sigma)
    return w * per(sigma)[None], sigma, v
