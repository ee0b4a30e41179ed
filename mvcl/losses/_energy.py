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
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from mvcl import _numerics

# exp(-2 * 33) = 2e-29 is a normal float32 with room for weights and sums; float64 reaches much further.
_FIXED_SHIFT_LIMIT = {np.dtype("float32"): 33.0, np.dtype("float64"): 300.0}
# Similarities kept for the backward pass: 2^26 float32 are 256 MB. Above, blocks.
_DENSE_ENTRIES = 2**26
_TILE_COLUMNS = 1024
_LARGE_BLOCK = 2**17  # entries
_MOST_CHUNKS = 64  # each is compiled on its own


class Vectors(NamedTuple):
    """Views scaled so that an inner product is a similarity: what every function here works on."""

    z: jax.Array  # (k, n, d), already divided by sqrt(temperature)
    keep: jax.Array | None  # (k, n) bool, None where all are there
    bound: float | jax.Array  # no inner product is larger; a Python number where it is known before tracing


class Tiles(NamedTuple):
    """What to compute, known before tracing."""

    pairs: tuple[tuple[int, int], ...]  # blocks (row view, column view)
    diagonal: bool  # does j = i count?
    upper: bool  # only j > i: half of a symmetric block
    columns: bool  # are the columns' log-sum-exps asked for?
    block: int | None  # rows of a tile; None keeps whole blocks
    fixed: bool | None  # one shift for all? None: decided when the bound is known
    axis: str | None = None  # mesh axis over whose devices the rows of y are split


def within(v: Vectors, *, axis_name: str | None = None, block_size: int | None = None) -> jax.Array:
    """`(k, n)`: the log-sum-exp over j != i of <z_li, z_lj>; -inf where nothing is there."""
    k, n, _ = v.z.shape
    if axis_name is not None:
        if block_rows(k, n, n * lax.axis_size(axis_name), block_size) is None:
            return _within_split((_fixed(v), axis_name), v.z, v.keep, _bound(v, v.z))
        pairs = tuple((l, l) for l in range(k))
        return across(v, v, pairs, diagonal=False, columns=False, axis_name=axis_name, block_size=block_size)[
            0
        ]
    block = block_rows(k, n, n, block_size)
    bound = _bound(v, v.z)
    if block is None:
        if len(_chunks(k, n * n)) == 1:
            return _within(_fixed(v), v.z, v.keep, bound)
        return jnp.concatenate([_within(_fixed(v), one.z, one.keep, bound) for one in _views_of(v)])
    # Half of each symmetric block, then both its rows' and its columns' share of every sum. View by view, so
    # that the backward pass holds the gradient of one at a time.
    tiles = Tiles(((0, 0),), False, True, True, block, _fixed(v))
    halves = [_sums(tiles, one.z, one.z, one.keep, one.keep, bound) for one in _views_of(v)]
    right, left = (jnp.concatenate([half[side] for half in halves]) for side in (0, 1))
    return _numerics.logsumexp(jnp.stack([right, left]), axis=0)


def across(
    x: Vectors,
    y: Vectors,
    pairs: tuple[tuple[int, int], ...],
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
    bound = _joint_bound(x, y)
    if axis_name is not None and not gathered:
        y = y._replace(z=_numerics.vary_as(y.z, x.z))
    if axis_name is None or not gathered:
        return _local(bound, x, y, pairs, diagonal, columns, block_size)
    rows, part = _split(bound, x, y, pairs, diagonal, columns, block_size, axis_name)
    if not columns:
        return rows, part
    # Every device holds some rows of each column: add them up, then keep the columns that live here.
    top = lax.pmax(lax.stop_gradient(part), axis_name)
    top = jnp.where(top == -jnp.inf, 0, top)
    there = part != -jnp.inf
    total = lax.psum(jnp.where(there, jnp.exp(jnp.where(there, part, 0) - top), 0), axis_name)
    whole = _numerics.vary_as(_log_sum(total, top), x.z)
    return rows, _own(whole, axis_name, x.z.shape[1])


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


def _local(
    bound: Vectors,
    x: Vectors,
    y: Vectors,
    pairs: tuple[tuple[int, int], ...],
    diagonal: bool,
    columns: bool,
    block_size: int | None,
) -> tuple[jax.Array, jax.Array]:
    """Rows and columns of blocks that are whole on this device."""
    n, m = x.z.shape[1], y.z.shape[1]
    block, limit = block_rows(len(pairs), n, m, block_size), _bound(bound, x.z)
    rows, cols = [], []
    chunks = _chunks(len(pairs), n * m) if block is None else [slice(0, len(pairs))]
    if len(chunks) > 1:
        x_views = _views_of(x)
        y_views = x_views if y is x else _views_of(y)
    for chunk in chunks:
        chosen = pairs[chunk]
        left, right = sorted({l for l, _ in chosen}), sorted({r for _, r in chosen})
        renamed = tuple((left.index(l), right.index(r)) for l, r in chosen)
        tiles = Tiles(renamed, diagonal, False, columns, block, _fixed(bound))
        if len(chunks) > 1:
            xs, ys = x_views[left[0]], y_views[right[0]]
        else:
            xs, ys = _some(x, left), _some(y, right)
        row, column = _sums(tiles, xs.z, ys.z, xs.keep, ys.keep, limit)
        rows.append(row)
        cols.append(column)
    return jnp.concatenate(rows), jnp.concatenate(cols)


def _split(
    bound: Vectors,
    x: Vectors,
    y: Vectors,
    pairs: tuple[tuple[int, int], ...],
    diagonal: bool,
    columns: bool,
    block_size: int | None,
    axis_name: str,
) -> tuple[jax.Array, jax.Array]:
    """Rows of this device's vectors, and its share of the columns `(len(pairs), n of all devices)`.

    One view of y is gathered at a time, and once more in the backward pass: no device ever holds all views of
    all.
    """
    n, limit = x.z.shape[1], _bound(bound, x.z)
    m = n * lax.axis_size(axis_name)
    block = block_rows(len(pairs), n, m, block_size)
    rows: dict[tuple[int, int], jax.Array] = {}
    cols: dict[tuple[int, int], jax.Array] = {}
    y_views = _views_of(y)
    for view in sorted({r for _, r in pairs}):
        left = [l for l, r in pairs if r == view]
        renamed = tuple((i, 0) for i in range(len(left)))
        tiles = Tiles(renamed, diagonal, False, columns, block, _fixed(bound), axis_name)
        xs, ys = _some(x, left), y_views[view]
        row, column = _sums(tiles, xs.z, ys.z, xs.keep, ys.keep, limit)
        for i, l in enumerate(left):
            rows[l, view], cols[l, view] = row[i], column[i]
    return jnp.stack([rows[p] for p in pairs]), jnp.stack([cols[p] for p in pairs])


def _own(whole: jax.Array, axis_name: str, n: int) -> jax.Array:
    """The columns that live on this device."""
    return lax.dynamic_slice_in_dim(whole, lax.axis_index(axis_name) * n, n, axis=1)


def _views_of(v: Vectors) -> list[Vectors]:
    """Each view on its own. The gradient of a split is one concatenation, that of k slices k padded
    arrays.
    """
    ones = (1,) * v.z.shape[0]
    keeps = [None] * len(ones) if v.keep is None else lax.split(v.keep, ones)
    return [Vectors(z, keep, v.bound) for z, keep in zip(lax.split(v.z, ones), keeps)]


def _some(v: Vectors, views: list[int]) -> Vectors:
    if len(views) == v.z.shape[0]:
        return v
    together = views[-1] - views[0] == len(views) - 1
    some = slice(views[0], views[-1] + 1) if together else np.asarray(views)
    return Vectors(v.z[some], None if v.keep is None else v.keep[some], v.bound)


def _chunks(count: int, entries: int) -> list[slice]:
    """Large blocks one by one: each stays in the cache and frees its memory. Small ones all at once."""
    one_by_one = entries >= _LARGE_BLOCK and count <= _MOST_CHUNKS
    return [slice(i, i + 1) for i in range(count)] if one_by_one else [slice(0, count)]


def _joint_bound(x: Vectors, y: Vectors) -> Vectors:
    # |<u, v>| <= |u| |v| <= max(|u|^2, |v|^2)
    if isinstance(x.bound, float) and isinstance(y.bound, float):
        return x._replace(bound=max(x.bound, y.bound))
    return x if x.bound is y.bound else x._replace(bound=jnp.maximum(x.bound, y.bound))


def _bound(v: Vectors, reference: jax.Array) -> jax.Array:
    """The bound as an array; a constant to the derivative, on which the value does not depend."""
    return _numerics.vary_as(lax.stop_gradient(jnp.asarray(v.bound, reference.dtype)), reference)


def _fixed(v: Vectors) -> bool | None:
    return v.bound <= _FIXED_SHIFT_LIMIT[v.z.dtype] if isinstance(v.bound, float) else None


def block_rows(pairs: int, n: int, m: int, block_size: int | None) -> int | None:
    """Rows of a tile; None where all blocks are small enough to be kept whole."""
    if block_size is None:
        return None if pairs * n * m <= _DENSE_ENTRIES else min(n, _TILE_COLUMNS)
    return None if block_size >= n else block_size


# ------------------------------------------------------------------ one view with itself, whole blocks


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _within(fixed: bool | None, z: jax.Array, keep: jax.Array | None, bound: jax.Array) -> jax.Array:
    return _within_forward(fixed, z, keep, bound)[0]


def _within_forward(
    fixed: bool | None, z: jax.Array, keep: jax.Array | None, bound: jax.Array
) -> tuple[Any, Any]:
    n = z.shape[1]
    similarity = _numerics.inner("lid,ljd->lij", z, z)
    here = ~jnp.eye(n, dtype=bool)[None]
    if keep is not None:
        here = here & keep[:, :, None] & keep[:, None, :]
    kept, rows = _choose(fixed, bound, _shifted, _as_is, similarity, here, bound)
    return rows, (z, kept, rows, bound)


def _within_backward(fixed: bool | None, residual: Any, cotangent: jax.Array) -> tuple[Any, ...]:
    z, kept, rows, bound = residual

    def shifted(kept: jax.Array) -> jax.Array:
        u = _per_sum(cotangent, rows, bound)
        return kept * (u[:, :, None] + u[:, None, :])

    def as_is(kept: jax.Array) -> jax.Array:
        level = _level(rows)
        share = jnp.exp(kept - level[:, :, None]) * cotangent[:, :, None]
        return share + jnp.exp(kept - level[:, None, :]) * cotangent[:, None, :]

    weight = _choose(fixed, bound, shifted, as_is, kept)
    return _numerics.inner("lij,ljd->lid", weight, z), None, None


_within.defvjp(_within_forward, _within_backward)


def _shifted(similarity: jax.Array, here: jax.Array, bound: jax.Array) -> tuple[jax.Array, jax.Array]:
    exponential = _exponential(similarity, here, bound)
    return exponential, _log_sum(exponential.sum(2), bound)


def _exponential(similarity: jax.Array, here: jax.Array | None, bound: jax.Array) -> jax.Array:
    # Masked before, not after: the exponentials are then the one large array that is kept.
    return jnp.exp((similarity if here is None else jnp.where(here, similarity, -jnp.inf)) - bound)


def _as_is(similarity: jax.Array, here: jax.Array, bound: jax.Array) -> tuple[jax.Array, jax.Array]:
    similarity = jnp.where(here, similarity, -jnp.inf)
    return similarity, _numerics.logsumexp(similarity, axis=2)


def _choose(fixed: bool | None, bound: jax.Array, if_fixed: Any, otherwise: Any, *operands: Any) -> Any:
    if fixed is None:
        limit = _FIXED_SHIFT_LIMIT[bound.dtype]
        return lax.cond(bound <= limit, if_fixed, otherwise, *operands)
    return (if_fixed if fixed else otherwise)(*operands)


def _log_sum(total: jax.Array, shift: jax.Array) -> jax.Array:
    some = total != 0
    return jnp.where(some, jnp.log(jnp.where(some, total, 1)) + shift, -jnp.inf)


def _level(rows: jax.Array) -> jax.Array:
    """A finite number to subtract where the sum is empty: exp(-inf - 0) = 0 there."""
    return jnp.where(rows == -jnp.inf, 0, rows)


def _per_sum(cotangent: jax.Array, rows: jax.Array, bound: jax.Array) -> jax.Array:
    """cotangent / (sum of shifted exponentials); zero for an empty sum."""
    some = rows != -jnp.inf
    return jnp.where(some, cotangent * jnp.exp(bound - jnp.where(some, rows, bound)), 0)


# The same with the rows of this device and the columns of all. View after view: one is gathered at a time,
# and its exponentials are taken again in the backward pass rather than kept. The symmetry still serves: this
# device's rows of `E * (u_i + u_j)` need only the other devices' u, so that no gradient is sent anywhere.


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _within_split(
    how: tuple[bool | None, str], z: jax.Array, keep: jax.Array | None, bound: jax.Array
) -> jax.Array:
    return _within_split_forward(how, z, keep, bound)[0]


def _within_split_forward(
    how: tuple[bool | None, str], z: jax.Array, keep: jax.Array | None, bound: jax.Array
) -> tuple[Any, Any]:
    fixed, axis = how

    def one(view: Any) -> jax.Array:
        similarity, here, _ = _own_rows(axis, *view)
        return _choose(fixed, bound, _shifted, _as_is, similarity[None], here[None], bound)[1][0]

    rows = lax.map(one, (z, keep))
    return rows, (z, keep, rows, bound)


def _within_split_backward(
    how: tuple[bool | None, str], residual: Any, cotangent: jax.Array
) -> tuple[Any, ...]:
    fixed, axis = how
    z, keep, rows, bound = residual

    def one(view: Any) -> jax.Array:
        z, keep, rows, cotangent = view
        similarity, here, every = _own_rows(axis, z, keep)
        level, all_levels = _level(rows), _numerics.gather(_level(rows), axis, 0)
        slope = jnp.where(rows == -jnp.inf, 0, cotangent)
        all_slopes = _numerics.gather(slope, axis, 0)

        def shifted(similarity: jax.Array) -> jax.Array:
            u, v = slope * jnp.exp(bound - level), all_slopes * jnp.exp(bound - all_levels)
            return _exponential(similarity, here, bound) * (u[:, None] + v[None, :])

        def as_is(similarity: jax.Array) -> jax.Array:
            similarity = jnp.where(here, similarity, -jnp.inf)
            share = jnp.exp(similarity - level[:, None]) * slope[:, None]
            return share + jnp.exp(similarity - all_levels[None, :]) * all_slopes[None, :]

        weight = _choose(fixed, bound, shifted, as_is, similarity)
        return _numerics.inner("ij,jd->id", weight, every)

    return lax.map(one, (z, keep, rows, cotangent)), None, None


def _own_rows(axis: str, z: jax.Array, keep: jax.Array | None) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Similarities of one view's vectors here with those everywhere, which count, and the latter."""
    every, n = _numerics.gather(z, axis, 0), z.shape[0]
    place = lax.axis_index(axis) * n + jnp.arange(n)
    here = place[:, None] != jnp.arange(every.shape[0])[None, :]
    if keep is not None:
        here = here & keep[:, None] & _numerics.gather(keep, axis, 0)[None, :]
    return _numerics.inner("id,jd->ij", z, every), here, every


_within_split.defvjp(_within_split_forward, _within_split_backward)


# ------------------------------------------------------------------ two sets


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _sums(
    tiles: Tiles,
    x: jax.Array,
    y: jax.Array,
    keep_x: jax.Array | None,
    keep_y: jax.Array | None,
    bound: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    """Row and column log-sum-exps; with an axis, the columns are those of y's rows on all devices."""
    return _sums_forward(tiles, x, y, keep_x, keep_y, bound)[0]


def _sums_forward(tiles: Tiles, x: Any, y: Any, keep_x: Any, keep_y: Any, bound: Any) -> tuple[Any, Any]:
    every, keep_every, offset = _everywhere(tiles, y, keep_y)
    kept: Any = None
    if tiles.block is None and tiles.axis is None:
        kept, rows, columns = _dense(tiles, x, every, keep_x, keep_every, bound, offset)
    elif tiles.block is None:
        # View after view of x with the one view of y, and nothing kept: see `_within_split`.
        pair = tiles._replace(pairs=((0, 0),))
        rows, columns = lax.map(
            lambda v: [a[0] for a in _dense(pair, v[0], every, v[1], keep_every, bound, offset)[1:]],
            _one_by_one(x, keep_x),
        )
    else:
        rows, columns = _choose(
            tiles.fixed,
            bound,
            partial(_streamed, tiles, True),
            partial(_streamed, tiles, False),
            *(x, every, keep_x, keep_every, bound, offset),
        )
    return (rows, columns), (x, y, keep_x, keep_y, bound, kept, rows, columns)


def _sums_backward(tiles: Tiles, residual: Any, cotangents: tuple[jax.Array, jax.Array]) -> tuple[Any, ...]:
    x, y, keep_x, keep_y, bound, kept, rows, columns = residual
    if tiles.axis is not None:
        # Else the compiler would keep what the forward pass gathered. (On CPU it does so behind a barrier, too.)
        y = y + jnp.where(rows[0, 0] == rows[0, 0], 0, jnp.nan).astype(y.dtype)
    every, keep_every, offset = _everywhere(tiles, y, keep_y)
    if tiles.block is None and tiles.axis is None:
        dx, dy = _dense_gradient(tiles, x, every, kept, bound, rows, columns, *cotangents)
    elif tiles.block is None:
        pair = tiles._replace(pairs=((0, 0),))

        def one(dy: jax.Array, view: Any) -> tuple[jax.Array, jax.Array]:
            (v, keep), *given = view
            again = _dense(pair, v, every, keep, keep_every, bound, offset)[0]
            dx, change = _dense_gradient(pair, v, every, again, bound, *(a[None] for a in given))
            return dy + change, dx[0]

        views = (_one_by_one(x, keep_x), rows, columns, *cotangents)
        dy, dx = lax.scan(one, _numerics.vary_as(jnp.zeros_like(every), cotangents[0]), views)
    else:
        dx, dy = _choose(
            tiles.fixed,
            bound,
            partial(_streamed_gradient, tiles, True),
            partial(_streamed_gradient, tiles, False),
            *(x, every, keep_x, keep_every, bound, offset, rows, columns, *cotangents),
        )
    if tiles.axis is not None:
        dy = lax.psum_scatter(dy[0], tiles.axis, scatter_dimension=0, tiled=True)[None]
    return dx, dy, None, None, None


def _one_by_one(x: jax.Array, keep: jax.Array | None) -> tuple[jax.Array, jax.Array | None]:
    return x[:, None], None if keep is None else keep[:, None]


def _everywhere(
    tiles: Tiles, y: jax.Array, keep_y: jax.Array | None
) -> tuple[jax.Array, jax.Array | None, jax.Array | None]:
    """All devices' vectors and flags, and where this device's rows begin among them."""
    if tiles.axis is None:
        return y, keep_y, None
    # Along the leading axis: along another, the compiler copies everything into another order first.
    keep = None if keep_y is None else _numerics.gather(keep_y[0], tiles.axis, 0)[None]
    return _numerics.gather(y[0], tiles.axis, 0)[None], keep, lax.axis_index(tiles.axis) * y.shape[1]


_sums.defvjp(_sums_forward, _sums_backward)


def _instance(tiles: Tiles, j: jax.Array, n: int) -> jax.Array:
    """Whose vectors these rows of y are, n instances to a set."""
    return j if tiles.axis is not None else j % n


def _here(
    tiles: Tiles, i: Any, j: Any, keep_x: jax.Array | None, keep_y: jax.Array | None
) -> jax.Array | None:
    """Which entries count, broadcastable to (..., rows, columns); None: all. i, j: global positions."""
    here = None
    if tiles.upper:
        here = j[None, :] > i[:, None]
    elif not tiles.diagonal:
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
            here = jnp.broadcast_to(_rank(here, len(shape)), shape) & _rank(keep, len(shape))
    return here


def _rank(a: jax.Array, rank: int) -> jax.Array:
    return a.reshape((1,) * (rank - a.ndim) + a.shape)


def _dense(
    tiles: Tiles, x: Any, y: Any, keep_x: Any, keep_y: Any, bound: Any, offset: Any
) -> tuple[Any, Any, Any]:
    left, right = _indices(tiles)
    similarity = _numerics.inner("pid,pjd->pij", _take(x, left), _take(y, right))
    i = jnp.arange(x.shape[1]) + (0 if offset is None else offset)
    here = _here(
        tiles,
        i,
        _instance(tiles, jnp.arange(y.shape[1]), x.shape[1]),
        None if keep_x is None else keep_x[left],
        None if keep_y is None else keep_y[right],
    )
    if here is not None:
        here = _rank(here, 3)

    def shifted(similarity: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        kept = _exponential(similarity, here, bound)
        rows = _log_sum(kept.sum(2), bound)
        return kept, rows, _log_sum(kept.sum(1), bound) if tiles.columns else jnp.zeros_like(rows)

    def as_is(similarity: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        kept = similarity if here is None else jnp.where(here, similarity, -jnp.inf)
        rows = _numerics.logsumexp(kept, axis=2)
        return kept, rows, _numerics.logsumexp(kept, axis=1) if tiles.columns else jnp.zeros_like(rows)

    return _choose(tiles.fixed, bound, shifted, as_is, similarity)


def _dense_gradient(
    tiles: Tiles, x: Any, y: Any, kept: Any, bound: Any, rows: Any, columns: Any, by_row: Any, by_column: Any
) -> tuple[jax.Array, jax.Array]:
    left, right = _indices(tiles)

    def shifted(kept: jax.Array) -> jax.Array:
        factor = _per_sum(by_row, rows, bound)[:, :, None]
        return kept * (factor + _per_sum(by_column, columns, bound)[:, None, :] if tiles.columns else factor)

    def as_is(kept: jax.Array) -> jax.Array:
        weight = jnp.exp(kept - _level(rows)[:, :, None]) * by_row[:, :, None]
        if tiles.columns:
            weight += jnp.exp(kept - _level(columns)[:, None, :]) * by_column[:, None, :]
        return weight

    weight = _choose(tiles.fixed, bound, shifted, as_is, kept)
    dx = _numerics.inner("pij,pjd->pid", weight, _take(y, right))
    dy = _transposed("pid,pij->pdj", _take(x, left), weight)
    return _add_at(x, left, dx), _add_at(y, right, dy)


def _indices(tiles: Tiles) -> tuple[np.ndarray, np.ndarray]:
    pairs = np.asarray(tiles.pairs).reshape(-1, 2)
    return pairs[:, 0], pairs[:, 1]


def _take(x: jax.Array, views: np.ndarray) -> jax.Array:
    """x[views], without a copy where that is x itself."""
    return x if np.array_equal(views, np.arange(x.shape[0])) else x[views]


def _add_at(like: jax.Array, views: np.ndarray, change: jax.Array) -> jax.Array:
    """The sum by view, as a product with zeros and ones: the compiler's scatter takes longer than the products.

    Slices that are added up by name took as long, and for eight views of two instances XLA's CPU compiler aborted.
    """
    if np.array_equal(views, np.arange(like.shape[0])):
        return change
    member = _numerics.vary_as(
        jnp.asarray(np.arange(like.shape[0])[:, None] == views[None, :], change.dtype), change
    )
    return _numerics.inner("vp,pnd->vnd", member, change)


def _transposed(subscripts: str, x: jax.Array, weight: jax.Array) -> jax.Array:
    """The product with the large matrix's transpose, written so that the large matrix is read in its own
    order.

    x^T W, then the small result transposed; the barrier keeps the compiler from turning it back into W^T x,
    which on CPU takes twice as long.
    """
    return jnp.swapaxes(lax.optimization_barrier(_numerics.inner(subscripts, x, weight)), -1, -2)


# ------------------------------------------------------------------ tile by tile


class _Grid(NamedTuple):
    """The tiles of all pairs, and padded arrays that they cut evenly."""

    steps: tuple[jax.Array, ...]  # (tiles,) each: pair, row view, column view, first row, first column
    x: jax.Array
    y: jax.Array
    keep_x: jax.Array | None
    keep_y: jax.Array | None
    rows: int  # of a tile
    columns: int
    instances: int


def _grid(tiles: Tiles, x: Any, y: Any, keep_x: Any, keep_y: Any) -> _Grid:
    n, m = x.shape[1], y.shape[1]
    rows = min(tiles.block or n, n)
    columns = min(max(rows, _TILE_COLUMNS), m)
    i, j = np.arange(0, n, rows), np.arange(0, m, columns)
    steps = [
        (p, l, r, a, b)
        for p, (l, r) in enumerate(tiles.pairs)
        for a in i
        for b in j
        if not tiles.upper or b + columns > a + 1
    ]
    pad_x, pad_y = -n % rows, -m % columns
    if pad_x:
        keep_x = jnp.ones(x.shape[:2], bool) if keep_x is None else keep_x
        x, keep_x = _pad(x, pad_x), _pad(keep_x, pad_x)
    if pad_y:
        keep_y = jnp.ones(y.shape[:2], bool) if keep_y is None else keep_y
        y, keep_y = _pad(y, pad_y), _pad(keep_y, pad_y)
    columns_of_steps = tuple(jnp.asarray(c, jnp.int32) for c in np.asarray(steps).T)
    return _Grid(columns_of_steps, x, y, keep_x, keep_y, rows, columns, n)


def _pad(x: jax.Array, rows: int) -> jax.Array:
    return jnp.pad(x, [(0, 0), (0, rows)] + [(0, 0)] * (x.ndim - 2))


def _cut(x: jax.Array, view: Any, first: Any, size: int) -> jax.Array:
    return lax.dynamic_slice(x, _start(x, view, first), (1, size) + x.shape[2:])[0]


def _start(x: jax.Array, view: Any, first: Any) -> tuple[Any, ...]:
    return (view, first) + (jnp.zeros((), jnp.int32),) * (x.ndim - 2)


def _paste(x: jax.Array, view: Any, first: Any, value: jax.Array) -> jax.Array:
    return lax.dynamic_update_slice(x, value[None], _start(x, view, first))


def _add(x: jax.Array, view: Any, first: Any, value: jax.Array) -> jax.Array:
    return _paste(x, view, first, _cut(x, view, first, value.shape[0]) + value)


def _tile(
    tiles: Tiles, g: _Grid, step: Any, offset: Any
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array | None]:
    _, l, r, a, b = step
    xs, ys = _cut(g.x, l, a, g.rows), _cut(g.y, r, b, g.columns)
    i = a + jnp.arange(g.rows) + (0 if offset is None else offset)
    j = _instance(tiles, b + jnp.arange(g.columns), g.instances)
    keep_x = None if g.keep_x is None else _cut(g.keep_x, l, a, g.rows)
    keep_y = None if g.keep_y is None else _cut(g.keep_y, r, b, g.columns)
    return xs, ys, _numerics.inner("id,jd->ij", xs, ys), _here(tiles, i, j, keep_x, keep_y)


def _streamed(
    tiles: Tiles, fixed: bool, x: Any, y: Any, keep_x: Any, keep_y: Any, bound: Any, offset: Any
) -> tuple[jax.Array, jax.Array]:
    g = _grid(tiles, x, y, keep_x, keep_y)
    count = len(tiles.pairs)

    def start(size: int, value: float) -> jax.Array:
        return _numerics.vary_as(jnp.full((count, size), value, x.dtype), x)

    def add_shifted(carry: Any, step: Any) -> tuple[Any, None]:
        rows, columns = carry
        p, _, _, a, b = step
        _, _, similarity, here = _tile(tiles, g, step, offset)
        exponential = _exponential(similarity, here, bound)
        rows = _add(rows, p, a, exponential.sum(1))
        return (rows, _add(columns, p, b, exponential.sum(0)) if tiles.columns else columns), None

    def add_as_is(carry: Any, step: Any) -> tuple[Any, None]:
        rows, columns = carry
        p, _, _, a, b = step
        _, _, similarity, here = _tile(tiles, g, step, offset)
        similarity = similarity if here is None else jnp.where(here, similarity, -jnp.inf)
        rows = _merge(rows, p, a, _numerics.logsumexp(similarity, axis=1))
        if tiles.columns:
            columns = _merge(columns, p, b, _numerics.logsumexp(similarity, axis=0))
        return (rows, columns), None

    value = 0.0 if fixed else -jnp.inf
    carry = start(g.x.shape[1], value), start(g.y.shape[1], value)
    (rows, columns), _ = lax.scan(add_shifted if fixed else add_as_is, carry, g.steps)
    rows, columns = rows[:, : x.shape[1]], columns[:, : y.shape[1]]
    if fixed:
        rows, columns = _log_sum(rows, bound), _log_sum(columns, bound)
    return rows, columns if tiles.columns else jnp.zeros_like(rows)


def _merge(levels: jax.Array, view: Any, first: Any, value: jax.Array) -> jax.Array:
    both = jnp.stack([_cut(levels, view, first, value.shape[0]), value])
    return _paste(levels, view, first, _numerics.logsumexp(both, axis=0))


def _streamed_gradient(
    tiles: Tiles,
    fixed: bool,
    x: Any,
    y: Any,
    keep_x: Any,
    keep_y: Any,
    bound: Any,
    offset: Any,
    rows: Any,
    columns: Any,
    by_row: Any,
    by_column: Any,
) -> tuple[jax.Array, jax.Array]:
    g = _grid(tiles, x, y, keep_x, keep_y)
    pad_x, pad_y = g.x.shape[1] - x.shape[1], g.y.shape[1] - y.shape[1]

    def of_rows(a: jax.Array) -> jax.Array:
        return _pad(a, pad_x) if pad_x else a

    def of_columns(a: jax.Array) -> jax.Array:
        return _pad(a, pad_y) if pad_y and tiles.columns else a

    if fixed:
        u, v = of_rows(_per_sum(by_row, rows, bound)), of_columns(_per_sum(by_column, columns, bound))
    else:
        u, v = of_rows(by_row), of_columns(by_column)
        row_level, column_level = of_rows(_level(rows)), of_columns(_level(columns))

    def step_back(carry: Any, step: Any) -> tuple[Any, None]:
        dx, dy = carry
        p, l, r, a, b = step
        xs, ys, similarity, here = _tile(tiles, g, step, offset)
        ui = _cut(u, p, a, g.rows)[:, None]
        vj = _cut(v, p, b, g.columns)[None, :] if tiles.columns else None
        if fixed:
            weight = _exponential(similarity, here, bound) * (ui if vj is None else ui + vj)
        else:
            similarity = similarity if here is None else jnp.where(here, similarity, -jnp.inf)
            weight = jnp.exp(similarity - _cut(row_level, p, a, g.rows)[:, None]) * ui
            if vj is not None:
                weight += jnp.exp(similarity - _cut(column_level, p, b, g.columns)[None, :]) * vj
        dx = _add(dx, l, a, _numerics.inner("ij,jd->id", weight, ys))
        change = _transposed("id,ij->dj", xs, weight)
        # The upper half is of a view with itself: both gradients are that view's.
        return ((_add(dx, r, b, change), dy) if tiles.upper else (dx, _add(dy, r, b, change))), None

    like = by_row
    start = [
        _numerics.vary_as(jnp.zeros_like(a), like) for a in (_longer(g.x, g.y) if tiles.upper else g.x, g.y)
    ]
    (dx, dy), _ = lax.scan(step_back, (start[0], None if tiles.upper else start[1]), g.steps)
    dy = jnp.zeros_like(y) if dy is None else dy[:, : y.shape[1]]
    return dx[:, : x.shape[1]], dy


def _longer(a: jax.Array, b: jax.Array) -> jax.Array:
    return a if a.shape[1] >= b.shape[1] else b  # padded to whole tiles, of rows or of columns
