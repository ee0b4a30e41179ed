"""Random operations: parameters are drawn from a key and applied by `_geometry` and `_colour`.

An operation that is not drawn returns its input unchanged. All arithmetic on the draws is per image, so a view does
not depend on the rest of the batch.
"""

import math
from functools import partial
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from mvcl.augment import _colour, _geometry

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

    changed = _colour.color_jitter(
        image,
        jnp.argsort(draws[1:5]),
        factor(draws[5], brightness),
        factor(draws[6], contrast),
        factor(draws[7], saturation),
        hue * (2 * draws[8] - 1) if hue else None,
    )
    return _geometry.choose(draws[0] < probability, changed, image)


def blur(
    draws: jax.Array,
    image: ArrayLike,
    probability: ArrayLike,
    sigma: tuple[ArrayLike, ArrayLike],
    kernel_size: int | None,
) -> jax.Array:
    low, high = jnp.asarray(sigma[0]), jnp.asarray(sigma[1])
    drawn = low + (high - low) * draws[1]
    return _geometry.choose(draws[0] < probability, _geometry.gaussian_blur(image, drawn, kernel_size), image)


def rand_augment_layers(
    draws: jax.Array, image: ArrayLike, ops: int, magnitude: ArrayLike, deviation: ArrayLike = 0.0
) -> jax.Array:
    draws = draws.reshape(ops, DRAWS_PER_RAND_AUGMENT)

    def layer(i: jax.Array, x: jax.Array) -> jax.Array:
        op = jnp.floor(draws[i, 0] * len(_colour.RAND_AUGMENT))
        normal = jax.scipy.special.ndtri(jnp.clip(draws[i, 2], 1e-6, 1 - 1e-6))
        drawn = jnp.clip(magnitude + deviation * normal, 0, 30)
        return _colour.rand_augment_op(x, op, drawn, jnp.where(draws[i, 1] < 0.5, -1.0, 1.0))

    return jax.lax.fori_loop(0, ops, layer, _geometry.choose(True, image, image))


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
    return _geometry.crop_and_resize(image, random_box(key, height, width, scale, ratio), size)


@jax.jit
def random_flip(key: ArrayLike, image: ArrayLike, probability: ArrayLike = 0.5) -> jax.Array:
    """Flip horizontally with a probability."""
    return _geometry.choose(jax.random.uniform(key) < probability, _geometry.horizontal_flip(image), image)


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
    return _geometry.choose(jax.random.uniform(key) < probability, _colour.grayscale(image), image)


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
    return _geometry.choose(jax.random.uniform(key) < probability, _colour.solarise(image, threshold), image)


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


# Of a batch, and after normalisation


def mixup(
    images: ArrayLike, targets: ArrayLike, order: ArrayLike, weight: ArrayLike
) -> tuple[jax.Array, jax.Array]:
    """Each example and target blended with another's: weight * x_i + (1 - weight) * x_order[i].

    Zhang et al. 2018 (arXiv 1710.09412), Eq. 1; one weight for the batch, as in the authors' code.

    Args:
      images: (n, ...) floating.
      targets: (n, c) probabilities.
      order: (n,) whole numbers, a permutation of the rows.
      weight: scalar in [0, 1].

    Returns:
      Images and targets of the same shapes.
    """
    x, y, order, w = (jnp.asarray(a) for a in (images, targets, order, weight))
    return w * x + (1 - w) * x[order], w * y + (1 - w) * y[order]


def cutmix(
    images: ArrayLike, targets: ArrayLike, order: ArrayLike, weight: ArrayLike, centre: ArrayLike
) -> tuple[jax.Array, jax.Array]:
    """A box of each image replaced by another image's, and the target by its share of the area.

    The box has sqrt(1 - weight) of each side, is centred at `centre` and cut at the border; the share is that of the
    remaining pixels. Yun et al. 2019 (arXiv 1905.04899), Eqs. 1 and 2 and their code.

    Args:
      images: (n, height, width, channels).
      targets: (n, c) probabilities.
      order: (n,) whole numbers, a permutation of the rows.
      weight: scalar in [0, 1], the share of the image to keep, before the cut at the border.
      centre: (2,) row and column in [0, 1), as a share of height and width.

    Returns:
      Images and targets of the same shapes.
    """
    x, y, order, centre = (jnp.asarray(a) for a in (images, targets, order, centre))
    height, width = x.shape[1:3]
    side = jnp.sqrt(1 - jnp.asarray(weight))
    inside, area = [], jnp.ones(())
    for length, place in ((height, centre[0]), (width, centre[1])):
        half = jnp.floor(length * side) // 2
        middle = jnp.floor(place * length)
        low, high = jnp.clip(middle - half, 0, length), jnp.clip(middle + half, 0, length)
        at = jnp.arange(length)
        inside.append((at >= low) & (at < high))
        area = area * (high - low)
    box = (inside[0][:, None] & inside[1][None])[None, :, :, None]
    stays = 1 - area / (height * width)
    return jnp.where(box, x[order], x), stays * y + (1 - stays) * y[order]


@partial(jax.jit, static_argnames=("mixup_alpha", "cutmix_alpha"))
def random_mix(
    key: ArrayLike, images: ArrayLike, targets: ArrayLike, mixup_alpha: float, cutmix_alpha: float
) -> tuple[jax.Array, jax.Array]:
    """Mixup or CutMix of a batch with a random permutation of it, each with probability 1/2 if both are on.

    Args:
      key: a jax PRNG key.
      images: (n, height, width, channels) floating.
      targets: (n, c) probabilities.
      mixup_alpha, cutmix_alpha: the weight is drawn from Beta(alpha, alpha); 0 turns that one off.

    Returns:
      Images and targets of the same shapes; unchanged if both are 0.

    Raises:
      ValueError: an alpha is negative.
    """
    if mixup_alpha < 0 or cutmix_alpha < 0:
        raise ValueError(
            f"mixup_alpha and cutmix_alpha must be at least 0, got {mixup_alpha} and {cutmix_alpha}"
        )
    x, y = jnp.asarray(images), jnp.asarray(targets)
    which, permuted, first, second, place = jax.random.split(key, 5)
    order = jax.random.permutation(permuted, x.shape[0])
    blended = pasted = (x, y)
    if mixup_alpha:
        blended = mixup(x, y, order, jax.random.beta(first, mixup_alpha, mixup_alpha))
    if cutmix_alpha:
        weight = jax.random.beta(second, cutmix_alpha, cutmix_alpha)
        pasted = cutmix(x, y, order, weight, jax.random.uniform(place, (2,)))
    if not (mixup_alpha and cutmix_alpha):
        return blended if mixup_alpha else pasted
    chosen = jax.random.bernoulli(which)
    return jnp.where(chosen, blended[0], pasted[0]), jnp.where(chosen, blended[1], pasted[1])


def erase(image: ArrayLike, box: ArrayLike, value: ArrayLike = 0.0) -> jax.Array:
    """The image with the content of a box replaced.

    Args:
      image: (height, width, channels).
      box: (4,) left, upper, right, lower in pixels; may be traced. An empty box keeps the image.
      value: broadcast against the image.

    Returns:
      The image's shape and dtype.
    """
    x, box = jnp.asarray(image), jnp.asarray(box)
    rows, columns = jnp.arange(x.shape[0])[:, None, None], jnp.arange(x.shape[1])[None, :, None]
    inside = (rows >= box[1]) & (rows < box[3]) & (columns >= box[0]) & (columns < box[2])
    return jnp.where(inside, jnp.broadcast_to(jnp.asarray(value, x.dtype), x.shape), x)


@partial(jax.jit, static_argnames=("scale", "ratio"))
def random_erasing(
    key: ArrayLike,
    image: ArrayLike,
    probability: ArrayLike = 0.25,
    scale: tuple[float, float] = (0.02, 1 / 3),
    ratio: tuple[float, float] = (0.3, 1 / 0.3),
) -> jax.Array:
    """With a probability, a random rectangle of a normalised image set to standard normal noise.

    Zhong et al. 2020 (arXiv 1708.04896), Algorithm 1: an area drawn uniformly from `scale` times the image's
    and a ratio height / width, log-uniform from `ratio`, until the rectangle fits, ten times at most; then a
    place drawn uniformly. The noise is drawn per pixel and channel, as in timm's "pixel" mode.

    Args:
      key: a jax PRNG key.
      image: (height, width, channels) floating, normalised by mean and deviation.
      probability: of erasing.
      scale: smallest and largest share of the area.
      ratio: smallest and largest height / width.

    Returns:
      The image's shape and dtype.
    """
    x = jnp.asarray(image)
    height, width = x.shape[:2]
    drawn, noise = jax.random.split(key)
    draws = jax.random.uniform(drawn, (3 + 2 * _TRIES,))
    sizes, place = draws[3:].reshape(2, _TRIES), draws[1:3]
    area = height * width * (scale[0] + (scale[1] - scale[0]) * sizes[0])
    low, high = np.log(ratio[0]), np.log(ratio[1])
    aspect = jnp.exp(low + (high - low) * sizes[1])
    tall, wide = jnp.round(jnp.sqrt(area * aspect)), jnp.round(jnp.sqrt(area / aspect))
    fits = (tall < height) & (wide < width)
    first = jnp.argmax(fits)
    there = (fits[first] & (draws[0] < probability)).astype(x.dtype)
    tall, wide = tall[first] * there, wide[first] * there
    upper = jnp.floor(place[0] * (height - tall + 1))
    left = jnp.floor(place[1] * (width - wide + 1))
    box = jnp.stack([left, upper, left + wide, upper + tall])
    return erase(x, box, jax.random.normal(noise, x.shape, x.dtype))


def smooth_targets(labels: ArrayLike, num_classes: int, smoothing: float = 0.0) -> jax.Array:
    """(n,) labels to (n, num_classes) probabilities: 1 - smoothing on the label, smoothing spread over all.

    Szegedy et al. 2016 (arXiv 1512.00567), Section 7.
    """
    if not 0 <= smoothing < 1 or not math.isfinite(smoothing):
        raise ValueError(f"smoothing must be in [0, 1), got {smoothing}")
    return (1 - smoothing) * jax.nn.one_hot(jnp.asarray(labels), num_classes) + smoothing / num_classes
