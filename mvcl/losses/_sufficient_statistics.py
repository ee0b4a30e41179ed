"""Poly-view contrastive learning with sufficient statistics."""

import dataclasses

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from mvcl import _checks, _numerics
from mvcl.losses import _lse, _views
from mvcl.losses._declaration import declare


@declare(mask=True, axis_name=True, block_size=True, normalize=True, queue="extra_negatives")
def sufficient_statistics(
    z: ArrayLike,
    temperature: ArrayLike = 0.1,
    normalize_rest: bool = True,
    *,
    normalize: bool = True,
    mask: ArrayLike | None = None,
    extra_negatives: ArrayLike | None = None,
    axis_name: str | None = None,
    block_size: int | None = None,
) -> jax.Array:
    """Sufficient statistics: each view finds the mean of the other views of its instance.

        -mean_{i,α} [ s(z_αi, q_αi) - LSE( s(z_αi, q_αi), { s(z_αi, q_γj) : j != i, every γ } ) ]
        q_αi = mean_{β != α} z_βi

    with s(u, v) = <u, v> / temperature. Shidani 2024 (ICLR), Eqs. 21-24; q is renormalised as in the paper's
    pseudocode. Eq. 22 lets j be i as well; Eq. 21 and the count of Theorem 2.4 do not. At k = 2 it equals
    `nt_xent`.

    Cost: k² n² d multiply-adds in the forward pass.

    Args:
      z: (k, n, d) floating, k >= 2, n >= 2; half precision is summed in float32.
      temperature: positive divisor of the inner products, no unit.
      normalize_rest: renormalise the mean of the other views; False is Eq. 24 to the letter.
      normalize: project vectors onto the unit sphere first; zero stays zero.
      mask: (k, n) bool, False for a view that an instance lacks. q_αi exists where view α and another view of
        i do; only those are positives and negatives.
      extra_negatives: (q, d) vectors that join every anchor's sum, for instance a queue. Inside `shard_map`
        every device holds all of them.
      axis_name: mesh axis over which the instances are split, inside `shard_map`.
      block_size: rows of similarities held at once; None decides.

    Returns:
      Scalar, float32 or wider. Where all vectors coincide it is log(k (n-1) + 1), the chance level.

    Raises:
      ValueError: for shapes, dtypes or values other than these.
    """
    z = _checks.views(z, axis_name)
    e = _views.embedded(z, normalize, mask, axis_name, block_size)
    s = _views.similarities(e, temperature, extra_negatives)
    rest, rest_there = _views.rest(e.z, e.keep)
    exists = None if e.keep is None or rest_there is None else e.keep & rest_there
    if normalize_rest:
        rest = _numerics.unit(rest)
    # The mean of projected vectors is no longer than they are.
    q = _views.scaled(dataclasses.replace(e, z=rest, keep=exists), temperature)
    positive = jnp.sum(s.vectors.z * q.z, axis=-1)  # (k, n)
    others = _lse.against_all(s.vectors, q, axis_name=axis_name, block_size=e.block_size)
    return _numerics.mean_where(_views.with_queue(s, positive, others) - positive, exists, axis_name)
