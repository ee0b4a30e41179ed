"""Policies: published parameters, overrides, errors."""

import dataclasses

import pytest

from mvcl import augment

JITTER = ("brightness", "contrast", "saturation", "hue")
IMAGENET = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}  # Shidani 2024, F.1; Piran 2024
SHARED = IMAGENET | {
    "image_size": 224,
    "crop_scale": (0.08, 1.0),
    "crop_ratio": (3 / 4, 4 / 3),
    "flip_probability": 0.5,
    "jitter_probability": 0.8,
    "grayscale_probability": 0.2,
    "blur_probability": 0.5,
    "blur_sigma": (0.1, 2.0),
    "blur_kernel": 23,
    "solarise_probability": 0.0,
    "solarise_threshold": 0.5,
    "rand_augment_ops": 0,
}
SIMCLR = SHARED | dict(zip(JITTER, (0.8, 0.8, 0.8, 0.2)))
BYOL = SHARED | dict(zip(JITTER, (0.4, 0.4, 0.2, 0.1)))
MOCO = SHARED | dict(zip(JITTER, (0.4, 0.4, 0.4, 0.1))) | {"crop_scale": (0.2, 1.0), "blur_kernel": 0}
CIFAR = {"image_size": 32, "mean": (0.4914, 0.4822, 0.4465), "std": (0.2023, 0.1994, 0.2010)}
DIGITS = {"image_size": 8, "crop_scale": (0.5, 1.0), "flip_probability": 0.0, "mean": (0.0,), "std": (1.0,)}
PUBLISHED = {
    "simclr": SIMCLR,
    "byol_global1": BYOL | {"blur_probability": 1.0},
    "byol_global2": BYOL | {"blur_probability": 0.1, "solarise_probability": 0.2},
    "moco_v2": MOCO,
    # Jeon 2025, Section 5.1, with the strengths of the released train_moco_cifar_multiview.py
    "dsf": MOCO
    | CIFAR
    | {"rand_augment_ops": 2, "rand_augment_magnitude": 9.0, "rand_augment_probability": 0.5},
    "eval": IMAGENET | {"random_crop": False, "flip_probability": 0.0, "center_fraction": 0.875},
    "digits": DIGITS | dict(zip(JITTER, (0.4, 0.4, 0.0, 0.0))),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_policies_as_published(name):
    policy = dataclasses.asdict(augment.POLICIES[name]())
    assert {field: policy[field] for field in PUBLISHED[name]} == PUBLISHED[name]


def test_simclr_has_a_strength_and_a_kernel_of_a_tenth_of_the_image():
    half = augment.simclr(strength=0.5, image_size=32, blur_probability=0.0)
    assert [getattr(half, name) for name in JITTER] == [0.4, 0.4, 0.4, 0.1]
    assert (half.image_size, half.blur_probability, half.blur_kernel) == (32, 0.0, 3)


def test_raises_on_bad_input():
    for wrong, message in [
        ({"blur_probability": 1.5}, r"blur_probability must be in \[0, 1\], got 1.5"),
        ({"crop_scale": (0.5, 1.2)}, "crop_scale must be a positive range, smallest first, at most 1, got"),
        ({"crop_ratio": (2.0, 1.0)}, "crop_ratio must be a positive range, smallest first, got"),
        ({"image_size": 0}, "image_size must be at least 1, got 0"),
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
