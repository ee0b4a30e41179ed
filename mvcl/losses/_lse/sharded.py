"""Instances split over devices: this device's rows against the columns of all; reverse mode only.

One view is gathered at a time, and its exponentials are taken again in the backward pass rather than kept: no
device ever holds all views of all.
"""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
from jax import lax

from mvcl import _numerics
from mvcl.losses._lse import dense, tiled
from mvcl.losses._lse.operand import (
    Operand,
    Sums,
    either,
    exponential,
    level,
    masked,
)

# ------------------------------------------------------------------ one view of y


@jax.custom_vjp
def sums(o: Operand) -> Sums:
    """Log-sum-exps of rows and columns of blocks with the one view of y, whose rows `o.axis` splits.

    The rows are those of this device, the columns this device's part of the sums for all devices' columns.
    """
    return _forward(gathered(o))


def _sums_forward(o: Operand) -> tuple[Sums, tuple[Operand, Sums]]:
    found = _forward(gathered(o))
    return found, (o, found)


def _sums_backward(residual: tuple[Operand, Sums], by: Sums) -> tuple[Operand]:
    o, found = residual
    # Else the compiler would keep what the forward pass gathered. (On CPU it does so behind a barrier, too.)
    again = o.y + jnp.where(found.rows[0, 0] == found.rows[0, 0], 0, jnp.nan).astype(o.y.dtype)
    every = gathered(dataclasses.replace(o, y=again))
    dx, dy = _gradient(every, by) if o.block is None else tiled.gradient(every, found, by)
    dy = lax.psum_scatter(dy[0], o.axis, scatter_dimension=0, tiled=True)[None]
    return (tiled.cotangents(o, dx, dy),)


sums.defvjp(_sums_forward, _sums_backward)


def gathered(o: Operand) -> Operand:
    """The rows of y of all devices, and where this device's rows begin among them."""
    assert o.axis is not None
    # Along the leading axis: along another, the compiler copies everything into another order first.
    keep = None if o.keep_y is None else _numerics.gather(o.keep_y[0], o.axis, 0)[None]
    every = _numerics.gather(o.y[0], o.axis, 0)[None]
    return dataclasses.replace(o, y=every, keep_y=keep, first=lax.axis_index(o.axis) * o.y.shape[1])


def _forward(every: Operand) -> Sums:
    if every.block is not None:
        return tiled.forward(every)

    def one(view: tuple[jax.Array, jax.Array | None]) -> list[jax.Array]:
        return [a[0] for a in dense.sums(_with_rows(every, *view))]

    return Sums(*lax.map(one, (every.x, every.keep_x)))


def _gradient(every: Operand, by: Sums) -> tuple[jax.Array, jax.Array]:
    """Whole blocks, a view of x at a time."""

    def one(dy: jax.Array, view: tuple[jax.Array, jax.Array | None, Sums]) -> tuple[jax.Array, jax.Array]:
        x, keep, given = view

        def block(x: jax.Array, y: jax.Array) -> Sums:
            return dense.sums(dataclasses.replace(_with_rows(every, x, keep), y=y))

        dx, change = jax.vjp(block, x, every.y)[1](Sums(*(a[None] for a in given)))
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
def within(
    fixed: bool | None, axis: str, z: jax.Array, keep: jax.Array | None, bound: jax.Array
) -> jax.Array:
    """`(k, n)`: the log-sum-exp over all devices' j != i of <z_li, z_lj>."""

    def one(view: tuple[jax.Array, jax.Array | None]) -> jax.Array:
        return dense.sums(_with_itself(fixed, axis, *view, bound)).rows[0]

    return lax.map(one, (z, keep))


Within = tuple[jax.Array, jax.Array | None, jax.Array, jax.Array]


def _within_forward(
    fixed: bool | None, axis: str, z: jax.Array, keep: jax.Array | None, bound: jax.Array
) -> tuple[jax.Array, Within]:
    rows = within(fixed, axis, z, keep, bound)
    return rows, (z, keep, bound, rows)


def _within_backward(
    fixed: bool | None, axis: str, residual: Within, cotangent: jax.Array
) -> tuple[jax.Array, None, None]:
    z, keep, bound, found = residual

    def one(view: tuple[jax.Array, jax.Array | None, jax.Array, jax.Array]) -> jax.Array:
        z, keep, rows, by = view
        o = _with_itself(fixed, axis, z, keep, bound)
        here, every = dense.entries(o), o.y[0]
        here = None if here is None else here[0]
        slope, levels = jnp.where(rows == -jnp.inf, 0, by), level(rows)
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


within.defvjp(_within_forward, _within_backward)


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
