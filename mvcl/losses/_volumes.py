"""GRAM and TRIANGLE: cross-entropies of the rows and columns of a matrix of volumes or areas."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike

from mvcl import _checks, _numerics
from mvcl.losses import _embeddings as emb
from mvcl.losses import _lse
from mvcl.losses._declaration import declare
from mvcl.losses._lse.whole import either, finite_level, fixed_shift, log_sum

__all__ = ["gram", "triangle"]

Arrays = tuple[jax.Array, ...]
# entry(rows, columns, shared) -> (r, m) logits, from arrays whose first axis is r, arrays whose first axis is m, and
# scalars. It must not close over what is differentiated, and must be finite where all its arrays are zero.
Entry = Callable[[Arrays, Arrays, Arrays], jax.Array]


class _Logits(NamedTuple):
    """The matrix of logits, row by row and column by column of the instances of this device."""

    entry: Entry
    rows: Arrays  # (n, ...) each
    columns: Arrays  # (n, ...) each
    shared: Arrays  # scalars
    own: jax.Array  # (n,): the diagonal, which `entry` need not give
    keep_rows: jax.Array | None  # (n,) bool, None where all are there
    keep_columns: jax.Array | None
    bound: float | None  # no logit is above 0 or below -bound; None where that is not known before tracing


@declare()
def gram(
    z: ArrayLike,
    temperature: ArrayLike = 0.07,
    anchor: int = 0,
    label_smoothing: float = 0.0,
    eps: ArrayLike = 1e-8,
    *,
    normalize: bool = True,
    mask: ArrayLike | None = None,
    axis_name: str | None = None,
    block_size: int | None = None,
) -> jax.Array:
    """GRAM: the anchor view of an instance spans a small volume with the other views of it, a large one with others'.

        ½ mean_i [ V_ii / temperature + LSE_j -V_ij / temperature ]
          + ½ mean_j [ V_jj / temperature + LSE_i -V_ij / temperature ],   V_ij = sqrt(max(det G_ij, 0) + eps)

    G_ij is the k x k Gram matrix of view `anchor` of instance i and the other views of instance j. Cicchetti 2024
    (arXiv 2412.11959). The released code has sqrt(|det G|) without eps, whose gradient is not finite at a volume of
    zero, and smooths labels by 0.1: `label_smoothing=0.1` gives its value up to sqrt(eps) / temperature. It takes the
    determinant of G in float32, which has no digits left where views nearly coincide. Here
    `det G_ij = det G_j (|a_i|² - Σ_q <a_i, q>²)` over an orthonormal basis q of the other views of j, found once by
    instance, and V_ii comes from what the basis leaves of a_i, which keeps the digits of both. A volume does not tell a
    vector from its negative.

    Cost: (k - 1) n² d multiply-adds in the forward pass.

    Args:
      z: (k, n, d) views.
      temperature: positive divisor of the volumes, no unit.
      anchor: the view, 0 to k - 1, that is compared with all others together.
      label_smoothing: s in [0, 1]: the label is 1 - s on the own instance plus s / n on every instance.
      eps: positive number under the root, which bounds the gradient where the volume is zero.
      mask: V_ij is then the volume of the anchor of i and the views that j has. i runs over the instances that have the
        anchor, j over those with another view, the means over those with both.

    Returns:
      Scalar, float32 or wider. Where all vectors coincide it is log(n), the chance level.
    """
    e = emb.embedded(z, normalize, mask, axis_name, block_size)
    t = _checks.scalar("temperature", temperature, e.z.dtype, positive=True)
    small = _checks.scalar("eps", eps, e.z.dtype, positive=True)
    share = _smoothing(label_smoothing)
    k = e.z.shape[0]
    of_anchor = _checks.whole("anchor", anchor, 0)
    if of_anchor >= k:
        raise ValueError(f"anchor must be a view, 0 to {k - 1}, got {anchor!r}")
    others = [l for l in range(k) if l != of_anchor]
    a = e.z[of_anchor]
    basis, volume = _basis(e, others)
    left = _numerics.orthogonal_part(a, basis)
    logits = _Logits(
        entry=_entry,
        rows=(a, jnp.sum(a * a, axis=1)),
        columns=(*basis, volume),
        shared=(t, small),
        own=_logit(volume * jnp.sum(left * left, axis=1), t, small),
        keep_rows=None if e.keep is None else e.keep[of_anchor],
        keep_columns=None if e.keep is None else jnp.stack([e.keep[l] for l in others]).any(0),
        bound=_bound(1.0, temperature, eps) if normalize else None,
    )
    return _cross_entropy(logits, share, axis_name, block_size)


def _entry(rows: Arrays, columns: Arrays, shared: Arrays) -> jax.Array:
    (a, square), (*basis, volume) = rows, columns
    inside = [_numerics.products(a[None], q[None])[0] ** 2 for q in basis]
    outside = square[:, None] - sum(inside[1:], inside[0])
    return _logit(volume[None, :] * outside, *shared)


def _logit(determinant: jax.Array, temperature: jax.Array, eps: jax.Array) -> jax.Array:
    return -jnp.sqrt(jnp.maximum(determinant, 0) + eps) / temperature


def _basis(e: emb.Embedded, views: list[int]) -> tuple[list[jax.Array], jax.Array]:
    """(n, d) orthonormal vectors that span the views of each instance, and the square of the volume of these.

    A view that lies in the span of those before it adds a vector of zeros, and so does one that is not there.
    """
    basis: list[jax.Array] = []
    volume = jnp.ones(e.z.shape[1], e.z.dtype)
    rounding = (8 * jnp.finfo(e.z.dtype).eps) ** 2
    for l in views:
        left = _numerics.orthogonal_part(e.z[l], basis)
        square = jnp.sum(left * left, axis=1)
        outside = square > rounding * jnp.sum(e.z[l] * e.z[l], axis=1)
        basis.append(_numerics.unit(jnp.where(outside[:, None], left, 0)))
        volume = volume * (square if e.keep is None else jnp.where(e.keep[l], square, 1))
    return basis, volume


@declare(views=3)
def triangle(
    z: ArrayLike,
    temperature: ArrayLike = 0.07,
    squared: bool = False,
    eps: ArrayLike = 1e-8,
    *,
    label_smoothing: float = 0.0,
    normalize: bool = True,
    mask: ArrayLike | None = None,
    axis_name: str | None = None,
    block_size: int | None = None,
) -> jax.Array:
    """TRIANGLE: the three views of an instance are the corners of a small triangle, a view and two of others not.

        ½ mean_i [ A_ii / temperature + LSE_j -A_ij / temperature ]
          + ½ mean_j [ A_jj / temperature + LSE_i -A_ij / temperature ]
        A_ij = ½ sqrt(max(|u|² |v|² - <u, v>², 0) + eps),   u = a_i - b_j,   v = a_i - c_j

    a, b and c are the views in order. Cicchetti 2025 (arXiv 2509.24734). The released code leaves out the root,
    ½ (|u|² |v|² - <u, v>²), and smooths labels by 0.1: `squared=True, label_smoothing=0.1` gives its numbers. Here
    |u|² |v|² - <u, v>² is |c_j - b_j|² times the squared distance of a_i from the line through b_j and c_j: two
    products, no (n, n, d) array, and A_ii from the vector of that distance.

    Cost: 2 n² d multiply-adds in the forward pass.

    Args:
      z: (3, n, d) views.
      temperature: positive divisor of the areas, no unit.
      squared: ½ (|u|² |v|² - <u, v>²) in place of the area, without eps.
      eps: positive number under the root, which bounds the gradient where the area is zero.
      label_smoothing: s in [0, 1]: the label is 1 - s on the own instance plus s / n on every instance.
      mask: i runs over the instances that have a, j over those that have b and c, the means over those that have all
        three.

    Returns:
      Scalar, float32 or wider. Where all vectors coincide it is log(n), the chance level.
    """
    e = emb.embedded(z, normalize, mask, axis_name, block_size)
    if e.z.shape[0] != 3:
        raise ValueError(f"z must have shape (3, n, d), got {e.z.shape}")
    t = _checks.scalar("temperature", temperature, e.z.dtype, positive=True)
    small = _checks.scalar("eps", eps, e.z.dtype, positive=True)
    share = _smoothing(label_smoothing)
    a, b, c = e.z
    side = c - b
    direction = _numerics.unit(side)
    foot = _numerics.orthogonal_part(b, [direction])
    height = _numerics.orthogonal_part(a - b, [direction])
    base = jnp.sum(side * side, axis=1)
    logit = _half_square if squared else _area
    logits = _Logits(
        entry=_half_squares if squared else _areas,
        rows=(a, jnp.sum(a * a, axis=1)),
        columns=(direction, foot, jnp.sum(foot * foot, axis=1), base),
        shared=(t, small),
        own=logit(base * jnp.sum(height * height, axis=1), t, small),
        keep_rows=None if e.keep is None else e.keep[0],
        keep_columns=None if e.keep is None else e.keep[1] & e.keep[2],
        bound=_bound(3.375 if squared else 1.3, temperature, eps) if normalize else None,
    )
    return _cross_entropy(logits, share, axis_name, block_size)


def _area(determinant: jax.Array, temperature: jax.Array, eps: jax.Array) -> jax.Array:
    return -0.5 * jnp.sqrt(jnp.maximum(determinant, 0) + eps) / temperature


def _half_square(determinant: jax.Array, temperature: jax.Array, eps: jax.Array) -> jax.Array:
    return -0.5 * determinant / temperature


def _determinants(rows: Arrays, columns: Arrays) -> jax.Array:
    (a, square), (direction, foot, foot_square, base) = rows, columns
    along = _numerics.products(a[None], direction[None])[0]
    to_foot = _numerics.products(a[None], foot[None])[0]
    distance = square[:, None] - along * along - 2 * to_foot + foot_square[None, :]
    return base[None, :] * distance


def _areas(rows: Arrays, columns: Arrays, shared: Arrays) -> jax.Array:
    return _area(_determinants(rows, columns), *shared)


def _half_squares(rows: Arrays, columns: Arrays, shared: Arrays) -> jax.Array:
    return _half_square(_determinants(rows, columns), *shared)


class _LineSums(NamedTuple):
    """Log-sum-exps and sums of the lines of the matrix, its rows and columns, without its diagonal."""

    rows: jax.Array  # (n,)
    columns: jax.Array  # (m,)
    row_sums: jax.Array
    column_sums: jax.Array


def _smoothing(value: float) -> float:
    """A checked `label_smoothing`."""
    share = _checks.real("label_smoothing", value)
    if not 0 <= share <= 1:
        raise ValueError(f"label_smoothing must be in [0, 1], got {value!r}")
    return share


def _cross_entropy(
    logits: _Logits, label_smoothing: float, axis_name: str | None, block_size: int | None
) -> jax.Array:
    """½ [mean over rows + mean over columns] of the cross-entropy whose label is the own instance.

    With `label_smoothing` s the label is 1 - s on the own instance plus s / m on each of the m that are there. The
    means are over the instances that have a row and a column.
    """
    o, both = logits, None
    found = _line_sums(o, axis_name, block_size)
    if o.keep_rows is not None and o.keep_columns is not None:
        both = o.keep_rows & o.keep_columns
    total = 0.5 * (emb.lse_union(found.rows, o.own) + emb.lse_union(found.columns, o.own)) - o.own
    if label_smoothing:
        of_row = (found.row_sums + o.own) / _count(o.keep_columns, o.own, axis_name)
        of_column = (found.column_sums + o.own) / _count(o.keep_rows, o.own, axis_name)
        total = total + label_smoothing * (o.own - 0.5 * (of_row + of_column))
    return _numerics.mean_where(total, both, axis_name)


def _count(keep: jax.Array | None, own: jax.Array, axis_name: str | None) -> jax.Array:
    if keep is None:
        return jnp.asarray(emb.instances_everywhere(own[None], axis_name), own.dtype)
    count = jnp.sum(keep, dtype=own.dtype)
    return jnp.maximum(count if axis_name is None else lax.psum(count, axis_name), 1)


class _Rows(NamedTuple):
    """Some rows of the matrix and all its columns."""

    rows: Arrays  # (r, ...) each
    columns: Arrays  # (m, ...) each
    shared: Arrays
    first: jax.Array  # position of the first row among the rows of all devices
    keep_rows: jax.Array | None
    keep_columns: jax.Array | None


def _line_sums(o: _Logits, axis_name: str | None, block_size: int | None) -> _LineSums:
    n = o.own.shape[0]
    first = jnp.zeros((), jnp.int32) if axis_name is None else lax.axis_index(axis_name) * n
    columns = tuple(_numerics.gather(c, axis_name, 0) for c in o.columns)
    keep_columns = None if o.keep_columns is None else _numerics.gather(o.keep_columns, axis_name, 0)
    whole = _Rows(o.rows, columns, o.shared, first, o.keep_rows, keep_columns)
    # About as many (n, m) arrays are kept as there are columns.
    block = _lse.block_rows(len(columns), n, columns[0].shape[0], block_size)
    if block is None:
        matrix, here = o.entry(*whole[:3]), _here(whole)
        half = 0.5 * (o.bound or -jnp.min(jnp.where(here, _numerics.constant(matrix), 0)))
        found = either(fixed_shift(half, o.own.dtype), jnp.asarray(half), _of_matrix, matrix, here)
    else:
        rows, columns, shared = jax.tree.map(
            lambda a: _numerics.vary_as(emb.reverse_only(a), o.own), whole[:3]
        )
        fixed = o.bound is not None and bool(fixed_shift(0.5 * o.bound, o.own.dtype))
        found = _streamed(o.entry, fixed, block, whole._replace(rows=rows, columns=columns, shared=shared))
    if axis_name is None:
        return found
    sums = lax.psum(found.column_sums, axis_name)
    mine = lax.dynamic_slice_in_dim(_numerics.vary_as(sums, o.own), first, n)
    return found._replace(columns=_lse.over_devices(found.columns, axis_name, n), column_sums=mine)


def _here(o: _Rows) -> jax.Array:
    """(r, m): which entries count, none of the diagonal."""
    r, m = o.rows[0].shape[0], o.columns[0].shape[0]
    here = o.first + jnp.arange(r)[:, None] != jnp.arange(m)[None, :]
    here = here if o.keep_rows is None else here & o.keep_rows[:, None]
    return here if o.keep_columns is None else here & o.keep_columns[None, :]


def _bound(largest: float, temperature: ArrayLike, eps: ArrayLike) -> float | None:
    """sqrt(largest² + eps) / temperature, None where these are arrays."""
    if isinstance(temperature, jax.Array) or isinstance(eps, jax.Array):
        return None
    return math.hypot(largest, math.sqrt(float(eps))) / float(temperature)  # type: ignore[arg-type]


def _of_matrix(fixed: bool, logits: jax.Array, here: jax.Array) -> _LineSums:
    """`here`: which count. `fixed`: no exponential needs the maximum of its row or column."""
    masked, there = jnp.where(here, logits, -jnp.inf), jnp.where(here, logits, 0)
    if not fixed:
        rows, columns = (_numerics.logsumexp(masked, axis=axis) for axis in (1, 0))
    else:  # the gradient is then one product of these exponentials with u_i + v_j
        entries = jnp.exp(masked)
        rows, columns = (log_sum(entries.sum(a), jnp.zeros((), entries.dtype)) for a in (1, 0))
    return _LineSums(rows, columns, there.sum(1), there.sum(0))


@partial(jax.custom_vjp, nondiff_argnums=(0, 1, 2))
def _streamed(entry: Entry, fixed: bool, block: int, o: _Rows) -> _LineSums:
    """So many rows of the matrix at a time; each is computed again in the backward pass."""
    n, m = o.rows[0].shape[0], o.columns[0].shape[0]

    def step(carry: Arrays, at: Any) -> tuple[Arrays, Arrays]:
        part = _part(o, at)
        found = _of_matrix(fixed, entry(*part[:3]), _here(part))
        levels, sums = carry
        return (emb.lse_union(levels, found.columns), sums + found.column_sums), (found.rows, found.row_sums)

    start = tuple(_numerics.vary_as(jnp.full(m, a, o.rows[0].dtype), o.rows[0]) for a in (-jnp.inf, 0))
    carry, of_rows = lax.scan(step, start, _cut(o, block))
    levels, sums = (a.reshape(-1)[:n] for a in of_rows)
    return _LineSums(levels, carry[0], sums, carry[1])


def _streamed_forward(
    entry: Entry, fixed: bool, block: int, o: _Rows
) -> tuple[_LineSums, tuple[_Rows, _LineSums]]:
    found = _streamed(entry, fixed, block, o)
    return found, (o, found)


def _streamed_backward(
    entry: Entry, fixed: bool, block: int, residual: tuple[_Rows, _LineSums], by: _LineSums
) -> tuple[_Rows]:
    o, found = residual
    n = o.rows[0].shape[0]
    level = finite_level(found.columns)

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
    slopes = tuple(emb.in_blocks(a, block) for a in (finite_level(found.rows), by.rows, by.row_sums))
    (by_columns, by_shared), by_rows = lax.scan(step, zeros, (_cut(o, block), slopes))
    by_rows = jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:])[:n], by_rows)
    return (_Rows(by_rows, by_columns, by_shared, None, None, None),)  # type: ignore[arg-type]


_streamed.defvjp(_streamed_forward, _streamed_backward)

_Block = tuple[Arrays, jax.Array, jax.Array]  # rows, the position of the first, which are there


def _cut(o: _Rows, block: int) -> _Block:
    """The rows in blocks, for a loop over them."""
    n = o.rows[0].shape[0]
    there = _numerics.vary_as(jnp.ones(n, bool), o.rows[0]) if o.keep_rows is None else o.keep_rows
    starts = o.first + jnp.arange(0, n, block, dtype=o.first.dtype)
    return tuple(emb.in_blocks(a, block) for a in o.rows), starts, emb.in_blocks(there, block)


def _part(o: _Rows, at: _Block) -> _Rows:
    rows, first, there = at
    return o._replace(rows=rows, first=first, keep_rows=there)
