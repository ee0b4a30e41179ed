"""SimCLR (Chen et al. 2020) for any number of views: one encoder and one head."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
from flax import nnx

from mvcl.methods._method import (
    Inputs,
    Learner,
    Measures,
    Microbatches,
    Module,
    Network,
    Params,
    Specification,
    Statistics,
    by_view,
    check_encoder,
    embed,
    missing,
    observe,
    rows,
)
from mvcl.methods._objective import OfViews


@dataclasses.dataclass(frozen=True, kw_only=True)
class Simclr:
    """One encoder and one head embed all k views; the objective compares them.

    Images may have several sizes (`views.global_views`); those of one size pass the encoder together.
    """

    def build(self, spec: Specification) -> Learner:
        """Build the pure functions; given views have one shape."""
        shape = spec.one_shape("simclr")

        def fresh(key: jax.Array) -> Network:
            return Network(spec.encoder, spec.head, shape, dtype=spec.dtype, rngs=nnx.Rngs(key))

        module = Module(fresh)
        check_encoder(spec, module.abstract.encoder)

        def loss(
            params: Params,
            statistics: Statistics,
            inputs: Inputs,
            draw: Callable[[Inputs], Any],
            objective: OfViews,
            microbatches: Microbatches | None = None,
        ) -> tuple[jax.Array, tuple[Statistics, jax.Array, Measures]]:
            net = module.merge(params, statistics)
            z = by_view(net.head(embed(net.encoder, inputs, draw, microbatches)), rows(inputs))
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
            start_from=module.start_from,
        )
