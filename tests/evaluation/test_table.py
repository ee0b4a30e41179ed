"""The table: one protocol for all rows."""

import json
import types
from dataclasses import asdict

import numpy as np
import pytest
from sklearn.datasets import make_blobs

from mvcl import evaluation
from mvcl.evaluation import Result, few_label_probe, linear_probe
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
