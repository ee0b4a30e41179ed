"""SimCLR's way: one encoder and one head over all views (Chen et al. 2020), for any number of them."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
from flax import nnx

from mvcl.methods._method import (
    Inputs,
    Learner,
    Measures,
    Module,
    Network,
    Params,
    Pieces,
    Plan,
    Setting,
    Statistics,
    by_view,
    check_microbatch,
    embed,
    missing,
    observe,
    rows,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Simclr:
    """One encoder and one head embed all k views; the objective compares them."""

    def check(self, plan: Plan) -> None:
        """Micro-batches need an encoder whose output for one image does not depend on the others."""
        check_microbatch(plan)

    def build(self, setting: Setting) -> Learner:
        """The pure functions for these networks, inputs of one shape and arithmetic of this dtype."""
        shape = setting.one_shape("simclr")

        def fresh(key: jax.Array) -> Network:
            return Network(setting.encoder, setting.head, shape, dtype=setting.dtype, rngs=nnx.Rngs(key))

        module = Module(fresh)

        def loss(
            params: Params,
            statistics: Statistics,
            inputs: Inputs,
            draw: Callable[[Inputs], Any],
            objective: Callable[..., tuple[jax.Array, Measures]],
            pieces: Pieces | None = None,
        ) -> tuple[jax.Array, tuple[Statistics, jax.Array, Measures]]:
            net = module.merge(params, statistics)
            z = by_view(net.head(embed(net.encoder, inputs, draw, pieces)), rows(inputs))
            value, measures = objective(z, **missing(inputs))
            return value, (module.statistics(net), z, measures)

        def features(params: Params, statistics: Statistics, inputs: Any, output: str) -> jax.Array:
            return observe(module.merge(params, statistics), inputs, output)

        return Learner(
            module.init,
            loss,
            features,
            module.merge,
            dimension=module.abstract.head.features,
            level=lambda objective, z: objective(z)[0],
        )
