"""Training on the labels: the upper bound that learning without them is held against."""

import dataclasses
from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
import optax
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
    rows,
    stacked,
)
from mvcl.methods._multi_encoder import fused, of_each_view
from mvcl.methods._objective import OfViews


class Labelled(nnx.Module):
    """Encoders, and a linear layer from their features to the label."""

    def __init__(
        self, spec: Specification, encoders: tuple[models.EncoderConfig, ...], rngs: nnx.Rngs
    ) -> None:
        shapes = spec.shapes if spec.given else spec.shapes[:1]
        built = [e.build(s, dtype=spec.dtype, rngs=rngs) for e, s in zip(encoders, shapes)]
        self.encoder = nnx.List(built) if spec.given else built[0]
        # In float32, for the loss is taken on its output.
        self.head = nnx.Linear(sum(e.features for e in built), max(spec.classes, 1), rngs=rngs)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Supervised:
    """Encoders and a linear layer learn the label; the objective is not used.

    Where an example holds its views, each has an encoder and their features are put side by side (late fusion,
    the multimodal upper bound of Koromilas 2025, Table IV); images have one encoder, which sees the k views one by
    one. Classes are learned by cross-entropy. `evaluation.features = head` measures the predictions.
    """

    encoders: tuple[models.EncoderConfig, ...] = ()
    """One encoder a view, where examples hold their views; empty means `encoder` for each. Set in a config file."""
    regression: Literal["absolute", "squared"] = "absolute"
    """Error that is minimised where the label is a number."""

    def build(self, spec: Specification) -> Learner:
        """The pure functions for these networks, inputs of these shapes and arithmetic of this dtype."""
        spec.whole_batch("supervised")
        encoders = of_each_view(self.encoders, spec)

        def fresh(key: jax.Array) -> Labelled:
            return Labelled(spec, encoders, nnx.Rngs(key))

        module = Module(fresh)

        def encoded(net: Labelled, inputs: Any) -> jax.Array:
            return fused(net.encoder, inputs) if spec.given else net.encoder(inputs)

        def loss(
            params: Params,
            statistics: Statistics,
            inputs: Inputs,
            draw: Callable[[Inputs], Any],
            objective: OfViews,
            microbatches: Microbatches | None = None,
        ) -> tuple[jax.Array, tuple[Statistics, jax.Array, Measures]]:
            net, labels = module.merge(params, statistics), inputs["labels"]
            views = draw(inputs)
            if spec.given:
                z = encoded(
                    net, {"views": views} | ({"present": inputs["present"]} if "present" in inputs else {})
                )
            else:
                views = stacked(views)
                z = encoded(net, views.reshape((-1, *views.shape[2:])))
                labels = jnp.repeat(labels, views.shape[1])
            value, measures = _error(net.head(z.astype(jnp.float32)), labels, spec.classes, self.regression)
            shown = z.reshape((rows(inputs), -1, z.shape[-1])).swapaxes(0, 1)
            return value, (module.statistics(net), shown, measures)

        def features(params: Params, statistics: Statistics, inputs: Any, output: str) -> jax.Array:
            net = models.eval_view(module.merge(params, statistics))
            z = encoded(net, inputs)
            return net.head(z.astype(jnp.float32)) if output == "head" else z

        return Learner(module.init, loss, features, module.merge, dimension=module.abstract.head.in_features)


def _error(
    predicted: jax.Array, labels: jax.Array, classes: int, regression: str
) -> tuple[jax.Array, Measures]:
    if classes:
        value = optax.softmax_cross_entropy_with_integer_labels(predicted, labels).mean()
        return value, {"train_accuracy": jnp.mean(predicted.argmax(-1) == labels, dtype=jnp.float32)}
    error = predicted[:, 0] - labels
    return jnp.mean(jnp.abs(error) if regression == "absolute" else error**2), {}
