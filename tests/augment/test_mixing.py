"""Mixup, CutMix and erasing against numpy, and the distributions of their draws."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mvcl import augment


@pytest.fixture
def batch(rng):
    images = rng.normal(size=(5, 9, 14, 3)).astype(np.float32)
    return images, np.eye(4, dtype=np.float32)[[0, 1, 2, 3, 1]], np.array([3, 0, 1, 4, 2])


def test_mixup_blends_with_the_permuted_batch(batch):
    x, y, order = batch
    mixed, targets = augment.mixup(x, y, order, 0.3)
    for i, j in enumerate(order):
        np.testing.assert_allclose(mixed[i], 0.3 * x[i] + 0.7 * x[j], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(targets[i], 0.3 * y[i] + 0.7 * y[j], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("weight", "centre", "box"),
    [
        (0.75, (0.5, 0.5), (2, 6, 4, 10)),  # sides 4.5 and 7: halves 2 and 3 around row 4 and column 7
        (0.75, (0.0, 0.99), (0, 2, 10, 14)),  # cut by the upper right corner
        (0.0, (0.5, 0.5), (0, 8, 0, 14)),  # an odd side loses its last row to the halves
        (1.0, (0.3, 0.3), (0, 0, 0, 0)),
    ],
)
def test_cutmix_pastes_a_box_and_counts_its_pixels(batch, weight, centre, box):
    x, y, order = batch
    mixed, targets = augment.cutmix(x, y, order, weight, centre)
    upper, lower, left, right = box
    expected = x.copy()
    expected[:, upper:lower, left:right] = x[order][:, upper:lower, left:right]
    np.testing.assert_array_equal(mixed, expected)
    pasted = (lower - upper) * (right - left) / (9 * 14)
    np.testing.assert_allclose(targets, (1 - pasted) * y + pasted * y[order], atol=1e-6)


def test_random_mix_takes_each_half_the_time_with_a_beta_weight():
    # Constant images 0 and 1: a blend has one value, a paste has both.
    x = jnp.stack([jnp.zeros((8, 8, 1)), jnp.ones((8, 8, 1))])
    y = jnp.eye(2)
    keys = jax.random.split(jax.random.key(0), 600)
    mixed, targets = jax.vmap(lambda key: augment.random_mix(key, x, y, 0.8, 1.0))(keys)
    first = np.asarray(mixed)[:, 0, :, :, 0]
    blended = (first > 1e-6) & (first < 1 - 1e-6)
    is_blend = blended.all((1, 2))
    assert not (blended.any((1, 2)) & ~is_blend).any()
    # The permutation of two rows is the identity half the time.
    assert 0.15 < is_blend.mean() < 0.35
    np.testing.assert_allclose(np.asarray(targets)[:, 0, 1], first.mean((1, 2)), atol=1e-5)
    np.testing.assert_allclose(np.asarray(targets).sum(-1), 1, atol=1e-6)
    weights = 1 - np.asarray(targets)[is_blend, 0, 1]
    # Beta(a, a) has mean 1/2 and variance 1 / (4 (2 a + 1)).
    assert abs(weights.mean() - 0.5) < 4 * np.sqrt(1 / 10.4 / len(weights))
    assert abs(weights.var() - 1 / 10.4) < 0.03


def test_erases_a_rectangle_within_its_ranges():
    image = jnp.full((40, 60, 3), 7.0)
    keys = jax.random.split(jax.random.key(1), 400)
    erased = np.asarray(jax.vmap(lambda key: augment.random_erasing(key, image, 0.6))(keys))
    touched = (erased != 7).any(-1)
    assert abs(touched.any((1, 2)).mean() - 0.6) < 0.1
    for hole, view in zip(touched, erased):
        if not hole.any():
            continue
        rows, columns = np.flatnonzero(hole.any(1)), np.flatnonzero(hole.any(0))
        tall, wide = rows[-1] - rows[0] + 1, columns[-1] - columns[0] + 1
        assert hole.sum() == tall * wide  # nothing outside, everything inside
        # Sides are rounded to pixels, so the area by up to half a perimeter.
        assert 0.02 * 2400 - (tall + wide) < hole.sum() < 2400 / 3 + (tall + wide)
        assert 0.3 * (tall - 1) / (tall + 1) < tall / wide < (tall + 1) / (max(tall - 1, 0.5) * 0.3)
        assert (view[hole] != 7).all()
    noise = erased[touched]
    assert abs(noise.mean()) < 0.02
    assert abs(noise.std() - 1) < 0.02
