"""k views of every image of a batch, each a function of (seed, epoch, example index, view) only."""

from collections.abc import Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from mvcl.augment import _mixing, _ops, _random
from mvcl.augment._policy import Policy

_CACHE_BYTES = 1 << 19  # of float32 views, so that a piece with its temporaries fits in a core's L2 cache


def view_key(seed: ArrayLike, epoch: ArrayLike, index: ArrayLike, view: ArrayLike) -> jax.Array:
    """The key of one view: seed, epoch, example index and view, folded into a threefry key in this order.

    All are integers in [0, 2^32), traced or not. The generator is explicit, so the views do not depend on jax's
    default generator.
    """
    key = jax.random.key(seed, impl="threefry2x32")
    for part in (epoch, index, view):
        key = jax.random.fold_in(key, part)
    return key


def apply_policy(policy: Policy, key: ArrayLike, image: ArrayLike, *, cropped: bool = False) -> jax.Array:
    """One view of one image.

    Args:
      policy: of the view.
      key: a jax PRNG key. Each step has its own uniform numbers, so omitting one does not change the others.
      image: (height, width, 1 or 3), uint8 or floating in [0, 1].
      cropped: the image is already cropped to the right size; only the rest of the policy is applied.

    Returns:
      (image_size, image_size, channels) float32, (x - mean) / std of an image in [0, 1].
    """
    # One call for all numbers, since threefry calls take longest to compile.
    sizes = {
        **_random.DRAWS,
        "rand_augment": policy.rand_augment_ops * _random.DRAWS_PER_RAND_AUGMENT,
        "rand_augmented": int(policy.rand_augment_ops > 0 and policy.rand_augment_probability < 1),
    }
    stops = np.cumsum(list(sizes.values()))
    drawn = dict(zip(sizes, jnp.split(jax.random.uniform(key, (int(stops[-1]),)), stops[:-1])))
    height, width = jnp.shape(image)[:2]
    mirror = drawn["flip"][0] < policy.flip_probability
    if cropped:
        if (height, width) != (policy.image_size, policy.image_size):
            side = policy.image_size
            raise ValueError(f"images must be crops of {side} x {side} pixels, got {height} x {width}")
        x = _ops.choose(mirror, _ops.horizontal_flip(image), image)
    else:
        if policy.random_crop and policy.crop_padding:
            around = policy.crop_padding
            image = jnp.pad(jnp.asarray(image), ((around, around), (around, around), (0, 0)), mode="reflect")
            box = _random.padded_box(jnp, drawn["crop"], height, width, around)
        elif policy.random_crop:
            box = _random.box(jnp, drawn["crop"], height, width, policy.crop_scale, policy.crop_ratio)
        else:
            box = jnp.asarray(_random.center_box(height, width, policy.center_fraction), jnp.float32)
        x = _ops.crop_and_resize(image, box, policy.image_size, mirror)
    if policy.rand_augment_ops and policy.rand_augment_probability:
        magnitude = policy.rand_augment_magnitude, policy.rand_augment_deviation
        changed = _random.rand_augment_layers(drawn["rand_augment"], x, policy.rand_augment_ops, *magnitude)
        if policy.rand_augment_probability < 1:
            changed = _ops.choose(drawn["rand_augmented"][0] < policy.rand_augment_probability, changed, x)
        x = changed
    strengths = (policy.brightness, policy.contrast, policy.saturation, policy.hue)
    if policy.jitter_probability and any(strengths):
        x = _random.jitter(drawn["jitter"], x, policy.jitter_probability, *strengths)
    if policy.grayscale_probability:
        gray = drawn["grayscale"][0] < policy.grayscale_probability
        x = _ops.choose(gray, _ops.grayscale(x), x)
    if policy.blur_probability:
        kernel = policy.blur_kernel or None
        x = _random.blur(drawn["blur"], x, policy.blur_probability, policy.blur_sigma, kernel)
    if policy.solarise_probability:
        solarised = _ops.solarise(x, policy.solarise_threshold)
        x = _ops.choose(drawn["solarise"][0] < policy.solarise_probability, solarised, x)
    x = _ops.normalise(x, np.asarray(policy.mean), np.asarray(policy.std))
    if policy.erase_probability:
        # A separate key, so that the other numbers of a view do not depend on it.
        erasing = jax.random.fold_in(key, 1)
        x = _mixing.random_erasing(erasing, x, policy.erase_probability, policy.erase_scale)
    return x


def _pieces(n: int, example_bytes: int) -> tuple[int, int]:
    """(steps, devices): on CPU, the number of pieces to process each device's rows in.

    A policy reads and writes its views about twenty times; in pieces that fit in the cache, 256 examples of 8 views
    of 32x32x3 take half the time. Every piece has rows of every device, so no rows move between devices.
    """
    devices = jax.device_count()
    if jax.default_backend() != "cpu" or n % devices:
        return 1, devices
    rows = n // devices
    fitting = max(1, _CACHE_BYTES // example_bytes)
    piece = max(size for size in range(1, min(rows, fitting) + 1) if rows % size == 0)
    # Without a good divisor, such as for a prime number of rows, the steps would cost more than they save.
    return (rows // piece if 4 * piece >= min(rows, fitting) else 1), devices


def draw_views(
    policies: Sequence[Policy], images: ArrayLike, seed: ArrayLike, epoch: ArrayLike, index: ArrayLike
) -> jax.Array:
    """Draw k views of each of n images, view v by `policies[v]`; call it under `jit`.

    View v of example i depends only on (seed, epoch[i], index[i], v) and the image. n is always the leading axis, so
    under jit, with a batch sharded over n, each device computes its own rows.

    Args:
      policies: k of them, of one image_size; views of equal policies are vmapped as one.
      images: (n, height, width, channels), channels 1 or 3, uint8 or floating in [0, 1]; or (n, k, size,
        size, channels), crops made on the host by `host_crop`, for which only the rest of the policy is applied.
      seed: whole number.
      epoch: (n,) whole numbers, the epoch in which each example is drawn.
      index: (n,) whole numbers, each example's index in the data set.

    Returns:
      (n, k, image_size, image_size, channels) float32.
    """
    images, epoch, index = jnp.asarray(images), jnp.asarray(epoch), jnp.asarray(index)
    k = len(policies)
    if k == 0 or len({policy.image_size for policy in policies}) != 1:
        sizes = [policy.image_size for policy in policies]
        raise ValueError(f"policies must be at least one and share an image_size, got sizes {sizes}")
    cropped = images.ndim == 5
    if images.ndim not in (4, 5) or (cropped and images.shape[1] != k):
        shapes = f"(n, height, width, channels) or (n, {k}, size, size, channels)"
        raise ValueError(f"images must be {shapes}, got {images.shape}")
    for name, array in (("epoch", epoch), ("index", index)):
        if array.shape != images.shape[:1]:
            raise ValueError(f"{name} must be ({images.shape[0]},), one for each image, got {array.shape}")

    groups: dict[Policy, list[int]] = {}
    for view, policy in enumerate(policies):
        groups.setdefault(policy, []).append(view)

    def example(image: jax.Array, epoch: jax.Array, index: jax.Array) -> jax.Array:
        drawn = []
        for policy, views in groups.items():
            keys = jax.vmap(partial(view_key, seed, epoch, index))(np.asarray(views))
            source = image[np.asarray(views)] if cropped else image
            draw = partial(apply_policy, policy, cropped=cropped)
            drawn.append(jax.vmap(draw, in_axes=(0, 0 if cropped else None))(keys, source))
        if len(drawn) == 1:
            return drawn[0]
        place = np.argsort([view for views in groups.values() for view in views])
        return jnp.concatenate(drawn)[place]

    steps, devices = _pieces(images.shape[0], 4 * k * policies[0].image_size ** 2 * images.shape[-1])
    if steps == 1:
        return jax.vmap(example)(images, epoch, index)

    def split(array: jax.Array) -> jax.Array:
        return array.reshape(devices, steps, -1, *array.shape[1:]).swapaxes(0, 1)

    piece = jax.vmap(jax.vmap(example))
    views = jax.lax.map(lambda rows: piece(*rows), (split(images), split(epoch), split(index)))
    return views.swapaxes(0, 1).reshape(images.shape[0], *views.shape[3:])
