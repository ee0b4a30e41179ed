"""Whole blocks, with derivatives of both modes and every order.

Each rule is linear in the tangent, and written so that its transpose is the cheap one: with E the
exponentials, kept from the forward pass, and u, v the cotangents by the sums of rows and columns, the gradient
is one product with `E * (u_i + v_j)` for each set of vectors. Higher orders differentiate the rule itself.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero

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
    of_rank,
    positions,
)


def within(fixed: bool | None, z: jax.Array, keep: jax.Array | None, bound: jax.Array) -> jax.Array:
    """`(k, n)`: the log-sum-exp over j != i of <z_li, z_lj>."""
    return either(fixed, bound, _within, z, keep, bound)


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _within(fixed: bool, z: jax.Array, keep: jax.Array | None, bound: jax.Array) -> jax.Array:
    kept = _within_kept(fixed, z, keep, bound)
    return log_sum(kept.sum(2), bound) if fixed else _numerics.logsumexp(kept, axis=2)


@_within.defjvp
def _(
    fixed: bool, primals: tuple[jax.Array, jax.Array | None, jax.Array], tangents: tuple[jax.Array, ...]
) -> tuple[jax.Array, jax.Array]:
    z, keep, bound = primals
    kept = _within_kept(fixed, z, keep, bound)
    slope = _numerics.inner("lid,ljd->lij", tangents[0], z)
    if fixed:
        total = kept.sum(2)
        weighted = kept * slope
        # The block is symmetric: what row i gains by the change of z_j is entry (j, i) of the same matrix.
        return log_sum(total, bound), _per(total) * (weighted.sum(2) + weighted.sum(1))
    rows = _numerics.logsumexp(kept, axis=2)
    by_row, by_column = _share(kept, rows, rows, slope)
    return rows, by_row + by_column


def _within_kept(fixed: bool, z: jax.Array, keep: jax.Array | None, bound: jax.Array) -> jax.Array:
    similarity = _numerics.inner("lid,ljd->lij", z, z)
    here = ~jnp.eye(z.shape[1], dtype=bool)[None]
    if keep is not None:
        here = here & keep[:, :, None] & keep[:, None, :]
    return exponential(similarity, here, bound) if fixed else masked(similarity, here)


def sums(o: Operand) -> Sums:
    """Log-sum-exps of rows and columns of whole blocks."""
    return either(o.fixed, o.bound, _sums, o)


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _sums(fixed: bool, o: Operand) -> Sums:
    kept = _kept(fixed, o)
    if fixed:
        rows = log_sum(kept.sum(2), o.bound)
        return Sums(rows, log_sum(kept.sum(1), o.bound) if o.columns else jnp.zeros_like(rows))
    rows = _numerics.logsumexp(kept, axis=2)
    return Sums(rows, _numerics.logsumexp(kept, axis=1) if o.columns else jnp.zeros_like(rows))


def _sums_rule(fixed: bool, primals: tuple[Operand], tangents: tuple[Operand]) -> tuple[Sums, Sums]:
    (o,), (change,) = primals, tangents
    kept = _kept(fixed, o)
    slope = _slope(o, change)
    if fixed:
        row_total, weighted = kept.sum(2), kept * slope
        rows, by_row = log_sum(row_total, o.bound), _per(row_total) * weighted.sum(2)
        if not o.columns:
            return Sums(rows, jnp.zeros_like(rows)), Sums(by_row, jnp.zeros_like(rows))
        column_total = kept.sum(1)
        columns, by_column = log_sum(column_total, o.bound), _per(column_total) * weighted.sum(1)
        return Sums(rows, columns), Sums(by_row, by_column)
    rows = _numerics.logsumexp(kept, axis=2)
    levels = _numerics.logsumexp(kept, axis=1) if o.columns else None
    by_row, by_column = _share(kept, rows, levels, slope)
    return Sums(rows, jnp.zeros_like(rows) if levels is None else levels), Sums(by_row, by_column)


_sums.defjvp(_sums_rule, symbolic_zeros=True)


def _kept(fixed: bool, o: Operand) -> jax.Array:
    """`(pairs, n, m)`: what the backward pass needs of the blocks, exponentials or similarities."""
    left, right = _indices(o)
    similarity = _numerics.inner("pid,pjd->pij", _take(o.x, left), _take(o.y, right))
    here = entries(o)
    return exponential(similarity, here, o.bound) if fixed else masked(similarity, here)


def entries(o: Operand) -> jax.Array | None:
    """Which entries of whole blocks count, broadcastable to (pairs, n, m); None: all."""
    left, right = _indices(o)
    here = counted(
        o,
        positions(o, jnp.arange(o.x.shape[1])),
        instance(o, jnp.arange(o.y.shape[1]), o.x.shape[1]),
        None if o.keep_x is None else o.keep_x[left],
        None if o.keep_y is None else o.keep_y[right],
    )
    return None if here is None else of_rank(here, 3)


def _slope(o: Operand, change: Operand) -> jax.Array:
    """`(pairs, n, m)`: the tangent of the inner products. What does not change takes no product."""
    left, right = _indices(o)
    products = []
    if not isinstance(change.x, SymbolicZero):
        products.append(_numerics.products(_spread(change.x, left), _take(o.y, right)))
    if not isinstance(change.y, SymbolicZero):
        products.append(_numerics.products(_take(o.x, left), _spread(change.y, right)))
    return sum(products[1:], products[0])


def _per(total: jax.Array) -> jax.Array:
    """1 / total; zero for an empty sum."""
    some = total != 0
    return jnp.where(some, 1 / jnp.where(some, total, 1), 0)


# Computed again in the backward pass, where the similarities are then the one large array that is kept.
@jax.checkpoint
def _share(
    kept: jax.Array, rows: jax.Array, columns: jax.Array | None, slope: jax.Array
) -> tuple[jax.Array, jax.Array]:
    by_row = (jnp.exp(kept - level(rows)[:, :, None]) * slope).sum(2)
    if columns is None:
        return by_row, jnp.zeros_like(by_row)
    return by_row, (jnp.exp(kept - level(columns)[:, None, :]) * slope).sum(1)


def _indices(o: Operand) -> tuple[np.ndarray, np.ndarray]:
    pairs = np.asarray(o.pairs).reshape(-1, 2)
    return pairs[:, 0], pairs[:, 1]


def _take(x: jax.Array, views: np.ndarray) -> jax.Array:
    """x[views], without a copy where that is x itself."""
    return x if np.array_equal(views, np.arange(x.shape[0])) else x[views]


def _spread(change: jax.Array, views: np.ndarray) -> jax.Array:
    """change[views], as a product with zeros and ones.

    Its transpose adds up by view. That of a gather is a scatter, which takes longer than the products; slices
    that are added up by name took as long, and for eight views of two instances XLA's CPU compiler aborted.
    """
    if np.array_equal(views, np.arange(change.shape[0])):
        return change
    member = _numerics.vary_as(
        jnp.asarray(views[:, None] == np.arange(change.shape[0])[None, :], change.dtype), change
    )
    return _numerics.inner("pv,vnd->pnd", member, change)
