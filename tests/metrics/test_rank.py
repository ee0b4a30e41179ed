"""Ranks against closed forms and against numpy's eigenvalues."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mvcl.metrics import effective_rank, matrix_rank


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
