"""One encoder per view, and a network that fuses any subset of the views."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from mvcl import augment, losses, models
from mvcl.losses import Operands
from mvcl.methods._method import Batch, Inputs, Learner, LossAndMore, Module, Specification, key_of_batch
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
    """

    encoders: tuple[models.EncoderConfig, ...] = ()
    """One encoder per view; empty: `encoder` for each. Set in a config file."""
    fusion: models.Fusion = dataclasses.field(default_factory=lambda: models.Fusion())
    """The network that fuses the views' tokens."""
    augmentation: augment.ByKind | None = dataclasses.field(default_factory=lambda: augment.ByKind())
    """Augmentation of given views, by their kind; None, `method.augmentation:none`: they are not augmented."""
    maskings: int = 4
    """With `inf_masking`: maskings of the tokens of all views, of each augmentation."""
    masked: float = 0.5
    """With `inf_masking`: probability that a token is masked; ours."""
    ratio: float = 1.0
    """With `inf_masking`: its ratio at the end of the run, which grows from 0 in proportion to the steps; the released
    code adds to it every epoch."""

    def build(self, spec: Specification) -> Learner:
        """The learner."""
        spec.whole_batch("fused")
        if self.maskings < 1:
            raise ValueError(f"method.maskings must be at least 1, got {self.maskings}")
        if not 0 <= self.masked <= 1:
            raise ValueError(f"method.masked must be in [0, 1], got {self.masked}")
        return FusedLearner(spec, self)


class FusedNetworks(nnx.Module):
    """An encoder of each view, the fusion of their tokens, and its head."""

    def __init__(self, spec: Specification, options: Fused, rngs: nnx.Rngs) -> None:
        more: dict[str, Any] = {"dtype": spec.dtype, "rngs": rngs}
        encoders, self.cut = of_each_view(options.encoders, spec), options.fusion.tokens
        self.encoder = nnx.List([e.build(shape, **more) for e, shape in zip(encoders, spec.shapes)])
        for encoder in self.encoder:
            if encoder.features % self.cut:
                raise ValueError(
                    f"method.fusion.tokens must divide the {encoder.features} features of each encoder, got {self.cut}"
                )
        views = [(self.cut, encoder.features // self.cut) for encoder in self.encoder]
        self.fusion = options.fusion.build(views, **more)
        self.head = spec.head.build(self.fusion.features, **more)

    def tokens(self, views: Any, present: jax.Array | None) -> tuple[list[jax.Array], jax.Array]:
        """(n, tokens, width) of each view, and the (n, all tokens) that are there."""
        found = [
            e(x).reshape((len(x), self.cut, -1)) for e, x in zip(self.encoder, separate(views), strict=True)
        ]
        there = jnp.ones((len(found[0]), len(found)), bool) if present is None else present
        return self.fusion.tokens(found), jnp.repeat(there, self.cut, axis=1)


class FusedLearner(Learner):
    one_encoder = False

    def __init__(self, spec: Specification, options: Fused) -> None:
        self.options, self.k, self.given = options, len(spec.shapes), spec.given
        self.operands = losses.takes(spec.objective).operands
        self.maskings = options.maskings if self.operands is Operands.MASKED else 0
        if self.maskings:
            self.objective_options = {"fused": 2 * (self.k + 1)}
        Module.__init__(self, lambda key: FusedNetworks(spec, options, nnx.Rngs(key)))
        self.dimension = self.abstract.head.features

    def init(self, key: jax.Array) -> tuple[Any, Any]:
        params, network = super().init(key)
        draws = jax.random.key_data(jax.random.fold_in(key, 1))
        return params, {"network": network, "key": draws, "progress": jnp.zeros(())}

    def network(self, params: Any, statistics: Any) -> Any:
        return self.merge(params, statistics["network"])

    def after(self, params: Any, statistics: Any, progress: jax.Array) -> Any:
        return {**statistics, "progress": jnp.asarray(progress, jnp.float32)}

    def loss(self, params: Any, statistics: Any, batch: Batch, objective: OfViews) -> LossAndMore:
        nets, inputs, every = self.network(params, statistics), batch.inputs, []
        key, present = key_of_batch(statistics, inputs), inputs.get("present")
        more: list[jax.Array] = []
        for side in range(2 if self.operands in (Operands.FUSED, Operands.MASKED) else 1):
            of_views, of_tokens = jax.random.split(jax.random.fold_in(key, side))
            tokens, there = nets.tokens(self._augmented(batch, side, of_views), present)
            whole = jnp.concatenate(tokens, axis=1)
            every += [nets.fusion(x) for x in tokens] + [nets.fusion(whole, there)]
            for number in range(self.maskings):
                draw = jax.random.fold_in(of_tokens, number)
                kept = jax.random.bernoulli(draw, 1 - self.options.masked, there.shape)
                more.append(nets.fusion(whole, there & kept))
        z = jnp.stack([nets.head(x) for x in every + more])[:, : batch.examples]
        extra = {"ratio": self.options.ratio * statistics["progress"]} if self.maskings else {}
        for name, mask in batch.mask.items():
            both = jnp.concatenate([mask, mask.any(0)[None]])
            extra[name] = jnp.concatenate([both, both, *[both[-1:]] * len(more)])
        if self.operands not in (Operands.FUSED, Operands.MASKED):
            value, measures = objective(z[: self.k], **batch.mask)
        else:
            value, measures = objective(z, **extra)
        state = {**statistics, "network": self.statistics(nets)}
        return value, (state, z[: self.k], measures)

    def _augmented(self, batch: Batch, side: int, key: jax.Array) -> tuple[jax.Array, ...]:
        """The views of the batch in one of its two augmentations."""
        inputs, change = batch.inputs, self.options.augmentation
        if not self.given:
            return separate(batch.draw({**inputs, "epoch": inputs["epoch"] + side * _AGAIN}))
        views = separate(batch.draw(inputs))
        if change is None:
            return views
        return tuple(change(jax.random.fold_in(key, view), x) for view, x in enumerate(views))

    def features(self, params: Any, statistics: Any, inputs: Inputs, output: str) -> jax.Array:
        """Of all views that are there together: `encoder` and `head`; of each alone, side by side, `views` and
        `head_views`."""
        nets = models.eval_view(self.network(params, statistics))
        views = inputs["views"] if "views" in inputs else (inputs["images"],) * self.k
        present = inputs.get("present")
        tokens, there = nets.tokens(views, present)
        head = nets.head if output.startswith("head") else lambda x: x
        if not output.endswith("views"):
            return head(nets.fusion(jnp.concatenate(tokens, axis=1), there))
        found = jnp.stack([head(nets.fusion(x)) for x in tokens], axis=1)
        here = np.ones(found.shape[:2], bool) if present is None else present
        return jnp.where(here[..., None], found, 0).reshape((len(found), -1))

    def level(self, objective: OfViews, z: jax.Array) -> jax.Array:
        """The mean of the views stands for their fusion."""
        if self.operands not in (Operands.FUSED, Operands.MASKED):
            return objective(z)[0]
        whole = z.mean(0)[None]
        return objective(jnp.concatenate([z, whole, z, whole, *[whole] * (2 * self.maskings)]))[0]
