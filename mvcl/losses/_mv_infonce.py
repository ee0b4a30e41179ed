"""MV-InfoNCE."""

from typing import Literal

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from mvcl import _checks, _numerics
from mvcl.losses import _lse, _views
from mvcl.losses._declaration import declare


@declare(mask=True, axis_name=True, block_size=True, normalize=True, queue="extra_negatives")
def mv_infonce(
    z: ArrayLike,
    temperature: ArrayLike = 0.5,
    negatives: Literal["cross_view", "all"] = "cross_view",
    *,
    normalize: bool = True,
    mask: ArrayLike | None = None,
    extra_negatives: ArrayLike | None = None,
    axis_name: str | None = None,
    block_size: int | None = None,
) -> jax.Array:
    """MV-InfoNCE: one term per instance, in which all its views are aligned and contrasted at once.

        mean_i [ -LSE_{l != l'} s(z_li, z_l'i) + LSE_{l, m != l, j} s(z_li, z_mj) ],   s(u, v) = <u, v> /
        temperature

    over instances i, j (j may be i) and views l, l', m. Koromilas 2025 (arXiv 2507.06979), Eqs. 11 and 17.
    The released code sums over every (m, j) != (l, i), the same view's other instances too:
    `negatives="all"`, with which the published numbers were made.

    Args:
      z: (k, n, d) floating, k >= 2, n >= 2; half precision is summed in float32.
      temperature: positive divisor of the inner products, no unit.
      negatives: "cross_view", the printed formula, or "all", the released code.
      normalize: project vectors onto the unit sphere first; zero stays zero.
      mask: (k, n) bool, False for a view that an instance lacks. Alignment is averaged over the instances
        with two views or more, the energy over those with one or more.
      extra_negatives: (q, d) vectors that join every anchor's sum, for instance a queue. Inside `shard_map`
        every device holds all of them.
      axis_name: mesh axis over which the instances are split, inside `shard_map`.
      block_size: rows of similarities held at once; None decides.

    Returns:
      Scalar, float32 or wider. Where all vectors coincide it is log(n), with "all" log((kn - 1) / (k - 1)).

    Raises:
      ValueError: for shapes, dtypes or values other than these.
    """
    z = _checks.views(z, axis_name)
    _checks.option("negatives", negatives, ("cross_view", "all"))
    mask, block_size = _checks.mask(mask, z.shape[:2]), _checks.block_size(block_size)
    v = _views.scaled(_views.embeddings(z, normalize, mask), temperature, normalize, mask)
    queue = _views.queue_vectors(extra_negatives, v, temperature, normalize)
    b = _views.every_block(v, axis_name=axis_name, block_size=block_size)
    energies = [b.energy]
    if negatives == "all":
        energies.append(_lse.within(v, axis_name=axis_name, block_size=block_size))
    if queue is not None:
        energies.append(_views.to_queue(v, queue, axis_name=axis_name, block_size=block_size))
    per_anchor = _views.join(*energies)  # (k, n)
    if mask is not None:
        per_anchor = jnp.where(mask, per_anchor, -jnp.inf)
    energy = _numerics.logsumexp(per_anchor, axis=0)  # (n,)
    alignment = _numerics.logsumexp(b.alignment, axis=0)  # (n,)
    masked = mask is not None
    return _views.mean_existing(energy, axis_name, masked) - _views.mean_existing(
        alignment, axis_name, masked
    )
