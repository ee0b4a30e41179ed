"""Rank, uniformity and alignment of embeddings with known values."""

import numpy as np
import pytest

from mvcl import evaluation, metrics


def values(z, **options):
    return {result.name: result.value for result in evaluation.embedding_measures(z, **options)}


def test_rank_counts_the_dimensions_in_use(rng):
    z = np.zeros((2, 300, 16))
    z[:, :, :5] = rng.normal(size=(2, 300, 5))
    found = values(z)
    # Five directions vary; that of the second view is one more.
    z[1, :, 5] = rng.normal(size=300)
    assert found["rank"] == 5
    assert values(z)["rank"] == 5.5
    assert values(7.0 * z) == pytest.approx(values(z), rel=1e-5)  # only directions matter


def test_alignment_is_the_mean_squared_distance(rng):
    z = rng.normal(size=(3, 20, 4))
    unit = z / np.linalg.norm(z, axis=-1, keepdims=True)
    pairs = [np.mean(np.sum((unit[l] - unit[m]) ** 2, -1)) for l, m in ((0, 1), (0, 2), (1, 2))]
    assert values(z)["alignment"] == pytest.approx(np.mean(pairs), rel=1e-5)
    alone = values(z[:1])
    assert alone["alignment"] is alone["LiDAR"] is None
    assert values(np.stack([z[0]] * 3))["alignment"] == 0


def test_lidar_is_that_of_unit_vectors(rng):
    z = rng.normal(size=(3, 50, 6)) + 4 * rng.normal(size=(1, 50, 6))
    unit = (z / np.linalg.norm(z, axis=-1, keepdims=True)).astype(np.float32)
    assert values(z)["LiDAR"] == pytest.approx(float(metrics.lidar(unit)), rel=1e-5)


def test_uniform_points_are_more_uniform_than_a_cone(rng):
    uniform = rng.normal(size=(1, 400, 8))
    cone = uniform + 3 * np.eye(8)[0]
    near, far = values(uniform), values(cone)
    for name in ("uniformity, Wasserstein", "uniformity, Gaussian"):
        assert near[name] < far[name]
    assert near["uniformity, Wasserstein"] < 0.02


def test_large_sets_are_sampled(rng, monkeypatch):
    monkeypatch.setattr("mvcl.evaluation._geometry.ROWS", 50)
    monkeypatch.setattr("mvcl.evaluation._embeddings.ROWS", 50)
    results = {r.name: r for r in evaluation.embedding_measures(rng.normal(size=(1, 80, 3)))}
    assert results["uniformity, Gaussian"].protocol.endswith("50 rows of 3 on the unit sphere, one view")
    assert "80 rows" in results["rank"].protocol


@pytest.mark.parametrize("z", [np.ones((3, 4)), np.ones((2, 1, 4)), np.full((2, 3, 4), np.nan)])
def test_raises_on_invalid_embeddings(z):
    with pytest.raises(ValueError, match=r"z must be \(k, n, d\) with n >= 2 and finite"):
        evaluation.embedding_measures(z)
