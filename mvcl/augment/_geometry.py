"""Crops and blurs, each equal to Pillow's; erasing; Mixup and CutMix of a batch. Colours are in `_colour`.

Parameters are explicit. An image is (height, width, channels) with one or three channels, uint8 or floating in [0, 1],
and a result is float32 in [0, 1]. Pillow rounds to 8 bits after every operation and these do not, so they agree within
2/255 where an operation is continuous. Every parameter except sizes may be traced, and every function supports vmap. A
batch is images (n, height, width, channels), floating, and targets (n, c), probabilities; both keep their shapes.

Internally the layout is (width, channels, height): both matrix products of a resize then access memory in order,
and arithmetic between channels uses a long contiguous axis instead of one of length 3. `inner` and `outer`
convert; XLA cancels the conversions between consecutive operations.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

TRIES = 10
"""How often a random box is drawn until it fits."""


def over(x: jax.Array, divisor: float) -> jax.Array:
    """x / divisor with one rounding: XLA replaces division by a constant with multiplication by its reciprocal."""
    return x / jnp.where(x == x, divisor, 1.0)


def inner(image: ArrayLike) -> jax.Array:
    """(height, width, channels), uint8 or floating -> float32 (width, channels, height) in [0, 1]."""
    image = jnp.asarray(image)
    if image.ndim != 3 or image.shape[-1] not in (1, 3):
        raise ValueError(f"image must be (height, width, channels) with 1 or 3 channels, got {image.shape}")
    if image.dtype == jnp.uint8:
        image = over(image.astype(jnp.float32), 255.0)
    elif not jnp.issubdtype(image.dtype, jnp.floating):
        raise ValueError(f"image must be uint8, or floating in [0, 1], got {image.dtype}")
    return image.astype(jnp.float32).transpose(1, 2, 0)


outer = partial(jnp.transpose, axes=(2, 0, 1))
unit = partial(jnp.clip, min=0.0, max=1.0)


def to_bytes(x: jax.Array) -> jax.Array:
    """Pillow's integers 0..255, as float32."""
    return jnp.round(x * 255)


def halving_sum(x: jax.Array, axis: int) -> jax.Array:
    """Sum along an axis, kept with length 1, by repeated halving.

    On CPU, XLA's order of summation depends on the array size, so the last bits of a view would depend on the number
    of examples on the device. Halving has a fixed order.
    """
    while (length := x.shape[axis]) > 1:
        first, second = jnp.split(x, [(length + 1) // 2], axis)
        x = first + jnp.pad(second, [(0, a - b) for a, b in zip(first.shape, second.shape)])
    return x


def _resampling(start: jax.Array, stop: jax.Array, length: int, size: int, reverse: ArrayLike) -> jax.Array:
    """(size, length) weights that resample [start, stop) of `length` pixels to `size`; each row sums to 1."""
    scale = (stop - start) / size
    # The kernel is widened by the scale, for antialiasing.
    width = jnp.maximum(scale, 1.0)
    target = jnp.arange(size, dtype=jnp.float32)
    target = jnp.where(reverse, size - 1 - target, target)
    center = start + (target + 0.5) * scale
    source = jnp.arange(length, dtype=jnp.float32) + 0.5
    t = jnp.abs((source[None, :] - center[:, None]) / width)
    # Keys' kernel with a = -1/2, Pillow's BICUBIC.
    near = (1.5 * t - 2.5) * t * t + 1
    far = ((2.5 - 0.5 * t) * t - 4) * t + 2
    weights = jnp.where(t < 1, near, jnp.where(t < 2, far, 0.0))
    return weights / halving_sum(weights, 1)


_along_width = partial(jnp.einsum, "xw,wch->xch", precision="highest")
_along_height = partial(jnp.einsum, "xch,yh->xcy", precision="highest")


@partial(jax.jit, static_argnames="size")
def crop_and_resize(
    image: ArrayLike, box: ArrayLike, size: int | tuple[int, int], mirror: ArrayLike = False
) -> jax.Array:
    """Resample a box of the image to a fixed size: Pillow's `resize(size, BICUBIC, box=box)`.

    Bicubic with a = -1/2, antialiased. As in Pillow, pixels just outside the box contribute (the window ends at the
    image's border, where the weights are renormalised), and the first pass is clipped to [0, 1] before the second. The
    first pass is horizontal, unless more than twice as many rows as columns are removed, as in Pillow 13 (always
    horizontal in earlier versions).

    A box of the whole image at its own size returns the image.

    Args:
      box: (4,) left, upper, right, lower, in pixels from the upper left corner, any real numbers inside the image.
      size: side of the result in pixels, or (height, width).
      mirror: flip the result horizontally, without extra cost.
    """
    x = inner(image)
    box = jnp.asarray(box, jnp.float32)
    if box.shape != (4,):
        raise ValueError(f"box must be (4,): left, upper, right, lower, got {box.shape}")
    height, width = (size, size) if isinstance(size, int) else size
    across = _resampling(box[0], box[2], x.shape[0], width, mirror)
    down = _resampling(box[1], box[3], x.shape[2], height, False)
    lost_rows, lost_columns = x.shape[2] - height, x.shape[0] - width
    if lost_rows > 0 and lost_rows > 2 * lost_columns:
        return outer(unit(_along_width(across, unit(_along_height(x, down)))))
    return outer(unit(_along_height(unit(_along_width(across, x)), down)))


def _gaussian(length: int, sigma: jax.Array, reach: int) -> jax.Array:
    """(length, length) Gaussian weights up to a distance `reach`; rows sum to 1, what is beyond is the border's."""
    if length == 1:
        return jnp.ones((1, 1))
    source = jnp.arange(-reach, length + reach, dtype=jnp.float32)
    distance = jnp.abs(source[None, :] - jnp.arange(length, dtype=jnp.float32)[:, None])
    weights = jnp.where(distance <= reach, jnp.exp(-0.5 * jnp.square(distance / sigma)), 0.0)
    taps = jnp.exp(-0.5 * jnp.square(jnp.arange(-reach, reach + 1)[None, :] / sigma))
    first, last = halving_sum(weights[:, : reach + 1], 1), halving_sum(weights[:, length + reach - 1 :], 1)
    inside = weights[:, reach + 1 : length + reach - 1]
    return jnp.concatenate([first, inside, last], 1) / halving_sum(taps, 1)


def _box_counts(length: int, whole: jax.Array) -> jax.Array:
    """(length, length): 512 * (count of a pixel in the box) + (count of it as one of the two ends).

    Multiplied by integers 0..255 this gives both sums in one exact float32 product: the ends' below 512, the box's
    above.
    """
    # below[i, j] counts the part of the box around pixel i that is before pixel j. Parts beyond the border belong to
    # the border pixel: for the first pixel all before the second, for the last all from itself on.
    offset = jnp.arange(length)[None, :] - jnp.arange(length)[:, None]
    full = 2 * whole + 1
    below = 512 * jnp.clip(offset + whole, 0, full) + (offset > -whole - 1) + (offset > whole + 1)
    edges = jnp.zeros((length, 1), below.dtype)
    below = jnp.concatenate([edges, below[:, 1:], edges + 512 * full + 2], 1)
    return jnp.diff(below, axis=1).astype(jnp.float32)


def _pillow_blur(x: jax.Array, sigma: jax.Array) -> jax.Array:
    """Three extended box filters along each axis, in Pillow's 24-bit fixed point, each with a third of the Gaussian's
    variance: Gwosdek et al. 2011, Theoretical Foundations of Gaussian Convolution by Extended Box Filtering, Eqs. 7,
    11, 14."""
    variance = over(sigma * sigma, 3.0)
    length = jnp.floor((jnp.sqrt(12 * variance + 1) - 1) / 2)
    part = (2 * length + 1) * (length * (length + 1) - 3 * variance) / (6 * (variance - (length + 1) ** 2))
    radius = length + part
    whole = radius.astype(jnp.int32)
    weight = ((1 << 24) / (2 * radius + 1)).astype(jnp.uint32)
    end_weight = ((1 << 24) - (2 * whole.astype(jnp.uint32) + 1) * weight) // 2

    def weigh(sums: jax.Array) -> jax.Array:
        both = sums.astype(jnp.uint32)
        return (((both >> 9) * weight + (both & 511) * end_weight + (1 << 23)) >> 24).astype(jnp.float32)

    x = to_bytes(x)
    across, down = _box_counts(x.shape[0], whole), _box_counts(x.shape[2], whole)
    for _ in range(3):
        x = weigh(_along_width(across, x))
    for _ in range(3):
        x = weigh(_along_height(x, down))
    return x / 255


@partial(jax.jit, static_argnames="kernel_size")
def gaussian_blur(image: ArrayLike, sigma: ArrayLike, kernel_size: int | None = None) -> jax.Array:
    """Blur with a Gaussian of standard deviation `sigma` pixels; border pixels are repeated.

    With `kernel_size` None this equals `ImageFilter.GaussianBlur(sigma)` exactly: three extended box filters of the
    same total variance along each axis, each rounded to 8 bits and each repeating the border pixel. With an odd
    `kernel_size` it is the Gaussian exp(-t^2 / (2 sigma^2)) at integers |t| <= kernel_size // 2, normalised to sum 1,
    as in SimCLR and BYOL (they pad with black; here border pixels are repeated). For sigma up to 3 the two differ by up
    to 5/255 inside an image and by up to 30/255 within 3 sigma of its border.
    """
    x = inner(image)
    sigma = jnp.asarray(sigma, jnp.float32)
    if kernel_size is None:
        return outer(_pillow_blur(x, sigma))
    if kernel_size < 1 or kernel_size % 2 == 0:
        raise ValueError(f"kernel_size must be odd and positive, or None, got {kernel_size}")
    reach = kernel_size // 2
    x = _along_width(_gaussian(x.shape[0], sigma, reach), x)
    return outer(unit(_along_height(x, _gaussian(x.shape[2], sigma, reach))))


def mixup(
    images: ArrayLike, targets: ArrayLike, order: ArrayLike, weight: ArrayLike
) -> tuple[jax.Array, jax.Array]:
    """Each example and target blended with another's: weight * x_i + (1 - weight) * x_order[i].

    Zhang et al. 2018 (arXiv 1710.09412), Eq. 1; one weight in [0, 1] for the batch, as in the authors' code. `order` is
    (n,), a permutation of the rows.
    """
    x, y, order, w = (jnp.asarray(a) for a in (images, targets, order, weight))
    return w * x + (1 - w) * x[order], w * y + (1 - w) * y[order]


def cutmix(
    images: ArrayLike, targets: ArrayLike, order: ArrayLike, weight: ArrayLike, centre: ArrayLike
) -> tuple[jax.Array, jax.Array]:
    """A box of each image replaced by another image's, and the target by its share of the area.

    The box has sqrt(1 - weight) of each side, is centred at `centre`, (2,) row and column in [0, 1) as shares of height
    and width, and cut at the border; the share is that of the remaining pixels. `order` and `weight` are as in `mixup`.
    Yun et al. 2019 (arXiv 1905.04899), Eqs. 1 and 2 and their code.
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

    The weight is drawn from Beta(alpha, alpha); an alpha of 0 turns that one off.
    """
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
    return jax.tree.map(partial(jnp.where, jax.random.bernoulli(which)), blended, pasted)


@partial(jax.jit, static_argnames="scale")
def random_erasing(
    key: ArrayLike,
    image: ArrayLike,
    probability: ArrayLike = 0.25,
    scale: tuple[float, float] = (0.02, 1 / 3),
) -> jax.Array:
    """With a probability, a random rectangle of a normalised image set to standard normal noise.

    Zhong et al. 2020 (arXiv 1708.04896), Algorithm 1: an area drawn uniformly from `scale` times the image's
    and a ratio height / width, log-uniform from 0.3 to 1 / 0.3, until the rectangle fits, ten times at most; then a
    place drawn uniformly. The noise is drawn per pixel and channel, as in timm's "pixel" mode.
    """
    x = jnp.asarray(image)
    height, width = x.shape[:2]
    drawn, noise = jax.random.split(key)
    draws = jax.random.uniform(drawn, (3 + 2 * TRIES,))
    sizes, place = draws[3:].reshape(2, TRIES), draws[1:3]
    area = height * width * (scale[0] + (scale[1] - scale[0]) * sizes[0])
    low, high = np.log(0.3), np.log(1 / 0.3)
    aspect = jnp.exp(low + (high - low) * sizes[1])
    tall, wide = jnp.round(jnp.sqrt(area * aspect)), jnp.round(jnp.sqrt(area / aspect))
    fits = (tall < height) & (wide < width)
    first = jnp.argmax(fits)
    there = (fits[first] & (draws[0] < probability)).astype(x.dtype)
    tall, wide = tall[first] * there, wide[first] * there
    upper = jnp.floor(place[0] * (height - tall + 1))
    left = jnp.floor(place[1] * (width - wide + 1))
    rows, columns = jnp.arange(height)[:, None, None], jnp.arange(width)[None, :, None]
    inside = (rows >= upper) & (rows < upper + tall) & (columns >= left) & (columns < left + wide)
    return jnp.where(inside, jax.random.normal(noise, x.shape, x.dtype), x)
