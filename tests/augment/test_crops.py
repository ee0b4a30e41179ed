"""Crops, on the host and on the device: boxes of the image, or of the image with reflected borders."""

import dataclasses

import jax
import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_sample_images

from mvcl import augment

PHOTOGRAPH = load_sample_images().images[0]
POLICY = augment.simclr(image_size=24)


def test_crops_are_deterministic():
    crops = augment.host_crop([PHOTOGRAPH], [POLICY] * 4, 1, 2, 3)
    assert [(crop.shape, crop.dtype) for crop in crops] == [((24, 24, 3), np.uint8)] * 4
    np.testing.assert_array_equal(augment.host_crop([PHOTOGRAPH] * 2, [POLICY] * 2, 1, 2, 3), crops[:2])
    places = [(0, 2, 3), (1, 3, 3), (1, 2, 4)]
    others = [augment.host_crop([PHOTOGRAPH], [POLICY] * 4, *place) for place in places]
    every = np.concatenate([crops, *others]).reshape(16, -1)
    assert len(np.unique(every, axis=0)) == 16


@pytest.mark.parametrize("device", [False, True])
def test_crops_are_boxes_of_the_image(device):
    """On ramps of x and y, a crop's mean colours give its centre and their spread its sides."""
    rows, columns = np.meshgrid(np.arange(200), np.arange(240), indexing="ij")
    ramp = np.stack([columns, rows, 0 * rows], -1).astype(np.uint8)
    policy = augment.Policy(
        image_size=10, crop_scale=(0.25, 0.5), flip_probability=0.0, jitter_probability=0.0
    )
    if device:
        draw = jax.jit(jax.vmap(lambda key: augment.apply_policy(policy, key, ramp)))
        crops = 255 * np.asarray(draw(jax.random.split(jax.random.key(0), 600)))
    else:
        crops = np.concatenate([augment.host_crop([ramp], [policy] * 4, 0, 0, i) for i in range(150)])
    crops = crops.astype(float)
    wide = (crops[:, 5, 8, 0] - crops[:, 5, 1, 0]) / 7 * 10
    tall = (crops[:, 8, 5, 1] - crops[:, 1, 5, 1]) / 7 * 10
    area = wide * tall / (200 * 240)
    assert abs(area.mean() - 0.375) < 0.015
    assert 0.23 < area.min() < area.max() < 0.52
    assert 0.72 < (wide / tall).min() < (wide / tall).max() < 1.4
    centre = crops[:, 4:6, 4:6, :2].mean((0, 1, 2))
    np.testing.assert_allclose(centre, [119.5, 99.5], atol=6)


def test_evaluation_and_one_channel():
    image = Image.fromarray(PHOTOGRAPH).convert("L")
    width, height = image.size
    half = 0.875 * min(width, height) / 2
    box = (width / 2 - half, height / 2 - half, width / 2 + half, height / 2 + half)
    expected = np.asarray(image.resize((32, 32), Image.Resampling.BICUBIC, box=box))
    crop = augment.host_crop([np.asarray(image)[..., None]], [augment.evaluation(image_size=32)], 0, 0, 0)
    assert crop[0].shape == (32, 32, 1)
    np.testing.assert_array_equal(crop[0][..., 0], expected)


def test_raises_on_bad_input():
    with pytest.raises(
        ValueError, match=r"image must be \(height, width, 1 or 3\) uint8, got \(5, 5\) float64"
    ):
        augment.host_crop([np.zeros((5, 5))], [POLICY], 0, 0, 0)


PADDED = dataclasses.replace(
    augment.evaluation(image_size=12, mean=(0.0,), std=(1.0,)), random_crop=True, crop_padding=3
)


def places(image, crop):
    """Where a crop is in the padded image."""
    padded = np.pad(image, ((3, 3), (3, 3), (0, 0)), mode="reflect")
    return [
        (i, j)
        for i in range(7)
        for j in range(7)
        if np.allclose(padded[i : i + 12, j : j + 12], crop, atol=1e-3)
    ]


@pytest.mark.parametrize(("channels", "device"), [(1, False), (3, False), (3, True)])
def test_padded_crops_are_windows_of_the_reflected_image(rng, channels, device):
    image = rng.integers(0, 256, (12, 12, channels), np.uint8)
    draw = jax.jit(lambda epoch: augment.apply_policy(PADDED, augment.view_key(0, epoch, 5, 0), image) * 255)
    host = lambda epoch: augment.host_crop([image], [PADDED], 0, epoch, 5)[0]  # noqa: E731
    found = [places(image, np.asarray((draw if device else host)(epoch))) for epoch in range(60)]
    assert all(len(place) == 1 for place in found)
    assert len({place[0] for place in found}) > 30  # of 49, each as likely as another
    assert {axis for place in found for axis in place[0]} == set(range(7))
