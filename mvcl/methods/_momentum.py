"""Common parts of methods with a momentum encoder, a moving average of the trained parameters."""

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
    check_encoder,
    observe,
)


@runtime_checkable
class Following(Protocol):
    """Options of a method with a momentum encoder.

    Its parameters are m * theirs + (1 - m) * trained ones; m goes from `momentum` to `end_momentum` by a half cosine.
    `evaluate` is the network that is evaluated and exported: `online` or `momentum`.
    """

    @property
    def momentum(self) -> float: ...
    @property
    def end_momentum(self) -> float: ...
    @property
    def evaluate(self) -> str: ...


class Followed:
    """A network and its momentum copy.

    Parameters are `network`, and those of further trained networks; statistics are `network` (the trained network's),
    `momentum` (the copy's parameters) and `momentum_network` (the copy's own statistics).
    """

    def __init__(self, spec: Specification, options: Following, method: str) -> None:
        start, end = options.momentum, options.end_momentum
        if not 0 <= start <= 1 or not 0 <= end <= 1:
            raise ValueError(
                f"method.momentum and method.end_momentum must be in [0, 1], got {start} and {end}"
            )
        self._options = options
        shape = spec.one_shape(method)
        self._module = Module(
            lambda key: Network(spec.encoder, spec.head, shape, dtype=spec.dtype, rngs=nnx.Rngs(key))
        )
        check_encoder(spec, self._module.abstract.encoder)
        self.dimension: int = self._module.abstract.head.features

    def init(self, key: jax.Array) -> tuple[dict[str, Any], dict[str, Any]]:
        """Initial parameters and statistics; the copy equals the network."""
        weights, rest = self._module.init(key)
        copy = jax.tree.map(jnp.copy, (weights, rest))
        return {"network": weights}, {"network": rest, "momentum": copy[0], "momentum_network": copy[1]}

    def online(self, params: Params, statistics: Statistics) -> Network:
        """The trained network."""
        return self._module.merge(params["network"], statistics["network"])

    def momentum(self, statistics: Statistics) -> Network:
        """The momentum copy, without gradient."""
        weights = jax.lax.stop_gradient(statistics["momentum"])
        return self._module.merge(weights, statistics["momentum_network"])

    def moved(self, statistics: Statistics, online: Network, momentum: Network) -> Statistics:
        """The statistics updated by both networks' calls."""
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
        """A `Learner` with these functions, which updates the copy after each step."""
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
