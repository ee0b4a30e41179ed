"""Dropout whose random state is one integer among the statistics."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from flax import nnx


class DropoutCount(nnx.Variable):
    """Number of the next dropout mask, uint32. It starts at a random number, so that no two layers share masks."""


class Dropout(nnx.Module):
    """nnx.Dropout with the number of its next mask as its only state.

    Mask number c comes from the key of seed c, and every call in train mode counts one on. The number is a plain
    array that is neither a parameter nor a batch statistic: a method that carries all but the parameters as
    statistics draws new masks every step, checkpoints them, and repeats them when it is resumed.
    """

    def __init__(self, rate: float, *, broadcast_dims: Sequence[int] = (), rngs: nnx.Rngs):
        self.dropout = nnx.Dropout(rate, broadcast_dims=tuple(broadcast_dims))
        if rate > 0:
            self.count = DropoutCount(jax.random.bits(rngs.dropout(), (), jnp.uint32))

    def __call__(self, x: jax.Array) -> jax.Array:
        if self.dropout.rate == 0 or self.dropout.deterministic:
            return x
        key = jax.random.key(self.count[...])
        self.count[...] = self.count[...] + jnp.uint32(1)
        return self.dropout(x, rngs=key)


def check_rate(rate: float) -> None:
    """Refuse a probability outside [0, 1)."""
    if not 0 <= rate < 1:
        raise ValueError(f"dropout must lie in [0, 1); got {rate!r}")


def advance_dropout(module: nnx.Module) -> None:
    """Count every dropout layer of a module one mask on.

    For a caller that ran a copy of the module, as micro-batches do, whose counting is lost with the copy.
    """
    for _, count in nnx.to_flat_state(nnx.state(module, DropoutCount)):
        count[...] = count[...] + jnp.uint32(1)
