"""TRIANGLE: the area of the triangle whose corners are three views."""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from mvcl import _checks, _numerics
from mvcl.losses import _two_sided, _views
from mvcl.losses._declaration import declare


@declare(views=3, mask=True, axis_name=True, block_size=True, normalize=True)
def triangle(
    z: ArrayLike,
    temperature: ArrayLike = 0.07,
    squared: bool = False,
    eps: ArrayLike = 1e-8,
    *,
    label_smoothing: float = 0.0,
    normalize: bool = True,
    mask: ArrayLike | None = None,
    axis_name: str | None = None,
    block_size: int | None = None,
) -> jax.Array:
    """TRIANGLE: the three views of an instance are the corners of a small triangle, a view and two of others not.

        ½ mean_i [ A_ii / temperature + LSE_j -A_ij / temperature ]
          + ½ mean_j [ A_jj / temperature + LSE_i -A_ij / temperature ]
        A_ij = ½ sqrt(max(|u|² |v|² - <u, v>², 0) + eps),   u = a_i - b_j,   v = a_i - c_j

    a, b and c are the views in order. Cicchetti 2025 (arXiv 2509.24734). The released code leaves out the root,
    ½ (|u|² |v|² - <u, v>²), and smooths labels by 0.1: `squared=True, label_smoothing=0.1` gives its numbers. Here
    |u|² |v|² - <u, v>² is |c_j - b_j|² times the squared distance of a_i from the line through b_j and c_j: two
    products, no (n, n, d) array, and A_ii from the vector of that distance.

    Cost: 2 n² d multiply-adds in the forward pass.

    Args:
      z: (3, n, d) floating, n >= 2; half precision is summed in float32.
      temperature: positive divisor of the areas, no unit.
      squared: ½ (|u|² |v|² - <u, v>²) in place of the area, without eps.
      eps: positive number under the root, which bounds the gradient where the area is zero.
      label_smoothing: s in [0, 1]: the label is 1 - s on the own instance plus s / n on every instance.
      normalize: project vectors onto the unit sphere first; zero stays zero.
      mask: (3, n) bool, False for a view that an instance lacks. i runs over the instances that have a, j over those
        that have b and c, the means over those that have all three.
      axis_name: mesh axis over which the instances are split, inside `shard_map`.
      block_size: rows of areas held at once; None decides.

    Returns:
      Scalar, float32 or wider. Where all vectors coincide it is log(n), the chance level.

    Raises:
      ValueError: for shapes, dtypes or values other than these.
    """
    z = _checks.views(z, axis_name)
    if z.shape[0] != 3:
        raise ValueError(f"z must have shape (3, n, d), got {z.shape}")
    e = _views.embedded(z, normalize, mask, axis_name, block_size)
    t = _checks.scalar("temperature", temperature, e.z.dtype, positive=True)
    small = _checks.scalar("eps", eps, e.z.dtype, positive=True)
    share = _two_sided.smoothing(label_smoothing)
    a, b, c = e.z
    side = c - b
    direction = _numerics.unit(side)
    foot = _numerics.orthogonal_part(b, [direction])
    height = _numerics.orthogonal_part(a - b, [direction])
    base = jnp.sum(side * side, axis=1)
    logit = _half_square if squared else _area
    logits = _two_sided.Logits(
        entry=_half_squares if squared else _areas,
        rows=(a, jnp.sum(a * a, axis=1)),
        columns=(direction, foot, jnp.sum(foot * foot, axis=1), base),
        shared=(t, small),
        own=logit(base * jnp.sum(height * height, axis=1), t, small),
        keep_rows=None if e.keep is None else e.keep[0],
        keep_columns=None if e.keep is None else e.keep[1] & e.keep[2],
        bound=_two_sided.bound(3.375 if squared else 1.3, temperature, eps) if normalize else None,
    )
    return _two_sided.cross_entropy(logits, share, axis_name, block_size)


def _area(determinant: jax.Array, temperature: jax.Array, eps: jax.Array) -> jax.Array:
    return -0.5 * jnp.sqrt(jnp.maximum(determinant, 0) + eps) / temperature


def _half_square(determinant: jax.Array, temperature: jax.Array, eps: jax.Array) -> jax.Array:
    return -0.5 * determinant / temperature


def _determinants(rows: _two_sided.Arrays, columns: _two_sided.Arrays) -> jax.Array:
    (a, square), (direction, foot, foot_square, base) = rows, columns
    along = _numerics.products(a[None], direction[None])[0]
    to_foot = _numerics.products(a[None], foot[None])[0]
    distance = square[:, None] - along * along - 2 * to_foot + foot_square[None, :]
    return base[None, :] * distance


def _areas(rows: _two_sided.Arrays, columns: _two_sided.Arrays, shared: _two_sided.Arrays) -> jax.Array:
    return _area(_determinants(rows, columns), *shared)


def _half_squares(
    rows: _two_sided.Arrays, columns: _two_sided.Arrays, shared: _two_sided.Arrays
) -> jax.Array:
    return _half_square(_determinants(rows, columns), *shared)
