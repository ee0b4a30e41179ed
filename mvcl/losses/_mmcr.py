"""MMCR: the means of the instances' views span as much of the space as they can."""

from functools import partial
from numbers import Real

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike

from mvcl import _checks, _numerics
from mvcl.losses import _views
from mvcl.losses._declaration import declare
from mvcl.losses._statistics import sum_of_views, total


@declare(mask=True, axis_name=True, normalize=True)
def mmcr(
    z: ArrayLike,
    compression: ArrayLike = 0.0,
    *,
    normalize: bool = True,
    mask: ArrayLike | None = None,
    axis_name: str | None = None,
) -> jax.Array:
    """MMCR: maximum manifold capacity, by the singular values of the instances' mean vectors.

        -‖C‖_* + (compression / n) Σ_i ‖Z_i‖_*

    ‖·‖_* is the sum of the singular values, C the (n, d) matrix of the means over views, which are not projected
    again, and Z_i the (k, d) matrix of the views of instance i. Yerxa 2023 (NeurIPS) and the released code, whose λ is
    `compression`, 0 in its runs. On several processes the gradient of that code is this one over their number, since
    only a process's own rows have a gradient and the processes' gradients are averaged.

    The singular values are those of a Gram matrix of min(n, d) rows. Its eigenvalues are squares, so that those of
    directions below a tenth of the largest singular value are computed a second time from the matrix projected on
    them: float32 then resolves 1e-4 of the largest in place of 1e-3. The gradient by C is U V^T over the directions
    whose singular value is not zero, which is right also where some are equal. Devices exchange 2 d² + d numbers,
    8 d² + 4 d bytes, whatever n is, or the rows of C, 4 n d bytes, where n < d.

    Cost: 5 n d² multiply-adds and two eigendecompositions of min(n, d) rows in the forward pass.

    Args:
      z: (k, n, d) floating, k >= 2, n >= 2; half precision is summed in float32.
      compression: factor of the second term, which is not computed where this is the number 0.
      normalize: project vectors onto the unit sphere first; zero stays zero.
      mask: (k, n) bool, False for a view that an instance lacks. Means and Z_i are of the views that are there, and n
        is the number of instances that have one.
      axis_name: mesh axis over which the instances are split, inside `shard_map`.

    Returns:
      Scalar, float32 or wider. For coinciding unit vectors: -sqrt(n) + compression sqrt(k); at least
      -sqrt(n min(n, d)) with compression 0.

    Raises:
      ValueError: for shapes, dtypes or values other than these.
    """
    e = _views.embedded(_checks.views(z, axis_name), normalize, mask, axis_name)
    factor = _checks.scalar("compression", compression, e.z.dtype)
    mean, there = sum_of_views(e.z) / len(e.z), None
    if e.keep is not None:
        mean = sum_of_views(e.z) / jnp.maximum(e.keep.sum(0), 1).astype(e.z.dtype)[:, None]
        there = e.keep.any(0)
    spread = _of_rows(mean, axis_name)
    if isinstance(compression, Real) and compression == 0:
        return -spread
    norms = jax.vmap(lambda views: _nuclear_norm(views, None))(e.z.transpose(1, 2, 0))
    return -spread + factor * _numerics.mean_where(norms, there, axis_name)


def _of_rows(c: jax.Array, axis_name: str | None) -> jax.Array:
    if c.shape[0] * (1 if axis_name is None else lax.axis_size(axis_name)) >= c.shape[1]:
        return _nuclear_norm(c, axis_name)
    norm = _nuclear_norm(_numerics.gather(c, axis_name, 0).T, None)
    return norm if axis_name is None else lax.pmean(norm, axis_name)


@partial(jax.custom_jvp, nondiff_argnums=(1,))
def _nuclear_norm(c: jax.Array, axis_name: str | None) -> jax.Array:
    """The sum of the singular values of (n, d) rows, d <= n; the rows of all devices."""
    return total(jnp.sum(_polar(c, axis_name) * c), axis_name)


@_nuclear_norm.defjvp
def _(
    axis_name: str | None, primals: tuple[jax.Array], tangents: tuple[jax.Array]
) -> tuple[jax.Array, jax.Array]:
    (c,), (dc,) = primals, tangents
    p = _polar(c, axis_name)
    return total(jnp.sum(p * c), axis_name), total(jnp.sum(p * dc), axis_name)


@partial(jax.custom_jvp, nondiff_argnums=(1,))
def _polar(c: jax.Array, axis_name: str | None) -> jax.Array:
    """`(n, d)`: U V^T of C = U S V^T, over the singular values that are not zero."""
    u, _, v = _singular(c, axis_name)
    return _numerics.inner("ia,ba->ib", u, v)


@_polar.defjvp
def _(
    axis_name: str | None, primals: tuple[jax.Array], tangents: tuple[jax.Array]
) -> tuple[jax.Array, jax.Array]:
    (c,), (dc,) = primals, tangents
    u, sigma, v = _singular(c, axis_name)
    turned = _numerics.inner("ia,ab->ib", dc, v)
    inside = total(_numerics.inner("ia,ib->ab", u, turned), axis_name)
    pairs = sigma[:, None] + sigma[None, :]
    rotation = jnp.where(pairs > 0, (inside - inside.T) / jnp.where(pairs > 0, pairs, 1), 0)
    outside = (turned - _numerics.inner("ia,ab->ib", u, inside)) * _inverse(sigma)[None]
    change = _numerics.inner("ia,ab->ib", u, rotation) + outside
    return _numerics.inner("ia,ba->ib", u, v), _numerics.inner("ia,ba->ib", change, v)


def _singular(c: jax.Array, axis_name: str | None) -> tuple[jax.Array, jax.Array, jax.Array]:
    """U, (n, d), zero in the columns of the singular values that are zero; these, (d,); V, (d, d)."""

    def gram(w: jax.Array) -> jax.Array:
        return total(_numerics.inner("ia,ib->ab", w, w), axis_name)

    squares, v = jnp.linalg.eigh(gram(c))
    # An eigenvalue has the rounding error of the largest. Those far below it, the first, are computed again among
    # themselves; the others' diagonal entries keep them apart, and last.
    small = squares < 1e-2 * squares[-1]
    some = jnp.where(small[None], v, 0)
    apart = jnp.diag(jnp.where(small, 0, jnp.sum(jnp.abs(squares))))
    _, again = jnp.linalg.eigh(gram(_numerics.inner("ia,ab->ib", c, some)) + apart)
    v = jnp.where(small[None], _numerics.inner("ab,bc->ac", some, again), v)
    w = _numerics.inner("ia,ab->ib", c, v)
    sigma = jnp.sqrt(total(jnp.sum(w * w, axis=0), axis_name))
    zero = sigma <= c.shape[1] * jnp.finfo(c.dtype).eps * jnp.max(sigma)  # False for NaN, which propagates
    sigma = jnp.where(zero, 0, sigma)
    return w * _inverse(sigma)[None], sigma, v


def _inverse(sigma: jax.Array) -> jax.Array:
    return jnp.where(sigma == 0, 0, 1 / jnp.where(sigma == 0, 1, sigma))
