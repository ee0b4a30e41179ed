"""InfoNCE of two views."""

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
    in_batch_negatives: bool,
    extra_negatives: ArrayLike | None,
) -> tuple[_pairs.Terms, ...]:
    s = _views.similarities(e, temperature, extra_negatives)
    left, right = _views.columns_of(pairs)
    extra = _views.to_queue(s)
    if not in_batch_negatives:
        if extra is None:
            raise ValueError("extra_negatives must be given with in_batch_negatives=False, got None")
        positive, exists = _views.positives(s.vectors.z, pairs), _views.both_there(e.keep, pairs)
        forward, backward = _views.join(positive, extra[left]), _views.join(positive, extra[right])
    else:
        positive, forward, backward, exists = _views.blocks(s, pairs, backward=symmetric)
        if extra is not None:
            forward, backward = _views.join(forward, extra[left]), _views.join(backward, extra[right])
    negative = (forward + backward) / 2 if symmetric else forward
    return (_pairs.Terms(negative - positive, exists),)


@declare(
    operands=Operands.PAIR,
    terms=_terms,
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

    Cost: n² d multiply-adds in the forward pass.

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

    Example:
      >>> import jax.numpy as jnp
      >>> from mvcl import losses
      >>> x = jnp.ones((4, 8))  # all vectors coincide: log 4
      >>> print(f"{losses.info_nce(x, x):.3f}")
      1.386
    """
    e = _pairs.two(x, y, normalize, mask, axis_name, block_size)
    return _pairs.loss(
        _terms,
        e,
        temperature=temperature,
        symmetric=symmetric,
        in_batch_negatives=in_batch_negatives,
        extra_negatives=extra_negatives,
    )


def info_nce_minimum(negatives: ArrayLike, temperature: ArrayLike) -> jax.Array:
    """The least InfoNCE with so many negatives: every positive at cosine 1, every negative at -1.

        log(1 + K exp(-2 / temperature))

    Jeon 2025 (arXiv 2507.06560), Proposition 1 and Table 2, which cuts the values off after three digits.

    Args:
      negatives: K > 0, the negatives of an anchor, an array of any shape.
      temperature: positive divisor of the cosines, an array of any shape that broadcasts.

    Returns:
      The loss, of the common shape, float32 or wider.

    Raises:
      ValueError: for numbers that are not positive.
    """
    for name, value in (("negatives", negatives), ("temperature", temperature)):
        if not np.all(np.asarray(value) > 0):
            raise ValueError(f"{name} must be positive, got {value}")
    kind = jnp.promote_types(jnp.result_type(temperature, float), jnp.float32)
    k, t = jnp.broadcast_arrays(jnp.asarray(negatives, kind), jnp.asarray(temperature, kind))
    return jax.nn.softplus(jnp.log(k) - 2 / t)
