"""InfoNCE of two views."""

from typing import Any

import jax
from jax.typing import ArrayLike

from mvcl import _checks, _numerics
from mvcl.losses import _views
from mvcl.losses._declaration import Operands, declare


def _of_pairs(
    z: jax.Array,
    pairs: _views.Pairs,
    *,
    temperature: ArrayLike,
    symmetric: bool,
    in_batch_negatives: bool,
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
    if not in_batch_negatives:
        if queue is None:
            raise ValueError("extra_negatives must be given with in_batch_negatives=False, got None")
        left, right = _views.columns_of(pairs)
        extra = _views.to_queue(v, queue, axis_name=axis_name, block_size=block_size)
        positive = _views.positives(v.z, pairs)
        terms = _views.join(positive, extra[left]) - positive
        if symmetric:
            terms = (terms + _views.join(positive, extra[right]) - positive) / 2
        return _numerics.mean_where(terms, _views.both_there(v.keep, pairs), axis_name, axis=1)
    b = _views.blocks(v, pairs, backward=symmetric, axis_name=axis_name, block_size=block_size)
    forward, backward = b.forward, b.backward
    if queue is not None:
        left, right = _views.columns_of(pairs)
        extra = _views.to_queue(v, queue, axis_name=axis_name, block_size=block_size)
        forward, backward = _views.join(forward, extra[left]), _views.join(backward, extra[right])
    negative = (forward + backward) / 2 if symmetric else forward
    return _numerics.mean_where(negative - b.positive, b.exists, axis_name, axis=1)


@_views.many_pairs(_of_pairs)
@declare(
    operands=Operands.PAIR,
    mask=True,
    axis_name=True,
    block_size=True,
    normalize=True,
    queue="extra_negatives",
)
def info_nce(
    x: ArrayLike,
    y: ArrayLike,
    temperature: ArrayLike = 0.1,
    symmetric: bool = False,
    *,
    in_batch_negatives: bool = True,
    normalize: bool = True,
    mask: ArrayLike | None = None,
    extra_negatives: ArrayLike | None = None,
    axis_name: str | None = None,
    block_size: int | None = None,
) -> jax.Array:
    """InfoNCE: each x_i finds its y_i among all y_j.

        mean_i [ -s(x_i, y_i) + LSE_j s(x_i, y_j) ],   s(u, v) = <u, v> / temperature

    Piran 2024 (ICML), Eq. 1; van den Oord 2018. j runs over all instances, i too.

    Args:
      x: (n, d) floating, n >= 2: the anchors.
      y: (n, d), of the same dtype: instance i of y is the positive of instance i of x.
      temperature: positive divisor of the inner products, no unit.
      symmetric: average with the loss whose anchors are y.
      in_batch_negatives: False leaves each instance's own y and the `extra_negatives`, as MoCo v2 does.
      normalize: project vectors onto the unit sphere first; zero stays zero.
      mask: (2, n) bool, False where x (row 0) or y (row 1) lacks the instance. The mean runs over the
        instances that have both; the others stay negatives.
      extra_negatives: (q, d) vectors that join every anchor's sum, for instance a queue. Inside `shard_map`
        every device holds all of them.
      axis_name: mesh axis over which the instances are split, inside `shard_map`.
      block_size: rows of similarities held at once; None decides.

    Returns:
      Scalar, float32 or wider. Where all vectors coincide it is log(n), the chance level.

    Raises:
      ValueError: for shapes, dtypes or values other than these.
    """
    z = _checks.pair(x, y, axis_name)
    return _of_pairs(
        z,
        ((0, 1),),
        temperature=temperature,
        symmetric=symmetric,
        in_batch_negatives=in_batch_negatives,
        normalize=normalize,
        mask=mask,
        extra_negatives=extra_negatives,
        axis_name=axis_name,
        block_size=block_size,
    )[0]
