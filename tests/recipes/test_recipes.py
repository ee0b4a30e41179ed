"""Every recipe trains at toy size; at its true size it passes a dry run (slow)."""

import dataclasses
import itertools
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from mvcl import data, methods, models, training
from mvcl.training import Mesh, _input, _program

ROOT = Path(__file__).parents[2]
RECIPES = sorted(
    str(path.relative_to(ROOT))
    for author in ("koromilas", "shidani", "piran", "jeon")
    for path in (ROOT / "configs" / author).glob("*.py")
    if path.stem != "gaussian"  # a study, not a training run
)
HEAD = models.MLPHead(hidden=8, out=8)


def smaller(node, **changes):
    return dataclasses.replace(node, **{k: v for k, v in changes.items() if hasattr(node, k)})


def toy(config):
    """The same recipe with narrow networks, small images and a batch of 8."""
    method = smaller(config.method, queue=16, predictor=smaller(HEAD, norm="batch"))
    policies = tuple(smaller(p, image_size=32) for p in config.views.policies)
    views = dataclasses.replace(
        config.views, policies=policies, policy=smaller(config.views.policy, image_size=32)
    )
    encoder = config.encoder
    if isinstance(encoder, models.ResNet):
        encoder = models.ConvNet(widths=(4, 8))  # a third of the time to compile
    else:
        encoder = smaller(encoder, width=16, channels=8, features=8, depth=1, layers=1, heads=2)
    batch = 4 * views.k if views.strategy == "fixed" else 8
    return dataclasses.replace(
        config,
        views=views,
        encoder=encoder,
        head=smaller(config.head, hidden=8, out=8),
        method=method,
        train=dataclasses.replace(config.train, batch_size=batch, steps=2, epochs=1.0),
        mesh=Mesh(data=1),
    )


def splits_of(config, rng):
    """Small random data of the kind that the recipe reads."""
    outline = data.expected(config.data)
    size, classes = 24, min(outline.classes, 3)
    names = tuple(map(str, range(classes)))
    labels = (
        np.arange(size, dtype=np.int32) % classes if classes else rng.normal(size=size).astype(np.float32)
    )
    spec = outline.spec
    if spec.given:
        shapes = tuple(
            (min(shape[0], 300 if len(shape) == 1 else 6), *shape[1:]) for shape in spec.view_shapes
        )
        views = tuple(rng.normal(size=(size, *shape)).astype(np.float32) for shape in shapes)
        split = data.in_memory(views, labels, names, given=True)
        return {"train": split, "test": split}
    if spec.image_shape is not None:
        images = rng.integers(0, 256, (size, *spec.image_shape), dtype=np.uint8)
        split = data.in_memory((images,), labels, names)
        return {"train": split, "test": split}
    images = [rng.integers(0, 256, (40 + i % 3, 44, 3), dtype=np.uint8) for i in range(size)]
    one = data.ExampleSpec(((None, None, 3),))
    split = data.Split(labels, names, one, lambda row, epoch: (images[row],))
    if spec.views is None:
        return {"train": split, "test": split}

    def read(row, epoch):
        return tuple(images[(row + epoch + view) % size] for view in range(spec.views))

    train = data.Split(np.arange(size, dtype=np.int32), tuple(map(str, range(size))), spec, read)
    return {"train": train, "test": split} | {
        f"{d}/{part}": split for d in map(str, range(spec.views)) for part in ("train", "test")
    }


@pytest.mark.parametrize("recipe", RECIPES)
def test_two_steps_at_toy_size(recipe, rng):
    config = toy(training.load(ROOT / recipe))
    splits = splits_of(config, rng)
    outline = splits["train"].outline
    config = training.check(training.suited_to(config, outline))
    run = training.Run(config, splits, outline, _program.build(config, outline))
    state = run.program.init()
    before = jax.device_get(state["params"])
    stream = data.to_devices(_input.batches(run, 0), run.program.batch_sharding)
    for batch in itertools.islice(stream, 2):
        state, values = run.program.step(state, batch)
        assert np.isfinite(float(values["loss"]))
        assert float(values["gradient_norm"]) > 0
    moved = jax.tree.map(lambda a, b: bool(np.any(a != b)), before, jax.device_get(state["params"]))
    assert all(jax.tree.leaves(moved))
    assert int(state["step"]) == 2


@pytest.mark.slow
@pytest.mark.parametrize("recipe", RECIPES)
def test_dry_run_at_true_size(recipe):
    config = training.load(ROOT / recipe)
    said = training.dry_run(config)
    for words in (
        "parameters",
        "GFLOP",
        "MiB temporaries",
        "encoder passes",
        "training examples are assumed",
    ):
        assert words in said
    print(f"\n{recipe}\n{said}")


def test_every_paper_has_its_experiments():
    wanted = {
        "koromilas": {"cifar10", "cifar100", "imagenet100", "imagenet1k", "mosei", "chsims"},
        "shidani": {"imagenet1k", "gaussian"},
        "piran": {"imagenet1k", "domainnet", "eeg"},
        "jeon": {"cifar10", "imagenet100"},
    }
    for author, names in wanted.items():
        assert names <= {path.stem for path in (ROOT / "configs" / author).glob("*.py")}


@pytest.mark.parametrize(
    ("recipe", "parameters"),
    [
        ("configs/koromilas/imagenet1k.py", 23_508_032),  # torchvision's ResNet-50 without its classifier
        ("configs/piran/imagenet1k.py", 85_798_656),  # timm's ViT-B/16 without its classifier
    ],
)
def test_encoders_have_their_true_size(recipe, parameters):
    config = training.load(ROOT / recipe)
    encoder = nnx.eval_shape(
        lambda: config.encoder.build((224, 224, 3), dtype=jnp.float32, rngs=nnx.Rngs(jax.random.key(0)))
    )
    assert models.parameter_count(encoder) == parameters


def test_a_frozen_projection_is_no_parameter():
    def built(frozen):
        config = models.ViT(patch=4, width=16, depth=1, heads=2, frozen_patches=frozen)
        return config.build((8, 8, 3), dtype=jnp.float32, rngs=nnx.Rngs(jax.random.key(0)))

    free, frozen = built(False), built(True)
    assert models.parameter_count(free) - models.parameter_count(frozen) == 4 * 4 * 3 * 16 + 16
    x = np.random.default_rng(0).normal(size=(2, 8, 8, 3)).astype(np.float32)
    np.testing.assert_array_equal(free(x), frozen(x))


def test_methods_of_the_recipes_are_the_papers():
    kinds = {recipe: type(training.load(ROOT / recipe).method) for recipe in RECIPES}
    assert kinds["configs/piran/imagenet1k.py"] is methods.StudentTeacher
    assert kinds["configs/jeon/cifar10.py"] is methods.MocoV2
    assert kinds["configs/jeon/imagenet100.py"] is methods.MocoV3
    assert kinds["configs/koromilas/mosei.py"] is methods.MultiEncoder
