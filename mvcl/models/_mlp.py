"""Multi-layer perceptrons: an encoder of vectors, and projection heads, which evaluation does not use."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import jax
import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike

from mvcl.models import _layers

MlpNorm = Literal["none", "batch"]
MlpActivation = Literal["relu", "gelu"]


class MLPEncoder(nnx.Module):
    """Arrays (n, ...) -> (n, features) float32; each example is flattened in row-major order."""

    def __init__(self, config: "MLP", inputs: int, *, dtype: DTypeLike, rngs: nnx.Rngs):
        self.dtype = dtype
        self.activation = config.activation
        self.inputs = inputs
        self.features = config.widths[-1]
        normalised = config.norm == "batch"
        sizes = (inputs, *config.widths)
        self.linears = nnx.List(
            [
                nnx.Linear(
                    before,
                    after,
                    use_bias=index == len(config.widths)
                    or not normalised,  # otherwise the norm's shift is the bias
                    dtype=dtype,
                    kernel_init=_layers.he_fan_in,
                    rngs=rngs,
                )
                for index, (before, after) in enumerate(pairwise(sizes), start=1)
            ]
        )
        self.norms = nnx.List(
            [_layers.batch_norm(width, rngs=rngs) for width in config.widths[:-1]] if normalised else []
        )

    def __call__(self, x: jax.Array) -> jax.Array:
        if math.prod(x.shape[1:]) != self.inputs:
            raise ValueError(
                f"MLP was built for {self.inputs} numbers an example and takes no other size, got {x.shape[1:]}; "
                "for views of several sizes use a ResNet, a ConvNet or a ViT"
            )
        x = x.reshape(x.shape[0], -1)
        for index, linear in enumerate(self.linears):
            x = linear(x)
            if index < len(self.linears) - 1:
                x = self.norms[index](x) if self.norms else x
                x = nnx.relu(x) if self.activation == "relu" else nnx.gelu(x, approximate=False)
                x = x.astype(self.dtype)
        return x.astype(jnp.float32)


@dataclass(frozen=True)
class MLP:
    """Linear layers with ReLU or GELU between them; the last is linear. Inputs are flattened to vectors."""

    widths: tuple[int, ...] = (512, 512)
    """Width of each layer; the last is the number of features."""
    norm: MlpNorm = "none"
    """Normalisation before each activation: batch or none."""
    activation: MlpActivation = "relu"
    """Activation between the layers; gelu is the exact one."""

    def build(self, input_shape: Sequence[int], *, dtype: DTypeLike, rngs: nnx.Rngs) -> MLPEncoder:
        """Build the encoder for examples of any `input_shape`, or raise ValueError."""
        _layers.check(self)
        if not input_shape or min(input_shape) < 1:
            raise ValueError(f"input_shape of MLP must have at least one entry; got {tuple(input_shape)}")
        return MLPEncoder(self, math.prod(input_shape), dtype=dtype, rngs=rngs)


Activation = Literal["relu", "gelu"]
HeadNorm = Literal["none", "batch", "layer"]
KernelInit = Literal["lecun", "trunc_normal"]
OutputNorm = Literal["none", "batch", "batch_no_shift", "batch_plain"]


_INITIALIZERS = {"lecun": nnx.initializers.lecun_normal(), "trunc_normal": _layers.small}


def _norm(kind: str, features: int, rngs: nnx.Rngs) -> nnx.Module | None:
    """The normalisation of a layer's output."""
    if kind == "none":
        return None
    if kind == "layer":
        return _layers.layer_norm(features, rngs=rngs)
    return _layers.batch_norm(features, use_scale=kind != "batch_plain", use_bias=kind == "batch", rngs=rngs)


class MLPHeadModule(nnx.Module):
    """(n, features of the encoder) -> (n, features) float32."""

    def __init__(self, config: "MLPHead", inputs: int, *, dtype: DTypeLike, rngs: nnx.Rngs):
        hidden = inputs if config.hidden is None else config.hidden
        sizes = (inputs, *(hidden,) * (config.layers - 1), config.out)
        self.dtype = dtype
        self.features = config.out
        self.activation = config.activation
        linears, norms = [], []
        for index, (before, after) in enumerate(pairwise(sizes), start=1):
            kind = config.norm if index < config.layers else config.output_norm
            linears.append(
                nnx.Linear(
                    before,
                    after,
                    use_bias=kind in ("none", "layer"),
                    dtype=dtype,
                    kernel_init=_INITIALIZERS[config.init],
                    rngs=rngs,
                )
            )
            norms.append(_norm(kind, after, rngs))
        self.linears = nnx.List(linears)
        self.norms = nnx.List(norms)

    def __call__(self, x: jax.Array) -> jax.Array:
        for index, (linear, norm) in enumerate(zip(self.linears, self.norms), start=1):
            x = linear(x)
            if norm is not None:
                x = norm(x)
            if index < len(self.linears):
                x = nnx.relu(x) if self.activation == "relu" else nnx.gelu(x, approximate=False)
                x = x.astype(self.dtype)
        return x.astype(jnp.float32)


class IdentityHeadModule(nnx.Module):
    """(n, features) -> the same in float32."""

    def __init__(self, features: int):
        self.features = features

    def __call__(self, x: jax.Array) -> jax.Array:
        return x.astype(jnp.float32)


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
    norm: HeadNorm = "none"
    """Normalisation before each activation: batch, layer or none."""
    output_norm: OutputNorm = "none"
    """Normalisation of the embedding: none, batch, batch without shift (batch_no_shift), or batch without shift and
    scale (batch_plain)."""
    init: KernelInit = "lecun"
    """Initial weights: normal with variance 1 / inputs (lecun), or with deviation 0.02, cut off at two deviations of it
    (trunc_normal), as in ViT. Biases are 0."""

    def build(self, features: int, *, dtype: DTypeLike, rngs: nnx.Rngs) -> MLPHeadModule:
        """Build the head for an encoder with this number of features, computing in `dtype`; parameters are float32."""
        _layers.check(self)
        _layers.check_layers("layers", self.layers)
        return MLPHeadModule(self, features, dtype=dtype, rngs=rngs)


@dataclass(frozen=True)
class IdentityHead:
    """No head: the objective is computed on the encoder's features."""

    def build(self, features: int, *, dtype: DTypeLike, rngs: nnx.Rngs) -> IdentityHeadModule:
        """Build a head that returns its input; `dtype` and `rngs` are not used."""
        return IdentityHeadModule(features)


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
