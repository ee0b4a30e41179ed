"""The interface between training and a method, a `Learner`; the plainest, SimCLR; and methods by name."""

import dataclasses
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.typing import ArrayLike

from mvcl import _checks, augment, losses, methods, models
from mvcl.methods._objective import Measures, OfViews

Inputs = Mapping[str, Any]
"""Arrays of n examples by name: `images` (n, height, width, channels), or `views`, a tuple of k arrays (n, ...),
with `present` (n, k) where views may be missing; in training also `labels`, `index` and `epoch`, (n,) each."""
Microbatches = tuple[Callable[[Inputs], Inputs], Callable[[jax.Array], jax.Array]]
"""Split and join: inputs of n rows -> (microbatches, rows, ...), each microbatch split evenly over the devices; and
(microbatches, rows * m, ...) outputs -> (n * m, ...) in the order of the batch."""
LossAndMore = tuple[jax.Array, tuple[Any, jax.Array, Measures]]


def built(encoder: models.EncoderConfig, shape: tuple[int, ...], **options: Any) -> Any:
    """An encoder for inputs of a shape; `ValueError` if it is no config of one, or has not `features`."""
    if not hasattr(encoder, "build"):
        what = "an encoder is a frozen dataclass whose build(shape, *, dtype, rngs) returns the network"
        raise ValueError(f"{what}, such as models.MLP(); got {type(encoder).__name__}")
    found = encoder.build(shape, **options)
    if not hasattr(found, "features"):
        raise ValueError(
            f"an encoder has an attribute `features`, the length of its output; {type(found).__name__}, which "
            f"{type(encoder).__name__}.build returns, has none: set self.features in its __init__"
        )
    return found


class Network(nnx.Module):
    def __init__(self, spec: "Specification", shape: tuple[int, ...], rngs: nnx.Rngs) -> None:
        self.encoder = built(spec.encoder, shape, dtype=spec.dtype, rngs=rngs)
        self.head = spec.head.build(self.encoder.features, dtype=spec.dtype, rngs=rngs)


@dataclasses.dataclass(frozen=True)
class Batch:
    """A global batch of n examples and how its views are drawn.

    Attributes:
      inputs: arrays of the examples.
      draw: inputs -> views, (n, k, ...) or a tuple of k arrays (n, ...). XLA merges several calls.
      microbatches: None: the whole batch is encoded at once.
      examples: n; the inputs may have more rows, so that devices divide them. None: all rows.
    """

    inputs: Inputs
    draw: Callable[[Inputs], Any]
    microbatches: Microbatches | None = None
    examples: int | None = None

    @property
    def mask(self) -> dict[str, jax.Array]:
        """The objective's argument `mask` (k, n), if views may be missing."""
        return {"mask": self.inputs["present"].T[:, : self.examples]} if "present" in self.inputs else {}

    def by_view(self, z: jax.Array, k: int) -> jax.Array:
        """(rows * k, d) to (k, n, d)."""
        return z.reshape((-1, k, z.shape[-1])).swapaxes(0, 1)[:, : self.examples]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Specification:
    """Arguments of `Method.build`.

    Attributes:
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
        """The first view's shape, for a method with one encoder; `ValueError` if given views have several."""
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
            what = f"method {method} does not support microbatches; train.microbatch must be None"
            raise ValueError(f"{what}, got {self.microbatch}")


def check_encoder(spec: Specification, encoder: nnx.Module) -> None:
    """Raise `ValueError` unless the encoder takes images of all sizes, and microbatches if there are some."""
    structure, variables = nnx.split(encoder)
    for shape in set(spec.shapes[1:]) - {spec.shapes[0]}:
        images = jax.ShapeDtypeStruct((1, *shape), jnp.float32)
        jax.eval_shape(lambda v, x: nnx.merge(structure, v, copy=True)(x), variables, images)
    _checks.fields("train", spec, microbatch="[1, inf)")
    if spec.microbatch is not None and jax.tree.leaves(nnx.state(encoder, nnx.BatchStat)):
        raise ValueError(
            "train.microbatch needs an encoder without batch statistics, since BatchNorm over a microbatch "
            "computes another function; use --encoder.norm group, or a ViT. The head may keep its BatchNorm"
        )


class Module:
    """A network as pure functions of its parameters and its statistics, the variables that are not parameters.

    `fresh` makes the network from a key; `abstract` has its shapes; `merge` is a network with copies of given
    parameters and statistics.
    """

    def __init__(self, fresh: Callable[[jax.Array], Any]) -> None:
        self.fresh = fresh
        self.abstract = nnx.eval_shape(lambda: fresh(jax.random.key(0)))
        self.merge = partial(nnx.merge, nnx.graphdef(self.abstract), copy=True)

    def init(self, key: jax.Array) -> tuple[Any, Any]:
        net = self.fresh(key)
        return nnx.state(net, nnx.Param), self.statistics(net)

    def statistics(self, net: Any) -> Any:
        """The variables of a network that are not parameters."""
        return nnx.state(net, nnx.Not(nnx.Param))

    def start_from(self, params: Any, statistics: Any, encoder: Any) -> tuple[Any, Any]:
        """These parameters and statistics with the encoder's replaced by those of `encoder`, or `ValueError`."""
        net = self.merge(params, statistics)
        shapes = [jax.tree.map(jnp.shape, nnx.to_pure_dict(nnx.state(e))) for e in (net.encoder, encoder)]
        if shapes[0] != shapes[1]:
            raise ValueError("train.initial must be a run with the same encoder config; its encoder differs")
        nnx.update(net.encoder, nnx.state(encoder))
        return nnx.state(net, nnx.Param), self.statistics(net)


class Learner(Module):
    """A method for given networks: pure functions of parameters, statistics and a batch.

    Parameters are the variables that the optimiser updates, statistics all others that training changes. As it stands,
    it is SimCLR: one `Network` for all views, whose embeddings are compared. Other methods override what differs.
    """

    dimension: int
    """Length d of an embedding."""
    one_encoder: bool = True
    """Whether `network` has one encoder for all views; otherwise one per view."""
    outputs: tuple[str, ...] = ("encoder", "head", "views", "head_views")
    """The outputs that `features` gives; of the given views together `encoder` and `head`, of each of them, side by
    side with zeros for missing ones, `views` and `head_views`."""
    clusters: int = 0
    """Number of clusters that the method fits; 0 for none."""
    last_batch: bool = False
    """Whether an epoch ends with the smaller batch of the examples that are left; otherwise they are not used in it."""
    has_level: bool = True
    """Whether the loss is that of the objective, so that it has a `level`."""
    objective_options: Mapping[str, Any] = MappingProxyType({})
    """Arguments that `loss` adds to the objective's."""
    restarts_parts: bool = False
    """Whether each part of the parameters has an optimiser state of its own, which `restarts` may begin anew."""

    def __init__(self, spec: Specification, method: str) -> None:
        shape, self.k = spec.one_shape(method), len(spec.shapes)
        super().__init__(lambda key: Network(spec, shape, nnx.Rngs(key)))
        check_encoder(spec, self.abstract.encoder)
        self.dimension = self.abstract.head.features

    def loss(self, params: Any, statistics: Any, batch: Batch, objective: OfViews) -> LossAndMore:
        """(loss, (statistics, (k, n, d) embeddings, measures for the log)) of a global batch."""
        net = self.merge(params, statistics)
        z = embedded(net, batch, self.k)
        value, measures = objective(z, **batch.mask)
        return value, (self.statistics(net), z, measures)

    def network(self, params: Any, statistics: Any) -> Any:
        """The network that is evaluated and exported."""
        return self.merge(params, statistics)

    def features(self, params: Any, statistics: Any, inputs: Inputs, output: str) -> jax.Array:
        """(n, d) float32 features of `images`, or of `views`, with frozen statistics; output is one of `outputs`. Of
        given views together they are the mean over the views that are present."""
        net = models.eval_view(self.network(params, statistics))
        images = "images" in inputs
        views = inputs["images"] if images else stacked(inputs["views"])
        z = net.encoder(views if images else views.reshape((-1, *views.shape[2:])))
        z = net.head(z) if output in ("head", "head_views") else z
        if images:
            return z
        here = inputs.get("present", np.ones(views.shape[:2], bool))
        z = jnp.where(here[..., None], z.reshape((*views.shape[:2], -1)), 0)
        if output in ("views", "head_views"):
            return z.reshape((len(views), -1))
        return z.sum(axis=1) / jnp.maximum(here.sum(axis=1, keepdims=True), 1)

    def level(self, objective: OfViews, z: jax.Array) -> jax.Array:
        """The loss of a batch with these (k, n, d) embeddings, for the chance level."""
        return objective(z)[0]

    def after(self, params: Any, statistics: Any, progress: jax.Array) -> Any:
        """The statistics after a parameter update; `progress` is the completed share of the run."""
        return statistics

    def due(self, step: int, steps_per_epoch: int) -> bool:
        """Whether to `refresh` before this step; the first step is 0."""
        return False

    def refresh(
        self, params: Any, statistics: Any, inputs: Inputs, step: int, steps_per_epoch: int
    ) -> tuple[Any, dict[str, Any]]:
        """Statistics computed on the host from the given views of the whole training split, and a record.

        The result depends on nothing but the arguments, so that a resumed run repeats it. The record, name -> array, is
        appended to `refresh.jsonl` in the run folder.
        """
        return statistics, {}

    def restarts(self, step: int, steps_per_epoch: int) -> tuple[str, ...]:
        """With `restarts_parts`: the parts, by their first key, whose moments are new before this step."""
        return ()


class DrawingLearner(Learner):
    """A method that draws numbers: statistics are those of the `network`, and a `key`, see `key_of_batch`."""

    def __init__(self, fresh: Callable[[jax.Array], Any]) -> None:
        Module.__init__(self, fresh)

    def init(self, key: jax.Array) -> tuple[Any, Any]:
        params, network = super().init(key)
        return params, {"network": network, "key": jax.random.key_data(jax.random.fold_in(key, 1))}

    def network(self, params: Any, statistics: Any) -> Any:
        return self.merge(params, statistics["network"])

    def start_from(self, params: Any, statistics: Any, encoder: Any) -> tuple[Any, Any]:
        params, network = super().start_from(params, statistics["network"], encoder)
        return params, {**statistics, "network": network}


@runtime_checkable
class Method(Protocol):
    """A training method: a frozen dataclass of options."""

    def build(self, spec: Specification) -> Learner:
        """The learner for these networks, inputs and objective; raises `ValueError` if they are not compatible."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Simclr:
    """SimCLR (Chen et al. 2020) for any number of views: one encoder and one head, the objective compares all k views.

    Images may have several sizes (`views.global_views`); those of one size pass the encoder together.
    """

    def build(self, spec: Specification) -> Learner:
        return Learner(spec, "simclr")


METHODS: dict[str, Callable[[], Method]] = {
    "simclr": Simclr,
    "moco_v2": lambda: methods.MocoV2(),
    "moco_v3": lambda: methods.MocoV3(),
    "student_teacher": lambda: methods.StudentTeacher(),
    "multi_encoder": lambda: methods.MultiEncoder(),
    "fused": lambda: methods.Fused(),
    "supervised": lambda: methods.Supervised(),
    "sem": lambda: methods.Sem(),
}
"""Methods by the names that `method:NAME` chooses."""


def stacked(views: Any) -> jax.Array:
    """Views as one array (n, k, ...); a tuple of k arrays (n, ...) of one shape is stacked."""
    return jnp.stack(views, axis=1) if isinstance(views, tuple) else views


def embed(encoder: nnx.Module, batch: Batch, part: slice = slice(None)) -> jax.Array:
    """Features (n * k, f) of the views of this part, ordered by example, then view.

    Views of one size pass the encoder together, so that BatchNorm has the statistics of each size in turn. The leading
    axis is n throughout: with k first, each device would compute every row.
    """

    def encode(encoder: Any, inputs: Inputs) -> jax.Array:
        views = batch.draw(inputs)
        features = augment.by_shape(encoder, views[part] if isinstance(views, tuple) else views[:, part])
        return features.reshape((-1, features.shape[-1]))

    if batch.microbatches is None:
        return encode(encoder, batch.inputs)
    (split, join), (frozen, weights) = batch.microbatches, nnx.split(encoder)

    @jax.checkpoint
    def of_microbatch(inputs: Inputs) -> jax.Array:
        return encode(nnx.merge(frozen, weights, copy=True), inputs)

    features = join(jax.lax.map(of_microbatch, split(batch.inputs)))
    models.advance_dropout(encoder)  # the microbatches used copies, whose dropout counts are lost
    return features


def embedded(net: Any, batch: Batch, k: int, part: slice = slice(None), encode: Any = embed) -> jax.Array:
    """(k, n, d) embeddings of this part of the views, which are k."""
    return batch.by_view(net.head(encode(net.encoder, batch, part)), k)


def key_of_batch(statistics: Any, inputs: Inputs) -> jax.Array:
    """The key of a batch's draws: the statistics' `key`, with the epoch and the index of the first example."""
    key = jax.random.wrap_key_data(statistics["key"])
    return jax.random.fold_in(jax.random.fold_in(key, inputs["epoch"][0]), inputs["index"][0])


def chance_level(loss: losses.Loss, k: int, n: int, d: int, seed: ArrayLike = 0) -> jax.Array:
    """The value of a loss of (k, n, d) for embeddings without information about the instance.

    It is the lower of two values: for constant embeddings, and for views drawn independently of the input. A loss
    below it therefore means information. For a loss without negatives (`byol`), constant embeddings are optimal, so
    only the independent ones count.
    """
    views = jax.random.normal(jax.random.key(seed), (k, n, d))
    # The barrier prevents slow constant folding.
    constant = loss(jax.lax.optimization_barrier(jnp.ones((k, n, d))))
    independent = loss(views)
    perfect = loss(jnp.broadcast_to(views[:1], (k, n, d)))
    repels = constant > perfect + 1e-6 * (1 + jnp.abs(perfect))
    return jnp.where(repels, jnp.minimum(constant, independent), independent)
