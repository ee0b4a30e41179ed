"""Cross-entropy of the rows and of the columns of an (n, n) matrix of logits, each a function of a row and a column."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike

from mvcl import _checks, _numerics
from mvcl.losses import _lse, _views

Arrays = tuple[jax.Array, ...]
# entry(rows, columns, shared) -> (r, m) logits, from arrays whose first axis is r, arrays whose first axis is m, and
# scalars. It must not close over what is differentiated, and must be finite where all its arrays are zero.
Entry = Callable[[Arrays, Arrays, Arrays], jax.Array]


class Logits(NamedTuple):
    """The matrix of logits, row by row and column by column of the instances of this device."""

    entry: Entry
    rows: Arrays  # (n, ...) each
    columns: Arrays  # (n, ...) each
    shared: Arrays  # scalars
    own: jax.Array  # (n,): the diagonal, which `entry` need not give
    keep_rows: jax.Array | None  # (n,) bool, None where all are there
    keep_columns: jax.Array | None
    bound: float | None  # no logit is above 0 or below -bound; None where that is not known before tracing


class _Sums(NamedTuple):
    """Of the matrix without its diagonal: log-sum-exps and sums of its rows and columns."""

    rows: jax.Array  # (n,)
    columns: jax.Array  # (m,)
    row_sums: jax.Array
    column_sums: jax.Array


def smoothing(value: float) -> float:
    """A checked `label_smoothing`."""
    share = _checks.real("label_smoothing", value)
    if not 0 <= share <= 1:
        raise ValueError(f"label_smoothing must be in [0, 1], got {value!r}")
    return share


def cross_entropy(
    logits: Logits, label_smoothing: float, axis_name: str | None, block_size: int | None
) -> jax.Array:
    """½ [mean over rows + mean over columns] of the cross-entropy whose label is the own instance.

    With `label_smoothing` s the label is 1 - s on the own instance plus s / m on each of the m that are there. The
    means are over the instances that have a row and a column.
    """
    o = logits
    found = _sums(o, axis_name, block_size)
    both = None
    if o.keep_rows is not None and o.keep_columns is not None:
        both = o.keep_rows & o.keep_columns
    total = 0.5 * (_views.join(found.rows, o.own) + _views.join(found.columns, o.own)) - o.own
    if label_smoothing:
        of_row = (found.row_sums + o.own) / _count(o.keep_columns, o.own, axis_name)
        of_column = (found.column_sums + o.own) / _count(o.keep_rows, o.own, axis_name)
        total = total + label_smoothing * (o.own - 0.5 * (of_row + of_column))
    return _numerics.mean_where(total, both, axis_name)


def _count(keep: jax.Array | None, own: jax.Array, axis_name: str | None) -> jax.Array:
    if keep is None:
        return jnp.asarray(_views.rows_everywhere(own[None], axis_name), own.dtype)
    count = jnp.sum(keep, dtype=own.dtype)
    return jnp.maximum(count if axis_name is None else lax.psum(count, axis_name), 1)


def _sums(o: Logits, axis_name: str | None, block_size: int | None) -> _Sums:
    n = o.own.shape[0]
    first = jnp.zeros((), jnp.int32) if axis_name is None else lax.axis_index(axis_name) * n
    columns = tuple(_numerics.gather(c, axis_name, 0) for c in o.columns)
    keep_columns = None if o.keep_columns is None else _numerics.gather(o.keep_columns, axis_name, 0)
    m = columns[0].shape[0]
    block = _lse.block_rows(len(columns), n, m, block_size)  # about as many (n, m) arrays are kept
    given = o.rows, columns, o.shared
    if block is None:
        matrix = _matrix(o.entry, *given, first, o.keep_rows, keep_columns)
        half = 0.5 * (o.bound or -jnp.min(jnp.where(matrix.here, _numerics.constant(matrix.logits), 0)))
        found = _lse.either(_lse.fixed_shift(half, o.own.dtype), jnp.asarray(half), _of_matrix, matrix)
    else:
        every = jax.tree.map(lambda a: _numerics.vary_as(_views.reverse_only(a), o.own), given)
        fixed = o.bound is not None and bool(_lse.fixed_shift(0.5 * o.bound, o.own.dtype))
        found = _streamed(o.entry, fixed, block, *every, first, o.keep_rows, keep_columns)
    if axis_name is None:
        return found
    sums = lax.psum(found.column_sums, axis_name)
    mine = lax.dynamic_slice_in_dim(_numerics.vary_as(sums, o.own), first, n)
    return found._replace(columns=_lse.over_devices(found.columns, axis_name, n), column_sums=mine)


class _Matrix(NamedTuple):
    logits: jax.Array  # (r, m)
    here: jax.Array  # (r, m) bool: which count, none of the diagonal


def _matrix(
    entry: Entry,
    rows: Arrays,
    columns: Arrays,
    shared: Arrays,
    first: jax.Array,
    keep_rows: jax.Array | None,
    keep_columns: jax.Array | None,
) -> _Matrix:
    logits = entry(rows, columns, shared)
    r, m = logits.shape
    here = first + jnp.arange(r)[:, None] != jnp.arange(m)[None, :]
    here = here if keep_rows is None else here & keep_rows[:, None]
    return _Matrix(logits, here if keep_columns is None else here & keep_columns[None, :])


def bound(largest: float, temperature: ArrayLike, eps: ArrayLike) -> float | None:
    """sqrt(largest² + eps) / temperature, None where these are arrays."""
    if isinstance(temperature, jax.Array) or isinstance(eps, jax.Array):
        return None
    return math.hypot(largest, math.sqrt(float(eps))) / float(temperature)  # type: ignore[arg-type]


def _of_matrix(fixed: bool, matrix: _Matrix) -> _Sums:
    """`fixed`: no exponential needs the maximum of its row or column."""
    masked = jnp.where(matrix.here, matrix.logits, -jnp.inf)
    there = jnp.where(matrix.here, matrix.logits, 0)
    if not fixed:
        rows, columns = (_numerics.logsumexp(masked, axis=axis) for axis in (1, 0))
    else:  # the gradient is then one product of these exponentials with u_i + v_j
        entries = jnp.exp(masked)
        rows, columns = (_lse.log_sum(entries.sum(a), jnp.zeros((), entries.dtype)) for a in (1, 0))
    return _Sums(rows, columns, there.sum(1), there.sum(0))


@partial(jax.custom_vjp, nondiff_argnums=(0, 1, 2))
def _streamed(
    entry: Entry,
    fixed: bool,
    block: int,
    rows: Arrays,
    columns: Arrays,
    shared: Arrays,
    first: jax.Array,
    keep_rows: jax.Array | None,
    keep_columns: jax.Array | None,
) -> _Sums:
    """So many rows of the matrix at a time; each is computed again in the backward pass."""
    n, m = rows[0].shape[0], columns[0].shape[0]

    def step(carry: Arrays, at: Any) -> tuple[Arrays, Arrays]:
        part, start, keep = at
        found = _of_matrix(fixed, _matrix(entry, part, columns, shared, start, keep, keep_columns))
        levels, sums = carry
        return (_views.join(levels, found.columns), sums + found.column_sums), (found.rows, found.row_sums)

    start = tuple(_numerics.vary_as(jnp.full(m, a, rows[0].dtype), rows[0]) for a in (-jnp.inf, 0))
    carry, of_rows = lax.scan(step, start, _cut(block, rows, first, keep_rows))
    levels, sums = (a.reshape(-1)[:n] for a in of_rows)
    return _Sums(levels, carry[0], sums, carry[1])


def _streamed_forward(entry: Entry, fixed: bool, block: int, *given: Any) -> tuple[_Sums, Any]:
    found = _streamed(entry, fixed, block, *given)
    return found, (given, found)


def _streamed_backward(entry: Entry, fixed: bool, block: int, residual: Any, by: _Sums) -> Any:
    (rows, columns, shared, first, keep_rows, keep_columns), found = residual
    n = rows[0].shape[0]
    level = jnp.where(found.columns == -jnp.inf, 0, found.columns)
    slopes = (jnp.where(found.rows == -jnp.inf, 0, found.rows), by.rows, by.row_sums)

    def step(carry: tuple[Arrays, Arrays], at: Any) -> tuple[tuple[Arrays, Arrays], Arrays]:
        (part, start, keep), (row_level, row_slope, sum_slope) = at
        logits, pull = jax.vjp(entry, part, columns, shared)
        here = _matrix(lambda *_: logits, part, columns, shared, start, keep, keep_columns).here
        masked = jnp.where(here, logits, -jnp.inf)
        if fixed:
            u, v = row_slope * jnp.exp(-row_level), by.columns * jnp.exp(-level)
            weight = jnp.exp(masked) * (u[:, None] + v[None, :])
        else:
            weight = jnp.exp(masked - row_level[:, None]) * row_slope[:, None]
            weight += jnp.exp(masked - level[None, :]) * by.columns[None, :]
        weight += jnp.where(here, sum_slope[:, None] + by.column_sums[None, :], 0)
        by_rows, by_columns, by_shared = pull(weight)
        return jax.tree.map(jnp.add, carry, (by_columns, by_shared)), by_rows

    zeros = jax.tree.map(lambda a: _numerics.vary_as(jnp.zeros_like(a), rows[0]), (columns, shared))
    blocks = _cut(block, rows, first, keep_rows), tuple(_blocks(a, block) for a in slopes)
    (by_columns, by_shared), by_rows = lax.scan(step, zeros, blocks)
    by_rows = jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:])[:n], by_rows)
    return by_rows, by_columns, by_shared, None, None, None


_streamed.defvjp(_streamed_forward, _streamed_backward)


def _cut(
    block: int, rows: Arrays, first: jax.Array, keep: jax.Array | None
) -> tuple[Arrays, jax.Array, jax.Array]:
    """Blocks of the rows, the position of each block's first row, and which rows are there."""
    n = rows[0].shape[0]
    there = _numerics.vary_as(jnp.ones(n, bool), rows[0]) if keep is None else keep
    starts = first + jnp.arange(0, n, block, dtype=first.dtype)
    return tuple(_blocks(a, block) for a in rows), starts, _blocks(there, block)


def _blocks(a: jax.Array, block: int) -> jax.Array:
    """(blocks, block, ...): rows cut evenly, zeros added at the end."""
    pad = [(0, -a.shape[0] % block)] + [(0, 0)] * (a.ndim - 1)
    return jnp.pad(a, pad).reshape(-1, block, *a.shape[1:])
