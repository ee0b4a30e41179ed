"""What `benchmarks.accelerator` measures: objectives with the bare products that they need, and sizes."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks import harness, overhead
from benchmarks import released_cases as released
from mvcl import augment, data, losses, methods, models, studies
from mvcl.training import CHOICES

Array = jax.Array
Floor = Callable[[Array], Any]
# These have a table of their own.
TRANSPORT = ("m3g", "m3g_pair")


def rests(z: Array) -> tuple[Array, Array]:
    """All views with all means of the others."""
    rest = (z.sum(0, keepdims=True) - z) / (len(z) - 1)
    return released.inner_products(z.reshape(-1, z.shape[2]), rest.reshape(-1, z.shape[2]))


def groups(z: Array) -> Any:
    """Each query view with each key view, and each view with itself."""
    flat = [group.reshape(-1, z.shape[2]) for group in jnp.split(z, 2)]
    return released.inner_products(*flat), released.within_views(z)


# What the formula of an objective needs, forward and backward: those of `released`, and of objectives without released
# code. Byol has no products: the bytes of the embeddings, read and written.
FLOORS: dict[str, Floor] = {
    name: case.floor.run
    for name, case in released.CASES.items()
    if case.floor and name in CHOICES["objective"]
} | {
    "symile": released.triples,
    "cross_pairs": groups,
    "mean_pair": released.GROUPS.run,
    "sufficient_statistics": rests,
    "poly_siglip": released.all_views,
    "byol": lambda z: z + 1,
}


def views_of(name: str) -> int:
    """k, the views at which an objective is measured."""
    return 3 if name == "symile" else harness.views_of(CHOICES["objective"][name]())  # symile has n^k tuples


@dataclasses.dataclass(frozen=True, kw_only=True)
class Size:
    """What is measured, and how often."""

    objectives: tuple[str, ...]
    """Of the losses."""
    steps: tuple[str, ...]
    """Objectives of the training steps."""
    rows: tuple[int, ...]
    """n of the losses; of symile, which has n^3 products, a quarter of it."""
    width: int
    """d of the losses."""
    transport: tuple[tuple[int, int], ...]
    """(n, k) of M3G."""
    dense: tuple[tuple[int, int], ...]
    """Of these, those that ott's dense solver takes as well."""
    encoders: dict[str, tuple[models.EncoderConfig, int]]
    """Name -> encoder and image size of the training steps."""
    policy: Callable[[int], augment.Policy]
    """Image size -> augmentations of the training steps."""
    views: int
    """n * k of a training step."""
    product: int
    """Rows of the square matrices whose product is measured beside a training step."""
    rounds: int
    """Turns that the programs of a piece take."""
    seconds: dict[str, float]
    """What a piece of each part may take: none begins with less time left."""


FULL = Size(
    objectives=tuple(FLOORS),
    steps=(*FLOORS, *TRANSPORT),
    rows=(1024, 4096),
    width=128,
    transport=(
        *((64, 3), (64, 4), (256, 4), (512, 4), (1024, 4)),
        *((1024, 3), (2048, 3), (4096, 3), (4096, 2), (16384, 2), (64, 6)),
    ),
    dense=((64, 3), (64, 4)),
    encoders={"ResNet-50": (models.ResNet(depth=50), 224), "ViT-B/16": (models.ENCODERS["vit_b16"](), 224)},
    policy=lambda pixels: augment.simclr(image_size=pixels),
    views=256,
    product=8192,
    rounds=15,
    seconds={"losses": 45, "m3g": 90, "steps": 150},
)
SMALL = Size(
    objectives=("mv_dhel", "info_nce"),
    steps=("mv_dhel",),
    rows=(32,),
    width=16,
    transport=((8, 3),),
    dense=((8, 3),),
    encoders={"ConvNet": (models.ConvNet(widths=(4,)), 8)},
    policy=lambda pixels: augment.digits(image_size=pixels),
    views=16,
    product=64,
    rounds=3,
    seconds={"losses": 2, "m3g": 5, "steps": 10},
)
SIZES = {"full": FULL, "small": SMALL}


def shape_of(name: str, n: int, size: Size) -> tuple[int, int, int]:
    """(k, n, d) of an objective."""
    return views_of(name), max(n // 4, 2) if name == "symile" else n, size.width


def step(objective: losses.Loss, k: int, encoder: str, size: Size) -> Any:
    """A training step on random images, the encoder in its precision; see `overhead.STEPS`."""
    network, pixels = size.encoders[encoder]
    examples = size.views // k
    images = data.Synthetic(image_size=pixels, examples=overhead.STEPS.BATCHES * examples, classes=10)
    changes = {"data": images, "encoder": network, "views.policy": size.policy(pixels), "head.out": 128}
    config = overhead.config(examples, k, methods.Simclr(), objective)
    return overhead.STEPS.running(studies.changed(config, {**changes, "train.precision": "auto"}))
