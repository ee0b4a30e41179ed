"""SimCLR's way: one encoder and one head over all views (Chen et al. 2020), for any number of them."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
from flax import nnx

from mvcl import models
from mvcl.methods._method import Inputs, Learner, Measures, Network, Params, Pieces, Statistics


@dataclasses.dataclass(frozen=True, kw_only=True)
class Simclr:
    """One encoder and one head embed all k views; the objective compares them."""

    def check(self, encoder: models.EncoderConfig, head: models.HeadConfig, microbatch: int | None) -> None:
        """Micro-batches need an encoder whose output for one image does not depend on the others."""
        if microbatch is not None and microbatch < 1:
            raise ValueError(f"train.microbatch must be at least 1, got {microbatch}")
        if microbatch is not None and encoder.has_batch_statistics:
            raise ValueError(
                "train.microbatch needs an encoder without batch statistics, for BatchNorm over a part of the batch "
                "is another function; use --encoder.norm group, or a ViT. The head may keep its BatchNorm"
            )

    def build(
        self, encoder: models.EncoderConfig, head: models.HeadConfig, input_shape: tuple[int, ...], dtype: Any
    ) -> Learner:
        """The pure functions for these networks, inputs of this shape and arithmetic of this dtype."""

        def fresh(key: jax.Array) -> Network:
            return Network(encoder, head, input_shape, dtype=dtype, rngs=nnx.Rngs(key))

        abstract = nnx.eval_shape(lambda: fresh(jax.random.key(0)))
        trained = nnx.graphdef(abstract)

        def init(key: jax.Array) -> tuple[Params, Statistics]:
            net = fresh(key)
            return nnx.state(net, nnx.Param), nnx.state(net, nnx.Not(nnx.Param))

        def network(params: Params, statistics: Statistics) -> Network:
            return nnx.merge(trained, params, statistics, copy=True)

        def loss(
            params: Params,
            statistics: Statistics,
            inputs: Inputs,
            draw: Callable[[Inputs], jax.Array],
            objective: Callable[[jax.Array], tuple[jax.Array, Measures]],
            pieces: Pieces | None = None,
        ) -> tuple[jax.Array, tuple[Statistics, jax.Array, Measures]]:
            net = network(params, statistics)
            n = jax.tree.leaves(inputs)[0].shape[0]

            # Views lead with n all the way: with k in front, each device would compute every row.
            def encode(encoder: Any, inputs: Inputs) -> jax.Array:
                views = draw(inputs)
                return encoder(views.reshape((-1, *views.shape[2:])))

            if pieces is None:
                features = encode(net.encoder, inputs)
            else:
                frozen, weights = nnx.split(net.encoder)

                @jax.checkpoint
                def piece(inputs: Inputs) -> jax.Array:
                    return encode(nnx.merge(frozen, weights, copy=True), inputs)

                features = pieces.join(jax.lax.map(piece, pieces.split(inputs)))
            z = net.head(features)
            z = z.reshape((n, -1, z.shape[-1])).swapaxes(0, 1)
            value, measures = objective(z)
            return value, (nnx.state(net, nnx.Not(nnx.Param)), z, measures)

        def features(params: Params, statistics: Statistics, images: jax.Array, output: str) -> jax.Array:
            net = network(params, statistics)
            view = models.eval_view(net)
            encoded = view.encoder(images)
            return view.head(encoded) if output == "head" else encoded

        return Learner(init, loss, features, network)
