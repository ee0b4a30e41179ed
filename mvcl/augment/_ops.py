"""Image operations with explicit parameters, each equal to Pillow's.

An image is (height, width, channels) with one or three channels, uint8 or floating in [0, 1], and a result is
float32 in [0, 1]. Pillow rounds to 8 bits after every operation and these do not, so they agree within 2/255
where an operation is continuous. Every parameter except sizes may be traced, and every function supports vmap.

Internally the layout is (width, channels, height): both matrix products of a resize then access memory in order,
and arithmetic between channels uses a long contiguous axis instead of one of length 3. `_inner` and `_outer`
convert; XLA cancels the conversions between consecutive operations.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

_LUMA = tuple(
    weight / 65536 for weight in (19595, 38470, 7471)
)  # ITU-R 601-2 rounded as in Pillow's integer arithmetic


def _over(x: jax.Array, divisor: float) -> jax.Array:
    """x / divisor with one rounding: XLA replaces division by a constant with multiplication by its reciprocal."""
    return x / jnp.where(x == x, divisor, 1.0)


def _inner(image: ArrayLike) -> jax.Array:
    """(height, width, channels), uint8 or floating -> float32 (width, channels, height) in [0, 1]."""
    image = jnp.asarray(image)
    if image.ndim != 3 or image.shape[-1] not in (1, 3):
        raise ValueError(f"image must be (height, width, channels) with 1 or 3 channels, got {image.shape}")
    if image.dtype == jnp.uint8:
        image = _over(image.astype(jnp.float32), 255.0)
    elif not jnp.issubdtype(image.dtype, jnp.floating):
        raise ValueError(f"image must be uint8, or floating in [0, 1], got {image.dtype}")
    return image.astype(jnp.float32).transpose(1, 2, 0)


def _outer(x: jax.Array) -> jax.Array:
    return x.transpose(2, 0, 1)


def _unit(x: ArrayLike) -> jax.Array:
    return jnp.clip(x, 0.0, 1.0)


def _bytes(x: jax.Array) -> jax.Array:
    """Pillow's integers 0..255, as float32."""
    return jnp.round(x * 255)


def _sum(x: jax.Array, axis: int) -> jax.Array:
    """Sum along an axis, kept with length 1, by repeated halving.

    On CPU, XLA's order of summation depends on the array size, so the last bits of a view would depend on the number
    of examples on the device. Halving has a fixed order.
    """
    while (length := x.shape[axis]) > 1:
        half = (length + 1) // 2
        first = jax.lax.slice_in_dim(x, 0, half, axis=axis)
        second = jax.lax.slice_in_dim(x, half, length, axis=axis)
        padding = [(0, half - second.shape[a] if a == axis else 0) for a in range(x.ndim)]
        x = first + jnp.pad(second, padding)
    return x


def _luma(x: jax.Array) -> jax.Array:
    """(width, 1 or 3, height) -> (width, 1, height)."""
    if x.shape[1] == 1:
        return x
    r, g, b = _LUMA
    return r * x[:, 0:1] + g * x[:, 1:2] + b * x[:, 2:3]


def _mean_luma(x: jax.Array) -> jax.Array:
    return _sum(_luma(_sum(x, 0)), 2) / (x.shape[0] * x.shape[2])


def _blend(degenerate: jax.Array, x: jax.Array, factor: ArrayLike) -> jax.Array:
    """Pillow's Image.blend: factor 0 gives `degenerate`, 1 gives x exactly, larger factors extrapolate."""
    return _unit(factor * x + (1 - jnp.asarray(factor)) * degenerate)


def choose(condition: ArrayLike, image: ArrayLike, other: ArrayLike) -> jax.Array:
    """`image` where the scalar `condition` holds, else `other`, two images of one shape."""
    return _outer(jnp.where(condition, _inner(image), _inner(other)))


def _cubic(t: jax.Array) -> jax.Array:
    """Keys' kernel with a = -1/2, Pillow's BICUBIC."""
    t = jnp.abs(t)
    near = (1.5 * t - 2.5) * t * t + 1
    far = ((2.5 - 0.5 * t) * t - 4) * t + 2
    return jnp.where(t < 1, near, jnp.where(t < 2, far, 0.0))


def _resampling(start: jax.Array, stop: jax.Array, length: int, size: int, reverse: ArrayLike) -> jax.Array:
    """(size, length) weights that resample [start, stop) of `length` pixels to `size`; each row sums to 1."""
    scale = (stop - start) / size
    # The kernel is widened by the scale, for antialiasing.
    width = jnp.maximum(scale, 1.0)
    target = jnp.arange(size, dtype=jnp.float32)
    target = jnp.where(reverse, size - 1 - target, target)
    center = start + (target + 0.5) * scale
    source = jnp.arange(length, dtype=jnp.float32) + 0.5
    weights = _cubic((source[None, :] - center[:, None]) / width)
    return weights / _sum(weights, 1)


def _along_width(weights: jax.Array, x: jax.Array) -> jax.Array:
    return jnp.einsum("xw,wch->xch", weights, x, precision="highest")


def _along_height(weights: jax.Array, x: jax.Array) -> jax.Array:
    return jnp.einsum("xch,yh->xcy", x, weights, precision="highest")


@partial(jax.jit, static_argnames="size")
def crop_and_resize(
    image: ArrayLike, box: ArrayLike, size: int | tuple[int, int], mirror: ArrayLike = False
) -> jax.Array:
    """Resample a box of the image to a fixed size: Pillow's `resize(size, BICUBIC, box=box)`.

    Bicubic with a = -1/2, antialiased. As in Pillow, pixels just outside the box contribute (the window ends at the
    image's border, where the weights are renormalised), and the first pass is clipped to [0, 1] before the second. The
    first pass is horizontal, unless more than twice as many rows as columns are removed, as in Pillow 13 (always
    horizontal in earlier versions).

    Args:
      image: (height, width, 1 or 3), uint8 or floating in [0, 1].
      box: (4,) left, upper, right, lower, in pixels from the upper left corner, any real numbers inside the
        image; may be traced, so one compiled program handles all crops.
      size: side of the result in pixels, or (height, width).
      mirror: flip the result horizontally, without extra cost.

    Returns:
      (size, size, channels) float32 in [0, 1]. A box of the whole image at its own size returns the image.
    """
    x = _inner(image)
    box = jnp.asarray(box, jnp.float32)
    if box.shape != (4,):
        raise ValueError(f"box must be (4,): left, upper, right, lower, got {box.shape}")
    height, width = (size, size) if isinstance(size, int) else size
    across = _resampling(box[0], box[2], x.shape[0], width, mirror)
    down = _resampling(box[1], box[3], x.shape[2], height, False)
    lost_rows, lost_columns = x.shape[2] - height, x.shape[0] - width
    if lost_rows > 0 and lost_rows > 2 * lost_columns:
        return _outer(_unit(_along_width(across, _unit(_along_height(down, x)))))
    return _outer(_unit(_along_height(down, _unit(_along_width(across, x)))))


@jax.jit
def horizontal_flip(image: ArrayLike) -> jax.Array:
    """Flip horizontally: `ImageOps.mirror`."""
    return _outer(_inner(image)[::-1])


@jax.jit
def brightness(image: ArrayLike, factor: ArrayLike) -> jax.Array:
    """Scale towards black: `ImageEnhance.Brightness`, factor * image, clipped. 1 keeps the image."""
    return _outer(_unit(_inner(image) * factor))


@jax.jit
def contrast(image: ArrayLike, factor: ArrayLike) -> jax.Array:
    """Scale about the image's mean luma: `ImageEnhance.Contrast`. 0 is that grey, 1 keeps the image."""
    x = _inner(image)
    return _outer(_blend(_mean_luma(x), x, factor))


@jax.jit
def saturation(image: ArrayLike, factor: ArrayLike) -> jax.Array:
    """Scale about each pixel's luma: `ImageEnhance.Color`. 0 is grayscale; 1, or one channel, keeps it."""
    x = _inner(image)
    return _outer(x if x.shape[1] == 1 else _blend(_luma(x), x, factor))


def _hue(x: jax.Array, shift: ArrayLike) -> jax.Array:
    red, green, blue = (_bytes(x)[:, c : c + 1] for c in range(3))
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
    turn = _over(sixths, 6.0)
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
        return value - depth * _unit(jnp.minimum(place, 4 - place))

    return jnp.concatenate([channel(5), channel(3), channel(1)], 1)


@jax.jit
def hue(image: ArrayLike, shift: ArrayLike) -> jax.Array:
    """Rotate the hue by `shift` turns, in [-0.5, 0.5]; saturation and value are kept.

    Pillow's HSV mode with trunc(255 * shift) added to H modulo 256, which is how torchvision defines its
    adjust_hue on Pillow images. H and S are truncated to 8 bits as in Pillow: one step of H is 6/255 of the chroma, so
    exact HSV would differ from Pillow by that much. As in Pillow, shift 0 may change a pixel by a few levels. Images of
    one channel are unchanged.
    """
    x = _inner(image)
    return _outer(x if x.shape[1] == 1 else _hue(x, shift))


@jax.jit
def grayscale(image: ArrayLike) -> jax.Array:
    """Luma 0.299 R + 0.587 G + 0.114 B (ITU-R 601-2) in every channel, Pillow's `convert("L")`."""
    x = _inner(image)
    return _outer(jnp.broadcast_to(_luma(x), x.shape))


@jax.jit
def color_jitter(
    image: ArrayLike,
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
      image: (height, width, 1 or 3), uint8 or floating in [0, 1].
      order: (4,) the numbers 0 brightness, 1 contrast, 2 saturation, 3 hue in the order of use; may be
        traced.
      brightness, contrast, saturation: factors as in the functions of these names; None omits the step.
      hue: turns as in `hue`; None omits the step.

    Returns:
      (height, width, channels) float32 in [0, 1].
    """
    x = _inner(image)
    place = jnp.argsort(jnp.asarray(order))
    grey = x.shape[1] == 1
    factors = {0: brightness, 1: contrast, 2: None if grey else saturation}
    blends = {step: jnp.asarray(f, jnp.float32) for step, f in factors.items() if f is not None}
    zero = jnp.zeros((), jnp.int32)
    rank = {b: sum((place[a] < place[b] for a in blends), zero) for b in blends}

    def blend(slot: jax.Array, x: jax.Array, after_hue: bool | None) -> jax.Array:
        due = True if after_hue is None else (slot >= before) == after_hue
        here = {step: (rank[step] == slot) & due for step in blends}
        factor = jnp.ones(())
        for step in blends:
            factor = jnp.where(here[step], blends[step], factor)
        target = jnp.zeros((1, 1, 1))
        if 1 in blends:
            target = jnp.where(here[1], _mean_luma(x), target)
        if 2 in blends:
            target = jnp.where(here[2], _luma(x), target)
        return _blend(target, x, factor)

    # Loops are not unrolled: on CPU, XLA would recompute each position in both the sum and the blend of the next.
    before = sum((place[a] < place[3] for a in blends), zero)
    slots = len(blends)
    if hue is None or grey:
        return _outer(jax.lax.fori_loop(0, slots, partial(blend, after_hue=None), x))
    x = _hue(jax.lax.fori_loop(0, slots, partial(blend, after_hue=False), x), hue)
    return _outer(jax.lax.fori_loop(0, slots, partial(blend, after_hue=True), x))


def _gaussian(length: int, sigma: jax.Array, reach: int) -> jax.Array:
    """(length, length) Gaussian weights at whole distances up to `reach`, each row summing to 1.

    Weights beyond the border go to the border pixel.
    """
    if length == 1:
        return jnp.ones((1, 1))
    source = jnp.arange(-reach, length + reach, dtype=jnp.float32)
    distance = jnp.abs(source[None, :] - jnp.arange(length, dtype=jnp.float32)[:, None])
    weights = jnp.where(distance <= reach, jnp.exp(-0.5 * jnp.square(distance / sigma)), 0.0)
    taps = jnp.exp(-0.5 * jnp.square(jnp.arange(-reach, reach + 1)[None, :] / sigma))
    first, last = _sum(weights[:, : reach + 1], 1), _sum(weights[:, length + reach - 1 :], 1)
    inside = weights[:, reach + 1 : length + reach - 1]
    return jnp.concatenate([first, inside, last], 1) / _sum(taps, 1)


def _box_radius(sigma: jax.Array) -> jax.Array:
    """Radius, whole and fractional part, of the extended box with a third of the Gaussian's variance.

    Gwosdek et al. 2011, Theoretical Foundations of Gaussian Convolution by Extended Box Filtering, Eqs. 7,
    11, 14.
    """
    variance = _over(sigma * sigma, 3.0)
    whole = jnp.floor((jnp.sqrt(12 * variance + 1) - 1) / 2)
    part = (2 * whole + 1) * (whole * (whole + 1) - 3 * variance) / (6 * (variance - (whole + 1) ** 2))
    return whole + part


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
    """Three extended box filters along each axis, in Pillow's 24-bit fixed point."""
    radius = _box_radius(sigma)
    whole = radius.astype(jnp.int32)
    weight = ((1 << 24) / (2 * radius + 1)).astype(jnp.uint32)
    end_weight = ((1 << 24) - (2 * whole.astype(jnp.uint32) + 1) * weight) // 2

    def weigh(sums: jax.Array) -> jax.Array:
        both = sums.astype(jnp.uint32)
        return (((both >> 9) * weight + (both & 511) * end_weight + (1 << 23)) >> 24).astype(jnp.float32)

    x = _bytes(x)
    across, down = _box_counts(x.shape[0], whole), _box_counts(x.shape[2], whole)
    for _ in range(3):
        x = weigh(_along_width(across, x))
    for _ in range(3):
        x = weigh(_along_height(down, x))
    return x / 255


@partial(jax.jit, static_argnames="kernel_size")
def gaussian_blur(image: ArrayLike, sigma: ArrayLike, kernel_size: int | None = None) -> jax.Array:
    """Blur with a Gaussian of standard deviation `sigma` pixels; border pixels are repeated.

    With `kernel_size` None this equals `ImageFilter.GaussianBlur(sigma)` exactly: three extended box filters of the
    same total variance along each axis, each rounded to 8 bits and each repeating the border pixel. With an odd
    `kernel_size` it is the Gaussian exp(-t^2 / (2 sigma^2)) at integers |t| <= kernel_size // 2, normalised to sum 1,
    as in SimCLR and BYOL (they pad with black; here border pixels are repeated). For sigma up to 3 the two differ by up
    to 5/255 inside an image and by up to 30/255 within 3 sigma of its border.

    Args:
      image: (height, width, 1 or 3), uint8 or floating in [0, 1].
      sigma: pixels, positive; may be traced.
      kernel_size: odd number of pixels, or None.

    Returns:
      (height, width, channels) float32 in [0, 1].
    """
    x = _inner(image)
    sigma = jnp.asarray(sigma, jnp.float32)
    if kernel_size is None:
        return _outer(_pillow_blur(x, sigma))
    if kernel_size < 1 or kernel_size % 2 == 0:
        raise ValueError(f"kernel_size must be odd and positive, or None, got {kernel_size}")
    reach = kernel_size // 2
    x = _along_width(_gaussian(x.shape[0], sigma, reach), x)
    return _outer(_unit(_along_height(_gaussian(x.shape[2], sigma, reach), x)))


@jax.jit
def solarise(image: ArrayLike, threshold: ArrayLike = 0.5) -> jax.Array:
    """Invert values at or above `threshold` in [0, 1]: `ImageOps.solarize`, whose 128 is 0.5 here."""
    x = _inner(image)
    return _outer(jnp.where(x < threshold, x, 1 - x))


@jax.jit
def invert(image: ArrayLike) -> jax.Array:
    """1 - image: `ImageOps.invert`."""
    return _outer(1 - _inner(image))


def _posterize(x: jax.Array, bits: ArrayLike) -> jax.Array:
    step = jnp.exp2(8 - jnp.asarray(bits, jnp.float32))
    return jnp.floor(_bytes(x) / step) * step / 255


@jax.jit
def posterize(image: ArrayLike, bits: ArrayLike) -> jax.Array:
    """Keep the `bits` (1 to 8) highest bits of every 8-bit value: `ImageOps.posterize`."""
    return _outer(_posterize(_inner(image), bits))


def _autocontrast(x: jax.Array) -> jax.Array:
    low, high = x.min((0, 2), keepdims=True), x.max((0, 2), keepdims=True)
    span = high - low
    return jnp.where(span > 0, (x - low) / jnp.where(span > 0, span, 1.0), x)


@jax.jit
def autocontrast(image: ArrayLike) -> jax.Array:
    """Stretch each channel to [0, 1]; a constant channel is unchanged: `ImageOps.autocontrast`."""
    return _outer(_autocontrast(_inner(image)))


def _equalize(x: jax.Array) -> jax.Array:
    channels = x.shape[1]
    level = _bytes(x).astype(jnp.int32) + 256 * jnp.arange(channels)[None, :, None]
    counts = jnp.zeros(256 * channels, jnp.int32).at[level.ravel()].add(1).reshape(channels, 256)
    last = jnp.max(jnp.where(counts > 0, jnp.arange(256)[None, :], 0), 1, keepdims=True)
    step = (counts.sum(1, keepdims=True) - jnp.take_along_axis(counts, last, 1)) // 255
    before = jnp.cumsum(counts, 1) - counts
    table = jnp.minimum((before + step // 2) // jnp.maximum(step, 1), 255)
    table = jnp.where(step > 0, table, jnp.arange(256)[None, :])
    return table.ravel()[level].astype(jnp.float32) / 255


@jax.jit
def equalize(image: ArrayLike) -> jax.Array:
    """Flatten each channel's histogram of 256 levels: `ImageOps.equalize`."""
    return _outer(_equalize(_inner(image)))


def _smooth(x: jax.Array) -> jax.Array:
    """Pillow's SMOOTH: a 3x3 mean with weight 5 of 13 at the centre; border pixels are unchanged."""
    if min(x.shape[0], x.shape[2]) < 3:
        return x
    rows = x[:-2] + x[1:-1] + x[2:]
    ring = rows[:, :, :-2] + rows[:, :, 1:-1] + rows[:, :, 2:]
    return x.at[1:-1, :, 1:-1].set((ring + 4 * x[1:-1, :, 1:-1]) / 13)


@jax.jit
def sharpness(image: ArrayLike, factor: ArrayLike) -> jax.Array:
    """Scale about the smoothed image: `ImageEnhance.Sharpness`. 0 is smoothed, 1 keeps the image."""
    x = _inner(image)
    return _outer(_blend(_smooth(x), x, factor))


def _affine(x: jax.Array, matrix: tuple[ArrayLike, ...]) -> jax.Array:
    xp = jnp if any(isinstance(entry, jax.Array) for entry in matrix) else np
    a, b, c, d, e, f = (xp.asarray(entry, None if xp is np else jnp.float32) for entry in matrix)

    def fixed(value: Any) -> jax.Array:
        return jnp.asarray(xp.floor(value * 65536 + 0.5).astype(np.int32))

    column, row = jnp.arange(x.shape[0])[:, None, None], jnp.arange(x.shape[2])[None, None, :]
    source_column = (fixed(a) * column + fixed(b) * row + fixed(c + a * 0.5 + b * 0.5)) >> 16
    source_row = (fixed(d) * column + fixed(e) * row + fixed(f + d * 0.5 + e * 0.5)) >> 16
    inside = (source_column >= 0) & (source_column < x.shape[0])
    inside &= (source_row >= 0) & (source_row < x.shape[2])
    moved = x[source_column, jnp.arange(x.shape[1])[None, :, None], source_row]
    return jnp.where(inside, moved, 0.0)


def affine(image: ArrayLike, matrix: tuple[ArrayLike, ...]) -> jax.Array:
    """Move pixels by an affine map: Pillow's `transform(size, AFFINE, matrix)`, nearest pixel, black beyond.

    Result pixel (x, y) is the image at (a x + b y + c, d x + e y + f), pixel centres at halves, in Pillow's 16-bit
    fixed point. Python numbers are computed in double precision, as in Pillow; traced ones in single precision, so that
    a pixel within 1e-4 of a boundary may take its neighbour's value.

    Args:
      image: (height, width, 1 or 3), uint8 or floating in [0, 1].
      matrix: a, b, c, d, e, f; numbers or scalars.

    Returns:
      (height, width, channels) float32 in [0, 1].
    """
    return _outer(_affine(_inner(image), matrix))


def shear_x(image: ArrayLike, factor: ArrayLike) -> jax.Array:
    """Row y moves left by factor * y pixels, black beyond: AFFINE (1, factor, 0, 0, 1, 0)."""
    return affine(image, (1.0, factor, 0.0, 0.0, 1.0, 0.0))


def shear_y(image: ArrayLike, factor: ArrayLike) -> jax.Array:
    """Column x moves up by factor * x pixels, black beyond: AFFINE (1, 0, 0, factor, 1, 0)."""
    return affine(image, (1.0, 0.0, 0.0, factor, 1.0, 0.0))


def translate_x(image: ArrayLike, pixels: ArrayLike) -> jax.Array:
    """Shift to the right by `pixels`, black on the left: AFFINE (1, 0, -pixels, 0, 1, 0)."""
    return affine(image, (1.0, 0.0, -1.0 * pixels, 0.0, 1.0, 0.0))


def translate_y(image: ArrayLike, pixels: ArrayLike) -> jax.Array:
    """Shift down by `pixels`, black above: AFFINE (1, 0, 0, 0, 1, -pixels)."""
    return affine(image, (1.0, 0.0, 0.0, 0.0, 1.0, -1.0 * pixels))


def _rotation(degrees: ArrayLike, width: int, height: int) -> tuple[Any, ...]:
    xp = jnp if isinstance(degrees, jax.Array) else np
    cos, sin = xp.cos(xp.deg2rad(degrees)), xp.sin(xp.deg2rad(degrees))
    x, y = width / 2, height / 2
    return cos, -sin, x - cos * x + sin * y, sin, cos, y - sin * x - cos * y


def rotate(image: ArrayLike, degrees: ArrayLike) -> jax.Array:
    """Rotate counter-clockwise about the centre, black beyond: `Image.rotate(degrees)`, nearest pixel."""
    height, width = jnp.shape(image)[:2]
    return affine(image, _rotation(degrees, width, height))


RAND_AUGMENT = (
    "identity",
    "shear_x",
    "shear_y",
    "translate_x",
    "translate_y",
    "rotate",
    "brightness",
    "saturation",
    "contrast",
    "sharpness",
    "posterize",
    "solarise",
    "autocontrast",
    "equalize",
)
"""Names of the operations of `rand_augment_op`, by their number."""


@jax.jit
def rand_augment_op(image: ArrayLike, op: ArrayLike, magnitude: ArrayLike, sign: ArrayLike = 1) -> jax.Array:
    """One operation of RandAugment by its number, which may be traced.

    Cubuk 2019 (arXiv 1909.13719) with torchvision's ranges, t = magnitude / 30: shear by 0.3 t, translate by
    trunc(150/331 t side) pixels, rotate by 30 t degrees, brightness, saturation, contrast and sharpness by
    1 + 0.9 t, posterize to 8 - round(4 t) bits, solarise at 1 - t; autocontrast and equalize have no
    magnitude.

    The five geometric operations share one gather and the four blending ones share one blend, since under `vmap` every
    branch is computed for every image.

    Args:
      image: (height, width, 1 or 3), uint8 or floating in [0, 1].
      op: integer, an index into RAND_AUGMENT.
      magnitude: in [0, 30].
      sign: 1 or -1, the direction of geometric and blending operations.

    Returns:
      (height, width, channels) float32 in [0, 1].
    """
    x = _inner(image)
    op = jnp.asarray(op)
    level = jnp.asarray(magnitude, jnp.float32) / 30
    signed = sign * level

    def only(name: str, value: ArrayLike, otherwise: ArrayLike = 0.0) -> jax.Array:
        return jnp.where(op == RAND_AUGMENT.index(name), value, otherwise)

    width, _, height = x.shape
    turn = _rotation(only("rotate", 30 * signed), width, height)
    moves = (
        turn[0],
        turn[1] + only("shear_x", 0.3 * signed),
        turn[2] - only("translate_x", jnp.trunc(150 / 331 * width * signed)),
        turn[3] + only("shear_y", 0.3 * signed),
        turn[4],
        turn[5] - only("translate_y", jnp.trunc(150 / 331 * height * signed)),
    )
    first, last = RAND_AUGMENT.index("shear_x"), RAND_AUGMENT.index("rotate")
    x = jnp.where((op >= first) & (op <= last), _affine(x, moves), x)

    first, last = RAND_AUGMENT.index("brightness"), RAND_AUGMENT.index("sharpness")
    blends = (op >= first) & (op <= last)
    if x.shape[1] == 1:
        blends &= op != RAND_AUGMENT.index("saturation")
    target = only("saturation", _luma(x), only("contrast", _mean_luma(x), only("sharpness", _smooth(x))))
    x = _blend(target, x, jnp.where(blends, 1 + 0.9 * signed, 1.0))

    x = only("posterize", _posterize(x, 8 - jnp.round(4 * level)), x)
    x = only("solarise", jnp.where(x < 1 - level, x, 1 - x), x)
    x = only("autocontrast", _autocontrast(x), x)
    return _outer(only("equalize", _equalize(x), x))


@jax.jit
def normalise(image: ArrayLike, mean: ArrayLike, std: ArrayLike) -> jax.Array:
    """(image - mean) / std, each a number or one per channel. The only operation that leaves [0, 1]."""
    x = _inner(image)
    mean, std = (jnp.asarray(a, jnp.float32).reshape(1, -1, 1) for a in (mean, std))
    for name, a in (("mean", mean), ("std", std)):
        if a.size not in (1, x.shape[1]):
            raise ValueError(f"{name} must be one number or one per channel, {x.shape[1]} here, got {a.size}")
    return _outer((x - mean) / std)
