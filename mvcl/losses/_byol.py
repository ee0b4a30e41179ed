"""BYOL's regression of one view on another."""

import jax
from jax.typing import ArrayLike

from mvcl.losses import _pairs, _views
from mvcl.losses._declaration import Operands, declare


def _terms(e: _views.Embedded, pairs: _views.Pairs) -> tuple[_pairs.Terms, ...]:
    return (_pairs.Terms(2 - 2 * _views.positives(e.z, pairs), _views.both_there(e.keep, pairs)),)


@declare(operands=Operands.PAIR, terms=_terms, mask=True, axis_name=True, normalize=True)
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

    Cost: n d multiply-adds in the forward pass.

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
    return _pairs.loss(_terms, _pairs.two(x, y, normalize, mask, axis_name))
