"""DHEL of two views."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from mvcl.losses import _pairs, _views
from mvcl.losses._declaration import Operands, declare


def _terms(
    e: _views.Embedded,
    pairs: _views.Pairs,
    *,
    temperature: ArrayLike,
    symmetric: bool,
    extra_negatives: ArrayLike | None,
) -> tuple[_pairs.Terms, ...]:
    s = _views.similarities(e, temperature, extra_negatives)
    energy = _views.with_queue(s, _views.within(s))  # (k, n)
    positive = _views.positives(s.vectors.z, pairs)
    alignment = _pairs.Terms(-positive, _views.both_there(e.keep, pairs))
    sides = np.stack(_views.columns_of(pairs)[: 2 if symmetric else 1])
    if e.keep is None:
        return _pairs.Terms(energy[sides].sum(0)), alignment
    there = e.keep & (energy != -jnp.inf)
    energy = jnp.where(there, energy, 0)
    return _pairs.Terms(energy[sides].sum(0), there[sides].any(0)), alignment


@declare(
    operands=Operands.PAIR,
    terms=_terms,
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

        mean_i [ -s(x_i, y_i) + LSE_{j != i} s(x_i, x_j) + LSE_{j != i} s(y_i, y_j) ],
        s(u, v) = <u, v> / temperature

    Koromilas 2024 (Decoupled hyperspherical energy loss).

    Cost: 2 n² d multiply-adds in the forward pass.

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
    e = _pairs.two(x, y, normalize, mask, axis_name, block_size)
    return _pairs.loss(
        _terms, e, temperature=temperature, symmetric=symmetric, extra_negatives=extra_negatives
    )
