"""GRAM and TRIANGLE: cross-entropies of the rows and columns of a matrix of volumes or areas."""

import math
from collections.abc import Callable
from functools import partial, reduce
from typing import Unpack

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike

from mvcl import _checks, _numerics
from mvcl.losses import _embeddings as emb
from mvcl.losses import _lse
from mvcl.losses._declaration import Shared, declare
from mvcl.losses._lse import Vectors, lse_union
from mvcl.losses._lse.whole import either, finite_level, log_sum, shift

__all__ = ["gram", "triangle"]

Arrays = tuple[jax.Array, ...]
# determinants(rows, columns) -> (r, m), from arrays whose first axis is r and arrays whose first axis is m; and
# logit(determinants, *shared). Neither closes over what is differentiated; both are finite where all arrays are zero.
Entry = tuple[Callable[[Arrays, Arrays], jax.Array], Callable[..., jax.Array]]


@declare()
def gram(
    z: ArrayLike,
    temperature: ArrayLike = 0.07,
    anchor: int = 0,
    label_smoothing: float = 0.0,
    eps: ArrayLike = 1e-8,
    **shared: Unpack[Shared],
) -> jax.Array:
    """GRAM: the anchor view of an instance spans a small volume with the other views of it, a large one with others'.

        ½ mean_i [ V_ii / temperature + LSE_j -V_ij / temperature ]
          + ½ mean_j [ V_jj / temperature + LSE_i -V_ij / temperature ],   V_ij = sqrt(max(det G_ij, 0) + eps)

    G_ij is the k x k Gram matrix of view `anchor` of instance i and the other views of instance j. Cicchetti 2024
    (arXiv 2412.11959). The released code has sqrt(|det G|) without eps, whose gradient is not finite at a volume of
    zero, and smooths labels by 0.1: `label_smoothing=0.1` gives its value up to sqrt(eps) / temperature. Here
    `det G_ij = det G_j (|a_i|² - Σ_q <a_i, q>²)` over an orthonormal basis q of the other views of j, and V_ii comes
    from what the basis leaves of a_i, which keeps its digits. A volume does not tell a vector from its negative.

    Cost: (k - 1) n² d multiply-adds in the forward pass.

    Args:
      anchor: the view, 0 to k - 1, that is compared with all others together.
      label_smoothing: s in [0, 1]: the label is 1 - s on the own instance plus s / n on every instance.
      eps: positive number under the root, which bounds the gradient where the volume is zero.
      mask: V_ij is then the volume of the anchor of i and the views that j has. i runs over the instances that have the
        anchor, j over those with another view, the means over those with both.

    Returns:
      Scalar, float32 or wider. Where all vectors coincide it is log(n), the chance level.
    """
    e = emb.embedded(z, **shared)
    k = e.z.shape[0]
    of_anchor = _checks.whole("anchor", anchor, 0)
    if of_anchor >= k:
        raise ValueError(f"anchor must be a view, 0 to {k - 1}, got {anchor!r}")
    others = [l for l in range(k) if l != of_anchor]
    a = e.z[of_anchor]
    basis, volume = _basis(e, others)
    left = _numerics.orthogonal_part(a, basis)
    return _cross_entropy(
        (_determinants_by_basis, partial(_minus_root, 1.0)),
        e,
        (a, jnp.sum(a * a, axis=1)),
        (*basis, volume),
        own=volume * jnp.sum(left * left, axis=1),
        keeps=(None, None) if e.keep is None else (e.keep[of_anchor], e.keep[jnp.asarray(others)].any(0)),
        largest=1.0,
        temperature=temperature,
        eps=eps,
        label_smoothing=label_smoothing,
    )


def _determinants_by_basis(rows: Arrays, columns: Arrays) -> jax.Array:
    (a, square), (*basis, volume) = rows, columns
    inside = reduce(jnp.add, [_numerics.products(a[None], q[None])[0] ** 2 for q in basis])
    return volume[None, :] * (square[:, None] - inside)


def _minus_root(factor: float, determinant: jax.Array, temperature: jax.Array, eps: jax.Array) -> jax.Array:
    return -factor * jnp.sqrt(jnp.maximum(determinant, 0) + eps) / temperature


def _basis(e: Vectors, views: list[int]) -> tuple[list[jax.Array], jax.Array]:
    """(n, d) vectors that span the views of each instance, orthonormal or zero, and the square of their volume."""
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
    **shared: Unpack[Shared],
) -> jax.Array:
    """TRIANGLE: the three views of an instance are the corners of a small triangle, a view and two of others not.

        ½ mean_i [ A_ii / temperature + LSE_j -A_ij / temperature ]
          + ½ mean_j [ A_jj / temperature + LSE_i -A_ij / temperature ]
        A_ij = ½ sqrt(max(|u|² |v|² - <u, v>², 0) + eps),   u = a_i - b_j,   v = a_i - c_j

    a, b and c are the views in order. Cicchetti 2025 (arXiv 2509.24734). The released code leaves out the root and
    smooths labels by 0.1: `squared=True, label_smoothing=0.1` gives its numbers. Here |u|² |v|² - <u, v>² is
    |c_j - b_j|² times the squared distance of a_i from the line through b_j and c_j.

    Cost: 2 n² d multiply-adds in the forward pass.

    Args:
      z: (3, n, d) views.
      squared: ½ (|u|² |v|² - <u, v>²) in place of the area, without eps.
      eps: positive number under the root, which bounds the gradient where the area is zero.
      label_smoothing: as in `gram`.
      mask: i runs over the instances that have a, j over those that have b and c, the means over those with all three.

    Returns:
      Scalar, float32 or wider. Where all vectors coincide it is log(n), the chance level.
    """
    e = emb.embedded(z, **shared)
    if e.z.shape[0] != 3:
        raise ValueError(f"z must have shape (3, n, d), got {e.z.shape}")
    a, b, c = e.z
    side = c - b
    direction = _numerics.unit(side)
    foot = _numerics.orthogonal_part(b, [direction])
    height = _numerics.orthogonal_part(a - b, [direction])
    base = jnp.sum(side * side, axis=1)
    logit: Callable[..., jax.Array] = (lambda d, t, _: -0.5 * d / t) if squared else partial(_minus_root, 0.5)
    return _cross_entropy(
        (_determinants_by_distance, logit),
        e,
        (a, jnp.sum(a * a, axis=1)),
        (direction, foot, jnp.sum(foot * foot, axis=1), base),
        own=base * jnp.sum(height * height, axis=1),
        keeps=(None, None) if e.keep is None else (e.keep[0], e.keep[1] & e.keep[2]),
        largest=3.375 if squared else 1.3,
        temperature=temperature,
        eps=eps,
        label_smoothing=label_smoothing,
    )


def _determinants_by_distance(rows: Arrays, columns: Arrays) -> jax.Array:
    (a, square), (direction, foot, foot_square, base) = rows, columns
    along = _numerics.products(a[None], direction[None])[0]
    to_foot = _numerics.products(a[None], foot[None])[0]
    return base[None, :] * (square[:, None] - along * along - 2 * to_foot + foot_square[None, :])


def _cross_entropy(
    entry: Entry,
    e: Vectors,
    rows: Arrays,
    columns: Arrays,
    *,
    own: jax.Array,
    keeps: tuple[jax.Array | None, jax.Array | None],
    largest: float,
    temperature: ArrayLike,
    eps: ArrayLike,
    label_smoothing: float,
) -> jax.Array:
    """½ [mean over rows + mean over columns] of the cross-entropy whose label is the own instance, over the instances
    that have a row and a column, which `keeps` say; `rows` and `columns`, arrays (n, ...), are those of `entry`.

    `own` are the (n,) determinants of the diagonal, where those of `entry` need not be right; of unit vectors no -logit
    without eps is larger than `largest` at temperature 1.
    """
    share = _checks.real("label_smoothing", label_smoothing)
    if not 0 <= share <= 1:
        raise ValueError(f"label_smoothing must be in [0, 1], got {label_smoothing!r}")
    dtype, axis = e.z.dtype, e.axis_name
    t = _checks.scalar("temperature", temperature, dtype, positive=True)
    shared = t, _checks.scalar("eps", eps, dtype, positive=True)
    known = e.projected and not isinstance(temperature, jax.Array) and not isinstance(eps, jax.Array)
    bound = math.hypot(largest, math.sqrt(float(eps))) / float(temperature) if known else None  # type: ignore[arg-type]
    diagonal, like, n = entry[1](own, *shared), rows[1], len(own)
    first = jnp.zeros((), jnp.int32) if axis is None else lax.axis_index(axis) * n
    columns = tuple(_numerics.gather(c, axis, 0) for c in columns)
    m = len(columns[0])
    there = [_numerics.vary_as(jnp.ones(n, bool), like) if keep is None else keep for keep in keeps]
    places = (first + jnp.arange(n), there[0]), (jnp.arange(m), _numerics.gather(there[1], axis, 0))
    # Log-sum-exps of the rows, (n,), and of the columns, and their sums, all without the diagonal. About as many (n, m)
    # arrays are kept as there are columns.
    block = _lse.block_rows(len(columns), n, m, e.block_size)
    if block is None:
        matrix, here = entry[1](entry[0](rows, columns), *shared), _here(*places)
        half = 0.5 * (bound or -jnp.min(jnp.where(here, _numerics.constant(matrix), 0)))
        of_rows, of_columns, row_sums, column_sums = either(*shift(half, like), _of_matrix, matrix, here)
    else:
        arrays = jax.tree.map(lambda a: _numerics.vary_as(a, like), (rows, columns, shared))
        fixed = bound is not None and bool(shift(0.5 * bound, like)[0])
        of_rows, of_columns, row_sums, column_sums = _streamed(entry, fixed, block, arrays, places)
    if axis is not None:
        column_sums = lax.psum(column_sums, axis)
        column_sums = lax.dynamic_slice_in_dim(_numerics.vary_as(column_sums, like), first, n)
        of_columns = _lse.over_devices(of_columns, axis, n)
    both = None if keeps[0] is None or keeps[1] is None else keeps[0] & keeps[1]
    total = 0.5 * (lse_union(of_rows, diagonal) + lse_union(of_columns, diagonal)) - diagonal
    if share:
        count = [
            jnp.asarray(_lse.everywhere(n, axis), dtype)
            if keep is None
            else jnp.maximum(_numerics.device_sum(jnp.sum(keep, dtype=dtype), axis), 1)
            for keep in keeps
        ]
        means = (row_sums + diagonal) / count[1] + (column_sums + diagonal) / count[0]
        total = total + share * (diagonal - 0.5 * means)
    return emb.mean_where(total, both, axis)


def _here(of_rows: Arrays, of_columns: Arrays) -> jax.Array:
    """(r, m): which entries count, none of the diagonal; of positions and which are there."""
    (i, row), (j, column) = of_rows, of_columns
    return (i[:, None] != j[None, :]) & row[:, None] & column[None, :]


def _of_matrix(fixed: bool, logits: jax.Array, here: jax.Array) -> Arrays:
    """`fixed`: no exponential needs the maximum of its row or column."""
    inside, exponent, levels = jnp.where(here, logits, 0), jnp.where(here, logits, -jnp.inf), []
    for axis in (1, 0):
        largest = jnp.zeros((1, 1), logits.dtype) if fixed else exponent.max(axis, keepdims=True)
        top = finite_level(_numerics.constant(largest))
        levels.append(log_sum(jnp.exp(exponent - top).sum(axis), top.reshape(-1)))
    return *levels, inside.sum(1), inside.sum(0)


def _streamed(
    entry: Entry, fixed: bool, block: int, arrays: tuple[Arrays, Arrays, Arrays], where: tuple[Arrays, Arrays]
) -> Arrays:
    """So many rows of the matrix at a time; each is computed again in the backward pass."""
    (rows, columns, shared), (of_rows, of_columns) = arrays, where

    def of_block(
        some: Arrays, of_rows: Arrays, columns: Arrays, of_columns: Arrays, shared: Arrays
    ) -> Arrays:
        return _of_matrix(fixed, entry[1](entry[0](some, columns), *shared), _here(of_rows, of_columns))

    def step(carry: Arrays, at: tuple[Arrays, Arrays]) -> tuple[Arrays, Arrays]:
        found: Arrays = emb.recomputed(of_block, *at, columns, of_columns, shared)
        levels, column_levels, row_sums, column_sums = found
        return (lse_union(carry[0], column_levels), carry[1] + column_sums), (levels, row_sums)

    like = rows[1]
    start = tuple(_numerics.vary_as(jnp.full(len(columns[0]), a, like.dtype), like) for a in (-jnp.inf, 0))
    blocks = jax.tree.map(partial(emb.in_blocks, block=block), (rows, of_rows))
    (column_levels, column_sums), found = lax.scan(step, start, blocks)
    levels, sums = (a.reshape(-1)[: len(like)] for a in found)
    return levels, column_levels, sums, column_sums
