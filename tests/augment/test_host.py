"""Crops on the host: Pillow's resize of a box that depends on (seed, epoch, index, view) only."""

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_sample_images

from mvcl import augment

PHOTOGRAPH = load_sample_images().images[0]
POLICY = augment.policy("simclr", image_size=24)


def test_crops_are_deterministic():
    image = Image.fromarray(PHOTOGRAPH)
    crops = augment.host_crop(image, [POLICY] * 4, 1, 2, 3)
    assert [(crop.shape, crop.dtype) for crop in crops] == [((24, 24, 3), np.uint8)] * 4
    np.testing.assert_array_equal(augment.host_crop(PHOTOGRAPH, [POLICY] * 4, 1, 2, 3), crops)
    np.testing.assert_array_equal(augment.host_crop(image, [POLICY] * 2, 1, 2, 3), crops[:2])
    others = [augment.host_crop(image, [POLICY] * 4, *place) for place in [(0, 2, 3), (1, 3, 3), (1, 2, 4)]]
    every = np.concatenate([crops, *others]).reshape(16, -1)
    assert len(np.unique(every, axis=0)) == 16


def test_crops_are_boxes_of_the_image():
    """On ramps of x and y, a crop's mean colours give its centre and their spread its sides."""
    rows, columns = np.meshgrid(np.arange(200), np.arange(240), indexing="ij")
    ramp = np.stack([columns, rows, 0 * rows], -1).astype(np.uint8)
    policy = augment.policy("simclr", image_size=10, crop_scale=(0.25, 0.5))
    crops = np.concatenate([augment.host_crop(ramp, [policy] * 4, 0, 0, i) for i in range(150)]).astype(float)
    wide = (crops[:, 5, 8, 0] - crops[:, 5, 1, 0]) / 7 * 10
    tall = (crops[:, 8, 5, 1] - crops[:, 1, 5, 1]) / 7 * 10
    area = wide * tall / (200 * 240)
    assert abs(area.mean() - 0.375) < 0.015
    assert area.min() > 0.23
    assert area.max() < 0.52
    assert (wide / tall).min() > 0.72
    assert (wide / tall).max() < 1.4
    centre = crops[:, 4:6, 4:6, :2].mean((0, 1, 2))
    np.testing.assert_allclose(centre, [119.5, 99.5], atol=6)


def test_evaluation_and_one_channel():
    image = Image.fromarray(PHOTOGRAPH).convert("L")
    width, height = image.size
    half = 0.875 * min(width, height) / 2
    box = (width / 2 - half, height / 2 - half, width / 2 + half, height / 2 + half)
    expected = np.asarray(image.resize((32, 32), Image.Resampling.BICUBIC, box=box))
    crop = augment.host_crop(image, [augment.policy("eval", image_size=32)], 0, 0, 0)
    assert crop[0].shape == (32, 32, 1)
    np.testing.assert_array_equal(crop[0][..., 0], expected)
    assert augment.host_crop(image.convert("RGBA"), [POLICY], 0, 0, 0)[0].shape == (24, 24, 3)


def test_raises_on_bad_input():
    with pytest.raises(
        ValueError, match=r"image must be \(height, width, 1 or 3\) uint8, got \(5, 5\) float64"
    ):
        augment.host_crop(np.zeros((5, 5)), [POLICY], 0, 0, 0)
