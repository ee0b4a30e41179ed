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
    """Self-attention over the positions that are there; one matrix for queries, keys and values."""

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
    """Attention, then an MLP four times as wide inside, each on the normalised input and added to it."""

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

    A row of a sequence that holds a NaN is padding: nobody attends to it, and no gradient comes from it. A sequence
    of padding alone gives the features of an empty one, which are finite.
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
        # Before any arithmetic: 0 * NaN is NaN, in the gradient too.
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

    Three layers, as Koromilas 2025 encodes text, audio and vision of an utterance, each view with its own; blocks
    normalise first and their MLP is four times as wide. Views are fused late, by the method.
    """

    width: int = 128
    """Length of a token, and the number of features."""
    depth: int = 3
    """Number of transformer blocks."""
    heads: int = 4
    """Attention heads; must divide the width."""
    dropout: float = 0.1
    """Probability that an entry is dropped in training: after attention, inside the MLP and after it."""

    def build(self, input_shape: Sequence[int], *, dtype: DTypeLike, rngs: nnx.Rngs) -> TransformerEncoder:
        """The encoder for sequences of `input_shape` (time, d), computing in `dtype`; parameters are float32.

        Raises ValueError for another shape, or where the heads do not divide the width.
        """
        for name in ("width", "depth", "heads"):
            _layers.check_positive(name, getattr(self, name))
        _dropout.check_rate(self.dropout)
        if len(input_shape) != 2 or min(input_shape) < 1:
            raise ValueError(f"input_shape of Transformer must be (time, d); got {tuple(input_shape)}")
        if self.width % self.heads:
            raise ValueError(f"heads must divide width; got {self.heads} heads for width {self.width}")
        time, inputs = input_shape
        return TransformerEncoder(self, time, inputs, dtype=dtype, rngs=rngs)
