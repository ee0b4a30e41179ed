"""What methods with a momentum encoder share: its parameters, which follow the trained ones, and its statistics."""

from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import nnx

from mvcl.methods._method import Module, Network, Params, Setting, Statistics


def check_momentum(start: float, end: float) -> None:
    """Both must lie in [0, 1]."""
    if not 0 <= start <= 1 or not 0 <= end <= 1:
        raise ValueError(f"method.momentum and method.end_momentum must lie in [0, 1], got {start} and {end}")


class Followed:
    """A network and its momentum copy.

    Parameters are those of the network under `network`, and what only the trained side has beside it; statistics
    are `network` (the trained network's), `momentum` (the copy's parameters) and `momentum_network` (its
    statistics). The copy embeds views with statistics of its own, as it would without the other.
    """

    def __init__(self, setting: Setting, method: str) -> None:
        shape = setting.one_shape(method)
        self._module = Module(
            lambda key: Network(setting.encoder, setting.head, shape, dtype=setting.dtype, rngs=nnx.Rngs(key))
        )
        self.dimension: int = self._module.abstract.head.features

    def init(self, key: jax.Array) -> tuple[dict[str, Any], dict[str, Any]]:
        """Both sides start equal."""
        weights, rest = self._module.init(key)
        copy = jax.tree.map(jnp.copy, (weights, rest))
        return {"network": weights}, {"network": rest, "momentum": copy[0], "momentum_network": copy[1]}

    def online(self, params: Params, statistics: Statistics) -> Network:
        """The trained network."""
        return self._module.merge(params["network"], statistics["network"])

    def momentum(self, statistics: Statistics) -> Network:
        """The copy; no gradient goes through it."""
        weights = jax.lax.stop_gradient(statistics["momentum"])
        return self._module.merge(weights, statistics["momentum_network"])

    def moved(self, statistics: Statistics, online: Network, momentum: Network) -> Statistics:
        """The statistics after both networks have seen a batch."""
        return statistics | {
            "network": self._module.statistics(online),
            "momentum_network": self._module.statistics(momentum),
        }

    def follow(
        self, params: Params, statistics: Statistics, start: float, end: float, progress: jax.Array
    ) -> Statistics:
        """The copy moves by 1 - m towards the trained parameters; m goes from start to end on a half cosine."""
        m = end - (end - start) * (jnp.cos(jnp.pi * progress) + 1) / 2
        moved = optax.incremental_update(params["network"], statistics["momentum"], 1 - m)
        return statistics | {"momentum": moved}

    def evaluated(self, params: Params, statistics: Statistics, which: str) -> Network:
        """The network that is measured and exported: `online` or `momentum`."""
        return self.online(params, statistics) if which == "online" else self.momentum(statistics)
