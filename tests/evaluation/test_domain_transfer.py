"""Transfer between rotated domains with known accuracies."""

import dataclasses
from unittest import mock

import numpy as np
import pytest

from mvcl import data, evaluation
from mvcl.evaluation import _domains


def domain(rng, turn, n=90, noise=0.1):
    """Three classes at 0, 120 and 240 degrees, rotated."""
    labels = np.arange(n) % 3
    angle = 2 * np.pi * labels / 3 + turn + noise * rng.normal(size=n)
    return np.stack([np.cos(angle), np.sin(angle)], 1).astype(np.float32), labels.astype(np.int32)


@pytest.fixture(scope="module")
def transfer():
    rng = np.random.default_rng(0)
    # b is a rotated by a few degrees; c by 120, so that each class is at another's position.
    turns = {"a": 0.0, "b": 0.1, "c": 2 * np.pi / 3}
    train, test = ({name: domain(rng, turn) for name, turn in turns.items()} for _ in range(2))
    return evaluation.domain_transfer(train, test, num_classes=3)


def test_matrix_of_rotated_domains(transfer):
    np.testing.assert_array_equal(transfer.one, [[1, 1, 0], [1, 1, 0], [0, 0, 1]])
    # a and b classify all rows of c wrongly.
    assert transfer.rest[2] == 0
    results = {r.name: r.value for r in transfer.results()}
    np.testing.assert_allclose(results["1 to 1"], 2 / 6)
    assert results["within"] == 1
    np.testing.assert_allclose(results["2 to 1"], transfer.rest.mean())
    assert results["to c"] == 0


def test_probes_by_sgd_with_and_without_augmentation(rng):
    splits = data.Synthetic(domains=("a", "b", "c"), classes=3, examples=90).open()
    features = {}
    for name in evaluation.Domains().splits(tuple(splits)):
        angle = 2 * np.pi * splits[name].labels / 3 + 0.1 * rng.normal(size=len(splits[name]))
        features[name] = np.stack([np.cos(angle), np.sin(angle)], 1).astype(np.float32)
    plain = evaluation.Domains(
        linear=evaluation.LinearProbe(learning_rates=(1e-6, 0.5), batch_size=30, epochs=20, augment=False)
    )
    plain.check(splits)
    results = {r.name: r.value for r in plain.measure(features, splits)}
    assert set(results) == {"2 to 1", "1 to 1", "a to c", "b to c"}
    assert min(results.values()) > 0.95
    fresh = evaluation.Domains(linear=dataclasses.replace(plain.linear, augment=True))
    asked = []

    def augmented(split, *, probe, batch_size, steps, seed):
        assert probe.crop_padding == 0
        asked.append((split, steps))
        names = ("a", "b") if split == "seen" else (split.removesuffix("/train"),)
        x = np.concatenate([features[f"{name}/train"] for name in names])
        y = np.concatenate([splits[f"{name}/train"].labels for name in names])
        assert np.array_equal(y, splits[split].labels)
        return evaluation.shuffled(x, y, batch_size=batch_size, epochs=20, seed=seed)

    again = {r.name: r.value for r in fresh.measure_trained(features, splits, augmented, None)}
    assert again == results
    assert asked == [("a/train", 60), ("b/train", 60), ("seen", 120)]
    whole = {name: split for name, split in splits.items() if name != "seen"}
    with pytest.raises(ValueError, match=r"needs --data\.held-out"):
        plain.check(whole)
    fresh.check(splits)


def test_fits_once_for_results_and_files(rng, tmp_path):
    splits = data.Synthetic(domains=("a", "b", "c"), classes=3, examples=90).open()
    protocol = evaluation.Domains()
    names = protocol.splits(tuple(splits))
    features = {n: rng.normal(size=(len(splits[n]), 2)).astype(np.float32) for n in names}
    with mock.patch.object(_domains, "linear_probe", wraps=_domains.linear_probe) as probe:
        results = protocol.measure_trained(features, splits, None, tmp_path)
    assert probe.call_count == 3  # each of the two domains of pre-training, and both together
    assert [result.name for result in results] == ["2 to 1", "1 to 1", "a to c", "b to c"]
    assert f"| a | {results[2].value:.1%} |" in (tmp_path / "domains.md").read_text()
