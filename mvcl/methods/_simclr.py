"""SimCLR's way: one encoder and one head over all views (Chen et al. 2020), for any number of them."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
from flax import nnx

from mvcl import models
from mvcl.methods._method import (
    Inputs,
    Learner,
    Measures,
    Network,
    Params,
    Pieces,
    Setting,
    Statistics,
    by_view,
    check_microbatch,
    embed,
    missing,
    observe,
    rows,
)
from mvcl.methods._objective import Objective


@dataclasses.dataclass(frozen=True, kw_only=True)
class Simclr:
    """One encoder and one head embed all k views; the objective compares them."""

    def check(
        self,
        encoder: models.EncoderConfig,
        head: models.HeadConfig,
        objective: Objective,
        k: int,
        microbatch: int | None,
    ) -> None:
        """Micro-batches need an encoder whose output for one image does not depend on the others."""
        check_microbatch(encoder, microbatch)

    def build(self, setting: Setting) -> Learner:
        """The pure functions for these networks, inputs of one shape and arithmetic of this dtype."""
        shape = setting.one_shape("simclr")

        def fresh(key: jax.Array) -> Network:
            return Network(setting.encoder, setting.head, shape, dtype=setting.dtype, rngs=nnx.Rngs(key))

        abstract = nnx.eval_shape(lambda: fresh(jax.random.key(0)))
        trained = nnx.graphdef(abstract)

        def init(key: jax.Array) -> tuple[Params, Statistics]:
            net = fresh(key)
            return nnx.state(net, nnx.Param), nnx.state(net, nnx.Not(nnx.Param))

        def network(params: Params, statistics: Statistics) -> Network:
            return nnx.merge(trained, params, statistics, copy=True)

        def loss(
            params: Params,
            statistics: Statistics,
            inputs: Inputs,
            draw: Callable[[Inputs], Any],
            objective: Callable[..., tuple[jax.Array, Measures]],
            pieces: Pieces | None = None,
        ) -> tuple[jax.Array, tuple[Statistics, jax.Array, Measures]]:
            net = network(params, statistics)
            z = by_view(net.head(embed(net.encoder, inputs, draw, pieces)), rows(inputs))
            value, measures = objective(z, **missing(inputs))
            return value, (nnx.state(net, nnx.Not(nnx.Param)), z, measures)

        def features(params: Params, statistics: Statistics, inputs: Any, output: str) -> jax.Array:
            return observe(network(params, statistics), inputs, output)

        return Learner(
            init,
            loss,
            features,
            network,
            dimension=abstract.head.features,
            level=lambda objective, z: objective(z)[0],
        )
