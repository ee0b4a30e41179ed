"""Statistics of projections on random directions, a block of directions at a time."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from mvcl import _checks, _numerics
from mvcl.losses import _statistics

# `statistic(p, *constants)` of (k, n, slices) projections: its values (k, slices) and the derivative of their sum by
# p, of the shape of p. The constants are arrays that are not differentiated.
Statistic = Callable[..., tuple[jax.Array, jax.Array]]

# Projections of a block: few enough for the cache of a processor, enough for an accelerator.
_PROJECTIONS = 2**19


def directions(key: jax.Array, slices: int, d: int, dtype: jnp.dtype) -> jax.Array:
    """`(slices, d)` random unit vectors; float32 and float64 have the same ones."""
    drawn = jax.random.normal(_checks.key("key", key), (slices, d), jnp.float32)
    return _numerics.unit(drawn.astype(dtype))


@partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def over_directions(
    statistic: Statistic, axis_name: str | None, z: jax.Array, a: jax.Array, constants: tuple[Any, ...]
) -> jax.Array:
    """`(k,)`: the sum over the directions a, (slices, d), of the statistic of the projections of z, (k, n, d).

    A direction that is zero counts as none. The derivative by z is computed with the value and summed over the
    instances of the devices of `axis_name`: in either mode of differentiation a block's projections are computed once
    and not kept.
    """
    return _streamed(statistic, z, a, constants, False)[0]


@over_directions.defjvp
def _(
    statistic: Statistic,
    axis_name: str | None,
    primals: tuple[jax.Array, jax.Array, tuple[Any, ...]],
    tangents: tuple[jax.Array, jax.Array, tuple[Any, ...]],
) -> tuple[jax.Array, jax.Array]:
    values, slope = _streamed(statistic, *primals, True)
    return values, _statistics.total(jnp.sum(slope * tangents[0], axis=(1, 2)), axis_name)


def _streamed(
    statistic: Statistic, z: jax.Array, a: jax.Array, constants: tuple[Any, ...], differentiated: bool
) -> tuple[jax.Array, jax.Array]:
    """The values, and their derivative by z where it is asked for."""
    k, n, d = z.shape
    blocks = -(-len(a) // max(1, _PROJECTIONS // (k * n)))
    size = -(-len(a) // blocks)
    drawn = jnp.pad(a, ((0, blocks * size - len(a)), (0, 0))).reshape(blocks, size, d)

    def block(slope: jax.Array, a: jax.Array) -> tuple[jax.Array, jax.Array]:
        counts = jnp.any(a != 0, axis=1)[None]
        values, by_projection = statistic(_numerics.inner("lid,sd->lis", z, a), *constants)
        if differentiated:
            by_projection = jnp.where(counts[None], by_projection, 0)
            slope = slope + _numerics.inner("lis,sd->lid", by_projection, a)
        return slope, jnp.sum(jnp.where(counts, values, 0), axis=1)

    slope, values = lax.scan(block, _numerics.vary_as(jnp.zeros_like(z), z), drawn)
    return jnp.sum(values, axis=0), slope
