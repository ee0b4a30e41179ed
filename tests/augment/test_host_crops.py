"""Crops on the host are Pillow's: to the bit, or within a stated error where the image is reduced before."""

import dataclasses
import io

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_sample_images

from mvcl import augment
from mvcl.augment import _resample

CHINA = load_sample_images().images[0]  # 427 x 640
NOISE = np.random.default_rng(0).integers(0, 256, (427, 640, 3), np.uint8)


@pytest.mark.parametrize(
    ("mode", "width", "height", "box"),
    [
        ("RGB", 640, 427, (0, 0, 640, 427)),  # reduced in both directions
        ("RGB", 640, 427, (101, 7, 157, 90)),  # enlarged
        ("L", 640, 427, (320.25, 20.5, 470.75, 427)),  # between pixels, to a border
        ("RGB", 120, 427, (3, 30, 93, 420)),  # Pillow reduces the height first
        ("L", 50, 60, (0, 0, 50, 60)),  # smaller than a view
    ],
)
def test_compiled_crops_are_pillows_to_the_bit(mode, width, height, box):
    picture = Image.fromarray(NOISE[:height, :width]).convert(mode)
    image = np.asarray(picture).reshape(height, width, -1)
    (found,) = _resample.crops(image, lambda *_: [box], [160], exact=False)
    expected = picture.resize((160, 160), Image.Resampling.BICUBIC, box=box)
    np.testing.assert_array_equal(found, np.asarray(expected).reshape(found.shape))


@pytest.mark.parametrize("size", [(2300, 2000), (37, 53)])  # the first is in two blocks of Pillow's memory
@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_columns_are_a_pictures_pixels(size, mode):
    picture = Image.effect_noise(size, 50).convert(mode)
    columns = _resample._columns(picture)
    bytes_of = columns.view(np.uint8).reshape(*size, -1)[..., : len(picture.getbands())]
    np.testing.assert_array_equal(bytes_of.swapaxes(0, 1).squeeze(), np.asarray(picture))


def opened(image, kind):
    data = io.BytesIO()
    Image.fromarray(image).save(data, kind)
    return Image.open(data)


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
@pytest.mark.parametrize("image", [CHINA, NOISE], ids=["photograph", "noise"])
def test_reduced_crops_are_within_1_in_the_mean_and_8_of_255(image, kind):
    policy = augment.Policy(image_size=48, crop_scale=(0.6, 1.0))
    found = augment.host_crop([(opened(image, kind), "RGB")], [policy] * 2, 0, 0, 3)
    options = ([dataclasses.replace(policy, exact_crops=True)] * 2, 0, 0, 3)
    exact = augment.host_crop([(opened(image, kind), "RGB")], *options)
    np.testing.assert_array_equal(exact, augment.host_crop([np.asarray(opened(image, kind))], *options))
    error = np.abs(np.stack(found).astype(int) - np.stack(exact))
    assert 0 < error.mean() < 1
    assert error.max() <= 8


def test_images_are_decoded_at_the_scale_of_the_smallest_crop():
    picture = opened(CHINA, "JPEG")
    _resample.crops((picture, "RGB"), lambda *_: [(0, 0, 640, 427), (0, 0, 330, 400)], [32, 48], exact=False)
    assert picture.size == (320, 214)  # 330 pixels for 48 are two times 3 for one
