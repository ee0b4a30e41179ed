"""Mutual information from determinants and from an enumerable distribution."""

import math

import numpy as np
import pytest

from mvcl import metrics


@pytest.mark.parametrize("views", [2, 3, 10])
@pytest.mark.parametrize("ratio", [0.1, 1.0, 50.0])
def test_gaussian_information_is_a_ratio_of_determinants(views, ratio):
    def log_det(m):
        return np.linalg.slogdet(np.eye(m) + ratio * np.ones((m, m)))[1]

    expected = (log_det(1) + log_det(views - 1) - log_det(views)) / 2
    np.testing.assert_allclose(metrics.gaussian_information(views, ratio), expected, rtol=1e-12)
    assert metrics.gaussian_information(views, ratio) < math.log1p(ratio) / 2


def test_bounds():
    np.testing.assert_allclose(metrics.poly_view_bound(1.0, 8, 3), math.log(8 * 3 - 3 + 1) - 1, rtol=1e-6)
    np.testing.assert_allclose(metrics.multi_crop_bound(0.5, 8), math.log(8) - 0.5, rtol=1e-6)
    np.testing.assert_allclose(metrics.multi_crop_bound(0.5, 8, "nt_xent"), math.log(15) - 0.5, rtol=1e-6)
    gap = metrics.information_gap(0.2, 4, 2.0)
    np.testing.assert_allclose(gap, metrics.gaussian_information(4, 2.0) - 0.2, rtol=1e-6)


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


@pytest.mark.parametrize(("batch", "ratio"), [(8, 1.0), (64, 1e3), (64, 1e6), (100, 0.1), (16, 1e12)])
def test_optimal_multiplicity_equals_exhaustive_search(batch, ratio):
    values = {
        m: min(metrics.gaussian_information(m, ratio), math.log(batch - m + 1))
        for m in range(2, batch // 2 + 1)
    }
    best = max(values.values())
    found = metrics.optimal_multiplicity(batch, ratio)
    np.testing.assert_allclose(values[found], best, rtol=1e-12)


def test_relative_compute():
    assert metrics.relative_compute(2, 128) == 1
    assert metrics.relative_compute(8, 256) == 8


def test_bad_arguments():
    with pytest.raises(ValueError, match=r"views must be a whole number >= 2, got 1"):
        metrics.gaussian_information(1, 1.0)
    with pytest.raises(ValueError, match=r"variance_ratio must be positive, got 0"):
        metrics.gaussian_information(2, 0)
    with pytest.raises(ValueError, match=r"pair_loss must be one of 'info_nce', 'nt_xent', got 'dcl'"):
        metrics.multi_crop_bound(1.0, 4, "dcl")
