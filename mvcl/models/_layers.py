"""Encoders and heads by name, and their common parts: checks, convolutions, norms, dropout, train and eval views."""

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol, TypeVar, get_args, get_origin, get_type_hints, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.typing import DTypeLike

from mvcl import models

Norm = Literal["batch", "group"]

he_fan_out = nnx.initializers.variance_scaling(2.0, "fan_out", "normal")  # He 2015, as torchvision's ResNet
he_fan_in = nnx.initializers.variance_scaling(2.0, "fan_in", "truncated_normal")
small = nnx.initializers.truncated_normal(0.02)  # as in ViT

M = TypeVar("M", bound=nnx.Module)


def check(config: Any, image_shape: Sequence[int] | None = None) -> None:
    """Raise `ValueError` for a field of a config that its annotation does not allow, or a wrong shape of its images.

    A Literal is one of its choices, an int at least 1, a tuple has at least one such int, a float is in [0, 1).
    Attention heads divide the width of a token.
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
        if name == "heads" and config.width % value:
            raise ValueError(f"heads must divide width; got {value} heads for width {config.width}")
    if image_shape is not None and (len(image_shape) != 3 or any(size < 1 for size in image_shape)):
        raise ValueError(
            f"input_shape of {type(config).__name__} must be (height, width, channels); got {tuple(image_shape)}; "
            "use MLP for other inputs"
        )


def convolve(
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
    *sizes, _, features = kernel.shape
    if jax.default_backend() != "cpu" or max(strides) == 1 or max(sizes) > 3:
        return jax.lax.conv_general_dilated(x, kernel, strides, padding, **options)  # type: ignore[arg-type]
    x = jnp.pad(x, ((0, 0), *padding, (0, 0)))
    counts = [1 + (length - size) // stride for length, size, stride in zip(x.shape[1:-1], sizes, strides)]
    taps = [
        x[(slice(None), *(slice(at, at + s * n, s) for at, s, n in zip(place, strides, counts)))]
        for place in np.ndindex(*sizes)
    ]
    return jnp.concatenate(taps, axis=-1) @ kernel.reshape(-1, features)


def conv(
    channels: int,
    features: int,
    size: int,
    stride: int = 1,
    *,
    axes: int = 2,
    dtype: DTypeLike,
    rngs: nnx.Rngs,
    kernel_init: nnx.Initializer = he_fan_out,
    use_bias: bool = False,
) -> nnx.Conv:
    """A convolution of as many axes, of one size, padded by size // 2 on every side as in PyTorch.

    "SAME" pads strided convolutions on one side only, so exported weights would compute another function.
    """
    return nnx.Conv(
        channels,
        features,
        (size,) * axes,
        (stride,) * axes,
        padding=((size // 2, size // 2),) * axes,
        use_bias=use_bias,
        dtype=dtype,
        kernel_init=kernel_init,
        conv_general_dilated=convolve,
        rngs=rngs,
    )


def norm(
    kind: str,
    features: int,
    *,
    zero_init: bool = False,
    batch_norm: Callable[..., nnx.BatchNorm] = nnx.BatchNorm,
    rngs: nnx.Rngs,
) -> Any:
    """A normalisation that computes and returns float32 for every encoder dtype; None of kind `none`.

    Otherwise flax would round running statistics to bfloat16. E[x^2] - E[x]^2 would cancel for a large mean.

    batch: under jit with statistics of the global batch, however it is sharded; running ones have momentum 0.9 (PyTorch
    calls it 0.1), eps 1e-5. `batch_no_shift` and `batch_plain` have no shift, and no shift and scale.
    group (Wu & He 2018): gcd(features, 256) / 8 groups, at least 1. That is 32 groups for at least 256 features, and
    groups of at least 8 channels below. With 32 groups of 64 features, two channels at 1x1, in the last stage on a
    small image, would be normalised to their sign.
    layer: eps 1e-6, as in timm's ViT.
    """
    if kind == "none":
        return None
    shared: dict[str, Any] = {"dtype": jnp.float32, "use_fast_variance": False, "rngs": rngs}
    if kind == "layer":
        return nnx.LayerNorm(features, epsilon=1e-6, **shared)
    scale_init = nnx.initializers.zeros_init() if zero_init else nnx.initializers.ones_init()
    shared |= {"epsilon": 1e-5, "scale_init": scale_init}
    if kind == "group":
        return nnx.GroupNorm(features, num_groups=max(1, math.gcd(features, 256) // 8), **shared)
    plain = kind == "batch_plain"
    return batch_norm(features, momentum=0.9, use_scale=not plain, use_bias=kind == "batch", **shared)


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


@runtime_checkable
class EncoderConfig(Protocol):
    """A frozen dataclass whose `build` returns an encoder; users can write their own."""

    def build(self, input_shape: tuple[int, ...], *, dtype: DTypeLike, rngs: nnx.Rngs) -> Any:
        """An nnx module from (n, *input_shape) to (n, features) float32, with an attribute `features`."""
        ...


@runtime_checkable
class HeadConfig(Protocol):
    """A frozen dataclass whose `build` returns a projection head."""

    def build(self, features: int, *, dtype: DTypeLike, rngs: nnx.Rngs) -> Any:
        """An nnx module from (n, features) to (n, out) float32, with an attribute `features` equal to out."""
        ...


ENCODERS: dict[str, Callable[[], EncoderConfig]] = {
    "resnet18": lambda: models.ResNet(depth=18),
    "resnet50": lambda: models.ResNet(depth=50),
    "resnet18_cifar": lambda: models.ResNet(depth=18, stem="cifar"),
    "resnet50_cifar": lambda: models.ResNet(depth=50, stem="cifar"),
    "vit_s16": lambda: models.ViT(patch=16, width=384, depth=12, heads=6),
    "vit_b16": lambda: models.ViT(patch=16, width=768, depth=12, heads=12),
    # The size of DeiT-Ti, with patches for 32x32 images.
    "vit_tiny": lambda: models.ViT(patch=4, width=192, depth=12, heads=3),
    "convnet": lambda: models.ConvNet(),
    "mlp": lambda: models.MLP(),
    "eeg": lambda: models.EegConv(),
    "transformer": lambda: models.Transformer(),
}
"""Encoders by the names that `method.encoder:NAME` chooses."""

HEADS: dict[str, Callable[[], HeadConfig]] = {
    "koromilas": lambda: models.koromilas_head(),
    "piran": lambda: models.piran_head(),
    "moco_v2": lambda: models.moco_v2_head(),
    "moco_v3": lambda: models.moco_v3_head(),
    "byol": lambda: models.byol_head(),
    "mlp": lambda: models.MLPHead(),
    "none": lambda: models.IdentityHead(),
}
"""Heads by the names that `method.head:NAME` chooses."""
