"""Blocks of which a tile is held at once, and blocks whose instances are split over devices; reverse mode only.

Every tile is computed again in the backward pass. Over devices one view is gathered at a time, and its exponentials are
taken again in the backward pass rather than kept: no device ever holds all views of all.
"""

import dataclasses
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from mvcl import _numerics
from mvcl.losses._lse import whole
from mvcl.losses._lse.whole import (
    LogSums,
    Operand,
    counted,
    either,
    exponential,
    finite_level,
    instance,
    log_sum,
    masked,
    per_sum,
    positions,
)

Two = tuple[jax.Array, jax.Array]

TILE_COLUMNS = 1024
Step = tuple[jax.Array, ...]  # pair, row view, column view, first row, first column


@jax.custom_vjp
def tiled_sums(o: Operand) -> LogSums:
    """Log-sum-exps of rows and columns, `o.block` rows at a time; reverse mode only."""
    return forward(o)


def _tiled_forward(o: Operand) -> tuple[LogSums, tuple[Operand, LogSums]]:
    found = forward(o)
    return found, (o, found)


def _tiled_backward(residual: tuple[Operand, LogSums], cotangent: LogSums) -> tuple[Operand]:
    o, found = residual
    dx, dy = gradient(o, found, cotangent)
    return (cotangents(o, dx, dy),)


tiled_sums.defvjp(_tiled_forward, _tiled_backward)


def cotangents(o: Operand, dx: jax.Array, dy: jax.Array) -> Operand:
    """Of the vectors; nothing else has any."""
    return dataclasses.replace(o, x=dx, y=dy, keep_x=None, keep_y=None, bound=None)  # type: ignore[arg-type]


def forward(o: Operand) -> LogSums:
    """The log-sum-exps, one tile after the other."""
    return either(o.fixed, o.bound, _forward_tiles, o)


def gradient(o: Operand, found: LogSums, by: LogSums) -> Two:
    """Cotangents of x and y, from those of the log-sum-exps that `forward` found."""
    return either(o.fixed, o.bound, _gradient_tiles, o, found, by)


class _Grid(NamedTuple):
    """The tiles of all pairs, and padded arrays that they cut evenly."""

    steps: Step  # (tiles,) each
    o: Operand
    rows: int  # of a tile
    columns: int
    instances: int


def _grid(o: Operand) -> _Grid:
    n, m = o.x.shape[1], o.y.shape[1]
    rows = min(o.block or n, n)
    columns = min(max(rows, TILE_COLUMNS), m)
    i, j = np.arange(0, n, rows), np.arange(0, m, columns)
    steps = [
        (p, l, r, a, b)
        for p, (l, r) in enumerate(o.pairs)
        for a in i
        for b in j
        if not o.upper or b + columns > a + 1
    ]
    x, keep_x = _pad_vectors(o.x, o.keep_x, -n % rows)
    y, keep_y = _pad_vectors(o.y, o.keep_y, -m % columns)
    padded = dataclasses.replace(o, x=x, y=y, keep_x=keep_x, keep_y=keep_y)
    return _Grid(tuple(jnp.asarray(c, jnp.int32) for c in np.asarray(steps).T), padded, rows, columns, n)


def _pad_vectors(x: jax.Array, keep: jax.Array | None, rows: int) -> tuple[jax.Array, jax.Array | None]:
    if not rows:
        return x, keep
    keep = jnp.ones(x.shape[:2], bool) if keep is None else keep
    return _pad(x, rows), _pad(keep, rows)


def _pad(x: jax.Array, rows: int) -> jax.Array:
    return jnp.pad(x, [(0, 0), (0, rows)] + [(0, 0)] * (x.ndim - 2)) if rows else x


def _cut(x: jax.Array, view: jax.Array, first: jax.Array, size: int) -> jax.Array:
    return lax.dynamic_slice(x, _start(x, view, first), (1, size) + x.shape[2:])[0]


def _start(x: jax.Array, view: jax.Array, first: jax.Array) -> tuple[jax.Array, ...]:
    return (view, first) + (jnp.zeros((), jnp.int32),) * (x.ndim - 2)


def _paste(x: jax.Array, view: jax.Array, first: jax.Array, value: jax.Array) -> jax.Array:
    return lax.dynamic_update_slice(x, value[None], _start(x, view, first))


def _add(x: jax.Array, view: jax.Array, first: jax.Array, value: jax.Array) -> jax.Array:
    return _paste(x, view, first, _cut(x, view, first, value.shape[0]) + value)


class _Tile(NamedTuple):
    x: jax.Array  # (rows, d)
    y: jax.Array  # (columns, d)
    similarity: jax.Array  # (rows, columns)
    here: jax.Array | None  # which entries count


def _tile(g: _Grid, step: Step) -> _Tile:
    o = g.o
    _, l, r, a, b = step
    x, y = _cut(o.x, l, a, g.rows), _cut(o.y, r, b, g.columns)
    i = positions(o, a + jnp.arange(g.rows))
    j = instance(o, b + jnp.arange(g.columns), g.instances)
    keep_x = None if o.keep_x is None else _cut(o.keep_x, l, a, g.rows)
    keep_y = None if o.keep_y is None else _cut(o.keep_y, r, b, g.columns)
    return _Tile(x, y, _numerics.inner("id,jd->ij", x, y), counted(o, i, j, keep_x, keep_y))


def _forward_tiles(fixed: bool, o: Operand) -> LogSums:
    g = _grid(o)

    def start(size: int, value: float) -> jax.Array:
        return _numerics.vary_as(jnp.full((len(o.pairs), size), value, o.x.dtype), o.x)

    def add_shifted(carry: LogSums, step: Step) -> tuple[LogSums, None]:
        p, _, _, a, b = step
        tile = _tile(g, step)
        entries = exponential(tile.similarity, tile.here, o.bound)
        rows = _add(carry.rows, p, a, entries.sum(1))
        return LogSums(rows, _add(carry.columns, p, b, entries.sum(0)) if o.columns else carry.columns), None

    def add_as_is(carry: LogSums, step: Step) -> tuple[LogSums, None]:
        p, _, _, a, b = step
        tile = _tile(g, step)
        similarity = masked(tile.similarity, tile.here)
        rows, columns = _merge(carry.rows, p, a, _numerics.logsumexp(similarity, axis=1)), carry.columns
        if o.columns:
            columns = _merge(columns, p, b, _numerics.logsumexp(similarity, axis=0))
        return LogSums(rows, columns), None

    value = 0.0 if fixed else -jnp.inf
    carry = LogSums(start(g.o.x.shape[1], value), start(g.o.y.shape[1], value))
    (rows, columns), _ = lax.scan(add_shifted if fixed else add_as_is, carry, g.steps)
    rows, columns = rows[:, : o.x.shape[1]], columns[:, : o.y.shape[1]]
    if fixed:
        rows, columns = log_sum(rows, o.bound), log_sum(columns, o.bound)
    return LogSums(rows, columns if o.columns else jnp.zeros_like(rows))


def _merge(levels: jax.Array, view: jax.Array, first: jax.Array, value: jax.Array) -> jax.Array:
    both = jnp.stack([_cut(levels, view, first, value.shape[0]), value])
    return _paste(levels, view, first, _numerics.logsumexp(both, axis=0))


def _gradient_tiles(fixed: bool, o: Operand, found: LogSums, by: LogSums) -> Two:
    g = _grid(o)
    pad_x = g.o.x.shape[1] - o.x.shape[1]
    pad_y = g.o.y.shape[1] - o.y.shape[1] if o.columns else 0
    if fixed:
        u, v = per_sum(by.rows, found.rows, o.bound), per_sum(by.columns, found.columns, o.bound)
    else:
        u, v = by
    slopes = LogSums(_pad(u, pad_x), _pad(v, pad_y))
    levels = LogSums(_pad(finite_level(found.rows), pad_x), _pad(finite_level(found.columns), pad_y))

    def step_back(carry: tuple[jax.Array, Any], step: Step) -> tuple[tuple[jax.Array, Any], None]:
        dx, dy = carry
        p, l, r, a, b = step
        tile = _tile(g, step)
        ui = _cut(slopes.rows, p, a, g.rows)[:, None]
        vj = _cut(slopes.columns, p, b, g.columns)[None, :] if o.columns else None
        if fixed:
            weight = exponential(tile.similarity, tile.here, o.bound) * (ui if vj is None else ui + vj)
        else:
            similarity = masked(tile.similarity, tile.here)
            weight = jnp.exp(similarity - _cut(levels.rows, p, a, g.rows)[:, None]) * ui
            if vj is not None:
                weight += jnp.exp(similarity - _cut(levels.columns, p, b, g.columns)[None, :]) * vj
        dx = _add(dx, l, a, _numerics.inner("ij,jd->id", weight, tile.y))
        change = _numerics.transposed_product(weight, tile.x)
        # The upper half is of a view with itself: both gradients are that view's.
        return ((_add(dx, r, b, change), dy) if o.upper else (dx, _add(dy, r, b, change))), None

    def start(a: jax.Array) -> jax.Array:
        return _numerics.vary_as(jnp.zeros_like(a), by.rows)

    # Of a view with itself one gradient, as long as the rows or the columns of whole tiles.
    longer = g.o.x if g.o.x.shape[1] >= g.o.y.shape[1] else g.o.y
    carry = (start(longer), None) if o.upper else (start(g.o.x), start(g.o.y))
    (dx, dy), _ = lax.scan(step_back, carry, g.steps)
    dy = jnp.zeros_like(o.y) if dy is None else dy[:, : o.y.shape[1]]
    return dx[:, : o.x.shape[1]], dy


# ------------------------------------------------------------------ one view of y


@jax.custom_vjp
def sharded_sums(o: Operand) -> LogSums:
    """Log-sum-exps of rows and columns of blocks with the one view of y, whose rows `o.axis` splits.

    The rows are those of this device, the columns this device's part of the sums for all devices' columns.
    """
    return _forward_whole(gathered(o))


def _sharded_forward(o: Operand) -> tuple[LogSums, tuple[Operand, LogSums]]:
    found = _forward_whole(gathered(o))
    return found, (o, found)


def _sharded_backward(residual: tuple[Operand, LogSums], by: LogSums) -> tuple[Operand]:
    o, found = residual
    # Else the compiler would keep what the forward pass gathered. (On CPU it does so behind a barrier, too.)
    again = o.y + jnp.where(found.rows[0, 0] == found.rows[0, 0], 0, jnp.nan).astype(o.y.dtype)
    every = gathered(dataclasses.replace(o, y=again))
    dx, dy = _gradient_whole(every, by) if o.block is None else gradient(every, found, by)
    dy = lax.psum_scatter(dy[0], o.axis, scatter_dimension=0, tiled=True)[None]
    return (cotangents(o, dx, dy),)


sharded_sums.defvjp(_sharded_forward, _sharded_backward)


def gathered(o: Operand) -> Operand:
    """The rows of y of all devices, and where this device's rows begin among them."""
    assert o.axis is not None
    # Along the leading axis: along another, the compiler copies everything into another order first.
    keep = None if o.keep_y is None else _numerics.gather(o.keep_y[0], o.axis, 0)[None]
    every = _numerics.gather(o.y[0], o.axis, 0)[None]
    return dataclasses.replace(o, y=every, keep_y=keep, first=lax.axis_index(o.axis) * o.y.shape[1])


def _forward_whole(every: Operand) -> LogSums:
    if every.block is not None:
        return forward(every)

    def one(view: tuple[jax.Array, jax.Array | None]) -> list[jax.Array]:
        return [a[0] for a in whole.whole_sums(_with_rows(every, *view))]

    return LogSums(*lax.map(one, (every.x, every.keep_x)))


def _gradient_whole(every: Operand, by: LogSums) -> Two:
    """Whole blocks, a view of x at a time."""

    def one(dy: jax.Array, view: tuple[jax.Array, jax.Array | None, LogSums]) -> Two:
        x, keep, given = view

        def block(x: jax.Array, y: jax.Array) -> LogSums:
            return whole.whole_sums(dataclasses.replace(_with_rows(every, x, keep), y=y))

        dx, change = jax.vjp(block, x, every.y)[1](LogSums(*(a[None] for a in given)))
        return dy + change, dx

    dy, dx = lax.scan(one, _numerics.vary_as(jnp.zeros_like(every.y), by.rows), (every.x, every.keep_x, by))
    return dx, dy


def _with_rows(every: Operand, x: jax.Array, keep: jax.Array | None) -> Operand:
    """One view's rows in place of all."""
    keep = None if keep is None else keep[None]
    return dataclasses.replace(every, x=x[None], keep_x=keep, pairs=((0, 0),))


# ------------------------------------------------------------------ each view with itself

# The symmetry still serves: this device's rows of `E * (u_i + u_j)` need only the other devices' u, so that no
# gradient is sent anywhere.


@partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def sharded_within(
    fixed: bool | None, axis: str, z: jax.Array, keep: jax.Array | None, bound: jax.Array
) -> jax.Array:
    """`(k, n)`: the log-sum-exp over all devices' j != i of <z_li, z_lj>."""

    def one(view: tuple[jax.Array, jax.Array | None]) -> jax.Array:
        return whole.whole_sums(_with_itself(fixed, axis, *view, bound)).rows[0]

    return lax.map(one, (z, keep))


Within = tuple[jax.Array, jax.Array | None, jax.Array, jax.Array]


def _within_forward(
    fixed: bool | None, axis: str, z: jax.Array, keep: jax.Array | None, bound: jax.Array
) -> tuple[jax.Array, Within]:
    rows = sharded_within(fixed, axis, z, keep, bound)
    return rows, (z, keep, bound, rows)


def _within_backward(
    fixed: bool | None, axis: str, residual: Within, cotangent: jax.Array
) -> tuple[jax.Array, None, None]:
    z, keep, bound, found = residual

    def one(view: tuple[jax.Array, jax.Array | None, jax.Array, jax.Array]) -> jax.Array:
        z, keep, rows, by = view
        o = _with_itself(fixed, axis, z, keep, bound)
        here, every = whole.entries(o), o.y[0]
        here = None if here is None else here[0]
        slope, levels = jnp.where(rows == -jnp.inf, 0, by), finite_level(rows)
        all_slopes, all_levels = _numerics.gather(slope, axis, 0), _numerics.gather(levels, axis, 0)

        def weight(fixed: bool, similarity: jax.Array) -> jax.Array:
            if fixed:
                u, w = slope * jnp.exp(bound - levels), all_slopes * jnp.exp(bound - all_levels)
                return exponential(similarity, here, bound) * (u[:, None] + w[None, :])
            similarity = masked(similarity, here)
            share = jnp.exp(similarity - levels[:, None]) * slope[:, None]
            return share + jnp.exp(similarity - all_levels[None, :]) * all_slopes[None, :]

        similarity = _numerics.inner("id,jd->ij", z, every)
        return _numerics.inner("ij,jd->id", either(fixed, bound, weight, similarity), every)

    return lax.map(one, (z, keep, found, cotangent)), None, None


sharded_within.defvjp(_within_forward, _within_backward)


def _with_itself(
    fixed: bool | None, axis: str, z: jax.Array, keep: jax.Array | None, bound: jax.Array
) -> Operand:
    """One view's rows here, as rows and, gathered, as columns."""
    keep = None if keep is None else keep[None]
    return gathered(
        Operand(
            x=z[None],
            y=z[None],
            keep_x=keep,
            keep_y=keep,
            bound=bound,
            pairs=((0, 0),),
            diagonal=False,
            columns=False,
            fixed=fixed,
            axis=axis,
        )
    )
