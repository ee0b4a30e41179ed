"""Rank, uniformity and alignment of embeddings with known values."""

import numpy as np
import pytest

from mvcl import evaluation


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


def test_large_sets_are_sampled(rng, monkeypatch):
    monkeypatch.setattr("mvcl.evaluation._geometry.ROWS", 50)
    results = {r.name: r for r in evaluation.embedding_measures(rng.normal(size=(1, 80, 3)))}
    assert results["uniformity, Gaussian"].protocol.endswith("50 rows of 3 on the unit sphere, one view")
    assert "80 rows" in results["rank"].protocol


@pytest.mark.parametrize("z", [np.ones((3, 4)), np.ones((2, 1, 4)), np.full((2, 3, 4), np.nan)])
def test_raises_on_invalid_embeddings(z):
    with pytest.raises(ValueError, match=r"z must be \(k, n, d\) with n >= 2 and finite"):
        evaluation.embedding_measures(z)
