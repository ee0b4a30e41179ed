"""Encoders and heads: what their configs are, and those that have names."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

from flax import nnx
from jax.typing import DTypeLike

from mvcl import models

SMALL = 64
"""Pixels of a side, of images for which a ConvNet is chosen."""


@runtime_checkable
class EncoderConfig(Protocol):
    """A frozen dataclass whose `build` returns an encoder; users can write their own."""

    def build(self, input_shape: tuple[int, ...], *, dtype: DTypeLike, rngs: nnx.Rngs) -> Any:
        """An nnx module from (n, *input_shape) to (n, features) float32, with an attribute `features`."""


@runtime_checkable
class HeadConfig(Protocol):
    """A frozen dataclass whose `build` returns a projection head."""

    def build(self, features: int, *, dtype: DTypeLike, rngs: nnx.Rngs) -> Any:
        """An nnx module from (n, features) to (n, out) float32, with an attribute `features` equal to out."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ByShape:
    """The encoder that suits its input, by a rule of ours.

    Of images up to 64 pixels a ConvNet, of larger ones a ResNet-18; of sequences (time, d) a Transformer; of d columns
    an MLP of width d, as a power of 2 from 64 to 512.
    """

    def of(self, shape: tuple[int, ...]) -> EncoderConfig:
        """The encoder for inputs of a shape."""
        if len(shape) == 3:
            return models.ConvNet() if min(shape[:2]) <= SMALL else models.ResNet()
        if len(shape) == 2:
            return models.Transformer(width=64, depth=2, heads=4)
        width = min(512, max(64, 1 << math.ceil(math.log2(math.prod(shape)))))
        return models.MLP(widths=(width, width, 64))

    def build(self, input_shape: tuple[int, ...], *, dtype: DTypeLike, rngs: nnx.Rngs) -> Any:
        return self.of(input_shape).build(input_shape, dtype=dtype, rngs=rngs)


def koromilas_head() -> models.MLPHead:
    """Linear-BN-ReLU-Linear-BN to 128, hidden layer as wide as the features (Koromilas 2025, after SimCLR).

    The released code has no bias in the linear layers and no shift in the last BN.
    """
    return models.MLPHead(  # released, models/encoder.py; initial weights: ours, there PyTorch's
        layers=2, hidden=None, out=128, activation="relu", norm="batch", output_norm="batch_no_shift", init="lecun"
    )  # fmt: skip


def piran_head() -> models.MLPHead:
    """Linear 4096 - LayerNorm - GELU - Linear 256, weights of deviation 0.02 (Piran 2024, Appendix A).

    The text has no norm, Table A1 "head normalization LayerNorm", without its place; here before the activation.
    """
    return models.MLPHead(  # paper, A, Table A1; no norm at its end: ours
        layers=2, hidden=4096, out=256, activation="gelu", norm="layer", output_norm="none", init="trunc_normal"
    )  # fmt: skip


def moco_v2_head() -> models.MLPHead:
    """Linear-ReLU-Linear to 128, hidden layer as wide as the features (Chen 2020, arXiv 2003.04297)."""
    return models.MLPHead(  # paper, Section 3; released, moco/builder.py; initial weights: ours, there PyTorch's
        layers=2, hidden=None, out=128, activation="relu", norm="none", output_norm="none", init="lecun"
    )  # fmt: skip


def moco_v3_head() -> models.MLPHead:
    """Three linear layers, 4096 wide, each with BN, to 256; the last BN has no scale and no shift.

    Chen 2021 (arXiv 2104.02057), for ViT. With `layers=2` it is the projector for ResNet-50, and the predictor.
    """
    return models.MLPHead(  # paper, 4.1; released, moco/builder.py; initial weights: ours, there PyTorch's
        layers=3, hidden=4096, out=256, activation="relu", norm="batch", output_norm="batch_plain", init="lecun"
    )  # fmt: skip


def byol_head() -> models.MLPHead:
    """Linear 4096 - BN - ReLU - Linear 256 (Grill 2020); projector and predictor are the same."""
    return models.MLPHead(  # paper, 3.3; initial weights: ours
        layers=2, hidden=4096, out=256, activation="relu", norm="batch", output_norm="none", init="lecun"
    )  # fmt: skip


ENCODERS: dict[str, Callable[[], EncoderConfig]] = {
    "resnet18": lambda: models.ResNet(depth=18),
    "resnet50": lambda: models.ResNet(depth=50),
    "resnet18_cifar": lambda: models.ResNet(depth=18, stem="cifar"),
    "resnet50_cifar": lambda: models.ResNet(depth=50, stem="cifar"),
    "vit_s16": lambda: models.ViT(patch=16, width=384, depth=12, heads=6),
    "vit_b16": lambda: models.ViT(patch=16, width=768, depth=12, heads=12),
    # The size of DeiT-Ti, with patches for 32x32 images.
    "vit_tiny": lambda: models.ViT(patch=4, width=192, depth=12, heads=3),
    "clip_b32": lambda: models.ViT(32, 768, 12, 12, pre_norm=True, activation="quick_gelu"),
    "dinov2_s14": lambda: models.ViT(patch=14, width=384, depth=12, heads=6),
    "convnet": lambda: models.ConvNet(),
    "mlp": lambda: models.MLP(),
    "eeg": lambda: models.EegConv(),
    "transformer": lambda: models.Transformer(),
    "by_shape": ByShape,
}
"""Encoders by the names that `method.encoder:NAME` chooses."""

HEADS: dict[str, Callable[[], HeadConfig]] = {
    "koromilas": koromilas_head,
    "piran": piran_head,
    "moco_v2": moco_v2_head,
    "moco_v3": moco_v3_head,
    "byol": byol_head,
    "mlp": lambda: models.MLPHead(),
    "none": lambda: models.IdentityHead(),
}
"""Heads by the names that `method.head:NAME` chooses."""
