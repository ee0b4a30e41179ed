"""Vision transformers (Dosovitskiy 2021) under timm's parameter names."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike

from mvcl.models import _layers

_small = nnx.initializers.truncated_normal(0.02)


class Frozen(nnx.Variable):
    """A variable that keeps its initial value: not a parameter, but part of the network."""


class _PatchEmbed(nnx.Module):
    """Cut images into square patches and map each linearly: (n, height, width, c) -> (n, tokens, width)."""

    def __init__(
        self, channels: int, width: int, patch: int, frozen: bool, *, dtype: DTypeLike, rngs: nnx.Rngs
    ):
        self.proj = nnx.Conv(
            channels,
            width,
            (patch, patch),
            (patch, patch),
            padding="VALID",
            dtype=dtype,
            kernel_init=nnx.initializers.lecun_normal(),  # keeps the input's scale for every patch size
            rngs=rngs,
        )
        if frozen:
            for name in ("kernel", "bias"):
                setattr(self.proj, name, Frozen(getattr(self.proj, name)[...]))

    def __call__(self, x: jax.Array) -> jax.Array:
        x = self.proj(x)
        return x.reshape(x.shape[0], -1, x.shape[-1])


class _Attention(nnx.Module):
    """Self-attention of all tokens; one matrix for queries, keys and values, in this order."""

    def __init__(self, width: int, heads: int, *, dtype: DTypeLike, rngs: nnx.Rngs):
        linear = partial(nnx.Linear, dtype=dtype, kernel_init=_small, rngs=rngs)
        self.heads = heads
        self.qkv = linear(width, 3 * width)
        self.proj = linear(width, width)

    def __call__(self, x: jax.Array) -> jax.Array:
        n, tokens, width = x.shape
        qkv = self.qkv(x).reshape(n, tokens, 3, self.heads, width // self.heads)
        x = jax.nn.dot_product_attention(qkv[:, :, 0], qkv[:, :, 1], qkv[:, :, 2])  # softmax in float32
        return self.proj(x.reshape(n, tokens, width))


class _Mlp(nnx.Module):
    """Linear, exact GELU, Linear, with four times the width between."""

    def __init__(self, width: int, *, dtype: DTypeLike, rngs: nnx.Rngs):
        linear = partial(nnx.Linear, dtype=dtype, kernel_init=_small, rngs=rngs)
        self.fc1 = linear(width, 4 * width)
        self.fc2 = linear(4 * width, width)

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.fc2(nnx.gelu(self.fc1(x), approximate=False))


class _Block(nnx.Module):
    """Pre-norm residual block: attention, then the MLP."""

    def __init__(self, width: int, heads: int, *, dtype: DTypeLike, rngs: nnx.Rngs):
        self.norm1 = _layers.layer_norm(width, rngs=rngs)
        self.attn = _Attention(width, heads, dtype=dtype, rngs=rngs)
        self.norm2 = _layers.layer_norm(width, rngs=rngs)
        self.mlp = _Mlp(width, dtype=dtype, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class ViTEncoder(nnx.Module):
    """Images (n, height, width, channels) -> the normalised class token, (n, features) float32."""

    def __init__(self, config: "ViT", shape: tuple[int, int, int], *, dtype: DTypeLike, rngs: nnx.Rngs):
        height, width, channels = shape
        tokens = (height // config.patch) * (width // config.patch)
        self.dtype = dtype
        self.features = config.width
        self.cls_token = nnx.Param(_small(rngs.params(), (1, 1, config.width), jnp.float32))
        self.pos_embed = nnx.Param(_small(rngs.params(), (1, 1 + tokens, config.width), jnp.float32))
        self.patch_embed = _PatchEmbed(
            channels, config.width, config.patch, config.frozen_patches, dtype=dtype, rngs=rngs
        )
        self.blocks = nnx.List(
            [_Block(config.width, config.heads, dtype=dtype, rngs=rngs) for _ in range(config.depth)]
        )
        self.norm = _layers.layer_norm(config.width, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        x = self.patch_embed(x)
        class_token = jnp.broadcast_to(self.cls_token[...], (x.shape[0], 1, self.features))
        x = jnp.concatenate([class_token.astype(self.dtype), x], axis=1)
        x = x + self.pos_embed[...].astype(self.dtype)
        for block in self.blocks:
            x = block(x)
        return self.norm(x[:, 0])


@dataclass(frozen=True)
class ViT:
    """Vision transformer with a class token and learned positions (Dosovitskiy 2021), as in timm.

    Without classifier, on 224x224x3 with patches of 16: 21,665,664 parameters at width 384, depth 12
    (ViT-S), 85,798,656 at width 768, depth 12 (ViT-B).
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

    def build(self, input_shape: Sequence[int], *, dtype: DTypeLike, rngs: nnx.Rngs) -> ViTEncoder:
        """Build the encoder for images of `input_shape` (height, width, channels), computing in `dtype`.

        Parameters are float32. Raises ValueError if the patches do not tile the image or the heads do not divide the
        width.
        """
        for name in ("patch", "width", "depth", "heads"):
            _layers.check_positive(name, getattr(self, name))
        height, width, channels = _layers.image_shape(input_shape, "ViT")
        if height % self.patch or width % self.patch:
            raise ValueError(
                f"patch must divide the image's height and width; got patch {self.patch} for {height}x{width}"
            )
        if self.width % self.heads:
            raise ValueError(f"heads must divide width; got {self.heads} heads for width {self.width}")
        return ViTEncoder(self, (height, width, channels), dtype=dtype, rngs=rngs)
