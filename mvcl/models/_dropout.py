"""Dropout whose random state is one integer in the statistics."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from flax import nnx


class DropoutCount(nnx.Variable):
    """Number of the next dropout mask, uint32. It starts at a random number, so that layers have different masks."""


class Dropout(nnx.Module):
    """nnx.Dropout with the number of its next mask as its only state.

    Mask number c is drawn with the key of seed c, and every call in train mode increments the number. It is an array,
    neither a parameter nor a batch statistic. Methods carry it in their statistics, so it is checkpointed and a
    resumed run repeats the masks.
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
    """Raise `ValueError` for a probability outside [0, 1)."""
    if not 0 <= rate < 1:
        raise ValueError(f"dropout must be in [0, 1); got {rate!r}")


def advance_dropout(module: nnx.Module) -> None:
    """Increment the mask number of every dropout layer of a module.

    For callers that ran a copy of the module, as microbatches do, and so lost the copy's increments.
    """
    for _, count in nnx.to_flat_state(nnx.state(module, DropoutCount)):
        count[...] = count[...] + jnp.uint32(1)
