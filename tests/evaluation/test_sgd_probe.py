"""The linear probe by SGD, against torch's rule written out in numpy."""

import types

import jax.numpy as jnp
import numpy as np
import pytest

from mvcl import data, evaluation
from mvcl.evaluation import LinearProbe, _classification


def classes(rng, n, scale=4.0):
    labels = np.arange(n) % 3
    return np.eye(3, 5)[labels] * scale + rng.normal(size=(n, 5)), labels


def by_hand(batches, options, rate, per_epoch, width):
    """torch.optim.SGD: v = momentum v + (gradient + decay w); w = w - rate v."""
    w, v = np.zeros((width + 1, 3)), np.zeros((width + 1, 3))
    total = options.epochs * per_epoch
    for step, (x, y) in enumerate(batches):
        x = np.concatenate([x, np.ones((len(x), 1))], axis=1)
        p = np.exp(x @ w)
        p /= p.sum(1, keepdims=True)
        gradient = x.T @ (p - np.eye(3)[y]) / len(x)
        factors = {"cosine": (1 + np.cos(np.pi * step / total)) / 2, "linear": (total - step) / total}
        v = options.momentum * v + gradient + options.weight_decay * w
        w = w - rate * factors[options.decay] * v
    return w


@pytest.mark.parametrize(
    "options",
    [
        LinearProbe(decay="cosine", epochs=3, batch_size=16, weight_decay=0.01),
        LinearProbe(decay="linear", epochs=3, batch_size=16, momentum=0.5, learning_rates=(0.5, 0.02)),
    ],
)
def test_equals_sgd_by_hand(options, rng):
    x, y = classes(rng, 70, scale=1.0)
    test, answer = classes(rng, 500, scale=1.0)
    size, per_epoch = options.steps(70)
    batches = list(evaluation.shuffled(x, y, batch_size=size, epochs=options.epochs, seed=3))
    assert len(batches) == options.epochs * per_epoch
    found = evaluation.sgd_probe(batches, (test, answer), num_classes=3, rows=70, options=options)
    expected = []
    for rate in options.learning_rates:
        w = by_hand(batches, options, rate, per_epoch, 5)
        expected.append(np.mean((test @ w[:-1] + w[-1]).argmax(1) == answer))
    np.testing.assert_allclose(found[:, 0], expected, atol=0.003)  # a row on the boundary, of 500, and a half
    assert np.ptp(expected + [0.0]) > 0.5


def test_two_steps_of_nesterov():
    """torch.optim.SGD with nesterov=True and gradients 1 and 2: v = 1, then 2.9; steps of g + 0.9 v: 1.9 and 4.61."""
    rule = _classification._rule(LinearProbe(nesterov=True), np.ones(2), jnp.float32(0.5))
    state, found = rule.init(jnp.zeros(1)), []
    for gradient in (1.0, 2.0):
        step, state = rule.update(jnp.full(1, gradient), state, jnp.zeros(1))
        found.append(float(step[0]))
    np.testing.assert_allclose(found, [-0.95, -2.305], rtol=1e-6)


def test_factors_of_the_learning_rate():
    steps = LinearProbe(decay="steps", epochs=4, batch_size=16, milestones=(1, 3), reference_batch=32)
    np.testing.assert_allclose(steps.factors(70)[2:], np.repeat([0.5, 0.05, 0.005], [2, 8, 4]))
    constant = LinearProbe(decay="constant", batch_size=20, reference_batch=40)
    np.testing.assert_array_equal(constant.factors(15), [0.375] * 100)  # 15 rows are the batch
    assert "x 15/40 with no decay" in constant.described(15)


def test_batches_cover_an_epoch_without_repetition(rng):
    x, y = np.arange(10.0)[:, None], np.arange(10)
    batches = list(evaluation.shuffled(x, y, batch_size=4, epochs=2, seed=0))
    assert [len(rows) for rows, _ in batches] == [4] * 4
    first, second = (np.concatenate([y for _, y in part]) for part in (batches[:2], batches[2:]))
    assert len(set(first)) == len(set(second)) == 8
    assert list(first) != list(second)
    assert all((rows[:, 0] == labels).all() for rows, labels in batches)


def protocol_results(rng, probe):
    x, y = classes(rng, 200)
    test, answer = classes(rng, 100)
    labels = {"train": y, "test": answer}
    splits = {name: types.SimpleNamespace(labels=of, class_names="abc") for name, of in labels.items()}
    protocol = evaluation.Classification(draws=2, labels_per_class=(), linear=probe)
    features = {"train": x, "test": test}
    return {r.name: r for r in protocol.measure(features, splits)}, (protocol, features, splits)


def test_reports_the_best_rate_and_each(rng):
    probe = LinearProbe(learning_rates=(1e-6, 0.1, 1e38), epochs=2, batch_size=32, augment=False)
    results, _ = protocol_results(rng, probe)
    assert results["linear, SGD"].value == results["linear, SGD 0.1"].value > 0.9
    assert results["linear, SGD 1e-06"].value <= results["linear, SGD 0.1"].value
    assert results["linear, SGD 1e+38"].value is None
    assert "highest test accuracy" in results["linear, SGD"].protocol
    assert "batch 32" in results["linear, SGD"].protocol


def test_with_augmentation_the_batches_come_from_the_encoder(rng):
    probe = LinearProbe(epochs=2, batch_size=32, crop_padding=4)
    results, (protocol, features, splits) = protocol_results(rng, probe)
    assert "linear, SGD" not in results
    asked = []

    def augmented(split, *, probe, batch_size, steps, seed):
        asked.append((split, batch_size, steps, probe.crop_padding))
        return evaluation.shuffled(features["train"], splits["train"].labels, batch_size=batch_size, epochs=2)

    *plain, result = protocol.measure_trained(features, splits, augmented, None)
    assert [r.name for r in plain] == list(results)
    assert asked == [("train", 32, 12, 4)]
    assert result.value > 0.9
    assert "fresh crops and flips each epoch" in result.protocol


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (data.Synthetic(view_shapes=((5,), (6,))), "one image each, got given views"),
        (data.Synthetic(domains=("a", "b", "c")), "one image each, got 2 images an example"),
    ],
)
def test_augmentation_without_images_is_refused(source, message):
    splits = source.open()
    with pytest.raises(ValueError, match=message):
        evaluation.Classification(linear=LinearProbe()).check(splits)
    evaluation.Classification(linear=LinearProbe(augment=False)).check(splits)
