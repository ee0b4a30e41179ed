"""Crops on the host: Pillow's bicubic resampling, compiled for the CPU."""

import ctypes
import math
import threading
from collections.abc import Callable, Sequence
from functools import cache, partial, reduce
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from PIL import Image

Box = tuple[float, float, float, float]
"""Left, upper, right, lower, in pixels."""
Encoded = tuple[Image.Image, str]
"""An opened image that may not be decoded yet, and the mode to read it in, L or RGB."""
GAP = 3
"""Images are first decoded smaller, or averaged in blocks, as far as crops keep this many pixels for one of theirs."""
_MOST = 4.0  # largest reduction of the compiled crops; others are Pillow's
_BITS = 22  # of Pillow's weights after the point
_STEP = 64  # they are of regions whose sides are multiples of this, so that few programs are compiled
# Images are made in parallel, not parts of one.
_ONE_THREAD = {"xla_disable_hlo_passes": "cpu-parallel-task-assigner"}
if not Image.core.get_blocks_max():  # PILLOW_BLOCKS_MAX: new memory takes as long as half of a decoding
    Image.core.set_blocks_max(8)
_ROOMS = threading.local()
_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)


def _along_rows(x: jax.Array, place: jax.Array, size: int) -> jax.Array:
    """(length, m) -> (size, m): rows resampled from [start, stop), those from `end` on are beyond the border. Numbers
    are uint8, or uint32 with three bytes that are used. In Pillow's fixed point."""
    length, (start, stop, end) = len(x), place  # float64
    scale = (stop - start) / size
    width = jnp.maximum(scale, 1.0)
    centre = start + (jnp.arange(size, dtype=place.dtype) + 0.5) * scale
    first = jnp.clip(jnp.floor(centre - 2 * width + 0.5), 0, length - 1).astype(jnp.int32)
    rows = first[:, None] + jnp.arange(math.ceil(4 * max(1.0, length / size)), dtype=jnp.int32)[None]
    t = jnp.abs((rows + 0.5 - centre[:, None]) / width)
    near, far = (1.5 * t - 2.5) * t * t + 1, ((2.5 - 0.5 * t) * t - 4) * t + 2  # as in `_geometry`
    weights = jnp.where(rows < end, jnp.where(t < 1, near, jnp.where(t < 2, far, 0.0)), 0.0)
    weights = jnp.round(weights / weights.sum(1, keepdims=True) * (1 << _BITS)).astype(jnp.int32)
    rows, shifts = jnp.minimum(rows, length - 1), (0,) if x.dtype == jnp.uint8 else (0, 8, 16)
    # Sums of whole rows, which the compiler makes one loop over contiguous numbers.
    sums = [jnp.full((), 1 << (_BITS - 1), jnp.int32)] * len(shifts)
    for tap in range(rows.shape[1]):
        taken, weight = x.at[rows[:, tap]].get(mode="promise_in_bounds"), weights[:, tap, None]
        sums = [sum_ + weight * (taken >> by & 255).astype(jnp.int32) for sum_, by in zip(sums, shifts)]
    found = [jnp.clip(sum_ >> _BITS, 0, 255).astype(x.dtype) << by for sum_, by in zip(sums, shifts)]
    return reduce(jnp.bitwise_or, found)


@partial(jax.jit, static_argnames="size", compiler_options=_ONE_THREAD)
def _crop(x: jax.Array, across: jax.Array, down: jax.Array, size: int) -> jax.Array:
    """(wide, tall) -> (size, size, 1 or 3) bytes: along each column, and along each row, after they change places."""

    def alone(function: Callable[[], jax.Array]) -> jax.Array:
        """A loop of one turn: else the compiler would do each step again for every number of the next."""
        shape = jax.eval_shape(function)
        once = (across[0] >= 0).astype(jnp.int32)
        return jax.lax.fori_loop(0, once, lambda *_: function(), jnp.zeros(shape.shape, shape.dtype))

    narrow = alone(lambda: _along_rows(x, across, size))
    turned = alone(lambda: narrow.T)
    if x.dtype != jnp.uint8:
        turned = jax.lax.bitcast_convert_type(turned, jnp.uint8)[..., :3].reshape(x.shape[1], -1)
    return _along_rows(turned, down, size).reshape(size, size, -1)


@cache
def _host() -> jax.Device | None:
    """The CPU; None where jax has only an accelerator."""
    try:
        return jax.local_devices(backend="cpu")[0]
    except RuntimeError:
        return None


def _columns(picture: Image.Image) -> np.ndarray:
    """(width, height) of a picture, uint32 with red, green and blue, or uint8: copied out of Pillow's memory, without
    Python's lock."""
    picture.load()

    def words(address: int | None, count: int) -> Any:
        return (ctypes.c_int64 * count).from_address(address or 0)

    kind, raw = (np.uint8, "L") if picture.mode == "L" else (np.uint32, "RGBX")
    try:
        _, owner = picture.__arrow_c_array__()  # Arrow's struct: five numbers, buffers, children
        array = words(_pointer(owner, b"arrow_array"), 7)
        array = words(words(array[6], 1)[0], 7) if array[4] else array
        size = picture.width * picture.height * np.dtype(kind).itemsize
        pixels = memoryview((ctypes.c_uint8 * size).from_address(words(array[5], 2)[1]))
    except ValueError:  # a large picture, which Pillow keeps in several blocks
        pixels = memoryview(picture.tobytes("raw", raw))
    columns = _room("columns", picture.size, kind)
    columns[...] = np.frombuffer(pixels, kind).reshape(picture.height, picture.width).T
    return columns


def _part(start: float, stop: float, side: int, size: int) -> tuple[slice, np.ndarray]:
    """The pixels that a side of a crop is made of, and its place among them."""
    reach = 2 * max((stop - start) / size, 1)
    low, high = max(0, math.floor(start - reach)), min(side, math.ceil(stop + reach))
    return slice(low, high), np.asarray([start - low, stop - low, high - low], np.float64)


def _room(name: str, shape: tuple[int, int], kind: DTypeLike) -> np.ndarray:
    """An array in this thread's memory of a name, of which jax makes no copy; its next use overwrites it."""
    size = math.prod(shape) * np.dtype(kind).itemsize
    room: np.ndarray | None = getattr(_ROOMS, name, None)
    if room is None or room.size < size:
        whole = np.empty(size + 64, np.uint8)
        room = whole[-whole.ctypes.data % 64 :]
        setattr(_ROOMS, name, room)
    return room[:size].view(kind).reshape(shape)


def _compiled(pixels: np.ndarray, box: Box, size: int) -> np.ndarray:
    """A crop of (width, height), of uint32 with red, green and blue or of uint8, as (size, size, 1 or 3) bytes."""
    columns, across = _part(box[0], box[2], len(pixels), size)
    rows, down = _part(box[1], box[3], pixels.shape[1], size)
    found = pixels[columns, rows]
    wide, tall = (-(-side // _STEP) * _STEP for side in found.shape)
    region = _room("region", (wide, tall), pixels.dtype)
    region[: len(found), : found.shape[1]] = found
    return np.asarray(_crop(region, across, down, size))


def crops(
    image: np.ndarray | Encoded,
    boxes: Callable[[int, int], Sequence[Box]],
    sizes: Sequence[int],
    *,
    exact: bool,
    around: int = 0,
) -> list[np.ndarray]:
    """Crops of one image, (size, size, 1 or 3) uint8.

    Args:
      image: (height, width, 1 or 3) uint8, or an opened image.
      boxes: (height, width) -> the box of each crop.
      sizes: side of each crop in pixels.
      around: reflect the borders by so many pixels; boxes are of the larger image.
      exact: every crop is Pillow's to the bit; else not where all crops, or one, may be of a reduced image.
    """
    if isinstance(image, np.ndarray):
        mode, picture = "", Image.fromarray(image[..., 0] if image.shape[-1] == 1 else image)
    else:
        picture, mode = image
    wanted = boxes(picture.height, picture.width)
    sides = [(r - l, b - u) for l, u, r, b in wanted]
    scales = [(min(side) / size, max(side) / size) for side, size in zip(sides, sizes)]
    if mode and not exact and (least := min(scales)[0] / GAP) >= 2:
        smaller = (math.ceil(picture.width / least), math.ceil(picture.height / least))
        by = float(picture.width)
        if (drafted := picture.draft(None, smaller)) is not None:  # of JPEG
            by /= drafted[1][2]
            wanted = [(l / by, u / by, r / by, b / by) for l, u, r, b in wanted]
            scales = [(low / by, high / by) for low, high in scales]
    if mode and picture.mode != mode:
        picture = picture.convert(mode)
    if around:
        pads = [(around, around)] * 2 + [(0, 0)] * (len(picture.getbands()) > 1)
        picture = Image.fromarray(np.pad(np.asarray(picture), pads, mode="reflect"))
    found: list[np.ndarray] = []
    pixels, host = None, _host()
    with jax.default_device(host), jax.enable_x64(True):
        for box, size, (_, scale) in zip(wanted, sizes, scales):
            if host is None or scale > _MOST:
                gap = None if exact else float(GAP)
                crop = picture.resize((size, size), Image.Resampling.BICUBIC, box=box, reducing_gap=gap)
                found.append(np.asarray(crop).reshape(size, size, -1))
                continue
            pixels = _columns(picture) if pixels is None else pixels
            lost = picture.height - size
            if lost > 0 and lost > 2 * (picture.width - size):  # then Pillow goes down first
                swapped = (box[1], box[0], box[3], box[2])
                found.append(_compiled(pixels.T, swapped, size).swapaxes(0, 1))
            else:
                found.append(_compiled(pixels, box, size))
    return found
