"""One encoder per view or modality, with a common embedding space."""

import dataclasses
from collections.abc import Callable, Iterable, Sequence
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
    """One encoder and one head for each of the k views."""

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
    """Views as a tuple of k arrays (n, ...); an array (n, k, ...) is split."""
    return views if isinstance(views, tuple) else tuple(jnp.moveaxis(views, 1, 0))


def of_each_view(
    configs: tuple[models.EncoderConfig, ...], spec: Specification
) -> tuple[models.EncoderConfig, ...]:
    """One encoder config per view: those given, or the run's for all."""
    k = len(spec.shapes)
    if configs and len(configs) != k:
        raise ValueError(
            f"method.encoders must be empty or have one entry for each of the {k} views, got {len(configs)}"
        )
    return configs or (spec.encoder,) * k


def outputs(lengths: Iterable[int]) -> tuple[str, ...]:
    """The outputs of encoders of one view each: `views` only if all have one length."""
    return ("encoder", "head", "views") if len(set(lengths)) == 1 else ("encoder", "head")


def fused(encoder: Any, inputs: Any) -> jax.Array:
    """(n, Σ_l f_l): the concatenated features of the encoders; zeros for missing views."""
    # All encoders get the same image.
    views = separate(inputs["views"]) if isinstance(inputs, dict) else (inputs,) * len(encoder)
    found = [encode(view) for encode, view in zip(encoder, views, strict=True)]
    there = inputs.get("present") if isinstance(inputs, dict) else None
    if there is not None:
        found = [jnp.where(there[:, l, None], z, 0) for l, z in enumerate(found)]
    return jnp.concatenate(found, axis=-1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class MultiEncoder:
    """One encoder and one head per view, for modalities of different shapes.

    Missing views are masked in the objective. The evaluated features are the concatenated features of all encoders,
    with zeros for missing views.
    """

    encoders: tuple[models.EncoderConfig, ...] = ()
    """One encoder per view; empty: `encoder` for each. Set in a config file."""

    def build(self, spec: Specification) -> Learner:
        """Build the pure functions."""
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
            if output in ("encoder", "views"):
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
            outputs=(*outputs(e.features for e in module.abstract.encoder), "head_views"),
        )
