"""Transformers: of images (Dosovitskiy 2021), under timm's parameter names, and of padded sequences."""

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.typing import DTypeLike

from mvcl.models import _layers, _norms, _remat

_ForSizes = Callable[[int, int], nnx.Initializer]  # (inputs, outputs) of a linear map


def _xavier_uniform(inputs: int, outputs: int) -> nnx.Initializer:
    """Uniform in ±sqrt(6 / (inputs + outputs)) (Glorot 2010), whatever the shape of the kernel."""
    return _layers.uniform(math.sqrt(6 / (inputs + outputs)))


# By name: of the class token, of the patches and of other linear maps.
_INITIALIZERS: dict[str, tuple[nnx.Initializer, _ForSizes, _ForSizes]] = {
    # LeCun's keeps the input's scale for every patch size.
    "trunc_normal": (_layers.small, lambda *_: nnx.initializers.lecun_normal(), lambda *_: _layers.small),
    "xavier_uniform": (nnx.initializers.normal(1e-6), _xavier_uniform, _xavier_uniform),
}


def _sincos(rows: int, columns: int, width: int) -> np.ndarray:
    """Positions (1, 1 + rows·columns, width): 0 for the class token, then the patches row by row.

    A quarter of the width each for sin(row·ω), cos(row·ω), sin(column·ω), cos(column·ω), where ω falls from 1 towards
    1/10000 geometrically (Chen 2021, MoCo v3's code).
    """
    frequencies = 10_000.0 ** (-np.arange(width // 4) / (width // 4))
    row, column = np.divmod(np.arange(rows * columns), columns)
    angles = [place[:, None] * frequencies for place in (row, column)]
    patches = np.concatenate([f(angle) for angle in angles for f in (np.sin, np.cos)], axis=1)
    return np.pad(patches, ((1, 0), (0, 0)))[None].astype(np.float32)


def resized(positions: jax.Array, old: tuple[int, int], new: tuple[int, int]) -> jax.Array:
    """(1, 1 + tokens, width) of positions of a class token and a grid of patches, bicubic, for another grid."""
    if new == old:
        return positions
    patches = positions[0, 1:].reshape(*old, -1)
    patches = jax.image.resize(patches, (*new, patches.shape[-1]), "bicubic")
    return jnp.concatenate([positions[:, :1], patches.reshape(1, -1, patches.shape[-1])], axis=1)


def _grid(patch: int, height: int, width: int, of: str) -> tuple[int, int]:
    if height % patch or width % patch:
        raise ValueError(f"patch must divide height and width of {of}; got {patch} for {height}x{width}")
    return height // patch, width // patch


class Frozen(nnx.Variable):
    """A variable that keeps its initial value: not a parameter, but part of the network."""


_STAND_IN: ContextVar[Callable[..., jax.Array] | None] = ContextVar("attention", default=None)


def attention_by(function: Callable[..., jax.Array]) -> AbstractContextManager[None]:
    """Trace attention in bfloat16, which an accelerator may fuse, as this function of queries, keys and values."""
    return _remat.setting(_STAND_IN, function)


def attend(
    q: jax.Array, k: jax.Array, v: jax.Array, there: jax.Array | None = None, first: int | None = None
) -> jax.Array:
    """Self-attention (n, tokens, heads, d) to the tokens that are there, (n, tokens); softmax in float32.

    `first`: of the first so many tokens alone, (n, first, heads, d). By cuDNN's fused kernel where it takes the arrays:
    on NVIDIA GPUs from Ampere on, bfloat16, with 8 to 128 numbers a head. Its gradient in jax takes an even number of
    tokens; an odd one is padded. XLA computes the others.
    """
    if (stand_in := _STAND_IN.get()) is not None and q.dtype == jnp.bfloat16:
        return stand_in(q, k, v)[:, :first]
    if not _fused(q):
        mask = None if there is None else there[:, None, None, :]
        return jax.nn.dot_product_attention(q[:, :first], k, v, mask=mask, implementation="xla")
    n, tokens, more = *q.shape[:2], q.shape[1] % 2
    q, k, v = (jnp.pad(x, ((0, 0), (0, more), (0, 0), (0, 0))) for x in (q, k, v))
    which: dict[str, Any] = {}
    if there is not None:
        there = jnp.pad(there, ((0, 0), (0, more)))[:, None, None, :]
        which = {"mask": jnp.broadcast_to(there, (n, 1, tokens + more, tokens + more))}
    elif more:
        which = dict.fromkeys(("query_seq_lengths", "key_value_seq_lengths"), jnp.full(n, tokens, jnp.int32))
    return jax.nn.dot_product_attention(q, k, v, implementation="cudnn", **which)[:, :tokens][:, :first]


def _fused(q: jax.Array) -> bool:
    capability = getattr(jax.devices()[0], "compute_capability", "0")  # of AMD's GPUs a name
    recent = capability.partition(".")[0].isdigit() and float(capability) >= 8
    return recent and q.dtype == jnp.bfloat16 and q.shape[-1] % 8 == 0 and q.shape[-1] <= 128


class Block(nnx.Module):
    """Pre-norm residual block: attention, then Linear, activation, Linear, with four times the width between.

    One matrix gives queries, keys and values, in this order; dropout is after attention, inside the MLP and after it.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        rate: float = 0.0,
        *,
        activation: Literal["gelu", "quick_gelu"] = "gelu",
        init: _ForSizes,
        dtype: DTypeLike,
        rngs: nnx.Rngs,
    ):
        def linear(inputs: int, maps: int, outputs: int) -> nnx.Linear:  # initialised as this number of maps
            kernel_init = init(inputs, outputs)
            return nnx.Linear(inputs, maps * outputs, dtype=dtype, kernel_init=kernel_init, rngs=rngs)

        self.heads, self.activation = heads, activation
        self.norm1 = _norms.norm("layer", width, rngs=rngs)
        self.attn = nnx.Dict(qkv=linear(width, 3, width), proj=linear(width, 1, width))
        self.norm2 = _norms.norm("layer", width, rngs=rngs)
        self.mlp = nnx.Dict(fc1=linear(width, 1, 4 * width), fc2=linear(4 * width, 1, width))
        self.dropouts = nnx.List([_layers.Dropout(rate, rngs=rngs) for _ in range(3)])

    def __call__(
        self, x: jax.Array, there: jax.Array | None = None, *, first: int | None = None
    ) -> jax.Array:
        """(n, tokens, width), or of `first` tokens alone, which see all tokens that are `there`, (n, tokens)."""

        def attention(layers: tuple[Any, ...], x: jax.Array, there: jax.Array | None) -> jax.Array:
            norm, attn, attended = layers
            n, tokens, width = x.shape
            # Slices of one array would have a gradient that is padded thrice.
            parts = jnp.split(attn.qkv(norm(x)), 3, axis=-1)
            q, k, v = (part.reshape(n, tokens, self.heads, -1) for part in parts)
            found = attend(q, k, v, there, first)
            return x[:, :first] + attended(attn.proj(found.reshape(n, -1, width)))

        def perceptron(layers: tuple[Any, ...], x: jax.Array) -> jax.Array:
            norm, mlp, hidden, added = layers
            inner, quick = mlp.fc1(norm(x)), self.activation == "quick_gelu"
            inner = inner * jax.nn.sigmoid(1.702 * inner) if quick else nnx.gelu(inner, approximate=False)
            return x + added(mlp.fc2(hidden(inner)))

        attended, *others = self.dropouts
        x = _remat.in_turn([(self.norm1, self.attn, attended)], x, there, apply=attention)
        return _remat.in_turn([(self.norm2, self.mlp, *others)], x, apply=perceptron)


def _summary(blocks: Sequence[Block], x: jax.Array, *there: jax.Array) -> jax.Array:
    """(n, width): the first token after the blocks, of which the last one computes this token alone."""
    x = _remat.in_turn(blocks[:-1], x, *there)
    return _remat.in_turn(blocks[-1:], x, *there, apply=partial(Block.__call__, first=1))[:, 0]


class ViTEncoder(nnx.Module):
    """Images (n, height, width, channels) -> the normalised class token, (n, features) float32."""

    def __init__(self, config: "ViT", shape: Sequence[int], *, dtype: DTypeLike, rngs: nnx.Rngs):
        (rows, columns), channels = _grid(config.patch, shape[0], shape[1], "the image"), shape[2]
        of_token, of_patches, of_linear = _INITIALIZERS[config.init]
        self.features = config.width
        self.patch, self.grid = config.patch, (rows, columns)
        self.cls_token = nnx.Param(of_token(rngs.params(), (1, 1, config.width), jnp.float32))
        if config.positions == "learned":
            shape = (1, 1 + rows * columns, config.width)
            self.pos_embed: nnx.Variable = nnx.Param(_layers.small(rngs.params(), shape, jnp.float32))
        else:
            self.pos_embed = Frozen(jnp.asarray(_sincos(rows, columns, config.width)))
        side, init = (config.patch, config.patch), of_patches(channels * config.patch**2, config.width)
        conv = partial(nnx.Conv, padding="VALID", kernel_init=init, dtype=dtype, rngs=rngs)
        proj = conv(channels, config.width, side, side)
        if config.frozen_patches:
            for name in ("kernel", "bias"):
                setattr(proj, name, Frozen(getattr(proj, name)[...]))
        self.patch_embed = nnx.Dict(proj=proj)
        if config.pre_norm:
            self.norm_pre = _norms.norm("layer", config.width, rngs=rngs)
        block = partial(Block, config.width, config.heads, activation=config.activation, init=of_linear)
        self.blocks = nnx.List([block(dtype=dtype, rngs=rngs) for _ in range(config.depth)])
        self.norm = _norms.norm("layer", config.width, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        grid = _grid(self.patch, x.shape[1], x.shape[2], "every view")
        x = self.patch_embed.proj(x).reshape(x.shape[0], -1, self.features)
        class_token = jnp.broadcast_to(self.cls_token[...], (x.shape[0], 1, self.features))
        x = jnp.concatenate([class_token.astype(x.dtype), x], axis=1)
        x = x + resized(self.pos_embed[...], self.grid, grid).astype(x.dtype)
        x = self.norm_pre(x) if hasattr(self, "norm_pre") else x
        return self.norm(_summary(self.blocks, x))


@dataclass(frozen=True)
class ViT:
    """Vision transformer with a class token (Dosovitskiy 2021), as in timm.

    Images of another size than that of `build` have the positions of their patches interpolated (bicubic, with
    antialiasing), so that they span the image as before; the patch must divide their height and width.

    Without classifier, on 224x224x3 with patches of 16 and learned positions: 21,665,664 parameters at width 384,
    depth 12 (ViT-S), 85,798,656 at width 768, depth 12 (ViT-B).
    """

    patch: int = 16
    """Side of a patch in pixels; must divide the image's height and width."""
    width: int = 384
    """Length of a token, and the number of features."""
    depth: int = 12
    """Number of transformer blocks."""
    heads: int = 6
    """Attention heads; must divide the width."""
    frozen_patches: bool = False
    """Keep the patch projection at its initial value, for stability (Chen 2021, Section 4.2)."""
    positions: Literal["learned", "sincos"] = "learned"
    """learned: a parameter for each token; sincos: fixed sines and cosines of a patch's row and column, 0 for the class
    token, as in MoCo v3 (Chen 2021); it needs a width that 4 divides."""
    init: Literal["trunc_normal", "xavier_uniform"] = "trunc_normal"
    """Initial weights: trunc_normal(0.02) with LeCun normal patches, as in timm; xavier_uniform as in MoCo v3's code,
    with queries, keys, values and patches as linear maps of their own, and a class token of deviation 1e-6."""

    pre_norm: bool = False
    """A norm before the blocks, as CLIP has (Radford 2021, arXiv 2103.00020, Section 2.4)."""
    activation: Literal["gelu", "quick_gelu"] = "gelu"
    """Of the blocks: the exact GELU, or x sigmoid(1.702 x), that of OpenAI's CLIP."""

    def build(self, input_shape: Sequence[int], *, dtype: DTypeLike, rngs: nnx.Rngs) -> ViTEncoder:
        _layers.check(self, input_shape)
        if self.positions == "sincos" and self.width % 4:
            raise ValueError(f"width must be a multiple of 4 with positions sincos; got {self.width}")
        return ViTEncoder(self, input_shape, dtype=dtype, rngs=rngs)


class TransformerEncoder(nnx.Module):
    """Sequences (n, time, d) -> the normalised summary token, (n, features) float32.

    Rows of a sequence with a NaN are padding: they are masked in attention and have no gradient. A sequence of only
    padding gives the features of an empty sequence, which are finite.
    """

    def __init__(self, config: "Transformer", time: int, inputs: int, *, dtype: DTypeLike, rngs: nnx.Rngs):
        self.dtype = dtype
        self.features = config.width
        lecun = nnx.initializers.lecun_normal()
        self.embed = nnx.Linear(inputs, config.width, dtype=dtype, kernel_init=lecun, rngs=rngs)
        self.cls_token = nnx.Param(_layers.small(rngs.params(), (1, 1, config.width), jnp.float32))
        self.pos_embed = nnx.Param(_layers.small(rngs.params(), (1, time, config.width), jnp.float32))
        block = partial(Block, config.width, config.heads, config.dropout, dtype=dtype, rngs=rngs)
        self.blocks = nnx.List([block(init=lambda *_: _layers.small) for _ in range(config.depth)])
        self.norm = _norms.norm("layer", config.width, rngs=rngs)

    def __call__(self, x: jax.Array, places: np.ndarray | None = None) -> jax.Array:
        """`places`, (groups, time), are those of the positions that the tokens have, of equal parts of the n rows."""
        there, positions = ~jnp.isnan(x).any(-1), self.pos_embed[...].astype(self.dtype)
        if places is not None:
            positions = jnp.repeat(positions[0, places], len(x) // len(places), axis=0)
        # Before any arithmetic: 0 * NaN is NaN, also in the gradient.
        x = self.embed(jnp.where(there[..., None], x, 0)) + positions
        summary = jnp.broadcast_to(self.cls_token[...].astype(self.dtype), (x.shape[0], 1, self.features))
        x = jnp.concatenate([summary, x], axis=1)
        there = jnp.pad(there, ((0, 0), (1, 0)), constant_values=True)
        return self.norm(_summary(self.blocks, x, there))


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
        _layers.check(self)
        if len(input_shape) != 2 or min(input_shape) < 1:
            raise ValueError(f"input_shape of Transformer must be (time, d); got {tuple(input_shape)}")
        return TransformerEncoder(self, *input_shape, dtype=dtype, rngs=rngs)
