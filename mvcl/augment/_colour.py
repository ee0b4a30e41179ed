"""Colour operations and RandAugment with explicit parameters, each equal to Pillow's; images as in `_geometry`."""

from functools import partial
from typing import Literal

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from mvcl.augment._geometry import halving_sum, inner, outer, over, to_bytes, unit


def _luma(x: jax.Array) -> jax.Array:
    """(width, 1 or 3, height) -> (width, 1, height), ITU-R 601-2 rounded as in Pillow's integer arithmetic."""
    if x.shape[1] == 1:
        return x
    r, g, b = (weight / 65536 for weight in (19595, 38470, 7471))
    return r * x[:, 0:1] + g * x[:, 1:2] + b * x[:, 2:3]


def _mean_luma(x: jax.Array) -> jax.Array:
    return halving_sum(_luma(halving_sum(x, 0)), 2) / (x.shape[0] * x.shape[2])


def choose(condition: ArrayLike, image: ArrayLike, other: ArrayLike) -> jax.Array:
    """`image` where the scalar `condition` holds, else `other`, two images of one shape."""
    return outer(jnp.where(condition, inner(image), inner(other)))


def _hue(x: jax.Array, shift: ArrayLike) -> jax.Array:
    """Pillow's HSV mode with trunc(255 * shift) added to H modulo 256, torchvision's adjust_hue on Pillow images.

    H and S are truncated to 8 bits as in Pillow: one step of H is 6/255 of the chroma, so exact HSV would differ from
    Pillow by that much. As in Pillow, shift 0 may change a pixel by a few levels.
    """
    red, green, blue = (to_bytes(x)[:, c : c + 1] for c in range(3))
    value = jnp.maximum(jnp.maximum(red, green), blue)
    chroma = value - jnp.minimum(jnp.minimum(red, green), blue)
    least = value - chroma
    # Pillow scales one of the three channels to 0 and one to 1; the third is the position between two corners of the
    # hexagon. One rounding per operation, in Pillow's order, gives Pillow's H for every 24-bit colour.
    between = (value - (red + green + blue - value - least)) / jnp.maximum(chroma, 1.0)

    def corner(channel: jax.Array, later: float, earlier: float) -> jax.Array:
        return jnp.where(channel == least, later - between, earlier + between)

    sixths = jnp.where(
        value == red,
        corner(blue, 1.0, -1.0),
        jnp.where(value == green, corner(red, 3.0, 1.0), corner(green, 5.0, 3.0)),
    )
    turn = over(sixths, 6.0)
    turn = jnp.where(turn < 0, turn + 1, turn)
    tint = jnp.floor(turn * 255)
    purity = jnp.floor(chroma / jnp.maximum(value, 1.0) * 255)
    tint = tint + jnp.trunc(jnp.asarray(shift, jnp.float32) * 255)
    tint = tint - 256 * jnp.floor(tint / 256)
    sector = tint * (6 / 255)
    depth = value * purity * (1 / (255 * 255))
    value = value * (1 / 255)

    def channel(offset: int) -> jax.Array:
        place = sector + offset
        place = jnp.where(place >= 6, place - 6, place)
        return value - depth * unit(jnp.minimum(place, 4 - place))

    return jnp.concatenate([channel(5), channel(3), channel(1)], 1)


@jax.jit
def grayscale(image: jax.Array) -> jax.Array:
    """Luma 0.299 R + 0.587 G + 0.114 B (ITU-R 601-2) in every channel, Pillow's `convert("L")`."""
    x = inner(image)
    return outer(jnp.broadcast_to(_luma(x), x.shape))


@jax.jit
def color_jitter(
    image: jax.Array,
    order: ArrayLike,
    brightness: ArrayLike | None = None,
    contrast: ArrayLike | None = None,
    saturation: ArrayLike | None = None,
    hue: ArrayLike | None = None,
) -> jax.Array:
    """Brightness, contrast, saturation and hue in a traced order.

    The first three are blends, which are cheap, so each position computes the blend that is due there. Hue is expensive
    and is computed once, between the blends before it and those after it.

    Args:
      order: (4,) the numbers 0 brightness, 1 contrast, 2 saturation, 3 hue in the order of use; may be traced.
      brightness, contrast, saturation: factors of `ImageEnhance.Brightness`, `Contrast` and `Color`: 0 is black, the
        grey of the image's mean luma, each pixel's luma; 1 keeps the image; None omits the step.
      hue: turns in [-0.5, 0.5], which keep saturation and value; None omits the step. Images of one channel keep both.
    """
    x, place = inner(image), jnp.argsort(jnp.asarray(order))
    grey = x.shape[1] == 1
    factors = {0: brightness, 1: contrast, 2: None if grey else saturation}
    degenerate = {1: _mean_luma, 2: _luma}
    blends = {step: jnp.asarray(f, jnp.float32) for step, f in factors.items() if f is not None}
    zero = jnp.zeros((), jnp.int32)
    rank = {step: sum((place[a] < place[step] for a in blends), zero) for step in (*blends, 3)}

    def blend(slot: jax.Array, x: jax.Array, after_hue: bool | None) -> jax.Array:
        due = True if after_hue is None else (slot >= rank[3]) == after_hue
        factor, target = jnp.ones(()), jnp.zeros((1, 1, 1))
        for step, of_step in blends.items():
            here = (rank[step] == slot) & due
            factor = jnp.where(here, of_step, factor)
            if step in degenerate:  # else black
                target = jnp.where(here, degenerate[step](x), target)
        return unit(factor * x + (1 - factor) * target)  # Image.blend of Pillow

    # Loops are not unrolled: on CPU, XLA would recompute each position in both the sum and the blend of the next.
    slots = len(blends)
    if hue is None or grey:
        return outer(jax.lax.fori_loop(0, slots, partial(blend, after_hue=None), x))
    x = _hue(jax.lax.fori_loop(0, slots, partial(blend, after_hue=False), x), hue)
    return outer(jax.lax.fori_loop(0, slots, partial(blend, after_hue=True), x))


@jax.jit
def solarise(image: jax.Array, threshold: ArrayLike = 0.5) -> jax.Array:
    """Invert values at or above `threshold` in [0, 1]: `ImageOps.solarize`, whose 128 is 0.5 here."""
    x = inner(image)
    return outer(jnp.where(x < threshold, x, 1 - x))


def _equalize(image: jax.Array) -> jax.Array:
    """Flatten each channel's histogram of 256 levels: `ImageOps.equalize`."""
    channels = image.shape[1]
    level = to_bytes(image).astype(jnp.int32) + 256 * jnp.arange(channels)[None, :, None]
    counts = jnp.zeros(256 * channels, jnp.int32).at[level.ravel()].add(1).reshape(channels, 256)
    last = jnp.max(jnp.where(counts > 0, jnp.arange(256)[None, :], 0), 1, keepdims=True)
    step = (counts.sum(1, keepdims=True) - jnp.take_along_axis(counts, last, 1)) // 255
    before = jnp.cumsum(counts, 1) - counts
    table = jnp.minimum((before + step // 2) // jnp.maximum(step, 1), 255)
    table = jnp.where(step > 0, table, jnp.arange(256)[None, :])
    return table.ravel()[level].astype(jnp.float32) / 255


def _smooth(x: jax.Array) -> jax.Array:
    """Pillow's SMOOTH: a 3x3 mean with weight 5 of 13 at the centre; border pixels are unchanged."""
    rows = x[:-2] + x[1:-1] + x[2:]
    ring = rows[:, :, :-2] + rows[:, :, 1:-1] + rows[:, :, 2:]
    return x.at[1:-1, :, 1:-1].set((ring + 4 * x[1:-1, :, 1:-1]) / 13)


def _moved(x: jax.Array, matrix: tuple[ArrayLike, ...]) -> jax.Array:
    """Pillow's `transform(size, AFFINE, matrix)`, nearest pixel, black beyond, in its 16-bit fixed point.

    Result pixel (x, y) is the image at (a x + b y + c, d x + e y + f), pixel centres at halves. In single precision a
    pixel within 1e-4 of a boundary may take its neighbour's value.
    """
    a, b, c, d, e, f = (jnp.asarray(entry, jnp.float32) for entry in matrix)

    def fixed(value: jax.Array) -> jax.Array:
        return jnp.floor(value * 65536 + 0.5).astype(jnp.int32)

    column, row = jnp.arange(x.shape[0])[:, None, None], jnp.arange(x.shape[2])[None, None, :]
    source_column = (fixed(a) * column + fixed(b) * row + fixed(c + a * 0.5 + b * 0.5)) >> 16
    source_row = (fixed(d) * column + fixed(e) * row + fixed(f + d * 0.5 + e * 0.5)) >> 16
    inside = (source_column >= 0) & (source_column < x.shape[0])
    inside &= (source_row >= 0) & (source_row < x.shape[2])
    return jnp.where(inside, x[source_column, jnp.arange(x.shape[1])[None, :, None], source_row], 0.0)


def _moved_smoothly(x: jax.Array, matrix: tuple[ArrayLike, ...], fill: jax.Array) -> jax.Array:
    """Pillow's `transform(size, AFFINE, matrix, BICUBIC, fillcolor=fill)`: cubic convolution (Keys 1981, a = -1) of
    four by four pixels, those beyond the border as at it; `fill`, one number or one per channel, where the centre is
    beyond."""
    a, b, c, d, e, f = (jnp.asarray(entry, jnp.float32) for entry in matrix)
    column = jnp.arange(x.shape[0])[:, None, None] + 0.5
    row = jnp.arange(x.shape[2])[None, None, :] + 0.5
    u, v = a * column + b * row + c, d * column + e * row + f
    inside = (u >= 0) & (u < x.shape[0]) & (v >= 0) & (v < x.shape[2])

    def taps(place: jax.Array, size: int) -> list[tuple[jax.Array, jax.Array]]:
        """Pixel and weight of each of the four."""
        first = jnp.floor(place - 0.5)
        t = place - 0.5 - first
        weights = (-t + 2 * t**2 - t**3, 1 - 2 * t**2 + t**3, t + t**2 - t**3, t**3 - t**2)
        pixels = [jnp.clip(first.astype(jnp.int32) + k, 0, size - 1) for k in (-1, 0, 1, 2)]
        return list(zip(pixels, weights))

    channels, total = jnp.arange(x.shape[1])[None, :, None], jnp.zeros(x.shape)
    for i, across in taps(u, x.shape[0]):
        for j, down in taps(v, x.shape[2]):
            total += across * down * x[i, channels, j]
    return jnp.where(inside, unit(total), fill.reshape(1, -1, 1))


# fmt: off
RAND_AUGMENT = (
    "identity", "shear_x", "shear_y", "translate_x", "translate_y", "rotate", "brightness", "saturation", "contrast",
    "sharpness", "posterize", "solarise", "autocontrast", "equalize",
)
# fmt: on
"""Names of the operations of `rand_augment_op`, by their number."""
RAND_AUGMENT_TIMM = ("invert", *RAND_AUGMENT[1:], "solarise_add")
"""Those of its kind "timm"."""


@partial(jax.jit, static_argnames="kind")
def rand_augment_op(
    image: ArrayLike,
    op: ArrayLike,
    magnitude: ArrayLike,
    sign: ArrayLike = 1,
    kind: Literal["torchvision", "timm"] = "torchvision",
    fill: ArrayLike = 0.0,
) -> jax.Array:
    """One operation of RandAugment by its number, of an image as in `_geometry`.

    Cubuk 2019 (arXiv 1909.13719) with torchvision's ranges, t = magnitude / 30: shear by 0.3 t, translate by
    trunc(150/331 t side) pixels, rotate by 30 t degrees, brightness, saturation, contrast and sharpness by
    1 + 0.9 t, posterize to 8 - round(4 t) bits, solarise at 1 - t; autocontrast and equalize have no
    magnitude. Moves take the nearest pixel, and black beyond.

    "timm" has the 15 operations of its `rand-m9-mstd0.5-inc1`, as DeiT's code names it (timm, auto_augment.py): invert
    in place of the identity; solarise_add, int(110 t) levels more below 128; translate by 0.45 t side, posterize to
    4 - int(4 t) bits, solarise at 256 - int(256 t) of 255, blends by 0.1 at least; bicubic moves, and `fill` beyond.

    The five geometric operations share one gather and the four blending ones share one blend, since under `vmap` every
    branch is computed for every image.

    Args:
      op: an index into RAND_AUGMENT, or of "timm" into RAND_AUGMENT_TIMM; may be traced.
      magnitude: in [0, 30].
      sign: 1 or -1, the direction of geometric and blending operations.
      fill: with "timm", what is beyond the image: one number in [0, 1], or one per channel.
    """
    x, op, timm = inner(image), jnp.asarray(op), kind == "timm"
    names = RAND_AUGMENT_TIMM if timm else RAND_AUGMENT
    level = jnp.asarray(magnitude, jnp.float32) / 30
    signed = sign * level

    def only(name: str, value: ArrayLike, otherwise: ArrayLike = 0.0) -> jax.Array:
        return jnp.where(op == names.index(name), value, otherwise)

    def among(first: str, last: str) -> jax.Array:
        return (op >= names.index(first)) & (op <= names.index(last))

    width, _, height = x.shape
    turn = jnp.deg2rad(only("rotate", 30 * signed))
    cos, sin, middle, centre = jnp.cos(turn), jnp.sin(turn), width / 2, height / 2
    right, down = (
        0.45 * side * signed if timm else jnp.trunc(150 / 331 * side * signed) for side in (width, height)
    )
    moves = (
        cos,
        -sin + only("shear_x", 0.3 * signed),
        middle - cos * middle + sin * centre - only("translate_x", right),
        sin + only("shear_y", 0.3 * signed),
        cos,
        centre - sin * middle - cos * centre - only("translate_y", down),
    )
    moved = _moved_smoothly(x, moves, jnp.asarray(fill, jnp.float32)) if timm else _moved(x, moves)
    x = jnp.where(among("shear_x", "rotate"), moved, x)

    blends = among("brightness", "sharpness")
    if x.shape[1] == 1:
        blends &= op != names.index("saturation")
    target = only("saturation", _luma(x), only("contrast", _mean_luma(x), only("sharpness", _smooth(x))))
    factor = jnp.where(blends, jnp.maximum(1 + 0.9 * signed, 0.1), 1.0)
    x = unit(factor * x + (1 - factor) * target)

    step = jnp.exp2(4 + jnp.floor(4 * level) if timm else jnp.round(4 * level))  # 2^(8 - bits)
    x = only("posterize", jnp.floor(to_bytes(x) / step) * step / 255, x)
    bright = to_bytes(x) >= 256 - jnp.floor(256 * level) if timm else x >= 1 - level
    x = only("solarise", jnp.where(bright, 1 - x, x), x)
    low, high = x.min((0, 2), keepdims=True), x.max((0, 2), keepdims=True)
    stretched = (x - low) / jnp.where(high > low, high - low, 1.0)  # not a constant channel
    x = only("autocontrast", jnp.where(high > low, stretched, x), x)
    x = only("equalize", _equalize(x), x)
    if timm:
        x = only("invert", 1 - x, x)
        more = jnp.minimum(x + jnp.floor(110 * level) / 255, 1)
        x = only("solarise_add", jnp.where(to_bytes(x) < 128, more, x), x)
    return outer(x)


@jax.jit
def normalise(image: jax.Array, mean: ArrayLike, std: ArrayLike) -> jax.Array:
    """(image - mean) / std, each a number or one per channel. The only operation that leaves [0, 1]."""
    x = inner(image)
    mean, std = (jnp.asarray(a, jnp.float32).reshape(1, -1, 1) for a in (mean, std))
    for name, a in (("mean", mean), ("std", std)):
        if a.size not in (1, x.shape[1]):
            raise ValueError(f"{name} must be one number or one per channel, {x.shape[1]}, got {a.size}")
    return outer((x - mean) / std)
