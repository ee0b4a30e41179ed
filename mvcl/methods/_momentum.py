"""Methods with a momentum encoder, a moving average of the trained one: MoCo v2 and v3, student and teacher."""

import dataclasses
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from mvcl import _checks, _numerics, losses, models
from mvcl.methods._method import Batch, Learner, LossAndMore, Module, Specification, embed, embedded, stacked
from mvcl.methods._objective import OfViews


@dataclasses.dataclass(frozen=True, kw_only=True)
class Following:
    """Options of a method with a momentum encoder, whose parameters are m * theirs + (1 - m) * trained ones."""

    momentum: float = 0.99
    """Decay m of the momentum encoder per step, at the start."""
    end_momentum: float = 1.0
    """Decay at the end, reached by a half cosine."""
    evaluate: Literal["online", "momentum"] = "online"
    """The encoder that is evaluated and exported: the trained one (online) or the momentum encoder."""


class FollowedLearner(Learner):
    """A network and its momentum copy, which follows it after each step; and a predictor after the network's head.

    Parameters are `network` and `predictor`; statistics are `network` (the trained network's), `momentum` (the copy's
    parameters), `momentum_network` (the copy's own statistics) and `predictor`.
    """

    def __init__(
        self, spec: Specification, options: Following, method: str, predictor: models.HeadConfig
    ) -> None:
        _checks.fields("method", options, momentum="[0, 1]", end_momentum="[0, 1]")
        super().__init__(spec, method)
        self.options, self.spec, width = options, spec, self.dimension
        self.predictor = Module(lambda key: predictor.build(width, dtype=spec.dtype, rngs=nnx.Rngs(key)))
        if (found := self.predictor.abstract.features) != width:
            what = f"method.predictor must end in the head's {width} features"
            raise ValueError(f"{what}, got {found}: --method.predictor.out {width}")

    def init(self, key: jax.Array) -> tuple[dict[str, Any], dict[str, Any]]:
        weights, rest = super().init(key)
        copy = jax.tree.map(jnp.copy, (weights, rest))
        predict, state = self.predictor.init(jax.random.fold_in(key, 2))
        statistics = {"network": rest, "momentum": copy[0], "momentum_network": copy[1], "predictor": state}
        return {"network": weights, "predictor": predict}, statistics

    def networks(self, params: Any, statistics: Any) -> tuple[Any, Any, Any]:
        """The trained network, the momentum copy without gradient, and the predictor."""
        online = self.merge(params["network"], statistics["network"])
        copy = self.merge(jax.lax.stop_gradient(statistics["momentum"]), statistics["momentum_network"])
        return online, copy, self.predictor.merge(params["predictor"], statistics["predictor"])

    def moved(self, statistics: Any, online: Any, copy: Any, predict: Any) -> dict[str, Any]:
        moved = {"network": online, "momentum_network": copy, "predictor": predict}
        return statistics | {name: self.statistics(net) for name, net in moved.items()}

    def network(self, params: Any, statistics: Any) -> Any:
        online, copy, _ = self.networks(params, statistics)
        return online if self.options.evaluate == "online" else copy

    def after(self, params: Any, statistics: Any, progress: jax.Array) -> Any:
        start, end = self.options.momentum, self.options.end_momentum
        m = end - (end - start) * (jnp.cos(jnp.pi * progress) + 1) / 2
        moved = optax.incremental_update(params["network"], statistics["momentum"], 1 - m)
        return statistics | {"momentum": moved}


@dataclasses.dataclass(frozen=True, kw_only=True)
class MocoV2(Following):
    """Query encoder, momentum encoder and a queue of keys (MoCo v2, Chen et al. 2020; Jeon 2025 for several views).

    Of the k = 2m views the first m are queries and the last m keys. The queue has the keys of earlier batches, as the
    objective declares (`Takes.queue_of_means`): an instance's m unit keys, or their mean, whose length is their
    concentration. It starts with random unit vectors.

    BatchNorm sees a query and its positive key in one batch, and can tell them by its statistics (He 2020, Section
    3.3). Statistics of the global batch do not prevent that, since queries and keys have the same images. As in MoCo,
    `shuffle_keys` with an encoder whose statistics are those of groups (`ResNet.batch_groups`) does.
    """

    momentum: float = 0.999
    end_momentum: float = 0.999
    queue: int = 4096
    """Number of rows in the queue of negatives; 0 for none."""
    queue_keys: Literal["all", "one"] = "all"
    """Keys of an instance that enter the queue of an objective that compares single keys, such as cross_pairs. `all`:
    its m keys, so that 4096 rows hold 4096 / m instances; `one`: the first, so that they hold 4096, as with an
    objective that takes the mean of an instance's keys (dsf, mean_pair)."""
    shuffle_keys: bool = False
    """Encode the keys in another order than the queries, so that BatchNorm over groups of the batch has other
    images for a key than for its query. The order is fixed; that of the images is random."""

    def build(self, spec: Specification) -> Learner:
        _in_halves(spec, "moco_v2")
        _checks.fields("method", self, queue="[0, inf)")
        if self.queue and losses.takes(spec.objective).queue is None:
            raise ValueError(
                f"objective {losses.name(spec.objective)} does not take a queue; use --method.queue 0, or "
                "objective:dsf, objective:cross_pairs or objective:mean_pair with a pair loss that takes extra "
                "negatives"
            )
        _checks.option("method.queue_keys", self.queue_keys, ("all", "one"))
        if self.shuffle_keys:
            spec.whole_batch("moco_v2 with shuffle_keys")
        return MocoV2Learner(spec, self, "moco_v2", models.IdentityHead())


class MocoV2Learner(FollowedLearner):
    options: MocoV2

    def init(self, key: jax.Array) -> tuple[Any, Any]:
        params, statistics = super().init(key)
        if self.options.queue:
            vectors = jax.random.normal(jax.random.fold_in(key, 1), (self.options.queue, self.dimension))
            statistics["queue"] = _numerics.unit(vectors)
        return params, statistics

    def loss(self, params: Any, statistics: Any, batch: Batch, objective: OfViews) -> LossAndMore:
        online, copy, predict = self.networks(params, statistics)
        m, encode = self.k // 2, _embed_shuffled if self.options.shuffle_keys else embed
        queries = embedded(online, batch, m, slice(0, m))
        keys = jax.lax.stop_gradient(embedded(copy, batch, m, slice(m, None), encode))
        queue = {"queue": statistics["queue"]} if self.options.queue else {}
        value, measures = objective(jnp.concatenate([queries, keys]), **queue, **batch.mask)
        new = self.moved(statistics, online, copy, predict)
        if self.options.queue:
            new["queue"] = jnp.concatenate([self._rows(keys), statistics["queue"]])[: self.options.queue]
        return value, (new, queries, measures)

    def level(self, objective: OfViews, z: jax.Array) -> jax.Array:
        if not self.options.queue:
            return objective(z)[0]
        # A queue like the keys: those of the batch, repeated.
        like = self._rows(z[len(z) // 2 :])
        return objective(z, queue=jnp.resize(like, (self.options.queue, z.shape[-1])))[0]

    def _rows(self, keys: jax.Array) -> jax.Array:
        z = _numerics.unit(keys.astype(jnp.float32))
        if losses.takes(self.spec.objective).queue_of_means:
            return z.mean(0)
        return z[0] if self.options.queue_keys == "one" else z.reshape((-1, z.shape[-1]))


@dataclasses.dataclass(frozen=True, kw_only=True)
class MocoV3(Following):
    """MoCo v3: momentum encoder, predictor, in-batch keys, symmetric loss (Chen et al. 2021).

    With the k = 2m views in halves A and B, the loss is L(q(A), k(B)) + L(q(B), k(A)): queries from encoder, head
    and predictor, keys from the momentum copy of encoder and head. Each half passes each network by itself, as in the
    authors' code, so that BatchNorm has statistics of its own for each, and its running ones move twice.
    """

    predictor: models.HeadConfig = dataclasses.field(
        default_factory=lambda: dataclasses.replace(models.moco_v3_head(), layers=2)
    )
    """Predictor from the head's output to the queries; must keep the head's length."""

    def build(self, spec: Specification) -> Learner:
        _in_halves(spec, "moco_v3")
        return MocoV3Learner(spec, self, "moco_v3", self.predictor)


class MocoV3Learner(FollowedLearner):
    def loss(self, params: Any, statistics: Any, batch: Batch, objective: OfViews) -> LossAndMore:
        online, copy, predict = self.networks(params, statistics)
        m = self.k // 2
        halves = slice(0, m), slice(m, None)
        z = [online.head(embed(online.encoder, batch, half)) for half in halves]
        a, b = (batch.by_view(predict(x), m) for x in z)
        of_a, of_b = (jax.lax.stop_gradient(embedded(copy, batch, m, half)) for half in halves)
        forth, measures = objective(jnp.concatenate([a, of_b]), **batch.mask)
        swapped = {name: jnp.roll(there, m, axis=0) for name, there in batch.mask.items()}
        back, _ = objective(jnp.concatenate([b, of_a]), **swapped)
        shown = jnp.concatenate([batch.by_view(x, m) for x in z])
        return forth + back, (self.moved(statistics, online, copy, predict), shown, measures)

    def level(self, objective: OfViews, z: jax.Array) -> jax.Array:
        m = len(z) // 2
        return objective(z)[0] + objective(jnp.concatenate([z[m:], z[:m]]))[0]


@dataclasses.dataclass(frozen=True, kw_only=True)
class StudentTeacher(Following):
    """Each view in turn is embedded by the teacher, the other k - 1 by the student; the losses are summed.

        Σ_i L(s(x_1), ..., t(x_i), ..., s(x_k))

    With `views.global_views` only the global views are embedded by the teacher, in turn; the local views always by the
    student.

    The student is encoder, head and predictor; the teacher is the moving average of encoder and head, without
    predictor and without gradient (Piran 2024, Section 2.1). Every view passes each network once.

    An objective that solves a problem, as `m3g` does, and declares `successive` solves the k problems one after the
    other, each from the potentials that the one before ended with; two of them differ in two views. Nothing is kept
    between steps. Measures of the log are the largest of the k problems; `solver_sweeps_saved` is the number of sweeps
    that the later problems took less than the first, which starts from zeros, in all.
    """

    predictor: models.HeadConfig = dataclasses.field(default_factory=models.piran_head)
    """Predictor after the student's head; must keep the head's length; `none` for no predictor."""
    pairs: Literal["teacher", "all"] = "teacher"
    """Pairs that an objective of pairs (all_pairs, one_vs_rest) compares: the teacher's view with the student's others
    (Piran 2024, Section 4), or with `all` also the student's views with each other."""
    targets: Literal["view", "mean_of_others"] = "view"
    """`mean_of_others`: the student's view i is compared with one target, the mean of the teacher's unit vectors of the
    k - 1 others: the aggregated teacher that Shidani 2024, Appendix H, proposes. The objective gets these two."""

    def build(self, spec: Specification) -> Learner:
        if self.targets == "mean_of_others" and spec.global_views:
            what = "method.targets=mean_of_others takes the teacher's views of all others"
            raise ValueError(f"{what}, so views.global_views must be None, got {spec.global_views}")
        return StudentTeacherLearner(spec, self)


class StudentTeacherLearner(FollowedLearner):
    """`targeted` views are embedded by the teacher; `apart` is whether pairs are of one of them and another."""

    def __init__(self, spec: Specification, options: StudentTeacher) -> None:
        super().__init__(spec, options, "student_teacher", options.predictor)
        self.targeted = spec.global_views or self.k
        self.of_means = options.targets == "mean_of_others"
        takes = losses.takes(spec.objective)
        self.apart = options.pairs == "teacher" and takes.teacher and not self.of_means
        if self.apart:
            self.objective_options = {"teacher": self.targeted}

    def loss(self, params: Any, statistics: Any, batch: Batch, objective: OfViews) -> LossAndMore:
        student, teacher, predict = self.networks(params, statistics)
        z = batch.by_view(predict(student.head(embed(student.encoder, batch))), self.k)
        targets = embedded(teacher, batch, self.targeted, slice(0, self.targeted))
        targets = jax.lax.stop_gradient(targets).astype(z.dtype)
        new = self.moved(statistics, student, teacher, predict)
        if self.apart:
            both = {name: jnp.concatenate([x, x[: self.targeted]]) for name, x in batch.mask.items()}
            value, measures = objective(jnp.concatenate([z, targets]), **both)
            return value, (new, z, measures)
        problems, masks = [z.at[i].set(t) for i, t in enumerate(targets)], [batch.mask] * self.targeted
        if self.of_means:
            there = {name: x.astype(z.dtype) for name, x in batch.mask.items()}
            t = _numerics.unit(targets) * there.get("mask", jnp.ones(z.shape[:2], z.dtype))[..., None]
            problems = [jnp.stack([z[i], _numerics.unit(t.sum(0) - t[i])]) for i in range(self.k)]
            masks = [
                {name: jnp.stack([x[i], x.sum(0) - x[i]]) > 0 for name, x in there.items()}
                for i in range(self.k)
            ]
        if losses.takes(self.spec.objective).successive is not None and not self.of_means:
            # Each is solved from the solution of the one before.
            total, measures = objective(jnp.stack(problems), **batch.mask)
        else:  # the largest of the measures, so that any unconverged solver is logged
            values, found = zip(*(objective(problem, **mask) for problem, mask in zip(problems, masks)))
            total = sum(values, jnp.zeros((), jnp.float32))
            measures = jax.tree.map(lambda *each: jnp.max(jnp.stack(each)), *found)
        return total, (new, z, measures)

    def level(self, objective: OfViews, z: jax.Array) -> jax.Array:
        if self.apart:
            return objective(jnp.concatenate([z, z[: self.targeted]]))[0]
        return self.targeted * objective(z[:2] if self.of_means else z)[0]


def _in_halves(spec: Specification, method: str) -> None:
    """Raise `ValueError` unless an even number of views of one size can be split into two halves."""
    spec.one_size(method, "queries and keys are two halves of like views")
    if len(spec.shapes) % 2:
        what = f"method {method} has two halves of views; views.k must be even"
        raise ValueError(f"{what}, got {len(spec.shapes)}")


def _embed_shuffled(encoder: nnx.Module, batch: Batch, part: slice) -> jax.Array:
    """`embed`, encoding the n * m views in a fixed random order."""
    views = stacked(batch.draw(batch.inputs))[:, part]
    order = np.random.default_rng(0).permutation(views.shape[0] * views.shape[1])
    return encoder(views.reshape((-1, *views.shape[2:]))[order])[np.argsort(order)]
