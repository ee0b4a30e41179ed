"""One encoder per view, and a network that fuses any subset of the views."""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from mvcl import _checks, augment, losses, models
from mvcl.methods._method import Batch, DrawingLearner, Inputs, LossAndMore, Specification, key_of_batch
from mvcl.methods._multi_encoder import of_each_view, separate
from mvcl.methods._objective import OfViews

_AGAIN = 1 << 30  # the second augmentation of an image is its view in the epoch that is so many later


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fused:
    """One encoder per view and a network that fuses any of them, trained with each view alone and with all (CoMM).

    Each example is augmented twice. The tokens of each view alone, and those of all views that are there, are fused;
    the head embeds both. `comm` and `inf_masking` compare these 2 (k + 1) embeddings; any other objective compares the
    k views, each fused alone, of the first augmentation. The evaluated features are the fusion of the views that are
    there. Images are augmented by `views.policy`, given views by `augmentation`.

    Dufumier and Castillo-Navarro 2025, released: one pre-norm layer of 8 heads and a class token. Ours: the exact GELU,
    and positions that are learned for each token; released: sines of a patch's place, or none.
    """

    encoders: tuple[models.EncoderConfig, ...] = ()
    """One encoder per view; empty: `encoder` for each. Set in a config file. If their features differ in number, each
    view has a linear layer to as many as the most (released: an adapter of each view)."""
    fusion: models.Transformer | None = dataclasses.field(
        default_factory=lambda: models.Transformer(width=256, depth=1, heads=8, dropout=0.0)
    )
    """The network that fuses the tokens; missing ones are masked. None, `method.fusion:none`: the mean of the views'
    embeddings, token by token (ours)."""
    tokens: int = 4
    """Tokens of a view: the features of its encoder are cut into so many."""
    augmentation: augment.ByKind | None = dataclasses.field(default_factory=lambda: augment.ByKind())
    """Augmentation of given views, by their kind; None, `method.augmentation:none`: they are not augmented."""
    maskings: int = 4
    """With `inf_masking`: maskings of the tokens of all views, of each augmentation."""
    masked: float = 0.5
    """With `inf_masking`: probability that a token is masked, so that nothing attends to it. Released: a learned token
    is in place of a fixed share of each view's, 0.5 to 0.8."""
    ratio: float = 1.0
    """With `inf_masking`: its ratio at the end of the run, which grows from 0 in proportion to the steps; the released
    code adds to it every epoch."""

    def build(self, spec: Specification) -> DrawingLearner:
        spec.whole_batch("fused")
        _checks.fields("method", self, tokens="[1, inf)", maskings="[1, inf)", masked="[0, 1]")
        return FusedLearner(spec, self)


class FusedNetworks(nnx.Module):
    def __init__(self, spec: Specification, options: Fused, rngs: nnx.Rngs) -> None:
        more: dict[str, Any] = {"dtype": spec.dtype, "rngs": rngs}
        encoders, self.tokens = of_each_view(options.encoders, spec), options.tokens
        self.encoder = nnx.List([e.build(shape, **more) for e, shape in zip(encoders, spec.shapes)])
        features = [encoder.features for encoder in self.encoder]
        width = max(features)
        if width % self.tokens:
            what = f"method.tokens must divide {width}, the features of the encoders"
            raise ValueError(f"{what}, got {self.tokens}; for example {math.gcd(width, self.tokens)}")
        alike = len(set(features)) == 1
        self.adapter = nnx.List([] if alike else [nnx.Linear(d, width, **more) for d in features])
        shape = len(features) * self.tokens, width // self.tokens
        self.fusion = None if options.fusion is None else options.fusion.build(shape, **more)
        self.features = width if self.fusion is None else self.fusion.features
        self.head = spec.head.build(self.features, **more)

    def of_views(self, views: Any) -> jax.Array:
        """(n, k, tokens, d)."""
        z = [encoder(x) for encoder, x in zip(self.encoder, views, strict=True)]
        if self.adapter:
            z = [adapter(x) for adapter, x in zip(self.adapter, z)]
        return jnp.stack([x.reshape((len(x), self.tokens, -1)) for x in z], axis=1)

    def alone(self, x: jax.Array) -> jax.Array:
        """(k, n, features): the fusion of the tokens of each view alone, which has no other tokens to mask."""
        n, k, tokens, d = x.shape
        z = x.swapaxes(0, 1)
        if isinstance(self.fusion, models.TransformerEncoder):
            z = self.fusion(z.reshape((k * n, tokens, d)), np.arange(k * tokens).reshape(k, tokens))
        elif self.fusion is not None:  # a network that knows missing tokens, and no positions
            z = self.subsets(x, jnp.broadcast_to(jnp.eye(k, dtype=bool)[:, None, :, None], (k, n, k, 1)))
        return z.reshape((k, n, -1))

    def subsets(self, x: jax.Array, there: jax.Array) -> jax.Array:
        """(s, n, features): the fusions of s subsets of the tokens; `there` is (s, n, k, tokens) or (s, n, k, 1)."""
        if self.fusion is None:
            sums = jnp.where(there[..., None], x[None], 0).sum(2)
            z = sums / jnp.maximum(there.sum(2), 1)[..., None]
            return z.reshape((*there.shape[:2], -1))
        chosen = jnp.where(there[..., None], x[None], jnp.nan)
        z = self.fusion(chosen.reshape((-1, self.tokens * x.shape[1], x.shape[-1])))
        return z.reshape((*there.shape[:2], -1))


class FusedLearner(DrawingLearner):
    one_encoder = False
    has_level = False  # random views have no fusion of them

    def __init__(self, spec: Specification, options: Fused) -> None:
        self.options, self.k, self.given = options, len(spec.shapes), spec.given
        operands = losses.takes(spec.objective).operands
        self.sides = 2 if operands in (losses.Operands.FUSED, losses.Operands.MASKED) else 1
        self.maskings = options.maskings if operands is losses.Operands.MASKED else 0
        if self.maskings:
            self.objective_options = {"fused": 2 * (self.k + 1)}
        super().__init__(lambda key: FusedNetworks(spec, options, nnx.Rngs(key)))
        self.dimension = self.abstract.head.features

    def init(self, key: jax.Array) -> tuple[Any, Any]:
        params, statistics = super().init(key)
        return params, statistics | {"progress": jnp.zeros(())}

    def after(self, params: Any, statistics: Any, progress: jax.Array) -> Any:
        return {**statistics, "progress": jnp.asarray(progress, jnp.float32)}

    def loss(self, params: Any, statistics: Any, batch: Batch, objective: OfViews) -> LossAndMore:
        nets, key = self.network(params, statistics), key_of_batch(statistics, batch.inputs)
        here, found, extra = self._whole(batch.inputs), [], dict(batch.mask)
        change, inputs = self.options.augmentation, batch.inputs
        for side in range(self.sides):
            of_views, of_tokens = jax.random.split(jax.random.fold_in(key, side))
            views = separate(batch.draw({**inputs, "epoch": inputs["epoch"] + side * _AGAIN}))
            if change is not None and self.given:
                views = tuple(change(jax.random.fold_in(of_views, l), x) for l, x in enumerate(views))
            x = nets.of_views(views)
            fused = [nets.alone(x)]
            if self.sides == 2:
                shape = (self.maskings, *x.shape[:3])
                kept = jax.random.bernoulli(of_tokens, 1 - self.options.masked, shape) & here
                there = jnp.concatenate([jnp.broadcast_to(here, (1, *shape[1:])), kept])
                fused.append(nets.subsets(x, there))
            found.append(jnp.concatenate(fused))
        every = [x[: self.k + 1] for x in found] + [x[self.k + 1 :] for x in found]
        z = jnp.stack([nets.head(x) for x in jnp.concatenate(every)])[:, : batch.examples]
        state = {**statistics, "network": self.statistics(nets)}
        for name, mask in batch.mask.items() if self.sides == 2 else ():
            whole = mask.any(0)[None]
            extra[name] = jnp.concatenate([mask, whole] * 2 + [whole] * (2 * self.maskings))
        if self.maskings:
            extra["ratio"] = self.options.ratio * statistics["progress"]
        value, measures = objective(z, **extra)
        return value, (state, z[: self.k], measures)

    def _whole(self, inputs: Inputs) -> jax.Array:
        """(1, n, k, 1): the views that are there."""
        n = len(jax.tree.leaves(inputs)[0])
        return jnp.asarray(inputs.get("present", jnp.ones((n, self.k), bool)))[None, ..., None]

    def of_subsets(self, params: Any, statistics: Any, inputs: Inputs, subsets: np.ndarray) -> jax.Array:
        """(s, n, features): the fusions of those of the given views that are there, of each of the (s, k) subsets."""
        nets = models.eval_view(self.network(params, statistics))
        there = jnp.asarray(subsets)[:, None, :, None] & self._whole(inputs)
        x = nets.of_views(inputs["views"])
        # One at a time: all 63 of six views take much memory.
        return jax.lax.map(lambda one: nets.subsets(x, one[None])[0], there)

    def features(self, params: Any, statistics: Any, inputs: Inputs, output: str) -> jax.Array:
        nets = models.eval_view(self.network(params, statistics))
        views = inputs["views"] if "views" in inputs else (inputs["images"],) * self.k
        x, whole = nets.of_views(views), self._whole(inputs)
        z = nets.alone(x) if "views" in output else nets.subsets(x, whole)
        if "head" in output:
            z = nets.head(z.reshape((-1, z.shape[-1]))).reshape((*z.shape[:2], -1))
        if "views" not in output:
            return z[0]
        return jnp.where(whole[0], z.swapaxes(0, 1), 0).reshape((z.shape[1], -1))
