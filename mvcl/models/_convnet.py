"""A small convolutional network, for images too small for a residual network."""

from collections.abc import Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike

from mvcl.models import _layers


class ConvNetEncoder(nnx.Module):
    """Images (n, height, width, channels) -> spatial mean of the last layer, (n, features) float32."""

    def __init__(self, config: "ConvNet", channels: int, *, dtype: DTypeLike, rngs: nnx.Rngs):
        self.dtype = dtype
        self.features = config.widths[-1]
        convs, norms = [], []
        for index, width in enumerate(config.widths):
            stride = 1 if index == 0 else 2
            convs.append(_layers.conv(channels, width, 3, stride, dtype=dtype, rngs=rngs))
            norms.append(_layers.norm(config.norm, width, rngs=rngs))
            channels = width
        self.convs = nnx.List(convs)
        self.norms = nnx.List(norms)

    def __call__(self, x: jax.Array) -> jax.Array:
        for conv, norm in zip(self.convs, self.norms):
            x = nnx.relu(norm(conv(x))).astype(self.dtype)
        return jnp.mean(x, axis=(1, 2), dtype=jnp.float32)


@dataclass(frozen=True)
class ConvNet:
    """3x3 convolutions, each with a norm and ReLU; each one after the first halves height and width.

    92,896 parameters by default on one channel: 9 (32 + 32·64 + 64·128) in the kernels, 2 (32 + 64 + 128) in
    the norms.
    """

    widths: tuple[int, ...] = (32, 64, 128)
    """Channels of each layer; the last is the number of features."""
    norm: _layers.Norm = "batch"
    """Normalisation. batch: with statistics of the global batch; group: without batch statistics, as microbatches
    require."""

    def build(self, input_shape: Sequence[int], *, dtype: DTypeLike, rngs: nnx.Rngs) -> ConvNetEncoder:
        """Build the encoder for images of `input_shape` (height, width, channels), computing in `dtype`.

        Parameters are float32. Raises ValueError for an invalid shape or option.
        """
        _layers.check_widths("widths", self.widths)
        _, _, channels = _layers.image_shape(input_shape, "ConvNet")
        return ConvNetEncoder(self, channels, dtype=dtype, rngs=rngs)
