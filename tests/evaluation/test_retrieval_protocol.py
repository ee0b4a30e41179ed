"""Retrieval between views of known geometry, against loops, and of a small run."""

import numpy as np
import pytest
from parametrize import some

from mvcl import data, evaluation
from tests.losses.brute_force import unit

NAMES = ("text", "audio", "video")


def scores(name, others, key):
    """The score of one candidate by loops' scalars; the largest is first."""
    if name == "volume":
        a = np.stack([*others, key])
        return -np.sqrt(max(np.linalg.det(a @ a.T), 0))
    if name == "product":
        return sum(key[c] * np.prod([other[c] for other in others]) for c in range(len(key)))
    return unit(np.sum(others, axis=0)) @ key


def by_hand(name, z, others, target, k, rows):
    hits = 0
    for i in rows:
        found = {j: scores(name, z[others, i], z[target, j]) for j in rows}
        hits += sum(found[j] >= found[i] for j in rows if j != i) < k
    return hits / len(rows)


def split_of(rows, shapes, present=None, names=NAMES):
    arrays, labels = tuple(np.ones((rows, *shape), np.float32) for shape in shapes), np.zeros(rows, np.int32)
    return data.in_memory(arrays, labels, ("a",), view_names=names, given=True, present=present)


@pytest.fixture
def features(rng):
    """(29, 3 x 6): three noisy views of 29 instances, side by side."""
    shared = rng.normal(size=(1, 29, 6))
    z = (shared + np.array([0.3, 0.6, 0.9])[:, None, None] * rng.normal(size=(3, 29, 6))).astype(np.float32)
    return z.swapaxes(0, 1).reshape(29, 18)


def measured(protocol, features, split):
    return {r.name: r for r in protocol.measure({"test": features}, {"test": split})}


@pytest.mark.parametrize("missing", some([False, True], fast=[True]))
def test_equals_the_loop(features, rng, missing):
    present = rng.random((29, 3)) < 0.8 if missing else None
    there = np.ones((29, 3), bool) if present is None else present
    z = unit(features.reshape(29, 3, 6).swapaxes(0, 1).astype(np.float64))
    if missing:
        features = np.where(np.repeat(present, 6, axis=1), features, 0)
    found = measured(evaluation.Retrieval(ks=(1, 4)), features, split_of(29, [(2,)] * 3, present))
    found |= measured(evaluation.Retrieval(ks=(4, 1)), features, split_of(29, [(2,)] * 3, present))
    for k in (1, 4):
        pairs = []
        for l, m in ((0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)):
            rows = np.flatnonzero(there[:, l] & there[:, m])
            pairs.append(by_hand("sum", z, [l], m, k, rows))
            result = found[f"{NAMES[l]} -> {NAMES[m]} R@{k}"]
            assert result.value == pytest.approx(pairs[-1], rel=1e-6)
            assert f"share of {len(rows)} rows" in result.protocol
            assert ("with the views that are needed, of 29," in result.protocol) == missing
        assert found[f"pairs R@{k}"].value == pytest.approx(np.mean(pairs), rel=1e-6)
        rows = np.flatnonzero(there.all(axis=1))
        for name in ("sum", "product", "volume"):
            alone = [by_hand(name, z, [l for l in range(3) if l != m], m, k, rows) for m in range(3)]
            for m, value in enumerate(alone):
                column = f"others -> {NAMES[m]}, {name} R@{k}"
                assert found[column].value == pytest.approx(value, rel=1e-6)
            assert found[f"{name} R@{k}"].value == pytest.approx(np.mean(alone), rel=1e-6)
    assert 0.1 < found["product R@1"].value < found["sum R@1"].value < 1
    assert len(found) == 2 * (6 + 9 + 4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ks": ()}, r"evaluation\.ks must be different numbers >= 1, at least one, got \(\)"),
        ({"ks": (1, 0)}, r"evaluation\.ks must be .* got \(1, 0\)"),
        ({"ks": (1, 1)}, r"evaluation\.ks must be different"),
        ({"features": "encoder"}, r"evaluation\.features must be head_views or views .* got encoder"),
    ],
)
def test_invalid_options(options, message):
    split = split_of(9, [(2,), (3,), (4,)])
    with pytest.raises(ValueError, match=message):
        evaluation.Retrieval(**options).check({"train": split, "test": split})


def test_images_and_features_of_unequal_lengths_are_value_errors(features):
    evaluation.Retrieval().check({"test": split_of(9, [(2,), (3,)], names=NAMES[:2])})  # two views are enough
    images = data.in_memory((np.zeros((4, 8, 8, 1), np.uint8),), np.zeros(4, np.int32), ("a",))
    with pytest.raises(ValueError, match="evaluation:retrieval needs given views, such as those of tables"):
        evaluation.Retrieval().check({"train": images, "test": images})
    with pytest.raises(ValueError, match="one length for each of 3 views, got 17 in all"):
        evaluation.Retrieval().measure({"test": features[:, :17]}, {"test": split_of(29, [(2,)] * 3)})
