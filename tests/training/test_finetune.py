"""Fine-tuning: initial state, first step against the formula, devices, accuracy."""

import dataclasses
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from flax import nnx

from mvcl import augment, evaluation, methods, models, training
from mvcl.studies import changed
from mvcl.training import Mesh, Sgd, Views, _run, _train

PLAIN = augment.evaluation(image_size=8, center_fraction=1.0, mean=(0.0,), std=(1.0,))


@pytest.fixture(scope="module")
def pretrained(tiny, tmp_path_factory, write_run):
    views = dataclasses.replace(tiny.views, policy=PLAIN)
    return write_run(dataclasses.replace(tiny, views=views), tmp_path_factory.mktemp("pretrained"))


@pytest.fixture
def config(pretrained):
    """SGD on unchanged images, from the encoder of another run."""
    recipe = training.finetune_config(pretrained)
    changes = {"views": Views(k=2, policy=PLAIN), "method": methods.Supervised(zero_head=True)}
    changes |= {"optimizer": Sgd(learning_rate=0.1, momentum=0.0), "mesh": Mesh(data=1)}
    train = {"train.batch_size": 32, "train.epochs": 100.0, "train.steps": 6, "train.log_every": 2}
    return changed(recipe, changes | train)


def test_default_is_table_2(pretrained):
    """Shidani 2024, Table 2."""
    recipe = training.finetune_config(pretrained)
    sgd, policy = recipe.optimizer, recipe.views.policy
    assert sgd == Sgd(learning_rate=1e-3, momentum=0.9, reference_batch=128, warmup_epochs=5)
    assert (sgd.weight_decay, sgd.end_learning_rate, sgd.clip_norm) == (0, 0, None)
    views = recipe.examples * recipe.views.k
    assert (views, recipe.examples / sgd.reference_batch) == (1024, 1024 / 256)
    assert (recipe.train.epochs, recipe.train.precision) == (300, "float32")
    assert recipe.method == methods.Supervised(mixup=0.8, cutmix=1.0, zero_head=True)
    assert recipe.method.label_smoothing == 0
    randaugment = policy.rand_augment_ops, policy.rand_augment_magnitude, policy.rand_augment_deviation
    assert randaugment == (2, 27, 1.5)  # 9/0.5 on a scale of 10
    assert policy.rand_augment_kind == "timm"
    assert policy.erase_probability == 0.25


def test_batch_statistics_are_those_of_a_replica(tiny, monkeypatch, tmp_path):
    """Table 2: BatchNorm is not synchronised; 8 replicas of 128 views are ours. Other encoders stay as they are."""
    large = dataclasses.replace(tiny, encoder=models.ResNet(50))
    monkeypatch.setattr(_train, "load", lambda run: large)
    encoder = training.finetune_config(tmp_path).encoder
    assert encoder == dataclasses.replace(large.encoder, batch_groups=8, batch_rows="consecutive")
    assert training.finetune_config(tmp_path, replicas=2).encoder.batch_groups == 2
    monkeypatch.setattr(_train, "load", lambda run: tiny)
    assert training.finetune_config(tmp_path).encoder == tiny.encoder


def same_weights(*encoders):
    """Check that encoders have the same weights, and some."""
    compared = jax.tree.map(np.testing.assert_array_equal, *map(nnx.state, encoders))
    assert jax.tree.leaves(compared, is_leaf=lambda x: x is None)


def test_starts_from_a_file_of_weights(config, pretrained, tmp_path):
    run, state = training.open_run(pretrained)
    models.export(training.one_encoder(run, state), config.encoder, tmp_path / "a.safetensors")
    new = training.prepare(changed(config, {"train.initial": str(tmp_path / "a.safetensors")}))
    loaded = training.one_encoder(new, _run.with_initial(new, new.program.init()))
    same_weights(loaded, training.one_encoder(run, state))


def test_first_step_is_that_of_softmax_regression(config, pretrained):
    run = training.prepare(config)
    state = _run.with_initial(run, run.program.init())
    trained = training.one_encoder(*training.open_run(pretrained))
    same_weights(training.one_encoder(run, state), trained)
    batch = next(_run.batches(run, 0))
    fresh = jax.tree.map(np.asarray, state["params"])
    new, values = run.program.step(state, jax.device_put(batch))
    # zero weights predict all classes equally
    np.testing.assert_allclose(values["loss"], np.log(4), rtol=1e-6)
    views = np.asarray(run.program.views(batch))
    encoder = nnx.view(trained, use_running_average=False, raise_if_not_found=False)
    features = np.asarray(encoder(views.reshape(-1, 8, 8, 1)))
    error = 1 / 4 - np.eye(4)[np.repeat(batch["labels"], 2)]
    expected = -0.1 * features.T @ error / 64
    np.testing.assert_allclose(new["params"]["head"]["kernel"][...], expected, rtol=1e-3, atol=1e-6)
    # With zero weights the encoder has no gradient.
    jax.tree.map(np.testing.assert_array_equal, new["params"]["encoder"], fresh["encoder"])


def test_accuracy_of_predictions():
    test = SimpleNamespace(labels=np.array([0, 0, 0, 1]), class_names=("a", "b"))
    logits = np.array([[2.0, 1], [0, 1], [3, 1], [0, 4]])
    found = evaluation.Predictions().measure({"test": logits}, {"test": test})
    np.testing.assert_allclose([r.value for r in found], [3 / 4, (2 / 3 + 1) / 2])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"encoder": models.ConvNet(widths=(4, 4))}, "its encoder differs"),
        ({"method": methods.MocoV2(queue=0)}, "needs method simclr or supervised, got MocoV2"),
        ({"method": methods.Supervised(mixup=-1.0)}, r"method\.mixup must be at least 0, got -1"),
        ({"method": methods.Supervised(label_smoothing=1.0)}, r"must be in \[0, 1\), got 1\.0"),
    ],
)
def test_raises_on_configs_that_cannot_be_fine_tuned(config, tmp_path, change, message):
    with pytest.raises(ValueError, match=message):
        training.train(dataclasses.replace(config, **change), tmp_path)
