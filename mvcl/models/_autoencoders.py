"""One autoencoder for each of several tables, as SEM trains them (Xu 2023)."""

from collections.abc import Sequence
from functools import partial
from itertools import pairwise

import jax
import jax.numpy as jnp
from flax import nnx
from jax import lax
from jax.typing import DTypeLike

from mvcl import _numerics
from mvcl.models._layers import torch_bias, torch_kernel


class Autoencoders(nnx.Module):
    """An encoder, an embedding layer and a decoder for each of k views, ReLU between layers.

    The layers that do not depend on a view's width are stacked into one product for all views.

    Args:
      widths: d_v, the width of each table.
      hidden: widths of an encoder's hidden layers; the decoder has them in reverse.
      features: length of the hidden features H.
      embedding: length of the embeddings Z.
      uniform_biases: draw initial biases from U(±1/sqrt(inputs)); otherwise they are zero.
    """

    def __init__(
        self,
        widths: Sequence[int],
        hidden: Sequence[int],
        features: int,
        embedding: int,
        *,
        uniform_biases: bool = False,
        dtype: DTypeLike,
        rngs: nnx.Rngs,
    ) -> None:
        exact = partial(nnx.Linear, precision=lax.Precision.HIGHEST)

        def linear(i: int, o: int) -> nnx.Linear:
            law = torch_bias(i) if uniform_biases else nnx.initializers.zeros
            return exact(i, o, kernel_init=torch_kernel, bias_init=law, dtype=dtype, rngs=rngs)

        def stacks(layers: Sequence[int]) -> nnx.List:
            return nnx.List([stack(i, o) for i, o in pairwise(layers)])

        stack = partial(Stack, len(widths), uniform_biases=uniform_biases, dtype=dtype, rngs=rngs)
        layers = [*hidden, features]
        first = nnx.List([linear(width, layers[0]) for width in widths])
        self.encoder = nnx.Dict(first=first, rest=stacks(layers))
        self.head = stack(features, embedding)
        rest = stacks(layers[::-1])
        self.decoder = nnx.Dict(rest=rest, last=nnx.List([linear(layers[0], width) for width in widths]))

    def encode(self, views: Sequence[jax.Array]) -> jax.Array:
        """k tables (n, d_v) to the hidden features H, (k, n, features) float32."""
        h = jnp.stack([layer(view) for layer, view in zip(self.encoder.first, views)])
        for layer in self.encoder.rest:
            h = layer(nnx.relu(h))
        return h.astype(jnp.float32)

    def embed(self, h: jax.Array) -> jax.Array:
        """H to unit vectors Z, (k, n, embedding) float32."""
        return _numerics.unit(self.head(h))

    def decode(self, h: jax.Array) -> list[jax.Array]:
        """H to k tables (n, d_v) float32."""
        for layer in self.decoder.rest:
            h = nnx.relu(layer(h))
        return [layer(view).astype(jnp.float32) for layer, view in zip(self.decoder.last, h)]

    def released_names(self) -> dict[str, tuple[str, ...]]:
        """Name of a variable -> its names in the released code of Xu 2023, network.py: of each view, if stacked."""
        names: dict[str, tuple[str, ...]] = {}
        views, deep = range(len(self.encoder.first)), len(self.encoder.rest)
        for leaf in ("weight", "bias"):
            layer = "{0}s.{1}.{0}.{2}." + leaf  # linear layers alternate with ReLU
            for v in views:
                names[f"encoder.first.{v}.{leaf}"] = (layer.format("encoder", v, 0),)
                names[f"decoder.last.{v}.{leaf}"] = (layer.format("decoder", v, 2 * deep),)
            for i in range(deep):
                for part, place in (("encoder", 2 * i + 2), ("decoder", 2 * i)):
                    names[f"{part}.rest.{i}.{leaf}"] = tuple(layer.format(part, v, place) for v in views)
            names[f"head.{leaf}"] = tuple(f"feature_contrastive_modules.{v}.0.{leaf}" for v in views)
        return names


class Stack(nnx.Module):
    """k linear maps of one shape, (k, n, i) -> (k, n, o)."""

    def __init__(
        self, k: int, i: int, o: int, *, uniform_biases: bool, dtype: DTypeLike, rngs: nnx.Rngs
    ) -> None:
        initial = jax.vmap(lambda key: torch_kernel(key, (i, o)))  # Xu 2023 has PyTorch's Linear
        self.kernel = nnx.Param(initial(jax.random.split(rngs.params(), k)))
        law = torch_bias(i) if uniform_biases else nnx.initializers.zeros
        self.bias = nnx.Param(law(rngs.params(), (k, o), jnp.float32))
        self.dtype = dtype

    def __call__(self, x: jax.Array) -> jax.Array:
        kernel, bias = self.kernel[...].astype(self.dtype), self.bias[...].astype(self.dtype)
        product = jnp.einsum("kni,kio->kno", x.astype(self.dtype), kernel, precision=lax.Precision.HIGHEST)
        return product + bias[:, None]
