"""What methods with a momentum encoder share: its parameters, which follow the trained ones, and its statistics."""

from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import nnx

from mvcl.methods._method import Network, Params, Setting, Statistics


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
        self._setting = setting
        self._shape = setting.one_shape(method)
        self.abstract = nnx.eval_shape(lambda: self._fresh(jax.random.key(0)))
        self._graph = nnx.graphdef(self.abstract)

    def _fresh(self, key: jax.Array) -> Network:
        setting = self._setting
        return Network(setting.encoder, setting.head, self._shape, dtype=setting.dtype, rngs=nnx.Rngs(key))

    def init(self, key: jax.Array) -> tuple[dict[str, Any], dict[str, Any]]:
        """Both sides start equal."""
        net = self._fresh(key)
        weights, rest = nnx.state(net, nnx.Param), nnx.state(net, nnx.Not(nnx.Param))
        copy = jax.tree.map(jnp.copy, (weights, rest))
        return {"network": weights}, {"network": rest, "momentum": copy[0], "momentum_network": copy[1]}

    def online(self, params: Params, statistics: Statistics) -> Network:
        """The trained network."""
        return nnx.merge(self._graph, params["network"], statistics["network"], copy=True)

    def momentum(self, statistics: Statistics) -> Network:
        """The copy; no gradient goes through it."""
        weights = jax.lax.stop_gradient(statistics["momentum"])
        return nnx.merge(self._graph, weights, statistics["momentum_network"], copy=True)

    def moved(self, statistics: Statistics, online: Network, momentum: Network) -> Statistics:
        """The statistics after both networks have seen a batch."""
        rest = nnx.Not(nnx.Param)
        return statistics | {
            "network": nnx.state(online, rest),
            "momentum_network": nnx.state(momentum, rest),
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
