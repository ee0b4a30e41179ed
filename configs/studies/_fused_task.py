"""Objectives of fused views, and FactorCL, on views of known factors; and their controls."""

import dataclasses
from collections.abc import Sequence
from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from _factors_task import Batch, Factored, embeddings, with_option
from flax import nnx

from mvcl import augment, losses, models
from mvcl.losses import Operands

CHANGE = augment.ByKind(masked=0.1, noise=0.1)  # augmentation of the inputs, drawn twice


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fused(Factored):
    """`Factored` with a network that fuses any views, as `methods.Fused` trains it, without a head.

    The probes of all views read the fusion of all, as many numbers as the encoders of all views give side by side.
    """

    fusion: Literal["attention", "mean", "none"] = "attention"
    """How views are fused; mean: the mean of their embeddings, of the views that are there, a control. None: not at
    all; the objective compares both augmentations of all views."""
    tokens: int = 3
    """Tokens into which the embedding of a view is cut."""
    maskings: int = 4
    """Of `inf_masking`: maskings of the tokens of an augmentation, each token with probability one half."""

    def _network(self, key: jax.Array) -> nnx.Module:
        assert self.encoder is not None
        d, k = self.encoder.widths[-1], self.data.views
        config = models.Transformer(width=d * k, depth=1, heads=4, dropout=0.0)
        return config.build((k * self.tokens, d // self.tokens), dtype=jnp.float32, rngs=nnx.Rngs(key))

    def initial(self, encoder: models.MLP, width: int, keys: jax.Array) -> dict[str, Any]:
        params = super().initial(encoder, width, keys)
        if self.fusion == "attention":
            made = jax.jit(jax.vmap(lambda key: nnx.state(self._network(jax.random.fold_in(key, 4)))))
            params["fusion"] = made(keys)
        return params

    def fused(
        self, params: dict[str, Any], x: jax.Array, there: jax.Array, maskings: int, key: Any
    ) -> jax.Array:
        """(k + 1 + maskings, n, d): of (k, n, inputs) views each alone, those that are there, with tokens masked."""
        assert self.encoder is not None
        z = embeddings(self.encoder, params["encoder"], x)
        k, n, _ = z.shape
        alone = jnp.broadcast_to(jnp.eye(k, dtype=bool)[:, None], (k, n, k))
        subsets = jnp.repeat(jnp.concatenate([alone, there.T[None]]), self.tokens, axis=2)
        if maskings:
            draws = jax.random.bernoulli(key, 0.5, (maskings, *subsets.shape[1:]))
            subsets = jnp.concatenate([subsets, draws & subsets[-1:]])
        tokens = jnp.concatenate([view.reshape(n, self.tokens, -1) for view in z], axis=1)
        if self.fusion != "attention":  # of a token in the place that it has in its view
            parts = subsets.reshape(*subsets.shape[:2], k, self.tokens, 1)
            sums = jnp.where(parts, tokens.reshape(n, k, self.tokens, -1)[None], 0).sum(2)
            return (sums / jnp.maximum(parts.sum(2), 1)).reshape(len(subsets), n, -1)
        graph, _ = nnx.split(nnx.eval_shape(lambda: self._network(jax.random.key(0))))
        net: Any = nnx.merge(graph, params["fusion"])
        places = np.arange(k * self.tokens).reshape(k, self.tokens)
        own = net(z.reshape(k * n, self.tokens, -1), places).reshape(k, n, -1)
        chosen = jnp.where(subsets[k:, ..., None], tokens[None], jnp.nan)  # a row of NaN is masked
        return jnp.concatenate([own, net(chosen.reshape(-1, *tokens.shape[1:])).reshape(-1, *own.shape[1:])])

    def embedded(self, params: dict[str, Any], x: jax.Array) -> tuple[jax.Array, jax.Array]:
        if self.fusion != "attention":
            return super().embedded(params, x)
        *alone, whole = self.fused(params, x, jnp.ones(x.shape[:2], bool), 0, None)
        return jnp.stack(alone), whole

    def loss(
        self, params: dict[str, Any], batch: Batch, key: jax.Array, tuned: jax.Array | None
    ) -> jax.Array:
        assert self.objective is not None
        operands, k = losses.takes(self.objective).operands, self.data.views
        maskings = self.maskings if operands is Operands.MASKED else 0
        there, found = batch.there, []
        for side in range(2):
            of_views, of_tokens = jax.random.split(jax.random.fold_in(key, side))
            x = jax.vmap(CHANGE)(jax.random.split(of_views, k), batch.x)
            found.append(self.fused(params, x, there, maskings, of_tokens))
        if operands in (Operands.FUSED, Operands.MASKED):
            views = [z[: k + 1] for z in found] + [z[k + 1 :] for z in found]
            whole = there.any(0)[None]
            mask = [there, whole] * 2 + [whole] * 2 * maskings
        else:
            count = 2 if self.fusion == "none" else 1
            views, mask = [z[:k] for z in found[:count]], [there] * count
        objective = self.objective if tuned is None else with_option(self.objective, self.tuned[0], tuned)
        extra: dict[str, Any] = {} if self.data.present == 1 else {"mask": jnp.concatenate(mask)}
        if maskings:
            extra["fused"] = 2 * (k + 1)
        return losses.of_views(objective)(jnp.concatenate(views), **extra)[0]


def critics(key: jax.Array, d: int, hidden: int = 32) -> list[Any]:
    """Weights of six critics of vectors of d numbers, networks of both side by side; two see twice as many."""
    normal, each = jax.random.normal, jax.random.split(key, 6)
    return [
        (normal(one, (n, hidden)) / n**0.5, jnp.zeros(hidden), jnp.zeros(hidden))
        for one, n in zip(each, (2 * d, 4 * d, 2 * d, 2 * d, 4 * d, 2 * d))
    ]


def factor_loss(weights: Sequence[Any], z: jax.Array, **more: Any) -> jax.Array:
    """`factor_cl` of (8, n, d) and that of the critics of its upper bounds; no parameter is in both."""

    def critic(weights: Any, x: jax.Array, y: jax.Array) -> jax.Array:
        first, bias, last = weights
        inside = (x @ first[: x.shape[1]])[:, None] + (y @ first[x.shape[1] :])[None] + bias[None, None]
        return nnx.relu(inside) @ last

    trained = losses.FactorCritics(*(partial(critic, one) for one in weights))
    held = losses.FactorCritics(*(partial(critic, jax.lax.stop_gradient(one)) for one in weights))
    bounds = trained._replace(shared_club_given=held.shared_club_given, unique_club=held.unique_club)
    return losses.factor_cl(z, bounds, **more) + losses.factor_cl(z, trained, turn="critics", **more)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Factorised(Factored):
    """FactorCL on two views: a shared and a unique linear head of each view, side by side what is probed; six critics.

    The critics of the upper bounds follow minus their own lower bound, in the same step as all else.
    """

    def initial(self, encoder: models.MLP, width: int, keys: jax.Array) -> dict[str, Any]:
        params, d = super().initial(encoder, width, keys), encoder.widths[-1]

        def of_network(key: jax.Array) -> dict[str, Any]:
            of_heads, of_critics = jax.random.split(jax.random.fold_in(key, 5))
            heads = jax.random.normal(of_heads, (self.data.views, d, d)) / d**0.5
            return {"heads": heads, "critics": critics(of_critics, d // 2)}

        return params | jax.jit(jax.vmap(of_network))(keys)

    def embedded(self, params: dict[str, Any], x: jax.Array) -> tuple[jax.Array, jax.Array]:
        z = jnp.einsum("knd,kde->kne", super().embedded(params, x)[0], params["heads"])
        return z, z.swapaxes(0, 1).reshape(z.shape[1], -1)

    def loss(
        self, params: dict[str, Any], batch: Batch, key: jax.Array, tuned: jax.Array | None
    ) -> jax.Array:
        keys = jax.random.split(key, 2 * len(batch.x)).reshape(2, len(batch.x))
        sides = [self.embedded(params, jax.vmap(CHANGE)(of_views, batch.x))[0] for of_views in keys]
        shared, unique = jnp.split(jnp.concatenate(sides), 2, axis=-1)
        mask = None if self.data.present == 1 else jnp.concatenate([batch.there] * 4)
        return factor_loss(params["critics"], jnp.concatenate([shared, unique]), mask=mask)
