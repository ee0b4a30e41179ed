"""Objectives of fused views, and FactorCL, on views of known factors; and their controls."""

import dataclasses
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from _factors import FACTORS
from _factors_task import Batch, Factored, embeddings
from flax import nnx

from mvcl import augment, losses, models
from mvcl.losses import Operands
from mvcl.studies import Values


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tuned:
    """A task at the temperature that is best on other draws, renderings and first weights: a validation.

    Best is the mean of some measures.
    """

    task: Any
    """With a field `objective`, and `networks`, its number of networks."""
    measures: tuple[str, ...] = tuple(factor for factor in FACTORS if factor != "part")
    """Those of the mean, if there are."""
    temperatures: tuple[float, ...] = (0.05, 0.1, 0.2, 0.5)
    validation: int = 3
    """Networks at each temperature."""

    @property
    def instances(self) -> int | None:
        """Number of instances that the objective compares."""
        return self.task.instances

    def run(self, folder: Path, seed: int) -> Sequence[Values]:
        """Validate, train and probe; with the measure `temperature`."""
        best = max(self.temperatures, key=lambda t: self._read(folder, seed + 1_000_000, t))
        return [{**found, "temperature": best} for found in self._at(best).run(folder, seed)]

    def _at(self, temperature: float) -> Any:
        function, options = losses.unwrap(self.task.objective)
        if "pair" in options:
            of_pairs = losses.higher_order(function)
            assert of_pairs is not None
            objective = of_pairs(partial(options["pair"], temperature=temperature))
        else:
            objective = partial(self.task.objective, temperature=temperature)
        return dataclasses.replace(self.task, objective=objective)

    def _read(self, folder: Path, seed: int, temperature: float) -> float:
        few = dataclasses.replace(self._at(temperature), networks=self.validation)
        found = few.run(folder / f"temperature{temperature}", seed)
        return float(np.mean([one[name] for one in found for name in self.measures if name in one]))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fused(Factored):
    """`Factored` with a network that fuses any views, as `methods.Fused` trains it, without a head.

    The probes of all views read the fusion of all, as many numbers as the encoders of all views give side by side.
    """

    fusion: Literal["attention", "mean"] = "attention"
    """How views are fused; mean: the mean of their embeddings, of the views that are there, a control."""
    tokens: int = 3
    """Tokens into which the embedding of a view is cut."""
    heads: int = 4
    """Heads of the attention."""
    maskings: int = 4
    """Of `inf_masking`: maskings of the tokens of an augmentation, each token with probability one half."""
    augmentation: augment.ByKind = dataclasses.field(
        default_factory=lambda: augment.ByKind(masked=0.1, noise=0.1)
    )
    """Of the inputs, twice."""

    def _network(self, key: jax.Array) -> nnx.Module:
        assert self.encoder is not None
        d, k = self.encoder.widths[-1], self.data.views
        config = models.Transformer(width=d * k, depth=1, heads=self.heads, dropout=0.0)
        return config.build((k * self.tokens, d // self.tokens), dtype=jnp.float32, rngs=nnx.Rngs(key))

    def initial(self, encoder: models.MLP, width: int, keys: jax.Array) -> dict[str, Any]:
        params = super().initial(encoder, width, keys)
        if self.fusion == "attention":
            made = jax.jit(jax.vmap(lambda key: nnx.state(self._network(jax.random.fold_in(key, 4)))))
            params["fusion"] = made(keys)
        return params

    def fused(
        self,
        params: dict[str, Any],
        x: jax.Array,
        there: jax.Array | None,
        maskings: int = 0,
        key: Any = None,
    ) -> tuple[jax.Array, jax.Array, list[jax.Array]]:
        """Of (k, n, inputs) views: each alone (k, n, d), those that are there (n, d), and with tokens masked."""
        assert self.encoder is not None
        z = embeddings(self.encoder, params["encoder"], x)
        k, n, _ = z.shape
        there = jnp.ones((k, n), bool) if there is None else there
        if self.fusion == "mean":
            sums = jnp.where(there[..., None], z, 0).sum(0)
            return z, sums / jnp.maximum(there.sum(0), 1)[:, None], []
        graph, _ = nnx.split(nnx.eval_shape(lambda: self._network(jax.random.key(0))))
        net: Any = nnx.merge(graph, params["fusion"])
        tokens = jnp.concatenate([view.reshape(n, self.tokens, -1) for view in z], axis=1)
        alone = jnp.broadcast_to(jnp.eye(k, dtype=bool)[:, None], (k, n, k))
        subsets = jnp.repeat(jnp.concatenate([alone, there.T[None]]), self.tokens, axis=2)
        if maskings:
            draws = jax.random.bernoulli(key, 0.5, (maskings, *subsets.shape[1:]))
            subsets = jnp.concatenate([subsets, draws & subsets[-1:]])
        chosen = jnp.where(subsets[..., None], tokens[None], jnp.nan)  # a row of NaN is masked
        fused = net(chosen.reshape(-1, *tokens.shape[1:])).reshape(len(subsets), n, -1)
        return fused[:k], fused[k], [*fused[k + 1 :]]

    def embedded(self, params: dict[str, Any], x: jax.Array) -> tuple[jax.Array, jax.Array]:
        if self.fusion == "mean":
            return super().embedded(params, x)
        return self.fused(params, x, None)[:2]

    def loss(self, params: dict[str, Any], batch: Batch, key: jax.Array) -> jax.Array:
        assert self.objective is not None
        operands = losses.takes(self.objective).operands
        views: list[jax.Array] = []
        masked: list[jax.Array] = []
        there = None if self.data.present == 1 else batch.there
        for side in range(2):
            of_views, of_tokens = jax.random.split(jax.random.fold_in(key, side))
            x = jax.vmap(self.augmentation)(jax.random.split(of_views, len(batch.x)), batch.x)
            maskings = self.maskings if operands is Operands.MASKED else 0
            alone, whole, more = self.fused(params, x, there, maskings, of_tokens)
            views, masked = [*views, *alone, whole], masked + more
        if operands not in (Operands.FUSED, Operands.MASKED):
            views, mask = views[: self.data.views], there
        else:
            one = None if there is None else jnp.concatenate([there, there.any(0)[None]])
            mask = None if one is None else jnp.concatenate([one, one])
        extra = {} if mask is None else {"mask": mask}
        if operands is Operands.MASKED:
            return self.objective(jnp.stack(views), jnp.stack(masked).reshape(2, -1, *whole.shape), **extra)
        return self.objective(jnp.stack(views), **extra)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Factorised(Factored):
    """FactorCL on two views: a shared and a unique linear head of each view, side by side what is probed; six critics.

    The critics of the upper bounds follow minus their own lower bound, in the same step as all else.
    """

    hidden: int = 32
    """Hidden units of a critic, a network of two vectors side by side."""
    augmentation: augment.ByKind = dataclasses.field(
        default_factory=lambda: augment.ByKind(masked=0.1, noise=0.1)
    )
    """Of the inputs; the task of FactorCL is what both of them share."""

    def initial(self, encoder: models.MLP, width: int, keys: jax.Array) -> dict[str, Any]:
        params, d = super().initial(encoder, width, keys), encoder.widths[-1]
        pairs = d, 2 * d, d, d, 2 * d, d  # numbers of both vectors; a head gives d/2

        def of_network(key: jax.Array) -> dict[str, Any]:
            of_heads, *each = jax.random.split(jax.random.fold_in(key, 5), 7)
            normal = jax.random.normal
            critics = [
                (normal(key, (n, self.hidden)) / n**0.5, jnp.zeros(self.hidden), jnp.zeros(self.hidden))
                for key, n in zip(each, pairs)
            ]
            return {"heads": normal(of_heads, (self.data.views, d, d)) / d**0.5, "critics": critics}

        return params | jax.jit(jax.vmap(of_network))(keys)

    def embedded(self, params: dict[str, Any], x: jax.Array) -> tuple[jax.Array, jax.Array]:
        z, _ = super().embedded(params, x)
        z = jnp.einsum("knd,kde->kne", z, params["heads"])
        return z, z.swapaxes(0, 1).reshape(z.shape[1], -1)

    def loss(self, params: dict[str, Any], batch: Batch, key: jax.Array) -> jax.Array:
        """The loss of the embeddings and that of the critics of the upper bounds; no parameter is in both."""
        of_views = jax.random.split(key, 2 * len(batch.x)).reshape(2, len(batch.x))
        sides = [self.embedded(params, jax.vmap(self.augmentation)(keys, batch.x))[0] for keys in of_views]
        shared, unique = jnp.split(jnp.concatenate(sides), 2, axis=-1)
        z = jnp.concatenate([shared, unique])

        def critic(weights: Any, x: jax.Array, y: jax.Array) -> jax.Array:
            first, bias, last = weights
            inside = (x @ first[: x.shape[1]])[:, None] + (y @ first[x.shape[1] :])[None] + bias[None, None]
            return nnx.relu(inside) @ last

        trained = losses.FactorCritics(*(partial(critic, weights) for weights in params["critics"]))
        held = [partial(critic, jax.lax.stop_gradient(weights)) for weights in params["critics"]]
        bounds = trained._replace(shared_club_given=held[1], unique_club=held[5])
        learned = losses.FactorCritics(*held)._replace(
            shared_club_given=trained.shared_club_given, unique_club=trained.unique_club
        )
        mask = None if self.data.present == 1 else jnp.concatenate([batch.there] * 4)
        return losses.factor_cl(z, bounds, mask=mask) + losses.factor_cl(
            z, learned, turn="critics", mask=mask
        )
