"""Common parts of encoders and heads: checks of options, convolutions, norms, dropout, train and eval views."""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import jax
import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike

Norm = Literal["batch", "group"]

he_fan_out = nnx.initializers.variance_scaling(2.0, "fan_out", "normal")  # He 2015, as torchvision's ResNet
# He 2015 with the fan in, as torch.nn.init.kaiming_uniform_.
kaiming_uniform = nnx.initializers.variance_scaling(2.0, "fan_in", "uniform")
he_fan_in = nnx.initializers.variance_scaling(2.0, "fan_in", "truncated_normal")
small = nnx.initializers.truncated_normal(0.02)  # as in ViT

M = TypeVar("M", bound=nnx.Module)
_MOST_LAYERS = 1000


def check(config: Any) -> None:
    """Raise `ValueError` for a field of a config that its annotation does not allow.

    A Literal is one of its choices, an int at least 1, a tuple has at least one such int, a float is in [0, 1).
    """
    for name, kind in get_type_hints(type(config)).items():
        value = getattr(config, name)
        if get_origin(kind) is Literal and value not in get_args(kind):
            raise ValueError(f"{name} must be one of {', '.join(map(str, get_args(kind)))}; got {value!r}")
        if kind is float and not 0 <= value < 1:
            raise ValueError(f"{name} must be in [0, 1); got {value!r}")
        if get_origin(kind) is tuple and not value:
            raise ValueError(f"{name} must name at least one layer's width; got {value!r}")
        numbers = value if get_origin(kind) is tuple else (value,) if kind in (int, int | None) else ()
        for number in numbers:
            if number is not None and (not isinstance(number, int) or isinstance(number, bool) or number < 1):
                raise ValueError(f"{name} must be an integer of at least 1; got {number!r}")


def check_layers(name: str, count: int) -> None:
    """Raise `ValueError` for more layers than can be built one by one."""
    if count > _MOST_LAYERS:
        raise ValueError(f"{name} must be at most {_MOST_LAYERS}; got {count}")


def check_heads(width: int, heads: int) -> None:
    """Raise `ValueError` unless the attention heads divide the width of a token."""
    if width % heads:
        raise ValueError(f"heads must divide width; got {heads} heads for width {width}")


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


class DropoutCount(nnx.Variable):
    """Number of the next dropout mask, uint32. It starts at a random number, so that layers have different masks."""


class Dropout(nnx.Module):
    """nnx.Dropout with the number of its next mask as its only state.

    Mask number c is drawn with the key of seed c, and every call in train mode increments the number. It is an array,
    neither a parameter nor a batch statistic. Methods carry it in their statistics, so it is checkpointed and a
    resumed run repeats the masks.
    """

    def __init__(self, rate: float, *, broadcast_dims: Sequence[int] = (), rngs: nnx.Rngs):
        self.dropout = nnx.Dropout(rate, broadcast_dims=tuple(broadcast_dims))
        if rate > 0:
            self.count = DropoutCount(jax.random.bits(rngs.dropout(), (), jnp.uint32))

    def __call__(self, x: jax.Array) -> jax.Array:
        if self.dropout.rate == 0 or self.dropout.deterministic:
            return x
        key = jax.random.key(self.count[...])
        self.count[...] = self.count[...] + jnp.uint32(1)
        return self.dropout(x, rngs=key)


def advance_dropout(module: nnx.Module) -> None:
    """Increment the mask number of every dropout layer of a module.

    For callers that ran a copy of the module, as microbatches do, and so lost the copy's increments.
    """
    for _, count in nnx.to_flat_state(nnx.state(module, DropoutCount)):
        count[...] = count[...] + jnp.uint32(1)


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
