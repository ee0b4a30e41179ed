"""Layers that networks share, perceptrons and projection heads of them, and a small convolutional network."""

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import jax
import jax.numpy as jnp
from flax import nnx
from jax.custom_derivatives import SymbolicZero
from jax.typing import DTypeLike

from mvcl.models import _norms, _remat

Norm = Literal["batch", "group"]
Activation = Literal["relu", "gelu"]
PATCHES = 2**22
"""Numbers in the patches of a block of images: they fit the cache that cores share, and occupy several cores."""
_FEW = 8  # channels of an image, whose patches of 3 x 3 are small beside a layer's output

he_fan_out = nnx.initializers.variance_scaling(2.0, "fan_out", "normal")  # He 2015, as torchvision's ResNet
he_fan_in = nnx.initializers.variance_scaling(2.0, "fan_in", "truncated_normal")
small = nnx.initializers.truncated_normal(0.02)  # as in ViT
kaiming_uniform = nnx.initializers.variance_scaling(2.0, "fan_in", "uniform")  # torch.nn.init's, for ReLU
torch_kernel = nnx.initializers.variance_scaling(1 / 3, "fan_in", "uniform")  # to ±1/sqrt(fan in)

_PATCHES: ContextVar[bool] = ContextVar("patches", default=True)

M = TypeVar("M", bound=nnx.Module)


def uniform(bound: float) -> nnx.Initializer:
    """Uniform in ±bound, whatever the shape."""
    return lambda key, shape, dtype=jnp.float32, **_: jax.random.uniform(key, shape, dtype, -bound, bound)


def torch_bias(inputs: int) -> nnx.Initializer:
    """Uniform in ±1/sqrt(inputs), as the biases of PyTorch's layers; their kernels are `torch_kernel`."""
    return uniform(1 / math.sqrt(inputs))


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
        if name == "batch_groups" and value > 1 and config.norm == "group":
            raise ValueError(f"batch_groups must be 1 with norm group, without batch statistics; got {value}")
        if name == "heads" and config.width % value:
            raise ValueError(f"heads must divide width; got {value} heads for width {config.width}")
    if image_shape is not None and (len(image_shape) != 3 or any(size < 1 for size in image_shape)):
        what = f"(height, width, channels); got {tuple(image_shape)}; use MLP for other inputs"
        raise ValueError(f"input_shape of {type(config).__name__} must be {what}")


def xla_convolutions() -> AbstractContextManager[None]:
    """Trace convolutions as on an accelerator, so that XLA counts their FLOPs; of a loop it counts one turn."""
    return _remat.setting(_PATCHES, False)


def convolve(
    x: jax.Array,
    kernel: jax.Array,
    strides: Sequence[int],
    padding: Sequence[tuple[int, int]],
    **options: Any,
) -> jax.Array:
    """`lax.conv_general_dilated`; on CPU, for kernels of at most 3, with faster derivatives of both modes.

    Of few channels, or with a stride, it is the product of patches and a matrix. Otherwise XLA's convolution is fast,
    the gradient of its kernel is not, and is such a product (docs/how_to/devices.md has times).
    """
    run: Any = partial(jax.lax.conv_general_dilated, window_strides=strides, padding=padding, **options)
    if jax.default_backend() != "cpu" or not _PATCHES.get() or max(kernel.shape[:-2]) > 3:
        return run(x, kernel)
    if kernel.shape[-2] < _FEW or max(strides) > 1:
        return _of_patches(x, kernel, strides, padding)

    def derivative(primals: Any, tangents: Any) -> Any:
        (x, kernel), (dx, dkernel) = primals, tangents
        parts = []
        if not isinstance(dx, SymbolicZero):
            parts.append(run(dx, kernel))
        if not isinstance(dkernel, SymbolicZero):
            parts.append(_of_patches(x, dkernel, strides, padding))
        return run(x, kernel), sum(parts)

    function = jax.custom_jvp(run)
    function.defjvp(derivative, symbolic_zeros=True)
    return function(x, kernel)


def _of_patches(
    x: jax.Array, kernel: jax.Array, strides: Sequence[int], padding: Sequence[tuple[int, int]]
) -> jax.Array:
    """The convolution as products of patches and a matrix, transposed in either argument without kept patches.

    Images are taken in blocks whose patches fit the cache, and without a loop where they are small: of few channels, or
    of a kernel of 1. A block has images of every device.
    """
    *sizes, channels, features = kernel.shape
    dtype = jnp.promote_types(x.dtype, jnp.float32)
    flat = kernel.astype(dtype).reshape(-1, features)
    length, count = len(flat), len(x)

    def block(x: jax.Array, flat: jax.Array) -> jax.Array:
        patches = jnp.pad(x.astype(dtype), ((0, 0), *padding, (0, 0)))
        for axis in range(len(sizes), 0, -1):
            size, stride, side = sizes[axis - 1], strides[axis - 1], patches.shape[axis]
            cut = partial(jax.lax.slice_in_dim, patches, stride=stride, axis=axis)
            taps = [cut(at, side - size + 1 + at) for at in range(size)]
            # Without the barrier the patches are computed again for each row and column of the product.
            patches = jax.lax.optimization_barrier(jnp.concatenate(taps, axis=-1))
        return (patches.reshape(-1, length) @ flat).reshape(*patches.shape[:-1], features).astype(x.dtype)

    places = math.prod(-(-side // stride) for side, stride in zip(x.shape[1:-1], strides))
    most = max(PATCHES // (places * length), 8)
    images = max(n for n in range(1, min(most, count) + 1) if count % n == 0)
    if channels < _FEW or length == channels or images in (1, count):
        return block(x, flat)
    block = jax.checkpoint(block, prevent_cse=False)
    # One device reads blocks of images that lie together; several, whose images lie together, blocks across them.
    first = jax.device_count() == 1
    shape = (count // images, images) if first else (images, count // images)
    blocks = x.reshape(*shape, *x.shape[1:])
    y = jax.lax.map(partial(block, flat=flat), blocks if first else blocks.swapaxes(0, 1))
    return (y if first else y.swapaxes(0, 1)).reshape(count, *y.shape[2:])


def conv(
    channels: int, features: int, size: int, stride: int = 1, *, axes: int = 2, **options: Any
) -> nnx.Conv:
    """A convolution of as many axes, of one size, padded by size // 2 on every side as in PyTorch.

    "SAME" pads strided convolutions on one side only, so exported weights would compute another function. The options
    are those of `nnx.Conv`, without bias by default.
    """
    ours: dict[str, Any] = {"use_bias": False, "kernel_init": he_fan_out, "conv_general_dilated": convolve}
    padding = ((size // 2, size // 2),) * axes
    return nnx.Conv(channels, features, (size,) * axes, (stride,) * axes, padding=padding, **ours | options)


def rectified(layers: Sequence[Any], x: jax.Array) -> jax.Array:
    """ReLU of a convolution and its norm, in the convolution's dtype."""
    conv, norm = layers
    return nnx.relu(norm(conv(x))).astype(conv.dtype)


class DropoutCount(nnx.Variable):
    """Number of the next dropout mask, uint32. It starts at a random number, so that layers have different masks."""


class Dropout(nnx.Module):
    """nnx.Dropout with the number of its next mask as its only state.

    Mask number c is drawn with the key of seed c, and every call in train mode increments the number. Methods carry it
    in their statistics, so it is checkpointed and a resumed run repeats the masks.
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


def eval_view(module: M) -> M:
    """A view of the module in evaluation mode: fixed running statistics, no dropout; it shares every variable."""
    return nnx.view(module, use_running_average=True, deterministic=True, raise_if_not_found=False)


def parameter_count(module: nnx.Module) -> int:
    """Number of parameters of a module; running statistics are not counted.

    Works on an abstract module too: `parameter_count(nnx.eval_shape(lambda: config.build(...)))`.
    """
    return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(nnx.state(module, nnx.Param)))


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
            what = f"MLP was built for {self.inputs} numbers an example and takes no other size"
            how = "for views of several sizes use a ResNet, a ConvNet or a ViT"
            raise ValueError(f"{what}, got {x.shape[1:]}; {how}")
        x = x.reshape(x.shape[0], -1)
        for index, (linear, norm) in enumerate(zip(self.linears, self.norms), start=1):
            x = linear(x) if norm is None else norm(linear(x))
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
        check(self)
        if not input_shape or min(input_shape) < 1:
            raise ValueError(f"input_shape of MLP must have at least one entry; got {tuple(input_shape)}")
        inputs, kinds = math.prod(input_shape), [*(self.norm,) * (len(self.widths) - 1), "none"]
        linear = partial(nnx.Linear, dtype=dtype, kernel_init=he_fan_in, rngs=rngs)
        sizes = pairwise((inputs, *self.widths))
        # A norm's shift is its layer's bias.
        linears = [linear(*size, use_bias=kind == "none") for kind, size in zip(kinds, sizes)]
        norms = [_norms.norm(kind, width, rngs=rngs) for kind, width in zip(kinds, self.widths)]
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
    init: Literal["lecun", "trunc_normal", "kaiming_uniform", "torch"] = "lecun"
    """Initial weights: normal with variance 1 / inputs (lecun), or with deviation 0.02, cut off at two deviations of it
    (trunc_normal), as in ViT, or uniform with variance 2 / inputs (kaiming_uniform), and biases 0; or both uniform in
    ±1/sqrt(inputs), as in PyTorch's Linear (torch)."""

    def build(self, features: int, *, dtype: DTypeLike, rngs: nnx.Rngs) -> Perceptron:
        check(self)
        hidden = (features if self.hidden is None else self.hidden,) * (self.layers - 1)
        laws = {"lecun": nnx.initializers.lecun_normal(), "trunc_normal": small}
        laws |= {"kaiming_uniform": kaiming_uniform, "torch": torch_kernel}
        linears, norms = [], []
        for index, (before, after) in enumerate(pairwise((features, *hidden, self.out)), start=1):
            kind = self.norm if index < self.layers else self.output_norm
            start = torch_bias(before) if self.init == "torch" else nnx.initializers.zeros
            linear = partial(nnx.Linear, use_bias=kind in ("none", "layer"), bias_init=start)
            linears.append(linear(before, after, dtype=dtype, kernel_init=laws[self.init], rngs=rngs))
            norms.append(_norms.norm(kind, after, rngs=rngs))
        return Perceptron(features, linears, norms, self.activation, dtype)


@dataclass(frozen=True)
class IdentityHead:
    """No head: the objective is computed on the encoder's features."""

    def build(self, features: int, *, dtype: DTypeLike, rngs: nnx.Rngs) -> Perceptron:
        return Perceptron(features)


class ConvNetEncoder(nnx.Module):
    """Images (n, height, width, channels) -> spatial mean of the last layer, (n, features) float32."""

    def __init__(self, config: "ConvNet", channels: int, *, dtype: DTypeLike, rngs: nnx.Rngs):
        self.features = config.widths[-1]
        convs, norms = list[nnx.Conv](), list[Any]()
        for before, width in pairwise((channels, *config.widths)):
            convs.append(conv(before, width, 3, 2 if convs else 1, dtype=dtype, rngs=rngs))
            norms.append(_norms.norm(config.norm, width, groups=config.batch_groups, rngs=rngs))
        self.convs, self.norms = nnx.List(convs), nnx.List(norms)

    def __call__(self, x: jax.Array) -> jax.Array:
        x = _remat.in_turn(list(zip(self.convs, self.norms)), x, apply=rectified)
        return jnp.mean(x, axis=(1, 2), dtype=jnp.float32)


@dataclass(frozen=True)
class ConvNet:
    """3x3 convolutions, each with a norm and ReLU; each one after the first halves height and width.

    92,896 parameters by default on one channel: 9 (32 + 32·64 + 64·128) in the kernels, 2 (32 + 64 + 128) in
    the norms.
    """

    widths: tuple[int, ...] = (32, 64, 128)
    """Channels of each layer; the last is the number of features."""
    norm: Norm = "batch"
    """Normalisation. batch: with statistics of the global batch; group: without batch statistics, as microbatches
    require."""
    batch_groups: int = 1
    """As in `ResNet`: groups of views, every batch_groups-th, with batch statistics of their own."""

    def build(self, input_shape: Sequence[int], *, dtype: DTypeLike, rngs: nnx.Rngs) -> ConvNetEncoder:
        check(self, input_shape)
        return ConvNetEncoder(self, input_shape[-1], dtype=dtype, rngs=rngs)
