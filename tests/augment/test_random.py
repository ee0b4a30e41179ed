"""Random operations: distributions of the draws; operations that are not drawn change nothing."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.datasets import load_sample_images

from mvcl import augment

IMAGE = np.random.default_rng(0).random((12, 10, 3), dtype=np.float32)


def keys(n):
    return jax.random.split(jax.random.key(0), n)


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
    ratio = (3 / 4, 4 / 3)
    boxes = jax.vmap(lambda key: augment.random_box(key, height, width, scale, ratio))(keys(400))
    draws = jax.vmap(lambda key: jax.random.uniform(key, (40,)))(keys(400))
    expected = [loops_of_random_box(d.reshape(4, 10), height, width, scale, ratio) for d in np.float64(draws)]
    # A side within float32's rounding of a half goes to the other pixel.
    assert np.mean(np.any(boxes != np.array(expected), 1)) < 0.01
    assert (boxes[:, :2] >= 0).all()
    assert (boxes[:, 2] <= width).all()
    assert (boxes[:, 3] <= height).all()


def test_random_resized_crop_is_its_box_resized():
    key = jax.random.key(3)
    expected = augment.crop_and_resize(IMAGE, augment.random_box(key, 12, 10), 8)
    np.testing.assert_allclose(augment.random_resized_crop(key, IMAGE, 8), expected, atol=1e-6)


OPERATIONS = {
    "flip": (augment.random_flip, augment.horizontal_flip),
    "grayscale": (augment.random_grayscale, augment.grayscale),
    "solarise": (augment.random_solarise, augment.solarise),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_probabilities(name):
    """At probability 0.3 over 4000 keys, within 5 standard deviations of 1200, and nothing in between."""
    random, fixed = OPERATIONS[name]
    drawn = jax.vmap(lambda key: random(key, IMAGE, 0.3))(keys(4000))
    changed = np.isclose(drawn, fixed(IMAGE), atol=1e-6).all((1, 2, 3))
    kept = (np.asarray(drawn) == IMAGE).all((1, 2, 3))
    assert (changed ^ kept).all()
    assert abs(changed.sum() - 1200) < 5 * math.sqrt(4000 * 0.3 * 0.7)


def test_distribution_of_jitter_factors_and_hue():
    """The contrast factor of two greys is uniform in [0.5, 1.5]; the hue of a pure red rotates by up to 0.1."""
    greys = np.array([[[0.4] * 3, [0.6] * 3]], np.float32)
    drawn = jax.vmap(lambda key: augment.random_color_jitter(key, greys, 1.0, 0.0, 0.5, 0.0, 0.0))(keys(3000))
    factor = (drawn[:, 0, 1, 0] - drawn[:, 0, 0, 0]) / 0.2
    quantiles = np.quantile(factor, [0.0, 0.25, 0.5, 0.75, 1.0])
    np.testing.assert_allclose(quantiles, [0.5, 0.75, 1.0, 1.25, 1.5], atol=0.05)
    assert (quantiles >= 0.5 - 1e-5).all()
    assert (quantiles <= 1.5 + 1e-5).all()
    red = np.array([[[1.0, 0.0, 0.0]]], np.float32)
    drawn = jax.vmap(lambda key: augment.random_color_jitter(key, red, 1.0, 0.0, 0.0, 0.0, 0.1))(keys(3000))
    # Green increases by 6 per turn towards yellow, blue towards magenta.
    turn = (drawn[:, 0, 0, 1] - drawn[:, 0, 0, 2]) / 6
    # Turns are cut to steps of 1/255, and H once more.
    assert abs(turn.max() - 0.1) < 2 / 255
    assert abs(turn.min() + 0.1) < 2 / 255
    assert abs(turn.mean()) < 1 / 255


def test_jitter_order_is_uniform():
    """Brightness (to at most 0.4 of it) and contrast do not commute: each is first half of the time."""
    image = np.array([[[0.9] * 3, [0.1] * 3]], np.float32)
    sixth = jax.vmap(lambda key: jnp.argsort(jax.random.uniform(key, (9,))[1:5]))(keys(4000))
    drawn = jax.vmap(lambda key: augment.random_color_jitter(key, image, 1.0, 0.6, 0.6, 0.0, 0.0))(keys(4000))
    factors = jax.vmap(lambda key: jax.random.uniform(key, (9,))[5:7] * 1.2 + 0.4)(keys(4000))
    first, second = (
        jax.vmap(lambda f, order=order: augment.color_jitter(image, np.array(order), f[0], f[1]))(factors)
        for order in ((0, 1, 2, 3), (1, 0, 2, 3))
    )
    is_first = np.isclose(drawn, first, atol=1e-6).all((1, 2, 3))
    is_second = np.isclose(drawn, second, atol=1e-6).all((1, 2, 3))
    assert (is_first | is_second).all()
    apart = is_first ^ is_second
    assert apart.sum() > 1000
    assert abs(is_first[apart].mean() - 0.5) < 5 * 0.5 / math.sqrt(apart.sum())
    codes = np.asarray(sixth) @ np.array([64, 16, 4, 1])
    assert len(np.unique(codes)) == 24
    assert abs(np.unique(codes, return_counts=True)[1] - 4000 / 24).max() < 5 * math.sqrt(4000 / 24)


def test_blur_sigma_covers_its_range():
    """The centre of a blurred point decreases with sigma; a table of it gives sigma."""
    point = np.zeros((15, 15, 1), np.float32)
    point[7, 7] = 1
    drawn = jax.vmap(lambda key: augment.random_blur(key, point, 0.7, (0.5, 2.0), 15))(keys(2000))[:, 7, 7, 0]
    table = np.linspace(0.5, 2.0, 61, dtype=np.float32)
    centre = jax.vmap(lambda sigma: augment.gaussian_blur(point, sigma, 15))(table)[:, 7, 7, 0]
    blurred = np.asarray(drawn) < 0.999
    assert abs(blurred.mean() - 0.7) < 0.052
    sigma = np.interp(-np.asarray(drawn)[blurred], -np.asarray(centre), table)
    np.testing.assert_allclose(
        np.quantile(sigma, [0, 0.25, 0.5, 0.75, 1]), [0.5, 0.875, 1.25, 1.625, 2], atol=0.08
    )


@pytest.mark.exhaustive
def test_rand_augment_applies_consecutive_operations():
    """Two operations of one key: compares the result with each of the 14 x 2 pairs."""
    image = np.random.default_rng(1).integers(0, 256, (18, 18, 3)).astype(np.float32) / 255
    numbers, signs = np.repeat(np.arange(14), 2), np.tile([-1.0, 1.0], 14)
    step = jax.jit(
        jax.vmap(lambda x, op, sign: augment.rand_augment_op(x, op, 30.0, sign), in_axes=(None, 0, 0))
    )
    once = np.asarray(step(image, numbers, signs))
    single = np.asarray(jax.vmap(lambda key: augment.rand_augment(key, image, 1, 30.0))(keys(600)))
    nearest = np.stack([np.abs(single - x).max((1, 2, 3)) for x in once], 1)
    assert nearest.min(1).max() < 1e-5
    # 600 draws of 14: every operation occurs, each within 5 standard deviations of 600/14.
    counts = np.bincount(numbers[nearest.argmin(1)], minlength=14)
    assert abs(counts - 600 / 14).max() < 5 * math.sqrt(600 / 14)
    twice = np.concatenate([step(x, numbers, signs) for x in once])
    double = np.asarray(jax.vmap(lambda key: augment.rand_augment(key, image, 2, 30.0))(keys(20)))
    assert max(np.abs(twice - x).max((1, 2, 3)).min() for x in double) < 1e-5


def test_rand_augment_draws_its_magnitude():
    """One operation has as many results as there are operations and directions, unless the magnitude varies."""
    image = load_sample_images().images[0][200:212, 300:312]

    def distinct(deviation):
        drawn = jax.vmap(lambda key: augment.rand_augment(key, image, 1, 15.0, deviation))(keys(200))
        return len(np.unique(np.asarray(drawn).reshape(200, -1).round(4), axis=0))

    assert distinct(0.0) <= 14 * 2 < distinct(3.0)
