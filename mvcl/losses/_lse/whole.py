"""Whole blocks, with derivatives of both modes and every order; and the arithmetic that all blocks share.

Each rule is linear in the tangent, and written so that its transpose is the cheap one: with E the
exponentials, kept from the forward pass, and u, v the cotangents by the sums of rows and columns, the gradient
is one product with `E * (u_i + v_j)` for each set of vectors. Higher orders differentiate the rule itself.
"""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.custom_derivatives import SymbolicZero

from mvcl import _numerics

Two = tuple[jax.Array, jax.Array]

# exp(-2 * 33) = 2e-29 is a normal float32 with room for weights and sums; float64 reaches much further.
_FIXED_SHIFT_LIMIT = {np.dtype("float32"): 33.0, np.dtype("float64"): 300.0}
Result = TypeVar("Result")


class Vectors(NamedTuple):
    """Views scaled so that an inner product is a similarity: what every function here works on."""

    z: jax.Array  # (k, n, d), already divided by sqrt(temperature)
    keep: jax.Array | None  # (k, n) bool, None where all are there
    bound: float | jax.Array  # no inner product is larger; a Python number where it is known before tracing


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
    pairs: tuple[tuple[int, int], ...]  # blocks (view of x, view of y)
    diagonal: bool = True  # does j = i count?
    upper: bool = False  # only j > i: half of a symmetric block
    columns: bool = True  # are the columns' log-sum-exps asked for?
    block: int | None = None  # rows of a tile; None keeps whole blocks
    fixed: bool | None = None  # one shift for all? None: decided when the bound is known
    axis: str | None = None  # mesh axis over whose devices the rows of y are split


class LogSums(NamedTuple):
    """Log-sum-exps of the blocks, or what belongs to each of them."""

    rows: jax.Array  # (pairs, n)
    columns: jax.Array  # (pairs, m); of the shape of `rows`, and zero, where they are not asked for


def fixed_shift(bound: float | jax.Array, dtype: jnp.dtype) -> bool | None:
    """Whether one shift serves for all exponentials; None where that is known only when the program runs."""
    return bound <= _FIXED_SHIFT_LIMIT[dtype] if isinstance(bound, float) else None


def bound_of(v: Vectors, reference: jax.Array) -> jax.Array:
    """The bound as an array; a constant to the derivative, on which the value does not depend."""
    return _numerics.vary_as(_numerics.constant(jnp.asarray(v.bound, reference.dtype)), reference)


def either(
    fixed: bool | None, bound: jax.Array, function: Callable[..., Result], *operands: object
) -> Result:
    """`function(fixed, *operands)`; where `fixed` is None, chosen by the bound when the program runs."""
    if fixed is None:
        limit = _FIXED_SHIFT_LIMIT[bound.dtype]
        return lax.cond(bound <= limit, partial(function, True), partial(function, False), *operands)
    return function(fixed, *operands)


def masked(similarity: jax.Array, here: jax.Array | None) -> jax.Array:
    """-inf where nothing is there."""
    return similarity if here is None else jnp.where(here, similarity, -jnp.inf)


def exponential(similarity: jax.Array, here: jax.Array | None, bound: jax.Array) -> jax.Array:
    """exp(similarity - bound), zero where nothing is there."""
    # Masked before, not after: the exponentials are then the one large array that is kept.
    return jnp.exp(masked(similarity, here) - bound)


def log_sum(total: jax.Array, shift: jax.Array) -> jax.Array:
    """log(total) + shift; -inf for an empty sum."""
    some = total != 0
    return jnp.where(some, jnp.log(jnp.where(some, total, 1)) + shift, -jnp.inf)


def finite_level(rows: jax.Array) -> jax.Array:
    """A finite number to subtract where the sum is empty: exp(-inf - 0) = 0 there."""
    return jnp.where(rows == -jnp.inf, 0, rows)


def per_sum(cotangent: jax.Array, rows: jax.Array, bound: jax.Array) -> jax.Array:
    """cotangent / (sum of shifted exponentials); zero for an empty sum."""
    some = rows != -jnp.inf
    return jnp.where(some, cotangent * jnp.exp(bound - jnp.where(some, rows, bound)), 0)


def counted(
    o: Operand, i: jax.Array, j: jax.Array, keep_x: jax.Array | None, keep_y: jax.Array | None
) -> jax.Array | None:
    """Which entries count, broadcastable to (..., rows, columns); None: all. i, j: global positions."""
    here = None
    if o.upper:
        here = j[None, :] > i[:, None]
    elif not o.diagonal:
        here = j[None, :] != i[:, None]
    for keep in (
        None if keep_x is None else keep_x[..., :, None],
        None if keep_y is None else keep_y[..., None, :],
    ):
        if keep is None:
            continue
        if here is None:
            here = keep
        else:
            shape = jnp.broadcast_shapes(here.shape, keep.shape)
            here = jnp.broadcast_to(of_rank(here, len(shape)), shape) & of_rank(keep, len(shape))
    return here


def positions(o: Operand, rows: jax.Array) -> jax.Array:
    """Of these rows of x, among the rows of all devices."""
    return rows if o.first is None else rows + o.first


def instance(o: Operand, columns: jax.Array, n: int) -> jax.Array:
    """Whose vectors these rows of y are, n instances to a set."""
    return columns if o.axis is not None else columns % n


def of_rank(a: jax.Array, rank: int) -> jax.Array:
    """Ones in front of the shape."""
    return a.reshape((1,) * (rank - a.ndim) + a.shape)


def whole_within(fixed: bool | None, z: jax.Array, keep: jax.Array | None, bound: jax.Array) -> jax.Array:
    """`(k, n)`: the log-sum-exp over j != i of <z_li, z_lj>."""
    return either(fixed, bound, _whole_within, z, keep, bound)


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _whole_within(fixed: bool, z: jax.Array, keep: jax.Array | None, bound: jax.Array) -> jax.Array:
    kept = _within_kept(fixed, z, keep, bound)
    return log_sum(kept.sum(2), bound) if fixed else _numerics.logsumexp(kept, axis=2)


@_whole_within.defjvp
def _(
    fixed: bool, primals: tuple[jax.Array, jax.Array | None, jax.Array], tangents: tuple[jax.Array, ...]
) -> Two:
    z, keep, bound = primals
    kept = _within_kept(fixed, z, keep, bound)
    slope = _numerics.inner("lid,ljd->lij", tangents[0], z)
    if fixed:
        total = kept.sum(2)
        weighted = kept * slope
        # The block is symmetric: what row i gains by the change of z_j is entry (j, i) of the same matrix.
        return log_sum(total, bound), _per(total) * (weighted.sum(2) + weighted.sum(1))
    rows = _numerics.logsumexp(kept, axis=2)
    by_row, by_column = _share(kept, rows, rows, slope)
    return rows, by_row + by_column


def _within_kept(fixed: bool, z: jax.Array, keep: jax.Array | None, bound: jax.Array) -> jax.Array:
    similarity = _numerics.inner("lid,ljd->lij", z, z)
    here = ~jnp.eye(z.shape[1], dtype=bool)[None]
    if keep is not None:
        here = here & keep[:, :, None] & keep[:, None, :]
    return exponential(similarity, here, bound) if fixed else masked(similarity, here)


def whole_sums(o: Operand) -> LogSums:
    """Log-sum-exps of rows and columns of whole blocks."""
    return either(o.fixed, o.bound, _whole_sums, o)


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _whole_sums(fixed: bool, o: Operand) -> LogSums:
    kept = _kept(fixed, o)
    if fixed:
        rows = log_sum(kept.sum(2), o.bound)
        return LogSums(rows, log_sum(kept.sum(1), o.bound) if o.columns else jnp.zeros_like(rows))
    rows = _numerics.logsumexp(kept, axis=2)
    return LogSums(rows, _numerics.logsumexp(kept, axis=1) if o.columns else jnp.zeros_like(rows))


def _sums_rule(fixed: bool, primals: tuple[Operand], tangents: tuple[Operand]) -> tuple[LogSums, LogSums]:
    (o,), (change,) = primals, tangents
    kept = _kept(fixed, o)
    slope = _slope(o, change)
    if fixed:
        row_total, weighted = kept.sum(2), kept * slope
        rows, by_row = log_sum(row_total, o.bound), _per(row_total) * weighted.sum(2)
        if not o.columns:
            return LogSums(rows, jnp.zeros_like(rows)), LogSums(by_row, jnp.zeros_like(rows))
        column_total = kept.sum(1)
        columns, by_column = log_sum(column_total, o.bound), _per(column_total) * weighted.sum(1)
        return LogSums(rows, columns), LogSums(by_row, by_column)
    rows = _numerics.logsumexp(kept, axis=2)
    levels = _numerics.logsumexp(kept, axis=1) if o.columns else None
    by_row, by_column = _share(kept, rows, levels, slope)
    return LogSums(rows, jnp.zeros_like(rows) if levels is None else levels), LogSums(by_row, by_column)


_whole_sums.defjvp(_sums_rule, symbolic_zeros=True)


def _kept(fixed: bool, o: Operand) -> jax.Array:
    """`(pairs, n, m)`: what the backward pass needs of the blocks, exponentials or similarities."""
    left, right = _indices(o)
    similarity = _numerics.inner("pid,pjd->pij", _take(o.x, left), _take(o.y, right))
    here = entries(o)
    return exponential(similarity, here, o.bound) if fixed else masked(similarity, here)


def entries(o: Operand) -> jax.Array | None:
    """Which entries of whole blocks count, broadcastable to (pairs, n, m); None: all."""
    left, right = _indices(o)
    here = counted(
        o,
        positions(o, jnp.arange(o.x.shape[1])),
        instance(o, jnp.arange(o.y.shape[1]), o.x.shape[1]),
        None if o.keep_x is None else o.keep_x[left],
        None if o.keep_y is None else o.keep_y[right],
    )
    return None if here is None else of_rank(here, 3)


def _slope(o: Operand, change: Operand) -> jax.Array:
    """`(pairs, n, m)`: the tangent of the inner products. What does not change takes no product."""
    left, right = _indices(o)
    products = []
    if not isinstance(change.x, SymbolicZero):
        products.append(_numerics.products(_spread(change.x, left), _take(o.y, right)))
    if not isinstance(change.y, SymbolicZero):
        products.append(_numerics.products(_take(o.x, left), _spread(change.y, right)))
    return sum(products[1:], products[0])


def _per(total: jax.Array) -> jax.Array:
    """1 / total; zero for an empty sum."""
    some = total != 0
    return jnp.where(some, 1 / jnp.where(some, total, 1), 0)


# Computed again in the backward pass, where the similarities are then the one large array that is kept.
@jax.checkpoint
def _share(kept: jax.Array, rows: jax.Array, columns: jax.Array | None, slope: jax.Array) -> Two:
    by_row = (jnp.exp(kept - finite_level(rows)[:, :, None]) * slope).sum(2)
    if columns is None:
        return by_row, jnp.zeros_like(by_row)
    return by_row, (jnp.exp(kept - finite_level(columns)[:, None, :]) * slope).sum(1)


def _indices(o: Operand) -> tuple[np.ndarray, np.ndarray]:
    pairs = np.asarray(o.pairs).reshape(-1, 2)
    return pairs[:, 0], pairs[:, 1]


def _take(x: jax.Array, views: np.ndarray) -> jax.Array:
    """x[views], without a copy where that is x itself."""
    return x if np.array_equal(views, np.arange(x.shape[0])) else x[views]


def _spread(change: jax.Array, views: np.ndarray) -> jax.Array:
    """change[views], as a product with zeros and ones.

    Its transpose adds up by view. That of a gather is a scatter, which takes longer than the products; slices
    that are added up by name took as long, and for eight views of two instances XLA's CPU compiler aborted.
    """
    if np.array_equal(views, np.arange(change.shape[0])):
        return change
    member = _numerics.vary_as(
        jnp.asarray(views[:, None] == np.arange(change.shape[0])[None, :], change.dtype), change
    )
    return _numerics.inner("pv,vnd->pnd", member, change)
