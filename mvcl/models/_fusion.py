"""Fusion of any subset of views: tokens of each view's encoder, a class token, and attention over all of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike

from mvcl.models import _layers, _norms, _vit


class FusionEncoder(nnx.Module):
    """Tokens of views (n, tokens, width) -> the normalised class token, (n, features) float32; tokens may be masked."""

    def __init__(
        self, config: "Fusion", views: Sequence[tuple[int, int]], *, dtype: DTypeLike, rngs: nnx.Rngs
    ):
        self.features, self.dtype, width = config.width, dtype, config.width
        law = nnx.initializers.lecun_normal()
        linear = partial(nnx.Linear, out_features=width, dtype=dtype, kernel_init=law, rngs=rngs)
        self.embed = nnx.List([linear(numbers) for _, numbers in views])
        self.place = nnx.List(
            [nnx.Param(_layers.small(rngs.params(), (1, count, width), jnp.float32)) for count, _ in views]
        )
        self.cls_token = nnx.Param(_layers.small(rngs.params(), (1, 1, width), jnp.float32))
        block = partial(_vit.Block, width, config.heads, dtype=dtype, rngs=rngs)
        self.blocks = nnx.List([block(init=lambda *_: _layers.small) for _ in range(config.depth)])
        self.norm = _norms.norm("layer", width, rngs=rngs)

    def tokens(self, features: Sequence[jax.Array]) -> list[jax.Array]:
        """Of each view (n, count, numbers) features, (n, count, width) tokens of one space, which tell their place."""
        both = zip(features, self.embed, self.place, strict=True)
        return [linear(x) + place[...].astype(self.dtype) for x, linear, place in both]

    def __call__(self, tokens: jax.Array, there: jax.Array | None = None) -> jax.Array:
        """Fuse tokens of any views side by side; `there`, (n, tokens), is False for those that are masked."""
        start = jnp.broadcast_to(self.cls_token[...].astype(self.dtype), (len(tokens), 1, self.features))
        x = jnp.concatenate([start, tokens], axis=1)
        there = None if there is None else jnp.pad(there, ((0, 0), (1, 0)), constant_values=True)
        for block in self.blocks:
            x = block(x, there)
        return self.norm(x[:, 0])


@dataclass(frozen=True)
class Fusion:
    """Transformer over the tokens of all views and a learned class token, whose last state is the fusion.

    Dufumier and Castillo-Navarro 2025 (CoMM), released: one layer and 8 heads. Ours: pre-norm blocks with an MLP of
    four times the width, a linear map of each view's tokens, and a learned vector for each token's view and place.
    """

    width: int = 256
    """Length of a token, and the number of features."""
    depth: int = 1
    """Number of transformer blocks."""
    heads: int = 8
    """Attention heads; must divide the width."""
    tokens: int = 4
    """Tokens of a view: an encoder's features are cut into so many, which must divide them."""

    def build(self, views: Sequence[tuple[int, int]], *, dtype: DTypeLike, rngs: nnx.Rngs) -> FusionEncoder:
        """Build the encoder for (tokens, numbers of a token) of each view, or raise ValueError."""
        _layers.check(self)
        return FusionEncoder(self, views, dtype=dtype, rngs=rngs)
