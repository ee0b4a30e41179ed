"""Views per second of the input path on one core, beside Pillow, which makes view after view.

    python -m benchmarks.input_path

Both make the same k views of the same images from memory, uint8 in and normalised float32 out: `draw_views`
compiled for a batch of 256, and Pillow's crop and resize, flip, colour jitter in random order (each with the
policy's probability), grayscale and blur. They take turns in one process pinned to one core; a line gives the
medians and the median of the ratios of neighbouring turns, which other load on the machine moves less than
the times themselves.
"""

import os

if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
os.environ["JAX_PLATFORMS"] = "cpu"

import random
import statistics
import time
from collections.abc import Callable

import jax
import numpy as np
from PIL import Image, ImageEnhance, ImageFilter, ImageOps
from sklearn.datasets import load_digits, load_sample_images

from mvcl import augment

EXAMPLES = 256
TURNS = 9


def pillow_view(image: Image.Image, policy: augment.Policy, rng: random.Random) -> np.ndarray:
    """One view by the policy, written as Pillow-based pipelines are."""
    width, height = image.size
    box = (0, 0, width, height)
    for _ in range(10):
        area = width * height * rng.uniform(*policy.crop_scale)
        ratio = np.exp(rng.uniform(*np.log(policy.crop_ratio)))
        w, h = round((area * ratio) ** 0.5), round((area / ratio) ** 0.5)
        if 0 < w <= width and 0 < h <= height:
            left, upper = rng.randint(0, width - w), rng.randint(0, height - h)
            box = (left, upper, left + w, upper + h)
            break
    size = (policy.image_size, policy.image_size)
    image = image.resize(size, Image.Resampling.BICUBIC, box=box)
    if rng.random() < policy.flip_probability:
        image = ImageOps.mirror(image)
    if rng.random() < policy.jitter_probability:
        for step in rng.sample(range(4), 4):
            strength = (policy.brightness, policy.contrast, policy.saturation, policy.hue)[step]
            if strength == 0:
                continue
            if step == 3:
                hue, saturation, value = image.convert("HSV").split()
                turn = int(rng.uniform(-strength, strength) * 255) % 256
                hue = Image.fromarray(np.asarray(hue) + np.uint8(turn))
                image = Image.merge("HSV", (hue, saturation, value)).convert("RGB")
            else:
                enhance = (ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color)[step]
                image = enhance(image).enhance(rng.uniform(max(0.0, 1 - strength), 1 + strength))
    if rng.random() < policy.grayscale_probability:
        image = ImageOps.grayscale(image).convert(image.mode)
    if rng.random() < policy.blur_probability:
        image = image.filter(ImageFilter.GaussianBlur(rng.uniform(*policy.blur_sigma)))
    pixels = np.asarray(image, np.float32).reshape(*size, -1) / 255
    return (pixels - np.float32(policy.mean)) / np.float32(policy.std)


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def compare(name: str, policy: augment.Policy, images: np.ndarray, k: int) -> None:
    epoch, index = np.zeros(len(images), int), np.arange(len(images))
    draw = jax.jit(lambda images, seed: augment.draw_views([policy] * k, images, seed, epoch, index))
    sources = [Image.fromarray(image[..., 0] if image.shape[-1] == 1 else image) for image in images]
    rng = random.Random(0)
    seed = iter(range(1000))

    def ours() -> None:
        draw(images, next(seed)).block_until_ready()

    def theirs() -> np.ndarray:
        return np.stack([[pillow_view(source, policy, rng) for _ in range(k)] for source in sources])

    ours()
    turns = [(seconds(ours), seconds(theirs)) for _ in range(TURNS)]
    views = len(images) * k
    fast, slow = (views / statistics.median(times) for times in zip(*turns))
    ratio = statistics.median(theirs / ours for ours, theirs in turns)
    print(f"{name:<34} {k:>2} {fast:>12,.0f} {slow:>12,.0f} {ratio:>7.1f}", flush=True)


def main() -> None:
    photograph = Image.fromarray(load_sample_images().images[0])
    tiles = [
        photograph.crop((x, y, x + 96, y + 96)).resize((32, 32))
        for x in range(0, 540, 33)
        for y in range(0, 330, 20)
    ]
    colour = np.stack([np.asarray(tile) for tile in tiles[:EXAMPLES]])
    grey = np.round(load_digits().images[:EXAMPLES, ..., None] * (255 / 16)).astype(np.uint8)
    print(f"views per second on one core, batch {EXAMPLES}, median of {TURNS} turns")
    print(f"{'':<34} {'k':>2} {'mvcl':>12} {'Pillow':>12} {'ratio':>7}")
    for k in (2, 8):
        compare("32x32x3, simclr(1.0)", augment.simclr(image_size=32), colour, k)
        cifar = augment.simclr(0.5, image_size=32, blur_probability=0.0)
        compare("32x32x3, simclr(0.5), no blur", cifar, colour, k)
        compare("8x8x1, digits", augment.digits(), grey, k)


if __name__ == "__main__":
    main()
