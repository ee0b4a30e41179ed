r"""Marginals of a tensor of n^k entries that is never formed.

The plan of k views is `P[i_1..i_k] = exp(sum_l F_l[i_l] - C[i_1..i_k] / ε)` with `F = f / ε` the potentials.
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
"""

import functools
import itertools
import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.special import logsumexp

from mvcl import _numerics
from mvcl.transport._costs import pairs


@dataclass(frozen=True)
class Form:
    """What the costs are and how they are summed; hashable, so that one program is compiled for each.

    Attributes:
      views: k.
      points: n, of every view.
      tensor: the costs are one (n,) * k tensor, not the matrices of the pairs.
      of_sum: makes the cost from the sum over pairs (and k); None where the sum is the cost.
      block_elements: numbers of one block held at once.
      axis_name: mesh axis over which the first view of each group is split.
    """

    views: int
    points: int
    tensor: bool
    of_sum: Callable[[jax.Array, int], jax.Array] | None
    block_elements: int
    axis_name: str | None

    @property
    def bilinear(self) -> bool:
        """Whether the contraction applies: a sum over pairs, and two views to sum over for a third."""
        return not self.tensor and self.of_sum is None and self.views > 2

    @property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """The two halves of the views; each is updated from one pass."""
        half = (self.views + 1) // 2
        return tuple(range(half)), tuple(range(half, self.views))


def bilinear_spread_bound(dtype: jnp.dtype) -> float:
    """Largest spread of a pair's exponent for which the shifted contraction loses nothing."""
    return -0.7 * math.log(float(jnp.finfo(dtype).tiny))


def log_joint(
    form: Form,
    costs: jax.Array,
    scaled: jax.Array,
    epsilon: jax.Array,
    group: tuple[int, ...],
    bilinear: bool,
) -> jax.Array:
    """Logarithm of the joint marginal of the views of `group`, shape (n,) * g; its first axis split over
    devices.

    Args:
      form: the problem.
      costs: (k(k-1)/2, n, n) or, with `form.tensor`, (n,) * k.
      scaled: (k, n) potentials divided by epsilon.
      epsilon: scalar, in the unit of the costs.
      group: the views to keep.
      bilinear: contract by matrix products; otherwise elementwise.
    """
    rest = tuple(view for view in range(form.views) if view not in group)
    n, rank = form.points, len(group)
    rows = n if form.axis_name is None else n // lax.axis_size(form.axis_name)
    lengths = (rows,) + (n,) * (rank - 1)
    if bilinear and len(rest) == 1:  # k = 3: one of the group's views is b, whole in every block
        sizes = (*tile_sizes(lengths[:-1], n, form.block_elements), n)
    elif bilinear:  # an index of the group takes a row for each tuple of the views summed beside a and b
        sizes = tile_sizes(lengths, n ** (len(rest) - 1), form.block_elements)
    else:
        sizes = tile_sizes(lengths, n ** len(rest), form.block_elements)
    if bilinear:
        block = _bilinear_block(form, -costs / epsilon, scaled, group, rest, sizes)
    else:
        block = _elementwise_block(form, costs, scaled, epsilon, group, rest, sizes)
    counts = tuple(length // size for length, size in zip(lengths, sizes))
    first = row_offset(form)

    def at(step: jax.Array) -> jax.Array:
        starts = list(jnp.unravel_index(step, counts))
        starts = [start * size for start, size in zip(starts, sizes)]
        return block([starts[0] + first, *starts[1:]])

    if math.prod(counts) == 1:
        return at(jnp.asarray(0))
    # checkpoint: the backward pass makes each block again and holds one at a time.
    body = jax.checkpoint(lambda _, step: (None, at(step)), prevent_cse=False)
    return lax.scan(body, None, jnp.arange(math.prod(counts)))[1].reshape(lengths)


def row_offset(form: Form) -> jax.Array:
    """Index of this device's first row of a group's first view."""
    if form.axis_name is None:
        return jnp.asarray(0)
    return lax.axis_index(form.axis_name) * (form.points // lax.axis_size(form.axis_name))


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


def _bilinear_block(
    form: Form,
    exponents: jax.Array,
    scaled: jax.Array,
    group: tuple[int, ...],
    rest: tuple[int, ...],
    sizes: tuple[int, ...],
) -> Callable[[Sequence[jax.Array]], jax.Array]:
    """Makes the function from a block's first indices to its log-joint; see the module's head for the
    letters.
    """
    keep_b = len(rest) == 1
    outer = group[:-1] if keep_b else group + rest[:-2]
    a, b = rest[-1], group[-1] if keep_b else rest[-2]
    between_ab = _pair(exponents, form.views, a, b)
    column = lax.stop_gradient(jnp.max(between_ab, axis=0))
    kernel = jnp.exp(between_ab - column[None])

    def block(starts: Sequence[jax.Array]) -> jax.Array:
        tiles = {view: (start, size) for view, start, size in zip(group, starts, sizes)}
        tiles = {view: tiles.get(view, (jnp.asarray(0), form.points)) for view in outer}
        weight = _tile_sum(form, exponents, scaled, tiles)
        u, largest_u = _rows(form, exponents, scaled[a], tiles, a)
        contracted = _numerics.inner("...i,ij->...j", u, kernel)
        if keep_b:
            log_v = _log_rows(form, exponents, scaled[b] + column, tiles, b)
            return jnp.log(contracted) + log_v + (weight + largest_u)[..., None]
        v, largest_v = _rows(form, exponents, scaled[b] + column, tiles, b)
        log_s = jnp.log(jnp.sum(contracted * v, axis=-1)) + weight + largest_u + largest_v
        return (
            logsumexp(log_s, axis=tuple(range(len(group), len(outer)))) if len(outer) > len(group) else log_s
        )

    return block


def _elementwise_block(
    form: Form,
    costs: jax.Array,
    scaled: jax.Array,
    epsilon: jax.Array,
    group: tuple[int, ...],
    rest: tuple[int, ...],
    sizes: tuple[int, ...],
) -> Callable[[Sequence[jax.Array]], jax.Array]:
    """Makes the function from a block's first indices to its log-joint, by log-sum-exp over all its
    entries.
    """
    order = group + rest

    def block(starts: Sequence[jax.Array]) -> jax.Array:
        tiles = {view: (start, size) for view, start, size in zip(group, starts, sizes)}
        tiles |= {view: (jnp.asarray(0), form.points) for view in rest}
        if form.tensor:
            first, extent = zip(*(tiles[view] for view in range(form.views)))
            cost = lax.dynamic_slice(costs, first, extent).transpose(order)
        else:
            cost = _tile_sum(form, costs, None, tiles)
            cost = cost if form.of_sum is None else form.of_sum(cost, form.views)
        exponent = _tile_sum(form, None, scaled, tiles) - cost / epsilon
        return logsumexp(exponent, axis=tuple(range(len(group), form.views)))

    return block


Tiles = dict[
    int, tuple[jax.Array, int]
]  # view -> (first index, number of indices), in the order of the block's axes


def _tile_sum(form: Form, matrices: jax.Array | None, vectors: jax.Array | None, tiles: Tiles) -> jax.Array:
    """Sum over a block of the vectors of its views and the matrices of its pairs of views, broadcast."""
    views = list(tiles)
    terms = []
    if vectors is not None:
        for axis, view in enumerate(views):
            terms.append(_place(lax.dynamic_slice_in_dim(vectors[view], *tiles[view]), (axis,), len(views)))
    if matrices is not None:
        for first, second in itertools.combinations(range(len(views)), 2):
            (start, size), (other_start, other_size) = tiles[views[first]], tiles[views[second]]
            matrix = _pair(matrices, form.views, views[first], views[second])
            tile = lax.dynamic_slice(matrix, (start, other_start), (size, other_size))
            terms.append(_place(tile, (first, second), len(views)))
    return functools.reduce(operator.add, terms)


def _log_rows(form: Form, exponents: jax.Array, vector: jax.Array, tiles: Tiles, view: int) -> jax.Array:
    """log u_t: a row over the points of `view` for every index of the block."""
    rank = len(tiles) + 1
    total = _place(vector, (rank - 1,), rank)
    for axis, (outer, (start, size)) in enumerate(tiles.items()):
        tile = lax.dynamic_slice_in_dim(_pair(exponents, form.views, outer, view), start, size)
        total = total + _place(tile, (axis, rank - 1), rank)
    return total


def _rows(
    form: Form, exponents: jax.Array, vector: jax.Array, tiles: Tiles, view: int
) -> tuple[jax.Array, jax.Array]:
    """u_t divided by its largest entry, and the logarithm of that entry."""
    log_rows = _log_rows(form, exponents, vector, tiles, view)
    # The shift cancels against itself in the result, so its derivative is zero.
    largest = lax.stop_gradient(jnp.max(log_rows, axis=-1))
    return jnp.exp(log_rows - largest[..., None]), largest


def _pair(matrices: jax.Array, k: int, l: int, m: int) -> jax.Array:
    """Matrix of views l and m, rows of l."""
    index = pairs(k).index((min(l, m), max(l, m)))
    return matrices[index] if l < m else matrices[index].T


def _place(x: jax.Array, axes: Sequence[int], rank: int) -> jax.Array:
    """x with its axes at `axes` of `rank`, ones elsewhere."""
    shape = [1] * rank
    for axis, size in zip(axes, x.shape):
        shape[axis] = size
    return x.reshape(shape)
