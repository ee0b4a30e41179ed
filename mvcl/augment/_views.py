"""k views of every image of a batch, each a function of (seed, epoch, example index, view) only."""

from collections.abc import Mapping, Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from PIL import Image

from mvcl.augment import _colour, _geometry, _random
from mvcl.augment._policy import Policy

DrawnViews = jax.Array | tuple[jax.Array, ...]
"""(n, k, height, width, channels), or where sizes differ a tuple of k arrays (n, height, width, channels)."""
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
        x = _geometry.choose(mirror, _geometry.horizontal_flip(image), image)
    else:
        if policy.random_crop and policy.crop_padding:
            around = policy.crop_padding
            image = jnp.pad(jnp.asarray(image), ((around, around), (around, around), (0, 0)), mode="reflect")
            box = _random.padded_box(jnp, drawn["crop"], height, width, around)
        elif policy.random_crop:
            box = _random.box(jnp, drawn["crop"], height, width, policy.crop_scale, policy.crop_ratio)
        else:
            box = jnp.asarray(_random.center_box(height, width, policy.center_fraction), jnp.float32)
        x = _geometry.crop_and_resize(image, box, policy.image_size, mirror)
    if policy.rand_augment_ops and policy.rand_augment_probability:
        magnitude = policy.rand_augment_magnitude, policy.rand_augment_deviation
        changed = _random.rand_augment_layers(drawn["rand_augment"], x, policy.rand_augment_ops, *magnitude)
        if policy.rand_augment_probability < 1:
            changed = _geometry.choose(
                drawn["rand_augmented"][0] < policy.rand_augment_probability, changed, x
            )
        x = changed
    strengths = (policy.brightness, policy.contrast, policy.saturation, policy.hue)
    if policy.jitter_probability and any(strengths):
        x = _random.jitter(drawn["jitter"], x, policy.jitter_probability, *strengths)
    if policy.grayscale_probability:
        gray = drawn["grayscale"][0] < policy.grayscale_probability
        x = _geometry.choose(gray, _colour.grayscale(x), x)
    if policy.blur_probability:
        kernel = policy.blur_kernel or None
        x = _random.blur(drawn["blur"], x, policy.blur_probability, policy.blur_sigma, kernel)
    if policy.solarise_probability:
        solarised = _colour.solarise(x, policy.solarise_threshold)
        x = _geometry.choose(drawn["solarise"][0] < policy.solarise_probability, solarised, x)
    x = _colour.normalise(x, np.asarray(policy.mean), np.asarray(policy.std))
    if policy.erase_probability:
        # A separate key, so that the other numbers of a view do not depend on it.
        erasing = jax.random.fold_in(key, 1)
        x = _random.random_erasing(erasing, x, policy.erase_probability, policy.erase_scale)
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
    policies: Sequence[Policy],
    images: ArrayLike | tuple[ArrayLike, ...],
    seed: ArrayLike,
    epoch: ArrayLike,
    index: ArrayLike,
) -> DrawnViews:
    """Draw k views of each of n images, view v by `policies[v]`; call it under `jit`.

    View v of example i depends only on (seed, epoch[i], index[i], v) and the image. n is always the leading axis, so
    under jit, with a batch sharded over n, each device computes its own rows.

    Args:
      policies: k of them; views of equal policies are vmapped as one.
      images: (n, height, width, channels), channels 1 or 3, uint8 or floating in [0, 1]; or the crops that `host_crop`
        made of them, a tuple of k arrays (n, image_size, image_size, channels), for which only the rest of the policy
        is applied.
      seed: whole number.
      epoch: (n,) whole numbers, the epoch in which each example is drawn.
      index: (n,) whole numbers, each example's index in the data set.

    Returns:
      (n, k, image_size, image_size, channels) float32; for policies of several sizes a tuple of k arrays
      (n, image_size, image_size, channels).

    Raises:
      ValueError: for no policies, or images, epoch or index of other shapes.
    """
    k, epoch, index = len(policies), jnp.asarray(epoch), jnp.asarray(index)
    if k == 0:
        raise ValueError("policies must be at least one, got none")
    cropped = isinstance(images, tuple)
    sources = tuple(map(jnp.asarray, images)) if isinstance(images, tuple) else (jnp.asarray(images),)
    if any(x.ndim != 4 for x in sources) or (cropped and len(sources) != k):
        wanted = f"(n, height, width, channels), or a tuple of {k} arrays (n, size, size, channels)"
        got = ", ".join(str(x.shape) for x in sources)
        raise ValueError(f"images must be {wanted}, got {got}")
    n = sources[0].shape[0]
    for name, array in (("epoch", epoch), ("index", index)):
        if array.shape != (n,):
            raise ValueError(f"{name} must be ({n},), one for each image, got {array.shape}")

    groups: dict[Policy, list[int]] = {}
    for view, policy in enumerate(policies):
        groups.setdefault(policy, []).append(view)
    example = partial(_of_one_example, groups, cropped, seed)
    numbers = sum(policy.image_size**2 for policy in policies) * sources[0].shape[-1]
    steps, devices = _pieces(n, 4 * numbers)
    if steps == 1:
        return jax.vmap(example)(sources, epoch, index)

    def split(array: jax.Array) -> jax.Array:
        return array.reshape(devices, steps, -1, *array.shape[1:]).swapaxes(0, 1)

    def joined(array: jax.Array) -> jax.Array:
        return array.swapaxes(0, 1).reshape(n, *array.shape[3:])

    piece = jax.vmap(jax.vmap(example))
    views = jax.lax.map(lambda rows: piece(*rows), jax.tree.map(split, (sources, epoch, index)))
    return jax.tree.map(joined, views)


def _of_one_example(
    groups: Mapping[Policy, Sequence[int]],
    cropped: bool,
    seed: ArrayLike,
    sources: tuple[jax.Array, ...],
    epoch: jax.Array,
    index: jax.Array,
) -> DrawnViews:
    """The views of one image, or of its k crops; `groups` are the views by policy."""
    drawn = []
    for policy, views in groups.items():
        keys = jax.vmap(partial(view_key, seed, epoch, index))(np.asarray(views))
        source = jnp.stack([sources[view] for view in views]) if cropped else sources[0]
        draw = partial(apply_policy, policy, cropped=cropped)
        drawn.append(jax.vmap(draw, in_axes=(0, 0 if cropped else None))(keys, source))
    if len(drawn) == 1:
        return drawn[0]
    place = np.argsort([view for views in groups.values() for view in views])
    if len({policy.image_size for policy in groups}) == 1:
        return jnp.concatenate(drawn)[place]
    every = [view for group in drawn for view in group]
    return tuple(every[at] for at in place)


def by_shape(views: DrawnViews) -> list[tuple[tuple[int, ...], jax.Array]]:
    """Views of one shape together: their places among the k, and them as one array (n, m, ...).

    Groups are in the order of their first views.
    """
    if not isinstance(views, tuple):
        return [(tuple(range(views.shape[1])), views)]
    groups: dict[tuple[int, ...], list[int]] = {}
    for place, view in enumerate(views):
        groups.setdefault(view.shape, []).append(place)
    return [(tuple(places), jnp.stack([views[l] for l in places], axis=1)) for places in groups.values()]


def in_order_of_views(groups: Sequence[tuple[Sequence[int], jax.Array]]) -> jax.Array:
    """(n, k, f): what was computed of the groups of `by_shape`, (n, m, f) each."""
    if len(groups) == 1:
        return groups[0][1]
    places = [place for group, _ in groups for place in group]
    return jnp.concatenate([found for _, found in groups], axis=1)[:, np.argsort(places)]


# Crops on the host, for images of different sizes; the rest of a policy runs on the device


def host_crop(
    image: Image.Image | np.ndarray | Sequence[np.ndarray],
    policies: Sequence[Policy],
    seed: int,
    epoch: int,
    index: int,
) -> tuple[np.ndarray, ...]:
    """The k crops of one decoded image, or of k images, resized by Pillow (bicubic); `draw_views` does the rest.

    Crop v depends only on (seed, epoch, index, v) and the image's size: its numbers come from the counter-based
    Philox generator with key (seed, epoch) and counter (0, 0, index, v), independent of processes and workers.
    `draw_views` draws other numbers when it crops.

    Args:
      image: a Pillow image (modes other than L are converted to RGB), or (height, width, 1 or 3) uint8; or a sequence
        of k such arrays, one for each view.
      policies: k of them; view v is cropped by `policies[v]`.
      seed, epoch, index: whole numbers in [0, 2^64).

    Returns:
      k arrays (image_size, image_size, 1 or 3) uint8, of the image_size of each policy.
    """
    if isinstance(image, (np.ndarray, Image.Image)):
        opened = [_opened(image)] * len(policies)
    else:
        opened = [_opened(one) for one in image]
    crops = []
    for view, (policy, picture) in enumerate(zip(policies, opened, strict=True)):
        width, height = picture.size
        if policy.random_crop:
            generator = np.random.Generator(np.random.Philox(key=[seed, epoch], counter=[0, 0, index, view]))
            draws = generator.random(_random.DRAWS["crop"])
            if policy.crop_padding:
                around = [(policy.crop_padding, policy.crop_padding)] * 2 + [(0, 0)] * (picture.mode == "RGB")
                picture = Image.fromarray(np.pad(np.asarray(picture), around, mode="reflect"))
                box = _random.padded_box(np, draws, height, width, policy.crop_padding)
            else:
                box = _random.box(np, draws, height, width, policy.crop_scale, policy.crop_ratio)
            left, upper, right, lower = box.tolist()
        else:
            left, upper, right, lower = _random.center_box(height, width, policy.center_fraction)
        size = (policy.image_size, policy.image_size)
        crop = np.asarray(picture.resize(size, Image.Resampling.BICUBIC, box=(left, upper, right, lower)))
        crops.append(crop.reshape(*size, -1))
    return tuple(crops)


def _opened(image: Image.Image | np.ndarray) -> Image.Image:
    if isinstance(image, np.ndarray):
        if image.dtype != np.uint8 or image.ndim != 3 or image.shape[-1] not in (1, 3):
            raise ValueError(f"image must be (height, width, 1 or 3) uint8, got {image.shape} {image.dtype}")
        return Image.fromarray(image[..., 0] if image.shape[-1] == 1 else image)
    return image if image.mode in ("L", "RGB") else image.convert("RGB")
