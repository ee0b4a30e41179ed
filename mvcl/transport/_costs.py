"""Costs of a tuple of points, one from each of k views, as sums over the pairs of views where they are one.

Matrices of the k(k-1)/2 pairs are stacked in the order (0,1), (0,2), ..., (k-2,k-1), which is also ott's.
"""

import itertools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
from jax import lax

from mvcl import _numerics

if TYPE_CHECKING:
    from ott.geometry.costs import CostFn

TupleCost = Callable[[jax.Array], jax.Array]


def pairs(k: int) -> list[tuple[int, int]]:
    """The pairs l < m in the order of their matrices."""
    return list(itertools.combinations(range(k), 2))


def squared_resultant_pairs(z: jax.Array) -> jax.Array:
    """`||sum_l z_l||²` of every tuple as a sum over pairs: (k(k-1)/2, n, n) matrices
    `2 <z_l, z_m> + (||z_l||² + ||z_m||²) / (k-1)`.

    The sum over pairs meets every view k-1 times, hence the divisor.
    """
    k = z.shape[0]
    square = jnp.sum(z * z, axis=-1) / (k - 1)
    return jnp.stack(
        [
            2 * _numerics.inner("id,jd->ij", z[l], z[m]) + square[l][:, None] + square[m][None, :]
            for l, m in pairs(k)
        ]
    )


def circular_variance_pairs(z: jax.Array) -> jax.Array:
    """`1 - ||(1/k) sum_l z_l||²` as (k(k-1)/2, n, n) matrices; for unit vectors they are `||z_l - z_m||² /
    k²`.
    """
    k = z.shape[0]
    return 2 / (k * (k - 1)) - squared_resultant_pairs(z) / k**2


def cost_fn_pairs(z: jax.Array, cost_fns: "CostFn | Sequence[CostFn]") -> jax.Array:
    """(k(k-1)/2, n, n) matrices of ott's cost functions, one for all pairs or one for each."""
    index = pairs(z.shape[0])
    functions = list(cost_fns) if isinstance(cost_fns, Sequence) else [cost_fns] * len(index)
    if len(functions) != len(index):
        raise ValueError(
            f"cost must hold one CostFn or {len(index)}, one for each pair of views, got {len(functions)}"
        )
    return jnp.stack([f.all_pairs(z[l], z[m]) for f, (l, m) in zip(functions, index)])


def circular_variance_of_square(square: jax.Array, k: int) -> jax.Array:
    """Circular variance from `||sum_l z_l||²`."""
    return 1 - square / k**2


def circular_standard_deviation_of_square(square: jax.Array, k: int) -> jax.Array:
    """`-log R²` from `||sum_l z_l||² = k² R²`.

    R² is held above the dtype's rounding error, below which a sum of k unit vectors is not distinguishable
    from 0: opposite vectors cost 16 in float32 and 36 in float64, and pass no gradient, where the formula has
      infinity.
    """
    squared_length = square / k**2
    return -jnp.log(jnp.maximum(squared_length, jnp.finfo(square.dtype).eps))


def cost_tensor(z: jax.Array, cost: TupleCost) -> jax.Array:
    """(n,) * k tensor of `cost` of every (k, d) stack; memory for the stacks of one point of view 0 at a
    time.
    """
    k = z.shape[0]

    def of_points(*points: jax.Array) -> jax.Array:
        return cost(jnp.stack(points))

    slab = of_points
    for view in reversed(range(1, k)):
        slab = jax.vmap(slab, in_axes=(None,) * view + (0,) + (None,) * (k - 1 - view))
    tensor = lax.map(jax.checkpoint(lambda point: slab(point, *z[1:])), z[0])
    if tensor.shape != (z.shape[1],) * k:
        raise ValueError(f"cost must return a scalar for a (k, d) stack, got shape {tensor.shape[k:]}")
    return tensor


# Functions of ||sum_l z_l||² and k.
NAMED_COSTS: dict[str, Callable[[jax.Array, int], jax.Array]] = {
    "circular_variance": circular_variance_of_square,
    "circular_standard_deviation": circular_standard_deviation_of_square,
}
