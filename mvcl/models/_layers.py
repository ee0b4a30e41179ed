"""Common parts of encoders and heads: checks, convolutions, normalisation, train and eval views."""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, Literal, TypeVar, get_args

import jax
import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike

Norm = Literal["batch", "group"]

he_fan_out = nnx.initializers.variance_scaling(2.0, "fan_out", "normal")  # He 2015, as torchvision's ResNet
# He 2015 with the fan in, as torch.nn.init.kaiming_uniform_.
kaiming_uniform = nnx.initializers.variance_scaling(2.0, "fan_in", "uniform")
he_fan_in = nnx.initializers.variance_scaling(2.0, "fan_in", "truncated_normal")

M = TypeVar("M", bound=nnx.Module)
_MOST_LAYERS = 1000


def check_choice(name: str, value: object, choices: Sequence[object]) -> None:
    """Raise `ValueError` for a value that is not among the choices."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(str, choices))}; got {value!r}")


def check_positive(name: str, value: object) -> None:
    """Raise `ValueError` for anything but an integer of at least 1."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{name} must be an integer of at least 1; got {value!r}")


def check_layers(name: str, value: object) -> None:
    """Raise `ValueError` for anything but a number of layers that can be built one by one."""
    check_positive(name, value)
    assert isinstance(value, int)
    if value > _MOST_LAYERS:
        raise ValueError(f"{name} must be at most {_MOST_LAYERS}; got {value}")


def check_widths(name: str, widths: Sequence[int]) -> None:
    """Raise `ValueError` for an empty list of widths and for widths below 1."""
    if not widths:
        raise ValueError(f"{name} must name at least one layer's width; got {widths!r}")
    for width in widths:
        check_positive(name, width)


def image_shape(input_shape: Sequence[int], who: str) -> tuple[int, int, int]:
    """Return (height, width, channels) for an encoder of images; raise `ValueError` for other shapes."""
    if len(input_shape) != 3 or any(size < 1 for size in input_shape):
        raise ValueError(
            f"input_shape of {who} must be (height, width, channels); got {tuple(input_shape)}; "
            f"use MLP for other inputs"
        )
    height, width, channels = input_shape
    return height, width, channels


def _convolve(
    x: jax.Array,
    kernel: jax.Array,
    strides: Sequence[int],
    padding: Sequence[tuple[int, int]],
    **options: object,
) -> jax.Array:
    """`lax.conv_general_dilated`, or on CPU, for small strided kernels, one matrix product.

    On CPU the input gradient of a strided convolution is slow: a 3-layer ConvNet on 1024 images of 8x8 takes 150 ms
    per step with it and 64 ms without (2 cores). At stride 1, or for a 7x7 kernel, gathering the patches costs more
    than it saves.
    """
    height, width, channels, features = kernel.shape
    if jax.default_backend() != "cpu" or max(strides) == 1 or max(height, width) > 3:
        return jax.lax.conv_general_dilated(x, kernel, strides, padding, **options)  # type: ignore[arg-type]
    x = jnp.pad(x, ((0, 0), *padding, (0, 0)))
    rows = 1 + (x.shape[1] - height) // strides[0]
    columns = 1 + (x.shape[2] - width) // strides[1]
    patches = jnp.concatenate(
        [
            x[:, i : i + strides[0] * rows : strides[0], j : j + strides[1] * columns : strides[1]]
            for i in range(height)
            for j in range(width)
        ],
        axis=-1,
    )
    return patches @ kernel.reshape(height * width * channels, features)


def conv(
    channels: int,
    features: int,
    size: int,
    stride: int = 1,
    *,
    kernel_init: nnx.Initializer = he_fan_out,
    dtype: DTypeLike,
    rngs: nnx.Rngs,
) -> nnx.Conv:
    """A square convolution without bias, padded by size // 2 on every side as in PyTorch.

    "SAME" pads strided convolutions on one side only, so exported weights would compute another function.
    """
    return nnx.Conv(
        channels,
        features,
        (size, size),
        (stride, stride),
        padding=((size // 2, size // 2),) * 2,
        use_bias=False,
        dtype=dtype,
        kernel_init=kernel_init,
        conv_general_dilated=_convolve,
        rngs=rngs,
    )


def batch_norm(
    features: int,
    *,
    zero_init: bool = False,
    use_scale: bool = True,
    use_bias: bool = True,
    groups: int = 1,
    rngs: nnx.Rngs,
) -> nnx.BatchNorm:
    """Batch normalisation in float32, running statistics with momentum 0.9 (PyTorch calls it 0.1), eps 1e-5.

    Under jit the statistics are those of the global batch, however it is sharded, or of each of its `groups`. It
    computes and returns float32 for every encoder dtype: otherwise flax would round the running statistics to bfloat16.
    """
    build = nnx.BatchNorm if groups == 1 else partial(SplitBatchNorm, groups=groups)
    return build(
        features,
        momentum=0.9,
        epsilon=1e-5,
        dtype=jnp.float32,
        use_fast_variance=False,  # E[x^2] - E[x]^2 cancels for a large mean
        use_scale=use_scale,
        use_bias=use_bias,
        scale_init=nnx.initializers.zeros_init() if zero_init else nnx.initializers.ones_init(),
        rngs=rngs,
    )


class SplitBatchNorm(nnx.BatchNorm):
    """`batch_norm` with statistics of each group of consecutive rows; the running ones are the groups' mean.

    With as many groups as devices, it is BatchNorm without synchronisation.
    """

    def __init__(self, features: int, groups: int, **options: Any) -> None:
        super().__init__(features, **options)
        self.groups = groups

    def __call__(self, x: jax.Array, use_running_average: bool | None = None, **options: Any) -> jax.Array:
        """Normalise (n, ..., features).

        Raises:
          ValueError: in train mode, n is not a multiple of the groups.
        """
        if self.use_running_average if use_running_average is None else use_running_average:
            return super().__call__(x, use_running_average=True, **options)
        if x.shape[0] % self.groups:
            raise ValueError(f"batch_groups must divide the {x.shape[0]} views of a batch, got {self.groups}")
        split = x.astype(jnp.float32).reshape((self.groups, -1, x.shape[-1]))
        mean = split.mean(1, keepdims=True)
        variance = jnp.mean((split - mean) ** 2, axis=1, keepdims=True)
        for running, found in ((self.mean, mean), (self.var, variance)):
            running[...] = self.momentum * running[...] + (1 - self.momentum) * found.mean((0, 1))
        z = (split - mean) * jax.lax.rsqrt(variance + self.epsilon)
        z = z if self.scale is None else z * self.scale[...][None, None]
        return (z if self.bias is None else z + self.bias[...][None, None]).reshape(x.shape)


def norm(
    kind: Norm, features: int, *, zero_init: bool = False, groups: int = 1, rngs: nnx.Rngs
) -> nnx.BatchNorm | nnx.GroupNorm:
    """Batch normalisation, or group normalisation (Wu & He 2018): gcd(features, 256) / 8 groups, at least 1.

    `groups` is that of `SplitBatchNorm`, for batch normalisation only.

    That is 32 groups for at least 256 features, and groups of at least 8 channels below. With 32 groups of 64 features,
    two channels at 1x1, in the last stage on a small image, would be normalised to their sign.
    """
    check_choice("norm", kind, get_args(Norm))
    if kind == "batch":
        return batch_norm(features, zero_init=zero_init, groups=groups, rngs=rngs)
    return nnx.GroupNorm(
        features,
        num_groups=max(1, math.gcd(features, 256) // 8),
        epsilon=1e-5,
        dtype=jnp.float32,
        use_fast_variance=False,
        scale_init=nnx.initializers.zeros_init() if zero_init else nnx.initializers.ones_init(),
        rngs=rngs,
    )


def layer_norm(features: int, *, rngs: nnx.Rngs) -> nnx.LayerNorm:
    """Layer normalisation in float32 with eps 1e-6, as in timm's ViT."""
    return nnx.LayerNorm(features, epsilon=1e-6, dtype=jnp.float32, use_fast_variance=False, rngs=rngs)


def train_view(module: M) -> M:
    """A view of the module in train mode: batch statistics, dropout on. Shares every variable with `module`."""
    return nnx.view(module, use_running_average=False, deterministic=False, raise_if_not_found=False)


def eval_view(module: M) -> M:
    """A view of the module in evaluation mode: fixed running statistics, no dropout.

    Shares every variable with `module`, so it uses the trained values.
    """
    return nnx.view(module, use_running_average=True, deterministic=True, raise_if_not_found=False)


def parameter_count(module: nnx.Module) -> int:
    """Number of parameters of a module; running statistics are not counted.

    Works on an abstract module too: `parameter_count(nnx.eval_shape(lambda: config.build(...)))`.
    """
    return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(nnx.state(module, nnx.Param)))
