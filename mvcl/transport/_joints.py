r"""Marginals of a tensor of n_1 ... n_k entries that is never formed.

Sizes are written as if all views had n points. The plan of k views is
`P[i_1..i_k] = exp(sum_l F_l[i_l] - C[i_1..i_k] / ε)` with `F = f / ε` the potentials.
A step of Sinkhorn needs its marginals, and here a *group* of about half of the views gets, in one pass, the
joint marginal of that group, a tensor of n^g with g = ceil(k/2), from which all views of the group are
updated one after the other.

**Bilinear contraction** (`C` a sum over pairs of views). Fix an index t for all views but two, a and b. What
is left is

    P[t, i, j] = w[t] · u_t[i] · R[i, j] · v_t[j],    R = exp(-C_ab / ε) the same for every t,
    u_t[i] = exp(F_a[i] - sum_o C_oa[t_o, i] / ε),    v_t[j] = exp(F_b[j] - sum_o C_ob[t_o, j] / ε),
    w[t] = exp(sum_o F_o[t_o] - sum_{o<o'} C_oo'[t_o, t_o'] / ε),

so that the joint marginal of the fixed views is `S[t] = w[t] sum_j (U R)[t, j] V[t, j]`: one product of an
n^(k-2) x n matrix with an n x n matrix, 2 n^k multiply-adds, and 2 n^(k-1) exponentials. Nothing is
approximated: the sum over i and j is the whole sum, in another order. With k = 3 and both fixed and b in the
group, `S[t, j] = w U R V` before the sum over j is taken.

*Why float32 suffices.* Every row of U and V is divided by its largest entry and every column of R likewise;
the divisors go to the logarithm of w. Then the largest entries are 1, and `(U R V)[t] >= min R >=
exp(-spread)` with `spread = (max C_ab - min C_ab) / ε`. What underflows in U or V is below the smallest
normal number, so it is lost only to a relative `n² tiny exp(spread)`. Up to `spread = 0.7 log(1/tiny)`, 61 in
float32, that is under 1e-6 for n = 512.

**Elementwise** (any other case): logarithms of all n^k entries, a block at a time, added by log-sum-exp. It
serves costs that are a function of a sum over pairs (`-log ||sum z||²`), tensors of costs, k = 2, where the
sums are n² anyway, and pairwise costs whose spread is above that bound.

**Points that are not there.** A point of weight 0 has the potential `-inf`; here its `F` is the finite `ABSENT`, so
that no sum has to look out for infinities. Every view has a point of positive weight, so that the largest entry of a
row belongs to a point that is there.
"""

import functools
import itertools
import math
import operator
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jax import lax

from mvcl import _numerics
from mvcl.transport._costs import TupleCosts, pairs, place

# view -> (first index, number of indices), in the order of the block's axes
Tiles = dict[int, tuple[jax.Array, int]]
Result = TypeVar("Result")
Block = Callable[[Sequence[jax.Array]], jax.Array]
Vectors = Sequence[jax.Array]

# Stands for a scaled potential of -inf: exp(ABSENT) is 0, and k of them added are still finite.
ABSENT = -1e30


class Work(NamedTuple):
    """How the sums are divided; hashable, so that one program is compiled for each.

    Attributes:
      block_elements: numbers of one block held at once.
      axis_name: mesh axis over which the first view of each group is split.
    """

    block_elements: int
    axis_name: str | None = None


def groups(k: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The two halves of the views; each is updated from one pass."""
    half = (k + 1) // 2
    return tuple(range(half)), tuple(range(half, k))


def bilinear_spread_bound(dtype: jnp.dtype) -> float:
    """Largest spread of a pair's exponent for which the shifted contraction loses nothing."""
    return -0.7 * math.log(float(jnp.finfo(dtype).tiny))


def log_joint(
    work: Work,
    costs: TupleCosts,
    scaled: Vectors,
    epsilon: jax.Array,
    group: tuple[int, ...],
    bilinear: bool,
) -> jax.Array:
    """Logarithm of the joint marginal of the views of `group`, (n_l, n_m, ...); its first axis split over devices.

    Args:
      work: how the sum is divided.
      costs: of the tuples.
      scaled: k vectors (n_l,), potentials divided by epsilon.
      epsilon: scalar, in the unit of the costs.
      group: the views to keep.
      bilinear: contract by matrix products; otherwise elementwise.
    """
    shape = costs.shape
    rest = tuple(view for view in range(len(shape)) if view not in group)
    lengths = (row_count(work, shape[group[0]]), *(shape[view] for view in group[1:]))
    if not bilinear:
        sizes = tile_sizes(lengths, math.prod(shape[view] for view in rest), work.block_elements)
        block = _elementwise_block(costs, scaled, epsilon, group, rest, sizes)
    elif len(rest) == 1:  # k = 3: one of the group's views is b, whole in every block
        sizes = (
            *tile_sizes(lengths[:-1], max(lengths[-1], shape[rest[0]]), work.block_elements),
            lengths[-1],
        )
        block = _kept_block(costs, scaled, epsilon, group, rest[0], sizes)
    else:  # an index of the group takes a row for each tuple of the views summed beside a and b
        width = math.prod(shape[view] for view in rest[:-2]) * max(shape[view] for view in rest[-2:])
        sizes = tile_sizes(lengths, width, work.block_elements)
        block = _summed_block(costs, scaled, epsilon, group, rest, sizes)
    return over_blocks(work, shape[group[0]], lengths, sizes, block)


def over_blocks(
    work: Work,
    rows: int,
    lengths: Sequence[int],
    sizes: Sequence[int],
    block: Callable[[Sequence[jax.Array]], Result],
) -> Result:
    """`block` of the first indices of every block of an index space, its arrays put together to `lengths`."""
    steps = math.prod(lengths) // math.prod(sizes)
    if steps == 1:
        return block(_starts(work, rows, lengths, sizes, jnp.int32(0)))
    # checkpoint: a backward pass makes each block again and holds one at a time.
    body = jax.checkpoint(
        lambda _, step: (None, block(_starts(work, rows, lengths, sizes, step))), prevent_cse=False
    )
    blocks: Result = lax.scan(body, None, jnp.arange(steps, dtype=jnp.int32))[1]
    return jax.tree.map(lambda x: x.reshape(lengths), blocks)


def pair_marginals(
    work: Work, costs: TupleCosts, scaled: Vectors, epsilon: jax.Array
) -> tuple[jax.Array, ...]:
    """k(k-1)/2 marginals (n_l, n_m) on the pairs of views, for costs that are a sum over pairs; this device's part.

    With W_b = w (U R) V and W_a = w (V R^T) U, (n^(k-2), n) each, the pairs (o, b) and (o, a) are sums of W_b
    and W_a over the other fixed views, the pairs (o, o') sums of S, and (a, b) is `R * (U^T diag(w) V)`: three
    matrix products a block, and nothing of n^(k-1) is held whole.
    """
    shape = costs.shape
    k = len(shape)
    if k == 2:  # the plan itself
        plan = jnp.exp(scaled[0][:, None] + scaled[1][None, :] - costs.arrays[0] / epsilon)
        rows = jnp.arange(shape[0], dtype=jnp.int32)[:, None] - row_offset(work, shape[0])
        return (jnp.where((rows >= 0) & (rows < row_count(work, shape[0])), plan, 0),)
    outer, a, b = tuple(range(k - 2)), k - 2, k - 1
    lengths = (row_count(work, shape[0]), *(shape[view] for view in outer[1:]))
    sizes = tile_sizes(lengths, max(shape[a], shape[b]), work.block_elements)
    parts = _contraction(costs, scaled, epsilon, outer, a, b)
    index = {pair: number for number, pair in enumerate(pairs(k))}

    def body(sums: list[jax.Array], step: jax.Array) -> tuple[list[jax.Array], None]:
        tiles: Tiles = dict(zip(outer, zip(_starts(work, shape[0], lengths, sizes, step), sizes)))
        u, largest_u = _rows(parts.to_a, tiles)
        v, largest_v = _rows(parts.to_b, tiles)
        weight = _tile_sum(parts.exponents, scaled, tiles).reshape(-1)
        v = v * jnp.exp(weight + largest_u + largest_v)[:, None]
        wide = [view for view in outer if tiles[view][1] > 1]
        extent = [tiles[view][1] for view in wide]
        with_b = (_numerics.inner("ti,ij->tj", u, parts.kernel) * v).reshape(*extent, shape[b])
        with_a = (_numerics.inner("tj,ij->ti", v, parts.kernel) * u).reshape(*extent, shape[a])
        both = _numerics.inner("ti,tj->ij", u, v)
        fixed = jnp.sum(with_b, axis=-1)

        def add(pair: tuple[int, int], joint: jax.Array, views: list[int]) -> None:
            """Sums what is left of the block, whose axes belong to `views`, to its place in this pair."""
            part = _sum(joint, [axis for axis, view in enumerate(views) if view not in pair])
            (start, size), (other_start, other_size) = (
                tiles.get(view, (jnp.int32(0), shape[view])) for view in pair
            )
            here = (start, other_start)
            there = lax.dynamic_slice(sums[index[pair]], here, (size, other_size))
            sums[index[pair]] = lax.dynamic_update_slice(
                sums[index[pair]], there + part.reshape(there.shape), here
            )

        sums = list(sums)
        for view in outer:
            add((view, a), with_a, [*wide, a])
            add((view, b), with_b, [*wide, b])
            for other in outer[view + 1 :]:
                add((view, other), fixed, wide)
        sums[index[a, b]] += both
        return sums, None

    zero = 0 * parts.kernel[0, 0]  # varies between devices as the sums will
    start = [jnp.zeros((shape[l], shape[m]), costs.dtype) + zero for l, m in pairs(k)]
    steps = math.prod(lengths) // math.prod(sizes)
    sums = lax.scan(body, start, jnp.arange(steps, dtype=jnp.int32))[0]
    sums[index[a, b]] *= parts.kernel
    return tuple(sums)


def _sum(x: jax.Array, axes: Sequence[int]) -> jax.Array:
    """Sum over axes, leading ones by a product with ones: on CPU a reduction down a stride of 2^16 took 10 times
    as long.
    """
    leading = sum(1 for number, axis in enumerate(axes) if number == axis)
    if leading:
        rows = x.reshape(math.prod(x.shape[:leading]), -1)
        x = _numerics.inner("t,tx->x", jnp.ones(rows.shape[0], x.dtype), rows).reshape(x.shape[leading:])
    return jnp.sum(x, axis=tuple(axis - leading for axis in axes[leading:]))


def row_count(work: Work, rows: int) -> int:
    """How many of the `rows` indices of a group's first view this device has."""
    return rows if work.axis_name is None else rows // lax.axis_size(work.axis_name)


def row_offset(work: Work, rows: int) -> jax.Array:
    """Index of this device's first row of a group's first view, which has `rows`."""
    return (
        jnp.int32(0)
        if work.axis_name is None
        else lax.axis_index(work.axis_name) * jnp.int32(row_count(work, rows))
    )


def _starts(
    work: Work, rows: int, lengths: Sequence[int], sizes: Sequence[int], step: jax.Array
) -> list[jax.Array]:
    """First indices of the block of this step."""
    counts = tuple(length // size for length, size in zip(lengths, sizes))
    starts = [jnp.int32(number * size) for number, size in zip(jnp.unravel_index(step, counts), sizes)]
    return [starts[0] + row_offset(work, rows), *starts[1:]]


def logsumexp(a: jax.Array, axis: int | tuple[int, ...]) -> jax.Array:
    """Log-sum-exp of finite numbers; without the cases of infinite ones it is half as many steps."""
    top = lax.stop_gradient(jnp.max(a, axis=axis, keepdims=True))
    total = jnp.sum(jnp.exp(a - top), axis=axis)
    return jnp.log(total) + top.reshape(total.shape)


def tile_sizes(lengths: Sequence[int], width: int, elements: int) -> tuple[int, ...]:
    """Block of an index space: whole trailing axes, a divisor of the next, 1 before it.

    At least one index; so many that `width` numbers for each stay within `elements`.
    """
    room = max(elements // width, 1)
    sizes = [1] * len(lengths)
    for axis in reversed(range(len(lengths))):
        sizes[axis] = max(d for d in range(1, min(lengths[axis], room) + 1) if lengths[axis] % d == 0)
        if sizes[axis] < lengths[axis]:
            break
        room //= sizes[axis]
    return tuple(sizes)


class _Contraction(NamedTuple):
    """R and what u, v and w are made of; see the module's head."""

    exponents: TupleCosts  # -costs / ε
    kernel: jax.Array  # R, every column divided by its largest entry
    to_a: list[jax.Array]  # for each fixed view a matrix to the points of a; their rows add up to log u
    to_b: list[jax.Array]


def _contraction(
    costs: TupleCosts, scaled: Vectors, epsilon: jax.Array, outer: tuple[int, ...], a: int, b: int
) -> _Contraction:
    exponents = jax.tree.map(lambda matrix: -matrix / epsilon, costs)
    between = exponents.matrix(a, b)
    column = jnp.max(between, axis=0)
    to_a = [exponents.matrix(o, a) for o in outer]
    to_b = [exponents.matrix(o, b) for o in outer]
    to_a[0] += scaled[a][None]
    to_b[0] += (scaled[b] + column)[None]
    # Made once, row by row: fused into every block, a transposed matrix is read down its columns.
    return lax.optimization_barrier(_Contraction(exponents, jnp.exp(between - column[None]), to_a, to_b))


def _summed_block(
    costs: TupleCosts,
    scaled: Vectors,
    epsilon: jax.Array,
    group: tuple[int, ...],
    rest: tuple[int, ...],
    sizes: tuple[int, ...],
) -> Block:
    """From a block's first indices to its log-joint, log S, for k >= 4 or a group of one."""
    outer = group + rest[:-2]
    parts = _contraction(costs, scaled, epsilon, outer, rest[-2], rest[-1])

    def block(starts: Sequence[jax.Array]) -> jax.Array:
        tiles = dict(zip(group, zip(starts, sizes)))
        tiles |= {view: (jnp.int32(0), costs.shape[view]) for view in rest[:-2]}
        u, largest_u = _rows(parts.to_a, tiles)
        v, largest_v = _rows(parts.to_b, tiles)
        bilinear = jnp.sum(_numerics.inner("ti,ij->tj", u, parts.kernel) * v, axis=-1)
        weight = _tile_sum(parts.exponents, scaled, tiles)
        joint = weight + (jnp.log(bilinear) + largest_u + largest_v).reshape(weight.shape)
        beside = tuple(range(len(group), len(outer)))
        return logsumexp(joint, axis=beside) if beside else joint

    return block


def _kept_block(
    costs: TupleCosts,
    scaled: Vectors,
    epsilon: jax.Array,
    group: tuple[int, ...],
    a: int,
    sizes: tuple[int, ...],
) -> Block:
    """From a block's first indices to its log-joint for k = 3 and a group of two, the second of which is b."""
    fixed, b = group
    parts = _contraction(costs, scaled, epsilon, (fixed,), a, b)

    def block(starts: Sequence[jax.Array]) -> jax.Array:
        tiles: Tiles = {fixed: (starts[0], sizes[0])}
        u, largest_u = _rows(parts.to_a, tiles)
        weight = _tile_sum(parts.exponents, scaled, tiles) + largest_u
        return (
            jnp.log(_numerics.inner("ti,ij->tj", u, parts.kernel))
            + _log_rows(parts.to_b, tiles)
            + weight[:, None]
        )

    return block


def _elementwise_block(
    costs: TupleCosts,
    scaled: Vectors,
    epsilon: jax.Array,
    group: tuple[int, ...],
    rest: tuple[int, ...],
    sizes: tuple[int, ...],
) -> Block:
    """From a block's first indices to its log-joint, by log-sum-exp over all its entries."""

    def block(starts: Sequence[jax.Array]) -> jax.Array:
        tiles = block_tiles(costs, group, rest, starts, sizes)
        exponent = exponent_block(costs, scaled, epsilon, tiles)
        return logsumexp(exponent, axis=tuple(range(len(group), len(tiles))))

    return block


def block_tiles(
    costs: TupleCosts,
    group: tuple[int, ...],
    rest: tuple[int, ...],
    starts: Sequence[jax.Array],
    sizes: Sequence[int],
) -> Tiles:
    """A block of the views of `group` with all points of those of `rest`."""
    tiles = {view: (start, size) for view, start, size in zip(group, starts, sizes)}
    return tiles | {view: (jnp.int32(0), costs.shape[view]) for view in rest}


def cost_block(costs: TupleCosts, tiles: Tiles) -> jax.Array:
    """Costs of a block of tuples, its axes in the order of the tiles."""
    if costs.path == "dense":
        first, extent = zip(*(tiles[view] for view in range(len(tiles))))
        return lax.dynamic_slice(costs.arrays[0], first, extent).transpose(tuple(tiles))
    total = _tile_sum(costs, None, tiles)
    if costs.of_sum is None:
        return total
    return costs.of_sum(total, len(tiles) if costs.counts is None else _tile_sum(None, costs.counts, tiles))


def exponent_block(costs: TupleCosts, scaled: Vectors, epsilon: jax.Array, tiles: Tiles) -> jax.Array:
    """Logarithms of the plan's entries in a block, its axes in the order of the tiles."""
    return _tile_sum(None, scaled, tiles) - cost_block(costs, tiles) / epsilon


def _tile_sum(matrices: TupleCosts | None, vectors: Vectors | None, tiles: Tiles) -> jax.Array:
    """Sum over a block of the vectors of its views and the matrices of its pairs of views, broadcast."""
    views = list(tiles)
    terms = []
    if vectors is not None:
        for axis, view in enumerate(views):
            terms.append(place(lax.dynamic_slice_in_dim(vectors[view], *tiles[view]), (axis,), len(views)))
    if matrices is not None:
        for first, second in itertools.combinations(range(len(views)), 2):
            (start, size), (other_start, other_size) = tiles[views[first]], tiles[views[second]]
            matrix = matrices.matrix(views[first], views[second])
            tile = lax.dynamic_slice(matrix, (start, other_start), (size, other_size))
            terms.append(place(tile, (first, second), len(views)))
    return functools.reduce(operator.add, terms)


def _log_rows(to_view: Sequence[jax.Array], tiles: Tiles) -> jax.Array:
    """log u_t, (t, n): a row over the points of a view for every index t of the block."""
    # Axes of one index are left out: with one in front, a block on CPU took twice as long.
    wide = [view for view, (_, size) in tiles.items() if size > 1]
    rank = len(wide) + 1
    terms = []
    for matrix, (view, (start, size)) in zip(to_view, tiles.items()):
        part = lax.dynamic_slice_in_dim(matrix, start, size)
        terms.append(
            place(part, (wide.index(view), rank - 1), rank) if size > 1 else place(part[0], (rank - 1,), rank)
        )
    rows = functools.reduce(operator.add, terms)
    return rows.reshape(-1, rows.shape[-1])


def _rows(to_view: Sequence[jax.Array], tiles: Tiles) -> tuple[jax.Array, jax.Array]:
    """u_t divided by its largest entry, (t, n), and the logarithm of that entry, (t,)."""
    log_rows = _log_rows(to_view, tiles)
    largest = jnp.max(log_rows, axis=-1)
    return jnp.exp(log_rows - largest[:, None]), largest
