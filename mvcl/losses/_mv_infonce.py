"""MV-InfoNCE."""

from typing import Literal

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from mvcl import _checks, _numerics
from mvcl.losses import _views
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

        mean_i [ -LSE_{l != l'} s(z_li, z_l'i) + LSE_{l, m != l, j} s(z_li, z_mj) ],
        s(u, v) = <u, v> / temperature

    over instances i, j (j may be i) and views l, l', m. Koromilas 2025 (arXiv 2507.06979), Eqs. 11 and 17.
    The released code sums over every (m, j) != (l, i), the same view's other instances too: `negatives="all"`. With
    which of the two the published numbers were made is not known.

    Cost: k (k-1)/2 n² d multiply-adds in the forward pass.

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
    e = _views.embedded(z, normalize, mask, axis_name, block_size)
    s = _views.similarities(e, temperature, extra_negatives)
    b = _views.every_block(s)
    energies = [b.energy, _views.within(s)] if negatives == "all" else [b.energy]
    per_anchor = _views.with_queue(s, *energies)  # (k, n)
    if e.keep is not None:
        per_anchor = jnp.where(e.keep, per_anchor, -jnp.inf)
    energy = _numerics.logsumexp(per_anchor, axis=0)  # (n,)
    alignment = _numerics.logsumexp(b.alignment, axis=0)  # (n,)
    return _views.mean_existing(energy, e) - _views.mean_existing(alignment, e)
