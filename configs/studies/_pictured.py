"""One objective on pictures of known factors: its networks are trained one after another by one program."""

import dataclasses
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from _factors_task import with_option
from _fused_task import critics, factor_loss
from _trifeature import COUNT, SIZE, drawn, pictures, rendered
from flax import nnx

from mvcl import losses, methods, models
from mvcl.methods import Batch
from mvcl.studies import Values

_RIDGE, _OTHERS, _PATCH, _PROBED = 1e-3, 1_000_000, 4, 4096
# Compilation takes longer than training.
_QUICK = {"xla_llvm_disable_expensive_passes": True}
Row = Literal["raw", "objective", "autoencoder", "supervised", "factor_cl"]


@dataclasses.dataclass(frozen=True)
class Patches:
    """An MLP whose first layer is shared by all patches of 4 x 4 pixels."""

    channels: int = 16
    hidden: int = 64
    out: int = 16

    def build(self, input_shape: Sequence[int], *, dtype: Any, rngs: nnx.Rngs) -> nnx.Module:
        """The network of pictures of this shape."""
        return PatchesEncoder(self, input_shape, rngs)


class PatchesEncoder(nnx.Module):
    """(n, size, size, 3) -> (n, features)."""

    def __init__(self, config: Patches, shape: Sequence[int], rngs: nnx.Rngs) -> None:
        self.side, self.features = shape[0] // _PATCH, config.out
        self.patch = nnx.Linear(_PATCH**2 * shape[2], config.channels, rngs=rngs)
        self.middle = nnx.Linear(self.side**2 * config.channels, config.hidden, rngs=rngs)
        self.last = nnx.Linear(config.hidden, config.out, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        n, s = len(x), self.side
        x = (x - 0.4).reshape(n, s, _PATCH, s, _PATCH, -1).swapaxes(2, 3).reshape(n, s * s, -1)
        return self.last(nnx.relu(self.middle(nnx.relu(self.patch(x)).reshape(n, -1))))


@dataclasses.dataclass(frozen=True)
class Mean:
    """Fusion without attention: the mean of the tokens that are there, each through a linear layer."""

    width: int = 32

    def build(self, input_shape: Sequence[int], *, dtype: Any, rngs: nnx.Rngs) -> nnx.Module:
        """The network of tokens (time, d)."""
        return MeanFusion(self, input_shape, rngs)


class MeanFusion(nnx.Module):
    """(n, time, d), where a row of NaN is missing -> (n, width)."""

    def __init__(self, config: Mean, shape: Sequence[int], rngs: nnx.Rngs) -> None:
        self.features = config.width
        normal = nnx.initializers.lecun_normal()
        self.weights = nnx.Param(
            jax.vmap(lambda key: normal(key, (shape[1], config.width)))(
                jax.random.split(rngs.params(), shape[0])
            )
        )

    def __call__(self, x: jax.Array) -> jax.Array:
        there = ~jnp.isnan(x).any(-1)
        z = jnp.einsum("ntd,tdw->nw", jnp.where(there[..., None], x, 0), self.weights[...])
        return z / jnp.maximum(there.sum(1), 1)[:, None]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pictured:
    """Networks of one row, and the accuracy of ridge regressions of every factor on their features; a `Task`."""

    views: int = 2
    """k, 2 or 3."""
    row: Row = "objective"
    """Raw pixels, an objective, a target of each view alone, or FactorCL with its critics."""
    objective: losses.Loss | None = None
    fusion: Literal["attention", "mean"] | None = None
    """How views are fused; None: an encoder and a head for each, whose features are side by side."""
    sides: int = 1
    """Without fusion: pictures of the same factors of each view that the objective compares."""
    matched: float = 0.5
    """Probability of a match in training; the probes always have half."""
    steps: int = 600
    """0: untrained networks."""
    batch_size: int = 64
    learning_rate: float = 4e-3
    networks: int = 5
    temperatures: tuple[float, ...] = ()
    """That of the objective is the best of these on another network with other draws, by the mean of all factors."""

    @property
    def instances(self) -> int | None:
        """Number of instances that the objective compares."""
        return None if self.objective is None else self.batch_size

    def run(self, folder: Path, seed: int) -> Sequence[Values]:
        """Choose the temperature, train and probe."""
        if not self.temperatures:
            return [self.probed(seed * 1000 + i) for i in range(self.networks)]
        others = {t: self.probed(seed + _OTHERS, t) for t in self.temperatures}
        best = max(others, key=lambda t: np.mean(list(others[t].values())))
        found = [self.probed(seed * 1000 + i, best) for i in range(self.networks)]
        return [{**one, "temperature": best} for one in found]

    def probed(self, seed: int, temperature: float = 0.1) -> Values:
        """Accuracy of each factor, of one network."""
        rng, x, known = np.random.default_rng([seed, self.views]), [], []
        alone = dataclasses.replace(
            self, networks=0, temperatures=(), matched=0.5
        )  # what its program depends on
        plain = dataclasses.replace(alone, objective=None, steps=0, sides=1)
        if self.row != "raw":
            state = _started(plain, jax.random.key(seed))
            factors = drawn(rng, (self.steps, self.batch_size), self.views, self.matched)
            batches = pictures(rng, factors, 2), factors.each()
            if self.steps:
                state = _trained(alone, state, jnp.asarray(rendered(0)), batches, np.float32(temperature))
        for part in (1, 2):
            factors = drawn(rng, (_PROBED,), self.views)
            shown = rendered(part)[pictures(rng, factors, 1)[0]]
            if self.row == "raw":
                blocks = shown.reshape(self.views, _PROBED, SIZE // 2, 2, SIZE // 2, 2, 3).mean((3, 5))
                x.append(blocks.swapaxes(0, 1).reshape(_PROBED, -1))
            else:
                x.append(jax.device_get(_features(plain, state, tuple(shown))))
            known.append(factors.labels())
        return {name: _accuracy(x[0], known[0][name], x[1], known[1][name]) for name in known[0]}

    def learner(self) -> Any:
        """The library's learner: fused, or an encoder and a head for each view."""
        head = models.MLPHead(layers=2, hidden=64, out=32, norm="batch")
        spec = methods.Specification(
            encoder=Patches(),
            head=models.MLPHead(layers=1, out=16) if self.row == "factor_cl" else head,
            objective=self.objective or losses.mv_infonce,
            shapes=((SIZE, SIZE, 3),) * self.views,
            given=False,
            examples=self.batch_size,
            classes=COUNT,
        )
        if self.fusion is None:
            return methods.MultiEncoder().build(spec)
        attention = models.Transformer(width=16 * self.views, depth=1, heads=4, dropout=0.0)
        fusion: Any = Mean(width=16 * self.views) if self.fusion == "mean" else attention
        return methods.Fused(fusion=fusion, tokens=2, maskings=3, augmentation=None).build(spec)

    def loss(self, params: Any, statistics: Any, batch: "Fresh") -> jax.Array:
        """Of a batch; the parameters are those of the networks, and of what reads a target or of the critics."""
        learner = self.learner()
        objective: Any = self.objective
        if objective is not None and "temperature" in losses.takes(objective).options:
            objective = with_option(objective, "temperature", batch.temperature)
        if self.fusion is not None:
            n = self.batch_size
            inputs = {"epoch": jnp.zeros(n, int), "index": jnp.full(n, batch.number)}
            statistics = {**statistics, "progress": batch.number / self.steps}
            drawn = Batch(inputs, lambda x: tuple(batch.views[jnp.minimum(x["epoch"][0], 1)]))
            of_views = partial(losses.of_views(objective), **learner.objective_options)
            return learner.loss(params["nets"], statistics, drawn, of_views)[0]
        nets = learner.network(params["nets"], statistics)
        features = [[e(x) for e, x in zip(nets.encoder, batch.views[side])] for side in range(self.sides)]
        if self.row in ("autoencoder", "supervised"):
            return _of_target(self.row, params["more"], jnp.stack(features[0]), batch)
        z = jnp.stack([h(x) for side in features for h, x in zip(nets.head, side)])
        if self.row == "objective":
            return losses.on_views(objective)(z)
        shared, unique = jnp.split(z, 2, axis=-1)
        return factor_loss(params["more"], jnp.concatenate([shared, unique]))


class Fresh(NamedTuple):
    """A batch, its number and the temperature.

    Attributes:
      views: (2, k, n, SIZE, SIZE, 3): two pictures of every view.
      factors: (k, n, 3): shape, texture and colour.
    """

    views: jax.Array
    factors: jax.Array
    number: jax.Array
    temperature: jax.Array


def _of_target(row: Row, weights: Any, z: jax.Array, batch: Fresh) -> jax.Array:
    """The squared error of each view's pixels, or the cross-entropy of its factors."""
    if row == "autoencoder":
        made = jnp.einsum("knh,khp->knp", nnx.relu(jnp.einsum("knd,kdh->knh", z, weights[0])), weights[1])
        return 10 * jnp.mean((made - batch.views[0].reshape(made.shape) + 0.4) ** 2)
    scores = jnp.einsum("knd,kdc->knc", z, weights[0]).reshape(*z.shape[:2], 3, COUNT)
    return optax.softmax_cross_entropy_with_integer_labels(scores, batch.factors).mean()


@partial(jax.jit, static_argnums=0, compiler_options=_QUICK)
def _started(task: Pictured, key: jax.Array) -> Any:
    """Parameters and statistics of one network."""
    params, statistics = task.learner().init(key)
    if task.row == "factor_cl":
        return {"nets": params, "more": critics(jax.random.fold_in(key, 7), 8)}, statistics
    shapes = {"autoencoder": [(16, 64), (64, SIZE**2 * 3)], "supervised": [(16, 3 * COUNT)]}.get(task.row, [])
    draws = jax.random.split(jax.random.fold_in(key, 7), len(shapes) + 1)
    more = [jax.random.normal(of, (task.views, *s)) / s[0] ** 0.5 for of, s in zip(draws, shapes)]
    return {"nets": params, "more": more}, statistics


@partial(jax.jit, static_argnums=0, compiler_options=_QUICK)
def _trained(task: Pictured, state: Any, shown: jax.Array, batches: Any, temperature: jax.Array) -> Any:
    """Parameters and statistics after all steps."""
    params, statistics = state
    optimizer = optax.adam(optax.cosine_decay_schedule(task.learning_rate, task.steps))

    def step(carry: Any, of_step: Any) -> tuple[Any, None]:
        (places, factors), number = of_step
        params, state = carry
        batch = Fresh(shown[places], factors, number, temperature)
        updates, state = optimizer.update(jax.grad(task.loss)(params, statistics, batch), state)
        return (optax.apply_updates(params, updates), state), None

    carry, every = (params, optimizer.init(params)), (batches, jnp.arange(task.steps))
    return jax.lax.scan(step, carry, every)[0][0], statistics


@partial(jax.jit, static_argnums=0, compiler_options=_QUICK)
def _features(task: Pictured, state: Any, views: tuple[jax.Array, ...]) -> jax.Array:
    """(n, d) features of k arrays of pictures."""
    params, statistics = state
    output = "head" if task.row == "factor_cl" else "encoder"
    return task.learner().features(params["nets"], statistics, {"views": views}, output)


def _accuracy(x: np.ndarray, fit: np.ndarray, y: np.ndarray, test: np.ndarray) -> float:
    """Of a ridge regression of all classes, of which the largest is the answer."""
    middle, scale = x.mean(0), x.std() or 1.0
    a, b = (np.column_stack([(f - middle[None]) / scale, np.ones(len(f))]).astype(np.float64) for f in (x, y))
    gram = a.T @ a + _RIDGE * len(a) * np.eye(a.shape[1])
    weights = np.linalg.solve(gram, a.T @ np.eye(fit.max() + 1)[fit])
    return float(np.mean((b @ weights).argmax(1) == test))
