"""Networks of sequences: one for a channel of EEG, and a small transformer over padded sequences."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.typing import DTypeLike

from mvcl.models import _layers
from mvcl.models._vit import Block

_SIZES = (3, 2, 2, 2, 2, 2)  # kernel and stride of the six blocks


def _stretches(length: int, count: int) -> np.ndarray:
    """(length, count) weights that average `length` positions over `count` stretches.

    Stretch i is floor(i length / count) to ceil((i + 1) length / count), as in PyTorch's AdaptiveAvgPool1d: for 33
    positions and 4 stretches 0-8, 8-16, 16-24 and 24-32.
    """
    weights = np.zeros((length, count), np.float32)
    for i in range(count):
        first, last = i * length // count, -((i + 1) * length // -count)
        weights[first:last, i] = 1 / (last - first)
    return weights


class _EegBlock(nnx.Module):
    """Convolution, dropout of whole feature maps, group norm over pairs of feature maps, exact GELU."""

    def __init__(
        self, channels: int, features: int, size: int, rate: float, *, dtype: DTypeLike, rngs: nnx.Rngs
    ):
        self.dtype = dtype
        conv = partial(_layers.conv, kernel_init=_layers.he_fan_in, use_bias=True, dtype=dtype, rngs=rngs)
        self.conv = conv(channels, features, size, size, axes=1)
        self.dropout = _layers.Dropout(rate, broadcast_dims=(1,), rngs=rngs)
        self.norm = nnx.GroupNorm(
            features,
            num_groups=features // 2,
            epsilon=1e-5,
            dtype=jnp.float32,
            use_fast_variance=False,
            rngs=rngs,
        )

    def __call__(self, x: jax.Array) -> jax.Array:
        return nnx.gelu(self.norm(self.dropout(self.conv(x))), approximate=False).astype(self.dtype)


class EegConvEncoder(nnx.Module):
    """One channel (n, time) or (n, time, 1) -> (n, features) float32. Samples that are NaN count as 0."""

    def __init__(self, config: "EegConv", time: int, *, dtype: DTypeLike, rngs: nnx.Rngs):
        self.dtype = dtype
        self.features = config.out * config.stretches
        self.stretches = config.stretches
        widths = (1, *(config.channels,) * (len(_SIZES) - 1), config.out)
        self.blocks = nnx.List(
            [
                _EegBlock(before, after, size, config.dropout, dtype=dtype, rngs=rngs)
                for before, after, size in zip(widths, widths[1:], _SIZES)
            ]
        )
        self.readout = nnx.Linear(
            config.out, config.out, dtype=dtype, kernel_init=_layers.he_fan_in, rngs=rngs
        )

    def __call__(self, x: jax.Array) -> jax.Array:
        x = x.reshape(x.shape[0], -1, 1)
        x = jnp.where(jnp.isnan(x), 0, x).astype(self.dtype)
        for block in self.blocks:
            x = block(x)
        x = self.readout(x).astype(jnp.float32)
        pooled = jnp.einsum("ntc,ts->nsc", x, _stretches(x.shape[1], self.stretches))
        return pooled.reshape(x.shape[0], self.features)


def positions(time: int) -> int:
    """Number of positions after the six blocks for `time` samples: 33 for 3000."""
    for size in _SIZES:
        time = (time + 2 * (size // 2) - size) // size + 1
    return time


@dataclass(frozen=True)
class EegConv:
    """Six strided convolutions and a pointwise read-out over one EEG channel, shared by all channels.

    Kernel and stride are 3, then five times 2, each padded by half a kernel, so that 30 s at 100 Hz become 33
    positions. Every block is convolution, dropout of whole feature maps, group norm with two feature maps a group,
    exact GELU; as in the released code (github.com/theabrusch/Multiview_TS_SSL). The last block has `out` channels, a
    linear layer is applied to each position, and the positions are averaged. 566,016 parameters by default.
    """

    channels: int = 256
    """Feature maps of the first five blocks; even."""
    out: int = 64
    """Feature maps of the last block and of the read-out; even."""
    dropout: float = 0.1
    """Probability that a feature map is dropped in training."""
    stretches: int = 1
    """Average over this many equal stretches of time, concatenated in the features; heads and classifiers of the
    released code use 4."""

    def build(self, input_shape: Sequence[int], *, dtype: DTypeLike, rngs: nnx.Rngs) -> EegConvEncoder:
        """Build the encoder for one channel of `input_shape` (time,) or (time, 1), or raise ValueError."""
        _layers.check(self)
        for name in ("channels", "out"):
            if getattr(self, name) % 2:
                raise ValueError(
                    f"{name} must be even, since group norm pairs channels; got {getattr(self, name)}"
                )
        if len(input_shape) not in (1, 2) or min(input_shape) < 1 or tuple(input_shape[1:]) not in ((), (1,)):
            raise ValueError(
                f"input_shape of EegConv must be (time,) or (time, 1), one channel per view; got {tuple(input_shape)}"
            )
        if positions(input_shape[0]) < self.stretches:
            raise ValueError(
                f"stretches must be at most the {positions(input_shape[0])} positions of {input_shape[0]} samples; "
                f"got {self.stretches}"
            )
        return EegConvEncoder(self, input_shape[0], dtype=dtype, rngs=rngs)


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
        self.cls_token = nnx.Param(_layers.small(rngs.params(), (1, 1, config.width), jnp.float32))
        self.pos_embed = nnx.Param(_layers.small(rngs.params(), (1, time, config.width), jnp.float32))
        block = partial(Block, config.width, config.heads, config.dropout, dtype=dtype, rngs=rngs)
        self.blocks = nnx.List([block(init=lambda *_: _layers.small) for _ in range(config.depth)])
        self.norm = _layers.norm("layer", config.width, rngs=rngs)

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
        """Build the encoder for sequences of `input_shape` (time, d), or raise ValueError."""
        _layers.check(self)
        if len(input_shape) != 2 or min(input_shape) < 1:
            raise ValueError(f"input_shape of Transformer must be (time, d); got {tuple(input_shape)}")
        time, inputs = input_shape
        return TransformerEncoder(self, time, inputs, dtype=dtype, rngs=rngs)
