"""What `benchmarks.accelerator` measures: objectives with the bare products that they need, and sizes."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import released
from mvcl import _files, augment, data, evaluation, losses, methods, models, training
from mvcl.training import CHOICES, AdamW, Config, Train, Views

Array = jax.Array
Floor = Callable[[Array], Any]
CIFAR = Path(__file__).parents[1] / "configs" / "koromilas" / "cifar.py"
# These have a table of their own.
TRANSPORT = ("m3g", "m3g_pair")


def unordered(x: Array) -> Array:
    """All inner products of the rows, once forward, and once backward, since their matrix is symmetric."""
    return (x @ x.T) @ x


def every(z: Array) -> Array:
    return unordered(z.reshape(-1, z.shape[2]))


def each_view(z: Array) -> list[Array]:
    return [unordered(view) for view in z]


def two_views(z: Array) -> tuple[Array, Array]:
    return released.inner_products(z[0], z[1])


def with_rest(z: Array) -> list[Array]:
    """Each view and the mean of the others, together."""
    rest = (z.sum(0, keepdims=True) - z) / (len(z) - 1)
    return [unordered(jnp.concatenate([view, mean])) for view, mean in zip(z, rest, strict=True)]


def rests(z: Array) -> tuple[Array, Array]:
    """All views with all means of the others."""
    rest = (z.sum(0, keepdims=True) - z) / (len(z) - 1)
    return released.inner_products(z.reshape(-1, z.shape[2]), rest.reshape(-1, z.shape[2]))


def group_means(z: Array) -> Array:
    return z.reshape(2, len(z) // 2, *z.shape[1:]).mean(1)


def groups(z: Array) -> tuple[Any, Any]:
    """Each query view with each key view, and each view with itself."""
    queries, keys = jnp.split(z, 2)
    flat = [group.reshape(-1, z.shape[2]) for group in (queries, keys)]
    return released.inner_products(*flat), each_view(z)


# What the formula of an objective cannot do without, forward and backward: inner products, or the sorts, waves and
# bytes that take their place.
FLOORS: dict[str, Floor] = {
    "mv_infonce": every,
    "mv_dhel": each_view,
    "all_pairs": every,
    "poly_view": every,
    "dsf": lambda z: two_views(group_means(z)),
    "mv_cl1": every,
    "mv_cl2": each_view,
    "one_vs_rest": with_rest,
    "cross_pairs": groups,
    "mean_pair": lambda z: every(group_means(z)),
    "sufficient_statistics": rests,
    "poly_siglip": every,
    "info_nce": two_views,
    "nt_xent": every,
    "dcl": every,
    "rince": every,
    "dhel": each_view,
    "siglip": two_views,
    "spectral": two_views,
    "byol": lambda z: z + 1,  # no products: the bytes of the embeddings, read and written
    "symile": released.triples,
    "gram": released.with_anchor,
    "triangle": released.with_anchor,
    "pmrl": lambda z: unordered(z[0]),
    "vicreg": released.second_moments,
    "barlow_twins": lambda z: released.inner_products(z[0].T, z[1].T),
    "mmcr": lambda z: released.second_moments(z.mean(0, keepdims=True)),
    "frossl": released.second_moments,
    "emp_ssl": released.second_moments,
    "lejepa": released.sines,
    "visreg": released.sorts,
}


def views_of(name: str) -> int:
    """k, the views at which an objective is measured."""
    takes = losses.takes(CHOICES["objective"][name]())
    if takes.operands is losses.Operands.PAIR:
        return 2
    return 3 if name == "symile" else takes.views or 4  # symile has n^k tuples


def draws(name: str) -> bool:
    """Whether an objective draws random numbers."""
    return losses.takes(CHOICES["objective"][name]()).key and name != "symile"


def loss_of(name: str) -> Callable[[Array], Array]:
    """An objective with its default options, of (k, n, d) views."""
    chosen = CHOICES["objective"][name]()
    extra = {"key": jax.random.key(0)} if losses.takes(chosen).key else {}
    loss = losses.on_views(chosen)
    return lambda z: loss(z, **extra)


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
    recipe_views: tuple[int, ...]
    """k of the CIFAR-10 recipe."""
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
    recipe_views=(2, 4),
    rounds=15,
    seconds={"losses": 45, "m3g": 90, "steps": 150, "recipe": 120},
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
    recipe_views=(2,),
    rounds=3,
    seconds={"losses": 2, "m3g": 5, "steps": 10, "recipe": 15},
)
SIZES = {"full": FULL, "small": SMALL}


def shape_of(name: str, n: int, size: Size) -> tuple[int, int, int]:
    """(k, n, d) of an objective."""
    return views_of(name), max(n // 4, 2) if name == "symile" else n, size.width


def step_config(objective: losses.Loss, k: int, encoder: str, size: Size) -> tuple[Config, data.Outline]:
    """A training step of one device: views, the encoder in its precision, a head, the objective, AdamW."""
    network, pixels = size.encoders[encoder]
    examples = size.views // k
    config = Config(
        views=Views(k=k, policy=size.policy(pixels)),
        encoder=network,
        head=models.MLPHead(out=128, norm="batch"),
        objective=objective,
        method=methods.Simclr(),
        optimizer=AdamW(),
        train=Train(steps=10**6, batch_size=examples, log_every=10**9, evaluate_every=0),
        mesh=training.Mesh(data=1),
    )
    return config, data.Outline(examples, 10, data.ExampleSpec(((pixels, pixels, 3),)))


def decoded(source: Path, folder: Path) -> Path:
    """CIFAR-10 as arrays of pixels, made once in the folder, so that training decodes no images.

    Raises:
      ValueError: the source is not CIFAR-10.
    """
    path = folder / "cifar10.npz"
    if path.is_file():
        return path
    arrays: dict[str, Any] = {}
    for name, split in data.Arrays(path=str(source)).open().items():
        each = {"train": 5_000, "test": 1_000}[name]
        counts = np.bincount(split.labels, minlength=10)
        if split.spec.shapes != ((32, 32, 3),) or len(counts) != 10 or (counts != each).any():
            raise ValueError(
                f"--data must be CIFAR-10, {each:,} {name} images of 32x32x3 in each of 10 classes, got {len(split):,} "
                f"of {split.spec.shapes[0]} in {len(counts)} classes"
            )
        arrays[f"{name}_images"] = split.take(np.arange(len(split)))[0]
        arrays[f"{name}_labels"] = split.labels
    folder.mkdir(parents=True, exist_ok=True)
    with _files.replacing(path) as beside, open(beside, "wb") as file:
        np.savez(file, **arrays)
    return path


def recipe(size: str, k: int, source: Path | None, folder: Path) -> Config:
    """Koromilas 2025 on CIFAR-10 with k views; small: some steps of a small network on random images.

    Raises:
      ValueError: the source is not CIFAR-10.
    """
    if size == "small":
        config = training.load(f"{CIFAR}:smoke")
        config = dataclasses.replace(
            config,
            data=data.Synthetic(image_size=8),
            encoder=models.ConvNet(widths=(4,)),
            head=models.MLPHead(out=8),
            train=dataclasses.replace(config.train, steps=8, log_every=2),
            mesh=training.Mesh(data=1),
            evaluation=evaluation.Classification(labels_per_class=()),
        )
        policy = SMALL.policy(8)
    else:
        assert source is not None
        config = training.load(f"{CIFAR}:cifar10")
        config = dataclasses.replace(config, data=data.Arrays(path=str(decoded(source, folder))))
        policy = config.views.policy
    return dataclasses.replace(config, views=dataclasses.replace(config.views, k=k, policy=policy))
