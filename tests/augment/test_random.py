"""Views and crops, step by step, from uniform numbers; Mixup, CutMix and erasing against numpy; their distributions."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image
from scipy.stats import norm
from sklearn.datasets import load_sample_images

from mvcl import augment
from mvcl.augment import _views

CHINA = load_sample_images().images[0]
PHOTOGRAPH = CHINA[200:220, 300:318]
STEPS = ("brightness", "contrast", "saturation", "hue")
POLICY = augment.Policy(
    image_size=12,
    crop_scale=(0.3, 0.9),
    flip_probability=0.4,
    rand_augment_ops=2,
    rand_augment_magnitude=15.0,
    rand_augment_deviation=3.0,
    rand_augment_probability=0.5,
    jitter_probability=0.7,
    brightness=0.5,
    contrast=1.2,
    saturation=0.3,
    hue=0.1,
    grayscale_probability=0.3,
    blur_probability=0.6,
    blur_sigma=(0.5, 2.0),
    blur_kernel=5,
    solarise_probability=0.2,
    solarise_threshold=0.6,
    mean=(0.5, 0.4, 0.3),
    std=(0.2, 0.3, 0.4),
    erase_probability=0.4,
    erase_scale=(0.1, 0.3),
)


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
    ("height", "width", "least"),
    # none of ten tries may fit the last two
    [(32, 32, 0.08), (37, 90, 0.5), (375, 500, 0.08), (40, 10, 0.9), (30, 400, 0.08)],
)
def test_random_box_equals_torchvision(height, width, least):
    """On the device and, to the bit, on the host."""
    policy = augment.Policy(crop_scale=(least, 1.0))
    draws = np.asarray(jax.random.uniform(jax.random.key(0), (400, 40)))
    boxes = jax.jit(jax.vmap(lambda draw: _views.crop_box(jnp, policy, draw, height, width)))(draws)
    loops, tries = loops_of_random_box, np.float64(draws).reshape(-1, 4, 10)
    expected = [loops(d, height, width, policy.crop_scale, policy.crop_ratio) for d in tries]
    assert [_views._host_box(policy, d, height, width) for d in np.float64(draws)] == expected
    # A side within float32's rounding of a half goes to the other pixel.
    assert np.mean(np.any(boxes != np.array(expected), 1)) < 0.01
    assert (boxes[:, :2] >= 0).all()
    assert (boxes[:, 2] <= width).all()
    assert (boxes[:, 3] <= height).all()


def by_hand(key, image):
    """The view of POLICY: 40 numbers for the crop, 1 for the flip, 9 for the jitter, and so on."""
    u = np.asarray(jax.random.uniform(key, (61,)), np.float64)
    box = loops_of_random_box(u[:40].reshape(4, 10), *image.shape[:2], POLICY.crop_scale, POLICY.crop_ratio)
    x = augment.crop_and_resize(image, np.float32(box), 12, mirror=bool(u[40] < 0.4))
    if u[60] < 0.5:
        for op, side, share in u[54:60].reshape(2, 3):
            magnitude = np.clip(15 + 3 * norm.ppf(share), 0, 30)
            x = augment.rand_augment_op(x, int(op * 14), magnitude, 1 if side >= 0.5 else -1)
    if u[41] < 0.7:
        ranges = ((0.5, 1.5), (0.0, 2.2), (0.7, 1.3), (-0.1, 0.1))
        for step in np.argsort(u[42:46]):
            low, high = ranges[step]
            amount = low + (high - low) * u[46 + step]
            x = augment.color_jitter(x, np.arange(4), **{STEPS[step]: amount})
    if u[50] < 0.3:
        x = augment.grayscale(x)
    if u[51] < 0.6:
        x = augment.gaussian_blur(x, 0.5 + 1.5 * u[52], 5)
    if u[53] < 0.2:
        x = augment.solarise(x, 0.6)
    x = (np.asarray(x) - np.float32(POLICY.mean)) / np.float32(POLICY.std)
    return augment.random_erasing(jax.random.fold_in(key, 1), x, 0.4, (0.1, 0.3))


def test_views_are_their_steps_by_hand():
    keys = jax.random.split(jax.random.key(0), 40)
    views = jax.jit(jax.vmap(lambda key: augment.apply_policy(POLICY, key, PHOTOGRAPH)))(keys)
    for key, view in zip(keys, views):
        # Hue and moves are cut to bytes and pixels: one at a boundary may take its neighbour's value.
        assert np.mean(np.abs(view - by_hand(key, PHOTOGRAPH)) > 1e-3) < 0.1


def numbers_of_host(seed, epoch, index, view):
    philox = np.random.Philox(key=[seed, epoch], counter=[10 * view, 0, index, 0])
    return np.random.Generator(philox).random(40)


def test_crops_of_the_host_are_boxes_by_their_numbers():
    for index, view in [(7, 0), (8, 1)]:
        draws = numbers_of_host(3, 5, index, view).reshape(4, 10)
        box = loops_of_random_box(draws, 20, 18, POLICY.crop_scale, POLICY.crop_ratio)
        expected = Image.fromarray(PHOTOGRAPH).resize((12, 12), Image.Resampling.BICUBIC, box=box)
        found = augment.host_crop([PHOTOGRAPH], [POLICY] * 2, 3, 5, index)[view]
        np.testing.assert_array_equal(found, expected)


def test_evaluation_is_the_central_crop_of_one_channel_too():
    image = Image.fromarray(CHINA).convert("L")
    width, height = image.size
    half = 0.875 * min(width, height) / 2
    box = (width / 2 - half, height / 2 - half, width / 2 + half, height / 2 + half)
    expected = np.asarray(image.resize((32, 32), Image.Resampling.BICUBIC, box=box))
    policy = augment.evaluation(image_size=32, mean=(0.5,), std=(0.2,))
    array = np.asarray(image)[..., None]
    np.testing.assert_array_equal(augment.host_crop([array], [policy], 0, 0, 0)[0], expected[..., None])
    device = jax.jit(lambda image: augment.apply_policy(policy, jax.random.key(0), image))(array)
    assert np.abs(255 * (0.2 * device[..., 0] + 0.5) - expected.astype(float)).max() <= 2


def test_raises_on_bad_input():
    message = r"image must be \(height, width, 1 or 3\) uint8, got \(5, 5\) float64"
    with pytest.raises(ValueError, match=message):
        augment.host_crop([np.zeros((5, 5))], [POLICY], 0, 0, 0)


@pytest.mark.parametrize("channels", [1, 3])
def test_padded_crops_are_windows_of_the_reflected_image(rng, channels):
    plain = augment.evaluation(image_size=12, mean=(0.0,), std=(1.0,))
    policy = dataclasses.replace(plain, random_crop=True, crop_padding=3)
    image = rng.integers(0, 256, (12, 12, channels), np.uint8)
    padded = np.pad(image, ((3, 3), (3, 3), (0, 0)), mode="reflect")
    device = jax.jit(lambda key: 255 * augment.apply_policy(policy, key, image))
    for epoch in range(6):
        key = augment.view_key(0, epoch, 5, 0)
        host = augment.host_crop([image], [policy], 0, epoch, 5)[0]
        draws = (numbers_of_host(0, epoch, 5, 0), jax.random.uniform(key, (54,)))
        for numbers, found in zip(draws, (host, device(key))):
            left, upper = (int(7 * number) for number in numbers[:2])
            expected = padded[upper : upper + 12, left : left + 12]
            np.testing.assert_allclose(found, expected, atol=1e-3)


def test_operations_of_timm_are_applied_to_half(monkeypatch):
    """Two, each with probability 1/2, with the mean colour beyond the image; here an operation adds 1."""
    calls = []
    add = lambda x, *_, **options: calls.append(options) or x + 1  # noqa: E731
    monkeypatch.setattr(_views._colour, "rand_augment_op", add)
    policy = augment.Policy(rand_augment_ops=2, rand_augment_kind="timm", mean=(0.485, 0.456, 0.406))
    draws = jax.random.uniform(jax.random.key(0), (4000, 2, 4))
    image = jnp.zeros((1, 1, 3))
    found = jax.jit(jax.vmap(lambda draw: _views._rand_augment(policy, draw, image)))(draws)[:, 0, 0, 0]
    shares = [np.mean(found == applied) for applied in (0, 1, 2)]
    np.testing.assert_allclose(shares, [0.25, 0.5, 0.25], atol=0.03)
    assert calls[0]["kind"] == "timm"
    np.testing.assert_array_equal(calls[0]["fill"], np.array([124, 116, 104]) / 255)


@pytest.fixture
def batch(rng):
    images = rng.normal(size=(5, 9, 14, 3)).astype(np.float32)
    return images, np.eye(4, dtype=np.float32)[[0, 1, 2, 3, 1]], np.array([3, 0, 1, 4, 2])


def test_mixup_blends_with_the_permuted_batch(batch):
    x, y, order = batch
    mixed, targets = augment.mixup(x, y, order, 0.3)
    for i, j in enumerate(order):
        np.testing.assert_allclose(mixed[i], 0.3 * x[i] + 0.7 * x[j], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(targets[i], 0.3 * y[i] + 0.7 * y[j], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("weight", "centre", "box"),
    [
        (0.75, (0.5, 0.5), (2, 6, 4, 10)),  # sides 4.5 and 7: halves 2 and 3 around row 4 and column 7
        (0.75, (0.0, 0.99), (0, 2, 10, 14)),  # cut by the upper right corner
        (0.0, (0.5, 0.5), (0, 8, 0, 14)),  # an odd side loses its last row to the halves
        (1.0, (0.3, 0.3), (0, 0, 0, 0)),
    ],
)
def test_cutmix_pastes_a_box_and_counts_its_pixels(batch, weight, centre, box):
    x, y, order = batch
    mixed, targets = augment.cutmix(x, y, order, weight, centre)
    upper, lower, left, right = box
    expected = x.copy()
    expected[:, upper:lower, left:right] = x[order][:, upper:lower, left:right]
    np.testing.assert_array_equal(mixed, expected)
    pasted = (lower - upper) * (right - left) / (9 * 14)
    np.testing.assert_allclose(targets, (1 - pasted) * y + pasted * y[order], atol=1e-6)


def test_random_mix_takes_each_half_the_time_with_a_beta_weight():
    # Constant images 0 and 1: a blend has one value, a paste has both.
    x = jnp.stack([jnp.zeros((8, 8, 1)), jnp.ones((8, 8, 1))])
    y = jnp.eye(2)
    keys = jax.random.split(jax.random.key(0), 600)
    mixed, targets = jax.vmap(lambda key: augment.random_mix(key, x, y, 0.8, 1.0))(keys)
    first = np.asarray(mixed)[:, 0, :, :, 0]
    blended = (first > 1e-6) & (first < 1 - 1e-6)
    is_blend = blended.all((1, 2))
    assert not (blended.any((1, 2)) & ~is_blend).any()
    # The permutation of two rows is the identity half the time.
    assert 0.15 < is_blend.mean() < 0.35
    np.testing.assert_allclose(np.asarray(targets)[:, 0, 1], first.mean((1, 2)), atol=1e-5)
    np.testing.assert_allclose(np.asarray(targets).sum(-1), 1, atol=1e-6)
    weights = 1 - np.asarray(targets)[is_blend, 0, 1]
    # Beta(a, a) has mean 1/2 and variance 1 / (4 (2 a + 1)).
    assert abs(weights.mean() - 0.5) < 4 * np.sqrt(1 / 10.4 / len(weights))
    assert abs(weights.var() - 1 / 10.4) < 0.03


def test_erases_a_rectangle_within_its_ranges():
    image = jnp.full((40, 60, 3), 7.0)
    keys = jax.random.split(jax.random.key(1), 400)
    erased = np.asarray(jax.vmap(lambda key: augment.random_erasing(key, image, 0.6))(keys))
    touched = (erased != 7).any(-1)
    assert abs(touched.any((1, 2)).mean() - 0.6) < 0.1
    for hole, view in zip(touched, erased):
        if not hole.any():
            continue
        rows, columns = np.flatnonzero(hole.any(1)), np.flatnonzero(hole.any(0))
        tall, wide = rows[-1] - rows[0] + 1, columns[-1] - columns[0] + 1
        assert hole.sum() == tall * wide  # nothing outside, everything inside
        # Sides are rounded to pixels, so the area by up to half a perimeter.
        assert 0.02 * 2400 - (tall + wide) < hole.sum() < 2400 / 3 + (tall + wide)
        assert 0.3 * (tall - 1) / (tall + 1) < tall / wide < (tall + 1) / (max(tall - 1, 0.5) * 0.3)
        assert (view[hole] != 7).all()
    noise = erased[touched]
    assert abs(noise.mean()) < 0.02
    assert abs(noise.std() - 1) < 0.02
