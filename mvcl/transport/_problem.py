"""A problem of optimal transport from a user's arguments, checked: costs, weights and first potentials."""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike

from mvcl import _checks, _numerics, transport  # ott is imported on first use, being slow to import
from mvcl.transport._blocks import Tiles, cost_block, default_work, over_blocks
from mvcl.transport._contraction import groups
from mvcl.transport._costs import (
    NAMED_COSTS,
    CostName,
    PairForm,
    SumOverPairs,
    TupleCosts,
    pairs,
    views_of_pairs,
)

TupleCost = Callable[[jax.Array], jax.Array]

_DENSE_LIMIT = 2**31
# Relative difference of the sums of weights that is taken for rounding.
SUMS = 1e-5


class Problem(NamedTuple):
    """The numbers of a problem."""

    costs: TupleCosts
    weights: tuple[jax.Array, ...]
    epsilon: jax.Array
    threshold: jax.Array
    init: tuple[jax.Array, ...]


def tuple_costs(
    z: ArrayLike | Sequence[ArrayLike],
    cost: "CostName | transport.CostFn | Sequence[transport.CostFn] | TupleCost" = "circular_variance",
    *,
    scale: float = 1.0,
    present: ArrayLike | None = None,
) -> TupleCosts:
    """The costs of all tuples of points, without the tensor where the cost allows it.

    Args:
      z: (k, n, d) points, or k arrays (n_l, d), k >= 2.
      cost: as in `multimarginal_sinkhorn`.
      scale: positive factor of the cost.
      present: boolean (k, n), for views of one size; a point where it is False stands for a view that an instance
        lacks. The cost of a tuple is then over the points that it has: a sum over pairs leaves out the pairs of a
        missing point, `"circular_standard_deviation"` takes the mean of those present and is 0 for none.

    Returns:
      The `TupleCosts`, in float32 or wider.

    Raises:
      ValueError: for shapes and options other than these, and for a function of a (k, d) stack with `present`.
    """
    points = checked_points(z)
    shape = tuple(len(x) for x in points)
    scale = _checks.real("cost_scale", scale, positive=True)
    if present is not None and len(set(shape)) > 1:
        raise ValueError(f"present must be None for views of different sizes, got sizes {shape}")
    there = _checks.mask(present, (len(shape), shape[0]), "present")
    if there is not None:
        points = tuple(jnp.where(p[:, None], x, 0) for x, p in zip(points, there))
    if isinstance(cost, str):
        cost = NAMED_COSTS[_checks.option("cost", cost, NAMED_COSTS)]
    elif not isinstance(cost, PairForm) and isinstance(cost, transport.CostFn | Sequence):
        cost = SumOverPairs(cost)  # type: ignore[arg-type]
    if isinstance(cost, PairForm):
        k, matrices, counts = len(points), cost.matrices(points), None
        of_sum = cost.of_sum(k)
        if of_sum is not None:
            if there is not None:
                counts = tuple(c * p for c, p in zip(cost.counts(k), there.astype(points[0].dtype)))
            return TupleCosts(matrices, counts, dataclasses.replace(of_sum, scale=scale * of_sum.scale))
        if there is not None:  # 0 for the pairs of which a point is missing
            both = [there[l][:, None] & there[m][None, :] for l, m in pairs(k)]
            matrices = tuple(jnp.where(pair, matrix, 0) for pair, matrix in zip(both, matrices))
        return TupleCosts(tuple(scale * m for m in matrices))
    if not callable(cost):
        raise ValueError(
            "cost must be a name, a cost of mvcl.transport, a CostFn, several of them or a function of a (k, d) stack, "
            f"got {cost!r}"
        )
    if there is not None:
        raise ValueError(
            "present, the mask of m3g, must be None for a cost that is a function of a (k, d) stack, which has no "
            "value for fewer views; a sum over pairs has one"
        )
    return TupleCosts((scale * _cost_tensor(points, cost),), dense=True)


def costs_of(
    z: ArrayLike | Sequence[ArrayLike] | TupleCosts | None,
    cost: "CostName | transport.CostFn | Sequence[transport.CostFn] | TupleCost",
    pair_costs: ArrayLike | Sequence[ArrayLike] | None,
    cost_tensor: ArrayLike | None,
    max_operations: float,
) -> TupleCosts:
    """The costs of `multimarginal_sinkhorn`, given in one of its three forms."""
    forms = {"z": z, "pair_costs": pair_costs, "cost_tensor": cost_tensor}
    given = [name for name, x in forms.items() if x is not None]
    if len(given) != 1:
        raise ValueError(f"exactly one of z, pair_costs and cost_tensor must be given, got {given or 'none'}")
    if isinstance(z, TupleCosts):
        costs = z
    elif pair_costs is not None:
        costs = _costs_of_pairs(pair_costs)
    elif cost_tensor is not None:
        array = _checks.array("cost_tensor", cost_tensor)
        if array.ndim < 2 or 0 in array.shape:
            raise ValueError(
                "cost_tensor must have shape (n_1, ..., n_k) with k >= 2 and points in every view, got "
                f"{array.shape}"
            )
        costs = TupleCosts((_numerics.widen(array),), dense=True)
    else:
        assert z is not None
        points = checked_points(z)
        _check_operations([len(x) for x in points], max_operations)  # before a tensor is made
        return tuple_costs(points, cost)
    _check_operations(costs.shape, max_operations)
    return costs


@jax.jit
def default_epsilon(costs: TupleCosts) -> jax.Array:
    """ott's rule, 1/20 of the standard deviation of the costs of all tuples; 1 where all are equal. No gradient."""
    costs = jax.tree.map(lax.stop_gradient, costs)
    group, rest = groups(len(costs.shape))

    def moments(tiles: Tiles) -> jax.Array:
        block, axes = cost_block(costs, tiles), tuple(range(len(group), len(costs.shape)))
        return jnp.stack([jnp.mean(block, axes), jnp.var(block, axes)], axis=-1)

    mean, variance = jnp.moveaxis(over_blocks(default_work(), costs.shape, group, rest, moments), -1, 0)
    deviation = jnp.sqrt(jnp.var(mean) + jnp.mean(variance))
    return jnp.where(deviation > 0, deviation / 20, 1)


def _costs_of_pairs(matrices: ArrayLike | Sequence[ArrayLike]) -> TupleCosts:
    """Costs that are the sum of given matrices of the pairs of views."""
    given = list(matrices) if isinstance(matrices, Sequence) else list(jnp.asarray(matrices))
    arrays = tuple(_checks.array(f"pair_costs[{i}]", m, "n_l n_m") for i, m in enumerate(given))
    k = views_of_pairs(len(arrays))
    shapes = [a.shape for a in arrays]
    if k < 2 or len(arrays) != k * (k - 1) // 2:
        raise ValueError(
            f"pair_costs must hold k(k-1)/2 matrices, one for each pair of views, got {len(arrays)}"
        )
    sizes = (shapes[0][0], *(s[1] for s in shapes[: k - 1]))
    wanted = [(sizes[l], sizes[m]) for l, m in pairs(k)]
    if shapes != wanted:
        raise ValueError(
            f"pair_costs must have the shapes (n_l, n_m) of the pairs l < m, {wanted} for views of "
            f"{sizes} points, got {shapes}"
        )
    return TupleCosts(tuple(_numerics.widen(a) for a in arrays))


def checked_points(z: ArrayLike | Sequence[ArrayLike]) -> tuple[jax.Array, ...]:
    """k >= 2 arrays (n_l, d) of one dtype, float32 or wider."""
    if not isinstance(z, Sequence):
        return tuple(_numerics.widen(_checks.array("z", z, "k n d", (2, 1, 1))))
    if len(z) < 2:
        raise ValueError(f"z must hold the points of k >= 2 views, got {len(z)}")
    points = [_checks.array(f"z[{l}]", x, "n d") for l, x in enumerate(z)]
    for l, x in enumerate(points[1:], start=1):
        if x.shape[1] != points[0].shape[1] or x.dtype != points[0].dtype:
            raise ValueError(
                f"z[{l}] must have the dimension and dtype of z[0], {points[0].shape[1]} and {points[0].dtype}, got "
                f"{x.shape[1]} and {x.dtype}"
            )
    return tuple(_numerics.widen(x) for x in points)


def _check_operations(shape: Sequence[int], max_operations: float) -> None:
    """Refuses a problem of which a pass takes too long."""
    tuples, k = math.prod(shape), len(shape)
    if 2 * tuples <= max_operations:
        return
    most, n = max_operations / 2, max(shape)
    views = next((v for v in range(k, 1, -1) if n**v <= most), None)
    fits = f"n <= {_root(most, k)} with {k} views" + (f", or k <= {views} with {n} points" if views else "")
    raise ValueError(
        f"{_sizes(shape)} make {tuples:.3g} tuples, and a pass over them takes {2 * tuples:.3g} "
        f"operations, above max_operations={max_operations:.3g}; what fits: {fits}"
    )


def _sizes(shape: Sequence[int]) -> str:
    same = len(set(shape)) == 1
    return f"{shape[0] if same else ', '.join(map(str, shape))} points in {len(shape)} views"


def _root(most: float, k: int) -> int:
    """Largest n with n^k <= most."""
    return next(n for n in range(int(most ** (1 / k)) + 1, -1, -1) if n**k <= most)


def _cost_tensor(points: Sequence[jax.Array], cost: TupleCost) -> jax.Array:
    """(n_1, ..., n_k) tensor of `cost` of every (k, d) stack, made for one point of view 0 after the other."""
    k, shape = len(points), [len(x) for x in points]
    if math.prod(shape) > _DENSE_LIMIT:
        raise ValueError(
            f"a tensor of {_sizes(shape)} has {math.prod(shape):.3g} entries, above {_DENSE_LIMIT}; what fits: "
            f"n <= {_root(_DENSE_LIMIT, k)} with {k} views, or a cost that is a sum over pairs of views"
        )

    def of_points(*stack: jax.Array) -> jax.Array:
        return cost(jnp.stack(stack))

    slab = of_points
    for view in reversed(range(1, k)):
        slab = jax.vmap(slab, in_axes=(None,) * view + (0,) + (None,) * (k - 1 - view))
    tensor = lax.map(jax.checkpoint(lambda point: slab(point, *points[1:])), points[0])
    if tensor.ndim != k:
        raise ValueError(f"cost must return a scalar for a (k, d) stack, got shape {tensor.shape[k:]}")
    return tensor


def checked_weights(a_s: Sequence[ArrayLike | None] | None, costs: TupleCosts) -> tuple[jax.Array, ...]:
    """The weights of all points, in the dtype of the costs."""
    given = [None] * len(costs.shape) if a_s is None else _checks.several("a_s", a_s)
    if len(given) != len(costs.shape):
        raise ValueError(f"a_s must hold the weights of {len(costs.shape)} views, got {len(given)}")
    weights, sums = [], {}
    for l, (a, n) in enumerate(zip(given, costs.shape)):
        if a is None:
            # 1 / n as the division of two arrays has it, so that given and default weights are the same numbers.
            weights.append(jnp.full(n, 1, costs.dtype) / jnp.asarray(n, costs.dtype))
            sums[l] = 1.0
            continue
        weights.append(_checks.numbers(f"a_s[{l}]", a, costs.dtype))
        if weights[l].shape != (n,):
            raise ValueError(
                f"a_s[{l}] must have shape ({n},), a weight for each point, got {weights[l].shape}"
            )
        if not isinstance(weights[l], jax.core.Tracer):
            exact = np.asarray(weights[l], np.float64)
            if not np.all(np.isfinite(exact)) or exact.min() < 0:
                raise ValueError(
                    f"a_s[{l}] must be finite and >= 0, got values from {exact.min()} to {exact.max()}"
                )
            sums[l] = float(exact.sum())
            if not sums[l] > 0:
                raise ValueError(f"a_s[{l}] must have a positive weight, got {n} zeros")
    if sums and max(sums.values()) - min(sums.values()) > SUMS * max(sums.values()):
        found = ", ".join(f"{total:.6g} for view {l}" for l, total in sums.items())
        raise ValueError(f"a_s must have the same sum in every view, got {found}")
    return tuple(weights)


def first_potentials(init: Sequence[ArrayLike] | None, costs: TupleCosts) -> tuple[jax.Array, ...]:
    """Finite potentials to start from."""
    if init is None:
        return tuple(jnp.zeros(n, costs.dtype) for n in costs.shape)
    vectors = [
        _checks.numbers(f"init[{l}]", f, costs.dtype) for l, f in enumerate(_checks.several("init", init))
    ]
    if tuple(f.shape for f in vectors) != tuple((n,) for n in costs.shape):
        raise ValueError(
            f"init must hold potentials of shapes {[(n,) for n in costs.shape]}, got {[f.shape for f in vectors]}"
        )
    return tuple(lax.stop_gradient(jnp.where(jnp.isfinite(f), f, 0)) for f in vectors)


def padded(problem: Problem, axis_name: str | None) -> Problem:
    """The problem with points of weight 0 for a first view of each group that the devices divide."""
    if axis_name is None:
        return problem
    devices, shape = lax.axis_size(axis_name), problem.costs.shape
    first = [group[0] for group in groups(len(shape))]
    more = [-n % devices if view in first else 0 for view, n in enumerate(shape)]

    def pad(x: jax.Array, *views: int, mode: str = "constant") -> jax.Array:
        return jnp.pad(x, [(0, more[view]) for view in views], mode=mode)

    arrays = problem.costs.arrays
    axes = [tuple(range(len(shape)))] if problem.costs.dense else pairs(len(shape))
    counts = problem.costs.counts
    return problem._replace(
        costs=dataclasses.replace(
            problem.costs,
            # Copies of the last points, so that the spread of the costs stays what it is.
            arrays=tuple(pad(x, *views, mode="edge") for x, views in zip(arrays, axes)),
            counts=None if counts is None else tuple(pad(x, view) for view, x in enumerate(counts)),
        ),
        weights=tuple(pad(a, view) for view, a in enumerate(problem.weights)),
        init=tuple(pad(f, view) for view, f in enumerate(problem.init)),
    )
