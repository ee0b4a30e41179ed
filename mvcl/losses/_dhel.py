"""DHEL of two views."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from mvcl import _checks, _numerics
from mvcl.losses import _lse, _views
from mvcl.losses._declaration import Operands, declare


def _of_pairs(
    z: jax.Array,
    pairs: _views.Pairs,
    *,
    temperature: ArrayLike,
    symmetric: bool,
    normalize: bool,
    mask: Any,
    extra_negatives: ArrayLike | None,
    axis_name: str | None,
    block_size: int | None,
) -> jax.Array:
    mask = _checks.mask(mask, z.shape[:2])
    block_size = _checks.block_size(block_size)
    v = _views.scaled(_views.embeddings(z, normalize, mask), temperature, normalize, mask)
    queue = _views.queue_vectors(extra_negatives, v, temperature, normalize)
    energy = _lse.within(v, axis_name=axis_name, block_size=block_size)  # (k, n)
    if queue is not None:
        energy = _views.join(energy, _views.to_queue(v, queue, axis_name=axis_name, block_size=block_size))
    sides = _views.columns_of(pairs) if symmetric else _views.columns_of(pairs)[:1]
    alignment = _numerics.mean_where(
        _views.positives(v.z, pairs), _views.both_there(mask, pairs), axis_name, axis=1
    )
    if mask is None:
        by_view = _numerics.mean_where(energy, None, axis_name, axis=1)
        return by_view[np.stack(sides)].sum(0) - alignment
    there = mask & (energy != -jnp.inf)
    energy = jnp.where(there, energy, 0)
    both = np.stack(sides)
    return _numerics.mean_where(energy[both].sum(0), there[both].any(0), axis_name, axis=1) - alignment


@_views.many_pairs(_of_pairs)
@declare(
    operands=Operands.PAIR,
    mask=True,
    axis_name=True,
    block_size=True,
    normalize=True,
    queue="extra_negatives",
)
def dhel(
    x: ArrayLike,
    y: ArrayLike,
    temperature: ArrayLike = 0.3,
    symmetric: bool = True,
    *,
    normalize: bool = True,
    mask: ArrayLike | None = None,
    extra_negatives: ArrayLike | None = None,
    axis_name: str | None = None,
    block_size: int | None = None,
) -> jax.Array:
    """DHEL: align the two views, spread each on its own.

        mean_i [ -s(x_i, y_i) + LSE_{j != i} s(x_i, x_j) + LSE_{j != i} s(y_i, y_j) ],   s = <u, v> /
        temperature

    Koromilas 2024 (Decoupled hyperspherical energy loss).

    Args:
      x: (n, d) floating, n >= 2: one view.
      y: (n, d), of the same dtype: the other view of the same instances.
      temperature: positive divisor of the inner products, no unit.
      symmetric: False drops the last term, the energy of y.
      normalize: project vectors onto the unit sphere first; zero stays zero.
      mask: (2, n) bool, False where x (row 0) or y (row 1) lacks the instance. Alignment is averaged over the
        instances with both; the energy, a sum over the views that the instance has, over those with one or
        more.
      extra_negatives: (q, d) vectors that join every log-sum-exp, for instance a queue. Inside `shard_map`
        every device holds all of them.
      axis_name: mesh axis over which the instances are split, inside `shard_map`.
      block_size: rows of similarities held at once; None decides.

    Returns:
      Scalar, float32 or wider. For coinciding unit vectors: 1 / temperature + 2 log(n-1).

    Raises:
      ValueError: for shapes, dtypes or values other than these.
    """
    z = _checks.pair(x, y, axis_name)
    return _of_pairs(
        z,
        ((0, 1),),
        temperature=temperature,
        symmetric=symmetric,
        normalize=normalize,
        mask=mask,
        extra_negatives=extra_negatives,
        axis_name=axis_name,
        block_size=block_size,
    )[0]
