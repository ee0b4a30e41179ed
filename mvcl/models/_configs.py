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
