"""The interface between training and a method: pure functions of parameters, statistics and a batch."""

import dataclasses
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from mvcl import augment, losses, models
from mvcl.methods._objective import Measures

Params = Any
Statistics = Any
Inputs = Any  # a pytree of arrays (n, ...)


class Network(nnx.Module):
    """An encoder followed by a head."""

    def __init__(
        self,
        encoder: models.EncoderConfig,
        head: models.HeadConfig,
        input_shape: tuple[int, ...],
        *,
        dtype: Any,
        rngs: nnx.Rngs,
    ) -> None:
        self.encoder = encoder.build(input_shape, dtype=dtype, rngs=rngs)
        self.head = head.build(self.encoder.features, dtype=dtype, rngs=rngs)


@dataclasses.dataclass(frozen=True)
class Microbatches:
    """How a batch is split into microbatches.

    Attributes:
      split: inputs of n rows -> (microbatches, rows, ...), each microbatch split evenly over the devices.
      join: (microbatches, rows * m, ...) outputs -> (n * m, ...) in the order of the inputs.
    """

    split: Callable[[Inputs], Inputs]
    join: Callable[[jax.Array], jax.Array]


@dataclasses.dataclass(frozen=True)
class Refresh:
    """A periodic computation over the whole training split, on the host.

    Attributes:
      due: (step, steps_per_epoch) -> whether to compute before this step; the first step is 0.
      compute: (parameters, statistics, views, present, step, steps_per_epoch, track=Track) -> (statistics, record):
        from all rows of the split, a tuple of (N, ...) arrays and the (N, k) mask or None. It must depend on nothing
        else, so that a resumed run repeats it; its long loops go through the `Track`. The record, name -> array, is
        appended to `refresh.jsonl` in the run folder.
    """

    due: Callable[[int, int], bool]
    compute: Callable[..., tuple[Statistics, dict[str, Any]]]


@dataclasses.dataclass(frozen=True)
class Learner:
    """The functions of a method for given networks.

    Attributes:
      init: key -> (parameters, statistics): the variables updated by the optimiser, and all others that training
        changes.
      loss: (parameters, statistics, inputs, draw, objective, microbatches) -> (loss, (statistics, embeddings,
        measures)), where draw turns inputs into (n, k, ...) views or a tuple of k arrays (n, ...), objective is
        `of_views` of the objective over the global batch, and microbatches is None or the `Microbatches`.
      features: (parameters, statistics, inputs, output) -> (n, d) float32, with frozen statistics; the inputs are
        images, or {"views": tuple of k arrays (n, ...), "present": (n, k)}; output is one of `outputs`.
      network: (parameters, statistics) -> the network that is evaluated and exported.
      dimension: length d of an embedding.
      level: (objective, (k, n, d) embeddings) -> the loss of a batch with these embeddings, for the chance level; None
        if the method does not minimise the objective.
      after: (parameters, statistics, progress) -> statistics, called in the step after the parameter update; progress
        is the completed share of the run. None: no change.
      refresh: a periodic computation over the training split, or None.
      one_encoder: whether `network` has one encoder for all views; otherwise one per view.
      clusters: number of clusters that the method fits; 0 for none.
      start_from: (parameters, statistics, encoder) -> both with the encoder replaced by a trained one; None if
        unsupported.
      last_batch: whether an epoch ends with the smaller batch of the examples that are left; otherwise they are not
        used in that epoch.
      outputs: the outputs that `features` gives; of the given views together `encoder` and `head`, of each of them,
        side by side with zeros for missing ones, `views` and `head_views`.
      restarts: (step, steps_per_epoch) -> the parts of the parameters, by their first key, whose optimiser state is
        as new before this step. Every part then has an optimiser state of its own. None: one state, never new.
    """

    init: Callable[[jax.Array], tuple[Params, Statistics]]
    loss: Callable[..., tuple[jax.Array, tuple[Statistics, jax.Array, Measures]]]
    features: Callable[[Params, Statistics, Any, str], jax.Array]
    network: Callable[[Params, Statistics], Any]
    dimension: int
    level: Callable[..., jax.Array] | None = None
    after: Callable[[Params, Statistics, jax.Array], Statistics] | None = None
    refresh: Refresh | None = None
    one_encoder: bool = True
    clusters: int = 0
    start_from: Callable[..., tuple[Params, Statistics]] | None = None
    last_batch: bool = False
    outputs: tuple[str, ...] = ("encoder", "head", "views", "head_views")
    restarts: Callable[[int, int], tuple[str, ...]] | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Specification:
    """Arguments of `Method.build`.

    Attributes:
      encoder: config of the encoder.
      head: config of the head.
      objective: the loss function.
      shapes: shape of one example of each of the k views.
      global_views: number of global views, the first ones; the others are local. None: all are global.
      given: True if examples have given views, as tables do; False if views are drawn from images.
      examples: number of training examples.
      classes: number of classes; 0 for regression.
      microbatch: examples per device and microbatch; None embeds the whole batch.
      dtype: computation dtype of the networks.
    """

    encoder: models.EncoderConfig
    head: models.HeadConfig
    objective: losses.Loss
    shapes: tuple[tuple[int, ...], ...]
    given: bool
    examples: int
    classes: int
    global_views: int | None = None
    microbatch: int | None = None
    dtype: jnp.dtype | type = jnp.float32

    def one_shape(self, method: str) -> tuple[int, ...]:
        """The shape for which a method with one encoder builds it: that of the first view.

        Other views may be images of other sizes; `check_encoder` says whether the encoder takes them.

        Raises:
          ValueError: given views have several shapes.
        """
        if self.given and len(set(self.shapes)) > 1:
            raise ValueError(
                f"method {method} has one encoder for all views and needs views of one shape, got "
                f"{', '.join(map(str, self.shapes))}; method:multi_encoder has one encoder per view"
            )
        return self.shapes[0]

    def one_size(self, method: str, why: str) -> None:
        """Raise `ValueError` if images of several sizes or global and local views are drawn, giving the reason."""
        if not self.given and (len(set(self.shapes)) > 1 or self.global_views is not None):
            sizes = ", ".join(str(shape[0]) for shape in self.shapes)
            raise ValueError(
                f"method {method} needs views of one size and no views.global_views, since {why}; got sizes {sizes} "
                f"and views.global_views = {self.global_views}; use method:simclr or method:student_teacher"
            )

    def whole_batch(self, method: str) -> None:
        """Raise `ValueError` if microbatches are set; for methods without support for them."""
        if self.microbatch is not None:
            raise ValueError(
                f"method {method} does not support microbatches; train.microbatch must be None, got {self.microbatch}"
            )


@runtime_checkable
class Method(Protocol):
    """A training method: a frozen dataclass of options."""

    def build(self, spec: Specification) -> Learner:
        """Build the pure functions for these networks, inputs and objective.

        Raises:
          ValueError: options, networks, inputs and objective are not compatible.
        """
        ...


def check_encoder(spec: Specification, encoder: nnx.Module) -> None:
    """Check that the encoder takes images of all sizes, and supports microbatches if there are some.

    In microbatches, one image's output must not depend on the others.

    Raises:
      ValueError: it does not.
    """
    structure, variables = nnx.split(encoder)
    for shape in set(spec.shapes[1:]) - {spec.shapes[0]}:
        images = jax.ShapeDtypeStruct((1, *shape), jnp.float32)
        jax.eval_shape(lambda v, x: nnx.merge(structure, v, copy=True)(x), variables, images)
    if spec.microbatch is None:
        return
    if spec.microbatch < 1:
        raise ValueError(f"train.microbatch must be at least 1, got {spec.microbatch}")
    if jax.tree.leaves(nnx.state(encoder, nnx.BatchStat)):
        raise ValueError(
            "train.microbatch needs an encoder without batch statistics, since BatchNorm over a microbatch "
            "computes another function; use --encoder.norm group, or a ViT. The head may keep its BatchNorm"
        )


class Module:
    """A network as pure functions of its parameters and its other variables."""

    def __init__(self, fresh: Callable[[jax.Array], Any]) -> None:
        self.fresh = fresh
        self.abstract = nnx.eval_shape(lambda: fresh(jax.random.key(0)))
        self._graph = nnx.graphdef(self.abstract)

    def init(self, key: jax.Array) -> tuple[Params, Statistics]:
        """Initial parameters and statistics."""
        net = self.fresh(key)
        return nnx.state(net, nnx.Param), self.statistics(net)

    def merge(self, params: Params, statistics: Statistics) -> Any:
        """A network with copies of these parameters and statistics."""
        return nnx.merge(self._graph, params, statistics, copy=True)

    def start_from(self, params: Params, statistics: Statistics, encoder: Any) -> tuple[Params, Statistics]:
        """These parameters and statistics with the encoder's replaced by those of `encoder`.

        Raises:
          ValueError: the encoders differ.
        """
        net = self.merge(params, statistics)
        shapes = [jax.tree.map(jnp.shape, nnx.to_pure_dict(nnx.state(e))) for e in (net.encoder, encoder)]
        if shapes[0] != shapes[1]:
            raise ValueError("train.initial must be a run with the same encoder config; its encoder differs")
        nnx.update(net.encoder, nnx.state(encoder))
        return nnx.state(net, nnx.Param), self.statistics(net)

    def statistics(self, net: Any) -> Statistics:
        """The variables of a network that are not parameters."""
        return nnx.state(net, nnx.Not(nnx.Param))


def stacked(views: Any) -> jax.Array:
    """Views as one array (n, k, ...); a tuple of k arrays (n, ...) of one shape is stacked."""
    return jnp.stack(views, axis=1) if isinstance(views, tuple) else views


def part_of(draw: Callable[[Inputs], Any], start: int, stop: int | None) -> Callable[[Inputs], Any]:
    """A function that draws the views from `start` to `stop` only; XLA merges several calls of `draw`."""

    def part(inputs: Inputs) -> Any:
        views = draw(inputs)
        return views[start:stop] if isinstance(views, tuple) else views[:, start:stop]

    return part


def embed(
    encoder: nnx.Module,
    inputs: Inputs,
    draw: Callable[[Inputs], Any],
    microbatches: Microbatches | None = None,
) -> jax.Array:
    """Features (n * k, f) of all views, ordered by example, then view.

    Views of one size pass the encoder together, so that BatchNorm has the statistics of each size in turn. The leading
    axis is n throughout: with k first, each device would compute every row.
    """

    def encode(encoder: Any, inputs: Inputs) -> jax.Array:
        found = []
        for places, views in augment.by_shape(draw(inputs)):
            features = encoder(views.reshape((-1, *views.shape[2:])))
            found.append((places, features.reshape((*views.shape[:2], -1))))
        features = augment.in_order_of_views(found)
        return features.reshape((-1, features.shape[-1]))

    if microbatches is None:
        return encode(encoder, inputs)
    frozen, weights = nnx.split(encoder)

    @jax.checkpoint
    def part(inputs: Inputs) -> jax.Array:
        return encode(nnx.merge(frozen, weights, copy=True), inputs)

    features = microbatches.join(jax.lax.map(part, microbatches.split(inputs)))
    models.advance_dropout(encoder)  # the microbatches used copies, whose dropout counts are lost
    return features


def by_view(z: jax.Array, n: int) -> jax.Array:
    """(n * k, d) to (k, n, d)."""
    return z.reshape((n, -1, z.shape[-1])).swapaxes(0, 1)


def missing(inputs: Inputs) -> dict[str, jax.Array]:
    """The objective's (k, n) mask, if views may be missing."""
    return {"mask": inputs["present"].T} if "present" in inputs else {}


def rows(inputs: Inputs) -> int:
    """n, the number of examples in the inputs."""
    return jax.tree.leaves(inputs)[0].shape[0]


def observe(network: Network, inputs: Any, output: str) -> jax.Array:
    """(n, d) features of images from a frozen network.

    For given views: the mean of the features of the views that are present; with the outputs `views` and `head_views`,
    those of the encoder or the head side by side, (n, k d), zeros for missing views.
    """
    view = models.eval_view(network)

    def features(x: jax.Array) -> jax.Array:
        encoded = view.encoder(x)
        return view.head(encoded) if output in ("head", "head_views") else encoded

    if not isinstance(inputs, dict):
        return features(inputs)
    views = stacked(inputs["views"])
    found = features(views.reshape((-1, *views.shape[2:]))).reshape((*views.shape[:2], -1))
    if output in ("views", "head_views"):
        here = inputs.get("present", np.ones(views.shape[:2], bool))
        return jnp.where(here[..., None], found, 0).reshape((len(views), -1))
    if "present" not in inputs:
        return found.mean(axis=1)
    present = inputs["present"]
    count = jnp.maximum(present.sum(axis=1, keepdims=True), 1)
    return jnp.where(present[..., None], found, 0).sum(axis=1) / count
