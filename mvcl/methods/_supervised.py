"""Supervised training: an upper bound for self-supervised methods, and fine-tuning."""

import dataclasses
import math
from typing import Any, Literal

import jax
import jax.numpy as jnp
import optax
from flax import nnx

from mvcl import _checks, augment, models
from mvcl.methods._method import Batch, DrawingLearner, Inputs, LossAndMore, Specification, key_of_batch
from mvcl.methods._multi_encoder import of_each_view, outputs, side_by_side
from mvcl.methods._objective import OfViews


class Labelled(nnx.Module):
    def __init__(self, spec: Specification, options: "Supervised", rngs: nnx.Rngs) -> None:
        encoders, zero = of_each_view(options.encoders, spec), options.zero_head
        shapes = spec.shapes if spec.given else spec.shapes[:1]
        built = [e.build(s, dtype=spec.dtype, rngs=rngs) for e, s in zip(encoders, shapes)]
        self.encoder = nnx.List(built) if spec.given else built[0]
        # In float32, as the loss needs.
        self.head = nnx.Linear(
            sum(e.features for e in built),
            max(spec.classes, 1),
            kernel_init=nnx.initializers.zeros if zero else nnx.initializers.lecun_normal(),
            bias_init=nnx.initializers.constant(-math.log(max(spec.classes, 1)) if zero else 0.0),
            rngs=rngs,
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Supervised:
    """Train encoders and a linear layer on the labels; the objective is not used.

    Given views have one encoder each and their features are concatenated (late fusion, the multimodal upper bound of
    Koromilas 2025, Table IV). Images have one encoder, and each of the k views is an example: k is the number of
    repeated augmentations (Hoffer 2020). The loss for classes is cross-entropy. `evaluation:predictions` evaluates
    the predictions. With `train.initial`, the encoder of another run is fine-tuned.
    """

    encoders: tuple[models.EncoderConfig, ...] = ()
    """One encoder per given view; empty: `encoder` for each. Set in a config file."""
    regression: Literal["absolute", "squared"] = "absolute"
    """Loss for regression."""
    label_smoothing: float = 0.0
    """Label smoothing: share of a target that is spread over all classes (Szegedy 2016, arXiv 1512.00567)."""
    mixup: float = 0.0
    """Alpha of mixup's Beta distribution, for images; 0 for none."""
    cutmix: float = 0.0
    """Alpha of CutMix's Beta distribution, for images; 0 for none. With both, each batch uses one at random."""
    zero_head: bool = False
    """Start the linear layer at zero weights and the bias log(1 / classes), as Shidani 2024, Table 2, does."""

    def build(self, spec: Specification) -> DrawingLearner:
        spec.whole_batch("supervised")
        spec.one_size("supervised", "each view is an example of one batch")
        if spec.classes == 1:
            raise ValueError("method supervised needs labels of at least 2 classes; the data have none")
        _checks.fields("method", self, mixup="[0, inf)", cutmix="[0, inf)", label_smoothing="[0, 1)")
        if (self.mixup or self.cutmix) and (spec.given or not spec.classes):
            raise ValueError("method.mixup and method.cutmix need labelled images")
        return SupervisedLearner(spec, self)


class SupervisedLearner(DrawingLearner):
    has_level = False

    def __init__(self, spec: Specification, options: Supervised) -> None:
        self.spec, self.options = spec, options
        super().__init__(lambda key: Labelled(spec, options, nnx.Rngs(key)))
        networks = self.abstract
        self.dimension = networks.head.in_features
        self.one_encoder = not spec.given
        self.outputs = outputs(e.features for e in networks.encoder) if spec.given else ("encoder", "head")

    def loss(self, params: Any, statistics: Any, batch: Batch, objective: OfViews) -> LossAndMore:
        net, options, inputs = self.network(params, statistics), self.options, batch.inputs
        views, labels, targets = batch.draw(inputs), inputs["labels"], None
        if not self.spec.given:
            labels = jnp.repeat(labels, views.shape[1])
            views = views.reshape((-1, *views.shape[2:]))
        if self.spec.classes:
            targets = jax.nn.one_hot(labels, self.spec.classes)
            targets = optax.smooth_labels(targets, options.label_smoothing)
        if options.mixup or options.cutmix:
            key = key_of_batch(statistics, inputs)
            views, targets = augment.random_mix(key, views, targets, options.mixup, options.cutmix)
        z = self._encoded(net, {**inputs, "views": views} if self.spec.given else {"images": views})
        predicted, measures = net.head(z.astype(jnp.float32)), {}
        if targets is not None:
            value = optax.softmax_cross_entropy(predicted, targets).mean()
            measures["train_accuracy"] = jnp.mean(predicted.argmax(-1) == labels, dtype=jnp.float32)
        else:
            error = predicted[:, 0] - labels
            value = jnp.mean(jnp.abs(error) if options.regression == "absolute" else error**2)
        shown = z.reshape((len(inputs["labels"]), -1, z.shape[-1])).swapaxes(0, 1)
        return value, ({**statistics, "network": self.statistics(net)}, shown, measures)

    def features(self, params: Any, statistics: Any, inputs: Inputs, output: str) -> jax.Array:
        net = models.eval_view(self.network(params, statistics))
        z = self._encoded(net, inputs)
        return net.head(z.astype(jnp.float32)) if output == "head" else z

    def _encoded(self, net: Labelled, inputs: Inputs) -> jax.Array:
        return side_by_side(net.encoder, inputs) if self.spec.given else net.encoder(inputs["images"])
