"""Costs of a tuple of points, one from each of k views: a sum over its pairs, a function of one, or a tensor.

Matrices of the k(k-1)/2 pairs are in the order (0,1), (0,2), ..., (k-2,k-1), which is also ott's.
"""

import abc
import dataclasses
import itertools
import math
import operator
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike

from mvcl import _numerics

CostName = Literal["circular_variance", "circular_standard_deviation"]
"""Costs of Piran 2024 by name."""
PairCost = Callable[[jax.Array, jax.Array], jax.Array]
Matrices = tuple[jax.Array, ...]


def pairs(k: int) -> list[tuple[int, int]]:
    """The pairs l < m in the order of their matrices."""
    return list(itertools.combinations(range(k), 2))


def views_of_pairs(count: int) -> int:
    """k of k(k-1)/2 pairs."""
    return (1 + math.isqrt(1 + 8 * count)) // 2


def place(x: jax.Array, axes: Sequence[int], rank: int) -> jax.Array:
    """x with its axes at `axes` of `rank`, ones elsewhere."""
    shape = [1] * rank
    for axis, size in zip(axes, x.shape):
        shape[axis] = size
    return x.reshape(shape)


@dataclasses.dataclass(frozen=True)
class OfSum:
    """A cost that is a function of a sum over pairs and of the number of points that a tuple has, times `scale`."""

    function: Callable[[jax.Array, ArrayLike], jax.Array]
    scale: float = 1.0

    def __call__(self, total: jax.Array, count: ArrayLike) -> jax.Array:
        """The costs, of the shape of `total`."""
        return self.scale * self.function(total, count)


class PairForm(abc.ABC):
    """A cost of a tuple of points that is a sum over its pairs, or a function of one."""

    @abc.abstractmethod
    def matrices(self, points: Sequence[jax.Array]) -> Matrices:
        """The terms of the sum for all pairs of points: k(k-1)/2 matrices (n_l, n_m) of k arrays (n_l, d)."""

    def of_sum(self, k: int) -> OfSum | None:
        """Makes the cost from the sum; None where the sum is the cost."""
        return None

    def counts(self, k: int) -> tuple[float, ...]:
        """For each view, how much a point adds to the number that `of_sum` takes; k in all."""
        return (1.0,) * k

    def __call__(self, stack: jax.Array) -> jax.Array:
        """The cost, a scalar, of one tuple of points as a (k, d) stack."""
        total = jnp.sum(jnp.stack([matrix[0, 0] for matrix in self.matrices([x[None] for x in stack])]))
        of_sum = self.of_sum(len(stack))
        return total if of_sum is None else of_sum(total, len(stack))


@dataclasses.dataclass(frozen=True)
class SumOverPairs(PairForm):
    """A cost that is a sum over the pairs of points of a tuple, `sum_{l<m} w_lm pair(x_l, x_m)`."""

    pair: PairCost | tuple[PairCost, ...]
    """Function of two points (d,) that returns their cost, a scalar, as an ott `CostFn`; or k(k-1)/2 in the order
    (0,1), (0,2), ..., (k-2,k-1), each with the point of the first view first."""
    weights: tuple[tuple[float, ...], ...] | None = None
    """(k, k) symmetric factors w of the pairs, an array or nested tuples; 0 leaves a pair out, so that an adjacency
    matrix gives a chain, a star or another graph of views. None for ones."""

    def __post_init__(self) -> None:
        several = isinstance(self.pair, Sequence)
        functions = tuple(self.pair) if several else (self.pair,)  # type: ignore[arg-type]
        if not functions or not all(callable(f) for f in functions):
            raise ValueError(f"pair must be a function of two points or several of them, got {self.pair!r}")
        if several:
            object.__setattr__(self, "pair", functions)
        if self.weights is not None:
            matrix = np.asarray(self.weights, np.float64)
            if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
                raise ValueError(f"weights must have shape (k, k), got {matrix.shape}")
            if not (np.isfinite(matrix).all() and (matrix == matrix.T).all()):
                raise ValueError(f"weights must be finite and symmetric, got {matrix.tolist()}")
            # Nested tuples are hashable and can be saved in a config.
            object.__setattr__(self, "weights", tuple(map(tuple, matrix.tolist())))

    def matrices(self, points: Sequence[jax.Array]) -> Matrices:
        """Weighted costs of the pairs; 0 for a weight of 0, whose function is not called."""
        k, index = len(points), pairs(len(points))
        functions = self.pair if isinstance(self.pair, tuple) else (self.pair,) * len(index)
        if len(functions) != len(index):
            what = f"pair must be one function or {len(index)}, one for each pair of {k} views"
            raise ValueError(f"{what}, got {len(functions)}")
        if self.weights is not None and len(self.weights) != k:
            size = len(self.weights)
            raise ValueError(f"weights must have shape ({k}, {k}) for {k} views, got ({size}, {size})")
        factors = [1.0 if self.weights is None else self.weights[l][m] for l, m in index]
        return tuple(
            factor * _all_pairs(function, points[l], points[m])
            if factor
            else jnp.zeros((len(points[l]), len(points[m])), points[l].dtype)
            for function, factor, (l, m) in zip(functions, factors, index)
        )


@dataclasses.dataclass(frozen=True)
class _Weighted(PairForm):
    """A cost by the weights of the views."""

    weights: tuple[float, ...] | None = None
    """k non-negative weights λ that sum to 1; None for 1/k each."""

    def __post_init__(self) -> None:
        if self.weights is None:
            return
        given = np.asarray(self.weights, np.float64)
        if given.ndim != 1 or not (given >= 0).all() or not math.isclose(given.sum(), 1, abs_tol=1e-6):
            what = "weights must be k numbers that are not negative and sum to 1"
            raise ValueError(f"{what}, got {given.tolist()}")
        object.__setattr__(self, "weights", tuple(given.tolist()))

    def of_views(self, k: int) -> tuple[float, ...]:
        """The weights of k views."""
        weights = (1 / k,) * k if self.weights is None else self.weights
        if len(weights) != k:
            raise ValueError(f"weights must hold {k} numbers for {k} views, got {len(weights)}")
        return weights

    def point(self, stack: jax.Array) -> jax.Array:
        """b of tuples given as (k, ..., d) points, of shape (..., d)."""
        return reduce(operator.add, [w * x for w, x in zip(self.of_views(len(stack)), stack)])


class Barycenter(_Weighted):
    """The cost of the Wasserstein barycentre, `min_b sum_l λ_l ||x_l - b||² = sum_{l<m} λ_l λ_m ||x_l - x_m||²`.

    b is the mean `sum_l λ_l x_l`. The Wasserstein barycentre of the views is the distribution of b under the optimal
    plan without entropy. Agueh, Carlier 2011 (SIAM J. Math. Anal. 43), who have λ_l / 2 for λ_l.
    """

    def matrices(self, points: Sequence[jax.Array]) -> Matrices:
        """`λ_l λ_m ||x_l - x_m||²`."""
        weights = self.of_views(len(points))
        # Distances do not depend on the origin; near the points, their squares are rounded less.
        origin = lax.stop_gradient(jnp.mean(jnp.concatenate(points), axis=0))
        return tuple(
            weights[l] * weights[m] * squared_distances(points[l] - origin[None], points[m] - origin[None])
            for l, m in pairs(len(points))
        )


class SphericalBarycenter(_Weighted):
    """The cost of the barycentre on the unit sphere, `min_b sum_l λ_l (1 - <b, x_l>) = 1 - ||sum_l λ_l x_l||`.

    b is the unit vector along `sum_l λ_l x_l`; `1 - <b, x>` is half the squared distance of unit vectors. With equal
    weights it is `1 - R`, R the length of the mean, where Piran 2024 has `1 - R²`. The length is held above the square
    root of the dtype's rounding error. Where points are missing it is `sum_l λ_l - ||sum_l λ_l x_l||` over the others.
    """

    def matrices(self, points: Sequence[jax.Array]) -> Matrices:
        """Terms of `||sum_l k λ_l x_l||²`."""
        return squared_resultant_pairs([c * x for c, x in zip(self.counts(len(points)), points)])

    def of_sum(self, k: int) -> OfSum:
        """`1 - ||sum_l k λ_l x_l|| / k`."""
        return OfSum(_resultant_deficit, 1 / k)

    def counts(self, k: int) -> tuple[float, ...]:
        """`k λ_l`."""
        return tuple(k * weight for weight in self.of_views(k))

    def point(self, stack: jax.Array) -> jax.Array:
        """b of tuples given as (k, ..., d) unit vectors, of shape (..., d); 0 where the sum is 0."""
        return _numerics.unit(super().point(stack))


class CircularVariance(PairForm):
    """`1 - ||(1/k) sum_l z_l||²`. Piran 2024 (ICML), Eq. 12."""

    def matrices(self, points: Sequence[jax.Array]) -> Matrices:
        """For unit vectors `||z_l - z_m||² / k²`."""
        k = len(points)
        return tuple(2 / (k * (k - 1)) - square / k**2 for square in squared_resultant_pairs(points))


class CircularStandardDeviation(PairForm):
    """`-log ||(1/k) sum_l z_l||²`. Piran 2024 (ICML), Eq. 13."""

    def matrices(self, points: Sequence[jax.Array]) -> Matrices:
        """Terms of `||sum_l z_l||²`."""
        return squared_resultant_pairs(points)

    def of_sum(self, k: int) -> OfSum:
        """From the squared length of the sum."""
        return OfSum(_minus_log_squared_length)


def squared_resultant_pairs(points: Sequence[jax.Array]) -> Matrices:
    """Terms of `||sum_l z_l||²`, `2 <z_l, z_m> + (||z_l||² + ||z_m||²) / (k-1)`: a view is in k-1 pairs."""
    k = len(points)
    square = [jnp.sum(x * x, axis=-1) / (k - 1) for x in points]
    return tuple(
        2 * _numerics.inner("id,jd->ij", points[l], points[m]) + square[l][:, None] + square[m][None, :]
        for l, m in pairs(k)
    )


def squared_distances(x: jax.Array, y: jax.Array) -> jax.Array:
    """`||x_i - y_j||²`, (n, m)."""
    squares = [jnp.sum(z * z, axis=-1) for z in (x, y)]
    return squares[0][:, None] + squares[1][None, :] - 2 * _numerics.inner("id,jd->ij", x, y)


def _minus_log_squared_length(square: jax.Array, count: ArrayLike) -> jax.Array:
    """`-log R²` of `count` unit vectors from `||sum_l z_l||² = count² R²`; 0 for a count of 0.

    R² is held above the rounding error: opposite vectors cost 16 in float32, 36 in float64, and pass no gradient.
    """
    some = jnp.asarray(count, square.dtype)
    squared_length = jnp.where(some > 0, square, 1) / jnp.square(jnp.maximum(some, 1))
    return -jnp.log(jnp.maximum(squared_length, jnp.finfo(square.dtype).eps))


def _resultant_deficit(square: jax.Array, count: ArrayLike) -> jax.Array:
    """`count - ||sum_l z_l||` from the square of the length; 0 for a count of 0."""
    some = jnp.asarray(count, square.dtype)
    divisor = jnp.square(jnp.where(some > 0, some, 1))
    return some * (1 - jnp.sqrt(jnp.maximum(square / divisor, jnp.finfo(square.dtype).eps)))


def _all_pairs(function: PairCost, x: jax.Array, y: jax.Array) -> jax.Array:
    """(n_l, n_m) costs of the pairs of points, a row at a time: 1/55 of the memory and, on CPU, 1/40 of the time."""
    row = jax.checkpoint(lambda a: jax.vmap(lambda b: function(a, b))(y))
    matrix = lax.map(row, x)
    if matrix.ndim != 2:
        raise ValueError(f"pair must return a scalar for two points (d,), got shape {matrix.shape[2:]}")
    return matrix.astype(x.dtype)


NAMED_COSTS: dict[str, PairForm] = {
    "circular_variance": CircularVariance(),
    "circular_standard_deviation": CircularStandardDeviation(),
}
