"""BYOL's regression of one view on another."""

from typing import Any

import jax
from jax.typing import ArrayLike

from mvcl import _checks, _numerics
from mvcl.losses import _views
from mvcl.losses._declaration import Operands, declare


def _of_pairs(
    z: jax.Array, pairs: _views.Pairs, *, normalize: bool, mask: Any, axis_name: str | None
) -> jax.Array:
    mask = _checks.mask(mask, z.shape[:2])
    cosine = _views.positives(_views.embeddings(z, normalize, mask), pairs)
    return 2 - 2 * _numerics.mean_where(cosine, _views.both_there(mask, pairs), axis_name, axis=1)


@_views.many_pairs(_of_pairs)
@declare(operands=Operands.PAIR, mask=True, axis_name=True, normalize=True)
def byol(
    x: ArrayLike,
    y: ArrayLike,
    *,
    normalize: bool = True,
    mask: ArrayLike | None = None,
    axis_name: str | None = None,
) -> jax.Array:
    """BYOL: the squared distance of two unit vectors.

        2 - 2 mean_i <x_i, y_i>

    Piran 2024 (ICML), Eq. 2; Grill 2020. Stopping the gradient of the target is the caller's choice.

    Args:
      x: (n, d) floating, n >= 2: predictions.
      y: (n, d), of the same dtype: targets.
      normalize: project vectors onto the unit sphere first; zero stays zero.
      mask: (2, n) bool, False where x (row 0) or y (row 1) lacks the instance; the mean runs over those with
        both.
      axis_name: mesh axis over which the instances are split, inside `shard_map`.

    Returns:
      Scalar, float32 or wider: 0 for coinciding vectors, 2 for orthogonal ones, 4 for opposite ones.

    Raises:
      ValueError: for shapes, dtypes or values other than these.
    """
    z = _checks.pair(x, y, axis_name)
    return _of_pairs(z, ((0, 1),), normalize=normalize, mask=mask, axis_name=axis_name)[0]
