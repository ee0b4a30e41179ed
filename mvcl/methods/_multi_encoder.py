"""An encoder for each view or modality, into a common space."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from mvcl import models
from mvcl.methods._method import (
    Inputs,
    Learner,
    Measures,
    Microbatches,
    Module,
    Params,
    Specification,
    Statistics,
    missing,
)
from mvcl.methods._objective import OfViews


class Networks(nnx.Module):
    """An encoder and a head for each of the k views."""

    def __init__(self, spec: Specification, encoders: Sequence[models.EncoderConfig], rngs: nnx.Rngs) -> None:
        self.encoder = nnx.List(
            [
                config.build(shape, dtype=spec.dtype, rngs=rngs)
                for config, shape in zip(encoders, spec.shapes, strict=True)
            ]
        )
        self.head = nnx.List(
            [spec.head.build(encoder.features, dtype=spec.dtype, rngs=rngs) for encoder in self.encoder]
        )


def separate(views: Any) -> tuple[jax.Array, ...]:
    """One array (n, ...) a view, from themselves or from (n, k, ...) views."""
    return views if isinstance(views, tuple) else tuple(jnp.moveaxis(views, 1, 0))


def of_each_view(
    configs: tuple[models.EncoderConfig, ...], spec: Specification
) -> tuple[models.EncoderConfig, ...]:
    """An encoder config a view: those given, or the run's for all."""
    k = len(spec.shapes)
    if configs and len(configs) != k:
        raise ValueError(
            f"method.encoders must have an entry for each of the {k} views or none, got {len(configs)}"
        )
    return configs or (spec.encoder,) * k


def fused(encoder: Any, inputs: Any) -> jax.Array:
    """(n, Σ_l f_l): the encoders' features side by side; zeros where a view is missing."""
    # An image is shown to every encoder as it is.
    views = separate(inputs["views"]) if isinstance(inputs, dict) else (inputs,) * len(encoder)
    found = [encode(view) for encode, view in zip(encoder, views, strict=True)]
    there = inputs.get("present") if isinstance(inputs, dict) else None
    if there is not None:
        found = [jnp.where(there[:, l, None], z, 0) for l, z in enumerate(found)]
    return jnp.concatenate(found, axis=-1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class MultiEncoder:
    """An encoder and a head of its own for each view, for modalities and measurements of different shapes.

    An example that lacks a view takes no part in what the objective says of that view. The features that are
    measured are those of all encoders side by side, zeros for a missing view.
    """

    encoders: tuple[models.EncoderConfig, ...] = ()
    """One encoder a view; empty means `encoder` for each. Set in a config file."""

    def build(self, spec: Specification) -> Learner:
        """The pure functions for these networks, inputs of these shapes and arithmetic of this dtype."""
        spec.whole_batch("multi_encoder")
        encoders = of_each_view(self.encoders, spec)

        def fresh(key: jax.Array) -> Networks:
            return Networks(spec, encoders, nnx.Rngs(key))

        module = Module(fresh)

        def loss(
            params: Params,
            statistics: Statistics,
            inputs: Inputs,
            draw: Callable[[Inputs], Any],
            objective: OfViews,
            microbatches: Microbatches | None = None,
        ) -> tuple[jax.Array, tuple[Statistics, jax.Array, Measures]]:
            nets = module.merge(params, statistics)
            views = separate(draw(inputs))
            z = jnp.stack(
                [
                    head(encoder(view))
                    for head, encoder, view in zip(nets.head, nets.encoder, views, strict=True)
                ]
            )
            value, measures = objective(z, **missing(inputs))
            return value, (module.statistics(nets), z, measures)

        def features(params: Params, statistics: Statistics, inputs: Any, output: str) -> jax.Array:
            nets = models.eval_view(module.merge(params, statistics))
            if output == "encoder":
                return fused(nets.encoder, inputs)
            whole = [lambda x, e=e, h=h: h(e(x)) for e, h in zip(nets.encoder, nets.head)]
            return fused(whole, inputs)

        return Learner(
            module.init,
            loss,
            features,
            module.merge,
            dimension=module.abstract.head[0].features,
            level=lambda objective, z: objective(z)[0],
            one_encoder=False,
        )
