"""Image operations with explicit parameters, each the function that Pillow computes.

An image is (height, width, channels) with one or three channels, uint8 or floating in [0, 1], and a result is
float32 in [0, 1]. Pillow rounds to 8 bits after every operation and these do not, so the two agree to 2/255
where an operation is continuous. Every parameter but a size may be traced, and every function may be
vmapped.

Inside, an image lies as (width, channels, height): both matrix products of a resize then read and write it
in order, and arithmetic between channels runs along a long contiguous axis instead of one of length 3.
`_inner` and `_outer` convert, and XLA cancels the pair between two operations that follow one another.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

_LUMA = tuple(weight / 65536 for weight in (19595, 38470, 7471))  # ITU-R 601-2 as Pillow's integers round it


def _inner(image: ArrayLike) -> jax.Array:
    """(height, width, channels), uint8 or floating -> float32 (width, channels, height) in [0, 1]."""
    image = jnp.asarray(image)
    if image.ndim != 3 or image.shape[-1] not in (1, 3):
        raise ValueError(f"image must be (height, width, channels) with 1 or 3 channels, got {image.shape}")
    if image.dtype == jnp.uint8:
        image = image.astype(jnp.float32) / 255
    elif not jnp.issubdtype(image.dtype, jnp.floating):
        raise ValueError(f"image must be uint8, or floating in [0, 1], got {image.dtype}")
    return image.astype(jnp.float32).transpose(1, 2, 0)


def _outer(x: jax.Array) -> jax.Array:
    return x.transpose(2, 0, 1)


def _unit(x: ArrayLike) -> jax.Array:
    return jnp.clip(x, 0.0, 1.0)


def _bytes(x: jax.Array) -> jax.Array:
    """The whole numbers 0..255, still float32, that Pillow would hold."""
    return jnp.round(x * 255)


def _luma(x: jax.Array) -> jax.Array:
    """(width, 1 or 3, height) -> (width, 1, height)."""
    if x.shape[1] == 1:
        return x
    r, g, b = _LUMA
    return r * x[:, 0:1] + g * x[:, 1:2] + b * x[:, 2:3]


def _blend(degenerate: jax.Array, x: jax.Array, factor: ArrayLike) -> jax.Array:
    """Pillow's Image.blend: factor 0 gives `degenerate`, 1 gives x to the bit, beyond 1 extrapolates."""
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
    # Widening the kernel with the scale is what antialiases a reduction.
    width = jnp.maximum(scale, 1.0)
    target = jnp.arange(size, dtype=jnp.float32)
    target = jnp.where(reverse, size - 1 - target, target)
    center = start + (target + 0.5) * scale
    source = jnp.arange(length, dtype=jnp.float32) + 0.5
    weights = _cubic((source[None, :] - center[:, None]) / width)
    return weights / weights.sum(1, keepdims=True)


@partial(jax.jit, static_argnames="size")
def crop_and_resize(
    image: ArrayLike, box: ArrayLike, size: int | tuple[int, int], mirror: ArrayLike = False
) -> jax.Array:
    """Resample a box of the image to a fixed size: Pillow's `resize(size, BICUBIC, box=box)`.

    Bicubic with a = -1/2, antialiased. As in Pillow, pixels just outside the box still count (the window
    stops at the image's own border, where the weights are normalised anew), and the first pass is clipped
    to [0, 1] before the second. The first pass is the horizontal one, unless more than twice as many rows
    as columns of the image go, as in Pillow 13 (in those before it, always).

    Args:
      image: (height, width, 1 or 3), uint8 or floating in [0, 1].
      box: (4,) left, upper, right, lower, in pixels from the upper left corner, any real numbers inside the
        image; may be traced, so one compiled program serves every crop.
      size: side of the result in pixels, or (height, width).
      mirror: flip the result horizontally, at no cost.

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
        x = _unit(jnp.einsum("wch,yh->wcy", x, down, precision="highest"))
        return _outer(_unit(jnp.einsum("xw,wcy->xcy", across, x, precision="highest")))
    x = _unit(jnp.einsum("xw,wch->xch", across, x, precision="highest"))
    return _outer(_unit(jnp.einsum("xch,yh->xcy", x, down, precision="highest")))


@jax.jit
def horizontal_flip(image: ArrayLike) -> jax.Array:
    """Mirror left and right: `ImageOps.mirror`."""
    return _outer(_inner(image)[::-1])


@jax.jit
def brightness(image: ArrayLike, factor: ArrayLike) -> jax.Array:
    """Scale towards black: `ImageEnhance.Brightness`, factor * image, clipped. 1 keeps the image."""
    return _outer(_unit(_inner(image) * factor))


@jax.jit
def contrast(image: ArrayLike, factor: ArrayLike) -> jax.Array:
    """Scale about the image's mean luma: `ImageEnhance.Contrast`. 0 is that grey, 1 keeps the image."""
    x = _inner(image)
    return _outer(_blend(_luma(x).mean(), x, factor))


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
    # Pillow's quotient has one of the three channels at 0 and one at 1, so the third says where between two
    # corners of the hexagon the colour lies. One rounding a step, in Pillow's order, gives its H for every
    # 24-bit colour.
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
    """Turn the hue by `shift` turns, in [-0.5, 0.5], keeping saturation and value.

    Pillow's HSV mode with trunc(255 * shift) added to H modulo 256, which is how torchvision defines its
    adjust_hue on Pillow images. H and S are cut to 8 bits here as there: one step of H is 6/255 of the
    chroma, so an exact HSV would differ from Pillow by that much. As there too, shift 0 may move a pixel by
    a few levels. One channel keeps the image.
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
    """Brightness, contrast, saturation and hue one after another in a traced order.

    The first three are blends, so a slot for a blend costs little and holds whichever is due; hue costs
    more and is computed once, between the blends that come before it and those that come after it.

    Args:
      image: (height, width, 1 or 3), uint8 or floating in [0, 1].
      order: (4,) the numbers 0 brightness, 1 contrast, 2 saturation, 3 hue in the order of use; may be
        traced.
      brightness, contrast, saturation: factors as in the functions of these names; None leaves the step out.
      hue: turns as in `hue`; None leaves the step out.

    Returns:
      (height, width, channels) float32 in [0, 1].
    """
    x = _inner(image)
    place = jnp.argsort(jnp.asarray(order))
    grey = x.shape[1] == 1
    factors = {0: brightness, 1: contrast, 2: None if grey else saturation}
    blends = {step: jnp.asarray(f, jnp.float32) for step, f in factors.items() if f is not None}
    rank = {b: sum((place[a] < place[b]).astype(jnp.int32) for a in blends) for b in blends}

    def blend(x: jax.Array, slot: int, due: ArrayLike) -> jax.Array:
        here = {step: (rank[step] == slot) & due for step in blends}
        factor = sum(jnp.where(here[step], blends[step] - 1, 0.0) for step in blends) + 1
        target = jnp.zeros((1, 1, 1))
        if 1 in blends or 2 in blends:
            luma = _luma(x)
        if 1 in blends:
            target = jnp.where(here[1], luma.mean(), target)
        if 2 in blends:
            target = jnp.where(here[2], luma, target)
        return _blend(target, x, factor)

    if hue is None or grey:
        for slot in range(len(blends)):
            x = blend(x, slot, True)
        return _outer(x)
    before = sum((place[a] < place[3]).astype(jnp.int32) for a in blends) if blends else 0
    for slot in range(len(blends)):
        x = blend(x, slot, slot < before)
    x = _hue(x, hue)
    for slot in range(len(blends)):
        x = blend(x, slot, slot >= before)
    return _outer(x)


def _smooth(x: jax.Array, axis: int, taps: jax.Array) -> jax.Array:
    """Correlate an axis with an odd number of taps; the border pixel stands for all beyond it."""
    reach = len(taps) // 2
    padding = [(reach, reach) if a == axis else (0, 0) for a in range(3)]
    padded = jnp.pad(x, padding, mode="edge")
    slices = (jax.lax.slice_in_dim(padded, i, i + x.shape[axis], axis=axis) for i in range(len(taps)))
    return sum((tap * part for tap, part in zip(taps, slices)), jnp.zeros_like(x))


def _over(x: jax.Array, divisor: float) -> jax.Array:
    """x / divisor rounded once: XLA would replace a constant divisor by a product with its reciprocal."""
    return x / jnp.where(x == x, divisor, 1.0)


def _box_radius(sigma: jax.Array) -> jax.Array:
    """Radius, whole and fractional part, of the extended box with a third of the Gaussian's variance.

    Gwosdek et al. 2011, Theoretical Foundations of Gaussian Convolution by Extended Box Filtering, Eqs. 7,
    11, 14.
    """
    variance = _over(sigma * sigma, 3.0)
    whole = jnp.floor((jnp.sqrt(12 * variance + 1) - 1) / 2)
    part = (2 * whole + 1) * (whole * (whole + 1) - 3 * variance) / (6 * (variance - (whole + 1) ** 2))
    return whole + part


def _box_blur(x: jax.Array, radius: jax.Array) -> jax.Array:
    """One extended box filter along the first axis of whole numbers 0..255, in 24-bit fixed point."""
    length, whole = x.shape[0], radius.astype(jnp.int32)
    weight = ((1 << 24) / (2 * radius + 1)).astype(jnp.uint32)
    end_weight = ((1 << 24) - (2 * whole.astype(jnp.uint32) + 1) * weight) // 2
    sums = jnp.pad(jnp.cumsum(x, 0), ((1, 0), (0, 0), (0, 0)))  # sums[j] is over the first j
    place = jnp.arange(length)

    def below(stop: jax.Array) -> jax.Array:
        """Sum up to `stop`; border pixels go on beyond the border. Unsigned differences come out right."""
        over = (stop - jnp.clip(stop, 0, length)).astype(jnp.uint32)[:, None, None]
        beyond = jnp.where((stop < 0)[:, None, None], x[0], x[-1])
        return sums[jnp.clip(stop, 0, length)] + over * beyond

    inside = below(place + whole + 1) - below(place - whole)
    ends = x[jnp.clip(place - whole - 1, 0, length - 1)] + x[jnp.clip(place + whole + 1, 0, length - 1)]
    return (inside * weight + ends * end_weight + (1 << 23)) >> 24


@partial(jax.jit, static_argnames="kernel_size")
def gaussian_blur(image: ArrayLike, sigma: ArrayLike, kernel_size: int | None = None) -> jax.Array:
    """Blur with a Gaussian of standard deviation `sigma` pixels; beyond the border its nearest pixel repeats.

    With `kernel_size` None this is `ImageFilter.GaussianBlur(sigma)`, to which Pillow applies three
    extended box filters of the same total variance, rounding to 8 bits after each as here. With an odd
    `kernel_size` it is the Gaussian exp(-t^2 / (2 sigma^2)) at the whole numbers |t| <= kernel_size // 2,
    normalised to sum 1, as SimCLR and BYOL have it. The two differ by up to about 0.02 of a step between
    black and white.

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
        radius = _box_radius(sigma)
        whole = _bytes(x).astype(jnp.uint32)
        for _ in range(2):
            for _ in range(3):
                whole = _box_blur(whole, radius)
            whole = whole.transpose(2, 1, 0)
        return _outer(whole.astype(jnp.float32) / 255)
    if kernel_size < 1 or kernel_size % 2 == 0:
        raise ValueError(f"kernel_size must be odd and positive, or None, got {kernel_size}")
    offset = jnp.arange(kernel_size) - kernel_size // 2
    taps = jnp.exp(-0.5 * jnp.square(offset / sigma))
    taps = taps / taps.sum()
    return _outer(_unit(_smooth(_smooth(x, 0, taps), 2, taps)))


@jax.jit
def solarise(image: ArrayLike, threshold: ArrayLike = 0.5) -> jax.Array:
    """Invert what is at or above `threshold` in [0, 1]: `ImageOps.solarize`, whose 128 is 0.5 here."""
    x = _inner(image)
    return _outer(jnp.where(x < threshold, x, 1 - x))


@jax.jit
def normalise(image: ArrayLike, mean: ArrayLike, std: ArrayLike) -> jax.Array:
    """(image - mean) / std, each a number or one per channel. The only operation that leaves [0, 1]."""
    x = _inner(image)
    mean, std = (jnp.asarray(a, jnp.float32).reshape(1, -1, 1) for a in (mean, std))
    for name, a in (("mean", mean), ("std", std)):
        if a.size not in (1, x.shape[1]):
            raise ValueError(f"{name} must be one number or one per channel, {x.shape[1]} here, got {a.size}")
    return _outer((x - mean) / std)
