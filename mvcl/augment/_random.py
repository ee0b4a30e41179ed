"""Random operations: parameters are drawn from a key and applied by `_ops`.

An operation that is not drawn returns its input unchanged. All arithmetic on the draws is per image, so a view does
not depend on the rest of the batch.
"""

import math
from functools import partial
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from mvcl.augment import _ops

_TRIES = 10

# Number of uniform random numbers per step of a view, in the order of use.
DRAWS = {"crop": 4 * _TRIES, "flip": 1, "jitter": 9, "grayscale": 1, "blur": 2, "solarise": 1}
DRAWS_PER_RAND_AUGMENT = 3


def center_box(height: int, width: int, fraction: float) -> tuple[float, float, float, float]:
    """Left, upper, right, lower of the central square whose side is `fraction` of the shorter side."""
    side = fraction * min(height, width)
    left, upper = (width - side) / 2, (height - side) / 2
    return left, upper, left + side, upper + side


def box(
    xp: ModuleType,
    draws: Any,
    height: int,
    width: int,
    scale: tuple[float, float],
    ratio: tuple[float, float],
) -> Any:
    """`random_box` from given uniform numbers, in numpy (host) or jax.numpy (device)."""
    draws = draws.reshape(4, _TRIES)
    area = height * width * (scale[0] + (scale[1] - scale[0]) * draws[0])
    low, high = math.log(ratio[0]), math.log(ratio[1])
    aspect = xp.exp(low + (high - low) * draws[1])
    wide, tall = xp.round(xp.sqrt(area * aspect)), xp.round(xp.sqrt(area / aspect))
    fits = (wide > 0) & (wide <= width) & (tall > 0) & (tall <= height)
    first = xp.argmax(fits)
    found = fits[first]
    if width / height < ratio[0]:
        whole = (width, round(width / ratio[0]))
    elif width / height > ratio[1]:
        whole = (round(height * ratio[1]), height)
    else:
        whole = (width, height)
    wide, tall = xp.where(found, wide[first], whole[0]), xp.where(found, tall[first], whole[1])
    left = xp.where(found, xp.floor(draws[2, first] * (width - wide + 1)), (width - whole[0]) // 2)
    upper = xp.where(found, xp.floor(draws[3, first] * (height - tall + 1)), (height - whole[1]) // 2)
    return xp.stack([left, upper, left + wide, upper + tall]).astype("float32")


def padded_box(xp: ModuleType, draws: Any, height: int, width: int, padding: int) -> Any:
    """Box of the image's own size at a random place of the image padded on every side, from given uniform numbers."""
    left, upper = (xp.floor(draws[i] * (2 * padding + 1)) for i in (0, 1))
    return xp.stack([left, upper, left + width, upper + height]).astype("float32")


def jitter(
    draws: jax.Array,
    image: ArrayLike,
    probability: ArrayLike,
    brightness: float,
    contrast: float,
    saturation: float,
    hue: float,
) -> jax.Array:
    def factor(draw: jax.Array, strength: float) -> jax.Array | None:
        low, high = max(0.0, 1 - strength), 1 + strength
        return low + (high - low) * draw if strength else None

    changed = _ops.color_jitter(
        image,
        jnp.argsort(draws[1:5]),
        factor(draws[5], brightness),
        factor(draws[6], contrast),
        factor(draws[7], saturation),
        hue * (2 * draws[8] - 1) if hue else None,
    )
    return _ops.choose(draws[0] < probability, changed, image)


def blur(
    draws: jax.Array,
    image: ArrayLike,
    probability: ArrayLike,
    sigma: tuple[ArrayLike, ArrayLike],
    kernel_size: int | None,
) -> jax.Array:
    low, high = jnp.asarray(sigma[0]), jnp.asarray(sigma[1])
    drawn = low + (high - low) * draws[1]
    return _ops.choose(draws[0] < probability, _ops.gaussian_blur(image, drawn, kernel_size), image)


def rand_augment_layers(
    draws: jax.Array, image: ArrayLike, ops: int, magnitude: ArrayLike, deviation: ArrayLike = 0.0
) -> jax.Array:
    draws = draws.reshape(ops, DRAWS_PER_RAND_AUGMENT)

    def layer(i: jax.Array, x: jax.Array) -> jax.Array:
        op = jnp.floor(draws[i, 0] * len(_ops.RAND_AUGMENT))
        normal = jax.scipy.special.ndtri(jnp.clip(draws[i, 2], 1e-6, 1 - 1e-6))
        drawn = jnp.clip(magnitude + deviation * normal, 0, 30)
        return _ops.rand_augment_op(x, op, drawn, jnp.where(draws[i, 1] < 0.5, -1.0, 1.0))

    return jax.lax.fori_loop(0, ops, layer, _ops.choose(True, image, image))


def random_box(
    key: ArrayLike,
    height: int,
    width: int,
    scale: tuple[float, float] = (0.08, 1.0),
    ratio: tuple[float, float] = (3 / 4, 4 / 3),
) -> jax.Array:
    """Box of a random resized crop, as in torchvision's RandomResizedCrop.

    Up to ten times, an area is drawn uniformly from `scale` times the image's and a ratio width / height log-uniformly
    from `ratio`; the first box whose rounded sides fit in the image is placed uniformly. If none fits, the result is
    the largest central box with a ratio in `ratio`.

    Args:
      key: a jax PRNG key.
      height, width: of the image, in pixels.
      scale: smallest and largest share of the image's area.
      ratio: smallest and largest width / height.

    Returns:
      (4,) float32 left, upper, right, lower; whole numbers.
    """
    return box(jnp, jax.random.uniform(key, (DRAWS["crop"],)), height, width, scale, ratio)


@partial(jax.jit, static_argnames=("size", "scale", "ratio"))
def random_resized_crop(
    key: ArrayLike,
    image: ArrayLike,
    size: int | tuple[int, int],
    scale: tuple[float, float] = (0.08, 1.0),
    ratio: tuple[float, float] = (3 / 4, 4 / 3),
) -> jax.Array:
    """Crop a `random_box` and resize it to `size` (`crop_and_resize`)."""
    height, width = jnp.shape(image)[:2]
    return _ops.crop_and_resize(image, random_box(key, height, width, scale, ratio), size)


@jax.jit
def random_flip(key: ArrayLike, image: ArrayLike, probability: ArrayLike = 0.5) -> jax.Array:
    """Flip horizontally with a probability."""
    return _ops.choose(jax.random.uniform(key) < probability, _ops.horizontal_flip(image), image)


@partial(jax.jit, static_argnames=("brightness", "contrast", "saturation", "hue"))
def random_color_jitter(
    key: ArrayLike,
    image: ArrayLike,
    probability: ArrayLike,
    brightness: float,
    contrast: float,
    saturation: float,
    hue: float,
) -> jax.Array:
    """With a probability, change brightness, contrast, saturation and hue, in an order drawn uniformly.

    The first three factors are uniform in [max(0, 1 - strength), 1 + strength], the rotation of the hue in [-hue, hue]
    (torchvision's ColorJitter). A strength of 0 omits the step.
    """
    draws = jax.random.uniform(key, (DRAWS["jitter"],))
    return jitter(draws, image, probability, brightness, contrast, saturation, hue)


@jax.jit
def random_grayscale(key: ArrayLike, image: ArrayLike, probability: ArrayLike = 0.2) -> jax.Array:
    """With a probability, replace the channels by their luma."""
    return _ops.choose(jax.random.uniform(key) < probability, _ops.grayscale(image), image)


@partial(jax.jit, static_argnames="kernel_size")
def random_blur(
    key: ArrayLike,
    image: ArrayLike,
    probability: ArrayLike,
    sigma: tuple[ArrayLike, ArrayLike] = (0.1, 2.0),
    kernel_size: int | None = None,
) -> jax.Array:
    """With a probability, `gaussian_blur` with its sigma drawn uniformly from the range `sigma`, pixels."""
    return blur(jax.random.uniform(key, (DRAWS["blur"],)), image, probability, sigma, kernel_size)


@jax.jit
def random_solarise(
    key: ArrayLike, image: ArrayLike, probability: ArrayLike, threshold: ArrayLike = 0.5
) -> jax.Array:
    """With a probability, invert values at or above the threshold."""
    return _ops.choose(jax.random.uniform(key) < probability, _ops.solarise(image, threshold), image)


@partial(jax.jit, static_argnames="ops")
def rand_augment(
    key: ArrayLike, image: ArrayLike, ops: int = 2, magnitude: ArrayLike = 9.0, deviation: ArrayLike = 0.0
) -> jax.Array:
    """Apply `ops` operations, each drawn uniformly from the fourteen of `rand_augment_op`.

    The direction of each is random, with probability 1/2. The magnitude of each is normal, with this mean and
    deviation, clipped to [0, 30].
    """
    draws = jax.random.uniform(key, (ops * DRAWS_PER_RAND_AUGMENT,))
    return rand_augment_layers(draws, image, ops, magnitude, deviation)
