"""Many networks of one input trained side by side: the data, the method and the measurement of the Gaussian study."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from mvcl import _numerics, data, evaluation, losses, methods, metrics
from mvcl._progress import track

# Of what `InformationBound` measures, where a higher value is not better.
_LOWER = ("loss", "gap", "gap, Eq. 7", "ratio", "valid gap")
_BETTER = {**dict.fromkeys(_LOWER, "lower"), "information": "", "E' e^F": ""}


@dataclasses.dataclass(frozen=True, kw_only=True)
class GaussianViews:
    """Views c + noise of instances c, one-dimensional Gaussians, drawn afresh for each of several networks.

    A view is an array (networks,): column s is what network s sees. All is held in memory, 4 bytes a number.
    """

    views: int = 2
    """M, views of an instance."""
    networks: int = 16
    """Networks, each with draws of its own."""
    instances: int = 1024
    """Instances of the split `train`."""
    test_instances: int = 4096
    """Instances of the split `test`."""
    signal: float = 1.0
    """Standard deviation of what an instance's views share."""
    noise: float = 0.5
    """Standard deviation of what each view adds."""
    seed: int = 0
    """Seed of all draws."""

    def open(self) -> dict[str, data.Split]:
        """`train`, `test`, and `picture`, 64 more instances. The label is the first network's c."""
        sizes = {"train": self.instances, "test": self.test_instances, "picture": 64}
        return {name: self._split(part, size) for part, (name, size) in enumerate(sizes.items())}

    def expected(self) -> data.Outline:
        """The outline of the training split, without drawing it."""
        return data.Outline(self.instances, 0, data.ExampleSpec(((self.networks,),) * self.views, given=True))

    def _split(self, part: int, size: int) -> data.Split:
        rng = np.random.default_rng((self.seed, self.views, part))

        def normal(deviation: float) -> np.ndarray:
            return np.float32(deviation) * rng.standard_normal((size, self.networks), np.float32)

        shared = normal(self.signal)
        views = tuple(shared + normal(self.noise) for _ in range(self.views))
        return data.in_memory(views, shared[:, 0], (), given=True)


class FirstNetwork(nnx.Module):
    """The first of the networks; it has no head."""

    def __init__(self, encoder: nnx.Module) -> None:
        self.encoder = encoder
        self.head: nnx.List[nnx.Module] = nnx.List([])


@dataclasses.dataclass(frozen=True, kw_only=True)
class SideBySide:
    """One network for each column of the views, (networks,); the loss is the sum of theirs.

    The objective is a function of (M, n) inputs and of `embed`, one network as a function of (m,) numbers to (m, d), as
    `of_inputs` is. An optimiser that is elementwise, as AdamW, trains each network as if it were alone; give it
    `decays="all"`, as the vectors of several networks are a matrix. The features of an example are its embeddings by
    view and network, (M, networks, d) in a row. `head` is not used.
    """

    def build(self, spec: methods.Specification) -> methods.Learner:
        """The learner for these networks."""
        spec.whole_batch("side_by_side")
        return SideBySideLearner(spec)


class SideBySideLearner(methods.Learner):
    has_level = False

    def __init__(self, spec: methods.Specification) -> None:
        (self.networks,), self.views = spec.one_shape("side_by_side"), len(spec.shapes)
        self.fresh = lambda key: spec.encoder.build((1,), dtype=spec.dtype, rngs=nnx.Rngs(key))
        abstract = nnx.eval_shape(lambda: self.fresh(jax.random.key(0)))
        self.graph = nnx.graphdef(abstract)
        self.dimension = abstract.features

    def init(self, key: jax.Array) -> tuple[Any, Any]:
        # Networks depend on the number of views, so that two values of M share nothing.
        key = jax.random.fold_in(jax.random.fold_in(key, 0), self.views)
        keys = jax.vmap(partial(jax.random.fold_in, key))(jnp.arange(self.networks))
        return jax.vmap(lambda k: nnx.state(self.fresh(k), nnx.Param))(keys), {}

    def loss(
        self, params: Any, statistics: Any, batch: methods.Batch, objective: methods.OfViews
    ) -> tuple[jax.Array, tuple[Any, jax.Array, methods.Measures]]:
        x = jnp.stack(batch.draw(batch.inputs))  # (M, n, networks)

        def of_network(one: Any, x: jax.Array) -> jax.Array:
            return objective(x, embed=partial(self._embed, one))[0]

        values = jax.vmap(of_network, in_axes=(0, 2))(params, x)
        first = jax.tree.map(lambda p: p[0], params)
        z = self._embed(first, x[..., 0].reshape(-1)).reshape(*x.shape[:2], -1)
        return values.sum(), (statistics, z, {"mean_loss": values.mean()})

    def features(self, params: Any, statistics: Any, inputs: methods.Inputs, output: str) -> jax.Array:
        x = jnp.stack(inputs["views"])
        z = jax.vmap(self._embed, in_axes=(0, 1))(params, x.reshape(-1, self.networks))
        z = z.reshape(self.networks, *x.shape[:2], -1)
        return z.transpose(2, 1, 0, 3).reshape(x.shape[1], -1)

    def network(self, params: Any, statistics: Any) -> FirstNetwork:
        first = jax.tree.map(lambda p: p[0], params)
        return FirstNetwork(nnx.merge(self.graph, first, copy=True))

    def _embed(self, params: Any, x: jax.Array) -> jax.Array:
        return nnx.merge(self.graph, params)(x[:, None])


@dataclasses.dataclass(frozen=True, kw_only=True)
class InformationBound(evaluation.Evaluation):
    """What a network shows about the information between one view and the others, in nats.

    Of fresh batches: the loss; the paper's bound `chance` - loss, its gap `information` - bound and the paper's ratio
    `information` / bound; `E' e^F` of `product_mean`, the generalised NWJ bound of the same critic, Eq. 5 (`chance` -
    loss - E' e^F + 1), and its gap, Eq. 7; `valid`, the mean over views of `metrics.info_nce_bound` of one view and the
    others, which is a lower bound for any number of instances, and its gap; `two sets`, the same of the first half of
    the views and the second. Each number is the mean over networks, with their standard deviation and each network's
    value. A network's batches are averaged first.
    """

    objective: losses.Loss = losses.poly_view
    """Of (M, K, d) embeddings."""
    views: int = 2
    """M."""
    networks: int = 16
    """Networks whose embeddings lie side by side."""
    instances: int = 1024
    """K, instances of a batch."""
    chance: float = 0.0
    """Loss of a network that knows nothing."""
    information: float = 0.0
    """The information itself."""
    temperature: float = 0.1
    """Of the scores behind `valid` and `two sets`."""
    critic: Literal["geometric", "arithmetic", "harmonic", "sufficient_statistics"] = "geometric"
    """Aggregation of those scores, see `metrics.group_scores`."""
    product: Literal["geometric", "arithmetic", "sufficient_statistics"] | None = None
    """Aggregation of the likelihoods in E' e^F, see `product_mean`; None where it is 1: of InfoNCE, whose K instances
    are exchangeable."""

    @property
    def compared(self) -> bool:
        """False: an untrained network knows next to nothing, and numbers without a network have no bound."""
        return False

    def splits(self, available: Sequence[str]) -> tuple[str, ...]:
        """`test` is measured; the few examples of `picture` are for the picture of the embeddings."""
        return ("test", "picture")

    def check(self, splits: Mapping[str, Any]) -> None:
        """Raise a `ValueError` if the split `test` is not made of whole batches, two at least."""
        count = len(splits["test"])
        if count % self.instances or count < 2 * self.instances:
            raise ValueError(
                f"evaluation.instances must divide the {count} test examples into two batches or more, got "
                f"{self.instances}"
            )

    def measure(
        self,
        features: Mapping[str, np.ndarray],
        splits: Mapping[str, Any],
    ) -> list[evaluation.Result]:
        """Loss, both bounds with their gaps, ratio, valid, valid gap, two sets and the information itself."""
        length = features["test"].shape[1] // (self.views * self.networks)
        z = features["test"].reshape(-1, self.instances, self.views, self.networks, length)
        z = z.transpose(3, 0, 2, 1, 4)  # (networks, batches, M, K, d)
        measured = jax.jit(lambda of, others: jax.lax.map(self._of_batch, (of, others)))
        networks = track(z, "bounds", len(z), "networks")
        values = [measured(one, np.roll(one, -1, axis=0)) for one in networks]
        loss, product, valid, two_sets = np.asarray(values, np.float64).mean(1).T
        bound = self.chance - loss
        found = {"loss": loss, "bound": bound, "gap": self.information - bound, "E' e^F": product}
        found |= {"bound, Eq. 5": bound - product + 1, "gap, Eq. 7": self.information - bound + product - 1}
        found |= {"ratio": self.information / bound, "valid": valid, "valid gap": self.information - valid}
        found |= {"two sets": two_sets, "information": np.full(len(z), self.information)}
        how = (
            f"nats, mean and deviation of {self.networks} networks, each on {z.shape[1]} batches of {self.instances} "
            f"instances and {self.views} views"
        )
        return [
            evaluation.Result(
                name,
                float(x.mean()),
                float(x.std(ddof=1)) if len(x) > 1 else None,
                f"{name}, {how}",
                tuple(x.tolist()),
                better=_BETTER.get(name, "higher"),
            )
            for name, x in found.items()
        ]

    def _of_batch(self, batches: tuple[jax.Array, jax.Array]) -> jax.Array:
        """Loss, E' e^F, valid bound and that of two sets of views, of a batch (M, K, d); of E' e^F, x is of another."""
        z, other = batches

        def valid(group: Sequence[int], z: jax.Array) -> jax.Array:
            return metrics.info_nce_bound(metrics.group_scores(z, group, self.temperature, self.critic))

        of_view = jax.lax.map(lambda v: valid((0,), jnp.roll(z, -v, axis=0)), jnp.arange(self.views))
        product = 1.0 if self.product is None else product_mean(z, other, self.temperature, self.product)
        two_sets = valid(range(self.views // 2), z)
        return jnp.stack([self.objective(z), jnp.asarray(product, z.dtype), of_view.mean(), two_sets])


def product_mean(
    z: jax.Array,
    other: jax.Array,
    temperature: float,
    aggregation: Literal["geometric", "arithmetic", "sufficient_statistics"],
) -> jax.Array:
    """E'[e^F] of a batch, for the critic F of `poly_view` or `sufficient_statistics`; E[F] is chance - loss.

    F = log(B - M + 1) + log of the aggregated likelihood (Shidani 2024, Eqs. 75 and 104), with the negatives of the
    batch. Under the product law of Eq. 77 view α of an instance is independent of all else: it is view α of another
    batch here, since those of the same batch are among the negatives. All K x K pairs are such draws. Theorem 2.2 takes
    the result for 1 (after Eq. 78). It is that for exchangeable negatives and the arithmetic mean, above with few
    instances of several views, and below for the geometric mean (Eq. 85, Jensen's inequality).

    Args:
      z: (M, K, d) embeddings of the batch.
      other: (M, K', d) those of another.
      temperature: positive divisor of the inner products, no unit.
      aggregation: of the likelihoods over the views other than α.

    Returns:
      Scalar, the mean over α and pairs.
    """
    z, other = _numerics.unit(z), _numerics.unit(other)
    m, k, _ = z.shape
    log_n = math.log(m * (k - 1) + 1)

    def negatives(y: jax.Array) -> jax.Array:
        """(K,) log of the sums over all views of the other instances."""
        s = jnp.einsum("gjd,id->gji", z, y) / temperature
        return jax.nn.logsumexp(jnp.where(jnp.eye(k, dtype=bool), -jnp.inf, s), axis=(0, 1))

    def of_poly_view(a: jax.Array) -> jax.Array:
        y, energy = jnp.roll(z, -a, axis=0)[1:], jnp.roll(of_views, -a, axis=0)[1:, None]
        s = jnp.einsum("xd,bid->bxi", other[a], y) / temperature
        rho = {"geometric": 0.0, "arithmetic": 1.0}[aggregation]
        return jnp.exp(log_n + _numerics.log_power_mean(s - jnp.logaddexp(s, energy), rho, 0)).mean()

    def of_sufficient_statistics(a: jax.Array) -> jax.Array:
        s = jnp.einsum("xd,gid->gxi", other[a], _numerics.unit(z.sum(0)[None] - z)) / temperature
        own, every = jax.nn.logsumexp(s, axis=0), jax.nn.logsumexp(s, axis=(0, 2))[:, None]
        energy = every + jnp.log1p(-jnp.minimum(jnp.exp(own - every), 1 - 1e-6))
        return jnp.exp(log_n + s[a] - jnp.logaddexp(s[a], energy)).mean()

    if aggregation == "sufficient_statistics":
        return jax.lax.map(of_sufficient_statistics, jnp.arange(m)).mean()
    of_views = jax.lax.map(negatives, z)
    return jax.lax.map(of_poly_view, jnp.arange(m)).mean()
