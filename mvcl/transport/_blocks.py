"""How a sum over all tuples is taken: in blocks, a part of them on each device, and in which numbers."""

import enum
import functools
import itertools
import math
import operator
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jax import lax

from mvcl.transport._costs import place
from mvcl.transport._geometry import Geometry

# view -> (first index, number of indices), in the order of the block's axes
Tiles = dict[int, tuple[jax.Array, int]]
Vectors = Sequence[jax.Array]
Result = TypeVar("Result")

# Numbers of one block; what a core of a CPU keeps in its cache.
_CPU_BLOCK, _ACCELERATOR_BLOCK = 2**18, 2**26


class Way(enum.IntEnum):
    """In which numbers the sums are taken; see the head of `_contraction.py`."""

    ELEMENTWISE = 0
    ROWS = 1
    KERNELS = 2


class Work(NamedTuple):
    """How the sums are divided; hashable, so that one program is compiled for each."""

    block_elements: int  # numbers of one block held at once
    axis_name: str | None = None  # mesh axis over which the first view of each group is split
    way: Way | None = None  # in which numbers; None where the costs decide


def default_work() -> Work:
    """Blocks that suit the backend, on one device."""
    return Work(_CPU_BLOCK if jax.default_backend() == "cpu" else _ACCELERATOR_BLOCK)


def block_sizes(work: Work, shape: Sequence[int], group: Sequence[int], width: int) -> tuple[int, ...]:
    """A block's indices by view, all of the last, a divisor of the next, 1 before: as many as `width` has room for."""
    lengths = _lengths(work, shape, group)
    room = max(work.block_elements // width, 1)
    sizes = [1] * len(lengths)
    for axis in reversed(range(len(lengths))):
        sizes[axis] = max(d for d in range(1, min(lengths[axis], room) + 1) if lengths[axis] % d == 0)
        if sizes[axis] < lengths[axis]:
            break
        room //= sizes[axis]
    return tuple(sizes)


def block_count(work: Work, shape: Sequence[int], group: Sequence[int], sizes: Sequence[int]) -> int:
    """Number of the blocks of this device."""
    return math.prod(_lengths(work, shape, group)) // math.prod(sizes)


def over_blocks(
    work: Work,
    shape: Sequence[int],
    group: Sequence[int],
    rest: Sequence[int],
    block: Callable[[Tiles], jax.Array],
    sizes: Sequence[int] | None = None,
) -> jax.Array:
    """`block` of all tiles of `group`, of extents `sizes`, with all points of `rest`, put together along the group."""
    if sizes is None:
        sizes = block_sizes(work, shape, group, math.prod(shape[view] for view in rest))
    whole: Tiles = {view: (jnp.int32(0), shape[view]) for view in rest}

    def at(step: jax.Array) -> jax.Array:
        return block(tiles_at(work, shape, group, sizes, step) | whole)

    steps = block_count(work, shape, group, sizes)
    if steps == 1:
        return at(jnp.int32(0))
    # checkpoint: a backward pass makes each block again and holds one at a time.
    body = jax.checkpoint(lambda _, step: (None, at(step)), prevent_cse=False)
    blocks = lax.scan(body, None, jnp.arange(steps, dtype=jnp.int32))[1]
    return blocks.reshape(*_lengths(work, shape, group), *blocks.shape[1 + len(sizes) :])


def tiles_at(
    work: Work, shape: Sequence[int], group: Sequence[int], sizes: Sequence[int], step: jax.Array
) -> Tiles:
    """The tiles of `group` in the block of this step."""
    counts = tuple(length // size for length, size in zip(_lengths(work, shape, group), sizes))
    starts = [jnp.int32(number * size) for number, size in zip(jnp.unravel_index(step, counts), sizes)]
    starts[0] = starts[0] + row_offset(work, shape[group[0]])
    return dict(zip(group, zip(starts, sizes)))


def _lengths(work: Work, shape: Sequence[int], group: Sequence[int]) -> tuple[int, ...]:
    """Numbers of indices of this device, which has a part of the first view's."""
    return (row_count(work, shape[group[0]]), *(shape[view] for view in group[1:]))


def row_count(work: Work, rows: int) -> int:
    """How many of the `rows` indices of a group's first view this device has."""
    return rows if work.axis_name is None else rows // lax.axis_size(work.axis_name)


def row_offset(work: Work, rows: int) -> jax.Array:
    """Index of this device's first row of a group's first view, which has `rows`."""
    if work.axis_name is None:
        return jnp.int32(0)
    return lax.axis_index(work.axis_name) * jnp.int32(row_count(work, rows))


def exponent_block(costs: Geometry, scaled: Vectors, epsilon: jax.Array, tiles: Tiles) -> jax.Array:
    """Logarithms of the plan's entries in a block, its axes in the order of the tiles."""
    return tile_sum(None, scaled, tiles) - cost_block(costs, tiles) / epsilon


def cost_block(costs: Geometry, tiles: Tiles) -> jax.Array:
    """Costs of a block of tuples, its axes in the order of the tiles."""
    if costs.dense:
        first, extent = zip(*(tiles[view] for view in range(len(tiles))))
        return lax.dynamic_slice(costs.arrays[0], first, extent).transpose(tuple(tiles))
    counts = None if costs.counts is None else [tile_sum(None, costs.counts, tiles)]
    return costs.of([tile_sum(costs, None, tiles)], counts)


def tile_sum(matrices: Geometry | None, vectors: Vectors | None, tiles: Tiles) -> jax.Array:
    """Sum over a block of the vectors of its views and the matrices of its pairs of views, broadcast."""
    views = list(tiles)
    cuts = [lax.dynamic_slice_in_dim(vectors[view], *tiles[view]) for view in views] if vectors else []
    terms = [place(cut, (axis,), len(views)) for axis, cut in enumerate(cuts)]
    if matrices is not None:
        for first, second in itertools.combinations(range(len(views)), 2):
            (start, size), (other_start, other_size) = tiles[views[first]], tiles[views[second]]
            matrix = matrices.matrix(views[first], views[second])
            tile = lax.dynamic_slice(matrix, (start, other_start), (size, other_size))
            terms.append(place(tile, (first, second), len(views)))
    return functools.reduce(operator.add, terms)


def logsumexp(a: jax.Array, axis: int | tuple[int, ...]) -> jax.Array:
    """Log-sum-exp of finite numbers; without the cases of infinite ones it is half as many steps."""
    top = lax.stop_gradient(jnp.max(a, axis=axis, keepdims=True))
    total = jnp.sum(jnp.exp(a - top), axis=axis)
    return jnp.log(total) + top.reshape(total.shape)


def spread_bounds(k: int, dtype: jnp.dtype) -> tuple[float, float]:
    """Largest spreads of a pair's exponent at which `Way.ROWS` and `Way.KERNELS` lose nothing."""
    bound = -0.7 * math.log(float(jnp.finfo(dtype).tiny))
    return bound, bound / (2 * k - 3)


def spread_of(costs: Geometry, epsilon: jax.Array) -> jax.Array:
    """The largest spread of the exponents of a pair of views."""
    return jnp.max(jnp.stack([jnp.max(matrix) - jnp.min(matrix) for matrix in costs.arrays])) / epsilon


def any_way(
    way: Way | None, costs: Geometry, epsilon: jax.Array, by: Callable[[Way], Result], most: Way = Way.KERNELS
) -> Result:
    """`by` the last way up to `most` that is right: `way`, or where that is None, as the costs' spread decides."""
    if way is not None:
        return by(min(way, most))
    bounds = jnp.asarray(spread_bounds(len(costs.shape), costs.dtype)[:most], costs.dtype)
    fit = jnp.sum(spread_of(costs, epsilon)[None] <= bounds)  # as many of the ways after the first are right
    return lax.switch(fit, [functools.partial(by, each) for each in Way if each <= most])
