"""Momentum contrast: queries from the encoder, keys from its moving average (He 2020; Chen 2020, 2021)."""

import dataclasses
from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from mvcl import losses, models
from mvcl.losses import QueueRows
from mvcl.methods._method import (
    Inputs,
    Learner,
    Measures,
    Microbatches,
    Module,
    Params,
    Specification,
    Statistics,
    by_view,
    embed,
    missing,
    part_of,
    rows,
    stacked,
)
from mvcl.methods._momentum import Followed
from mvcl.methods._objective import OfViews


@dataclasses.dataclass(frozen=True, kw_only=True)
class MocoV2:
    """Query encoder, momentum encoder and a queue of keys (MoCo v2, Chen et al. 2020; Jeon 2025 for several views).

    Of the k = 2m views the first m are queries and the last m keys. The queue has the keys of earlier batches, as the
    objective declares (`Takes.queue_rows`): an instance's m unit keys, or their mean, whose length is their
    concentration. It starts with random unit vectors.

    BatchNorm sees a query and its positive key in one batch, and can tell them by its statistics (He 2020, Section
    3.3). Statistics of the global batch do not prevent that, since queries and keys have the same images. As in MoCo,
    `shuffle_keys` with an encoder whose statistics are those of groups (`ResNet.batch_groups`) does.
    """

    momentum: float = 0.999
    """Decay of the momentum encoder per step, at the start."""
    end_momentum: float = 0.999
    """Decay at the end, reached by a half cosine."""
    queue: int = 4096
    """Number of rows in the queue of negatives; 0 for none."""
    queue_keys: Literal["all", "one"] = "all"
    """Keys of an instance that enter the queue of an objective that compares single keys, such as cross_pairs. `all`:
    its m keys, so that 4096 rows hold 4096 / m instances; `one`: the first, so that they hold 4096, as with an
    objective that takes the mean of an instance's keys (dsf, mean_pair)."""
    shuffle_keys: bool = False
    """Encode the keys in another order than the queries, so that BatchNorm over groups of the batch has other
    images for a key than for its query. The order is fixed; that of the images is random."""
    evaluate: Literal["online", "momentum"] = "online"
    """The encoder that is evaluated and exported."""

    def build(self, spec: Specification) -> Learner:
        """Build the pure functions; the inputs have one shape."""
        spec.one_size("moco_v2", "queries and keys are two halves of like views")
        if len(spec.shapes) % 2:
            raise ValueError(
                "method moco_v2 splits the views between two encoders; views.k must be even, got "
                f"{len(spec.shapes)}"
            )
        if self.queue < 0:
            raise ValueError(f"method.queue must be at least 0, got {self.queue}")
        takes = losses.takes(spec.objective)
        if self.queue and takes.queue is None:
            raise ValueError(
                f"objective {losses.name(spec.objective)} does not take a queue; use --method.queue 0, or "
                "objective:dsf, objective:cross_pairs or objective:mean_pair with a pair loss that takes extra "
                "negatives"
            )
        if self.queue_keys not in ("all", "one"):
            raise ValueError(f"method.queue_keys must be all or one, got {self.queue_keys!r}")
        if self.shuffle_keys:
            spec.whole_batch("moco_v2 with shuffle_keys")
        pair = Followed(spec, self, "moco_v2")

        def fresh(keys: jax.Array) -> jax.Array:
            """The queue's rows from (m, n, d) keys."""
            z = _unit(keys.astype(jnp.float32))
            if takes.queue_rows is QueueRows.GROUP_MEAN:
                return z.mean(0)
            return z[0] if self.queue_keys == "one" else z.reshape((-1, z.shape[-1]))

        def init(key: jax.Array) -> tuple[Params, Statistics]:
            params, statistics = pair.init(key)
            if self.queue:
                vectors = jax.random.normal(jax.random.fold_in(key, 1), (self.queue, pair.dimension))
                statistics["queue"] = _unit(vectors)
            return params, statistics

        def loss(
            params: Params,
            statistics: Statistics,
            inputs: Inputs,
            draw: Callable[[Inputs], Any],
            objective: OfViews,
            microbatches: Microbatches | None = None,
        ) -> tuple[jax.Array, tuple[Statistics, jax.Array, Measures]]:
            online, momentum, n = pair.online(params, statistics), pair.momentum(statistics), rows(inputs)
            m = len(spec.shapes) // 2
            first, last = part_of(draw, 0, m), part_of(draw, m, None)
            queries = by_view(online.head(embed(online.encoder, inputs, first, microbatches)), n)
            if self.shuffle_keys:
                features = _embed_shuffled(momentum.encoder, inputs, last)
            else:
                features = embed(momentum.encoder, inputs, last, microbatches)
            keys = jax.lax.stop_gradient(by_view(momentum.head(features), n))
            queue = {"queue": statistics["queue"]} if self.queue else {}
            value, measures = objective(jnp.concatenate([queries, keys]), **queue, **missing(inputs))
            new = pair.moved(statistics, online, momentum)
            if self.queue:
                new["queue"] = jnp.concatenate([fresh(keys), statistics["queue"]])[: self.queue]
            return value, (new, queries, measures)

        def level(objective: OfViews, z: jax.Array) -> jax.Array:
            if not self.queue:
                return objective(z)[0]
            # A queue like the keys: those of the batch, repeated.
            like = fresh(z[len(z) // 2 :])
            return objective(z, queue=jnp.resize(like, (self.queue, z.shape[-1])))[0]

        return pair.learner(init, loss, level)


@dataclasses.dataclass(frozen=True, kw_only=True)
class MocoV3:
    """MoCo v3: momentum encoder, predictor, in-batch keys, symmetric loss (Chen et al. 2021).

    With the k = 2m views in halves A and B, the loss is L(q(A), k(B)) + L(q(B), k(A)): queries from encoder, head
    and predictor, keys from the momentum copy of encoder and head.
    """

    momentum: float = 0.99
    """Decay of the momentum encoder per step, at the start."""
    end_momentum: float = 1.0
    """Decay at the end, reached by a half cosine."""
    predictor: models.HeadConfig = dataclasses.field(
        default_factory=lambda: models.MLPHead(
            layers=2, hidden=4096, out=256, norm="batch", output_norm="batch_plain"
        )
    )
    """Predictor from the head's output to the queries; must keep the head's length."""
    evaluate: Literal["online", "momentum"] = "online"
    """The encoder that is evaluated and exported."""

    def build(self, spec: Specification) -> Learner:
        """Build the pure functions; the inputs have one shape."""
        spec.one_size("moco_v3", "queries and keys are two halves of like views")
        if len(spec.shapes) % 2:
            raise ValueError(
                f"method moco_v3 splits the views into two halves; views.k must be even, got {len(spec.shapes)}"
            )
        pair = Followed(spec, self, "moco_v3")
        predictor = Predictor(self.predictor, pair.dimension, spec.dtype)

        def init(key: jax.Array) -> tuple[Params, Statistics]:
            return predictor.init(*pair.init(key), key)

        def loss(
            params: Params,
            statistics: Statistics,
            inputs: Inputs,
            draw: Callable[[Inputs], Any],
            objective: OfViews,
            microbatches: Microbatches | None = None,
        ) -> tuple[jax.Array, tuple[Statistics, jax.Array, Measures]]:
            online, momentum, n = pair.online(params, statistics), pair.momentum(statistics), rows(inputs)
            predict = predictor.module(params, statistics)
            z = online.head(embed(online.encoder, inputs, draw, microbatches))
            queries = by_view(predict(z), n)
            keys = by_view(momentum.head(embed(momentum.encoder, inputs, draw, microbatches)), n)
            keys = jax.lax.stop_gradient(keys)
            m = len(keys) // 2
            mask = missing(inputs)
            forth, measures = objective(jnp.concatenate([queries[:m], keys[m:]]), **mask)
            swapped = {name: jnp.roll(there, m, axis=0) for name, there in mask.items()}
            back, _ = objective(jnp.concatenate([queries[m:], keys[:m]]), **swapped)
            new = predictor.moved(pair.moved(statistics, online, momentum), predict)
            return forth + back, (new, by_view(z, n), measures)

        def level(objective: OfViews, z: jax.Array) -> jax.Array:
            m = len(z) // 2
            return objective(z)[0] + objective(jnp.concatenate([z[m:], z[:m]]))[0]

        return pair.learner(init, loss, level)


class Predictor:
    """The network after the head of the trained encoder only."""

    def __init__(self, config: models.HeadConfig, features: int, dtype: Any) -> None:
        self._module = Module(lambda key: config.build(features, dtype=dtype, rngs=nnx.Rngs(key)))
        out = self._module.abstract.features
        if out != features:
            raise ValueError(
                f"method.predictor must end in the head's {features} features, got {out}; "
                f"set --method.predictor.out {features}"
            )

    def init(self, params: Any, statistics: Any, key: jax.Array) -> tuple[Params, Statistics]:
        """Parameters and statistics, plus those of a new predictor."""
        weights, rest = self._module.init(jax.random.fold_in(key, 2))
        return params | {"predictor": weights}, statistics | {"predictor": rest}

    def module(self, params: Params, statistics: Statistics) -> Any:
        """The predictor."""
        return self._module.merge(params["predictor"], statistics["predictor"])

    def moved(self, statistics: Statistics, module: Any) -> Statistics:
        """The statistics updated by the predictor's call."""
        return statistics | {"predictor": self._module.statistics(module)}


def _embed_shuffled(encoder: nnx.Module, inputs: Inputs, draw: Callable[[Inputs], Any]) -> jax.Array:
    """`embed`, encoding the n * m views in a fixed random order."""
    views = stacked(draw(inputs))
    order = np.random.default_rng(0).permutation(views.shape[0] * views.shape[1])
    return encoder(views.reshape((-1, *views.shape[2:]))[order])[np.argsort(order)]


def _unit(z: jax.Array) -> jax.Array:
    return z / jnp.maximum(jnp.linalg.norm(z, axis=-1, keepdims=True), 1e-12)
