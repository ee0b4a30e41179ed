"""Augmentation policies: a frozen dataclass of plain parameters, and published policies by name.

The published policies of colour images end with ImageNet's mean and deviation, as in MoCo's code (see `simclr`). Images
of one channel need one number each.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, Literal

from mvcl import _checks

IMAGENET_MEAN = (0.485, 0.456, 0.406)
"""Mean of ImageNet's pixels in [0, 1], by channel."""
IMAGENET_STD = (0.229, 0.224, 0.225)
"""Standard deviation of ImageNet's pixels in [0, 1], by channel."""
CIFAR_MEAN = (0.4914, 0.4822, 0.4465)
"""Mean of CIFAR-10's pixels in [0, 1], by channel."""
CIFAR_STD = (0.2023, 0.1994, 0.2010)
"""Standard deviation of CIFAR-10's pixels as most code has it, the mean of the images' own, by channel."""


# Pairs of positive numbers -> their upper bound; numbers -> their interval, beside probabilities.
_RANGES = {"crop_scale": 1, "erase_scale": 1, "crop_ratio": None, "blur_sigma": None}
_INTERVALS = dict.fromkeys(("image_size", "crop_padding", "blur_kernel", "rand_augment_ops"), "[0, inf)")
_INTERVALS |= dict.fromkeys(("brightness", "contrast", "saturation", "rand_augment_deviation"), "[0, inf)")
_INTERVALS |= {"hue": "[0, 0.5]", "rand_augment_magnitude": "[0, 30]", "center_fraction": "(0, 1]"}


@dataclasses.dataclass(frozen=True)
class Policy:
    """An augmentation policy: crop, flip, RandAugment, jitter, grayscale, blur, solarise, erase, in this order.

    Probabilities are in [0, 1]; a step with probability or strength 0 is not compiled. Of the colour operations, only
    brightness and contrast change images of one channel.
    """

    image_size: int = 224
    """Side of the square view, pixels. 0, of `views.policy` of a run: that of the images, the median of their shorter
    sides, at most 224; views of at most 64 pixels are then not blurred."""
    random_crop: bool = True
    """Random crop (crop_scale, crop_ratio); False: central square (center_fraction)."""
    crop_scale: tuple[float, float] = (0.08, 1.0)
    """Smallest and largest area of a random crop, as a share of the image's."""
    crop_ratio: tuple[float, float] = (3 / 4, 4 / 3)
    """Smallest and largest width / height of a random crop."""
    crop_padding: int = 0
    """Reflect the borders by this many pixels and crop the image's size at a random place, instead of crop_scale and
    crop_ratio; 0: random resized crops."""
    center_fraction: float = 0.875
    """Side of the central crop, as a share of the image's shorter side."""
    exact_crops: bool = False
    """Random crops of images of different sizes, made on the host, are of the whole image, as Pillow's; else of an
    image that is first reduced by whole numbers, where 3 pixels are left for one of the crop along each side."""
    flip_probability: float = 0.5
    """Probability of a horizontal flip."""
    rand_augment_ops: int = 0
    """Number of consecutive RandAugment operations; 0 for none."""
    rand_augment_magnitude: float = 9.0
    """RandAugment magnitude, 0 to 30 as torchvision counts; the 9 of 10 of Cubuk's code and of timm is 27."""
    rand_augment_deviation: float = 0.0
    """Standard deviation of the magnitude, drawn for each operation and clipped to [0, 30]; timm's 0.5 is 1.5."""
    rand_augment_kind: Literal["torchvision", "timm"] = "torchvision"
    """Operations: torchvision's; or timm's 15 of DeiT's code, each applied with probability 1/2 (`rand_augment_op`)."""
    rand_augment_probability: float = 1.0
    """Probability of RandAugment, all its operations together."""
    jitter_probability: float = 0.8
    """Probability of changing brightness, contrast, saturation and hue, in random order."""
    brightness: float = 0.0
    """Brightness is scaled by a factor in [1 - this, 1 + this], not below 0."""
    contrast: float = 0.0
    """Contrast is scaled by a factor in [1 - this, 1 + this], not below 0."""
    saturation: float = 0.0
    """Saturation is scaled by a factor in [1 - this, 1 + this], not below 0."""
    hue: float = 0.0
    """Hue is rotated by [-this, this] of a full turn; at most 0.5."""
    grayscale_probability: float = 0.0
    """Probability of replacing the colours by their luma."""
    blur_probability: float = 0.0
    """Probability of a Gaussian blur."""
    blur_sigma: tuple[float, float] = (0.1, 2.0)
    """Smallest and largest standard deviation of the blur, pixels."""
    blur_kernel: int = 0
    """Odd size of the blur's kernel, pixels; 0 for Pillow's GaussianBlur, whose size follows sigma."""
    solarise_probability: float = 0.0
    """Probability of inverting the pixels at or above solarise_threshold."""
    solarise_threshold: float = 0.5
    """Threshold of solarising, in [0, 1]."""
    mean: tuple[float, ...] = (0.0,)
    """Subtracted at the end; one number, or one per channel."""
    std: tuple[float, ...] = (1.0,)
    """Divided by at the end; one number, or one per channel."""
    erase_probability: float = 0.0
    """Probability of replacing a random rectangle of the normalised view with noise."""
    erase_scale: tuple[float, float] = (0.02, 1 / 3)
    """Smallest and largest area of that rectangle, as a share of the view's."""

    def __post_init__(self) -> None:
        shares = [field.name for field in dataclasses.fields(self) if field.name.endswith("_probability")]
        _checks.fields("policy", self, **_INTERVALS, **dict.fromkeys(shares, "[0, 1]"))
        for name, most in _RANGES.items():
            pair = getattr(self, name)
            if len(pair) != 2 or not 0 < pair[0] <= pair[1] or (most is not None and pair[1] > most):
                bound = f", at most {most}" if most is not None else ""
                raise ValueError(f"{name} must be a positive range, smallest first{bound}, got {pair}")
        if self.blur_kernel and self.blur_kernel % 2 == 0:
            raise ValueError(f"blur_kernel must be odd, or 0, got {self.blur_kernel}")
        for name, numbers in (("mean", self.mean), ("std", self.std)):
            if len(numbers) not in (1, 3) or (name == "std" and min(numbers) <= 0):
                what = "one positive number" if name == "std" else "one number"
                raise ValueError(f"{name} must be {what}, or one for each of 1 or 3 channels, got {numbers}")


# Of a policy without these steps; the published ones have some of them.
_PROBABILITIES = [f"{step}_probability" for step in ("flip", "grayscale", "blur", "solarise", "erase")]
_PLAIN: dict[str, Any] = {"crop_padding": 0, "rand_augment_ops": 0, **dict.fromkeys(_PROBABILITIES, 0.0)}
_IMAGENET: dict[str, Any] = {"mean": IMAGENET_MEAN, "std": IMAGENET_STD}


def simclr(strength: float = 1.0, image_size: int = 224, **overrides: Any) -> Policy:
    """SimCLR (Chen 2020a, arXiv 2002.05709, Appendix A): `strength` scales the colour jitter.

    Normalised by ImageNet's mean and deviation, as Shidani 2024 (arXiv 2403.05490, Appendix F.1) and Piran 2024
    (Pseudocode 1) do. SimCLR's own code leaves images in [0, 1]: mean=(0.0,), std=(1.0,). For CIFAR-10 SimCLR has
    strength 0.5 and no blur (Appendix B.9): simclr(0.5, image_size=32, blur_probability=0.0).
    """
    published = {
        **_PLAIN,
        "image_size": image_size,
        "random_crop": True,  # paper, A
        "crop_scale": (0.08, 1.0),  # paper, A
        "crop_ratio": (3 / 4, 4 / 3),  # paper, A
        "flip_probability": 0.5,  # paper, A
        "jitter_probability": 0.8,  # paper, A
        **dict.fromkeys(("brightness", "contrast", "saturation"), 0.8 * strength),  # paper, A
        "hue": min(0.2 * strength, 0.5),  # paper, A
        "grayscale_probability": 0.2,  # paper, A
        "blur_probability": 0.5,  # paper, A
        "blur_sigma": (0.1, 2.0),  # paper, A
        "blur_kernel": 2 * (image_size // 20) + 1,  # paper, A: a tenth of the image; odd: ours
        **_IMAGENET,
    }
    return Policy(**{**published, **overrides})


def byol_global1(image_size: int = 224, **overrides: Any) -> Policy:
    """BYOL's first view, T (Grill 2020, arXiv 2006.07733, Table 6): always blurred, never solarised.

    The authors add an offset for brightness; here it is a factor, as in the other policies.
    """
    # paper, Table 6 and B
    published = {"saturation": 0.2, "blur_probability": 1.0, "solarise_threshold": 0.5}
    return simclr(0.5, image_size, **{**published, **overrides})


def byol_global2(image_size: int = 224, **overrides: Any) -> Policy:
    """BYOL's second view, T' (Grill 2020, Table 6): blurred with probability 0.1, solarised with 0.2."""
    published = {"blur_probability": 0.1, "solarise_probability": 0.2}  # paper, Table 6
    return byol_global1(image_size, **{**published, **overrides})


def moco_v2(image_size: int = 224, **overrides: Any) -> Policy:
    """MoCo v2 (Chen 2020b, arXiv 2003.04297, and the authors' code, which blurs with Pillow)."""
    published = {"crop_scale": (0.2, 1.0), "blur_kernel": 0}  # released, main_moco.py and moco/loader.py
    return simclr(0.5, image_size, **{**published, **overrides})


def dsf(image_size: int = 32, **overrides: Any) -> Policy:
    """Jeon 2025 (arXiv 2507.06560, Section 5.1): MoCo v2's policy after RandAugment.

    The strengths are those of the authors' code for CIFAR, which applies two operations of magnitude 9 to each view
    with probability 1/2 and normalises with CIFAR-10's mean and deviation.
    """
    published = {
        **{"rand_augment_ops": 2, "rand_augment_magnitude": 9.0},  # released: two operations, magnitude 9
        **{"rand_augment_deviation": 0.0, "rand_augment_probability": 0.5},  # released: applied to half
        "rand_augment_kind": "torchvision",  # released
        **{"mean": CIFAR_MEAN, "std": CIFAR_STD},  # released
    }
    return moco_v2(image_size, **{**published, **overrides})


def evaluation(image_size: int = 224, **overrides: Any) -> Policy:
    """Deterministic: the central 7/8 of the shorter side, resized (224 of 256 in the papers). Named `eval`.

    Normalised by ImageNet's mean and deviation; pass those of the training policy if it has others. For images of size
    `image_size`, such as CIFAR's, center_fraction=1.0 keeps the whole image.
    """
    published = {
        **_PLAIN,
        "image_size": image_size,
        "random_crop": False,  # papers: no augmentation
        "center_fraction": 0.875,  # papers: 224 of 256
        "jitter_probability": 0.0,  # papers: no augmentation
        **_IMAGENET,
    }
    return Policy(**{**published, **overrides})


def digits(image_size: int = 8, **overrides: Any) -> Policy:
    """For 8x8 handwritten digits: crops of at least half the area, brightness and contrast; no flip.

    Views stay in [0, 1]; images have one channel.
    """
    published = {
        **_PLAIN,
        "image_size": image_size,
        "random_crop": True,  # ours
        "crop_scale": (0.5, 1.0),  # ours
        "crop_ratio": (3 / 4, 4 / 3),  # ours
        "jitter_probability": 0.8,  # ours
        **{"brightness": 0.4, "contrast": 0.4, "saturation": 0.0, "hue": 0.0},  # ours: one channel
        **{"mean": (0.0,), "std": (1.0,)},  # ours
    }
    return Policy(**{**published, **overrides})


POLICIES: dict[str, Callable[..., Policy]] = {
    **{policy.__name__: policy for policy in (simclr, byol_global1, byol_global2, moco_v2, dsf)},
    "eval": evaluation,
    "digits": digits,
}
"""Policies by the names that `views.policy:NAME` chooses."""
