"""Alignment, uniformity and ranks against loops and closed forms; the Wasserstein one an integral."""

import itertools
import math

import jax
import numpy as np
import pytest
from scipy import integrate, special

from mvcl import metrics
from mvcl.metrics import effective_rank, lidar
from tests.losses.brute_force import unit


def test_alignment(x64, rng):
    x, y = rng.normal(size=(2, 6, 3))
    u, v = unit(x), unit(y)
    for alpha in (1.0, 2.0, 3.0):
        expected = np.mean([np.linalg.norm(a - b) ** alpha for a, b in zip(u, v)])
        np.testing.assert_allclose(metrics.alignment(x, y, alpha), expected, rtol=1e-12)
    raw = np.mean([np.linalg.norm(a - b) ** 2 for a, b in zip(x, y)])
    np.testing.assert_allclose(metrics.alignment(x, y, normalize=False), raw, rtol=1e-12)
    assert np.isfinite(jax.grad(lambda x: metrics.alignment(x, x, 1.0))(x)).all()


def test_uniformity(x64, rng):
    x = rng.normal(size=(7, 3))
    u = unit(x)
    pairs = [np.sum((u[i] - u[j]) ** 2) for i in range(7) for j in range(7) if i != j]
    for t in (0.5, 2.0):
        expected = np.log(np.mean(np.exp(-t * np.array(pairs))))
        np.testing.assert_allclose(metrics.uniformity(x, t), expected, rtol=1e-12)
    np.testing.assert_allclose(metrics.uniformity(np.ones((5, 3))), 0, atol=1e-12)
    # Two opposite points: every distinct pair is at distance 2.
    np.testing.assert_allclose(metrics.uniformity(np.array([[1.0, 0], [-1, 0]])), -8, rtol=1e-12)


@pytest.mark.parametrize("d", [2, 16])
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


def test_effective_rank_of_two_known_singular_values(x64):
    """sigma = 3, 1: the exponential entropy of (3/4, 1/4), plus the 1e-7 of RankMe."""
    p = np.array([0.75, 0.25]) + 1e-7
    z = np.zeros((5, 4))
    z[0, 1], z[3, 2] = 3, -1
    zeros = 2 * 1e-7 * np.log(1e-7)  # the two singular values that vanish
    np.testing.assert_allclose(effective_rank(z), np.exp(-np.sum(p * np.log(p)) - zeros), rtol=1e-12)


def test_effective_rank_does_not_depend_on_scale_and_falls_when_features_collapse(rng):
    z = rng.normal(size=(64, 8)).astype(np.float32)
    np.testing.assert_allclose(effective_rank(z), effective_rank(1e-3 * z), rtol=1e-4)
    collapsed = np.outer(rng.normal(size=64), rng.normal(size=8)).astype(np.float32)
    np.testing.assert_allclose(effective_rank(collapsed), 1, atol=1e-4)
    np.testing.assert_allclose(effective_rank(np.zeros((4, 3), np.float32)), 1, atol=1e-4)


def lidar_by_hand(z, delta):
    """Loops over instances and views, and the inverse square root of the matrix."""
    k, n, d = z.shape
    m = z.mean(axis=(0, 1))
    between, within = np.zeros((d, d)), delta * np.eye(d)
    for i in range(n):
        mean = z[:, i].mean(0)
        between += np.outer(mean - m, mean - m) / (n - 1)
        for l in range(k):
            within += np.outer(z[l, i] - mean, z[l, i] - mean) / (n * (k - 1))
    values, vectors = np.linalg.eigh(within)
    root = vectors @ np.diag(values**-0.5) @ vectors.T
    eigenvalues = np.maximum(np.linalg.eigvalsh(root @ between @ root), 0)
    p = eigenvalues / eigenvalues.sum() + 1e-7
    return np.exp(-np.sum(p * np.log(p)))


@pytest.mark.parametrize(("k", "n", "d"), [(2, 30, 5), (5, 4, 9), (2, 2, 1)])
def test_lidar_equals_the_loop(x64, rng, k, n, d):
    shared = rng.normal(size=(1, n, d)) * np.geomspace(3, 0.1, d)
    z = shared + 0.3 * rng.normal(size=(k, n, d)) + 5
    for delta in (1e-4, 0.5):
        np.testing.assert_allclose(lidar(z, delta), lidar_by_hand(z, delta), rtol=1e-9)
    assert abs(lidar(z) - lidar(z, 0.5)) > 1e-3 or d == 1


def test_bad_arguments():
    x = np.ones((3, 4), np.float32)
    with pytest.raises(ValueError, match=r"z must have shape \(n, d\).* got \(2, 3, 4\)"):
        effective_rank(np.ones((2, 3, 4), np.float32))
    with pytest.raises(ValueError, match="z must have a floating dtype, got int32"):
        effective_rank(x.astype(np.int32))
    with pytest.raises(ValueError, match=r"n >= 2, got \(1, 4\)"):
        metrics.uniformity(x[:1])
    with pytest.raises(ValueError, match=r"alpha must be positive, got -1"):
        metrics.alignment(x, x, -1)
    assert math.isfinite(metrics.uniformity(0 * x))
