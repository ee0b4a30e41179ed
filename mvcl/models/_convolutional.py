"""Convolutional networks: ResNet under torchvision's parameter names, and EegConv."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.typing import DTypeLike

from mvcl.models import _layers, _norms, _remat

_INITIAL = {"he_fan_out": _layers.he_fan_out, "kaiming_uniform": _layers.kaiming_uniform}
_SIZES = (3, 2, 2, 2, 2, 2)  # kernel and stride of the six blocks of EegConv
_BLOCKS = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3), 101: (3, 4, 23, 3)}


class _Residual(nnx.Module):
    """Two 3x3 convolutions, or 1x1-3x3-1x1 from depth 50 on; the stride is in the (first) 3x3."""

    def __init__(
        self,
        config: "ResNet",
        channels: int,
        width: int,
        stride: int,
        *,
        conv: Callable[..., nnx.Conv],
        norm: Callable[..., Any],
    ):
        self.bottleneck, zero_init = config.depth >= 50, config.zero_init_residual
        self.features = 4 * width if self.bottleneck else width
        if self.bottleneck:
            self.conv1, self.bn1 = conv(channels, width, 1), norm(width)
            self.conv2, self.bn2 = conv(width, width, 3, stride), norm(width)
            self.conv3, self.bn3 = conv(width, self.features, 1), norm(self.features, zero_init=zero_init)
        else:
            self.conv1, self.bn1 = conv(channels, width, 3, stride), norm(width)
            self.conv2, self.bn2 = conv(width, width, 3), norm(width, zero_init=zero_init)
        resized = stride > 1 or channels != self.features
        self.downsample = nnx.List(
            [conv(channels, self.features, 1, stride), norm(self.features)] if resized else []
        )

    def __call__(self, x: jax.Array) -> jax.Array:
        def last(layers: tuple[Any, ...], h: jax.Array, x: jax.Array) -> jax.Array:
            conv, norm, *downsample = layers
            h = norm(conv(h))
            for resize in downsample:
                x = resize(x)
            return nnx.relu(h + x).astype(conv.dtype)  # the sum is float32, as the norms are

        layers = [(self.conv1, self.bn1), (self.conv2, self.bn2)]
        layers += [(self.conv3, self.bn3)] if self.bottleneck else []
        h = _remat.in_turn(layers[:-1], x, apply=_layers.rectified)
        return _remat.in_turn([(*layers[-1], *self.downsample)], h, x, apply=last)


class ResNetEncoder(nnx.Module):
    """Images (n, height, width, channels) -> spatial mean of the last stage, (n, features) float32."""

    def __init__(self, config: "ResNet", channels: int, *, dtype: DTypeLike, rngs: nnx.Rngs):
        self.pools = config.stem == "imagenet"
        size, stride = (7, 2) if self.pools else (3, 1)
        law = _INITIAL[config.initial]
        of_stem = law if config.stem_initial == "same" else _layers.torch_kernel
        conv = partial(_layers.conv, kernel_init=law, dtype=dtype, rngs=rngs)
        self.conv1 = conv(channels, config.width, size, stride, kernel_init=of_stem)
        strided = config.batch_rows == "strided"
        norm = partial(_norms.norm, config.norm, groups=config.batch_groups, strided=strided, rngs=rngs)
        self.bn1 = norm(config.width)
        block = partial(_Residual, config, conv=conv, norm=norm)
        stages, self.features = [], config.width
        for stage, count in enumerate(_BLOCKS[config.depth]):
            blocks: nnx.List[_Residual] = nnx.List([])
            for index in range(count):
                stride = 2 if stage > 0 and index == 0 else 1
                blocks.append(block(self.features, config.width * 2**stage, stride))
                self.features = blocks[-1].features
            stages.append(blocks)
        self.layer1, self.layer2, self.layer3, self.layer4 = stages

    def __call__(self, x: jax.Array) -> jax.Array:
        def stem(layers: tuple[nnx.Conv, Any], x: jax.Array) -> jax.Array:
            x = _layers.rectified(layers, x)
            return nnx.max_pool(x, (3, 3), (2, 2), padding=((1, 1), (1, 1))) if self.pools else x

        x = _remat.in_turn([(self.conv1, self.bn1)], x, apply=stem)
        x = _remat.in_turn([*self.layer1, *self.layer2, *self.layer3, *self.layer4], x)
        return jnp.mean(x, axis=(1, 2), dtype=jnp.float32)


@dataclass(frozen=True)
class ResNet:
    """Residual network (He 2016, v1.5: the stride of a bottleneck is in its 3x3 convolution).

    Without classifier, on 3 channels with the ImageNet stem: 11,176,512 parameters at depth 18, 23,508,032 at depth 50.
    """

    depth: Literal[18, 34, 50, 101] = 18
    """Number of layers; 50 and 101 have bottleneck blocks and four times as many features."""
    stem: Literal["imagenet", "cifar"] = "imagenet"
    """imagenet: 7x7 stride 2, then max-pooling; cifar: 3x3 stride 1, no pooling, for images up to 64."""
    norm: _layers.Norm = "batch"
    """Normalisation. batch: with statistics of the global batch; group: without batch statistics, as microbatches
    require."""
    batch_groups: int = 1
    """Groups of views of a batch that each have their own batch statistics; they must divide the number of views that
    are encoded at once. 1: the global batch; 8, for MoCo on one device."""
    batch_rows: Literal["strided", "consecutive"] = "strided"
    """Rows of a group: every batch_groups-th, as MoCo's code for one device, or consecutive ones, as on devices."""
    width: int = 64
    """Channels after the stem; the features are 8 times as many (32 times from depth 50 on)."""
    zero_init_residual: bool = False
    """Initialise each block's last norm with scale 0, so that blocks start as the identity (SimCLR, BYOL)."""
    initial: Literal["he_fan_out", "kaiming_uniform"] = "he_fan_out"
    """Law of the kernels at the start, He 2015: he_fan_out is normal of variance 2 / fan out, as torchvision's ResNet;
    kaiming_uniform is uniform of variance 2 / fan in, as torch.nn.init.kaiming_uniform_."""
    stem_initial: Literal["same", "torch"] = "same"
    """Law of the stem's kernel: that of the others (same), or uniform in ±1/sqrt(fan in), as PyTorch's Conv2d (torch),
    which released code puts in place of torchvision's stem."""

    def build(self, input_shape: Sequence[int], *, dtype: DTypeLike, rngs: nnx.Rngs) -> ResNetEncoder:
        _layers.check(self, input_shape)
        return ResNetEncoder(self, input_shape[-1], dtype=dtype, rngs=rngs)


class _EegBlock(nnx.Module):
    """Convolution, dropout of whole feature maps, group norm over pairs of feature maps, exact GELU."""

    def __init__(
        self, config: "EegConv", channels: int, features: int, size: int, *, dtype: DTypeLike, rngs: nnx.Rngs
    ):
        kernel, bias = config.start(channels * size)
        conv = partial(_layers.conv, axes=1, use_bias=True, dtype=dtype, rngs=rngs)
        self.conv = conv(channels, features, size, size, kernel_init=kernel, bias_init=bias)
        self.dropout = _layers.Dropout(config.dropout, broadcast_dims=(1,), rngs=rngs)
        self.norm = _norms.norm("pairs", features, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        return nnx.gelu(self.norm(self.dropout(self.conv(x))), approximate=False).astype(self.conv.dtype)


class EegConvEncoder(nnx.Module):
    """One channel (n, time) or (n, time, 1) -> (n, features) float32. Samples that are NaN count as 0."""

    def __init__(self, config: "EegConv", *, dtype: DTypeLike, rngs: nnx.Rngs):
        self.features = config.out * config.stretches
        self.stretches = config.stretches
        widths = (1, *(config.channels,) * (len(_SIZES) - 1), config.out)
        block, sizes = partial(_EegBlock, config, dtype=dtype, rngs=rngs), zip(widths, widths[1:], _SIZES)
        self.blocks = nnx.List([block(*size) for size in sizes])
        kernel, bias = config.start(config.out)
        linear = partial(nnx.Linear, kernel_init=kernel, bias_init=bias, dtype=dtype, rngs=rngs)
        self.readout = linear(config.out, config.out)

    def __call__(self, x: jax.Array) -> jax.Array:
        x = x.reshape(x.shape[0], -1, 1)
        x = jnp.where(jnp.isnan(x), 0, x).astype(self.readout.dtype)
        x = _remat.in_turn(self.blocks, x)
        x = self.readout(x).astype(jnp.float32)
        # Means over the stretches, as of PyTorch's AdaptiveAvgPool1d.
        length, count = x.shape[1], self.stretches
        at, stretch = np.arange(length)[:, None], np.arange(count)
        inside = (stretch * length // count <= at) & (at < -((stretch + 1) * length // -count))
        pooled = jnp.einsum("ntc,ts->nsc", x, (inside / inside.sum(0)).astype(np.float32))
        return pooled.reshape(x.shape[0], self.features)


@dataclass(frozen=True)
class EegConv:
    """Six strided convolutions and a pointwise read-out over one EEG channel, shared by all channels.

    Kernel and stride are 3, then five times 2, each padded by half a kernel; 30 s at 100 Hz become 33 positions, which
    are averaged. As in the released code (github.com/theabrusch/Multiview_TS_SSL). 566,016 parameters by default.
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
    init: Literal["he_fan_in", "torch"] = "he_fan_in"
    """Initial weights: kernels normal of variance 2 / fan in, cut off at two deviations, and biases 0 (he_fan_in); or
    both uniform in ±1/sqrt(fan in), as in PyTorch's layers (torch)."""

    def start(self, inputs: int) -> tuple[nnx.Initializer, nnx.Initializer]:
        """Laws of the kernel and the bias of a layer with this fan in."""
        if self.init == "torch":
            return _layers.torch_kernel, _layers.torch_bias(inputs)
        return _layers.he_fan_in, nnx.initializers.zeros

    def build(self, input_shape: Sequence[int], *, dtype: DTypeLike, rngs: nnx.Rngs) -> EegConvEncoder:
        _layers.check(self)
        for name in ("channels", "out"):
            if getattr(self, name) % 2:
                raise ValueError(f"{name} must be even, for group norm of pairs; got {getattr(self, name)}")
        if len(input_shape) not in (1, 2) or min(input_shape) < 1 or tuple(input_shape[1:]) not in ((), (1,)):
            what = f"(time,) or (time, 1), one channel per view; got {tuple(input_shape)}"
            raise ValueError(f"input_shape of EegConv must be {what}")
        positions = input_shape[0]
        for size in _SIZES:
            positions = (positions + 2 * (size // 2) - size) // size + 1
        if positions < self.stretches:
            what = f"at most the {positions} positions of {input_shape[0]} samples"
            raise ValueError(f"stretches must be {what}; got {self.stretches}")
        return EegConvEncoder(self, dtype=dtype, rngs=rngs)
