"""Alignment, uniformity and cosines against loops; the Wasserstein distance against a numerical integral."""

import itertools
import math

import jax
import numpy as np
import pytest
from scipy import integrate, special

from mvcl import metrics


def unit(z):
    return z / np.linalg.norm(z, axis=-1, keepdims=True)


def test_alignment_and_cosines(x64, rng):
    x, y = rng.normal(size=(2, 6, 3))
    u, v = unit(x), unit(y)
    for alpha in (1.0, 2.0, 3.0):
        expected = np.mean([np.linalg.norm(a - b) ** alpha for a, b in zip(u, v)])
        np.testing.assert_allclose(metrics.alignment(x, y, alpha), expected, rtol=1e-12)
    raw = np.mean([np.linalg.norm(a - b) ** 2 for a, b in zip(x, y)])
    np.testing.assert_allclose(metrics.alignment(x, y, normalize=False), raw, rtol=1e-12)
    positive, negative = metrics.mean_cosines(x, y)
    np.testing.assert_allclose(positive, np.mean([a @ b for a, b in zip(u, v)]), rtol=1e-12)
    expected = np.mean([u[i] @ v[j] for i in range(6) for j in range(6) if i != j])
    np.testing.assert_allclose(negative, expected, rtol=1e-12)
    assert np.isfinite(jax.grad(lambda x: metrics.alignment(x, x, 1.0))(x)).all()


def test_uniformity(x64, rng):
    x = rng.normal(size=(7, 3))
    u = unit(x)
    pairs = [np.sum((u[i] - u[j]) ** 2) for i in range(7) for j in range(7) if i != j]
    for t in (0.5, 2.0):
        np.testing.assert_allclose(
            metrics.uniformity(x, t), np.log(np.mean(np.exp(-t * np.array(pairs)))), rtol=1e-12
        )
    np.testing.assert_allclose(metrics.uniformity(np.ones((5, 3))), 0, atol=1e-12)
    # Two opposite points: every distinct pair is at distance 2.
    np.testing.assert_allclose(metrics.uniformity(np.array([[1.0, 0], [-1, 0]])), -8, rtol=1e-12)


@pytest.mark.parametrize("d", [2, 3, 16])
def test_wasserstein_distance_is_the_integral(x64, rng, d):
    x = rng.normal(size=(5, d)) + 0.5
    u = unit(x)
    cosines = np.sort([u[i] @ u[j] for i in range(5) for j in range(i)])
    shape = (d - 1) / 2

    def difference(c):
        law = special.betainc(shape, shape, (1 + c) / 2)
        return abs(np.searchsorted(cosines, c, side="right") / len(cosines) - law)

    points = np.concatenate([[-1], cosines, [1]])
    expected = sum(integrate.quad(difference, a, b, limit=200)[0] for a, b in itertools.pairwise(points))
    np.testing.assert_allclose(metrics.wasserstein_uniformity(x), expected, rtol=1e-5)


def test_wasserstein_distance_at_the_extremes():
    # All cosines 1, symmetric law: E|1 - c| = 1. Large for clusters, small for uniform points.
    np.testing.assert_allclose(metrics.wasserstein_uniformity(np.ones((6, 4), np.float32)), 1, rtol=1e-5)
    uniform = np.random.default_rng(0).normal(size=(400, 8)).astype(np.float32)
    assert metrics.wasserstein_uniformity(uniform) < 0.01


def test_bad_arguments():
    with pytest.raises(ValueError, match=r"x must have shape \(n, d\) with n >= 2, got \(1, 3\)"):
        metrics.uniformity(np.ones((1, 3), np.float32))
    with pytest.raises(ValueError, match=r"alpha must be positive, got -1"):
        metrics.alignment(np.ones((2, 3), np.float32), np.ones((2, 3), np.float32), -1)
    assert math.isfinite(metrics.uniformity(np.zeros((3, 2), np.float32)))
