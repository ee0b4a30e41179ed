"""The convolutional network for one channel of EEG that Piran 2024 trains (Brüsch 2023, arXiv 2307.09614)."""

from collections.abc import Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.typing import DTypeLike

from mvcl.models import _dropout, _layers

_SIZES = (3, 2, 2, 2, 2, 2)  # kernel and stride of the six blocks


def _patches(
    x: jax.Array, kernel: jax.Array, strides: Sequence[int], padding: Sequence[tuple[int, int]], **_: object
) -> jax.Array:
    """A convolution along time with stride equal to its kernel size, as one matrix product.

    The same numbers as `lax.conv_general_dilated`, whose gradient is slow on the CPU.
    """
    size, channels, features = kernel.shape
    x = jnp.pad(x, ((0, 0), *padding, (0, 0)))
    steps = x.shape[1] // size
    return x[:, : steps * size].reshape(-1, steps, size * channels) @ kernel.reshape(-1, features)


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


class _Block(nnx.Module):
    """Convolution, dropout of whole feature maps, group norm over pairs of feature maps, exact GELU."""

    def __init__(
        self, channels: int, features: int, size: int, rate: float, *, dtype: DTypeLike, rngs: nnx.Rngs
    ):
        self.dtype = dtype
        self.conv = nnx.Conv(
            channels,
            features,
            (size,),
            (size,),
            padding=((size // 2, size // 2),),
            dtype=dtype,
            kernel_init=_layers.he_fan_in,
            conv_general_dilated=_patches,
            rngs=rngs,
        )
        self.dropout = _dropout.Dropout(rate, broadcast_dims=(1,), rngs=rngs)
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
                _Block(before, after, size, config.dropout, dtype=dtype, rngs=rngs)
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
        """Build the encoder for one channel of `input_shape` (time,) or (time, 1), computing in `dtype`.

        Parameters are float32. Raises ValueError for an invalid shape or option.
        """
        for name in ("channels", "out", "stretches"):
            _layers.check_positive(name, getattr(self, name))
        for name in ("channels", "out"):
            if getattr(self, name) % 2:
                raise ValueError(
                    f"{name} must be even, since group norm pairs channels; got {getattr(self, name)}"
                )
        _dropout.check_rate(self.dropout)
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
