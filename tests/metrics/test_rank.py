"""Ranks against closed forms and against numpy's eigenvalues."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mvcl.metrics import effective_rank, lidar, matrix_rank


def test_effective_rank_of_orthonormal_rows_is_their_number():
    np.testing.assert_allclose(effective_rank(np.eye(6, 9, dtype=np.float32)), 6, rtol=1e-4)


def test_effective_rank_of_two_known_singular_values(x64):
    """sigma = 3, 1: the exponential entropy of (3/4, 1/4), plus the 1e-7 of RankMe."""
    p = np.array([0.75, 0.25]) + 1e-7
    z = np.zeros((5, 4))
    z[0, 1], z[3, 2] = 3, -1
    zeros = 2 * 1e-7 * np.log(1e-7)  # the two singular values that vanish
    np.testing.assert_allclose(effective_rank(z), np.exp(-np.sum(p * np.log(p)) - zeros), rtol=1e-12)


@pytest.mark.parametrize("shape", [(40, 7), (7, 40)])
def test_effective_rank_from_the_eigenvalues_of_the_gram_matrix(x64, rng, shape):
    z = rng.normal(size=shape) + 3  # not centred
    small = z.T @ z if shape[0] > shape[1] else z @ z.T
    sigma = np.sqrt(np.linalg.eigvalsh(small))
    p = sigma / sigma.sum() + 1e-7
    np.testing.assert_allclose(effective_rank(z), np.exp(-np.sum(p * np.log(p))), rtol=1e-9)


def test_effective_rank_does_not_depend_on_scale_and_falls_when_features_collapse(rng):
    z = rng.normal(size=(64, 8)).astype(np.float32)
    np.testing.assert_allclose(effective_rank(z), effective_rank(1e-3 * z), rtol=1e-4)
    collapsed = np.outer(rng.normal(size=64), rng.normal(size=8)).astype(np.float32)
    np.testing.assert_allclose(effective_rank(collapsed), 1, atol=1e-4)
    np.testing.assert_allclose(effective_rank(np.zeros((4, 3), np.float32)), 1, atol=1e-4)


def test_matrix_rank_counts_the_eigenvalues_of_the_covariance_above_the_tolerance(x64, rng):
    basis, _ = np.linalg.qr(rng.normal(size=(6, 6)))
    z = rng.normal(size=(200, 6)) * np.sqrt([10, 1, 1e-3, 3e-5, 3e-6, 0]) @ basis + 5
    eigenvalues = np.linalg.eigvalsh(np.cov(z.T))
    for tolerance in (1e-5, 1e-4, 0.1, 100):
        assert matrix_rank(z, tolerance=tolerance) == np.sum(eigenvalues > tolerance)
    assert matrix_rank(z) == np.sum(eigenvalues > 1e-5) == 4


def test_matrix_rank_in_float32_beside_a_large_eigenvalue(rng):
    """The covariance in float32 has rounding errors above 1e-5 here, so it seems to have more rank."""
    z = np.zeros((100, 6))
    z[:, 0] = 1e3 * rng.normal(size=100)
    z[:, 1] = 1e-2 * rng.normal(size=100)
    basis, _ = np.linalg.qr(rng.normal(size=(6, 6)))
    z = (z @ basis).astype(np.float32)
    assert matrix_rank(z) == 2
    covariance = np.cov(z.T, dtype=np.float32)
    assert np.sum(np.linalg.svd(covariance, compute_uv=False) > 1e-5) > 2
    assert matrix_rank(np.ones((9, 4), np.float32)) == 0
    assert matrix_rank(np.outer(np.arange(9), np.ones(4)).astype(np.float32)) == 1


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


@pytest.mark.parametrize(("k", "n", "d"), [(2, 30, 5), (5, 4, 9), (3, 12, 12), (2, 2, 1)])
def test_lidar_equals_the_loop(x64, rng, k, n, d):
    shared = rng.normal(size=(1, n, d)) * np.geomspace(3, 0.1, d)
    z = shared + 0.3 * rng.normal(size=(k, n, d)) + 5
    for delta in (1e-4, 0.5):
        np.testing.assert_allclose(lidar(z, delta), lidar_by_hand(z, delta), rtol=1e-9)
    assert abs(lidar(z) - lidar(z, 0.5)) > 1e-3 or d == 1


@pytest.mark.parametrize("offset", [0, 300])
def test_lidar_in_float32(rng, offset):
    """Variances from 1 to 1e-6 within and between instances, some far from zero."""
    basis, _ = np.linalg.qr(rng.normal(size=(16, 16)))
    scale = np.geomspace(1, 1e-3, 16)
    z = (rng.normal(size=(1, 200, 16)) + 0.5 * rng.normal(size=(4, 200, 16))) * scale @ basis + offset
    z = z.astype(np.float32)
    for delta in (1e-4, 1e-6):
        expected = lidar_by_hand(z.astype(np.float64), delta)
        np.testing.assert_allclose(lidar(z, delta), expected, rtol=1e-2 if offset else 1e-4)
    assert lidar(z).dtype == jnp.float32


def test_lidar_of_coinciding_views_is_the_rank_of_the_means():
    """n orthonormal instances: S_w = delta I, and S_b has n - 1 equal eigenvalues."""
    z = np.broadcast_to(np.eye(6, 9, dtype=np.float32), (3, 6, 9))
    np.testing.assert_allclose(lidar(z), 5, rtol=1e-4)
    np.testing.assert_allclose(lidar(np.ones((3, 6, 9), np.float32)), 1, rtol=1e-4)


def test_lidar_does_not_count_directions_of_augmentation(rng):
    """10 directions tell instances apart, in 10 more only the views of an instance differ."""
    z = np.concatenate(
        [np.broadcast_to(rng.normal(size=(1, 300, 10)), (8, 300, 10)), rng.normal(size=(8, 300, 10))],
        axis=-1,
    ).astype(np.float32)
    z[..., :10] += 0.1 * rng.normal(size=(8, 300, 10))
    assert lidar(z) < 11
    assert effective_rank(z[0]) > 19


def test_lidar_arguments(rng):
    z = rng.normal(size=(3, 8, 4)).astype(np.float32)
    np.testing.assert_allclose(jax.jit(lidar)(z), lidar(z), rtol=1e-5)
    half = lidar(jnp.asarray(z, jnp.bfloat16))
    assert half.dtype == jnp.float32
    np.testing.assert_allclose(half, lidar(z), rtol=3e-2)
    assert np.isnan(lidar(np.where(z == z[1, 2, 3], np.nan, z)))
    with pytest.raises(
        ValueError, match=r"z must have shape \(k, n, d\) with k >= 2 and n >= 2, got \(1, 8, 4\)"
    ):
        lidar(z[:1])
    with pytest.raises(ValueError, match="delta must be positive, got 0"):
        lidar(z, 0)


def test_jit_and_half_precision(rng):
    z = rng.normal(size=(32, 6)).astype(np.float32)
    np.testing.assert_allclose(jax.jit(effective_rank)(z), effective_rank(z), rtol=1e-5)
    half = effective_rank(jnp.asarray(z, jnp.bfloat16))
    assert half.dtype == jnp.float32
    np.testing.assert_allclose(half, effective_rank(z), rtol=1e-2)
    assert jax.jit(matrix_rank)(z) == 6


@pytest.mark.parametrize("function", [effective_rank, matrix_rank])
def test_bad_input(function):
    with pytest.raises(ValueError, match=r"z must have shape \(n, d\).* got \(2, 3, 4\)"):
        function(np.ones((2, 3, 4), np.float32))
    with pytest.raises(ValueError, match="z must have a floating dtype, got int32"):
        function(np.ones((3, 4), np.int32))
    with pytest.raises(ValueError, match=r"n >= 2, got \(1, 4\)"):
        matrix_rank(np.ones((1, 4), np.float32))
