"""What the studies measure of a run, and their own losses, data and tasks, by hand."""

import json
import math

import _conflict
import _jeon
import _sem
import jax.numpy as jnp
import numpy as np
import pytest

from mvcl import data, studies, training

sentiment = training.config_module(studies.find("koromilas_table4"))
variance = training.config_module(studies.find("shidani_variance"))
parts = training.config_module(studies.find("xu_table3"))


def test_similarities_are_of_the_first_and_last_tenth(tmp_path):
    constant = {"loss": 1.0, "negative_similarity": -1.0, "concentration": 2.0}
    rows = [
        {"step": s, "epoch": s / 10, "positive_similarity": float(s), "resultant": 0.5 + s / 200} | constant
        for s in range(5, 101, 5)
    ]
    log = "".join(json.dumps(row) + "\n" for row in [*rows, {"step": 100, "knn": 0.5}])
    (tmp_path / "metrics.jsonl").write_text(log)
    (tmp_path / "evaluation.json").write_text('{"rows": {}}')
    [found] = _jeon.results_and_log(tmp_path)
    # Steps 5 and 10; 95 and 100.
    expected = {"margin, start": 8.5, "margin, end": 98.5, "margin, gain": 90, "margin, largest": 101}
    expected |= {"R, gain": 0.45, "kappa, gain": 0}
    assert {name: found[name] for name in expected} == pytest.approx(expected)


def test_learning_is_of_the_last_tenth(tmp_path):
    rows = [
        {"step": s, "epoch": s / 10, "loss": 4.0 - s / 100, "chance": 3.5, "effective_temperature": s / 100}
        for s in range(5, 101, 5)
    ]
    (tmp_path / "evaluation.json").write_text('{"rows": {}}')
    for keys, expected in (
        (5, {"below chance": 0.475, "effective temperature": 0.975}),
        (4, {"below chance": 0.475}),
    ):
        log = "".join(json.dumps(dict(list(row.items())[:keys])) + "\n" for row in rows)
        (tmp_path / "metrics.jsonl").write_text(log)
        [found] = _jeon.results_and_log(tmp_path)
        assert {name: found[name] for name in found if "loss" not in name} == pytest.approx(expected)


def test_a_tuned_rate_is_that_of_the_least_mean_validation_error(tmp_path, monkeypatch):
    """The first training prefers 0.01, the other two and the mean prefer 0.02: all count at 0.02."""
    errors = {0.01: (0.1, 0.9, 0.8), 0.02: (0.5, 0.4, 0.6), 0.04: (0.7, 0.7, 0.7)}

    def train(config, folder):
        folder.mkdir(parents=True)
        rate = config.optimizer.learning_rate
        error = errors[rate][config.train.seed - 9]  # seed 3 of three trainings
        rows = {"trained encoder": [{"name": "validation MAE", "value": error}]}
        (folder / "evaluation.json").write_text(json.dumps({"rows": rows}))
        (folder / "metrics.jsonl").write_text(json.dumps({"step": 1, "epoch": 1.0, "loss": rate}) + "\n")

    monkeypatch.setattr(training, "train", train)
    task = sentiment.TunedRate(config=training.load("digits:smoke"), rates=tuple(errors))
    expected = [{"validation MAE": x, "learning rate": 0.02, "loss": 0.02} for x in errors[0.02]]
    assert task.run(tmp_path, 3) == expected
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0.01", "0.02", "0.04"]


def test_gradients_of_pairs_conflict(rng):
    """By hand: of a loss -<x, y> of unit vectors, the gradient of x is -y, less its part along x."""
    pair = lambda x, y: -jnp.mean(jnp.sum(x / jnp.linalg.norm(x, axis=-1, keepdims=True) * y, -1))  # noqa: E731
    angle = 0.3
    first, up, down = ([math.cos(a), math.sin(a)] for a in (0.0, angle, -angle))
    mirrored, same = (np.array([[first], [up], [other]]) for other in (down, up))
    assert _conflict.conflict(mirrored, pair)["gradient cosine"] == pytest.approx(-1)
    assert _conflict.conflict(mirrored, pair)["conflicting gradients"] == 1
    assert _conflict.conflict(same, pair)["gradient variance"] == pytest.approx(0, abs=1e-12)
    turned = np.array([[first], [up], [[math.cos(2 * angle), math.sin(2 * angle)]]])
    lengths = np.sin(angle), np.sin(2 * angle)
    found = _conflict.conflict(turned, pair)
    assert found["gradient variance"] == pytest.approx(np.var(lengths) / np.mean(lengths) ** 2, rel=1e-5)
    z = rng.normal(size=(4, 6, 3))
    scaled = _conflict.conflict(z * rng.uniform(0.5, 2, size=(4, 6, 1)))
    assert _conflict.conflict(z) == pytest.approx(scaled, rel=1e-4)
    assert _conflict.conflict(z[:2]) == {}


def test_measures_over_time_by_hand(tmp_path, monkeypatch):
    labels = np.array([0, 0, 1, 1])
    right, half = [1, 1, 0, 0], [0, 1, 0, 1]
    hidden = [np.array(of) for of in (half, right, right)]  # the last record is of Z
    monkeypatch.setattr(_sem, "clusters_of_hidden", lambda folder: (labels, hidden))
    weights = [[1.0, 0.2, 0.7], [0.2, 1.0, 0.4], [0.7, 0.4, 1.0]]
    unused = [[1.0, 9.0, 9.0], [9.0, 1.0, 9.0], [9.0, 9.0, 1.0]]  # computed after the last step

    def line(clusters, losses, weights=None):
        matrix = np.zeros((3, 3))
        matrix[0, 1], matrix[0, 2], matrix[1, 2] = losses
        record = {"clusters": clusters, "cosines": (matrix / 10).tolist(), "losses": matrix.tolist()}
        return json.dumps(record | ({} if weights is None else {"weights": weights}))

    lines = [
        line([half, half, half], (9.0, 9.0, 9.0)),  # before the first weights: not counted
        line([right, half, right], (5.0, 4.0, 3.0), weights),
        line([right, half, right], (4.0, 2.0, 3.0)),
        line([right, half, half], (1.0, 2.0, 2.0), unused),
    ]
    (tmp_path / "refresh.jsonl").write_text("\n".join(lines) + "\n")
    (found,) = _sem.over_time(tmp_path, numbers=(1, 4, 5), compared=((1, 5), (1, 4)))
    assert (found["view 1 before"], found["view 1 after"], found["view 1 change"]) == (1.0, 0.5, -0.5)
    assert found["view 4 change"] == 0.5
    assert found["1-4 cosine after"] == pytest.approx(0.1)
    assert found["1-5 loss change"] == -2.0
    assert found["1-5 weight"] == 0.7
    assert found["weight gap"] == pytest.approx(0.5)
    assert found["1-4 loss left"] == pytest.approx((1 + 0.75 + 0) / 3)
    assert found["1-5 loss left"] == pytest.approx(1 / 3)
    assert found["lag"] == pytest.approx(0.75 / 3)


def test_weights_are_those_of_two_views_before_each_round(tmp_path):
    def line(step, a, b, accuracy):
        return {"step": step, "weights": [[9, a, 1], [a, 9, b], [1, b, 9]], "acc_all": accuracy}

    rows = [line(20, 9, 9, 0.1), line(20, 1, 1, 0.9), {"step": 25}, line(30, 4, 1, 0.8), line(40, 7, 7, 0.7)]
    (tmp_path / "refresh.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "evaluation.json").write_text('{"rows": {}}')
    (tmp_path / "metrics.jsonl").write_text('{"step": 40, "epoch": 2, "loss": 3.0}\n')
    [found] = parts.with_weights(tmp_path)
    expected = {"W": (1 + 2) / 2, "W, deviation": (0 + math.sqrt(2)) / 2, "ACC before": 0.9}
    assert {name: found[name] for name in expected} == pytest.approx(expected)


@pytest.mark.parametrize("one_tells", [False, True])
def test_single_views_by_hand(one_tells):
    """The second view is the first's negative, or tells nothing."""
    labels = np.arange(40) % 2
    empty = (np.zeros((40, 2), np.float32),) * 2
    split = data.in_memory(empty, labels, ("a", "b"), view_names=("first", "second"), given=True)
    tells = np.where(labels == 1, 1.0, -1.0)[:, None] * np.array([[1.0, 0.5]])
    other = np.ones_like(tells) + 1e-3 * np.random.default_rng(0).normal(size=tells.shape)
    x = np.concatenate([tells, other if one_tells else -tells], axis=1).astype(np.float32)
    splits = {"train": split, "test": split}
    results = sentiment.SingleViews(draws=1).measure({"train": x, "test": x}, splits)
    found = {result.name: result.value for result in results}
    assert found["all views k-NN"] == found["all views 10 labels/class"] == 1
    assert (found["one view k-NN"] < 0.95) == (found["one view 10 labels/class"] < 1) == one_tells
    assert one_tells or (found["one view k-NN"], found["across views k-NN"]) == (1, 0)
