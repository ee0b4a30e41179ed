"""Log-sum-exps of blocks of similarities: what the objectives spend their time on.

A block is the matrix of inner products of the n vectors of one view with those of another. Every objective is
a cheap function of the log-sum-exps of rows and columns of such blocks. Here each block is computed once and
gives both: the block of views (m, l) is the transpose of (l, m). The rules that make it fast, all exact:

- On the unit sphere an inner product is at most 1/temperature, so one fixed shift serves for every
  exponential and no row maximum is needed, as long as exp(-2/temperature) does not underflow. Otherwise
  (small temperature, or vectors that are not of unit length) rows and columns get their own. A traced
  temperature decides when it is known.
- With the fixed shift the gradient is `E * (u_i + v_j)`, E the exponentials of the forward pass, u and v the
  cotangents of the rows' and columns' sums: no exponential is taken twice.
- A view's block with itself is symmetric: its gradient is one product with `W + W^T`.
- In blocks of rows, E is recomputed tile by tile and never stored.

The functions here choose between `whole` blocks (derivatives of both modes and every order) and `tiled` ones (rows of a
block at a time, or instances split over devices; reverse mode only).
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from mvcl import _numerics
from mvcl.losses._lse import tiled
from mvcl.losses._lse.whole import (
    LogSums,
    Operand,
    Vectors,
    bound_of,
    fixed_shift,
    log_sum,
    whole_sums,
    whole_within,
)

Pairs = tuple[tuple[int, int], ...]

# Similarities kept for the backward pass: 2^26 float32 are 256 MB. Above, blocks.
_DENSE_ENTRIES = 2**26
_LARGE_BLOCK = 2**17  # entries
_MOST_CHUNKS = 64  # each is compiled on its own
_REVERSE_ONLY = (
    "forward-mode derivatives (jax.jvp, jacfwd, hessian) need whole blocks of similarities on one device; "
    "got {how}. Use jax.grad, or {change}."
)
_TILED = _REVERSE_ONLY.format(
    how="blocks of {rows} of {n} rows", change="pass block_size={n} if they fit into memory"
)
_SHARDED = _REVERSE_ONLY.format(
    how="instances split over mesh axis {axis!r}", change="compute the loss without axis_name"
)


def within(v: Vectors, *, axis_name: str | None = None, block_size: int | None = None) -> jax.Array:
    """`(k, n)`: the log-sum-exp over j != i of <z_li, z_lj>; -inf where nothing is there."""
    k, n, _ = v.z.shape
    if axis_name is not None:
        if block_rows(k, n, n * lax.axis_size(axis_name), block_size) is None:
            z = _numerics.reverse_only(v.z, _SHARDED.format(axis=axis_name))
            return tiled.sharded_within(
                fixed_shift(v.bound, v.z.dtype), axis_name, z, v.keep, bound_of(v, v.z)
            )
        pairs = tuple((l, l) for l in range(k))
        return across(v, v, pairs, diagonal=False, columns=False, axis_name=axis_name, block_size=block_size)[
            0
        ]
    fixed, bound = fixed_shift(v.bound, v.z.dtype), bound_of(v, v.z)
    block = block_rows(k, n, n, block_size)
    views = _one_by_one(v.z, v.keep) if block is not None or _large(k, n * n) else [(v.z, v.keep)]
    if block is None:
        rows = [whole_within(fixed, z, keep, bound) for z, keep in views]
        return rows[0] if len(rows) == 1 else jnp.concatenate(rows)
    # Half of each symmetric block, then both its rows' and its columns' share of every sum. View by view, so
    # that the backward pass holds the gradient of one at a time.
    halves = []
    for z, keep in views:
        half = Operand(x=z, y=z, keep_x=keep, keep_y=keep, bound=bound, pairs=((0, 0),), fixed=fixed)
        halves.append(_log_sums(dataclasses.replace(half, block=block, diagonal=False, upper=True)))
    both = (
        jnp.concatenate([half.columns for half in halves]),
        jnp.concatenate([half.rows for half in halves]),
    )
    return _numerics.logsumexp(jnp.stack(both), axis=0)


def across(
    x: Vectors,
    y: Vectors,
    pairs: Pairs,
    *,
    diagonal: bool = True,
    columns: bool = True,
    axis_name: str | None = None,
    gathered: bool = True,
    block_size: int | None = None,
) -> tuple[jax.Array, jax.Array]:
    """For each pair (l, m) of a view of x and one of y, `(len(pairs), n)` each: rows, and columns.

    Rows: log-sum-exp over j of <x_li, y_mj>, by i. Columns: over i, by j. `diagonal=False` leaves out j = i, and
    j = i + n, i + 2n, ... where the views of y are several sets of the n instances side by side.
    `gathered=False` leaves y as it is on each device: a queue that all of them hold, without columns.
    """
    bound, n = _joint_bound(x, y), x.z.shape[1]
    split = axis_name is not None and gathered
    m = n * lax.axis_size(axis_name) if split else y.z.shape[1]
    o = Operand(
        x=x.z,
        y=y.z if axis_name is None else _numerics.vary_as(y.z, x.z),
        keep_x=x.keep,
        keep_y=y.keep,
        bound=bound_of(bound, x.z),
        pairs=pairs,
        diagonal=diagonal,
        columns=columns,
        block=block_rows(len(pairs), n, m, block_size),
        fixed=fixed_shift(bound.bound, x.z.dtype),
        axis=axis_name if split else None,
    )
    if not split:
        return _unsplit(o)
    rows, part = _split(o)
    if not columns or axis_name is None:
        return rows, part
    return rows, over_devices(part, axis_name, n)


def over_devices(part: jax.Array, axis_name: str, n: int) -> jax.Array:
    """`(..., n)`: the log-sum-exps of this device's n columns, from those over each device's rows of all columns."""
    top = lax.pmax(lax.stop_gradient(part), axis_name)
    top = jnp.where(top == -jnp.inf, 0, top)
    there = part != -jnp.inf
    total = lax.psum(jnp.where(there, jnp.exp(jnp.where(there, part, 0) - top), 0), axis_name)
    whole = _numerics.vary_as(log_sum(total, top), part)
    return lax.dynamic_slice_in_dim(whole, lax.axis_index(axis_name) * n, n, axis=-1)


def against_all(
    x: Vectors, y: Vectors, *, axis_name: str | None = None, block_size: int | None = None
) -> jax.Array:
    """`(k, n)`: the log-sum-exp over every view m of y and all j != i of <x_li, y_mj>."""
    k, n, _ = x.z.shape
    if axis_name is None and n * n < _LARGE_BLOCK:
        # All views of y side by side: one product for each view of x, not one for each pair of views.
        flat = Vectors(
            y.z.reshape(1, -1, y.z.shape[2]), None if y.keep is None else y.keep.reshape(1, -1), y.bound
        )
        pairs = tuple((l, 0) for l in range(k))
        return across(x, flat, pairs, diagonal=False, columns=False, block_size=block_size)[0]
    pairs = tuple((l, m) for l in range(k) for m in range(y.z.shape[0]))
    rows, _ = across(x, y, pairs, diagonal=False, columns=False, axis_name=axis_name, block_size=block_size)
    return _numerics.logsumexp(rows.reshape(k, -1, n), axis=1)


def block_rows(pairs: int, n: int, m: int, block_size: int | None) -> int | None:
    """Rows of a tile; None where all blocks are small enough to be kept whole."""
    if block_size is None:
        return None if pairs * n * m <= _DENSE_ENTRIES else min(n, tiled.TILE_COLUMNS)
    return None if block_size >= n else block_size


def _unsplit(o: Operand) -> LogSums:
    """Rows and columns of blocks that are whole on this device."""
    if o.block is None and _large(len(o.pairs), o.x.shape[1] * o.y.shape[1]):
        xs = _one_by_one(o.x, o.keep_x)
        ys = xs if o.y is o.x else _one_by_one(o.y, o.keep_y)
        found = [_log_sums(_of_views(o, xs[l], ys[r], ((0, 0),))) for l, r in o.pairs]
        return LogSums(*(jnp.concatenate(side) for side in zip(*found)))
    left, right = sorted({l for l, _ in o.pairs}), sorted({r for _, r in o.pairs})
    renamed = tuple((left.index(l), right.index(r)) for l, r in o.pairs)
    return _log_sums(_of_views(o, _some(o.x, o.keep_x, left), _some(o.y, o.keep_y, right), renamed))


def _split(o: Operand) -> tuple[jax.Array, jax.Array]:
    """Rows of this device's vectors, and its share of the columns `(len(pairs), n of all devices)`.

    One view of y is gathered at a time, and once more in the backward pass.
    """
    found: dict[tuple[int, int], tuple[jax.Array, jax.Array]] = {}
    y_views = _one_by_one(o.y, o.keep_y)
    for view in sorted({r for _, r in o.pairs}):
        left = [l for l, r in o.pairs if r == view]
        one = _of_views(o, _some(o.x, o.keep_x, left), y_views[view], tuple((i, 0) for i in range(len(left))))
        x = _numerics.reverse_only(one.x, _SHARDED.format(axis=o.axis))
        y = _numerics.reverse_only(one.y, _SHARDED.format(axis=o.axis))
        sums = tiled.sharded_sums(dataclasses.replace(one, x=x, y=y))
        found |= {(l, view): (sums.rows[i], sums.columns[i]) for i, l in enumerate(left)}
    rows, columns = zip(*(found[p] for p in o.pairs))
    return jnp.stack(rows), jnp.stack(columns)


def _log_sums(o: Operand) -> LogSums:
    if o.block is None:
        return whole_sums(o)
    message = _TILED.format(rows=o.block, n=o.x.shape[1])
    x = _numerics.reverse_only(o.x, message)
    y = x if o.upper else _numerics.reverse_only(o.y, message)
    return tiled.tiled_sums(dataclasses.replace(o, x=x, y=y))


Kept = tuple[jax.Array, jax.Array | None]  # vectors, and which are there


def _of_views(o: Operand, x: Kept, y: Kept, pairs: Pairs) -> Operand:
    return dataclasses.replace(o, x=x[0], keep_x=x[1], y=y[0], keep_y=y[1], pairs=pairs)


def _one_by_one(z: jax.Array, keep: jax.Array | None) -> list[Kept]:
    """Each view on its own. The gradient of a split is one concatenation, that of k slices k padded
    arrays.
    """
    ones = (1,) * z.shape[0]
    return list(zip(lax.split(z, ones), [None] * len(ones) if keep is None else lax.split(keep, ones)))


def _some(z: jax.Array, keep: jax.Array | None, views: list[int]) -> Kept:
    if len(views) == z.shape[0]:
        return z, keep
    together = views[-1] - views[0] == len(views) - 1
    some = slice(views[0], views[-1] + 1) if together else np.asarray(views)
    return z[some], None if keep is None else keep[some]


def _large(count: int, entries: int) -> bool:
    """Large blocks one by one: each stays in the cache and frees its memory. Small ones all at once."""
    return entries >= _LARGE_BLOCK and count <= _MOST_CHUNKS


def _joint_bound(x: Vectors, y: Vectors) -> Vectors:
    # |<u, v>| <= |u| |v| <= max(|u|^2, |v|^2)
    if isinstance(x.bound, float) and isinstance(y.bound, float):
        return x._replace(bound=max(x.bound, y.bound))
    return x if x.bound is y.bound else x._replace(bound=jnp.maximum(x.bound, y.bound))
