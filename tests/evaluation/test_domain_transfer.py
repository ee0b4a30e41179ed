"""Transfer between rotated domains with known accuracies."""

import numpy as np
import pytest

from mvcl import evaluation


def domain(rng, turn, n=90, noise=0.1):
    """Three classes at 0, 120 and 240 degrees, rotated."""
    labels = np.arange(n) % 3
    angle = 2 * np.pi * labels / 3 + turn + noise * rng.normal(size=n)
    return np.stack([np.cos(angle), np.sin(angle)], 1).astype(np.float32), labels.astype(np.int32)


@pytest.fixture
def transfer(rng):
    # b is a rotated by a few degrees; c by 120, so that each class is at another's position.
    turns = {"a": 0.0, "b": 0.1, "c": 2 * np.pi / 3}
    train = {name: domain(rng, turn) for name, turn in turns.items()}
    test = {name: domain(rng, turn) for name, turn in turns.items()}
    return evaluation.domain_transfer(train, test, num_classes=3, penalties=(1e-2,))


def test_matrix_of_rotated_domains(transfer):
    np.testing.assert_array_equal(transfer.one, [[1, 1, 0], [1, 1, 0], [0, 0, 1]])
    # a and b classify all rows of c wrongly.
    assert transfer.rest[2] == 0
    results = {r.name: r.value for r in transfer.results()}
    np.testing.assert_allclose(results["1 to 1"], 2 / 6)
    assert results["within"] == 1
    np.testing.assert_allclose(results["2 to 1"], transfer.rest.mean())
    assert results["to c"] == 0


def test_rest_is_the_probe_on_all_other_domains(rng):
    train = {name: domain(rng, 0.8 * i, 60, 0.7) for i, name in enumerate("abc")}
    test = {name: domain(rng, 0.8 * i, 60, 0.7) for i, name in enumerate("abc")}
    found = evaluation.domain_transfer(train, test, num_classes=3, penalties=(1e-2, 1e-4))
    x, y = (np.concatenate([train[name][i] for name in "ac"]) for i in (0, 1))
    expected, _ = evaluation.linear_probe(x, y, *test["b"], num_classes=3, penalties=(1e-2, 1e-4))
    assert found.rest[1] == expected
    assert 0 < expected < 1


def test_table_and_heat_map_show_every_entry(transfer, tmp_path):
    table = evaluation.transfer_table(transfer)
    lines = table.splitlines()
    assert lines[0] == "| trained on | a | b | c |"
    assert lines[2] == "| a | (100.0%) | 100.0% | 0.0% |"
    assert lines[5].startswith("| all others |")
    evaluation.transfer_heat_map(transfer, tmp_path / "map.svg")
    text = (tmp_path / "map.svg").read_text()
    assert text.count(">100.0<") + text.count(">0.0<") >= 11  # nine entries, and the rounded rest
    assert "all others" in text


def test_raises_on_different_domains(rng):
    one = {"a": domain(rng, 0), "b": domain(rng, 0)}
    with pytest.raises(ValueError, match="same domains"):
        evaluation.domain_transfer(one, {"a": one["a"], "c": one["b"]}, num_classes=3)
    with pytest.raises(ValueError, match="at least two"):
        evaluation.domain_transfer({"a": one["a"]}, {"a": one["a"]}, num_classes=3)
