"""The probe of channels: known combinations, early stopping, subjects; transfer between domains of known accuracies."""

import dataclasses
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from sklearn.metrics import balanced_accuracy_score

from mvcl import data, evaluation
from mvcl.evaluation import _channels, _domains


def signal(rng, n, classes=3):
    """Two channels whose difference is one-hot of the class; their mean is noise only."""
    labels = np.arange(n) % classes
    common = rng.normal(size=(n, classes))
    half = np.eye(classes)[labels] / 2
    return np.stack([common + half, common - half], 1).astype(np.float32), labels.astype(np.int32)


def test_finds_the_combination_that_the_mean_lacks(rng):
    train, valid, test = signal(rng, 300), signal(rng, 60), signal(rng, 300)
    options = evaluation.ChannelProbe(learning_rate=0.05, epochs=60, patience=60)
    assert evaluation.channel_probe(train, valid, test, num_classes=3, options=options) > 0.95


def test_score_is_the_mean_recall(rng, monkeypatch):
    train, (x, y) = signal(rng, 30), signal(rng, 90)
    kept = np.concatenate([np.flatnonzero(y == 0), np.flatnonzero(y == 1)[:4], np.flatnonzero(y == 2)[:2]])
    found = []
    logits = _channels._logits
    monkeypatch.setattr(_channels, "_logits", lambda w, x: found.append(logits(w, x)) or found[-1])
    monkeypatch.setattr(_channels, "early_stopped", lambda options, losses, weights, *rest: weights)
    score = evaluation.channel_probe(train, train, (x[kept], y[kept]), num_classes=3)
    np.testing.assert_allclose(score, balanced_accuracy_score(y[kept], np.argmax(found[-1], axis=1)))


def test_stops_early_with_the_best_weights(rng):
    """Against AdamW without a stop: the weights of the first epoch after which `patience` are not better."""
    (x, y), patience = signal(rng, 60), 2
    wrong = (x, (y + 1) % 3)  # the more is learned, the higher this loss
    start = {"combination": rng.normal(size=2), "shift": np.zeros(()), "kernel": rng.normal(size=(3, 3))}
    start = jax.tree.map(lambda a: jnp.asarray(a, jnp.float32), start | {"bias": np.zeros(3)})
    order = np.stack([rng.permutation(60).reshape(3, 20) for _ in range(6)])
    options = evaluation.ChannelProbe(learning_rate=0.1, patience=patience)
    rule = optax.adamw(0.1, weight_decay=5e-4)

    def loss(weights, x, y):
        combined = jnp.einsum("ncd,c->nd", x, weights["combination"]) + weights["shift"][None, None]
        log_p = jax.nn.log_softmax(combined @ weights["kernel"] + weights["bias"][None])
        return -jnp.mean(log_p[jnp.arange(len(y)), y])

    @jax.jit
    def step(weights, moments, x, y):
        updates, moments = rule.update(jax.grad(loss)(weights, x, y), moments, weights)
        return optax.apply_updates(weights, updates), moments

    after, losses, weights, moments = [], [], start, rule.init(start)
    for epoch in order:
        for rows in epoch:
            weights, moments = step(weights, moments, x[rows], y[rows])
        after.append(weights)
        losses.append(float(loss(weights, *wrong)))
    best = next(e for e in range(4) if min(losses[e + 1 : e + 1 + patience]) > losses[e])
    assert best + patience < 5
    patient = dataclasses.replace(options, patience=100)  # no stop: the last weights, not the best
    for how, expected in ((options, after[best]), (patient, weights)):
        found = _channels.early_stopped(how, _channels._losses, start, (x, y), wrong, order)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), found, expected)


def test_protocol_draws_rows_of_other_subjects_than_the_validation(monkeypatch):
    splits = data.Synthetic(view_shapes=((6,), (6,)), classes=3, examples=120, groups=8).open()
    protocol = evaluation.Channels(labels_per_class=(5, 1000), draws=3)
    protocol.check(splits)
    views = {name: np.concatenate(split.take(np.arange(len(split))), 1) for name, split in splits.items()}
    seen = []

    def watched(train, valid, test, **options):
        seen.append((train, valid))
        return 0.5 + 0.1 * options["seed"][1]

    monkeypatch.setattr(_channels, "channel_probe", watched)
    few, many = protocol.measure(views, splits)
    assert (few.name, many.name) == ("5 labels/class", "1000 labels/class")
    assert (few.value, few.deviation) == pytest.approx((0.6, 0.1))
    assert many.value is None
    rows = views["train"].reshape(-1, 2, 6)
    group = {row.tobytes(): number for row, number in zip(rows, splits["train"].groups)}
    for train, valid in seen:
        assert np.bincount(train[1]).tolist() == [5, 5, 5]
        assert max(np.bincount(valid[1])) <= 5
        assert not {group[x.tobytes()] for x in train[0]} & {group[x.tobytes()] for x in valid[0]}
    assert len({train[0].tobytes() for train, _ in seen}) == 3
    of_validation = {group[x.tobytes()] for _, valid in seen for x in valid[0]}
    assert len(of_validation) == round(protocol.valid_fraction * 8)
    protocol.measure(views, splits)
    jax.tree.map(np.testing.assert_array_equal, seen[:3], seen[3:])


def domain(rng, turn, n=90, noise=0.1):
    """Three classes at 0, 120 and 240 degrees, rotated."""
    labels = np.arange(n) % 3
    angle = 2 * np.pi * labels / 3 + turn + noise * rng.normal(size=n)
    return np.stack([np.cos(angle), np.sin(angle)], 1).astype(np.float32), labels.astype(np.int32)


def test_matrix_of_rotated_domains(rng):
    # b is a rotated by a few degrees; c by 120, so that each class is at another's position.
    turns = {"a": 0.0, "b": 0.1, "c": 2 * np.pi / 3}
    train, test = ({name: domain(rng, turn) for name, turn in turns.items()} for _ in range(2))
    transfer = evaluation.domain_transfer(train, test, num_classes=3)
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
