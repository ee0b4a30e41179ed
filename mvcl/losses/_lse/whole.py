"""Whole blocks, with derivatives of both modes and every order; and the arithmetic that all blocks share.

Each rule is linear in the tangent, and written so that its transpose is the cheap one: with E the
exponentials, kept from the forward pass, and u, v the cotangents by the sums of rows and columns, the gradient
is one product with `E * (u_i + v_j)` for each set of vectors. Higher orders differentiate the rule itself.
"""

import dataclasses
from collections.abc import Callable
from functools import partial, reduce
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.custom_derivatives import SymbolicZero

from mvcl import _numerics

One = tuple[jax.Array]
Two = tuple[jax.Array, jax.Array]
Pairs = tuple[tuple[int, int], ...]

# exp(-2 * 33) = 2e-29 is a normal float32 with room for weights and sums; float64 reaches much further.
_FIXED_SHIFT_LIMIT = {np.dtype("float32"): 33.0, np.dtype("float64"): 300.0}
Result = TypeVar("Result")


@partial(
    jax.tree_util.register_dataclass,
    data_fields=("x", "y", "keep_x", "keep_y", "bound", "first"),
    meta_fields=("pairs", "diagonal", "upper", "columns", "block", "fixed", "axis"),
)
@dataclasses.dataclass(frozen=True, kw_only=True)
class Operand:
    """Two sets of vectors and the blocks of their inner products: a pytree, static in all but its arrays."""

    x: jax.Array  # (views, n, d): rows
    y: jax.Array  # (views, m, d): columns
    keep_x: jax.Array | None  # (views, n) bool, None where all are there
    keep_y: jax.Array | None
    bound: jax.Array  # scalar that no inner product exceeds; the results do not depend on it
    first: jax.Array | None = None  # position of x's first row among the rows of all devices, None for 0
    pairs: Pairs = ((0, 0),)  # blocks (view of x, view of y)
    diagonal: bool = True  # does j = i count?
    upper: bool = False  # only j > i: half of a symmetric block
    columns: bool = True  # are the columns' log-sum-exps asked for?
    block: int | None = None  # rows of a tile; None keeps whole blocks
    fixed: bool | None = None  # one shift for all? None: decided when the bound is known
    axis: str | None = None  # mesh axis over whose devices the rows of y are split


def sides(pairs: Pairs) -> tuple[np.ndarray, np.ndarray]:
    """The pairs' first and second views."""
    both = np.asarray(pairs).reshape(-1, 2)
    return both[:, 0], both[:, 1]


class LogSums(NamedTuple):
    """Log-sum-exps of the blocks, or what belongs to each of them."""

    rows: jax.Array  # (pairs, n)
    columns: jax.Array  # (pairs, m); of the shape of `rows`, and zero, where they are not asked for


def shift(bound: float | jax.Array, reference: jax.Array) -> tuple[bool | None, jax.Array]:
    """Whether one shift serves for all exponentials, None where only the running program knows; the shift.

    That is the bound as an array: a constant to the derivative, on which the value does not depend.
    """
    fixed = bound <= _FIXED_SHIFT_LIMIT[reference.dtype] if isinstance(bound, float) else None
    return fixed, _numerics.vary_as(_numerics.constant(jnp.asarray(bound, reference.dtype)), reference)


def either(fixed: bool | None, bound: jax.Array, function: Callable[..., Result], *operands: Any) -> Result:
    """`function(fixed, *operands)`; where `fixed` is None, chosen by the bound when the program runs."""
    if fixed is None:
        limit = _FIXED_SHIFT_LIMIT[bound.dtype]
        return lax.cond(bound <= limit, partial(function, True), partial(function, False), *operands)
    return function(fixed, *operands)


def kept(fixed: bool, similarity: jax.Array, here: jax.Array | None, bound: jax.Array) -> jax.Array:
    """exp(similarity - bound), the similarity itself where not `fixed`; zero and -inf where nothing is there."""
    # Masked before, not after: the exponentials are then the one large array that is kept.
    similarity = similarity if here is None else jnp.where(here, similarity, -jnp.inf)
    return jnp.exp(similarity - bound) if fixed else similarity


def log_sum(total: jax.Array, bound: jax.Array) -> jax.Array:
    """log(total) + bound; -inf for an empty sum."""
    some = total != 0
    return jnp.where(some, jnp.log(jnp.where(some, total, 1)) + bound, -jnp.inf)


def log_sums(fixed: bool, kept: jax.Array, bound: jax.Array, *axes: int) -> list[jax.Array]:
    """The log-sum-exps over each of these axes."""
    return [log_sum(kept.sum(a), bound) if fixed else _numerics.logsumexp(kept, axis=a) for a in axes]


def lse_union(*energies: jax.Array) -> jax.Array:
    """log Σ exp of log-sum-exps over disjoint sets; an empty set's is -inf."""
    return energies[0] if len(energies) == 1 else _numerics.logsumexp(jnp.stack(energies), axis=0)


def finite_level(sums: jax.Array) -> jax.Array:
    """A finite number to subtract where the sum is empty: exp(-inf - 0) = 0 there."""
    return jnp.where(sums == -jnp.inf, 0, sums)


def weighed(fixed: bool, found: jax.Array, by: jax.Array, bound: jax.Array) -> Two:
    """What `by_similarity` takes of log-sum-exps and their cotangents. Once, outside of a loop over tiles."""
    if not fixed:
        return finite_level(found), by
    # cotangent / (sum of shifted exponentials); zero for an empty sum.
    some = found != -jnp.inf
    return found, jnp.where(some, by * jnp.exp(bound - jnp.where(some, found, bound)), 0)


def by_similarity(fixed: bool, kept: jax.Array, *sums: tuple[jax.Array, ...]) -> jax.Array:
    """The derivative by the similarities of log-sum-exps, each `weighed` and of a shape that broadcasts."""
    if fixed:
        return kept * reduce(jnp.add, [slope for _, slope in sums])
    return reduce(jnp.add, [jnp.exp(kept - level) * slope for level, slope in sums])


def gradient_again(function: jax.custom_vjp[Any], gradient: Callable[..., Any]) -> None:
    """Declares the backward pass `gradient(*static, (*operands, result), by)`, which computes all else again."""
    static = len(function.nondiff_argnums)

    def forward(*arguments: Any) -> tuple[Any, tuple[Any, ...]]:
        found = function(*arguments)
        return found, (*arguments[static:], found)

    function.defvjp(forward, gradient)


def counted(
    o: Operand, i: jax.Array, j: jax.Array, n: int, keep_x: jax.Array | None, keep_y: jax.Array | None
) -> jax.Array | None:
    """Which entries of this device's rows i and of columns j count, broadcastable to (..., rows, columns)."""
    i = i if o.first is None else i + o.first
    j = j if o.axis is not None else j % n
    terms = [j[None, :] > i[:, None]] if o.upper else [] if o.diagonal else [j[None, :] != i[:, None]]
    terms += [] if keep_x is None else [keep_x[..., :, None]]
    terms += [] if keep_y is None else [keep_y[..., None, :]]
    rank = max([term.ndim for term in terms], default=0)
    same = [term.reshape((1,) * (rank - term.ndim) + term.shape) for term in terms]
    return reduce(jnp.logical_and, same) if same else None


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def whole_within(fixed: bool, z: jax.Array, keep: jax.Array | None, bound: jax.Array) -> jax.Array:
    """`(k, n)`: the log-sum-exp over j != i of <z_li, z_lj>."""
    return log_sums(fixed, _kept_within(fixed, z, keep, bound), bound, 2)[0]


@whole_within.defjvp
def _(
    fixed: bool, primals: tuple[jax.Array, jax.Array | None, jax.Array], tangents: tuple[jax.Array, ...]
) -> Two:
    z, _, bound = primals
    entries = _kept_within(fixed, *primals)
    slope = _numerics.inner("lid,ljd->lij", tangents[0], z)
    (rows,) = log_sums(fixed, entries, bound, 2)
    if fixed:
        weighted = entries * slope
        # The block is symmetric: what row i gains by the change of z_j is entry (j, i) of the same matrix.
        return rows, per(entries.sum(2)) * (weighted.sum(2) + weighted.sum(1))
    by_row, by_column = _share(entries, slope, rows, rows)
    return rows, by_row + by_column


def _kept_within(fixed: bool, z: jax.Array, keep: jax.Array | None, bound: jax.Array) -> jax.Array:
    here = ~jnp.eye(z.shape[1], dtype=bool)[None]
    if keep is not None:
        here = here & keep[:, :, None] & keep[:, None, :]
    return kept(fixed, _numerics.inner("lid,ljd->lij", z, z), here, bound)


def whole_sums(o: Operand) -> LogSums:
    """Log-sum-exps of rows and columns of whole blocks."""
    return either(o.fixed, o.bound, _whole_sums, o)


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _whole_sums(fixed: bool, o: Operand) -> LogSums:
    return _rows_and_columns(log_sums(fixed, _kept(fixed, o), o.bound, *_sides(o)))


@partial(_whole_sums.defjvp, symbolic_zeros=True)
def _(fixed: bool, primals: tuple[Operand], tangents: tuple[Operand]) -> tuple[LogSums, LogSums]:
    (o,), (change,) = primals, tangents
    left, right = sides(o.pairs)
    entries, products = _kept(fixed, o), []  # what does not change takes no product
    if not isinstance(change.x, SymbolicZero):
        products.append(_numerics.products(_spread(change.x, left), _take(o.y, right)))
    if not isinstance(change.y, SymbolicZero):
        products.append(_numerics.products(_take(o.x, left), _spread(change.y, right)))
    slope, found = reduce(jnp.add, products), log_sums(fixed, entries, o.bound, *_sides(o))
    if fixed:
        weighted = entries * slope
        by = [per(entries.sum(side)) * weighted.sum(side) for side in _sides(o)]
    else:
        by = _share(entries, slope, *found)
    return _rows_and_columns(found), _rows_and_columns(by)


def _sides(o: Operand) -> tuple[int, ...]:
    """The axes of (pairs, n, m) that are summed over: for the rows, for the columns."""
    return (2, 1) if o.columns else (2,)


def _rows_and_columns(sums: list[jax.Array]) -> LogSums:
    return LogSums(*sums) if len(sums) == 2 else LogSums(sums[0], jnp.zeros_like(sums[0]))


def _kept(fixed: bool, o: Operand) -> jax.Array:
    """`(pairs, n, m)`: what the backward pass needs of the blocks, exponentials or similarities."""
    left, right = sides(o.pairs)
    similarity = _numerics.inner("pid,pjd->pij", _take(o.x, left), _take(o.y, right))
    return kept(fixed, similarity, entries_of(o), o.bound)


def entries_of(o: Operand) -> jax.Array | None:
    """Which entries of whole blocks count, broadcastable to (pairs, n, m); None: all."""
    (left, right), n = sides(o.pairs), o.x.shape[1]
    keep_x = None if o.keep_x is None else o.keep_x[left]
    keep_y = None if o.keep_y is None else o.keep_y[right]
    here = counted(o, jnp.arange(n), jnp.arange(o.y.shape[1]), n, keep_x, keep_y)
    return None if here is None else here.reshape(-1, *here.shape[-2:])


def per(total: jax.Array) -> jax.Array:
    """1 / total; zero for an empty sum."""
    some = total != 0
    return jnp.where(some, 1 / jnp.where(some, total, 1), 0)


# Computed again in the backward pass, where the similarities are then the one large array that is kept.
@jax.checkpoint
def _share(similarity: jax.Array, slope: jax.Array, *levels: jax.Array) -> list[jax.Array]:
    """The changes of the log-sum-exps over the last axis, and over the one before it."""
    return [
        (jnp.exp(similarity - jnp.expand_dims(finite_level(level), axis)) * slope).sum(axis)
        for axis, level in zip((2, 1), levels)
    ]


def _take(x: jax.Array, views: np.ndarray) -> jax.Array:
    """x[views], without a copy where that is x itself."""
    return x if np.array_equal(views, np.arange(x.shape[0])) else x[views]


def _spread(change: jax.Array, views: np.ndarray) -> jax.Array:
    """change[views], as a product with zeros and ones: the transpose of a gather is a scatter, which takes longer."""
    if np.array_equal(views, np.arange(change.shape[0])):
        return change
    member = views[:, None] == np.arange(change.shape[0])[None, :]
    ones = _numerics.vary_as(jnp.asarray(member, change.dtype), change)
    return _numerics.inner("pv,vnd->pnd", ones, change)
