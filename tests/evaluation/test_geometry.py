"""The geometry of the embeddings of k views, against loops of the definitions and trusted metrics."""

import jax
import numpy as np
import pytest

from mvcl import evaluation, metrics
from tests.losses import brute_force


def by_hand(views, present):
    """alignment, positive and negative cosines (k, k), by loops over instances."""
    k, n, unit = len(views), len(views[0]), brute_force.unit(views)
    alignment, positive, negative = np.full((3, k, k), np.nan)
    for l in range(k):
        for m in range(k):
            own = [i for i in range(n) if present[i, l] and present[i, m]]
            apart = [(i, j) for i in range(n) for j in range(n) if i != j and present[i, l] and present[j, m]]
            negative[l, m] = np.mean([unit[l][i] @ unit[m][j] for i, j in apart])
            if l != m:
                positive[l, m] = np.mean([unit[l][i] @ unit[m][i] for i in own])
                alignment[l, m] = np.mean([np.sum((unit[l][i] - unit[m][i]) ** 2) for i in own])
    return alignment, positive, negative


def test_pairs_equal_the_loops(rng):
    views = rng.normal(size=(3, 12, 4)) + rng.normal(size=(1, 12, 4)) + 0.5
    present = rng.random((12, 3)) > 0.3
    found = evaluation.geometry(views, present=present)
    alignment, positive, negative = by_hand(views, present)
    np.testing.assert_allclose(found.alignment, alignment, rtol=1e-5)
    np.testing.assert_allclose(found.positive, positive, rtol=1e-5)
    np.testing.assert_allclose(found.negative, negative, rtol=1e-5)
    numbers = found.numbers()
    assert numbers["alignment"] == pytest.approx(np.nanmean(alignment), rel=1e-5)
    assert numbers["negative cosine"] == pytest.approx(np.mean(negative), rel=1e-5)
    assert found.rows["view 2"]["alignment"] == pytest.approx(np.nanmean(alignment[1]), rel=1e-5)
    assert found.rows["view 2"]["negative cosine"] == pytest.approx(negative[1, 1], rel=1e-5)


def test_each_view_has_the_trusted_measures(rng):
    trusted = (metrics.effective_rank, metrics.uniformity, metrics.lidar)
    effective_rank, uniformity, lidar = map(jax.jit, trusted)
    views = [rng.normal(size=(40, 6)) @ np.diag([1, 1, 1, 0.5, 0.1, 0]) for _ in range(2)]
    found = evaluation.geometry(views, names=("a", "b"))
    assert list(found.rows) == ["a", "b", "mean", "all views"]
    for x, row, spectrum in zip(views, found.rows.values(), found.spectra.values()):
        unit = brute_force.unit(x).astype(np.float32)
        assert row["rank"] == np.sum(np.linalg.eigvalsh(np.cov(unit.T, dtype=float)) > 1e-5) == 5
        assert row["effective rank"] == pytest.approx(float(effective_rank(unit)), rel=1e-4)
        assert row["uniformity, Gaussian"] == pytest.approx(float(uniformity(unit)), rel=1e-5)
        assert row["uniformity, Wasserstein"] == pytest.approx(metrics.wasserstein_uniformity(unit), rel=1e-4)
        singular = np.linalg.svd(unit.astype(float), compute_uv=False)
        np.testing.assert_allclose(spectrum["singular_values"], singular, atol=1e-6)
        covariance = np.sort(np.linalg.eigvalsh(np.cov(unit.astype(float).T)))[::-1]
        np.testing.assert_allclose(spectrum["eigenvalues"], covariance, atol=1e-9)
    unit = brute_force.unit(np.stack(views)).astype(np.float32)
    assert found.numbers()["LiDAR"] == pytest.approx(float(lidar(unit)), rel=1e-4)
    assert found.numbers()["rank"] == 5


def test_all_views_together_count_the_directions_of_each(rng):
    """Two views that use different directions: each has rank 2, together 4, and no vector is another's positive."""
    views = np.zeros((2, 50, 4))
    views[0, :, :2], views[1, :, 2:] = rng.normal(size=(2, 50, 2))
    numbers = evaluation.geometry(views).numbers()
    assert numbers["rank"] == 2
    assert numbers["all views: rank"] == 4
    assert numbers["all views: effective rank"] == pytest.approx(4, rel=0.02)
    numbers = evaluation.geometry(np.repeat(rng.normal(size=(1, 30, 5)), 3, axis=0)).numbers()
    # With positives among the pairs, coinciding views would look less uniform than one of them.
    for name in ("uniformity, Gaussian", "uniformity, Wasserstein"):
        assert numbers[f"all views: {name}"] == pytest.approx(numbers[name], rel=1e-5)
    assert numbers["alignment"] == 0


def test_histograms_count_all_pairs(rng):
    views = rng.normal(size=(2, 30, 3))
    found, unit = evaluation.geometry(views), brute_force.unit(views)
    edges = np.linspace(-1, 1, len(found.positives) + 1)
    np.testing.assert_array_equal(found.positives, np.histogram(np.sum(unit[0] * unit[1], -1), edges)[0])
    places = list(np.ndindex(2, 30))
    apart = [unit[l, i] @ unit[m, j] for l, i in places for m, j in places if i < j]
    np.testing.assert_array_equal(found.negatives, np.histogram(apart, edges)[0])


def test_missing_views_are_not_read(rng):
    views = rng.normal(size=(3, 40, 5))
    present = (np.arange(40)[:, None] + np.arange(3)) % 4 != 0  # as many of each view
    present[36:] = False
    gaps = np.where(present.T[:, :, None], views, np.nan)
    found, same = (evaluation.geometry(z, present=present) for z in (gaps, views))
    assert found.numbers() == same.numbers()
    assert [found.spectra[name]["vectors"] for name in found.names] == present.sum(0).tolist()
    alone = evaluation.geometry([views[1][present[:, 1]]]).rows["view 1"]
    for name in ("rank", "effective rank", "uniformity, Wasserstein", "negative cosine"):
        assert found.rows["view 2"][name] == pytest.approx(alone[name], rel=1e-6)
    lidar = jax.jit(metrics.lidar)(brute_force.unit(views)[:, present.all(1)].astype(np.float32))
    assert found.numbers()["LiDAR"] == pytest.approx(float(lidar), rel=1e-5)


def test_views_of_different_lengths_have_no_pairs(rng):
    found = evaluation.geometry([rng.normal(size=(20, d)) for d in (3, 4, 3)])
    assert list(found.rows) == ["view 1", "view 2", "view 3", "mean"]
    assert np.isfinite(found.alignment[0, 2])
    assert np.isnan(found.alignment[1]).all()
    assert np.isnan(found.negative[0, 1])
    assert np.isfinite(np.diag(found.negative)).all()
    assert "LiDAR" not in found.numbers()
    assert found.positives.sum() == 20


@pytest.mark.parametrize(
    ("views", "options", "message"),
    [
        ([], {}, "views must be arrays .* got none"),
        ([np.ones((3, 2)), np.ones((4, 2))], {}, r"the same n, got \(3, 2\), \(4, 2\)"),
        ([np.ones((1, 2))], {}, r"at least 2 instances each, got \[1\]"),
        ([np.full((3, 2), np.nan)], {}, "views must be finite, got NaN or infinite values in view 1"),
        ([np.ones((3, 2))], {"present": np.ones((3, 2))}, r"present must be \(3, 1\)"),
    ],
)
def test_raises_on_invalid_views(views, options, message):
    with pytest.raises(ValueError, match=message):
        evaluation.geometry(views, **options)
