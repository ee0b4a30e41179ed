"""Policies: overrides and errors. The papers' pages have the published parameters."""

import pytest

from mvcl import augment

JITTER = ("brightness", "contrast", "saturation", "hue")


def test_simclr_has_a_strength_and_a_kernel_of_a_tenth_of_the_image():
    half = augment.simclr(strength=0.5, image_size=32, blur_probability=0.0)
    assert [getattr(half, name) for name in JITTER] == [0.4, 0.4, 0.4, 0.1]
    assert (half.image_size, half.blur_probability, half.blur_kernel) == (32, 0.0, 3)


def test_raises_on_bad_input():
    for wrong, message in [
        ({"blur_probability": 1.5}, r"blur_probability must be in \[0, 1\], got 1.5"),
        ({"crop_scale": (0.5, 1.2)}, "crop_scale must be a positive range, smallest first, at most 1, got"),
        ({"crop_ratio": (2.0, 1.0)}, "crop_ratio must be a positive range, smallest first, got"),
        ({"image_size": -1}, "image_size must be at least 0, got -1"),
        ({"hue": 0.6}, r"hue must be in \[0, 0.5\], got 0.6"),
        ({"blur_kernel": 4}, "blur_kernel must be odd, or 0, got 4"),
        ({"std": (0.0,)}, "std must be one positive number, or .* got"),
        ({"mean": (0.1, 0.2)}, "mean must be one number, or one for each of 1 or 3 channels, got"),
        ({"contrast": -0.1}, "contrast must be at least 0, got -0.1"),
        ({"center_fraction": 0.0}, r"center_fraction must be in \(0, 1\], got 0.0"),
        ({"rand_augment_magnitude": 31.0}, r"rand_augment_magnitude must be in \[0, 30\], got 31.0"),
    ]:
        with pytest.raises(ValueError, match=message):
            augment.Policy(**wrong)
