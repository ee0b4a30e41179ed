"""Clustering of known groups, and its files."""

import json

import numpy as np
import pandas as pd
import pytest

from mvcl import data, evaluation, metrics
from mvcl.evaluation._clustering import view_features

NAMES = ("ox", "ass", "cow")


@pytest.fixture
def split(rng) -> data.Split:
    """Three groups of 20: view 0 separates them, view 1 is noise, view 2 lacks every other example."""
    labels = np.repeat(np.arange(3, dtype=np.int32), 20)
    views = (
        (10 * np.eye(3)[labels] + rng.normal(size=(60, 3))).astype(np.float32),
        rng.normal(size=(60, 4)).astype(np.float32),
        (10 * np.eye(3)[labels][:, :2]).astype(np.float32),
    )
    present = np.ones((60, 3), bool)
    present[1::2, 2] = False
    names = {"view_names": ("a", "b", "c"), "ids": tuple(f"id{i}" for i in range(60))}
    return data.in_memory(views, labels, NAMES, given=True, present=present, **names)


def test_k_means_finds_groups_and_their_inertia(split):
    labels, inertia = metrics.k_means(split.arrays[0], 3, seed=1)
    assert metrics.clustering_accuracy(split.labels, labels) == 1
    centred = np.concatenate([g - g.mean(0) for g in np.split(split.arrays[0], 3)])
    np.testing.assert_allclose(inertia, (centred**2).sum(), rtol=1e-5)
    assert labels.dtype == np.int32
    with pytest.raises(ValueError, match="clusters must be between 2 and n = 60, got 61"):
        metrics.k_means(split.arrays[0], 61)
    with pytest.raises(ValueError, match="must be finite, got 1"):
        metrics.k_means(np.array([[0.0], [np.nan]]), 2)


def test_warns_when_training_is_below_the_raw_input():
    protocol = evaluation.Clustering()

    def row(acc, nmi, best):
        pairs = (("ACC", acc), ("NMI", nmi), ("best view ACC", best), ("SVM 30%", None))
        return [evaluation.Result(name, value, None, "") for name, value in pairs]

    raw = row(0.7, 0.5, 0.8)
    assert protocol.warnings({"trained encoder": row(0.81, 0.5, 0), "raw input": raw}) == ()
    (text,) = protocol.warnings({"trained encoder": row(0.75, 0.4, 0), "raw input": raw})
    assert "ACC 0.750, the best raw view 0.800; NMI 0.400, all raw views 0.500." in text
    assert "ACC 0.750, all" not in text
    assert protocol.warnings({"trained encoder": row(None, None, 0), "raw input": raw}) == ()
    assert protocol.warnings({"trained encoder": raw}) == ()


def test_columns_of_each_view(split):
    found = view_features(np.concatenate(split.arrays, axis=1), split, raw=True)
    assert [features.shape for _, features in found.values()] == [(60, 3), (60, 4), (30, 2)]
    np.testing.assert_array_equal(found["c"][0], np.arange(0, 60, 2))
    np.testing.assert_array_equal(found["b"][1], split.arrays[1])
    blocks = view_features(np.arange(60.0 * 6).reshape(60, 6), split)
    np.testing.assert_array_equal(blocks["b"][1][0], [2, 3])
    assert view_features(np.zeros((60, 7)), split) == {}
    # Three embeddings of 3 are as wide together as the raw views, of 3, 4 and 2.
    assert [of.shape[1] for _, of in view_features(np.zeros((60, 9)), split).values()] == [3, 3, 3]


def test_table_and_file(split, tmp_path):
    looks = [{"step": 3, "clusters_all": [2] * 60}, {"step": 9, "clusters_all": [1, 0] * 30}, {"step": 12}]
    killed = '{"step": 15, "clus'  # part of a line
    (tmp_path / "refresh.jsonl").write_text("".join(json.dumps(look) + "\n" for look in looks) + killed)
    protocol = evaluation.Clustering(runs=2, starts=2, draws=2)
    parts = [np.pad(view, ((0, 0), (0, 4 - view.shape[1]))) for view in split.arrays]
    features = {"train": np.concatenate(parts, axis=1)}
    results = {r.name: r for r in protocol.measure_trained(features, {"train": split}, None, tmp_path)}
    raw = protocol.measure_raw({"train": np.concatenate(split.arrays, axis=1)}, {"train": split})
    assert {r.name: r.value for r in raw} == {name: result.value for name, result in results.items()}
    assert results["best view ACC"].value == results["a ACC"].value == results["c ACC"].value == 1
    assert results["b ACC"].value < 0.7
    assert (results["SVM 30%"].value, results["SVM 30%"].deviation) == (1, 0)
    assert protocol.measure({"train": split.arrays[1]}, {"train": split})[-1].value < 0.7
    assert "30% of 60 labels" in results["SVM 30%"].protocol
    assert results["ACC"].deviation is not None
    assert protocol.score(features, {"train": split}) == ("acc", 1.0)
    rows = pd.read_csv(tmp_path / "clusters.csv")
    assert rows["id"].tolist() == list(split.ids)
    assert rows["label"].tolist() == [NAMES[label] for label in split.labels]
    assert len(rows.groupby(["label", "cluster"])) == 3
    assert rows["cluster of c"].isna().tolist() == [False, True] * 30
    assert rows["cluster at step 3"].tolist() == [2] * 60
    assert rows["cluster at step 9"].tolist() == [1, 0] * 30
    assert "cluster at step 12" not in rows


def test_more_clusters_than_examples_are_refused(split):
    with pytest.raises(ValueError, match=r"evaluation\.clusters must be at most the 60 examples, got 61"):
        evaluation.Clustering(clusters=61).check({"train": split})
    evaluation.Clustering(clusters=60).check({"train": split})


def test_without_labels(split, tmp_path):
    unlabelled = data.Split(np.zeros(60, np.int32), ("unlabelled",), split.spec, split.read)
    features, splits = {"train": split.arrays[0]}, {"train": unlabelled}
    protocol = evaluation.Clustering()
    assert all(r.value is None and "no labels" in r.protocol for r in protocol.measure(features, splits))
    assert protocol.score(features, splits) is None
    with pytest.raises(ValueError, match=r"evaluation\.clusters must be at least 2 without labels, got 0"):
        protocol.check(splits)
    evaluation.Clustering(clusters=3).measure_trained(features, splits, None, tmp_path)
    found = pd.read_csv(tmp_path / "clusters.csv")["cluster"].to_numpy()
    assert metrics.clustering_accuracy(split.labels, found) == 1
