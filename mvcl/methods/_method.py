"""The one interface between training and a method: pure functions of parameters, statistics and a batch."""

import dataclasses
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from flax import nnx

from mvcl import losses, models
from mvcl.methods._objective import Measures

Params = Any
Statistics = Any
Inputs = Any  # a pytree of arrays that lead with the n examples


class Network(nnx.Module):
    """An encoder and the head on top of it."""

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
    """How a batch is embedded in parts.

    Attributes:
      split: inputs of n rows -> (parts, rows, ...), each part spread evenly over the devices.
      join: (parts, rows * m, ...) outputs -> (n * m, ...) in the order of the inputs.
    """

    split: Callable[[Inputs], Inputs]
    join: Callable[[jax.Array], jax.Array]


@dataclasses.dataclass(frozen=True)
class Refresh:
    """What a method takes from the whole training split now and then, on the host.

    Attributes:
      due: (step, steps_per_epoch) -> whether it is taken before this step, 0 being the first.
      compute: (parameters, statistics, views, present, step, steps_per_epoch) -> (statistics, record): from all rows
        of the split, a tuple of (N, ...) arrays and the (N, k) mask or None. It depends on nothing else, so that a
        resumed run repeats it. The record, names to arrays, goes to `refresh.jsonl` in the run folder.
    """

    due: Callable[[int, int], bool]
    compute: Callable[..., tuple[Statistics, dict[str, Any]]]


@dataclasses.dataclass(frozen=True)
class Learner:
    """A method at work on given networks.

    Attributes:
      init: key -> (parameters, statistics): what the gradient moves, and all else that training changes.
      loss: (parameters, statistics, inputs, draw, objective, microbatches) -> (loss, (statistics, embeddings,
        measures)), where draw turns inputs into (n, k, ...) views or a tuple of k arrays (n, ...), objective is
        `of_views` of the objective over the global batch, and microbatches is None or how the batch is split.
      features: (parameters, statistics, inputs, output) -> (n, d) float32 from frozen statistics; the inputs are
        images, or {"views": tuple of k arrays (n, ...), "present": (n, k)}; output is `encoder` or `head`.
      network: (parameters, statistics) -> the network that is evaluated and exported.
      dimension: length d of an embedding.
      level: (objective, (k, n, d) embeddings) -> the loss of a batch with these embeddings, for the chance level;
        None where the objective is not what is minimised.
      after: (parameters, statistics, progress) -> statistics, in the step, once the parameters have moved;
        progress is the share of the run that is done. None changes nothing.
      refresh: what is taken from the whole training split now and then.
      one_encoder: whether `network` has one encoder for all views; else it has one for each view.
      clusters: number of clusters that the method looks for; 0 for methods that look for none.
      start_from: (parameters, statistics, encoder) -> both with those of a trained encoder in place of their own; None
        where a method cannot start from one.
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Specification:
    """What a method is built for.

    Attributes:
      encoder: config of the encoder.
      head: config of the head.
      objective: what is minimised.
      shapes: shape of one example of each of the k views.
      given: whether an example holds its views, as a table does; views of an image are drawn.
      examples: of the training split.
      classes: number of classes; 0 where the label is a number.
      microbatch: examples embedded at a time on a device; None embeds the batch at once.
      dtype: arithmetic of the networks.
    """

    encoder: models.EncoderConfig
    head: models.HeadConfig
    objective: losses.Loss
    shapes: tuple[tuple[int, ...], ...]
    given: bool
    examples: int
    classes: int
    microbatch: int | None = None
    dtype: jnp.dtype | type = jnp.float32

    def one_shape(self, method: str) -> tuple[int, ...]:
        """The shape that all views share, for a method with one encoder."""
        if len(set(self.shapes)) > 1:
            raise ValueError(
                f"method {method} has one encoder for all views and needs views of one shape, got "
                f"{', '.join(map(str, self.shapes))}; method:multi_encoder has an encoder for each"
            )
        return self.shapes[0]

    def whole_batch(self, method: str) -> None:
        """Raise a `ValueError` if micro-batches are asked for, for a method that embeds a batch at once."""
        if self.microbatch is not None:
            raise ValueError(
                f"method {method} embeds a batch at once; train.microbatch must be None, got {self.microbatch}"
            )


@runtime_checkable
class Method(Protocol):
    """A way of training; its implementations are frozen dataclasses that hold its options."""

    def build(self, spec: Specification) -> Learner:
        """The pure functions for these networks, inputs and objective.

        Raises:
          ValueError: options, networks, inputs or objective that do not go together.
        """
        ...


def check_microbatch(spec: Specification, encoder: nnx.Module) -> None:
    """Micro-batches need an encoder whose output for one image does not depend on the others."""
    if spec.microbatch is None:
        return
    if spec.microbatch < 1:
        raise ValueError(f"train.microbatch must be at least 1, got {spec.microbatch}")
    if jax.tree.leaves(nnx.state(encoder, nnx.BatchStat)):
        raise ValueError(
            "train.microbatch needs an encoder without batch statistics, for BatchNorm over a part of the batch "
            "is another function; use --encoder.norm group, or a ViT. The head may keep its BatchNorm"
        )


class Module:
    """A network as pure functions of its parameters and of all else that it holds."""

    def __init__(self, fresh: Callable[[jax.Array], Any]) -> None:
        self.fresh = fresh
        self.abstract = nnx.eval_shape(lambda: fresh(jax.random.key(0)))
        self._graph = nnx.graphdef(self.abstract)

    def init(self, key: jax.Array) -> tuple[Params, Statistics]:
        """Parameters and statistics of a fresh network."""
        net = self.fresh(key)
        return nnx.state(net, nnx.Param), self.statistics(net)

    def merge(self, params: Params, statistics: Statistics) -> Any:
        """The network with these; it shares nothing with them."""
        return nnx.merge(self._graph, params, statistics, copy=True)

    def start_from(self, params: Params, statistics: Statistics, encoder: Any) -> tuple[Params, Statistics]:
        """These parameters and statistics with those of an encoder in place of their own.

        Raises:
          ValueError: the encoder is another.
        """
        net = self.merge(params, statistics)
        shapes = [jax.tree.map(jnp.shape, nnx.to_pure_dict(nnx.state(e))) for e in (net.encoder, encoder)]
        if shapes[0] != shapes[1]:
            raise ValueError(
                "train.initial must be a run with the encoder of this config; its encoder is another"
            )
        nnx.update(net.encoder, nnx.state(encoder))
        return nnx.state(net, nnx.Param), self.statistics(net)

    def statistics(self, net: Any) -> Statistics:
        """What a network holds beside its parameters."""
        return nnx.state(net, nnx.Not(nnx.Param))


def stacked(views: Any) -> jax.Array:
    """(n, k, ...) views, from themselves or from a tuple of k arrays (n, ...) of one shape."""
    return jnp.stack(views, axis=1) if isinstance(views, tuple) else views


def embed(
    encoder: nnx.Module,
    inputs: Inputs,
    draw: Callable[[Inputs], Any],
    microbatches: Microbatches | None = None,
) -> jax.Array:
    """Features (n * k, f) of all views, an example's views one after the other.

    Views lead with n all the way: with k in front, each device would compute every row.
    """

    def encode(encoder: Any, inputs: Inputs) -> jax.Array:
        views = stacked(draw(inputs))
        return encoder(views.reshape((-1, *views.shape[2:])))

    if microbatches is None:
        return encode(encoder, inputs)
    frozen, weights = nnx.split(encoder)

    @jax.checkpoint
    def part(inputs: Inputs) -> jax.Array:
        return encode(nnx.merge(frozen, weights, copy=True), inputs)

    features = microbatches.join(jax.lax.map(part, microbatches.split(inputs)))
    models.advance_dropout(encoder)  # the parts used copies, whose count of dropout masks is lost
    return features


def by_view(z: jax.Array, n: int) -> jax.Array:
    """(n * k, d) to (k, n, d)."""
    return z.reshape((n, -1, z.shape[-1])).swapaxes(0, 1)


def missing(inputs: Inputs) -> dict[str, jax.Array]:
    """The (k, n) mask for the objective, where examples may lack views."""
    return {"mask": inputs["present"].T} if "present" in inputs else {}


def rows(inputs: Inputs) -> int:
    """n, the examples of some inputs."""
    return jax.tree.leaves(inputs)[0].shape[0]


def observe(network: Network, inputs: Any, output: str) -> jax.Array:
    """Features of a network that is done with learning: (n, d) of images.

    Where an example holds its views, the mean of its views' features, over those that are there.
    """
    view = models.eval_view(network)

    def features(x: jax.Array) -> jax.Array:
        encoded = view.encoder(x)
        return view.head(encoded) if output == "head" else encoded

    if not isinstance(inputs, dict):
        return features(inputs)
    views = stacked(inputs["views"])
    found = features(views.reshape((-1, *views.shape[2:]))).reshape((*views.shape[:2], -1))
    if "present" not in inputs:
        return found.mean(axis=1)
    present = inputs["present"]
    count = jnp.maximum(present.sum(axis=1, keepdims=True), 1)
    return jnp.where(present[..., None], found, 0).sum(axis=1) / count
