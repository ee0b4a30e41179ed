"""Random operations: a key draws the parameters, `_ops` applies them.

An operation that a coin leaves out returns its input to the bit. All arithmetic on the draws is per image,
so a view does not depend on the batch around it.
"""

import math
from functools import partial

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from mvcl.augment import _ops

_TRIES = 10


def random_box(
    key: ArrayLike, height: int, width: int, scale: tuple[float, float], ratio: tuple[float, float]
) -> jax.Array:
    """Box of a random resized crop, by torchvision's RandomResizedCrop.

    Ten times, an area is drawn uniformly from `scale` times the image's and a ratio width / height
    log-uniformly from `ratio`; the first pair whose rounded sides fit in the image is placed uniformly. If
    none fits, the largest central box whose ratio is within `ratio` is taken.

    Args:
      key: a jax PRNG key.
      height, width: of the image, in pixels.
      scale: smallest and largest share of the image's area.
      ratio: smallest and largest width / height.

    Returns:
      (4,) float32 left, upper, right, lower; whole numbers.
    """
    draws = jax.random.uniform(key, (4, _TRIES))
    area = height * width * (scale[0] + (scale[1] - scale[0]) * draws[0])
    low, high = math.log(ratio[0]), math.log(ratio[1])
    aspect = jnp.exp(low + (high - low) * draws[1])
    wide, tall = jnp.round(jnp.sqrt(area * aspect)), jnp.round(jnp.sqrt(area / aspect))
    fits = (wide > 0) & (wide <= width) & (tall > 0) & (tall <= height)
    first = jnp.argmax(fits)
    found = fits[first]
    if width / height < ratio[0]:
        whole = (width, round(width / ratio[0]))
    elif width / height > ratio[1]:
        whole = (round(height * ratio[1]), height)
    else:
        whole = (width, height)
    wide, tall = jnp.where(found, wide[first], whole[0]), jnp.where(found, tall[first], whole[1])
    left = jnp.where(found, jnp.floor(draws[2, first] * (width - wide + 1)), (width - whole[0]) // 2)
    upper = jnp.where(found, jnp.floor(draws[3, first] * (height - tall + 1)), (height - whole[1]) // 2)
    return jnp.stack([left, upper, left + wide, upper + tall]).astype(jnp.float32)


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
    """Mirror left and right with a probability."""
    return _ops.choose(jax.random.bernoulli(key, probability), _ops.horizontal_flip(image), image)


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

    The first three factors are uniform in [max(0, 1 - strength), 1 + strength], the turn of the hue in
    [-hue, hue] (torchvision's ColorJitter). A strength of 0 leaves its step out.
    """
    order_key, draw_key, coin_key = jax.random.split(key, 3)
    order = jnp.argsort(jax.random.uniform(order_key, (4,)))
    draws = jax.random.uniform(draw_key, (4,))

    def factor(draw: jax.Array, strength: float) -> jax.Array | None:
        low, high = max(0.0, 1 - strength), 1 + strength
        return low + (high - low) * draw if strength else None

    changed = _ops.color_jitter(
        image,
        order,
        factor(draws[0], brightness),
        factor(draws[1], contrast),
        factor(draws[2], saturation),
        hue * (2 * draws[3] - 1) if hue else None,
    )
    return _ops.choose(jax.random.bernoulli(coin_key, probability), changed, image)


@jax.jit
def random_grayscale(key: ArrayLike, image: ArrayLike, probability: ArrayLike = 0.2) -> jax.Array:
    """Replace the channels by their luma with a probability."""
    return _ops.choose(jax.random.bernoulli(key, probability), _ops.grayscale(image), image)


@partial(jax.jit, static_argnames="kernel_size")
def random_blur(
    key: ArrayLike,
    image: ArrayLike,
    probability: ArrayLike,
    sigma: tuple[ArrayLike, ArrayLike] = (0.1, 2.0),
    kernel_size: int | None = None,
) -> jax.Array:
    """With a probability, `gaussian_blur` with its sigma drawn uniformly from the range `sigma`, pixels."""
    coin_key, draw_key = jax.random.split(key)
    drawn = jax.random.uniform(draw_key, minval=sigma[0], maxval=sigma[1])
    blurred = _ops.gaussian_blur(image, drawn, kernel_size)
    return _ops.choose(jax.random.bernoulli(coin_key, probability), blurred, image)


@jax.jit
def random_solarise(
    key: ArrayLike, image: ArrayLike, probability: ArrayLike, threshold: ArrayLike = 0.5
) -> jax.Array:
    """Invert what is at or above the threshold, with a probability."""
    return _ops.choose(jax.random.bernoulli(key, probability), _ops.solarise(image, threshold), image)
