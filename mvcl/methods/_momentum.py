"""What methods with a momentum encoder share: its parameters, which follow the trained ones, and its statistics."""

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import optax
from flax import nnx

from mvcl.methods._method import (
    Inputs,
    Learner,
    Measures,
    Module,
    Network,
    Params,
    Specification,
    Statistics,
    check_microbatch,
    observe,
)


@runtime_checkable
class Following(Protocol):
    """Options of a method with a momentum encoder.

    The copy moves by 1 - m towards the trained parameters; m goes from `momentum` to `end_momentum` on a half cosine.
    `evaluate` names the network that is measured and exported: `online` or `momentum`.
    """

    @property
    def momentum(self) -> float: ...
    @property
    def end_momentum(self) -> float: ...
    @property
    def evaluate(self) -> str: ...


class Followed:
    """A network and its momentum copy.

    Parameters are those of the network under `network`, and what only the trained side has beside it; statistics
    are `network` (the trained network's), `momentum` (the copy's parameters) and `momentum_network` (its
    statistics). The copy embeds views with statistics of its own, as it would without the other.
    """

    def __init__(self, spec: Specification, options: Following, method: str) -> None:
        start, end = options.momentum, options.end_momentum
        if not 0 <= start <= 1 or not 0 <= end <= 1:
            raise ValueError(
                f"method.momentum and method.end_momentum must lie in [0, 1], got {start} and {end}"
            )
        self._options = options
        shape = spec.one_shape(method)
        self._module = Module(
            lambda key: Network(spec.encoder, spec.head, shape, dtype=spec.dtype, rngs=nnx.Rngs(key))
        )
        check_microbatch(spec, self._module.abstract.encoder)
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

    def learner(
        self,
        init: Callable[[jax.Array], tuple[Params, Statistics]],
        loss: Callable[..., tuple[jax.Array, tuple[Statistics, jax.Array, Measures]]],
        level: Callable[..., jax.Array],
    ) -> Learner:
        """The method with this start, loss and level; after each step the copy moves by 1 - m, as its options say."""
        options = self._options
        start, end = options.momentum, options.end_momentum

        def network(params: Params, statistics: Statistics) -> Network:
            online = options.evaluate == "online"
            return self.online(params, statistics) if online else self.momentum(statistics)

        def features(params: Params, statistics: Statistics, inputs: Inputs, output: str) -> jax.Array:
            return observe(network(params, statistics), inputs, output)

        def after(params: Params, statistics: Statistics, progress: jax.Array) -> Statistics:
            m = end - (end - start) * (jnp.cos(jnp.pi * progress) + 1) / 2
            moved = optax.incremental_update(params["network"], statistics["momentum"], 1 - m)
            return statistics | {"momentum": moved}

        return Learner(init, loss, features, network, self.dimension, level, after)
