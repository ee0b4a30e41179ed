"""Probes against scikit-learn's logistic regression and torch's rule of SGD, and properties of the protocols."""

import types

import jax.numpy as jnp
import numpy as np
import pytest
from parametrize import some
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from mvcl import data, evaluation
from mvcl.evaluation import (
    LinearProbe,
    _classification,
    draw_labels,
    few_label_probe,
    fit_logistic,
    linear_probe,
)


@pytest.fixture(scope="module")
def digits():
    """The 1437/360 split of scikit-learn's digits: pixels in [0, 1] and labels of each part."""
    x, y = load_digits(return_X_y=True)
    x = (x / 16).astype(np.float32)
    a, b, c, d = train_test_split(x, y, test_size=360, stratify=y, random_state=0)
    return (a, c), (b, d)


@pytest.fixture(autouse=True)
def one_blas_thread():
    """On busy cores, BLAS threads wait for each other in these small fits."""
    with threadpool_limits(1):
        yield


@pytest.mark.parametrize("case", some([(1e-2, 1e-2), (1e-1, 1e-3), (1e-4, None)], fast=[(1e-2, 1e-2)]))
def test_fit_equals_scikit_learn(digits, case):
    penalty, atol = case
    x, y = (a[:300] for a in digits[0])
    reference = LogisticRegression(C=1 / (300 * penalty), tol=1e-8, max_iter=10000).fit(x.astype(float), y)
    found = fit_logistic(x, y, penalty, num_classes=10)

    def value(weights, intercept):
        logits = x @ weights + intercept
        logits -= logits.max(1, keepdims=True)
        log_p = logits - np.log(np.exp(logits).sum(1, keepdims=True))
        return -log_p[np.arange(300), y].mean() + penalty / 2 * np.sum(weights**2)

    least = value(reference.coef_.T, reference.intercept_)
    assert least <= value(found[:-1], found[-1]) < least + 1e-5
    if atol is not None:  # gradient entries of 1e-5 leave weights uncertain by up to 1e-5 / penalty each
        np.testing.assert_allclose(found[:-1], reference.coef_.T, atol=atol)


def test_linear_probe_on_digits_pixels(digits):
    """Equals scikit-learn at the chosen penalty, which is 1e-3."""
    (accuracy,), penalty = linear_probe(*digits, num_classes=10)
    (x, y), (test, answer) = digits
    scale = StandardScaler().fit(x)
    reference = LogisticRegression(C=1 / (len(x) * penalty), max_iter=5000, tol=1e-6)
    reference.fit(scale.transform(x), y)
    assert abs(accuracy - reference.score(scale.transform(test), answer)) <= 1.01 / 360
    assert 0.95 < accuracy < 0.99


def test_linear_probe_chooses_the_penalty_on_the_training_split(rng):
    """Many noise features, few rows: the choice does not depend on the test labels."""
    y = np.repeat(np.arange(2), 30)
    x = rng.normal(size=(60, 200)).astype(np.float32)
    x[:, :20] += 0.5 * y[:, None]
    test, answer = x[:10], 1 - y[:10]  # deliberately wrong
    tests = (test, answer), (test, 1 - answer)
    (wrong, right), penalty = linear_probe((x, y), *tests, num_classes=2, penalties=(1.0, 1e-6))
    _, again = linear_probe((x, y), tests[1], num_classes=2, penalties=(1.0, 1e-6))
    assert penalty == again
    assert wrong < 0.2
    assert wrong + right == 1


def test_draws_are_class_balanced_and_depend_on_seed_and_labels_only(rng):
    y = rng.permutation(np.repeat(np.arange(4), 25))
    rows = draw_labels(y, num_classes=4, labels_per_class=5, draws=6, seed=3)
    assert rows.shape == (6, 20)
    for drawn in rows:
        np.testing.assert_array_equal(np.bincount(y[drawn]), [5, 5, 5, 5])
        assert len(set(drawn)) == 20
    assert len({tuple(drawn) for drawn in rows}) == 6
    np.testing.assert_array_equal(rows, draw_labels(y, num_classes=4, labels_per_class=5, draws=6, seed=3))
    assert (rows != draw_labels(y, num_classes=4, labels_per_class=5, draws=6, seed=4)).any()
    more = draw_labels(y, num_classes=4, labels_per_class=10, draws=8, seed=3)
    np.testing.assert_array_equal(more.reshape(8, 4, 10)[:6, :, :5].reshape(6, 20), rows)


def test_few_label_probe_on_digits_pixels_equals_scikit_learn(digits):
    (x, y), (test, answer) = digits
    found = few_label_probe(*digits, num_classes=10, labels_per_class=10, draws=3)
    scale = np.sqrt(np.mean(np.sum((x - x.mean(0)) ** 2, 1)))
    expected = []
    for rows in draw_labels(y, num_classes=10, labels_per_class=10, draws=3, seed=0):
        model = LogisticRegression(C=1 / (100 * 1e-4), max_iter=10000, tol=1e-7)
        model.fit((x[rows] - x.mean(0)) / scale, y[rows])
        expected.append(model.score((test - x.mean(0)) / scale, answer))
    np.testing.assert_allclose(found, expected, atol=1.01 / 360)


def test_bad_input(digits):
    (x, y), (test, answer) = ((a[:100], b[:100]) for a, b in digits)
    with pytest.raises(ValueError, match=r"must have 50 rows of every class, got \d+ of class 0"):
        few_label_probe((x, y), (test, answer), num_classes=10, labels_per_class=50)
    with pytest.raises(ValueError, match=r"train_labels must be in \[0, 5\), got 0 to 9"):
        linear_probe((x, y), (test, answer), num_classes=5)
    with pytest.raises(ValueError, match="and test_features must be equally wide, got 3 for test and 64"):
        linear_probe((x, y), (test[:, :3], answer), num_classes=10)
    gap = np.where(np.arange(64) + 64 * np.arange(100)[:, None] == 7, np.nan, x)
    with pytest.raises(ValueError, match="train_features must be finite: 1 are not"):
        linear_probe((gap, y), (test, answer), num_classes=10)
    with pytest.raises(ValueError, match="must have 5 rows of some class"):
        linear_probe((x[:4], np.arange(4)), (test, answer), num_classes=10)


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
