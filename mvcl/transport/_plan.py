"""What can be read off potentials without the tensor of the plan."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

import jax
import jax.numpy as jnp
from jax import lax

from mvcl.transport._costs import TupleCosts, pairs
from mvcl.transport._joints import (
    ABSENT,
    Tiles,
    Vectors,
    Way,
    Work,
    block_tiles,
    cost_block,
    exponent_block,
    groups,
    log_joint,
    logsumexp,
    over_blocks,
    spread_bounds,
    tile_sizes,
)

Result = TypeVar("Result")

# Numbers of one block; what a core of a CPU keeps in its cache.
_CPU_BLOCK, _ACCELERATOR_BLOCK = 2**18, 2**26


def default_work() -> Work:
    """Blocks that suit the backend, on one device."""
    return Work(_CPU_BLOCK if jax.default_backend() == "cpu" else _ACCELERATOR_BLOCK)


def scaled_potentials(potentials: Vectors, weights: Vectors, epsilon: jax.Array) -> tuple[jax.Array, ...]:
    """Potentials over epsilon, `ABSENT` where the weight is 0."""
    return tuple(jnp.where(a > 0, f / epsilon, ABSENT) for f, a in zip(potentials, weights))


def spread_of(costs: TupleCosts, epsilon: jax.Array) -> jax.Array:
    """The largest spread of the exponents of a pair of views."""
    return jnp.max(jnp.stack([jnp.max(matrix) - jnp.min(matrix) for matrix in costs.arrays])) / epsilon


def any_way(
    way: Way | None,
    costs: TupleCosts,
    epsilon: jax.Array,
    branch: Callable[[Way], Callable[[TupleCosts, jax.Array], Result]],
) -> Result:
    """`branch(way)(costs, epsilon)`, the way that is right at this spread of the costs, chosen when it runs."""
    if way is not None:
        return branch(way)(costs, epsilon)
    bounds = jnp.asarray(spread_bounds(len(costs.shape), costs.dtype), costs.dtype)
    fit = jnp.sum(spread_of(costs, epsilon)[None] <= bounds)  # as many of the ways after the first are right
    return lax.switch(fit, [branch(each) for each in Way], costs, epsilon)


def in_rows_or_not(
    way: Way | None, costs: TupleCosts, epsilon: jax.Array, by: Callable[[Way], Result]
) -> Result:
    """`by(Way.ROWS)` where that is right, else `by(Way.ELEMENTWISE)`; without a way the spread of the costs decides."""
    if way is not None:
        return by(min(way, Way.ROWS))
    return lax.cond(rows_fit(costs, epsilon), lambda: by(Way.ROWS), lambda: by(Way.ELEMENTWISE))


def rows_fit(costs: TupleCosts, epsilon: jax.Array) -> jax.Array:
    """Whether `Way.ROWS` is right at this spread of the costs."""
    return spread_of(costs, epsilon) <= spread_bounds(len(costs.shape), costs.dtype)[0]


@partial(jax.jit, static_argnums=3)
def joint_marginal(
    costs: TupleCosts, scaled: Vectors, epsilon: jax.Array, views: tuple[int, ...]
) -> jax.Array:
    """Marginal of the plan on some views, in their order."""
    k = len(costs.shape)
    # With half of the views in the group, neither the sum over the rest nor the group is larger than need be.
    others = [view for view in range(k) if view not in views]
    group = (*views, *others[: max((k + 1) // 2 - len(views), 0)])
    summed = tuple(range(len(views), len(group)))

    def by(way: Way) -> jax.Array:
        joint = log_joint(default_work(), costs, scaled, epsilon, group, way)
        return jnp.exp(logsumexp(joint, axis=summed) if summed else joint)

    return in_rows_or_not(None if costs.bilinear and len(group) < k else Way.ELEMENTWISE, costs, epsilon, by)


@jax.jit
def marginals(costs: TupleCosts, scaled: Vectors, epsilon: jax.Array) -> tuple[jax.Array, ...]:
    """The k marginals (n_l,) of the plan."""
    found = []
    for group in groups(len(costs.shape)):
        joint = joint_marginal(costs, scaled, epsilon, group)
        found += [
            jnp.sum(joint, axis=tuple(a for a in range(len(group)) if a != b)) for b in range(len(group))
        ]
    return tuple(found)


@jax.jit
def entries(costs: TupleCosts, scaled: Vectors, epsilon: jax.Array, indices: jax.Array) -> jax.Array:
    """Entries (t,) of the plan at t tuples, (t, k)."""
    exponent = sum(
        (f[indices[:, l]] for l, f in enumerate(scaled)), start=jnp.zeros(indices.shape[0], costs.dtype)
    )
    return jnp.exp(exponent - costs.entries(indices) / epsilon)


@jax.jit
def plan(costs: TupleCosts, scaled: Vectors, epsilon: jax.Array) -> jax.Array:
    """The whole plan, (n_1, ..., n_k)."""
    k = len(costs.shape)
    exponent = -costs.tensor() / epsilon
    for view, f in enumerate(scaled):
        exponent = exponent + f.reshape([-1 if axis == view else 1 for axis in range(k)])
    return jnp.exp(exponent)


@partial(jax.jit, static_argnums=3)
def partners(costs: TupleCosts, scaled: Vectors, epsilon: jax.Array, view: int) -> jax.Array:
    """(n_l, k) the tuple of the largest entry of the plan that each point of a view has a part in.

    Every tuple is looked at, a block at a time. Of equal entries the first in the order of the tuples is taken.
    """
    shape, work = costs.shape, default_work()
    others = [other for other in range(len(shape)) if other != view]
    # Half of the views join the group, more if the tuples of the rest do not fit in a block.
    joined = len(others) // 2
    while joined + 1 < len(others) and math.prod(shape[o] for o in others[joined:]) > work.block_elements:
        joined += 1
    group, rest = (view, *others[:joined]), tuple(others[joined:])
    lengths, of_rest = tuple(shape[v] for v in group), tuple(shape[v] for v in rest)

    def exponents(starts: Sequence[jax.Array], sizes: Sequence[int]) -> jax.Array:
        tiles = block_tiles(costs, group, rest, starts, sizes)
        return exponent_block(costs, scaled, epsilon, tiles).reshape(*sizes, -1)

    # Only the maxima: with their places, which XLA does not vectorise on CPU, the sweep took nine times as long.
    sizes = tile_sizes(lengths, math.prod(of_rest), work.block_elements)
    largest = over_blocks(
        work, shape[view], lengths, sizes, lambda starts: jnp.max(exponents(starts, sizes), axis=-1)
    )
    best = jnp.argmax(largest.reshape(shape[view], -1), axis=1)
    found = (jnp.arange(shape[view]), *(jnp.unravel_index(best, lengths[1:]) if joined else ()))
    found = tuple(x.astype(jnp.int32) for x in found)
    # The place in the rest, among the tuples of the one group index of each point.
    at = jax.lax.map(lambda starts: jnp.argmax(exponents(starts, (1,) * len(group))), found)
    index = dict(zip((*group, *rest), (*found, *jnp.unravel_index(at, of_rest))))
    return jnp.stack([index[v].astype(jnp.int32) for v in range(len(shape))], axis=1)


@jax.jit
def primal(costs: TupleCosts, potentials: Vectors, weights: Vectors, epsilon: jax.Array) -> jax.Array:
    """An upper bound of the primal objective `<P, C> + ε <P, log P - 1>` of a plan with the right marginals.

    The plan of the potentials, every view scaled down to its weights, gives P'; what the marginals then lack, e_l,
    is added as the product Q of all e_l. The entropy of the sum is bounded by convexity, which costs nothing where
    the marginals fit.
    """
    dtype = costs.dtype
    scaled = scaled_potentials(potentials, weights, epsilon)
    found = marginals(costs, scaled, epsilon)
    lower = [
        jnp.where(a > 0, jnp.minimum(jnp.log(jnp.where(a > 0, a, 1)) - jnp.log(jnp.where(m > 0, m, 1)), 0), 0)
        for a, m in zip(weights, found)
    ]
    scaled = tuple(f + step for f, step in zip(scaled, lower))
    found = marginals(costs, scaled, epsilon)
    total, mass = jnp.sum(weights[0]), jnp.sum(found[0])
    of_plan = sum(
        (epsilon * jnp.sum(jnp.where(a > 0, m * f, 0)) for a, m, f in zip(weights, found, scaled)),
        start=jnp.zeros((), dtype),
    )
    rest = [jnp.maximum(a - m, 0) for a, m in zip(weights, found)]
    lacking = jnp.maximum(total - mass, 0)
    some = lacking > 0
    q = jnp.where(some, lacking, 1)
    shares = [
        jnp.where(some, e / jnp.maximum(jnp.sum(e), jnp.finfo(dtype).tiny), a / total)
        for e, a in zip(rest, weights)
    ]
    entropy = sum((jnp.sum(_x_log_x(e)) for e in shares), start=jnp.zeros((), dtype))
    of_product = q * (_mean_cost(costs, shares) + epsilon * (entropy + jnp.log(total)))
    of_plan += epsilon * mass * jnp.log(total / mass)
    return of_plan + jnp.where(some, of_product, 0) - epsilon * total


def _x_log_x(x: jax.Array) -> jax.Array:
    return jnp.where(x > 0, x * jnp.log(jnp.where(x > 0, x, 1)), 0)


def _mean_cost(costs: TupleCosts, shares: Vectors) -> jax.Array:
    """Mean cost of tuples of independent points; the shares of a view's points sum to 1."""
    shape, work = costs.shape, default_work()
    if costs.path == "dense":
        mean = costs.arrays[0]
        for share in reversed(shares):
            mean = mean @ share
        return mean
    if costs.of_sum is None:
        terms = [shares[l] @ matrix @ shares[m] for matrix, (l, m) in zip(costs.arrays, pairs(len(shape)))]
        return jnp.sum(jnp.stack(terms))
    group, rest = groups(len(shape))
    lengths = tuple(shape[v] for v in group)
    sizes = tile_sizes(lengths, math.prod(shape[v] for v in rest), work.block_elements)

    def block(starts: Sequence[jax.Array]) -> jax.Array:
        tiles: Tiles = block_tiles(costs, group, rest, starts, sizes)
        mean = cost_block(costs, tiles)
        for view in reversed(rest):
            mean = mean @ shares[view]
        return mean

    mean = over_blocks(work, shape[0], lengths, sizes, block)
    for view in reversed(group):
        mean = mean @ shares[view]
    return mean
