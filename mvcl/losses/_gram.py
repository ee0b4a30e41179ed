"""GRAM: the volume that an anchor and the other views of an instance span."""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from mvcl import _checks, _numerics
from mvcl.losses import _two_sided, _views
from mvcl.losses._declaration import declare


@declare(mask=True, axis_name=True, block_size=True, normalize=True)
def gram(
    z: ArrayLike,
    temperature: ArrayLike = 0.07,
    anchor: int = 0,
    label_smoothing: float = 0.0,
    eps: ArrayLike = 1e-8,
    *,
    normalize: bool = True,
    mask: ArrayLike | None = None,
    axis_name: str | None = None,
    block_size: int | None = None,
) -> jax.Array:
    """GRAM: the anchor view of an instance spans a small volume with the other views of it, a large one with others'.

        ½ mean_i [ V_ii / temperature + LSE_j -V_ij / temperature ]
          + ½ mean_j [ V_jj / temperature + LSE_i -V_ij / temperature ],   V_ij = sqrt(max(det G_ij, 0) + eps)

    G_ij is the k x k Gram matrix of view `anchor` of instance i and the other views of instance j. Cicchetti 2024
    (arXiv 2412.11959). The released code has sqrt(|det G|) without eps, whose gradient is not finite at a volume of
    zero, and smooths labels by 0.1: `label_smoothing=0.1` gives its value up to sqrt(eps) / temperature. It takes the
    determinant of G in float32, which has no digits left where views nearly coincide. Here
    `det G_ij = det G_j (|a_i|² - Σ_q <a_i, q>²)` over an orthonormal basis q of the other views of j, found once by
    instance, and V_ii comes from what the basis leaves of a_i, which keeps the digits of both. A volume does not tell a
    vector from its negative.

    Cost: (k - 1) n² d multiply-adds in the forward pass.

    Args:
      z: (k, n, d) floating, k >= 2, n >= 2; half precision is summed in float32.
      temperature: positive divisor of the volumes, no unit.
      anchor: the view, 0 to k - 1, that is compared with all others together.
      label_smoothing: s in [0, 1]: the label is 1 - s on the own instance plus s / n on every instance.
      eps: positive number under the root, which bounds the gradient where the volume is zero.
      normalize: project vectors onto the unit sphere first; zero stays zero.
      mask: (k, n) bool, False for a view that an instance lacks. V_ij is then the volume of the anchor of i and the
        views that j has. i runs over the instances that have the anchor, j over those with another view, the means
        over those with both.
      axis_name: mesh axis over which the instances are split, inside `shard_map`.
      block_size: rows of volumes held at once; None decides.

    Returns:
      Scalar, float32 or wider. Where all vectors coincide it is log(n), the chance level.

    Raises:
      ValueError: for shapes, dtypes or values other than these.
    """
    e = _views.embedded(_checks.views(z, axis_name), normalize, mask, axis_name, block_size)
    t = _checks.scalar("temperature", temperature, e.z.dtype, positive=True)
    small = _checks.scalar("eps", eps, e.z.dtype, positive=True)
    share = _two_sided.smoothing(label_smoothing)
    k = e.z.shape[0]
    of_anchor = _checks.whole("anchor", anchor, 0)
    if of_anchor >= k:
        raise ValueError(f"anchor must be a view, 0 to {k - 1}, got {anchor!r}")
    others = [l for l in range(k) if l != of_anchor]
    a = e.z[of_anchor]
    basis, volume = _basis(e, others)
    left = _numerics.orthogonal_part(a, basis)
    logits = _two_sided.Logits(
        entry=_entry,
        rows=(a, jnp.sum(a * a, axis=1)),
        columns=(*basis, volume),
        shared=(t, small),
        own=_logit(volume * jnp.sum(left * left, axis=1), t, small),
        keep_rows=None if e.keep is None else e.keep[of_anchor],
        keep_columns=None if e.keep is None else jnp.stack([e.keep[l] for l in others]).any(0),
        bound=_two_sided.bound(1.0, temperature, eps) if normalize else None,
    )
    return _two_sided.cross_entropy(logits, share, axis_name, block_size)


def _entry(rows: _two_sided.Arrays, columns: _two_sided.Arrays, shared: _two_sided.Arrays) -> jax.Array:
    (a, square), (*basis, volume) = rows, columns
    inside = [_numerics.products(a[None], q[None])[0] ** 2 for q in basis]
    outside = square[:, None] - sum(inside[1:], inside[0])
    return _logit(volume[None, :] * outside, *shared)


def _logit(determinant: jax.Array, temperature: jax.Array, eps: jax.Array) -> jax.Array:
    return -jnp.sqrt(jnp.maximum(determinant, 0) + eps) / temperature


def _basis(e: _views.Embedded, views: list[int]) -> tuple[list[jax.Array], jax.Array]:
    """(n, d) orthonormal vectors that span the views of each instance, and the square of the volume of these.

    A view that lies in the span of those before it adds a vector of zeros, and so does one that is not there.
    """
    basis: list[jax.Array] = []
    volume = jnp.ones(e.z.shape[1], e.z.dtype)
    rounding = (8 * jnp.finfo(e.z.dtype).eps) ** 2
    for l in views:
        left = _numerics.orthogonal_part(e.z[l], basis)
        square = jnp.sum(left * left, axis=1)
        outside = square > rounding * jnp.sum(e.z[l] * e.z[l], axis=1)
        basis.append(_numerics.unit(jnp.where(outside[:, None], left, 0)))
        volume = volume * (square if e.keep is None else jnp.where(e.keep[l], square, 1))
    return basis, volume
