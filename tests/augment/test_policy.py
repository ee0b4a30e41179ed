"""Policies: published parameters, overrides, errors."""

import dataclasses

import jax
import numpy as np
import pytest
import tyro

from mvcl import augment


def test_simclr_as_published():
    policy = augment.policy("simclr")
    assert policy == augment.simclr(1.0)
    assert (policy.image_size, policy.crop_scale, policy.crop_ratio) == (224, (0.08, 1.0), (3 / 4, 4 / 3))
    assert (policy.flip_probability, policy.jitter_probability, policy.grayscale_probability) == (
        0.5,
        0.8,
        0.2,
    )
    assert (policy.brightness, policy.contrast, policy.saturation, policy.hue) == (0.8, 0.8, 0.8, 0.2)
    assert (policy.blur_probability, policy.blur_sigma, policy.blur_kernel) == (0.5, (0.1, 2.0), 23)
    assert policy.solarise_probability == 0
    half = augment.policy("simclr", strength=0.5, image_size=32, blur_probability=0.0)
    assert (half.brightness, half.hue, half.image_size, half.blur_probability) == (0.4, 0.1, 32, 0.0)
    assert augment.simclr(image_size=32).blur_kernel == 3


def test_byol_table_6():
    first, second = augment.policy("byol_global1"), augment.policy("byol_global2")
    for policy in (first, second):
        assert (policy.brightness, policy.contrast, policy.saturation, policy.hue) == (0.4, 0.4, 0.2, 0.1)
        assert (policy.jitter_probability, policy.grayscale_probability, policy.flip_probability) == (
            0.8,
            0.2,
            0.5,
        )
        assert (policy.blur_sigma, policy.blur_kernel, policy.solarise_threshold) == ((0.1, 2.0), 23, 0.5)
        assert policy.mean == augment.IMAGENET_MEAN
    assert (first.blur_probability, first.solarise_probability) == (1.0, 0.0)
    assert (second.blur_probability, second.solarise_probability) == (0.1, 0.2)


def test_moco_v2():
    policy = augment.policy("moco_v2")
    assert (policy.brightness, policy.contrast, policy.saturation, policy.hue) == (0.4, 0.4, 0.4, 0.1)
    assert (policy.crop_scale, policy.jitter_probability, policy.grayscale_probability) == (
        (0.2, 1.0),
        0.8,
        0.2,
    )
    assert (policy.blur_probability, policy.blur_sigma, policy.blur_kernel) == (0.5, (0.1, 2.0), 0)


def test_dsf():
    """Jeon 2025, Section 5.1, with the strengths of the released train_moco_cifar_multiview.py."""
    policy = augment.policy("dsf")
    assert (policy.rand_augment_ops, policy.rand_augment_magnitude, policy.rand_augment_probability) == (
        2,
        9.0,
        0.5,
    )
    assert policy.mean == (0.4914, 0.4822, 0.4465)
    assert policy.std == (0.2023, 0.1994, 0.2010)
    plain = {"rand_augment_ops": 0, "rand_augment_probability": 1.0}
    plain |= {"mean": augment.IMAGENET_MEAN, "std": augment.IMAGENET_STD}
    assert augment.policy("dsf", **plain) == augment.policy("moco_v2", image_size=32)


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


def test_the_command_line_shows_and_sets_every_field(capsys):
    policy = tyro.cli(
        augment.Policy, args=["--crop-scale", "0.2", "1.0", "--mean", "0.1", "0.2", "0.3", "--hue", "0.1"]
    )
    assert policy == augment.Policy(crop_scale=(0.2, 1.0), mean=(0.1, 0.2, 0.3), hue=0.1)
    with pytest.raises(SystemExit):
        tyro.cli(augment.Policy, args=["--help"])
    shown = " ".join(capsys.readouterr().out.replace("│", " ").split())
    for field in dataclasses.fields(augment.Policy):
        assert f"--{field.name.replace('_', '-')}" in shown
    assert "Probability of a horizontal flip" in shown


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
        ({"image_size": 0}, r"image_size must be at least 1 pixel, got 0"),
        ({"hue": 0.6}, r"hue must be in \[0, 0.5\], got 0.6"),
        ({"blur_kernel": 4}, r"blur_kernel must be odd, or 0, got 4"),
        ({"std": (0.0,)}, r"std must be positive, got"),
        ({"mean": (0.1, 0.2)}, r"must be one number, or one for each of 1 or 3 channels, got \(0.1, 0.2\)"),
        ({"contrast": -0.1}, r"contrast must be at least 0, got -0.1"),
        ({"center_fraction": 0.0}, r"center_fraction must be in \(0, 1\], got 0.0"),
        ({"rand_augment_probability": -0.5}, r"rand_augment_probability must be in \[0, 1\], got -0.5"),
        ({"rand_augment_magnitude": 31.0}, r"rand_augment_magnitude must be in \[0, 30\], got 31.0"),
    ]:
        with pytest.raises(ValueError, match=message):
            augment.Policy(**wrong)
