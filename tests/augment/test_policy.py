"""Policies: published parameters, overrides, errors."""

import dataclasses

import jax
import numpy as np
import pytest

from mvcl import augment

JITTER = ("brightness", "contrast", "saturation", "hue")
SHARED = {
    "crop_ratio": (3 / 4, 4 / 3),
    "flip_probability": 0.5,
    "jitter_probability": 0.8,
    "blur_sigma": (0.1, 2.0),
}
SHARED |= {"grayscale_probability": 0.2, "solarise_threshold": 0.5}
BYOL = {**SHARED, **dict(zip(JITTER, (0.4, 0.4, 0.2, 0.1))), "image_size": 224, "blur_kernel": 23}
MOCO = {**SHARED, **dict(zip(JITTER, (0.4, 0.4, 0.4, 0.1))), "crop_scale": (0.2, 1.0), "blur_kernel": 0}
PUBLISHED = {
    "simclr": SHARED
    | dict(zip(JITTER, (0.8, 0.8, 0.8, 0.2)))
    | {"image_size": 224, "crop_scale": (0.08, 1.0), "blur_probability": 0.5, "blur_kernel": 23}
    | {"solarise_probability": 0.0},
    "byol_global1": BYOL | {"blur_probability": 1.0, "solarise_probability": 0.0},
    "byol_global2": BYOL | {"blur_probability": 0.1, "solarise_probability": 0.2},
    "moco_v2": MOCO | {"image_size": 224, "blur_probability": 0.5, "rand_augment_ops": 0},
    # Jeon 2025, Section 5.1, with the strengths of the released train_moco_cifar_multiview.py
    "dsf": MOCO
    | {"image_size": 32, "blur_probability": 0.5, "rand_augment_ops": 2, "rand_augment_magnitude": 9.0}
    | {"rand_augment_probability": 0.5, "mean": (0.4914, 0.4822, 0.4465), "std": (0.2023, 0.1994, 0.2010)},
    "digits": {
        "image_size": 8,
        "crop_scale": (0.5, 1.0),
        "flip_probability": 0.0,
        "mean": (0.0,),
        "std": (1.0,),
    }
    | dict(zip(JITTER, (0.4, 0.4, 0.0, 0.0))),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_policies_as_published(name):
    policy = dataclasses.asdict(augment.policy(name))
    assert {field: policy[field] for field in PUBLISHED[name]} == PUBLISHED[name]


def test_simclr_has_a_strength_and_a_kernel_of_a_tenth_of_the_image():
    half = augment.policy("simclr", strength=0.5, image_size=32, blur_probability=0.0)
    assert [getattr(half, name) for name in JITTER] == [0.4, 0.4, 0.4, 0.1]
    assert (half.image_size, half.blur_probability, half.blur_kernel) == (32, 0.0, 3)


@pytest.mark.parametrize("name", ["simclr", "byol_global1", "byol_global2", "moco_v2", "eval"])
def test_policies_of_colour_images_normalise_by_imagenet(name):
    """Shidani 2024, F.1; Piran 2024, Pseudocode 1. The mean colour becomes zero, one deviation above it one."""
    policy = augment.policy(name, image_size=6, jitter_probability=0.0, grayscale_probability=0.0)
    policy = dataclasses.replace(policy, solarise_probability=0.0, blur_probability=0.0)
    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    for image, expected in ((np.array(mean), 0.0), (np.array(mean) + std, 1.0)):
        flat = np.broadcast_to(image.astype(np.float32), (8, 8, 3))
        view = augment.apply_policy(policy, jax.random.key(0), flat)
        np.testing.assert_allclose(view, np.full((6, 6, 3), expected), atol=1e-5)
    raw = augment.policy(name, mean=(0.0,), std=(1.0,))
    assert (raw.mean, raw.std) == ((0.0,), (1.0,))


def test_raises_on_bad_input():
    with pytest.raises(
        ValueError, match=r"policy must be one of simclr, .* got 'simcrl' \(nearest: simclr\)"
    ):
        augment.policy("simcrl")
    with pytest.raises(ValueError, match=r"'digits' has no parameter 'brigthness' \(nearest: brightness\)"):
        augment.policy("digits", brigthness=0.1)
    for wrong, message in [
        ({"blur_probability": 1.5}, r"blur_probability must be in \[0, 1\], got 1.5"),
        ({"crop_scale": (0.5, 1.2)}, r"crop_scale must be a positive range, smallest first, at most 1, got"),
        ({"crop_ratio": (2.0, 1.0)}, r"crop_ratio must be a positive range, smallest first, got"),
        ({"image_size": 0}, r"image_size must be at least 1, got 0"),
        ({"hue": 0.6}, r"hue must be in \[0, 0.5\], got 0.6"),
        ({"blur_kernel": 4}, r"blur_kernel must be odd, or 0, got 4"),
        ({"std": (0.0,)}, r"std must be one positive number, or .* got"),
        (
            {"mean": (0.1, 0.2)},
            r"mean must be one number, or one for each of 1 or 3 channels, got \(0.1, 0.2\)",
        ),
        ({"contrast": -0.1}, r"contrast must be at least 0, got -0.1"),
        ({"center_fraction": 0.0}, r"center_fraction must be in \(0, 1\], got 0.0"),
        ({"rand_augment_probability": -0.5}, r"rand_augment_probability must be in \[0, 1\], got -0.5"),
        ({"rand_augment_magnitude": 31.0}, r"rand_augment_magnitude must be in \[0, 30\], got 31.0"),
    ]:
        with pytest.raises(ValueError, match=message):
            augment.Policy(**wrong)
