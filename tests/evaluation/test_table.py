"""Features of a split, the table with one protocol for all rows, and options that are refused before training."""

import json
import types
from dataclasses import asdict

import jax
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from jax.tree_util import Partial
from sklearn.datasets import make_blobs

from mvcl import evaluation
from mvcl.augment import Policy
from mvcl.evaluation import (
    ChannelProbe,
    Clustering,
    LinearProbe,
    MaeProbe,
    Result,
    encode,
    few_label_probe,
    linear_probe,
)
from mvcl.metrics import weighted_knn


@pytest.fixture(scope="module")
def blobs():
    x, y = make_blobs(240, 6, centers=4, cluster_std=5.0, random_state=1)
    x = x.astype(np.float32)
    return {"train": x[:160], "test": x[160:]}, {"train": y[:160], "test": y[160:]}


def measured(features, labels, **options):
    """The results of a classification by name."""
    splits = {name: types.SimpleNamespace(labels=of, class_names="abcd") for name, of in labels.items()}
    results = evaluation.Classification(**options).measure(features, splits)
    return {result.name: result for result in results}


def test_results_equal_the_functions(blobs):
    features, labels = blobs
    train, test = ((features[name], labels[name]) for name in ("train", "test"))
    found = measured(features, labels, seed=5, draws=3)
    assert "weights exp(cos/0.07)" in found["k-NN"].protocol
    assert list(found) == ["k-NN", "linear", "5 labels/class", "10 labels/class"]
    knn = np.asarray(weighted_knn(*train, test[0], num_classes=4, k=160))
    assert found["k-NN"].value == np.mean(knn == labels["test"])
    assert found["linear"].value == linear_probe(train, test, num_classes=4, seed=5)[0][0]
    for count in (5, 10):
        scores = few_label_probe(train, test, num_classes=4, labels_per_class=count, draws=3, seed=5)
        result = found[f"{count} labels/class"]
        np.testing.assert_allclose(result.value, np.mean(scores))
        np.testing.assert_allclose(result.deviation, np.sqrt(np.sum((scores - np.mean(scores)) ** 2) / 2))
    assert "160 nearest of 160 training rows" in found["k-NN"].protocol  # k is clipped
    assert "3 draws (seed 5)" in found["5 labels/class"].protocol
    assert found["k-NN"].deviation is found["linear"].deviation is None
    plain = json.loads(json.dumps([asdict(r) for r in found.values()], allow_nan=False))
    assert [Result(**{**r, "each": tuple(r["each"])}) for r in plain] == list(found.values())


def test_unmeasured_results_have_a_reason(blobs):
    features, labels = blobs
    names = labels | {"train": np.repeat([0, 1, 2, 3], [6, 60, 60, 34])}
    found = measured(features, names, draws=2)
    assert found["5 labels/class"].value is not None
    why = "not measured: class 0 has 6 of the 10 labels needed"
    assert found["10 labels/class"] == Result("10 labels/class", None, None, why)
    four = {"train": features["train"][:4], "test": features["test"]}
    one_each = {"train": np.arange(4), "test": labels["test"]}
    linear = measured(four, one_each, labels_per_class=())["linear"]
    assert linear.value is None
    assert "not measured" in linear.protocol


def test_evaluates_another_pair_of_splits(rng):
    features = {name: rng.normal(size=(40, 3)) for name in ("train", "test", "other/train", "other/test")}
    split = types.SimpleNamespace(labels=np.arange(40) % 2, class_names=("a", "b"))
    splits = dict.fromkeys(features, split)
    plain = {"train": features["other/train"], "test": features["other/test"]}
    expected = evaluation.Classification(labels_per_class=()).measure(plain, {"train": split, "test": split})
    protocol = evaluation.Classification(labels_per_class=(), of="other")
    assert protocol.splits(tuple(splits)) == ("other/train", "other/test")
    assert protocol.measure(features, splits) == expected
    assert protocol.score(features, splits)[1] == expected[0].value
    with pytest.raises(ValueError, match="needs none/train and none/test"):
        evaluation.Classification(of="none").splits(tuple(splits))


@pytest.mark.parametrize(
    ("made", "options", "message"),
    [
        (LinearProbe, {"learning_rates": ()}, "learning_rates must be numbers more than 0"),
        (LinearProbe, {"batch_size": 0}, "batch_size must be at least 1, got 0"),
        (LinearProbe, {"momentum": 1.0}, r"momentum must be in \[0, 1\)"),
        (LinearProbe, {"weight_decay": -1.0}, "weight_decay must be at least 0"),
        (LinearProbe, {"crop_padding": -1}, "crop_padding must be at least 0"),
        (LinearProbe, {"policy": Policy(), "crop_padding": 4}, "policy .*crop_padding=0, got True and 4"),
        (LinearProbe, {"decay": "steps"}, "milestones must be epochs of at least 1 for linear.decay=steps"),
        (MaeProbe, {"learning_rates": ()}, r"probe\.learning_rates must be numbers more than 0, got \(\)"),
        (MaeProbe, {"layers": 0}, r"probe\.layers must be at least 1, got 0"),
        (MaeProbe, {"weight_decay": -1.0}, r"probe\.weight_decay must be at least 0"),
        (ChannelProbe, {"learning_rate": 0.0}, r"probe\.learning_rate must be more than 0, got 0\.0"),
        (ChannelProbe, {"patience": 0}, r"probe\.patience must be at least 1, got 0"),
        (Clustering, {"starts": 0}, "starts must be at least 1, got 0"),
        (Clustering, {"svm_share": 1.0}, r"svm_share must be in \[0, 1\), got 1.0"),
    ],
)
def test_raises_on_invalid_options(made, options, message):
    with pytest.raises(ValueError, match=message):
        made(**options)


def linear(weights, images):
    return images.reshape(len(images), -1) @ weights


def batches(images, index, size):
    for start in range(0, len(index), size):
        rows = index[start : start + size]
        yield {"inputs": images[rows], "index": rows, "epoch": np.zeros(len(rows), int)}


def mesh(**axes):
    return jax.make_mesh(tuple(axes.values()), tuple(axes), axis_types=(AxisType.Auto,) * len(axes))


@pytest.fixture
def split(rng):
    images = rng.normal(size=(23, 4, 4, 1)).astype(np.float32)
    return images, rng.permutation(23), rng.normal(size=(16, 5)).astype(np.float32)


@pytest.mark.parametrize(
    ("axes", "spec"),
    [(None, None), ({"data": 8}, "data"), ({"data": 2}, "data"), ({"data": 4, "fsdp": 2}, ("data", "fsdp"))],
)
def test_rows_are_in_index_order_on_any_mesh(split, axes, spec):
    images, order, weights = split
    sharding = None if axes is None else NamedSharding(mesh(**axes), PartitionSpec(spec))
    stream = batches(images, order, 8)
    features, index = encode(Partial(linear, weights), stream, batch_size=8, rows=23, sharding=sharding)
    np.testing.assert_array_equal(index, np.arange(23))
    np.testing.assert_allclose(features, images.reshape(23, 16) @ weights, rtol=1e-5, atol=1e-5)
    assert features.dtype == np.float32


def test_devices_compute_only_their_rows(split):
    images, order, weights = split
    seen = []

    def noting(weights, images):
        jax.debug.inspect_array_sharding(images, callback=lambda s: seen.append(s.shard_shape(images.shape)))
        return linear(weights, images)

    sharding = NamedSharding(mesh(data=8), PartitionSpec("data"))
    encode(Partial(noting, weights), batches(images, order, 16), batch_size=16, rows=23, sharding=sharding)
    assert set(seen) == {(2, 4, 4, 1)}


def test_compiles_once_for_all_batches_and_parameters(split):
    images, order, weights = split
    traces = []

    def counting(weights, images):
        traces.append(images.shape)
        return linear(weights, images)

    first, _ = encode(Partial(counting, weights), batches(images, order, 8), batch_size=8, rows=23)
    second, _ = encode(Partial(counting, 2 * weights), batches(images, order, 8), batch_size=8, rows=23)
    assert traces == [(8, 4, 4, 1)]
    np.testing.assert_allclose(second, 2 * first, rtol=1e-6)


def test_keeps_repeated_rows_once_and_accepts_part_of_a_split(split):
    images, _, weights = split
    stream = batches(images, np.array([7, 3, 9, 3, 7]), 2)
    features, index = encode(Partial(linear, weights), stream, batch_size=4, rows=5)
    np.testing.assert_array_equal(index, [3, 7, 9])
    np.testing.assert_allclose(features, images[[3, 7, 9]].reshape(3, 16) @ weights, rtol=1e-5, atol=1e-5)


def test_bad_input(split):
    images, order, weights = split
    with pytest.raises(ValueError, match="at most 4 of batch_size=4, got 8 and 8"):
        encode(Partial(linear, weights), batches(images, order, 8), batch_size=4, rows=23)
    with pytest.raises(ValueError, match=r"\(b, d\) features, got \(8, 4, 4, 1\)"):
        encode(lambda x: x, batches(images, order, 8), batch_size=8, rows=23)
    with pytest.raises(ValueError, match="rows must be at least those of the batches, got 22"):
        encode(Partial(linear, weights), batches(images, order, 8), batch_size=8, rows=22)
    with pytest.raises(ValueError, match="at least one batch"):
        encode(lambda x: x, [], batch_size=8, rows=23)
    sharding = NamedSharding(mesh(data=8), PartitionSpec("data"))
    with pytest.raises(ValueError, match="batch_size must be a positive multiple of 8 devices, got 12"):
        encode(lambda x: x, batches(images, order, 8), batch_size=12, rows=23, sharding=sharding)
