"""Random operations: distributions of the draws; operations that are not drawn change nothing."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm
from sklearn.datasets import load_sample_images

from mvcl import augment
from mvcl.augment import _views

IMAGE = np.random.default_rng(0).random((12, 12, 3), dtype=np.float32)
PLAIN = augment.Policy(flip_probability=0.0, jitter_probability=0.0)


def keys(n):
    return jax.random.split(jax.random.key(0), n)


def drawn(n, image, **changes):
    """n views of a square image by a policy of these steps alone."""
    policy = dataclasses.replace(PLAIN, image_size=len(image), **changes)
    return jax.jit(jax.vmap(lambda key: augment.apply_policy(policy, key, image, cropped=True)))(keys(n))


def loops_of_random_box(draws, height, width, scale, ratio):
    """torchvision's ten tries."""
    for share, aspect, x, y in draws.T:
        area = height * width * (scale[0] + (scale[1] - scale[0]) * share)
        aspect = math.exp(math.log(ratio[0]) + (math.log(ratio[1]) - math.log(ratio[0])) * aspect)
        w, h = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < w <= width and 0 < h <= height:
            left, upper = math.floor(x * (width - w + 1)), math.floor(y * (height - h + 1))
            return left, upper, left + w, upper + h
    if width / height < ratio[0]:
        w, h = width, round(width / ratio[0])
    elif width / height > ratio[1]:
        w, h = round(height * ratio[1]), height
    else:
        w, h = width, height
    left, upper = (width - w) // 2, (height - h) // 2
    return left, upper, left + w, upper + h


@pytest.mark.parametrize(
    ("height", "width", "scale"),
    [(32, 32, (0.08, 1.0)), (37, 90, (0.5, 1.0)), (40, 10, (0.9, 1.0))],
)
def test_random_box_equals_torchvision(height, width, scale):
    policy = augment.Policy(crop_scale=scale)
    draws = jax.random.uniform(jax.random.key(0), (400, 40))
    boxes = jax.jit(jax.vmap(lambda draw: _views.crop_box(jnp, policy, draw, height, width)))(draws)
    expected = [
        loops_of_random_box(d.reshape(4, 10), height, width, scale, (3 / 4, 4 / 3)) for d in np.float64(draws)
    ]
    # A side within float32's rounding of a half goes to the other pixel.
    assert np.mean(np.any(boxes != np.array(expected), 1)) < 0.01
    assert (boxes[:, :2] >= 0).all()
    assert (boxes[:, 2] <= width).all()
    assert (boxes[:, 3] <= height).all()


OPERATIONS = {
    "flip": lambda image: image[:, ::-1],
    "grayscale": augment.grayscale,
    "solarise": augment.solarise,
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_probabilities(name):
    """At probability 0.3 over 4000 keys, within 5 standard deviations of 1200, and nothing in between."""
    views = drawn(4000, IMAGE, **{f"{name}_probability": 0.3})
    changed = np.isclose(views, OPERATIONS[name](IMAGE), atol=1e-6).all((1, 2, 3))
    kept = (np.asarray(views) == IMAGE).all((1, 2, 3))
    assert (changed ^ kept).all()
    assert abs(changed.sum() - 1200) < 5 * math.sqrt(4000 * 0.3 * 0.7)


def test_distribution_of_jitter_factors_and_hue():
    """The contrast factor of two greys is uniform in [0.5, 1.5]; the hue of a pure red rotates by up to 0.1."""
    greys = np.array([[[0.4] * 3, [0.6] * 3]] * 2, np.float32)
    views = drawn(3000, greys, jitter_probability=1.0, contrast=0.5)
    factor = (views[:, 0, 1, 0] - views[:, 0, 0, 0]) / 0.2
    quantiles = np.quantile(factor, [0.0, 0.25, 0.5, 0.75, 1.0])
    np.testing.assert_allclose(quantiles, [0.5, 0.75, 1.0, 1.25, 1.5], atol=0.05)
    assert (quantiles >= 0.5 - 1e-5).all()
    assert (quantiles <= 1.5 + 1e-5).all()
    red = np.array([[[1.0, 0.0, 0.0]]], np.float32)
    views = drawn(3000, red, jitter_probability=1.0, hue=0.1)
    # Green increases by 6 per turn towards yellow, blue towards magenta.
    turn = (views[:, 0, 0, 1] - views[:, 0, 0, 2]) / 6
    # Turns are cut to steps of 1/255, and H once more.
    assert abs(turn.max() - 0.1) < 2 / 255
    assert abs(turn.min() + 0.1) < 2 / 255
    assert abs(turn.mean()) < 1 / 255


def test_jitter_order_is_uniform():
    """Brightness (to at most 0.4 of it) and contrast do not commute: each is first half of the time."""
    image = np.array([[[0.9] * 3, [0.1] * 3]] * 2, np.float32)
    factors = jax.vmap(lambda key: jax.random.uniform(key, (54,)))(keys(4000))[:, 46:48] * 1.2 + 0.4
    views = drawn(4000, image, jitter_probability=1.0, brightness=0.6, contrast=0.6)
    first, second = (
        jax.vmap(lambda f, order=order: augment.color_jitter(image, np.array(order), f[0], f[1]))(factors)
        for order in ((0, 1, 2, 3), (1, 0, 2, 3))
    )
    is_first, is_second = (np.isclose(views, x, atol=1e-6).all((1, 2, 3)) for x in (first, second))
    assert (is_first | is_second).all()
    apart = is_first ^ is_second
    assert apart.sum() > 1000
    assert abs(is_first[apart].mean() - 0.5) < 5 * 0.5 / math.sqrt(apart.sum())


def test_blur_sigma_covers_its_range():
    """The centre of a blurred point decreases with sigma; a table of it gives sigma."""
    point = np.zeros((15, 15, 1), np.float32)
    point[7, 7] = 1
    views = drawn(2000, point, blur_probability=0.7, blur_sigma=(0.5, 2.0), blur_kernel=15)[:, 7, 7, 0]
    table = np.linspace(0.5, 2.0, 61, dtype=np.float32)
    centre = jax.vmap(lambda sigma: augment.gaussian_blur(point, sigma, 15))(table)[:, 7, 7, 0]
    blurred = np.asarray(views) < 0.999
    assert abs(blurred.mean() - 0.7) < 0.052
    sigma = np.interp(-np.asarray(views)[blurred], -np.asarray(centre), table)
    np.testing.assert_allclose(
        np.quantile(sigma, [0, 0.25, 0.5, 0.75, 1]), [0.5, 0.875, 1.25, 1.625, 2], atol=0.08
    )


def test_rand_augment_applies_its_draws_one_after_the_other():
    """Operation, sign and normal magnitude are three uniform numbers each, after those of the other steps."""
    image = load_sample_images().images[0][200:212, 300:312].astype(np.float32) / 255
    changes = {"rand_augment_ops": 2, "rand_augment_magnitude": 15.0, "rand_augment_deviation": 3.0}
    for key, view in zip(keys(30), drawn(30, image, **changes)):
        expected = image
        for op, side, share in np.asarray(jax.random.uniform(key, (60,)))[54:].reshape(2, 3):
            magnitude = np.clip(15 + 3 * norm.ppf(share), 0, 30)
            expected = augment.rand_augment_op(expected, int(op * 14), magnitude, 1 if side >= 0.5 else -1)
        assert np.mean(np.abs(view - expected) > 1e-4) < 0.02  # a pixel at a boundary may be its neighbour


def test_rand_augment_has_a_probability():
    """Half of the views are changed at probability 0.5, except where both operations do nothing; none at 0."""
    changed = {}
    for share in (0.0, 0.5):
        changes = {"rand_augment_ops": 2, "rand_augment_magnitude": 20.0, "rand_augment_probability": share}
        changed[share] = np.mean(
            np.abs(np.asarray(drawn(400, IMAGE, **changes)) - IMAGE).max((1, 2, 3)) > 1e-3
        )
    assert changed[0.0] == 0
    deviation = np.sqrt(0.25 / 400)
    assert 0.45 - 4 * deviation < changed[0.5] < 0.5 + 4 * deviation
