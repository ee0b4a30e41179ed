"""Mixup and CutMix of a batch, and erasing in a normalised image.

A batch is images (n, height, width, channels), floating, and targets (n, c), probabilities; both keep their shapes.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

_TRIES = 10


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

    The box has sqrt(1 - weight) of each side, is centred at `centre` and cut at the border; the share is that of the
    remaining pixels. Yun et al. 2019 (arXiv 1905.04899), Eqs. 1 and 2 and their code.

    Args:
      order: (n,) whole numbers, a permutation of the rows.
      weight: scalar in [0, 1], the share of the image to keep, before the cut at the border.
      centre: (2,) row and column in [0, 1), as a share of height and width.
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
    chosen = jax.random.bernoulli(which)
    return jnp.where(chosen, blended[0], pasted[0]), jnp.where(chosen, blended[1], pasted[1])


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

    The image is (height, width, channels), floating, normalised by mean and deviation.
    """
    x = jnp.asarray(image)
    height, width = x.shape[:2]
    drawn, noise = jax.random.split(key)
    draws = jax.random.uniform(drawn, (3 + 2 * _TRIES,))
    sizes, place = draws[3:].reshape(2, _TRIES), draws[1:3]
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
