"""A multi-layer perceptron for vectors; other inputs are flattened."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, get_args

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
        """Build the encoder for examples of any `input_shape`, computing in `dtype`; parameters are float32.

        Raises ValueError for an empty shape or an unknown option.
        """
        _layers.check_widths("widths", self.widths)
        _layers.check_choice("norm", self.norm, get_args(MlpNorm))
        _layers.check_choice("activation", self.activation, get_args(MlpActivation))
        if not input_shape or min(input_shape) < 1:
            raise ValueError(f"input_shape of MLP must have at least one entry; got {tuple(input_shape)}")
        return MLPEncoder(self, math.prod(input_shape), dtype=dtype, rngs=rngs)
