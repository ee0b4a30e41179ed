"""Fine-tuning: its first step against the formula, what it learns, and what it leaves alone."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from mvcl import augment, evaluation, models
from mvcl.data import ExampleSpec, Split, in_memory

PLAIN = evaluation.Finetune(
    epochs=1,
    batch_size=8,
    repeats=2,
    optimizer="sgd",
    learning_rate=0.1,
    warmup_epochs=0,
    weight_decay=0.0,
    label_smoothing=0.0,
    mixup=0.0,
    cutmix=0.0,
    rand_augment_ops=0,
    erase_probability=0.0,
    crop_scale=(1.0, 1.0),
    flip_probability=0.0,
    seeds=2,
)
VIEW = augment.evaluation(image_size=8, center_fraction=1.0)


def encoder(config=None):
    config = config or models.ConvNet(widths=(4, 8))
    return config.build((8, 8, 1), dtype=jnp.float32, rngs=nnx.Rngs(0))


def bars(rng, n):
    """Three classes: a bright row, a bright column, neither; on noise."""
    labels = (np.arange(n) % 3).astype(np.int32)
    images = rng.uniform(0, 0.4, size=(n, 8, 8, 1)).astype(np.float32)
    for i, label in enumerate(labels):
        place = rng.integers(8)
        if label == 0:
            images[i, place] += 0.6
        if label == 1:
            images[i, :, place] += 0.6
    return in_memory((images,), labels, ("row", "column", "neither"))


def test_log_prior_is_the_share_of_each_class():
    labels = np.array([0, 0, 0, 2], np.int32)
    np.testing.assert_allclose(
        np.exp(evaluation.log_prior(labels, 3)), [3 / 4.5, 0.5 / 4.5, 1 / 4.5], rtol=1e-6
    )


def test_first_loss_is_the_entropy_and_first_step_is_sgd(rng):
    split = bars(rng, 12)
    labels = np.array([0] * 6 + [1] * 4 + [2] * 2, np.int32)
    network = encoder(models.MLP(widths=(5,)))
    options = dataclasses.replace(PLAIN, repeats=1, batch_size=12, epochs=10)
    program = evaluation.finetune_program(network, options, VIEW, labels, 3)
    state = program.init()
    batch = {
        "images": split.arrays[0],
        "labels": labels,
        "index": np.arange(12, dtype=np.int32),
        "epoch": np.zeros(12, np.int32),
    }
    # The zero kernel and the log-prior bias predict the class shares: the loss is their entropy.
    share = np.array([6, 4, 2]) / 12
    state, loss = program.step(state, batch, jax.random.key(0))
    np.testing.assert_allclose(loss, -(share * np.log(share)).sum(), rtol=1e-6)
    features = np.asarray(network(jnp.asarray(split.arrays[0])))
    gradient = features.T @ (share - np.eye(3)[labels]) / 12
    # Nesterov's first update is 1 + 0.9 times the gradient.
    np.testing.assert_allclose(state["params"]["kernel"], -0.1 * 1.9 * gradient, rtol=1e-4, atol=1e-7)
    # Through a zero kernel the encoder has no gradient yet.
    before = nnx.state(network, nnx.Param)
    jax.tree.map(np.testing.assert_array_equal, state["params"]["encoder"], before)
    state, _ = program.step(state, batch, jax.random.key(0))
    moved = jax.tree.map(lambda a, b: float(jnp.abs(a - b).max()), state["params"]["encoder"], before)
    assert min(jax.tree.leaves(moved)) > 0


def test_step_with_every_ingredient_uses_all_views(rng):
    labels = np.arange(6, dtype=np.int32) % 3
    options = dataclasses.replace(
        evaluation.Finetune(),
        batch_size=12,
        repeats=2,
        rand_augment_ops=0,
        optimizer="sgd",
        epochs=1,
        warmup_epochs=0,
    )
    program = evaluation.finetune_program(encoder(), options, VIEW, labels, 3)
    assert (program.examples, program.steps_per_epoch, program.steps) == (6, 1, 1)
    batch = {
        "images": bars(rng, 6).arrays[0],
        "labels": labels,
        "index": np.arange(6, dtype=np.int32),
        "epoch": np.zeros(6, np.int32),
    }
    _, first = program.step(program.init(), batch, jax.random.key(0))
    # Whatever the mixing, uniform predictions cost log 3.
    np.testing.assert_allclose(first, np.log(3), rtol=1e-5)


def test_fine_tuning_learns_and_leaves_the_encoder_alone(rng):
    splits = {"train": bars(rng, 96), "test": bars(rng, 60)}
    network = encoder()
    before = jax.tree.map(np.asarray, nnx.state(network, nnx.Not(nnx.RngState)))
    options = dataclasses.replace(
        PLAIN, epochs=6, batch_size=32, learning_rate=0.01, optimizer="adamw", mixup=0.2
    )
    lines: list[str] = []
    results = evaluation.finetune(network, splits, options, VIEW, lines.append)
    assert [r.name for r in results] == ["fine-tuned", "fine-tuned, mean per class"]
    # Chance is 1/3. The classes of the test split are of one size, so both measures are one.
    assert results[0].value > 0.6
    np.testing.assert_allclose(results[0].value, results[1].value)
    assert results[0].deviation is not None
    assert len(lines) == 2 * 6
    jax.tree.map(np.testing.assert_array_equal, nnx.state(network, nnx.Not(nnx.RngState)), before)


@pytest.mark.slow
def test_images_of_different_sizes_are_cropped_on_the_host(rng):
    train = bars(rng, 12)
    sizes = [(8, 11), (10, 8), (16, 16)]

    def read(row, epoch):
        height, width = sizes[row % 3]
        return ((np.resize(train.arrays[0][row], (height, width, 1)) * 255).astype(np.uint8),)

    ragged = Split(train.labels, train.class_names, ExampleSpec(((None, None, 1),)), read)
    options = dataclasses.replace(PLAIN, seeds=1)
    results = evaluation.finetune(encoder(), {"train": ragged, "test": ragged}, options, VIEW)
    assert 0 <= results[0].value <= 1
    assert results[0].deviation is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"repeats": 0}, "repeats >= 1"),
        ({"epochs": 0.0}, "epochs and learning_rate must be positive"),
        ({"optimizer": "adam"}, "optimizer must be adamw or sgd"),
        ({"seeds": 0}, "seeds and threads"),
    ],
)
def test_bad_options_are_refused(change, message):
    options = dataclasses.replace(PLAIN, **change)
    with pytest.raises(ValueError, match=message):
        evaluation.finetune_program(encoder(), options, VIEW, np.arange(6) % 3, 3)


def test_bad_splits_are_refused(rng):
    split = bars(rng, 6)
    with pytest.raises(ValueError, match=r"got \['train'\]"):
        evaluation.finetune(encoder(), {"train": split}, PLAIN, VIEW)
    other = dataclasses.replace(split, class_names=("a", "b", "c"))
    with pytest.raises(ValueError, match="same classes"):
        evaluation.finetune(encoder(), {"train": split, "test": other}, PLAIN, VIEW)
