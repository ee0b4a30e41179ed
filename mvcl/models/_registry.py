"""The models that have a name."""

import difflib
from collections.abc import Callable, Mapping
from typing import Annotated, TypeVar

from tyro.conf import subcommand

from mvcl.models import _heads
from mvcl.models._convnet import ConvNet
from mvcl.models._eeg import EegConv
from mvcl.models._heads import IdentityHead, MLPHead
from mvcl.models._mlp import MLP
from mvcl.models._resnet import ResNet
from mvcl.models._transformer import Transformer
from mvcl.models._vit import ViT

# The names are those on the command line: `encoder:resnet --encoder.depth 50`; tyro's own would be `res-net`.
EncoderConfig = (
    Annotated[ResNet, subcommand("resnet")]
    | Annotated[ViT, subcommand("vit")]
    | Annotated[ConvNet, subcommand("convnet")]
    | Annotated[MLP, subcommand("mlp")]
    | Annotated[EegConv, subcommand("eeg")]
    | Annotated[Transformer, subcommand("transformer")]
)
HeadConfig = Annotated[MLPHead, subcommand("mlp")] | Annotated[IdentityHead, subcommand("none")]

ENCODERS: dict[str, Callable[[], EncoderConfig]] = {
    "resnet18": lambda: ResNet(depth=18),
    "resnet50": lambda: ResNet(depth=50),
    "resnet18_cifar": lambda: ResNet(depth=18, stem="cifar"),
    "resnet50_cifar": lambda: ResNet(depth=50, stem="cifar"),
    "vit_s16": lambda: ViT(patch=16, width=384, depth=12, heads=6),
    "vit_b16": lambda: ViT(patch=16, width=768, depth=12, heads=12),
    "vit_tiny": lambda: ViT(patch=4, width=192, depth=12, heads=3),  # DeiT-Ti's size on patches for 32x32
    "convnet": ConvNet,
    "mlp": MLP,
    "eeg": EegConv,
    "transformer": Transformer,
}

HEADS: dict[str, Callable[[], HeadConfig]] = {
    "koromilas": _heads.koromilas,
    "piran": _heads.piran,
    "moco_v2": _heads.moco_v2,
    "moco_v3": _heads.moco_v3,
    "byol": _heads.byol,
    "mlp": MLPHead,
    "none": IdentityHead,
}

C = TypeVar("C")


def _named(kind: str, name: str, registry: Mapping[str, Callable[[], C]]) -> C:
    if name not in registry:
        near = difflib.get_close_matches(name, registry, n=1)
        hint = f" (did you mean {near[0]}?)" if near else ""
        raise ValueError(f"{kind} must be one of {', '.join(registry)}; got {name!r}{hint}")
    return registry[name]()


def encoder_config(name: str) -> EncoderConfig:
    """The config of a named encoder; a ValueError lists the names, and the nearest, for an unknown one."""
    return _named("encoder", name, ENCODERS)


def head_config(name: str) -> HeadConfig:
    """The config of a named head; a ValueError lists the names, and the nearest, for an unknown one."""
    return _named("head", name, HEADS)
