r"""Marginals of a tensor of n_1 ... n_k entries that is never formed.

The plan of k views of n points is `P[i_1..i_k] = exp(sum_l F_l[i_l] - C[i_1..i_k] / ε)` with `F = f / ε` the
potentials. A *group* of about half of the views gets, in one pass, its joint marginal, a tensor of n^ceil(k/2), from
which all views of the group are updated. docs/design/transport.md says why.

**Bilinear contraction** (`C` a sum over pairs of views). Fix an index t for all views but two, a and b. Then

    P[t, i, j] = w[t] · u_t[i] · R[i, j] · v_t[j],    R = exp(-C_ab / ε) the same for every t,
    u_t[i] = exp(F_a[i] - sum_o C_oa[t_o, i] / ε),    v_t[j] = exp(F_b[j] - sum_o C_ob[t_o, j] / ε),
    w[t] = exp(sum_o F_o[t_o] - sum_{o<o'} C_oo'[t_o, t_o'] / ε),

so that the joint marginal of the fixed views is `S[t] = w[t] sum_j (U R)[t, j] V[t, j]`. With k = 3 and both fixed and
b in the group, `S[t, j] = w U R V` before the sum over j. The `Way` says in which numbers:

*Kernels.* `K_lm = exp(-(C_lm - min C_lm) / ε)` is made once for all passes; u, v and R are products of its rows. With
`spread` the largest `(max C_lm - min C_lm) / ε`, a relative `n² tiny exp((2k - 3) spread)` underflows.

*Rows.* Every row of U and V is divided by its largest entry and every column of R likewise; the divisors go to the
logarithm of w. *Elementwise* (any other case): logarithms of all entries, a block at a time, added by log-sum-exp.
"""

import dataclasses
import math
import operator
from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from mvcl import _numerics
from mvcl.transport import _blocks as blocks
from mvcl.transport import _tree
from mvcl.transport._blocks import Tiles, Vectors, Way, Work
from mvcl.transport._costs import pairs, place
from mvcl.transport._geometry import Geometry

Block = Callable[[Tiles], jax.Array]
# u (t, n_a), r (n_a, n_b) and v (t, n_b) of a block, and the logarithm, () or (t,), of what they leave out.
Factors = Callable[[Tiles], tuple[jax.Array, jax.Array, jax.Array, jax.Array]]

# Stands for a scaled potential of -inf, that of a point of weight 0: exp(ABSENT) is 0, and k of them added are still
# finite. Every view has a point of positive weight, so that the largest entry of a row is of a point that is there.
ABSENT = -1e30


def groups(k: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The two halves of the views; each is updated from one pass."""
    half = (k + 1) // 2
    return tuple(range(half)), tuple(range(half, k))


def scaled_potentials(potentials: Vectors, weights: Vectors, epsilon: jax.Array) -> tuple[jax.Array, ...]:
    """Potentials over epsilon, `ABSENT` where the weight is 0."""
    return tuple(jnp.where(a > 0, f / epsilon, ABSENT) for f, a in zip(potentials, weights))


class Kernels(NamedTuple):
    """`exp(-(C - low) / epsilon)` of the matrices C of all pairs, and `-low / epsilon`."""

    matrices: Geometry
    logarithms: tuple[jax.Array, ...]

    def logarithm(self, l: int, m: int) -> jax.Array:
        """Of the factor that the matrix of views l and m leaves out."""
        return self.logarithms[pairs(len(self.matrices.shape)).index((min(l, m), max(l, m)))]


def kernels_of(costs: Geometry, epsilon: jax.Array) -> Kernels:
    low = [lax.stop_gradient(jnp.min(matrix)) for matrix in costs.arrays]
    arrays = tuple(jnp.exp((least - matrix) / epsilon) for least, matrix in zip(low, costs.arrays))
    return Kernels(dataclasses.replace(costs, arrays=arrays), tuple(-least / epsilon for least in low))


def log_joint(
    work: Work,
    costs: Geometry,
    scaled: Vectors,
    epsilon: jax.Array,
    group: tuple[int, ...],
    way: Way,
    kernels: Kernels | None = None,
) -> jax.Array:
    """The log-joint of `group`, (n_l, n_m, ...), its first axis split over devices; `scaled` are potentials over ε."""
    shape = costs.shape
    rest = tuple(view for view in range(len(shape)) if view not in group)
    if way is Way.ELEMENTWISE:
        summed = tuple(range(len(group), len(shape)))

        def elementwise(tiles: Tiles) -> jax.Array:
            return blocks.logsumexp(blocks.exponent_block(costs, scaled, epsilon, tiles), axis=summed)

        return blocks.over_blocks(work, shape, group, rest, elementwise)
    if way is Way.KERNELS and kernels is None:
        kernels = kernels_of(costs, epsilon)
    exponents = jax.tree.map(lambda matrix: -matrix / epsilon, costs)
    if len(rest) == 1:  # k = 3: the second view of the group is b, whole in every block
        sizes = blocks.block_sizes(work, shape, group[:1], max(shape[group[1]], shape[rest[0]]))
        kept = _kept_by_rows if kernels is None else partial(_kept_by_kernels, kernels)
        block = kept(exponents, scaled, group, rest[0])
        return blocks.over_blocks(work, shape, group[:1], group[1:], block, sizes)
    # An index of the group takes a row for each tuple of the views that are summed beside a and b.
    beside, (a, b) = rest[:-2], rest[-2:]
    more = [shape[view] for view in beside]
    sizes = blocks.block_sizes(work, shape, group, math.prod(more) * max(shape[a], shape[b]))
    factors = _factors(exponents, kernels, scaled, dict(zip(group + beside, (*sizes, *more))), a, b)

    def summed_block(tiles: Tiles) -> jax.Array:
        """log S, summed over the views beside a and b."""
        u, r, v, logarithm = factors(tiles)
        bilinear = jnp.sum(_numerics.inner("ti,ij->tj", u, r) * v, axis=-1)
        weight = blocks.tile_sum(exponents, scaled, tiles)
        joint = weight + (jnp.log(bilinear) + logarithm).reshape(weight.shape)
        summed = tuple(range(len(group), len(tiles)))
        return blocks.logsumexp(joint, axis=summed) if summed else joint

    return blocks.over_blocks(work, shape, group, beside, summed_block, sizes)


def _kept_by_rows(exponents: Geometry, scaled: Vectors, group: tuple[int, ...], a: int) -> Block:
    """The log-joint of a block for k = 3 and a group of two, the second of which is b."""
    fixed, b = group
    kernel, to_a, to_b = _exponents_to(exponents, scaled, (fixed,), a, b)

    def block(tiles: Tiles) -> jax.Array:
        rows: Tiles = {fixed: tiles[fixed]}
        u, largest_u = _rows(to_a, rows)
        weight = blocks.tile_sum(exponents, scaled, rows) + largest_u
        return jnp.log(_numerics.inner("ti,ij->tj", u, kernel)) + _log_rows(to_b, rows) + weight[:, None]

    return block


def _kept_by_kernels(
    kernels: Kernels, exponents: Geometry, scaled: Vectors, group: tuple[int, ...], a: int
) -> Block:
    """As `_kept_by_rows`."""
    fixed, b = group
    top = lax.stop_gradient(jnp.max(scaled[a]))
    r = jnp.exp(scaled[a] - top)[:, None] * kernels.matrices.matrix(a, b)
    logarithm = top + kernels.logarithm(a, b) + kernels.logarithm(fixed, a)

    def block(tiles: Tiles) -> jax.Array:
        u = lax.dynamic_slice_in_dim(kernels.matrices.matrix(fixed, a), *tiles[fixed])
        log_rows = jnp.log(_numerics.inner("ti,ij->tj", u, r))
        return log_rows + blocks.tile_sum(exponents, scaled, tiles) + logarithm

    return block


def _factors(
    exponents: Geometry, kernels: Kernels | None, scaled: Vectors, extents: dict[int, int], a: int, b: int
) -> Factors:
    """The factors of a block; `extents` are the numbers of its indices of the fixed views, in the order of its axes."""
    if kernels is not None:
        return _factors_of_kernels(kernels, scaled, extents, a, b)
    kernel, to_a, to_b = _exponents_to(exponents, scaled, tuple(extents), a, b)

    def factors(tiles: Tiles) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
        u, largest_u = _rows(to_a, tiles)
        v, largest_v = _rows(to_b, tiles)
        return u, kernel, v, largest_u + largest_v

    return factors


def _exponents_to(
    exponents: Geometry, scaled: Vectors, outer: tuple[int, ...], a: int, b: int
) -> tuple[jax.Array, list[jax.Array], list[jax.Array]]:
    """R, columns divided by their largest entries; matrices from each fixed view whose rows add up to log u, log v."""
    between = exponents.matrix(a, b)
    column = lax.stop_gradient(jnp.max(between, axis=0))
    to_a, to_b = ([exponents.matrix(o, view) for o in outer] for view in (a, b))
    to_a[0] += scaled[a][None]
    to_b[0] += (scaled[b] + column)[None]
    # Made once, row by row: fused into every block, a transposed matrix is read down its columns.
    return lax.optimization_barrier((jnp.exp(between - column[None]), to_a, to_b))


def _rows(to_view: Sequence[jax.Array], tiles: Tiles) -> tuple[jax.Array, jax.Array]:
    """u_t divided by its largest entry, (t, n), and the logarithm of that entry, (t,)."""
    log_rows = _log_rows(to_view, tiles)
    largest = lax.stop_gradient(jnp.max(log_rows, axis=-1))
    return jnp.exp(log_rows - largest[:, None]), largest


def _log_rows(to_view: Sequence[jax.Array], tiles: Tiles) -> jax.Array:
    """log u_t, (t, n): a row over the points of a view for every index t of the block."""
    # Axes of one index are left out: with one in front, a block on CPU took twice as long.
    wide = [view for view, (_, size) in tiles.items() if size > 1]
    rank = len(wide) + 1
    terms = []
    for matrix, (view, (start, size)) in zip(to_view, tiles.items()):
        part = lax.dynamic_slice_in_dim(matrix, start, size)
        axes = (wide.index(view), rank - 1) if size > 1 else (rank - 1,)
        terms.append(place(part if size > 1 else part[0], axes, rank))
    rows = reduce(operator.add, terms)
    return rows.reshape(-1, rows.shape[-1])


def _factors_of_kernels(
    kernels: Kernels, scaled: Vectors, extents: dict[int, int], a: int, b: int
) -> Factors:
    matrices = kernels.matrices
    whole = [o for o, size in extents.items() if 1 < size == matrices.shape[o]]
    split = [o for o, size in extents.items() if 1 < size < matrices.shape[o]]
    single = [o for o, size in extents.items() if size == 1]
    top_a, top_b = (lax.stop_gradient(jnp.max(scaled[view])) for view in (a, b))
    logarithm = top_a + top_b + kernels.logarithm(a, b)
    for o in extents:
        logarithm = logarithm + kernels.logarithm(o, a) + kernels.logarithm(o, b)
    of_a, of_b, between = jnp.exp(scaled[a] - top_a), jnp.exp(scaled[b] - top_b), matrices.matrix(a, b)
    one = {view: jnp.ones((1, matrices.shape[view]), matrices.dtype) for view in (a, b)}
    # The same in every block: the products over all points of the views that a block has whole.
    of_whole = lax.optimization_barrier(
        [_products_of_rows([matrices.matrix(o, view) for o in whole], one[view]) for view in (a, b)]
    )

    def rows(view: int, all_rows: jax.Array, tiles: Tiles) -> jax.Array:
        some = [lax.dynamic_slice_in_dim(matrices.matrix(o, view), *tiles[o]) for o in split]
        if not some:
            return all_rows
        return _products_of_rows([*some, all_rows] if whole else some, one[view])

    def factors(tiles: Tiles) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
        at_a, at_b = of_a, of_b
        for o in single:
            at_a = at_a * lax.dynamic_index_in_dim(matrices.matrix(o, a), tiles[o][0], keepdims=False)
            at_b = at_b * lax.dynamic_index_in_dim(matrices.matrix(o, b), tiles[o][0], keepdims=False)
        r = between * at_a[:, None] * at_b[None, :]
        return rows(a, of_whole[0], tiles), r, rows(b, of_whole[1], tiles), logarithm

    return factors


def _products_of_rows(matrices: Sequence[jax.Array], none: jax.Array) -> jax.Array:
    """Products of a row of each matrix for all tuples of rows, (t, columns); `none` for no matrix."""
    rank = len(matrices) + 1
    terms = [place(matrix, (axis, rank - 1), rank) for axis, matrix in enumerate(matrices)]
    return reduce(operator.mul, terms).reshape(-1, none.shape[1]) if terms else none


def pair_marginals(
    work: Work, costs: Geometry, scaled: Vectors, epsilon: jax.Array, way: Way
) -> tuple[jax.Array, ...]:
    """k(k-1)/2 marginals (n_l, n_m) on the pairs of views, for costs that are a sum over pairs; this device's part.

    With W_b = w (U R) V and W_a = w (V R^T) U, (n^(k-2), n) each, the pairs (o, b) and (o, a) are sums of W_b and W_a
    over the other fixed views, the pairs (o, o') sums of S, and (a, b) is `R * (U^T diag(w) V)`.
    """
    shape, k = costs.shape, len(costs.shape)
    if k == 2:  # the plan itself
        plan = jnp.exp(scaled[0][:, None] + scaled[1][None, :] - costs.arrays[0] / epsilon)
        rows = jnp.arange(shape[0], dtype=jnp.int32)[:, None] - blocks.row_offset(work, shape[0])
        return (jnp.where((rows >= 0) & (rows < blocks.row_count(work, shape[0])), plan, 0),)
    outer, a, b = tuple(range(k - 2)), k - 2, k - 1
    sizes = blocks.block_sizes(work, shape, outer, max(shape[a], shape[b]))
    exponents = jax.tree.map(lambda matrix: -matrix / epsilon, costs)
    kernels = kernels_of(costs, epsilon) if way is Way.KERNELS else None
    factors = _factors(exponents, kernels, scaled, dict(zip(outer, sizes)), a, b)
    index = {pair: number for number, pair in enumerate(pairs(k))}

    def body(sums: list[jax.Array], step: jax.Array) -> tuple[list[jax.Array], None]:
        tiles = blocks.tiles_at(work, shape, outer, sizes, step)
        u, r, v, logarithm = factors(tiles)
        v = v * jnp.exp(blocks.tile_sum(exponents, scaled, tiles).reshape(-1) + logarithm)[:, None]
        wide = [view for view in outer if tiles[view][1] > 1]
        extent = [tiles[view][1] for view in wide]
        with_b = (_numerics.inner("ti,ij->tj", u, r) * v).reshape(*extent, shape[b])
        with_a = (_numerics.inner("tj,ij->ti", v, r) * u).reshape(*extent, shape[a])
        both = r * _numerics.inner("ti,tj->ij", u, v)
        fixed = jnp.sum(with_b, axis=-1)

        def add(pair: tuple[int, int], joint: jax.Array, views: list[int]) -> None:
            """Sums what is left of the block, whose axes belong to `views`, to its place in this pair."""
            part = _sum(joint, [axis for axis, view in enumerate(views) if view not in pair])
            first, extent = zip(*(tiles.get(view, (jnp.int32(0), shape[view])) for view in pair))
            old = sums[index[pair]]
            there = lax.dynamic_slice(old, first, extent)
            sums[index[pair]] = lax.dynamic_update_slice(old, there + part.reshape(there.shape), first)

        sums = list(sums)
        for view in outer:
            add((view, a), with_a, [*wide, a])
            add((view, b), with_b, [*wide, b])
            for other in outer[view + 1 :]:
                add((view, other), fixed, wide)
        sums[index[a, b]] += both
        return sums, None

    zero = 0 * (costs.arrays[0][0, 0] + scaled[0][0] + epsilon)  # varies between devices as the sums will
    start = [jnp.zeros((shape[l], shape[m]), costs.dtype) + zero for l, m in pairs(k)]
    steps = blocks.block_count(work, shape, outer, sizes)
    return tuple(lax.scan(body, start, jnp.arange(steps, dtype=jnp.int32))[0])


def _sum(x: jax.Array, axes: Sequence[int]) -> jax.Array:
    """Sum over axes, leading ones by a product with ones: on CPU a sum down a stride of 2^16 took 10 times as long."""
    leading = sum(1 for number, axis in enumerate(axes) if number == axis)
    if leading:
        rows = x.reshape(math.prod(x.shape[:leading]), -1)
        x = _numerics.inner("t,tx->x", jnp.ones(rows.shape[0], x.dtype), rows).reshape(x.shape[leading:])
    return jnp.sum(x, axis=tuple(axis - leading for axis in axes[leading:]))


@partial(jax.jit, static_argnums=3)
def joint_marginal(costs: Geometry, scaled: Vectors, epsilon: jax.Array, views: tuple[int, ...]) -> jax.Array:
    """Marginal of the plan on some views, in their order."""
    if costs.edges is not None:
        return _tree.joint_marginal(costs, scaled, epsilon, views)
    k = len(costs.shape)
    # With half of the views in the group, neither the sum over the rest nor the group is larger than need be.
    others = [view for view in range(k) if view not in views]
    group = (*views, *others[: max((k + 1) // 2 - len(views), 0)])
    summed = tuple(range(len(views), len(group)))

    def by(way: Way) -> jax.Array:
        joint = log_joint(blocks.default_work(), costs, scaled, epsilon, group, way)
        return jnp.exp(blocks.logsumexp(joint, axis=summed) if summed else joint)

    products = costs.pairwise and k > 2 and len(group) < k
    return blocks.any_way(None if products else Way.ELEMENTWISE, costs, epsilon, by, Way.ROWS)


@jax.jit
def marginals(costs: Geometry, scaled: Vectors, epsilon: jax.Array) -> tuple[jax.Array, ...]:
    """The k marginals (n_l,) of the plan."""
    if costs.edges is not None:
        return _tree.marginals(costs, scaled, epsilon)
    found = []
    for group in groups(len(costs.shape)):
        joint = joint_marginal(costs, scaled, epsilon, group)
        axes = range(len(group))
        found += [jnp.sum(joint, axis=tuple(a for a in axes if a != axis)) for axis in axes]
    return tuple(found)
