"""Mutual information from determinants and from an enumerable distribution."""

import math

import jax
import numpy as np
import pytest

from mvcl import metrics


@pytest.mark.parametrize(("views", "ratio", "group"), [(2, 0.1, 1), (10, 50.0, 1), (5, 3.0, 2), (6, 3.0, 5)])
def test_gaussian_information_is_a_ratio_of_determinants(views, ratio, group):
    """Of two sets of views: Shidani 2024, Definition E.1."""

    def log_det(m):
        return np.linalg.slogdet(np.eye(m) + ratio * np.ones((m, m)))[1]

    expected = (log_det(group) + log_det(views - group) - log_det(views)) / 2
    np.testing.assert_allclose(metrics.gaussian_information(views, ratio, group), expected, rtol=1e-12)


@pytest.mark.parametrize(("instances", "views"), [(2, 16), (8, 4)])
def test_info_nce_bound_holds_in_the_gaussian_model(x64, rng, instances, views):
    """With the best score it is `expected_info_nce`, less than the truth; other scores give less."""
    ratio, batches = 4.0, 40_000 // instances
    truth = metrics.gaussian_information(views, ratio)
    shared = math.sqrt(ratio) * rng.normal(size=(batches, instances))
    x = shared + rng.normal(size=(views, batches, instances))
    rest = x[1:].mean(0)
    slope = (views - 1) * ratio / (1 + (views - 1) * ratio)  # E[x | the others] = slope * rest
    variance = 1 + ratio / (1 + (views - 1) * ratio)
    best = -((x[0][:, :, None] - slope * rest[:, None, :]) ** 2) / (2 * variance)
    values = metrics.info_nce_bound(best)
    expected = metrics.expected_info_nce(instances, truth, 40_000)
    np.testing.assert_allclose(values.mean(), expected, atol=5 * float(values.std()) / math.sqrt(batches))
    assert values.mean() < truth
    of_embeddings = np.stack([np.cos(x), np.sin(x)], axis=-1)
    other = jax.vmap(lambda z: metrics.info_nce_bound(metrics.group_scores(z, (0,), 0.5)), in_axes=1)
    assert other(of_embeddings).mean() < values.mean()


@pytest.mark.parametrize("critic", ["geometric", "arithmetic", "harmonic", 0.4, "sufficient_statistics"])
def test_group_scores_by_hand(x64, rng, critic):
    z = rng.normal(size=(5, 4, 3))
    unit = z / np.linalg.norm(z, axis=-1, keepdims=True)
    group, others, t = (1, 4), (0, 2, 3), 0.3
    found = metrics.group_scores(z, group, t, critic)
    for i, j in np.ndindex(4, 4):
        scores = np.array([unit[a, i] @ unit[b, j] / t for a in group for b in others])
        a, b = unit[list(group), i].mean(0), unit[list(others), j].mean(0)
        expected = {
            "geometric": scores.mean(),
            "arithmetic": np.log(np.mean(np.exp(scores))),
            "harmonic": -np.log(np.mean(np.exp(-scores))),
            "sufficient_statistics": a @ b / np.linalg.norm(a) / np.linalg.norm(b) / t,
            0.4: np.log(np.mean(np.exp(0.4 * scores))) / 0.4,
        }[critic]
        np.testing.assert_allclose(found[i, j], expected, rtol=1e-10)


def test_nwj_bound_is_tight_at_the_density_ratio(x64):
    joint = np.array([[4, 1, 1], [1, 3, 2]])  # counts of (x, Y): an enumerable law
    p = joint / joint.sum()
    product = np.outer(p.sum(1), p.sum(0))
    score = 1 + np.log(p / product)
    truth = np.sum(p * np.log(p / product))
    together = np.repeat(score.ravel(), joint.ravel())
    apart = np.repeat(score.ravel(), np.rint(product * 144).astype(int).ravel())  # 144 = 12², so exact
    assert apart.size == 144
    np.testing.assert_allclose(metrics.nwj_bound(together, apart), truth, rtol=1e-12)
    assert metrics.nwj_bound(0.5 * together, 0.5 * apart) < truth


def test_generalized_nwj_bound_is_equation_5(x64, rng):
    joint, product = rng.normal(size=7), rng.normal(size=(3, 5))
    expected = joint.mean() - np.exp(product).mean() + 1
    np.testing.assert_allclose(metrics.generalized_nwj_bound(joint, product), expected, rtol=1e-12)


@pytest.mark.parametrize(("equation", "expected"), [(154, 90.5), (155, 65.0)])
def test_optimal_multiplicity_as_printed(equation, expected):
    found = metrics.optimal_multiplicity(8192, math.log(2), equation)
    np.testing.assert_allclose(found, expected, atol=0.05)
    # The maximum of log(B - M + 1) + log l(M) over a fine grid.
    m, p = np.linspace(2, 400, 400_001), 0.5
    likelihood = p + (1 - p) * (m - 2) / m if equation == 154 else 1 - (1 - p) / (m - 1)
    np.testing.assert_allclose(found, m[np.argmax(np.log(8192 - m + 1) + np.log(likelihood))], atol=2e-3)


def test_best_gaussian_multiplicity_weighs_views_against_instances():
    candidates = (2, 4, 8, 16, 32)
    found = metrics.best_gaussian_multiplicity(64, 4.0, candidates)

    def value(m):
        return metrics.expected_info_nce(64 // m, metrics.gaussian_information(m, 4.0), 100_000, seed=1)

    assert found == max(candidates, key=value)


def test_bad_arguments():
    with pytest.raises(ValueError, match=r"views must be a whole number >= 2, got 1"):
        metrics.gaussian_information(1, 1.0)
    with pytest.raises(ValueError, match=r"group must be less than views = 3, got 3"):
        metrics.gaussian_information(3, 1.0, 3)
    with pytest.raises(ValueError, match=r"scores must have shape \(\.\.\., K, K\), K >= 2, got \(3, 2\)"):
        metrics.info_nce_bound(np.zeros((3, 2)))
    for group in ((), (0, 1, 2), (3,), (0, 0)):
        with pytest.raises(ValueError, match=r"group must be some of the views 0 to 2, got"):
            metrics.group_scores(np.ones((3, 4, 2)), group)
    with pytest.raises(ValueError, match=r"equation must be 154 or 155, got 156"):
        metrics.optimal_multiplicity(64, 1.0, 156)
    with pytest.raises(ValueError, match=r"candidates must be in \[2, 32\], got \(2, 33\)"):
        metrics.best_gaussian_multiplicity(64, 1.0, (2, 33))
