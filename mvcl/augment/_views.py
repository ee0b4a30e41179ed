"""Views of every image of a batch, functions of (seed, epoch, index, view) only; and augmentation of given views."""

import dataclasses
import math
from collections.abc import Callable, Sequence
from functools import partial, reduce
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from mvcl.augment import _colour, _geometry, _resample
from mvcl.augment._policy import Policy
from mvcl.augment._resample import Box, Encoded

DrawnViews = jax.Array | tuple[jax.Array, ...]
"""(n, k, height, width, channels), or where sizes differ a tuple of k arrays (n, height, width, channels)."""
_CACHE_BYTES = 1 << 19  # of float32 views, so that a piece with its temporaries fits in a core's L2 cache
# Number of uniform random numbers per step of a view, in the order of use.
_DRAWS = {"crop": 4 * _geometry.TRIES, "flip": 1, "jitter": 9, "grayscale": 1, "blur": 2, "solarise": 1}


def view_key(seed: ArrayLike, epoch: ArrayLike, index: ArrayLike, view: ArrayLike) -> jax.Array:
    """The key of one view: seed, epoch, example index and view, folded into a threefry key in this order.

    All are integers in [0, 2^32), traced or not. The generator is explicit, so the views do not depend on jax's
    default generator.
    """
    return reduce(jax.random.fold_in, (epoch, index, view), jax.random.key(seed, impl="threefry2x32"))


def crop_box(xp: ModuleType, policy: Policy, draws: Any, height: int, width: int) -> Any:
    """Left, upper, right, lower of a policy's crop, in numpy (host) or jax.numpy (device), from uniform numbers.

    With `random_crop` as in torchvision's RandomResizedCrop: up to ten times, an area is drawn uniformly from
    `crop_scale` times the image's and a ratio width / height log-uniformly from `crop_ratio`; the first box whose
    rounded sides fit in the image is placed uniformly. If none fits, it is the largest central box with a ratio in
    `crop_ratio`. With `crop_padding` it is a box of the image's own size in the padded image.
    """
    if not policy.random_crop:
        side = policy.center_fraction * min(height, width)
        left, upper = (width - side) / 2, (height - side) / 2
        return left, upper, left + side, upper + side
    if policy.crop_padding:
        left, upper = (xp.floor(draws[i] * (2 * policy.crop_padding + 1)) for i in (0, 1))
        return xp.stack([left, upper, left + width, upper + height]).astype("float32")
    (least, most), ratio = policy.crop_scale, policy.crop_ratio
    draws = draws.reshape(4, _geometry.TRIES)
    area = height * width * (least + (most - least) * draws[0])
    low, high = math.log(ratio[0]), math.log(ratio[1])
    aspect = xp.exp(low + (high - low) * draws[1])
    wide, tall = xp.round(xp.sqrt(area * aspect)), xp.round(xp.sqrt(area / aspect))
    fits = (wide > 0) & (wide <= width) & (tall > 0) & (tall <= height)
    first = xp.argmax(fits)
    found = fits[first]
    whole = (min(width, round(height * ratio[1])), min(height, round(width / ratio[0])))
    wide, tall = xp.where(found, wide[first], whole[0]), xp.where(found, tall[first], whole[1])
    left = xp.where(found, xp.floor(draws[2, first] * (width - wide + 1)), (width - whole[0]) // 2)
    upper = xp.where(found, xp.floor(draws[3, first] * (height - tall + 1)), (height - whole[1]) // 2)
    return xp.stack([left, upper, left + wide, upper + tall]).astype("float32")


def _host_box(policy: Policy, draws: np.ndarray, height: int, width: int) -> Box:
    """`crop_box` on the host, without numpy's cost of small arrays where a try fits."""
    if policy.random_crop and not policy.crop_padding:
        (least, most), (low, high) = policy.crop_scale, map(math.log, policy.crop_ratio)
        for share, slant, x, y in zip(*draws.reshape(4, _geometry.TRIES).tolist()):
            area = height * width * (least + (most - least) * share)
            aspect = math.exp(low + (high - low) * slant)
            wide, tall = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
            if 0 < wide <= width and 0 < tall <= height:
                left, upper = math.floor(x * (width - wide + 1)), math.floor(y * (height - tall + 1))
                return float(left), float(upper), float(left + wide), float(upper + tall)
    left, upper, right, lower = map(float, crop_box(np, policy, draws, height, width))
    return left, upper, right, lower


def apply_policy(policy: Policy, key: ArrayLike, image: ArrayLike, *, cropped: bool = False) -> jax.Array:
    """One view of one image: (image_size, image_size, channels) float32, (x - mean) / std of an image in [0, 1].

    Each step has its own uniform numbers of the key, so omitting one does not change the others. The image is (height,
    width, 1 or 3), uint8 or floating in [0, 1]; `cropped`: it has the view's size, and the policy's crop is done.
    """
    # One call for all numbers, since threefry calls take longest to compile.
    ops, share = policy.rand_augment_ops, policy.rand_augment_probability
    each = 4 if policy.rand_augment_kind == "timm" else 3
    sizes = {**_DRAWS, "rand_augment": each * ops, "rand_augmented": int(ops > 0 and share < 1)}
    stops = np.cumsum(list(sizes.values()))
    drawn = dict(zip(sizes, jnp.split(jax.random.uniform(key, (int(stops[-1]),)), stops[:-1])))
    (height, width), side, around = jnp.shape(image)[:2], policy.image_size, policy.crop_padding
    mirror = drawn["flip"][0] < policy.flip_probability
    if cropped:
        if (height, width) != (side, side):
            raise ValueError(f"images must be crops of {side} x {side} pixels, got {height} x {width}")
        x = _colour.choose(mirror, jnp.asarray(image)[:, ::-1], image)
    else:
        box = crop_box(jnp, policy, drawn["crop"], height, width)
        if policy.random_crop and around:
            image = jnp.pad(jnp.asarray(image), ((around, around), (around, around), (0, 0)), mode="reflect")
        x = _geometry.crop_and_resize(image, box, side, mirror)
    if ops and share:
        changed = _rand_augment(policy, drawn["rand_augment"].reshape(ops, each), x)
        x = changed if share == 1 else _colour.choose(drawn["rand_augmented"][0] < share, changed, x)
    strengths = (policy.brightness, policy.contrast, policy.saturation)
    if policy.jitter_probability and (any(strengths) or policy.hue):
        draws = drawn["jitter"]
        # Uniform in [max(0, 1 - strength), 1 + strength], as in torchvision's ColorJitter.
        low = [max(0.0, 1 - strength) for strength in strengths]
        factors = [l + (1 + s - l) * d if s else None for s, l, d in zip(strengths, low, draws[5:8])]
        hue = policy.hue * (2 * draws[8] - 1) if policy.hue else None
        changed = _colour.color_jitter(x, jnp.argsort(draws[1:5]), *factors, hue)
        x = _colour.choose(draws[0] < policy.jitter_probability, changed, x)
    if policy.grayscale_probability:
        x = _colour.choose(drawn["grayscale"][0] < policy.grayscale_probability, _colour.grayscale(x), x)
    if policy.blur_probability:
        low, high = map(jnp.float32, policy.blur_sigma)
        sigma = low + (high - low) * drawn["blur"][1]
        changed = _geometry.gaussian_blur(x, sigma, policy.blur_kernel or None)
        x = _colour.choose(drawn["blur"][0] < policy.blur_probability, changed, x)
    if policy.solarise_probability:
        changed = _colour.solarise(x, policy.solarise_threshold)
        x = _colour.choose(drawn["solarise"][0] < policy.solarise_probability, changed, x)
    x = _colour.normalise(x, np.asarray(policy.mean), np.asarray(policy.std))
    if policy.erase_probability:
        # A separate key, so that the other numbers of a view do not depend on it.
        erasing = jax.random.fold_in(key, 1)
        x = _geometry.random_erasing(erasing, x, policy.erase_probability, policy.erase_scale)
    return x


def _rand_augment(policy: Policy, draws: jax.Array, image: jax.Array) -> jax.Array:
    """RandAugment's operations one after the other, from uniform numbers each: operation, sign, magnitude; and of timm
    whether the operation is applied, half of them, with the policy's mean beyond the image."""
    timm = policy.rand_augment_kind == "timm"
    names = _colour.RAND_AUGMENT_TIMM if timm else _colour.RAND_AUGMENT
    of_kind: Any = {"kind": policy.rand_augment_kind, "fill": np.round(255 * np.asarray(policy.mean)) / 255}

    def layer(i: jax.Array, x: jax.Array) -> jax.Array:
        op = jnp.floor(draws[i, 0] * len(names))
        normal = jax.scipy.special.ndtri(jnp.clip(draws[i, 2], 1e-6, 1 - 1e-6))
        magnitude = jnp.clip(policy.rand_augment_magnitude + policy.rand_augment_deviation * normal, 0, 30)
        sign = jnp.where(draws[i, 1] < 0.5, -1.0, 1.0)
        changed = _colour.rand_augment_op(x, op, magnitude, sign, **of_kind)
        return _colour.choose(draws[i, 3] < 0.5, changed, x) if timm else changed

    return jax.lax.fori_loop(0, len(draws), layer, image)


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
      images: (n, height, width, channels), channels 1 or 3, uint8 or floating in [0, 1]; (n, k, ...), an
        image for each view; or the crops that `host_crop` made, a tuple of k arrays, for which only the rest of the
        policy is applied.
      seed, epoch, index: whole numbers; epoch and index, of the data set, are (n,).

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
    own = cropped or sources[0].ndim == 5
    if own and not cropped:
        sources = tuple(jnp.unstack(sources[0], axis=1))
    if any(x.ndim != 4 for x in sources) or (own and len(sources) != k):
        wanted, got = f"(n, {k}, ...) or a tuple of {k} arrays", ", ".join(str(x.shape) for x in sources)
        both = f"(n, height, width, channels), {wanted} (n, size, size, channels)"
        raise ValueError(f"images must be {both}, got {got}")
    n = sources[0].shape[0]
    for name, array in (("epoch", epoch), ("index", index)):
        if array.shape != (n,):
            raise ValueError(f"{name} must be ({n},), one for each image, got {array.shape}")

    groups: dict[Policy, list[int]] = {}
    for view, policy in enumerate(policies):
        groups.setdefault(policy, []).append(view)

    def example(sources: tuple[jax.Array, ...], epoch: jax.Array, index: jax.Array) -> DrawnViews:
        """The views of one image, of k images, or of its k crops."""
        drawn = []
        for policy, views in groups.items():
            keys = jax.vmap(partial(view_key, seed, epoch, index))(np.asarray(views))
            source = jnp.stack([sources[view] for view in views]) if own else sources[0]
            draw = partial(apply_policy, policy, cropped=cropped)
            drawn.append(jax.vmap(draw, in_axes=(0, 0 if own else None))(keys, source))
        if len(drawn) == 1:
            return drawn[0]
        place = np.argsort([view for views in groups.values() for view in views])
        if len({policy.image_size for policy in groups}) == 1:
            return jnp.concatenate(drawn)[place]
        every = [view for group in drawn for view in group]
        return tuple(every[at] for at in place)

    devices = jax.device_count()
    of_device = at_once = n // devices
    if n % devices == 0 and jax.default_backend() == "cpu":
        # A policy reads and writes its views about twenty times; in pieces that fit in the cache, 256 examples of 8
        # views of 32x32x3 take half the time.
        numbers = sum(policy.image_size**2 for policy in policies) * sources[0].shape[-1]
        fitting = min(of_device, max(1, _CACHE_BYTES // (4 * numbers)))
        piece = max(size for size in range(1, fitting + 1) if of_device % size == 0)
        # Without a good divisor, such as for a prime number of rows, the steps would cost more than they save.
        at_once = piece if 4 * piece >= fitting else of_device
    if at_once == of_device:
        return jax.vmap(example)(sources, epoch, index)
    # Every step has rows of every device, so that no rows move between devices.
    rows = jax.tree.map(lambda x: x.reshape(devices, -1, *x.shape[1:]), (sources, epoch, index))
    each = jax.vmap(lambda rows: jax.lax.map(lambda row: example(*row), rows, batch_size=at_once))
    return jax.tree.map(lambda x: x.reshape(n, *x.shape[2:]), each(rows))


def by_shape(function: Callable[[jax.Array], jax.Array], views: DrawnViews) -> jax.Array:
    """(n, k, f): a function of rows (m, ...) -> (m, f), called once for all views of one shape, by example, then view.

    Shapes are in the order of their first views.
    """
    if not isinstance(views, tuple):
        return function(views.reshape((-1, *views.shape[2:]))).reshape((*views.shape[:2], -1))
    groups: dict[tuple[int, ...], list[int]] = {}
    for place, view in enumerate(views):
        groups.setdefault(view.shape, []).append(place)
    found = [by_shape(function, jnp.stack([views[l] for l in of], axis=1)) for of in groups.values()]
    order = np.argsort([l for of in groups.values() for l in of])
    return found[0] if len(found) == 1 else jnp.concatenate(found, axis=1)[:, order]


def host_crop(
    images: Sequence[np.ndarray | Encoded], policies: Sequence[Policy], seed: int, epoch: int, index: int
) -> tuple[np.ndarray, ...]:
    """k crops of one image, or of k images, resized on the host as Pillow does (bicubic); `draw_views` does the rest.

    For images of different sizes. Crop v depends only on (seed, epoch, index, v) and the image's size: its numbers are
    the v-th 40 of the counter-based Philox generator with key (seed, epoch) and counter (0, 0, index, 0), independent
    of processes and workers. `draw_views` draws other numbers when it crops. Crops are Pillow's to the bit, unless they
    have at most a third of the pixels of their part of the image along each side: see `Policy.exact_crops`.

    Args:
      images: one image, or one for each view: an array (height, width, 1 or 3) uint8, or an opened image and the mode
        to read it in, L or RGB, which is decoded at the smallest scale that its crops allow.
      policies: k of them; view v is cropped by `policies[v]` to (image_size, image_size, 1 or 3) uint8.
      seed, epoch, index: whole numbers in [0, 2^64).
    """
    generator = np.random.Generator(np.random.Philox(key=[seed, epoch], counter=[0, 0, index, 0]))
    drawn = generator.random((len(policies), _DRAWS["crop"]))
    groups: dict[tuple[int, int], list[int]] = {}
    for view, policy in enumerate(policies):
        padding = policy.crop_padding if policy.random_crop else 0
        groups.setdefault((view if len(images) > 1 else 0, padding), []).append(view)
    crops: dict[int, np.ndarray] = {}
    for (at, around), views in groups.items():
        image, used = images[at], [policies[view] for view in views]
        if isinstance(image, np.ndarray) and (image.dtype != np.uint8 or image.shape[2:] not in ((1,), (3,))):
            raise ValueError(f"image must be (height, width, 1 or 3) uint8, got {image.shape} {image.dtype}")
        # An image that is read for several groups is read whole.
        reduced = all(policy.random_crop and not policy.exact_crops for policy in used)
        exact = len(groups) > len(images) or not reduced
        boxes = lambda *size, views=views: [_host_box(policies[v], drawn[v], *size) for v in views]  # noqa: E731
        sizes = [policy.image_size for policy in used]
        crops |= zip(views, _resample.crops(image, boxes, sizes, exact=exact, around=around))
    return tuple(crops[view] for view in range(len(policies)))


@dataclasses.dataclass(frozen=True, kw_only=True)
class ByKind:
    """One augmentation of a view, chosen by the shape of its examples; all settings are ours.

    A table (d,) has entries set to 0 and noise added. A sequence (time, d) is a random part of itself, stretched to its
    length by linear interpolation; padding, rows of NaN at its end, stays. An image (height, width, channels), in
    [0, 1], is drawn by a policy.
    """

    masked: float = 0.2
    """Share of a table's entries that are set to 0, in [0, 1)."""
    noise: float = 0.1
    """Deviation of the normal noise of a table, in the units of its scaled columns."""
    crop: float = 0.5
    """Least share of a sequence that is kept, in (0, 1]."""
    policy: Policy = dataclasses.field(default_factory=lambda: Policy(crop_scale=(0.4, 1.0)))
    """Policy of images; its `image_size` is that of the view."""

    def __call__(self, key: jax.Array, x: jax.Array) -> jax.Array:
        """(n, ...) examples of one view, augmented; of the same shape."""
        if x.ndim == 4:
            policy = dataclasses.replace(self.policy, image_size=x.shape[1])
            return jax.vmap(partial(apply_policy, policy))(jax.random.split(key, len(x)), x)
        first, second = jax.random.split(key)
        if x.ndim == 2:
            kept = jax.random.bernoulli(first, 1 - self.masked, x.shape)
            return jnp.where(kept, x + self.noise * jax.random.normal(second, x.shape, x.dtype), 0)
        there = ~jnp.isnan(x).any(-1)
        last = jnp.maximum(there.sum(1, keepdims=True) - 1, 0)
        size = last * jax.random.uniform(first, last.shape, minval=self.crop)
        start = (last - size) * jax.random.uniform(second, last.shape)
        at = jnp.minimum(start + size * jnp.arange(x.shape[1])[None] / jnp.maximum(last, 1), last)
        before = jnp.floor(at).astype(jnp.int32)
        places = [jnp.minimum(before + step, last)[..., None] for step in (0, 1)]
        low, high = (jnp.take_along_axis(x, place, axis=1) for place in places)
        share = (at - before)[..., None].astype(x.dtype)
        return jnp.where(there[..., None], (1 - share) * low + share * high, x)
