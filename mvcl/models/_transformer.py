"""A small transformer over sequences of feature vectors, padded with rows of NaN."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike

from mvcl.models import _dropout, _layers

_small = nnx.initializers.truncated_normal(0.02)


class _Attention(nnx.Module):
    """Self-attention over the positions without padding; one matrix for queries, keys and values."""

    def __init__(self, width: int, heads: int, *, dtype: DTypeLike, rngs: nnx.Rngs):
        linear = partial(nnx.Linear, dtype=dtype, kernel_init=_small, rngs=rngs)
        self.heads = heads
        self.qkv = linear(width, 3 * width)
        self.proj = linear(width, width)

    def __call__(self, x: jax.Array, there: jax.Array) -> jax.Array:
        n, tokens, width = x.shape
        qkv = self.qkv(x).reshape(n, tokens, 3, self.heads, width // self.heads)
        mask = there[:, None, None, :]
        x = jax.nn.dot_product_attention(qkv[:, :, 0], qkv[:, :, 1], qkv[:, :, 2], mask=mask)
        return self.proj(x.reshape(n, tokens, width))


class _Block(nnx.Module):
    """Pre-norm residual block: attention, then an MLP with four times the width."""

    def __init__(self, width: int, heads: int, rate: float, *, dtype: DTypeLike, rngs: nnx.Rngs):
        linear = partial(nnx.Linear, dtype=dtype, kernel_init=_small, rngs=rngs)
        self.norm1 = _layers.layer_norm(width, rngs=rngs)
        self.attn = _Attention(width, heads, dtype=dtype, rngs=rngs)
        self.norm2 = _layers.layer_norm(width, rngs=rngs)
        self.fc1 = linear(width, 4 * width)
        self.fc2 = linear(4 * width, width)
        self.dropouts = nnx.List([_dropout.Dropout(rate, rngs=rngs) for _ in range(3)])

    def __call__(self, x: jax.Array, there: jax.Array) -> jax.Array:
        attended, hidden, added = self.dropouts
        x = x + attended(self.attn(self.norm1(x), there))
        inner = hidden(nnx.gelu(self.fc1(self.norm2(x)), approximate=False))
        return x + added(self.fc2(inner))


class TransformerEncoder(nnx.Module):
    """Sequences (n, time, d) -> the normalised summary token, (n, features) float32.

    Rows of a sequence with a NaN are padding: they are masked in attention and have no gradient. A sequence of only
    padding gives the features of an empty sequence, which are finite.
    """

    def __init__(self, config: "Transformer", time: int, inputs: int, *, dtype: DTypeLike, rngs: nnx.Rngs):
        self.dtype = dtype
        self.features = config.width
        self.embed = nnx.Linear(
            inputs, config.width, dtype=dtype, kernel_init=nnx.initializers.lecun_normal(), rngs=rngs
        )
        self.cls_token = nnx.Param(_small(rngs.params(), (1, 1, config.width), jnp.float32))
        self.pos_embed = nnx.Param(_small(rngs.params(), (1, time, config.width), jnp.float32))
        self.blocks = nnx.List(
            [
                _Block(config.width, config.heads, config.dropout, dtype=dtype, rngs=rngs)
                for _ in range(config.depth)
            ]
        )
        self.norm = _layers.layer_norm(config.width, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        there = ~jnp.isnan(x).any(-1)
        # Before any arithmetic: 0 * NaN is NaN, also in the gradient.
        x = self.embed(jnp.where(there[..., None], x, 0)) + self.pos_embed[...].astype(self.dtype)
        summary = jnp.broadcast_to(self.cls_token[...].astype(self.dtype), (x.shape[0], 1, self.features))
        x = jnp.concatenate([summary, x], axis=1)
        there = jnp.pad(there, ((0, 0), (1, 0)), constant_values=True)
        for block in self.blocks:
            x = block(x, there)
        return self.norm(x[:, 0])


@dataclass(frozen=True)
class Transformer:
    """Transformer with a summary token and learned positions over a sequence of feature vectors.

    Three pre-norm layers, MLP of four times the width. Koromilas 2025 has one for each of text, audio and vision of
    an utterance; the method fuses the views late.
    """

    width: int = 128
    """Length of a token, and the number of features."""
    depth: int = 3
    """Number of transformer blocks."""
    heads: int = 4
    """Attention heads; must divide the width."""
    dropout: float = 0.1
    """Dropout probability after attention, inside the MLP and after it."""

    def build(self, input_shape: Sequence[int], *, dtype: DTypeLike, rngs: nnx.Rngs) -> TransformerEncoder:
        """Build the encoder for sequences of `input_shape` (time, d), computing in `dtype`; parameters are float32.

        Raises ValueError for another shape, or if the heads do not divide the width.
        """
        _layers.check_layers("depth", self.depth)
        for name in ("width", "heads"):
            _layers.check_positive(name, getattr(self, name))
        _dropout.check_rate(self.dropout)
        if len(input_shape) != 2 or min(input_shape) < 1:
            raise ValueError(f"input_shape of Transformer must be (time, d); got {tuple(input_shape)}")
        if self.width % self.heads:
            raise ValueError(f"heads must divide width; got {self.heads} heads for width {self.width}")
        time, inputs = input_shape
        return TransformerEncoder(self, time, inputs, dtype=dtype, rngs=rngs)
