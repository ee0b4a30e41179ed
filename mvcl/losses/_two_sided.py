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
from mvcl.losses._lse import operand

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


class _Operand(NamedTuple):
    """Some rows of the matrix and all its columns."""

    rows: Arrays  # (r, ...) each
    columns: Arrays  # (m, ...) each
    shared: Arrays
    first: jax.Array  # position of the first row among the rows of all devices
    keep_rows: jax.Array | None
    keep_columns: jax.Array | None


def _sums(o: Logits, axis_name: str | None, block_size: int | None) -> _Sums:
    n = o.own.shape[0]
    first = jnp.zeros((), jnp.int32) if axis_name is None else lax.axis_index(axis_name) * n
    columns = tuple(_numerics.gather(c, axis_name, 0) for c in o.columns)
    keep_columns = None if o.keep_columns is None else _numerics.gather(o.keep_columns, axis_name, 0)
    whole = _Operand(o.rows, columns, o.shared, first, o.keep_rows, keep_columns)
    # About as many (n, m) arrays are kept as there are columns.
    block = _lse.block_rows(len(columns), n, columns[0].shape[0], block_size)
    if block is None:
        matrix = _Matrix(o.entry(*whole[:3]), _here(whole))
        half = 0.5 * (o.bound or -jnp.min(jnp.where(matrix.here, _numerics.constant(matrix.logits), 0)))
        found = _lse.either(_lse.fixed_shift(half, o.own.dtype), jnp.asarray(half), _of_matrix, matrix)
    else:
        rows, columns, shared = jax.tree.map(
            lambda a: _numerics.vary_as(_views.reverse_only(a), o.own), whole[:3]
        )
        fixed = o.bound is not None and bool(_lse.fixed_shift(0.5 * o.bound, o.own.dtype))
        found = _streamed(o.entry, fixed, block, whole._replace(rows=rows, columns=columns, shared=shared))
    if axis_name is None:
        return found
    sums = lax.psum(found.column_sums, axis_name)
    mine = lax.dynamic_slice_in_dim(_numerics.vary_as(sums, o.own), first, n)
    return found._replace(columns=_lse.over_devices(found.columns, axis_name, n), column_sums=mine)


class _Matrix(NamedTuple):
    logits: jax.Array  # (r, m)
    here: jax.Array  # (r, m) bool: which count, none of the diagonal


def _here(o: _Operand) -> jax.Array:
    r, m = o.rows[0].shape[0], o.columns[0].shape[0]
    here = o.first + jnp.arange(r)[:, None] != jnp.arange(m)[None, :]
    here = here if o.keep_rows is None else here & o.keep_rows[:, None]
    return here if o.keep_columns is None else here & o.keep_columns[None, :]


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
def _streamed(entry: Entry, fixed: bool, block: int, o: _Operand) -> _Sums:
    """So many rows of the matrix at a time; each is computed again in the backward pass."""
    n, m = o.rows[0].shape[0], o.columns[0].shape[0]

    def step(carry: Arrays, at: Any) -> tuple[Arrays, Arrays]:
        part = _part(o, at)
        found = _of_matrix(fixed, _Matrix(entry(*part[:3]), _here(part)))
        levels, sums = carry
        return (_views.join(levels, found.columns), sums + found.column_sums), (found.rows, found.row_sums)

    start = tuple(_numerics.vary_as(jnp.full(m, a, o.rows[0].dtype), o.rows[0]) for a in (-jnp.inf, 0))
    carry, of_rows = lax.scan(step, start, _cut(o, block))
    levels, sums = (a.reshape(-1)[:n] for a in of_rows)
    return _Sums(levels, carry[0], sums, carry[1])


def _streamed_forward(
    entry: Entry, fixed: bool, block: int, o: _Operand
) -> tuple[_Sums, tuple[_Operand, _Sums]]:
    found = _streamed(entry, fixed, block, o)
    return found, (o, found)


def _streamed_backward(
    entry: Entry, fixed: bool, block: int, residual: tuple[_Operand, _Sums], by: _Sums
) -> tuple[_Operand]:
    o, found = residual
    n = o.rows[0].shape[0]
    level = operand.level(found.columns)

    def step(carry: tuple[Arrays, Arrays], at: Any) -> tuple[tuple[Arrays, Arrays], Arrays]:
        block_at, (row_level, row_slope, sum_slope) = at
        part = _part(o, block_at)
        logits, pull = jax.vjp(entry, *part[:3])
        here = _here(part)
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

    zeros = jax.tree.map(lambda a: _numerics.vary_as(jnp.zeros_like(a), o.rows[0]), (o.columns, o.shared))
    slopes = tuple(_views.in_blocks(a, block) for a in (operand.level(found.rows), by.rows, by.row_sums))
    (by_columns, by_shared), by_rows = lax.scan(step, zeros, (_cut(o, block), slopes))
    by_rows = jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:])[:n], by_rows)
    return (_Operand(by_rows, by_columns, by_shared, None, None, None),)  # type: ignore[arg-type]


_streamed.defvjp(_streamed_forward, _streamed_backward)

_Block = tuple[Arrays, jax.Array, jax.Array]  # rows, the position of the first, which are there


def _cut(o: _Operand, block: int) -> _Block:
    """The rows in blocks, for a loop over them."""
    n = o.rows[0].shape[0]
    there = _numerics.vary_as(jnp.ones(n, bool), o.rows[0]) if o.keep_rows is None else o.keep_rows
    starts = o.first + jnp.arange(0, n, block, dtype=o.first.dtype)
    return tuple(_views.in_blocks(a, block) for a in o.rows), starts, _views.in_blocks(there, block)


def _part(o: _Operand, at: _Block) -> _Operand:
    rows, first, there = at
    return o._replace(rows=rows, first=first, keep_rows=there)
