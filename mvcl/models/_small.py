"""Small networks: perceptrons, projection heads, which evaluation does not use, and convolutions of images and EEG."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.typing import DTypeLike

from mvcl.models import _layers

Activation = Literal["relu", "gelu"]

_SIZES = (3, 2, 2, 2, 2, 2)  # kernel and stride of the six blocks


class Perceptron(nnx.Module):
    """Arrays (n, ...) -> (n, features) float32; each example is flattened in row-major order."""

    def __init__(
        self,
        inputs: int,
        linears: Sequence[nnx.Linear] = (),
        norms: Sequence[nnx.Module | None] = (),
        activation: Activation = "relu",
        dtype: DTypeLike = jnp.float32,
    ):
        self.inputs, self.activation, self.dtype = inputs, activation, dtype
        self.features = linears[-1].out_features if linears else inputs
        self.linears, self.norms = nnx.List(linears), nnx.List(norms)

    def __call__(self, x: jax.Array) -> jax.Array:
        if math.prod(x.shape[1:]) != self.inputs:
            raise ValueError(
                f"MLP was built for {self.inputs} numbers an example and takes no other size, got {x.shape[1:]}; "
                "for views of several sizes use a ResNet, a ConvNet or a ViT"
            )
        x = x.reshape(x.shape[0], -1)
        for index, (linear, norm) in enumerate(zip(self.linears, self.norms), start=1):
            x = linear(x)
            if norm is not None:
                x = norm(x)
            if index < len(self.linears):
                x = nnx.relu(x) if self.activation == "relu" else nnx.gelu(x, approximate=False)
                x = x.astype(self.dtype)
        return x.astype(jnp.float32)


@dataclass(frozen=True)
class MLP:
    """Linear layers with ReLU or GELU between them; the last is linear. Inputs are flattened to vectors."""

    widths: tuple[int, ...] = (512, 512)
    """Width of each layer; the last is the number of features."""
    norm: Literal["none", "batch"] = "none"
    """Normalisation before each activation: batch or none."""
    activation: Activation = "relu"
    """Activation between the layers; gelu is the exact one."""

    def build(self, input_shape: Sequence[int], *, dtype: DTypeLike, rngs: nnx.Rngs) -> Perceptron:
        """Build the encoder for examples of any `input_shape`, or raise ValueError."""
        _layers.check(self)
        if not input_shape or min(input_shape) < 1:
            raise ValueError(f"input_shape of MLP must have at least one entry; got {tuple(input_shape)}")
        inputs, kinds = math.prod(input_shape), [*(self.norm,) * (len(self.widths) - 1), "none"]
        linear = partial(nnx.Linear, dtype=dtype, kernel_init=_layers.he_fan_in, rngs=rngs)
        sizes = pairwise((inputs, *self.widths))
        # A norm's shift is its layer's bias.
        linears = [linear(*size, use_bias=kind == "none") for kind, size in zip(kinds, sizes)]
        norms = [_layers.norm(kind, width, rngs=rngs) for kind, width in zip(kinds, self.widths)]
        return Perceptron(inputs, linears, norms, self.activation, dtype)


@dataclass(frozen=True)
class MLPHead:
    """Linear layers with an activation between them. A layer before batch normalisation has no bias."""

    layers: int = 2
    """Number of linear layers."""
    hidden: int | None = None
    """Width of the hidden layers; None: the number of encoder features."""
    out: int = 128
    """Length of an embedding."""
    activation: Activation = "relu"
    """Activation between the layers: relu or (exact) gelu."""
    norm: Literal["none", "batch", "layer"] = "none"
    """Normalisation before each activation: batch, layer or none."""
    output_norm: Literal["none", "batch", "batch_no_shift", "batch_plain"] = "none"
    """Normalisation of the embedding: none, batch, batch without shift (batch_no_shift), or batch without shift and
    scale (batch_plain)."""
    init: Literal["lecun", "trunc_normal"] = "lecun"
    """Initial weights: normal with variance 1 / inputs (lecun), or with deviation 0.02, cut off at two deviations of it
    (trunc_normal), as in ViT. Biases are 0."""

    def build(self, features: int, *, dtype: DTypeLike, rngs: nnx.Rngs) -> Perceptron:
        """Build the head for an encoder with this number of features, computing in `dtype`; parameters are float32."""
        _layers.check(self)
        hidden = (features if self.hidden is None else self.hidden,) * (self.layers - 1)
        init = nnx.initializers.lecun_normal() if self.init == "lecun" else _layers.small
        linears, norms = [], []
        for index, (before, after) in enumerate(pairwise((features, *hidden, self.out)), start=1):
            kind = self.norm if index < self.layers else self.output_norm
            bias = kind in ("none", "layer")
            linears.append(nnx.Linear(before, after, use_bias=bias, dtype=dtype, kernel_init=init, rngs=rngs))
            norms.append(_layers.norm(kind, after, rngs=rngs))
        return Perceptron(features, linears, norms, self.activation, dtype)


@dataclass(frozen=True)
class IdentityHead:
    """No head: the objective is computed on the encoder's features."""

    def build(self, features: int, *, dtype: DTypeLike, rngs: nnx.Rngs) -> Perceptron:
        """Build a head that returns its input; `dtype` and `rngs` are not used."""
        return Perceptron(features)


def koromilas_head() -> MLPHead:
    """Linear-BN-ReLU-Linear-BN to 128, hidden layer as wide as the features (Koromilas 2025, after SimCLR).

    The released code has no bias in the linear layers and no shift in the last BN.
    """
    return MLPHead(norm="batch", output_norm="batch_no_shift")


def piran_head() -> MLPHead:
    """Linear 4096 - LayerNorm - GELU - Linear 256, weights of deviation 0.02 (Piran 2024, Appendix A).

    The text has the layers without the norm, Table A1 "head normalization LayerNorm", without its place; here it is
    before the activation.
    """
    return MLPHead(hidden=4096, out=256, activation="gelu", norm="layer", init="trunc_normal")


def moco_v2_head() -> MLPHead:
    """Linear-ReLU-Linear to 128, hidden layer as wide as the features (Chen 2020, arXiv 2003.04297)."""
    return MLPHead()


def moco_v3_head() -> MLPHead:
    """Three linear layers, 4096 wide, each with BN, to 256; the last BN has no scale and no shift.

    Chen 2021 (arXiv 2104.02057), for ViT. With `layers=2` it is the projector for ResNet-50, and
    the predictor.
    """
    return MLPHead(layers=3, hidden=4096, out=256, norm="batch", output_norm="batch_plain")


def byol_head() -> MLPHead:
    """Linear 4096 - BN - ReLU - Linear 256 (Grill 2020); projector and predictor are the same."""
    return MLPHead(hidden=4096, out=256, norm="batch")


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
        """Build the encoder for images of `input_shape` (height, width, channels), or raise ValueError."""
        _layers.check(self, input_shape)
        return ConvNetEncoder(self, input_shape[-1], dtype=dtype, rngs=rngs)


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
