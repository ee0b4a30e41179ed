"""One encoder per view or modality, with a common embedding space."""

import dataclasses
from collections.abc import Iterable
from itertools import combinations
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from mvcl import _checks, losses, models
from mvcl.methods._method import (
    Batch,
    Inputs,
    Learner,
    LossAndMore,
    Module,
    Specification,
    built,
    check_encoder,
)
from mvcl.methods._objective import Measures, OfViews

Encoders = tuple[models.EncoderConfig, ...]


class Networks(nnx.Module):
    """One encoder and one head for each of the k views, and a fusion network for each pair of them if asked."""

    def __init__(self, spec: Specification, options: "MultiEncoder", rngs: nnx.Rngs) -> None:
        encoders, fusion = of_each_view(options.encoders, spec), options.fusion
        more: dict[str, Any] = {"dtype": spec.dtype, "rngs": rngs}
        self.encoder = nnx.List([built(e, s, **more) for e, s in zip(encoders, spec.shapes)])
        self.head = nnx.List([spec.head.build(encoder.features, **more) for encoder in self.encoder])
        both = [x.features + y.features for x, y in combinations(self.encoder, 2)]
        self.fusion = nnx.List([fusion.build(width, **more) for width in both] if fusion else [])


def separate(views: Any) -> tuple[jax.Array, ...]:
    """Views as a tuple of k arrays (n, ...); an array (n, k, ...) is split."""
    return views if isinstance(views, tuple) else tuple(jnp.moveaxis(views, 1, 0))


def of_each_view(configs: Encoders, spec: Specification) -> Encoders:
    """One encoder config per view: those given, or the run's for all."""
    k = len(spec.shapes)
    if configs and len(configs) != k:
        raise ValueError(f"method.encoders must be empty or one for each of {k} views, got {len(configs)}")
    return configs or (spec.encoder,) * k


def outputs(lengths: Iterable[int]) -> tuple[str, ...]:
    """The outputs of encoders of one view each: `views` only if all have one length."""
    return ("encoder", "head", "views") if len(set(lengths)) == 1 else ("encoder", "head")


def side_by_side(encoder: Any, inputs: Inputs) -> jax.Array:
    """(n, Σ_l f_l): the concatenated features of the encoders; zeros for missing views."""
    # All encoders get the same image.
    views = inputs["views"] if "views" in inputs else (inputs["images"],) * len(encoder)
    found = [encode(view) for encode, view in zip(encoder, views, strict=True)]
    there = inputs.get("present")
    if there is not None:
        found = [jnp.where(there[:, l, None], z, 0) for l, z in enumerate(found)]
    return jnp.concatenate(found, axis=-1)


def fused_weights(k: int, weight: float) -> np.ndarray:
    """(k', k') float32 weights of the pairs of views for `all_pairs`, where fused pairs follow the k views.

    A pair of views has 1 - weight; a fused pair and a third view have `weight`; others have 0. All are multiplied so
    that the mean of `all_pairs` over every pair is the mean over those two kinds of pairs.
    """
    pairs = list(combinations(range(k), 2))
    views = 1 - np.eye(k)
    thirds = np.array([[view not in pair for pair in pairs] for view in range(k)], float)  # (k, fused pairs)
    none = np.zeros((len(pairs),) * 2)
    factors = np.block([[(1 - weight) * views, weight * thirds], [weight * thirds.T, none]])
    counted = views.sum() + 2 * thirds.sum()
    return (factors * (factors.size - len(factors)) / counted).astype(np.float32)


@dataclasses.dataclass(frozen=True, kw_only=True)
class MultiEncoder:
    """One encoder and one head per view, for modalities of different shapes.

    Missing views are masked in the objective. The evaluated features are the concatenated features of all encoders,
    with zeros for missing views.

    With `fusion` each pair of views has a network of its own, which maps the features of both encoders, side by side,
    to one further embedding, a fused view, compared with each third view (ConFu, Koutoupis et al. 2025, arXiv
    2511.21331). With three views, `all_pairs(info_nce, pairs="ordered")`, w = `fusion_weight`, and L the InfoNCE
    averaged over both directions:

        1/6 [ (1 - w) (L(z_1, z_2) + L(z_1, z_3) + L(z_2, z_3)) + w (L(f_12, z_3) + L(f_13, z_2) + L(f_23, z_1)) ]

    as in the released code; the paper's loss has no factor 1/6. With k > 3 views the sum is over all fused pairs and
    third views. A fused view is missing where one of its two views is. Fused views are used in training only.
    """

    encoders: tuple[models.EncoderConfig, ...] = ()
    """One encoder per view; empty: `encoder` for each. Set in a config file."""
    fusion: models.MLPHead | None = None
    """Network of each fused view, from the features of two encoders to the head's length; it needs objective all_pairs
    and three views. None: no fused views."""
    fusion_weight: float = 0.5
    """With fusion: weight of the pairs of a fused view and a third view, in [0, 1]; pairs of views have the rest."""

    def build(self, spec: Specification) -> Learner:
        spec.whole_batch("multi_encoder")
        if self.fusion is not None:
            if len(spec.shapes) < 3:
                what = "method.fusion compares two views with a third and needs at least 3"
                raise ValueError(f"{what}, got {len(spec.shapes)}")
            if not losses.takes(spec.objective).pair_weights:
                what = f"method.fusion needs objective all_pairs, got {losses.name(spec.objective)}"
                raise ValueError(f"{what}; use objective:all_pairs objective.pair:info_nce")
            _checks.fields("method", self, fusion_weight="[0, 1]")
        return MultiEncoderLearner(spec, self)


class MultiEncoderLearner(Learner):
    one_encoder = False

    def __init__(self, spec: Specification, options: MultiEncoder) -> None:
        self.options, self.k = options, len(spec.shapes)
        Module.__init__(self, lambda key: Networks(spec, options, nnx.Rngs(key)))
        networks = self.abstract
        if not spec.given:  # they are evaluated on images of the first view's size
            for shape, encoder in zip(spec.shapes, networks.encoder, strict=True):
                check_encoder(dataclasses.replace(spec, shapes=(shape, spec.shapes[0])), encoder)
        self.dimension = networks.head[0].features
        for network in networks.fusion:
            if network.features != self.dimension:
                what = f"method.fusion must end in the head's {self.dimension} features"
                raise ValueError(f"{what}, got {network.features}; set --method.fusion.out {self.dimension}")
        self.outputs = (*outputs(e.features for e in networks.encoder), "head_views")

    def loss(self, params: Any, statistics: Any, batch: Batch, objective: OfViews) -> LossAndMore:
        nets = self.merge(params, statistics)
        views = separate(batch.draw(batch.inputs))
        features = [encoder(view) for encoder, view in zip(nets.encoder, views, strict=True)]
        embeddings = [head(x) for head, x in zip(nets.head, features, strict=True)]
        for network, pair in zip(nets.fusion, combinations(features, 2)):
            embeddings.append(network(jnp.concatenate(pair, axis=-1)))
        z = jnp.stack(embeddings)[:, : batch.examples]
        value, measures = self._compared(objective, z, **batch.mask)
        return value, (self.statistics(nets), z[: self.k], measures)

    def features(self, params: Any, statistics: Any, inputs: Inputs, output: str) -> jax.Array:
        nets = models.eval_view(self.network(params, statistics))
        if output in ("encoder", "views"):
            return side_by_side(nets.encoder, inputs)
        whole = [lambda x, e=e, h=h: h(e(x)) for e, h in zip(nets.encoder, nets.head)]
        return side_by_side(whole, inputs)

    def level(self, objective: OfViews, z: jax.Array) -> jax.Array:
        if self.options.fusion is None:
            return objective(z)[0]
        # Sums stand for fused views: they tell of a third view as much as the two views do.
        sums = jnp.stack([x + y for x, y in combinations(z, 2)])
        return self._compared(objective, jnp.concatenate([z, sums]))[0]

    def _compared(self, objective: OfViews, z: jax.Array, **mask: jax.Array) -> tuple[jax.Array, Measures]:
        """The objective of the views, and of the fused ones if there are any."""
        if self.options.fusion is None:
            return objective(z, **mask)
        # An instance has a fused view if it has both views.
        there = {n: jnp.stack([*x, *(a & b for a, b in combinations(x, 2))]) for n, x in mask.items()}
        weights = fused_weights(self.k, self.options.fusion_weight)
        return objective(z, weights=jnp.asarray(weights), **there)
