"""One objective on views of known factors: encoders trained side by side, and a linear probe of every factor."""

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from _factors import FACTORS, Bits, FactorViews
from flax import nnx

from mvcl import _progress, losses, models
from mvcl.studies import Values

# Share of the mean square of the features that the probes add to the diagonal, and the probes' examples.
_RIDGE = 1e-3
_PROBED = 2048
_OTHERS = 1_000_000  # added to the seed of the networks that choose an option
# Steps whose batches are drawn at once.
_CHUNK = 50


class Batch(NamedTuple):
    """Instances, for each of several networks.

    Attributes:
      bits: their factors.
      seen: (k, n, seen): the bits of each view.
      x: (k, n, inputs): the views.
      there: (k, n) bool, False for a view that an instance lacks.
    """

    bits: Bits
    seen: jax.Array
    x: jax.Array
    there: jax.Array


def to_bits(batch: Batch) -> jax.Array:
    """The target of supervised encoders: all bits that the view sees."""
    return batch.seen


def to_inputs(batch: Batch) -> jax.Array:
    """The target of autoencoders: the view itself."""
    return batch.x


@dataclasses.dataclass(frozen=True, kw_only=True)
class Factored:
    """Encoders of one objective, one for each view, and what linear probes read from them; a `Task`.

    All networks are trained in one program, each on fresh draws and a rendering of its own. It has its own loop because
    a run of `training.train` opens data, checkpoints and an evaluation, which takes longer than this training does.
    """

    data: FactorViews
    objective: losses.Loss | None = None
    """Of (k, n, d) embeddings; None: no objective."""
    target: Callable[[Batch], jax.Array] | None = None
    """What a linear layer on the embedding of each view must restore, (k, n, m); the squared error is added to the
    objective. None: no such layer."""
    encoder: models.MLP | None = dataclasses.field(default_factory=lambda: models.MLP(widths=(48, 12)))
    """Network of each view; None: the inputs are probed as they are."""
    steps: int = 600
    """Steps of Adam, each on a fresh batch; 0: untrained encoders are probed."""
    batch_size: int = 128
    """Instances of a batch."""
    parts: int = 1
    """The objective is the mean of that of so many parts of the batch."""
    learning_rate: float = 1e-2
    """Peak of Adam's, which falls to 0 along a cosine."""
    networks: int = 10
    """Networks trained side by side."""
    tuned: tuple[str, tuple[float, ...]] = ("", ())
    """An option of the objective, and the values that it chooses among: that whose other networks, on other draws and
    renderings, have the largest mean of all factors."""

    @property
    def instances(self) -> int | None:
        """Number of instances that the objective compares."""
        return None if self.objective is None else self.batch_size // self.parts

    def run(self, folder: Path, seed: int) -> Sequence[Values]:
        """Train and probe; a tuned option is a further value. A cell takes seconds, so that it begins anew after a
        kill."""
        option, values = self.tuned
        if not option:
            return self._probed(seed)
        tried = np.repeat(values, max(1, self.networks // len(values)))
        scores = [
            np.mean([found[name] for name in FACTORS if name in found])
            for found in self._probed(seed + _OTHERS, tried)
        ]
        best = values[int(np.argmax(np.reshape(scores, (len(values), -1)).mean(1)))]
        return [{**found, option: best} for found in self._probed(seed, np.full(self.networks, best))]

    def _probed(self, seed: int, tuned: np.ndarray | None = None) -> list[Values]:
        """Of each network what probes read; `tuned` (networks,) is its value of the tuned option."""
        gain, noise = (jnp.asarray(x, jnp.float32) for x in self.data.quality)
        # Views of any quality have one program.
        data = dataclasses.replace(self.data, gain=(), noise=())
        keys = jax.random.split(jax.random.key(seed), self.networks if tuned is None else len(tuned))
        draw = partial(_draw, data, self.batch_size, gain, noise, keys)
        params = None if self.encoder is None else self._trained(self.encoder, draw, keys, tuned)
        probes = partial(_draw, dataclasses.replace(data, present=1.0), _PROBED, gain, noise, keys)
        fit, test = (jax.tree.map(lambda x: x[0], probes(jnp.asarray([-part]))) for part in (1, 2))
        plain = dataclasses.replace(
            self, objective=None, target=None, steps=0
        )  # one program for all objectives
        z = [
            (b.x, _side_by_side(b.x)) if params is None else _all_embedded(plain, params, b.x)
            for b in (fit, test)
        ]
        host = jax.device_get((z[0], fit.bits, z[1], test.bits))
        each = (jax.tree.map(lambda x, i=i: x[i], host) for i in range(len(keys)))
        return [self._values(_read(*one)) for one in each]

    def _trained(
        self,
        encoder: models.MLP,
        draw: Callable[[jax.Array], Batch],
        keys: jax.Array,
        tuned: np.ndarray | None,
    ) -> Any:
        """The parameters of the encoders, (networks, k) in front of each."""
        width = 0 if self.target is None else self.target(draw(jnp.asarray([0]))).shape[-1]
        params = self.initial(encoder, width, keys)
        carry = params, jax.vmap(_optimizer(self).init)(params)
        chunks = [jnp.arange(i, min(i + _CHUNK, self.steps)) for i in range(0, self.steps, _CHUNK)]
        of_each = None if tuned is None else jnp.asarray(tuned, jnp.float32)
        same = dataclasses.replace(self, data=FactorViews(views=self.data.views, present=self.data.present))
        for steps in _progress.track(chunks, "training", len(chunks), "chunks of steps"):
            carry = _advance(same, carry, draw(steps), steps, keys, of_each)
        return carry[0]

    def initial(self, encoder: models.MLP, width: int, keys: jax.Array) -> dict[str, Any]:
        """Parameters of all networks; `width` is that of the target."""
        return _initial(encoder, self.data.views, self.data.inputs, width, keys)

    def embedded(self, params: dict[str, Any], x: jax.Array) -> tuple[jax.Array, jax.Array]:
        """The embeddings of one network's (k, n, inputs) views, of each (k, n, d) and of all together (n, d')."""
        assert self.encoder is not None
        z = embeddings(self.encoder, params["encoder"], x)
        return z, _side_by_side(z)

    def loss(
        self, params: dict[str, Any], batch: Batch, key: jax.Array, tuned: jax.Array | None
    ) -> jax.Array:
        """The objective, with a value of the tuned option, and the squared error of the target."""
        return _loss(self, params, batch, key, tuned)

    def _values(self, found: "Read") -> Values:
        """Means over the bits of those views that are not noise alone."""
        k, rings = self.data.views, range(self.data.neighbours)
        seeing = np.asarray(self.data.quality[0]) > 0
        pairs = [l for l in rings if seeing[l] and seeing[(l + 1) % k]]
        triples = [l for l in rings if all(seeing[(l + place) % k] for place in range(3))]
        chosen = {
            "shared": found.joint.shared,
            "pair": found.joint.pair[pairs],
            "unique": found.joint.unique[seeing],
            "part": found.joint.part[triples],
            "synergy": found.joint.synergy[triples],
            "shared, one view": found.shared_alone[seeing],
            "pair, one view": found.pair_alone[pairs],
            "shared, last view": found.shared_alone[-1],
        }
        return {name: float(np.mean(x)) for name, x in chosen.items() if x.size}


class Read(NamedTuple):
    """Test R² of the probes of one network, by bit.

    Attributes:
      joint: from the embeddings of all views, in the shapes of `Bits` without the first axis.
      shared_alone: (k, shared): from one view.
      pair_alone: (k, 2, pair): of the pair l, l + 1, from each of its two views.
    """

    joint: Bits
    shared_alone: np.ndarray
    pair_alone: np.ndarray


@partial(jax.jit, static_argnums=(0, 1))
def _draw(
    data: FactorViews, n: int, gain: jax.Array, noise: jax.Array, keys: jax.Array, steps: jax.Array
) -> Batch:
    """A batch for each step and each network, (steps, networks) in front of all axes; negative steps are the probes'.

    A network's rendering follows from its key, and a batch from this key and the step.
    """

    def of_network(key: jax.Array, world: tuple[jax.Array, jax.Array], step: jax.Array) -> Batch:
        of_bits, of_noise, of_mask = jax.random.split(jax.random.fold_in(jax.random.fold_in(key, 2), step), 3)
        bits = data.bits(of_bits, n)
        seen = data.of_views(bits)
        there = jax.random.bernoulli(of_mask, data.present, seen.shape[:2])
        return Batch(bits, seen, data.render(world, seen, gain, noise, of_noise), there)

    worlds = jax.vmap(lambda key: data.world(jax.random.fold_in(key, 0)))(keys)
    return jax.lax.map(lambda step: jax.vmap(of_network, in_axes=(0, 0, None))(keys, worlds, step), steps)


def _fresh(encoder: models.MLP, inputs: int, key: jax.Array) -> nnx.Module:
    return encoder.build((inputs,), dtype=jnp.float32, rngs=nnx.Rngs(key))


def embeddings(encoder: models.MLP, params: Any, x: jax.Array) -> jax.Array:
    """(k, n, inputs) -> (k, n, d), by one network for each view."""
    graph, _ = nnx.split(nnx.eval_shape(lambda: _fresh(encoder, x.shape[-1], jax.random.key(0))))
    return jax.vmap(lambda one, view: nnx.merge(graph, one)(view))(params, x)


def _optimizer(task: Factored) -> optax.GradientTransformation:
    return optax.adam(optax.cosine_decay_schedule(task.learning_rate, max(task.steps, 1)))


@partial(jax.jit, static_argnums=(0, 1, 2, 3))
def _initial(encoder: models.MLP, k: int, inputs: int, width: int, keys: jax.Array) -> dict[str, Any]:
    """Parameters of all networks; `width` is that of the target. All objectives share this program."""

    def of_network(key: jax.Array) -> Any:
        each = jax.random.split(jax.random.fold_in(key, 1), k)
        return jax.vmap(lambda one: nnx.state(_fresh(encoder, inputs, one)))(each)

    restore = jnp.zeros((len(keys), k, encoder.widths[-1] + 1, width))
    return {"encoder": jax.vmap(of_network)(keys), "restore": restore}


@partial(jax.jit, static_argnums=0, donate_argnums=1)
def _advance(
    task: Factored, carry: Any, batches: Batch, steps: jax.Array, keys: jax.Array, tuned: jax.Array | None
) -> Any:
    """`carry` after some steps, each on its batch."""
    optimizer = _optimizer(task)

    def of_network(params: Any, state: Any, batch: Batch, key: jax.Array, value: jax.Array | None) -> Any:
        updates, state = optimizer.update(jax.grad(task.loss)(params, batch, key, value), state)
        return optax.apply_updates(params, updates), state

    def step(carry: Any, of_step: tuple[Batch, jax.Array]) -> tuple[Any, None]:
        batch, number = of_step
        params, state = carry
        of_step_keys = jax.vmap(lambda key: jax.random.fold_in(jax.random.fold_in(key, 3), number))(keys)
        return jax.vmap(of_network)(params, state, batch, of_step_keys, tuned), None

    return jax.lax.scan(step, carry, (batches, steps))[0]


def _loss(task: Factored, params: Any, batch: Batch, key: jax.Array, tuned: jax.Array | None) -> jax.Array:
    """The objective, and the squared error of the target."""
    assert task.encoder is not None
    z, total = embeddings(task.encoder, params["encoder"], batch.x), jnp.zeros(())
    if task.objective is not None:
        takes, given = losses.takes(task.objective), task.objective
        if tuned is not None:
            given = with_option(given, task.tuned[0], tuned)
        objective = losses.on_views(given)
        extra = {"key": key} if takes.key else {}

        def parts(x: jax.Array) -> jax.Array:
            return x.reshape(len(x), task.parts, -1, *x.shape[2:]).swapaxes(0, 1)

        if task.data.present < 1:
            total += jax.vmap(lambda z, mask: objective(z, mask=mask, **extra))(
                parts(z), parts(batch.there)
            ).mean()
        else:
            total += jax.vmap(lambda z: objective(z, **extra))(parts(z)).mean()
    if task.target is not None:
        restored = jnp.einsum("knd,kdo->kno", _with_one(z), params["restore"])
        total += jnp.mean((restored - task.target(batch)) ** 2, where=batch.there[:, :, None])
    return total


def with_option(objective: losses.Loss, option: str, value: Any) -> losses.Loss:
    """An objective with a value of an option, that of its pair loss where it is made of one."""
    function, bound = losses.unwrap(objective)
    if "pair" not in bound:
        return partial(objective, **{option: value})
    return partial(function, **bound | {"pair": partial(bound["pair"], **{option: value})})


@partial(jax.jit, static_argnums=0)
def _all_embedded(task: Factored, params: Any, x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """`task.embedded` of all networks, the first axis."""
    return jax.vmap(task.embedded)(params, x)


def _side_by_side(z: jax.Array) -> jax.Array:
    """(..., k, n, d) -> (..., n, k d)."""
    return jnp.moveaxis(z, -3, -2).reshape((*z.shape[:-3], z.shape[-2], -1))


Embeddings = tuple[np.ndarray, np.ndarray]  # of each view, (k, n, d), and of all together, (n, d')


def _read(of_fit: Embeddings, fit: Bits, of_test: Embeddings, test: Bits) -> Read:
    """Ridge regressions of all bits on the embeddings, of all views and of each view.

    On the host: a program of several solvers, which XLA runs at once, did not end on CPU (jaxlib 0.10.2).
    """
    (fit_z, fit_joint), (test_z, test_joint), k = of_fit, of_test, len(of_fit[0])
    linear = ("shared", "pair", "unique", "part")
    joint = _regressed(fit_joint, test_joint, fit, test, linear)
    found: dict[str, Any] = {name: r2 for name, (r2, _) in joint.items()}
    # Three views tell the synergy only together: the product of what is read of their parts.
    found["synergy"] = _squared_correlation(joint["part"][1].prod(-1), np.asarray(test.synergy))
    views = [_regressed(x, y, fit, test, linear[:2]) for x, y in zip(fit_z, test_z)]
    shared, pair = (np.stack([view[name][0] for view in views]) for name in ("shared", "pair"))
    rings = np.arange(found["pair"].shape[0])
    both = np.stack([pair[rings, rings], pair[(rings + 1) % k, rings]], axis=1)
    return Read(Bits(**found), shared, both)


def _regressed(
    x: np.ndarray, x_test: np.ndarray, fit: Bits, test: Bits, names: Sequence[str]
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Test R² of each bit, and the predictions. The ridge is a share of the mean square of the features."""
    middle = x.mean(0, dtype=np.float64)
    scale = np.sqrt(np.mean((x - middle[None]) ** 2))
    scaled = [(f - middle[None]) / (scale or 1.0) for f in (x, x_test)]
    a, b = (np.column_stack([f, np.ones(len(f))]) for f in scaled)  # with an intercept
    targets, expected = ([getattr(bits, name) for name in names] for bits in (fit, test))
    every = np.concatenate([y.reshape(len(y), -1) for y in targets], axis=1)
    gram = a.T @ a + _RIDGE * len(a) * np.eye(a.shape[1])
    predicted = b @ np.linalg.solve(gram, a.T @ every)
    ends = np.cumsum([y[0].size for y in targets])[:-1]
    found = {}
    for name, y, p in zip(names, expected, np.split(predicted, ends, axis=1)):
        p = p.reshape(y.shape)
        found[name] = (1 - np.mean((p - y) ** 2, axis=0) / np.var(y, axis=0, dtype=np.float64), p)
    return found


def _squared_correlation(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Over the first axis; 0 where x does not vary."""
    x, y = x - x.mean(0)[None], y - y.mean(0)[None]
    variance = np.mean(x * x, axis=0)
    return np.mean(x * y, axis=0) ** 2 / np.where(variance > 0, variance * np.mean(y * y, axis=0), 1)


def _with_one(x: jax.Array) -> jax.Array:
    """A further feature that is 1: the intercept."""
    return jnp.concatenate([x, jnp.ones((*x.shape[:-1], 1), x.dtype)], axis=-1)
