"""Encoders and heads: what their configs are, and those that have names."""

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

from flax import nnx
from jax.typing import DTypeLike

from mvcl import models


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


def koromilas_head() -> models.MLPHead:
    """Linear-BN-ReLU-Linear-BN to 128, hidden layer as wide as the features (Koromilas 2025, after SimCLR).

    The released code has no bias in the linear layers and no shift in the last BN.
    """
    return models.MLPHead(
        layers=2,  # released, models/encoder.py
        hidden=None,  # released, models/encoder.py: the features
        out=128,  # released, models/encoder.py
        activation="relu",  # released, models/encoder.py
        norm="batch",  # released, models/encoder.py
        output_norm="batch_no_shift",  # released, models/encoder.py
        init="lecun",  # ours; released, PyTorch's uniform of variance 1 / (3 inputs)
    )


def piran_head() -> models.MLPHead:
    """Linear 4096 - LayerNorm - GELU - Linear 256, weights of deviation 0.02 (Piran 2024, Appendix A).

    The text has the layers without the norm, Table A1 "head normalization LayerNorm", without its place; here it is
    before the activation.
    """
    return models.MLPHead(
        layers=2,  # paper, A
        hidden=4096,  # paper, A
        out=256,  # paper, A
        activation="gelu",  # paper, A
        norm="layer",  # paper, Table A1
        output_norm="none",  # ours
        init="trunc_normal",  # paper, Table A1
    )


def moco_v2_head() -> models.MLPHead:
    """Linear-ReLU-Linear to 128, hidden layer as wide as the features (Chen 2020, arXiv 2003.04297)."""
    return models.MLPHead(
        layers=2,  # paper, Section 3
        hidden=None,  # released, moco/builder.py: the features
        out=128,  # released, main_moco.py
        activation="relu",  # paper, Section 3
        norm="none",  # released, moco/builder.py
        output_norm="none",  # released, moco/builder.py
        init="lecun",  # ours; released, PyTorch's uniform of variance 1 / (3 inputs)
    )


def moco_v3_head() -> models.MLPHead:
    """Three linear layers, 4096 wide, each with BN, to 256; the last BN has no scale and no shift.

    Chen 2021 (arXiv 2104.02057), for ViT. With `layers=2` it is the projector for ResNet-50, and
    the predictor.
    """
    return models.MLPHead(
        layers=3,  # paper, Section 4.1
        hidden=4096,  # paper, Section 4.1
        out=256,  # paper, Section 4.1
        activation="relu",  # released, moco/builder.py
        norm="batch",  # paper, Section 4.1
        output_norm="batch_plain",  # released, moco/builder.py
        init="lecun",  # ours; released, PyTorch's uniform of variance 1 / (3 inputs)
    )


def byol_head() -> models.MLPHead:
    """Linear 4096 - BN - ReLU - Linear 256 (Grill 2020); projector and predictor are the same."""
    return models.MLPHead(
        layers=2,  # paper, Section 3.3
        hidden=4096,  # paper, Section 3.3
        out=256,  # paper, Section 3.3
        activation="relu",  # paper, Section 3.3
        norm="batch",  # paper, Section 3.3
        output_norm="none",  # paper, Section 3.3
        init="lecun",  # ours
    )


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
    "koromilas": koromilas_head,
    "piran": piran_head,
    "moco_v2": moco_v2_head,
    "moco_v3": moco_v3_head,
    "byol": byol_head,
    "mlp": lambda: models.MLPHead(),
    "none": lambda: models.IdentityHead(),
}
"""Heads by the names that `method.head:NAME` chooses."""
