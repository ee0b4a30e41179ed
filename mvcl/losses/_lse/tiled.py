"""Blocks of which a tile is held at once, and blocks whose instances are split over devices; reverse mode only.

Every tile is computed again in the backward pass. Over devices one view is gathered at a time, and its exponentials are
taken again in the backward pass rather than kept: no device ever holds all views of all.
"""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from mvcl import _numerics
from mvcl.losses._lse import whole

TILE_COLUMNS = 1024
Step = tuple[jax.Array, ...]  # pair, row view, column view, first row, first column


@jax.custom_vjp
def tiled_sums(o: whole.Operand) -> whole.LogSums:
    """Log-sum-exps of rows and columns, `o.block` rows at a time; reverse mode only.

    Where `o.axis` splits the rows of the one view of y, the rows are those of this device, the columns this device's
    part of the sums for all devices' columns.
    """
    return whole.either(o.fixed, o.bound, _forward_tiles, o if o.axis is None else _gathered(o))


def _tiled_backward(residual: tuple[whole.Operand, whole.LogSums], by: whole.LogSums) -> tuple[whole.Operand]:
    o, found = residual
    every = o
    if o.axis is not None:
        # Else the compiler would keep what the forward pass gathered. (On CPU it does so behind a barrier, too.)
        again = o.y + jnp.where(found.rows[0, 0] == found.rows[0, 0], 0, jnp.nan).astype(o.y.dtype)
        every = _gathered(dataclasses.replace(o, y=again))
    dx, dy = whole.either(o.fixed, o.bound, _gradient_tiles, every, found, by)
    if o.axis is not None:
        dy = lax.psum_scatter(dy[0], o.axis, scatter_dimension=0, tiled=True)[None]
    # Nothing but the vectors has a cotangent.
    return (dataclasses.replace(o, x=dx, y=dy, keep_x=None, keep_y=None, bound=None),)  # type: ignore[arg-type]


whole.gradient_again(tiled_sums, _tiled_backward)


def _gathered(o: whole.Operand) -> whole.Operand:
    """The rows of y of all devices, and where this device's rows begin among them."""
    # Along the leading axis: along another, the compiler copies everything into another order first.
    keep = None if o.keep_y is None else _numerics.gather(o.keep_y[0], o.axis, 0)[None]
    every = _numerics.gather(o.y[0], o.axis, 0)[None]
    return dataclasses.replace(o, y=every, keep_y=keep, first=lax.axis_index(o.axis) * o.y.shape[1])


def _tiles(o: whole.Operand) -> tuple[Step, whole.Operand, Callable[[bool, Step], tuple[jax.Array, ...]]]:
    """The tiles of all pairs, arrays padded so that the tiles cut them evenly, and x, y and entries of a tile."""
    n, m = o.x.shape[1], o.y.shape[1]
    rows = min(o.block or n, n)
    columns = min(max(rows, TILE_COLUMNS), m)
    steps = [
        (p, l, r, a, b)
        for p, (l, r) in enumerate(o.pairs)
        for a in range(0, n, rows)
        for b in range(0, m, columns)
        if not o.upper or b + columns > a + 1
    ]
    x, keep_x = _pad_vectors(o.x, o.keep_x, -n % rows)
    y, keep_y = _pad_vectors(o.y, o.keep_y, -m % columns)

    def tile(fixed: bool, step: Step) -> tuple[jax.Array, jax.Array, jax.Array]:
        _, l, r, a, b = step
        of_x, of_y = _cut(x, l, a, rows), _cut(y, r, b, columns)
        here_x = None if keep_x is None else _cut(keep_x, l, a, rows)
        here_y = None if keep_y is None else _cut(keep_y, r, b, columns)
        here = whole.counted(o, a + jnp.arange(rows), b + jnp.arange(columns), n, here_x, here_y)
        return of_x, of_y, whole.kept(fixed, _numerics.inner("id,jd->ij", of_x, of_y), here, o.bound)

    padded = dataclasses.replace(o, x=x, y=y)
    return tuple(jnp.asarray(c, jnp.int32) for c in np.asarray(steps).T), padded, tile


def _pad_vectors(x: jax.Array, keep: jax.Array | None, rows: int) -> tuple[jax.Array, jax.Array | None]:
    if not rows:
        return x, keep
    return _pad(x, rows), _pad(jnp.ones(x.shape[:2], bool) if keep is None else keep, rows)


def _pad(x: jax.Array, rows: int) -> jax.Array:
    return jnp.pad(x, [(0, 0), (0, rows)] + [(0, 0)] * (x.ndim - 2)) if rows else x


def _cut(x: jax.Array, view: jax.Array, first: jax.Array, size: int) -> jax.Array:
    return lax.dynamic_slice(x, _start(x, view, first), (1, size) + x.shape[2:])[0]


def _start(x: jax.Array, view: jax.Array, first: jax.Array) -> tuple[jax.Array, ...]:
    return (view, first) + (jnp.zeros((), jnp.int32),) * (x.ndim - 2)


def _joined(
    x: jax.Array,
    view: jax.Array,
    first: jax.Array,
    value: jax.Array,
    join: Callable[..., jax.Array] = jnp.add,
) -> jax.Array:
    """x with the value added to its place, or otherwise joined with what is there."""
    new = join(_cut(x, view, first, value.shape[0]), value)
    return lax.dynamic_update_slice(x, new[None], _start(x, view, first))


def _forward_tiles(fixed: bool, o: whole.Operand) -> whole.LogSums:
    steps, padded, tile = _tiles(o)
    total: Callable[..., jax.Array] = jnp.sum if fixed else _numerics.logsumexp
    join = jnp.add if fixed else whole.lse_union

    def add(carry: whole.LogSums, step: Step) -> tuple[whole.LogSums, None]:
        p, _, _, a, b = step
        *_, entries = tile(fixed, step)
        rows, columns = _joined(carry.rows, p, a, total(entries, axis=1), join), carry.columns
        if o.columns:
            columns = _joined(columns, p, b, total(entries, axis=0), join)
        return whole.LogSums(rows, columns), None

    sizes, empty = (padded.x.shape[1], padded.y.shape[1]), 0.0 if fixed else -jnp.inf
    start = [_numerics.vary_as(jnp.full((len(o.pairs), size), empty, o.x.dtype), o.x) for size in sizes]
    (rows, columns), _ = lax.scan(add, whole.LogSums(*start), steps)
    rows, columns = rows[:, : o.x.shape[1]], columns[:, : o.y.shape[1]]
    if fixed:
        rows, columns = whole.log_sum(rows, o.bound), whole.log_sum(columns, o.bound)
    return whole.LogSums(rows, columns if o.columns else jnp.zeros_like(rows))


def _gradient_tiles(fixed: bool, o: whole.Operand, found: whole.LogSums, by: whole.LogSums) -> whole.Two:
    """Cotangents of x and y, from the log-sum-exps and their cotangents."""
    steps, padded, tile = _tiles(o)
    more = padded.x.shape[1] - o.x.shape[1], padded.y.shape[1] - o.y.shape[1] if o.columns else 0
    rows, columns = (
        [_pad(a, pad) for a in whole.weighed(fixed, *both, o.bound)]
        for both, pad in zip(zip(found, by), more)
    )

    def step_back(carry: tuple[jax.Array, Any], step: Step) -> tuple[tuple[jax.Array, Any], None]:
        dx, dy = carry
        p, l, r, a, b = step
        x, y, entries = tile(fixed, step)
        sums = [tuple(_cut(side, p, a, len(x))[:, None] for side in rows)]
        if o.columns:
            sums.append(tuple(_cut(side, p, b, len(y))[None, :] for side in columns))
        weight = whole.by_similarity(fixed, entries, *sums)
        dx = _joined(dx, l, a, _numerics.inner("ij,jd->id", weight, y))
        change = _numerics.transposed_product(weight, x)
        # The upper half is of a view with itself: both gradients are that view's.
        return ((_joined(dx, r, b, change), dy) if o.upper else (dx, _joined(dy, r, b, change))), None

    def start(a: jax.Array) -> jax.Array:
        return _numerics.vary_as(jnp.zeros_like(a), by.rows)

    # Of a view with itself one gradient, as long as the rows or the columns of whole tiles.
    longer = padded.x if padded.x.shape[1] >= padded.y.shape[1] else padded.y
    carry = (start(longer), None) if o.upper else (start(padded.x), start(padded.y))
    (dx, dy), _ = lax.scan(step_back, carry, steps)
    dy = jnp.zeros_like(o.y) if dy is None else dy[:, : o.y.shape[1]]
    return dx[:, : o.x.shape[1]], dy


# The symmetry of a view with itself still serves: this device's rows of `E * (u_i + u_j)` need only the other devices'
# u, so that no gradient is sent anywhere.


@partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def sharded_within(
    fixed: bool | None, axis: str, z: jax.Array, keep: jax.Array | None, bound: jax.Array
) -> jax.Array:
    """`(k, n)`: the log-sum-exp over all devices' j != i of <z_li, z_lj>."""

    def one(view: tuple[jax.Array, jax.Array | None]) -> jax.Array:
        return whole.whole_sums(_with_itself(fixed, axis, *view, bound)).rows[0]

    return lax.map(one, (z, keep))


Within = tuple[jax.Array, jax.Array | None, jax.Array, jax.Array]


def _within_backward(
    fixed: bool | None, axis: str, residual: Within, cotangent: jax.Array
) -> tuple[jax.Array, None, None]:
    z, keep, bound, found = residual

    def one(view: tuple[jax.Array, jax.Array | None, jax.Array, jax.Array]) -> jax.Array:
        z, keep, rows, by = view
        o = _with_itself(fixed, axis, z, keep, bound)
        here, every = whole.entries_of(o), o.y[0]
        here = None if here is None else here[0]
        all_rows, all_by = _numerics.gather(rows, axis, 0), _numerics.gather(by, axis, 0)

        def weight(fixed: bool, similarity: jax.Array) -> jax.Array:
            of_rows = tuple(a[:, None] for a in whole.weighed(fixed, rows, by, bound))
            of_columns = tuple(a[None, :] for a in whole.weighed(fixed, all_rows, all_by, bound))
            entries = whole.kept(fixed, similarity, here, bound)
            return whole.by_similarity(fixed, entries, of_rows, of_columns)

        similarity = _numerics.inner("id,jd->ij", z, every)
        return _numerics.inner("ij,jd->id", whole.either(fixed, bound, weight, similarity), every)

    return lax.map(one, (z, keep, found, cotangent)), None, None


whole.gradient_again(sharded_within, _within_backward)


def _with_itself(
    fixed: bool | None, axis: str, z: jax.Array, keep: jax.Array | None, bound: jax.Array
) -> whole.Operand:
    """One view's rows here, as rows and, gathered, as columns."""
    z, keep = z[None], None if keep is None else keep[None]
    of_view = whole.Operand(x=z, y=z, keep_x=keep, keep_y=keep, bound=bound, fixed=fixed, axis=axis)
    return _gathered(dataclasses.replace(of_view, diagonal=False, columns=False))
