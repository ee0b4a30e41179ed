"""Every operation at fixed parameters against Pillow, scipy or loops."""

import itertools
from functools import partial

import jax
import numpy as np
import pytest
from parametrize import some
from PIL import Image, ImageEnhance, ImageFilter, ImageOps
from scipy import ndimage
from sklearn.datasets import load_digits, load_sample_images

from mvcl import augment

CHINA = load_sample_images().images[0]
IMAGES = {
    "photograph": CHINA[100:260, 200:440],
    "small": np.asarray(Image.fromarray(CHINA).resize((32, 32))),
    "noise": np.random.default_rng(1).integers(0, 256, (40, 33, 3), dtype=np.uint8),
    "digit": np.round(load_digits().images[0] * (255 / 16)).astype(np.uint8)[..., None],
    "grey noise": np.random.default_rng(2).integers(0, 256, (11, 14, 1), dtype=np.uint8),
}
AFFINE = Image.Transform.AFFINE
each_image = pytest.mark.parametrize("name", some(["photograph", "noise", "digit"], fast=["noise", "digit"]))


def pillow(image):
    return Image.fromarray(image[..., 0] if image.shape[-1] == 1 else image)


def difference(ours, expected):
    """Largest difference in levels of 255."""
    assert ours.dtype == np.float32
    return np.abs(255 * np.float64(ours) - np.float64(expected).reshape(ours.shape)).max()


def grey(image):
    return image.convert("L").convert(image.mode)


def jitter(name):
    """One step of `color_jitter`: of an image and an amount."""
    return lambda image, amount: augment.color_jitter(image, np.arange(4), **{name: amount})


def rand_augment(name):
    """One operation of RandAugment: of an image, a magnitude and a sign."""
    return partial(augment.rand_augment_op, op=augment.RAND_AUGMENT.index(name))


def blurred(sigma):
    return lambda image: image.filter(ImageFilter.GaussianBlur(sigma))


ENHANCEMENTS = {
    "brightness": ImageEnhance.Brightness,
    "saturation": ImageEnhance.Color,
    "contrast": ImageEnhance.Contrast,
    "sharpness": ImageEnhance.Sharpness,
}


def enhanced(name, factor):
    return lambda image: ENHANCEMENTS[name](image).enhance(factor)


def all_enhanced(image, factor):
    return {name: enhanced(name, factor)(image) for name in ENHANCEMENTS}


JITTER = ("brightness", "contrast", "saturation")
# Operation, its parameters, Pillow's, and the largest difference in levels
OPERATIONS = [
    (augment.grayscale, {}, grey, 0.51),
    (rand_augment("autocontrast"), {"magnitude": 0}, ImageOps.autocontrast, 1.01),
    (rand_augment("equalize"), {"magnitude": 0}, ImageOps.equalize, 1e-4),
    (augment.solarise, {}, ImageOps.solarize, 1e-4),
    *[
        (augment.solarise, {"threshold": t / 255}, partial(ImageOps.solarize, threshold=t), 1e-4)
        for t in (0, 64, 255)
    ],
    *[
        (rand_augment("posterize"), {"magnitude": m}, partial(ImageOps.posterize, bits=b), 1e-4)
        for m, b in ((0, 8), (15, 6), (30, 4))
    ],
    *[(augment.gaussian_blur, {"sigma": s}, blurred(s), 1e-4) for s in (0.1, 0.5, 1.0, 1.7, 4.0, 12.0)],
    *[(jitter(name), {"amount": 1.0}, lambda image: image, 1e-4) for name in JITTER],
    *[(jitter(name), {"amount": f}, enhanced(name, f), 2) for name in JITTER for f in (0.0, 0.35, 1.8)],
]


@each_image
@pytest.mark.parametrize(("ours", "parameters", "theirs", "most"), OPERATIONS)
def test_operations_are_those_of_pillow(name, ours, parameters, theirs, most):
    image = IMAGES[name]
    assert difference(ours(image, **parameters), theirs(pillow(image))) <= most


@each_image
@pytest.mark.parametrize(
    ("box", "size"),
    [
        ((0, 0, 1, 1), 32),
        ((0.1, 0.05, 0.83, 0.71), (24, 40)),
        ((0.25, 0.5, 0.5, 0.75), 16),
        ((0, 0, 1, 1), (5, 7)),
        ((0.3, 0.0, 1, 0.4), (6, 50)),
    ],
)
def test_crop_and_resize_is_pillow_resize_of_a_box(name, box, size):
    image = IMAGES[name]
    height, width = image.shape[:2]
    box = tuple(float(b * side) for b, side in zip(box, (width, height, width, height)))
    rows, columns = (size, size) if isinstance(size, int) else size
    expected = pillow(image).resize((columns, rows), Image.Resampling.BICUBIC, box=box)
    for mirror, theirs in ((False, expected), (True, ImageOps.mirror(expected))):
        ours = augment.crop_and_resize(image, np.array(box), size, mirror=mirror)
        assert difference(ours, theirs) <= 2


@pytest.mark.parametrize("shift", [-0.5, -0.13, 0.0, 0.1, 0.37])
def test_hue_of_colours_on_a_grid(shift):
    levels = np.array([0, 1, 2, 50, 51, 84, 85, 86, 127, 128, 170, 200, 254, 255], np.uint8)
    grid = np.stack(np.meshgrid(levels, levels, np.arange(256, dtype=np.uint8), indexing="ij"), -1)
    grid = grid.reshape(len(levels) ** 2, 256, 3)
    h, s, v = pillow(grid).convert("HSV").split()
    turned = Image.fromarray(((np.asarray(h, np.int32) + int(shift * 255)) % 256).astype(np.uint8))
    expected = Image.merge("HSV", (turned, s, v)).convert("RGB")
    assert difference(jitter("hue")(grid, shift), expected) <= 0.51


@each_image
@pytest.mark.parametrize(("sigma", "kernel_size"), [(0.1, 3), (0.7, 3), (2.0, 23), (1.3, 1)])
def test_blur_with_a_kernel_is_scipy(name, sigma, kernel_size):
    image = IMAGES[name]
    sides = {"sigma": (sigma, sigma, 0), "radius": (kernel_size // 2, kernel_size // 2, 0)}
    expected = ndimage.gaussian_filter(image / 255, **sides, mode="nearest")
    np.testing.assert_allclose(augment.gaussian_blur(image, sigma, kernel_size), expected, atol=2e-6)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("name", some(["small", "noise", "grey noise"], fast=["noise"]))
def test_rand_augment_operations_by_traced_number(name, sign):
    image = IMAGES[name]
    height, width = image.shape[:2]
    source, t = pillow(image), 12 / 30
    shift_x, shift_y = int(150 / 331 * width * t) * sign, int(150 / 331 * height * t) * sign
    expected = {
        "identity": source,
        "shear_x": source.transform(source.size, AFFINE, (1, 0.3 * t * sign, 0, 0, 1, 0)),
        "shear_y": source.transform(source.size, AFFINE, (1, 0, 0, 0.3 * t * sign, 1, 0)),
        "translate_x": source.transform(source.size, AFFINE, (1, 0, -shift_x, 0, 1, 0)),
        "translate_y": source.transform(source.size, AFFINE, (1, 0, 0, 0, 1, -shift_y)),
        "rotate": source.rotate(30 * t * sign),
        **all_enhanced(source, 1 + 0.9 * t * sign),
        "posterize": ImageOps.posterize(source, 8 - round(4 * t)),
        "solarise": ImageOps.solarize(source, 255 * (1 - t)),
        "autocontrast": ImageOps.autocontrast(source),
        "equalize": ImageOps.equalize(source),
    }
    assert tuple(expected) == augment.RAND_AUGMENT
    apply = jax.vmap(partial(augment.rand_augment_op, magnitude=12, sign=sign), in_axes=(None, 0))
    for ours, theirs in zip(apply(image, np.arange(14)), expected.values()):
        assert difference(ours, theirs) <= 2


@pytest.mark.parametrize("signed", some([9, -3], fast=[9]))
def test_rand_augment_operations_of_timm(signed):
    """timm/data/auto_augment.py, rand-m9-inc1: the level of its scale of 10, `t` below, by Pillow's functions."""
    image = IMAGES["photograph"][:60, :80]
    tenths, sign = abs(signed), np.sign(signed)
    source, t, (width, height) = pillow(image), tenths / 10, (80, 60)

    bicubic = {"resample": Image.Resampling.BICUBIC, "fillcolor": (124, 116, 104)}
    moved = lambda *matrix: source.transform(source.size, AFFINE, matrix, **bicubic)  # noqa: E731

    added = [min(255, v + int(110 * t)) if v < 128 else v for v in range(256)]
    expected = {
        "invert": ImageOps.invert(source),
        "shear_x": moved(1, 0.3 * t * sign, 0, 0, 1, 0),
        "shear_y": moved(1, 0, 0, 0.3 * t * sign, 1, 0),
        "translate_x": moved(1, 0, -0.45 * width * t * sign, 0, 1, 0),
        "translate_y": moved(1, 0, 0, 0, 1, -0.45 * height * t * sign),
        "rotate": source.rotate(30 * t * sign, **bicubic),
        **all_enhanced(source, max(0.1, 1 + 0.9 * t * sign)),
        "posterize": ImageOps.posterize(source, 4 - int(4 * t)),
        "solarise": ImageOps.solarize(source, 256 - int(256 * t)),
        "autocontrast": ImageOps.autocontrast(source),
        "equalize": ImageOps.equalize(source),
        "solarise_add": source.point(added * 3),
    }
    assert tuple(expected) == augment.RAND_AUGMENT_TIMM
    fill = np.array([124, 116, 104]) / 255
    apply = partial(augment.rand_augment_op, magnitude=3 * tenths, sign=sign, kind="timm", fill=fill)
    found = jax.vmap(apply, in_axes=(None, 0))(image, np.arange(15))
    for ours, (name, theirs) in zip(found, expected.items()):
        far = np.abs(255 * np.asarray(ours, np.float64) - np.asarray(theirs, np.float64)) > 2
        # single precision: at the border a pixel's centre may be inside or beyond
        assert far.mean() < (2e-3 if name in ("rotate", "shear_x", "shear_y") else 1e-12), name


@pytest.mark.parametrize("name", some(["small", "grey noise"], fast=["small"]))
def test_color_jitter_applies_its_steps_in_order(name):
    image = IMAGES[name]
    steps = [jitter(name) for name in ("brightness", "contrast", "saturation", "hue")]
    amounts = (1.4, 0.6, 1.7, 0.2)
    orders = np.array(list(itertools.permutations(range(4))))
    all_orders = jax.vmap(lambda order: augment.color_jitter(image, order, *amounts))(orders)
    no_hue = jax.vmap(lambda order: augment.color_jitter(image, order, *amounts[:3]))(orders)
    for order, ours, ours_without in zip(orders, all_orders, no_hue):
        expected = without = image
        for step in order:
            expected = steps[step](expected, amounts[step])
            without = steps[step](without, amounts[step]) if step < 3 else without
        # Hue is cut to 8 bits, so a rounding difference of 1e-7 may put a pixel a step of 6/255 away.
        assert np.mean(np.abs(ours - expected) > 1e-5) < 2e-3
        np.testing.assert_allclose(ours_without, without, atol=2e-6)


def test_normalise():
    image = IMAGES["small"]
    mean, std = (0.5, 0.4, 0.3), (0.1, 0.2, 0.4)
    np.testing.assert_allclose(augment.normalise(image, mean, std), (image / 255 - mean) / std, atol=2e-6)
    np.testing.assert_allclose(augment.normalise(image, 0.5, 0.25), (image / 255 - 0.5) / 0.25, atol=1e-6)
    with pytest.raises(ValueError, match=r"std must be one number or one per channel, 3, got 2"):
        augment.normalise(image, mean, (1.0, 1.0))


def test_raises_on_bad_input():
    zeros = np.zeros((8, 8, 3), np.uint8)
    for call, message in [
        (lambda: augment.grayscale(zeros[0]), r"\(height, width, channels\) .* got \(8, 3\)"),
        (lambda: augment.grayscale(zeros[..., :2]), r"1 or 3 channels, got \(8, 8, 2\)"),
        (lambda: augment.grayscale(zeros.astype(int)), r"uint8, or floating in \[0, 1\], got int"),
        (lambda: augment.crop_and_resize(zeros, np.zeros(3), 4), r"box must be \(4,\).* got \(3,\)"),
        (lambda: augment.gaussian_blur(zeros, 1.0, 4), "must be odd and positive, or None, got 4"),
    ]:
        with pytest.raises(ValueError, match=message):
            call()
