"""Log-sum-exps of blocks of similarities: what the objectives spend their time on.

A block is the matrix of inner products of the n vectors of one view with those of another. docs/design/losses.md has
the rules that make it fast, all exact. The functions here choose between `whole` blocks (derivatives of both modes and
every order) and `tiled` ones (rows of a block at a time, or instances split over devices; reverse mode only).
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from mvcl import _numerics
from mvcl.losses._lse import tiled, whole
from mvcl.losses._lse.whole import Pairs, lse_union

# Similarities kept for the backward pass: 2^26 float32 are 256 MB. Above, blocks.
_DENSE_ENTRIES = 2**26
# Large blocks are taken one by one: each stays in the cache and frees its memory. Small ones all at once.
_LARGE_BLOCK = 2**17  # entries
_MOST_CHUNKS = 64  # each is compiled on its own


@dataclasses.dataclass(frozen=True)
class Vectors:
    """Embeddings that are ready for a formula, and how to compute with them."""

    z: jax.Array  # (k, n, d) float32 or wider; zero where `keep` is False
    keep: jax.Array | None  # (k, n) bool, None where all are there
    axis_name: str | None = None  # None for a queue, of which every device holds all
    block_size: int | None = None
    projected: bool = False  # onto the unit sphere, or means of such vectors: none is longer than 1
    # Of vectors whose inner products are similarities, which the functions here take: no product is larger than the
    # bound, a Python number where it is known before tracing; and further negatives, (1, q, d).
    bound: float | jax.Array = 1.0
    queue: "Vectors | None" = None


def within(v: Vectors) -> jax.Array:
    """`(k, n)`: the log-sum-exp over j != i of <z_li, z_lj>; -inf where nothing is there."""
    k, n, _ = v.z.shape
    block = block_rows(k, n, everywhere(n, v.axis_name), v.block_size)
    fixed, bound = whole.shift(v.bound, v.z)
    if v.axis_name is not None:
        if block is None:
            z = _sharded(v.z, v.axis_name)
            return tiled.sharded_within(fixed, v.axis_name, z, v.keep, bound)
        return across(v, v, tuple((l, l) for l in range(k)), diagonal=False, columns=False)[0]
    large = n * n >= _LARGE_BLOCK and k <= _MOST_CHUNKS
    views = _one_by_one(v.z, v.keep) if block is not None or large else [(v.z, v.keep)]
    if block is None:
        rows = [whole.either(fixed, bound, whole.whole_within, z, keep, bound) for z, keep in views]
        return rows[0] if len(rows) == 1 else jnp.concatenate(rows)
    # Half of each symmetric block, then both its rows' and its columns' share of every sum. View by view, so
    # that the backward pass holds the gradient of one at a time.
    halves = []
    for z, keep in views:
        half = whole.Operand(x=z, y=z, keep_x=keep, keep_y=keep, bound=bound, fixed=fixed)
        halves.append(_log_sums(dataclasses.replace(half, block=block, diagonal=False, upper=True)))
    return lse_union(*(jnp.concatenate(side) for side in list(zip(*halves))[::-1]))


def across(
    x: Vectors, y: Vectors, pairs: Pairs, *, diagonal: bool = True, columns: bool = True
) -> tuple[jax.Array, jax.Array]:
    """For each pair (l, m) of a view of x and one of y, `(len(pairs), n)` each: rows, and columns.

    Rows: log-sum-exp over j of <x_li, y_mj>, by i. Columns: over i, by j. `diagonal=False` leaves out j = i, and
    j = i + n, i + 2n, ... where the views of y are several sets of the n instances side by side.
    """
    largest, n = x.bound, x.z.shape[1]
    if y.bound is not x.bound:  # |<u, v>| <= |u| |v| <= max(|u|^2, |v|^2)
        numbers = isinstance(x.bound, float) and isinstance(y.bound, float)
        largest = max(x.bound, y.bound) if numbers else jnp.maximum(x.bound, y.bound)
    fixed, bound = whole.shift(largest, x.z)
    o = whole.Operand(
        x=x.z,
        y=_numerics.vary_as(y.z, x.z),
        keep_x=x.keep,
        keep_y=y.keep,
        bound=bound,
        pairs=pairs,
        diagonal=diagonal,
        columns=columns,
        block=block_rows(len(pairs), n, everywhere(y.z.shape[1], y.axis_name), x.block_size),
        fixed=fixed,
        axis=y.axis_name,
    )
    if o.axis is None:
        return _unsplit(o)
    rows, part = _split(o)
    return rows, over_devices(part, o.axis, n) if columns else part


def over_devices(part: jax.Array, axis_name: str, n: int) -> jax.Array:
    """`(..., n)`: the log-sum-exps of this device's n columns, from those over each device's rows of all columns."""
    top = whole.finite_level(lax.pmax(lax.stop_gradient(part), axis_name))
    there = part != -jnp.inf
    total = lax.psum(jnp.where(there, jnp.exp(jnp.where(there, part, 0) - top), 0), axis_name)
    every = _numerics.vary_as(whole.log_sum(total, top), part)
    return lax.dynamic_slice_in_dim(every, lax.axis_index(axis_name) * n, n, axis=-1)


def against_all(x: Vectors, y: Vectors) -> jax.Array:
    """`(k, n)`: the log-sum-exp over every view m of y and all j != i of <x_li, y_mj>."""
    k, n, d = x.z.shape
    if x.axis_name is None and n * n < _LARGE_BLOCK:
        # All views of y side by side: one product for each view of x, not one for each pair of views.
        keep = None if y.keep is None else y.keep.reshape(1, -1)
        flat = dataclasses.replace(y, z=y.z.reshape(1, -1, d), keep=keep)
        return across(x, flat, tuple((l, 0) for l in range(k)), diagonal=False, columns=False)[0]
    pairs = tuple((l, m) for l in range(k) for m in range(y.z.shape[0]))
    rows, _ = across(x, y, pairs, diagonal=False, columns=False)
    return _numerics.logsumexp(rows.reshape(k, -1, n), axis=1)


def block_rows(pairs: int, n: int, m: int, block_size: int | None) -> int | None:
    """Rows of a tile; None where all blocks are small enough to be kept whole."""
    if block_size is None:
        return None if pairs * n * m <= _DENSE_ENTRIES else min(n, tiled.TILE_COLUMNS)
    return None if block_size >= n else block_size


def everywhere(n: int, axis_name: str | None) -> int:
    """The instances of all devices, n of each."""
    return n * (1 if axis_name is None else lax.axis_size(axis_name))


def _unsplit(o: whole.Operand) -> whole.LogSums:
    """Rows and columns of blocks that are whole on this device."""
    large = o.x.shape[1] * o.y.shape[1] >= _LARGE_BLOCK and len(o.pairs) <= _MOST_CHUNKS
    if o.block is None and large:
        xs = _one_by_one(o.x, o.keep_x)
        ys = xs if o.y is o.x else _one_by_one(o.y, o.keep_y)
        found = [_log_sums(_of_views(o, xs[l], ys[r], ((0, 0),))) for l, r in o.pairs]
        return whole.LogSums(*(jnp.concatenate(side) for side in zip(*found)))
    left, right = sorted({l for l, _ in o.pairs}), sorted({r for _, r in o.pairs})
    renamed = tuple((left.index(l), right.index(r)) for l, r in o.pairs)
    return _log_sums(_of_views(o, _some(o.x, o.keep_x, left), _some(o.y, o.keep_y, right), renamed))


def _split(o: whole.Operand) -> tuple[jax.Array, jax.Array]:
    """Rows of this device's vectors, and its share of the columns `(len(pairs), n of all devices)`.

    One view of y is gathered at a time, and once more in the backward pass.
    """
    found: dict[tuple[int, int], tuple[jax.Array, jax.Array]] = {}
    y_views = _one_by_one(o.y, o.keep_y)
    for view in sorted({r for _, r in o.pairs}):
        left = [l for l, r in o.pairs if r == view]
        one = _of_views(o, _some(o.x, o.keep_x, left), y_views[view], tuple((i, 0) for i in range(len(left))))
        one = dataclasses.replace(one, x=_sharded(one.x, o.axis), y=_sharded(one.y, o.axis))
        sums = tiled.tiled_sums(one)
        found |= {(l, view): (sums.rows[i], sums.columns[i]) for i, l in enumerate(left)}
    rows, columns = zip(*(found[p] for p in o.pairs))
    return jnp.stack(rows), jnp.stack(columns)


def _log_sums(o: whole.Operand) -> whole.LogSums:
    if o.block is None:
        return whole.whole_sums(o)
    n = o.x.shape[1]
    why = f"blocks of {o.block} of {n} rows", f"pass block_size={n} if they fit into memory"
    x = reverse_only(o.x, *why)
    y = x if o.upper else reverse_only(o.y, *why)
    return tiled.tiled_sums(dataclasses.replace(o, x=x, y=y))


def reverse_only(
    a: jax.Array, how: str = "blocks of rows", change: str = "pass a block_size of all rows"
) -> jax.Array:
    """a; its forward-mode derivative, if it has floating numbers, raises an error."""
    if not jnp.issubdtype(a.dtype, jnp.floating):
        return a
    return _numerics.reverse_only(
        a,
        "forward-mode derivatives (jax.jvp, jacfwd, hessian) need whole blocks of similarities on one device; "
        f"got {how}. Use jax.grad, or {change}.",
    )


def _sharded(z: jax.Array, axis: str | None) -> jax.Array:
    return reverse_only(z, f"instances split over mesh axis {axis!r}", "compute the loss without axis_name")


Kept = tuple[jax.Array, jax.Array | None]  # vectors, and which are there


def _of_views(o: whole.Operand, x: Kept, y: Kept, pairs: Pairs) -> whole.Operand:
    return dataclasses.replace(o, x=x[0], keep_x=x[1], y=y[0], keep_y=y[1], pairs=pairs)


def _one_by_one(z: jax.Array, keep: jax.Array | None) -> list[Kept]:
    """Each view on its own. The gradient of a split is one concatenation, that of k slices k padded arrays."""
    ones = (1,) * z.shape[0]
    return list(zip(lax.split(z, ones), [None] * len(ones) if keep is None else lax.split(keep, ones)))


def _some(z: jax.Array, keep: jax.Array | None, views: list[int]) -> Kept:
    if len(views) == z.shape[0]:
        return z, keep
    together = views[-1] - views[0] == len(views) - 1
    some = slice(views[0], views[-1] + 1) if together else np.asarray(views)
    return z[some], None if keep is None else keep[some]
