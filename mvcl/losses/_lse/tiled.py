"""Blocks of which a tile is held at once; every tile is computed again in the backward pass."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from mvcl import _numerics
from mvcl.losses._lse.operand import (
    Operand,
    Sums,
    counted,
    either,
    exponential,
    instance,
    level,
    log_sum,
    masked,
    per_sum,
    positions,
)

TILE_COLUMNS = 1024
Step = tuple[jax.Array, ...]  # pair, row view, column view, first row, first column


@jax.custom_vjp
def sums(o: Operand) -> Sums:
    """Log-sum-exps of rows and columns, `o.block` rows at a time; reverse mode only."""
    return forward(o)


def _sums_forward(o: Operand) -> tuple[Sums, tuple[Operand, Sums]]:
    found = forward(o)
    return found, (o, found)


def _sums_backward(residual: tuple[Operand, Sums], cotangent: Sums) -> tuple[Operand]:
    o, found = residual
    dx, dy = gradient(o, found, cotangent)
    return (cotangents(o, dx, dy),)


sums.defvjp(_sums_forward, _sums_backward)


def cotangents(o: Operand, dx: jax.Array, dy: jax.Array) -> Operand:
    """Of the vectors; nothing else has any."""
    return dataclasses.replace(o, x=dx, y=dy, keep_x=None, keep_y=None, bound=None)  # type: ignore[arg-type]


def forward(o: Operand) -> Sums:
    """The log-sum-exps, one tile after the other."""
    return either(o.fixed, o.bound, _forward, o)


def gradient(o: Operand, found: Sums, by: Sums) -> tuple[jax.Array, jax.Array]:
    """Cotangents of x and y, from those of the log-sum-exps that `forward` found."""
    return either(o.fixed, o.bound, _gradient, o, found, by)


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


def _forward(fixed: bool, o: Operand) -> Sums:
    g = _grid(o)

    def start(size: int, value: float) -> jax.Array:
        return _numerics.vary_as(jnp.full((len(o.pairs), size), value, o.x.dtype), o.x)

    def add_shifted(carry: Sums, step: Step) -> tuple[Sums, None]:
        p, _, _, a, b = step
        tile = _tile(g, step)
        entries = exponential(tile.similarity, tile.here, o.bound)
        rows = _add(carry.rows, p, a, entries.sum(1))
        return Sums(rows, _add(carry.columns, p, b, entries.sum(0)) if o.columns else carry.columns), None

    def add_as_is(carry: Sums, step: Step) -> tuple[Sums, None]:
        p, _, _, a, b = step
        tile = _tile(g, step)
        similarity = masked(tile.similarity, tile.here)
        rows, columns = _merge(carry.rows, p, a, _numerics.logsumexp(similarity, axis=1)), carry.columns
        if o.columns:
            columns = _merge(columns, p, b, _numerics.logsumexp(similarity, axis=0))
        return Sums(rows, columns), None

    value = 0.0 if fixed else -jnp.inf
    carry = Sums(start(g.o.x.shape[1], value), start(g.o.y.shape[1], value))
    (rows, columns), _ = lax.scan(add_shifted if fixed else add_as_is, carry, g.steps)
    rows, columns = rows[:, : o.x.shape[1]], columns[:, : o.y.shape[1]]
    if fixed:
        rows, columns = log_sum(rows, o.bound), log_sum(columns, o.bound)
    return Sums(rows, columns if o.columns else jnp.zeros_like(rows))


def _merge(levels: jax.Array, view: jax.Array, first: jax.Array, value: jax.Array) -> jax.Array:
    both = jnp.stack([_cut(levels, view, first, value.shape[0]), value])
    return _paste(levels, view, first, _numerics.logsumexp(both, axis=0))


def _gradient(fixed: bool, o: Operand, found: Sums, by: Sums) -> tuple[jax.Array, jax.Array]:
    g = _grid(o)
    pad_x = g.o.x.shape[1] - o.x.shape[1]
    pad_y = g.o.y.shape[1] - o.y.shape[1] if o.columns else 0
    if fixed:
        u, v = per_sum(by.rows, found.rows, o.bound), per_sum(by.columns, found.columns, o.bound)
    else:
        u, v = by
    slopes = Sums(_pad(u, pad_x), _pad(v, pad_y))
    levels = Sums(_pad(level(found.rows), pad_x), _pad(level(found.columns), pad_y))

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
