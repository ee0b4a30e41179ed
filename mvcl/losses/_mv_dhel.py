"""MV-DHEL."""

import jax
from jax.typing import ArrayLike

from mvcl import _checks, _numerics
from mvcl.losses import _views
from mvcl.losses._declaration import declare


@declare(mask=True, axis_name=True, block_size=True, normalize=True, queue="extra_negatives")
def mv_dhel(
    z: ArrayLike,
    temperature: ArrayLike = 0.5,
    energy_weight: ArrayLike = 1.0,
    *,
    normalize: bool = True,
    mask: ArrayLike | None = None,
    extra_negatives: ArrayLike | None = None,
    axis_name: str | None = None,
    block_size: int | None = None,
) -> jax.Array:
    """MV-DHEL: align an instance's views jointly, spread each view on its own.

        mean_i [ -LSE_{l != m} s(z_li, z_mi) + w Σ_l LSE_{j != i} s(z_li, z_lj) ],
        s(u, v) = <u, v> / temperature

    over instances i, j and views l, m. Koromilas 2025 (arXiv 2507.06979), Eq. 12. Eq. 18 lets j equal i and
    the released code sums l < m only (log 2 more, same gradient); this is Eq. 12. The weight w = 1 is the paper's. The
    second sum has k terms and the first is one, so for many instances the loss tends to alignment plus k times
    uniformity (Eq. 27), not to Eq. 15; w = 1/k gives both the same weight, as Eq. 15 has them, and separates the
    effect of more views from that of more energy.

    Cost: k n² d multiply-adds in the forward pass.

    Args:
      z: (k, n, d) floating, k >= 2, n >= 2; half precision is summed in float32.
      temperature: positive divisor of the inner products, no unit.
      energy_weight: positive w, the weight of the second sum.
      normalize: project vectors onto the unit sphere first; zero stays zero.
      mask: (k, n) bool, False for a view that an instance lacks. Alignment is averaged over the instances
        with two views or more; the energy, a sum over the views that the instance has, over those with one or
        more.
      extra_negatives: (q, d) vectors that join every anchor's sum, for instance a queue. Inside `shard_map`
        every device holds all of them.
      axis_name: mesh axis over which the instances are split, inside `shard_map`.
      block_size: rows of similarities held at once; None decides.

    Returns:
      Scalar, float32 or wider. For coinciding unit vectors:
      (w k - 1) / temperature + w k log(n-1) - log(k (k-1)).

    Raises:
      ValueError: for shapes, dtypes or values other than these.

    Example:
      >>> import jax.numpy as jnp
      >>> from mvcl import losses
      >>> z = jnp.ones((3, 4, 8))  # all vectors coincide: 2 / 0.5 + 3 log 3 - log 6
      >>> print(f"{losses.mv_dhel(z):.3f}")
      5.504
    """
    z = _checks.views(z, axis_name)
    e = _views.embedded(z, normalize, mask, axis_name, block_size)
    s = _views.similarities(e, temperature, extra_negatives)
    weight = _checks.scalar("energy_weight", energy_weight, e.z.dtype, positive=True)
    energy = _views.with_queue(s, _views.within(s))  # (k, n)
    alignment = _numerics.logsumexp(_views.alignment(s.vectors), axis=0)  # (n,)
    return weight * _views.mean_of_sums(energy, e) - _views.mean_existing(alignment, e)
