"""Crops of the image's own size after its borders are reflected."""

import dataclasses

import jax
import numpy as np
import pytest

from mvcl import augment

POLICY = dataclasses.replace(
    augment.evaluation(image_size=12, mean=(0.0,), std=(1.0,)), random_crop=True, crop_padding=3
)


def places(image, crop):
    """Where a crop is in the padded image."""
    padded = np.pad(image, ((3, 3), (3, 3), (0, 0)), mode="reflect")
    return [
        (i, j)
        for i in range(7)
        for j in range(7)
        if np.allclose(padded[i : i + 12, j : j + 12], crop, atol=1e-6)
    ]


def test_crops_are_windows_of_the_reflected_image(rng):
    image = rng.random((12, 12, 3), np.float32)
    draw = jax.jit(lambda key: augment.apply_policy(POLICY, key, image))
    found = [places(image, np.asarray(draw(jax.random.key(i)))) for i in range(60)]
    assert all(len(place) == 1 for place in found)
    assert len({place[0] for place in found}) > 30  # of 49, each as likely as another
    assert {axis for place in found for axis in place[0]} == set(range(7))


@pytest.mark.parametrize("channels", [1, 3])
def test_host_crops_are_windows_too(rng, channels):
    image = rng.integers(0, 256, (12, 12, channels), np.uint8)
    found = [places(image, augment.host_crop(image, [POLICY], 0, epoch, 5)[0]) for epoch in range(40)]
    assert all(len(place) == 1 for place in found)
    assert len({place[0] for place in found}) > 20
    again = augment.host_crop(image, [POLICY], 0, 3, 5)
    np.testing.assert_array_equal(again, augment.host_crop(image, [POLICY], 0, 3, 5))
