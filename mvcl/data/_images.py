"""Splits of encoded images."""

import dataclasses
import io
import math
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from PIL import Image

from mvcl._progress import Track, untracked
from mvcl.data._splits import CorruptExample, ExampleSpec, Split

# Splits of equally sized images of at most this many decoded bytes are kept in memory, if an image has at most as many.
_IN_MEMORY_BYTES, _SMALL = 1 << 28, 1 << 22
# A file of some kilobytes can state any size. Pillow takes up to 18 bytes and 0.1 microseconds for a pixel; resizing
# takes memory for each column and row; and a JPEG decodes all pixels again for each of its scans.
_PIXELS, _SIDE, _SCANNED = 1 << 25, 65_535, 1 << 30
# Without EPS, which starts another program.
_FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")


def encoded_split(
    labels: np.ndarray,
    class_names: tuple[str, ...],
    encoded: Callable[[int], Path | io.BytesIO],
    name: Callable[[int], str],
    origin: str,
    track: Track = untracked,
) -> Split:
    """A split of encoded images: grey if all are, else RGB; decoded in memory if they have one size and fit.

    Args:
      labels: (N,) class numbers.
      class_names: name of each class.
      encoded: row -> the file, or its bytes.
      name: row -> name of the image in messages.
      origin: name of the split in messages.
      track: reports the images that are opened.

    Raises:
      ValueError: no image can be opened.
    """
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        opened = pool.map(lambda row: header(encoded(row)), range(len(labels)), chunksize=64)
        found = list(track(opened, f"opening {origin}", len(labels), "images"))
    headers = [one for one in found if one is not None]
    if not headers:
        raise ValueError(f"{origin}: none of the images can be opened; the first is {name(0)}")
    mode, channels = ("L", 1) if all(one[2] in ("1", "L") for one in headers) else ("RGB", 3)
    sizes = {one[:2] for one in headers}
    width, height = next(iter(sizes)) if len(sizes) == 1 else (None, None)

    def read(row: int, epoch: int) -> tuple[np.ndarray, ...]:
        return (of_shape(decode(encoded(row), name(row), mode), shape, name(row)),)

    shape = (height, width, channels)
    spec = ExampleSpec((shape,))
    return maybe_in_memory(Split(labels, class_names, spec, read, name=name), origin, track)


def maybe_in_memory(split: Split, origin: str, track: Track = untracked) -> Split:
    """The split with its images decoded in memory, if they have one size and fit."""
    shape = split.spec.image_shape
    if shape is None or len(split) * math.prod(shape) > _IN_MEMORY_BYTES or math.prod(shape) > _SMALL:
        return split

    def fill(row: int) -> None:
        kept[row] = split.read(row, 0)[0]

    try:
        kept = np.empty((len(split), *shape), split.read(0, 0)[0].dtype if len(split) else np.uint8)
        # Decoding releases the GIL, so threads help.
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            filled = pool.map(fill, range(len(split)), chunksize=256)
            deque(track(filled, f"decoding {origin}", len(split), "images"), maxlen=0)
    except CorruptExample:
        return split  # the reader handles the corrupt image
    return dataclasses.replace(split, arrays=(kept,))


def of_shape(image: np.ndarray, shape: Sequence[int | None], name: str) -> np.ndarray:
    """The image; raises CorruptExample if it does not have this shape, where None is any size."""
    if len(image.shape) != len(shape) or any(b not in (None, a) for a, b in zip(image.shape, shape)):
        raise CorruptExample(f"{name} has shape {image.shape}, expected {tuple(shape)}; repair or remove it")
    return image


def decode(data: Path | io.BytesIO, name: str, mode: str = "RGB") -> np.ndarray:
    """(H, W, C) uint8; raises CorruptExample with the name."""
    with _loaded(data, name) as image:
        return three_axes(np.asarray(image if image.mode == mode else image.convert(mode)))


def check(data: Path | io.BytesIO, name: str) -> None:
    """Read all bytes of an image, but only few pixels of a JPEG; raises CorruptExample with the name."""
    with _loaded(data, name, draft=(32, 32)):
        pass


def header(data: Path | io.BytesIO) -> tuple[int, int, str] | None:
    """Width, height and mode; None if the file is not an image that can be decoded, which `read` raises for."""
    try:
        with _opened(data) as image:
            return (*image.size, image.mode)
    except Exception:  # Pillow may raise any for a damaged file
        return None


@contextmanager
def _loaded(
    data: Path | io.BytesIO, name: str, draft: tuple[int, int] | None = None
) -> Iterator[Image.Image]:
    """The decoded image; raises CorruptExample with the name for every error of Pillow's."""
    try:
        raw = data.read_bytes() if isinstance(data, Path) else data.getvalue()
        with _opened(io.BytesIO(raw)) as image:
            scans = raw.count(b"\xff\xda") if image.format in ("JPEG", "MPO") else 1
            if scans * math.prod(image.size) > _SCANNED:
                raise ValueError(f"{scans} scans of {image.width} x {image.height} pixels are too many")
            if draft:
                image.draft("L", draft)
            image.load()
            yield image
    except Exception as error:  # Pillow may raise any for a damaged file
        raise CorruptExample(f"{name} cannot be decoded ({_words(error)}); repair or remove it") from error


def _words(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def _opened(data: Path | io.BytesIO) -> Image.Image:
    """The image, of which only the header is read."""
    image = Image.open(data, formats=_FORMATS)
    if math.prod(image.size) > _PIXELS or max(image.size) > _SIDE:
        image.close()
        raise ValueError(
            f"it has {image.width} x {image.height} pixels; at most {_PIXELS:,} and {_SIDE:,} a side are decoded"
        )
    return image


def three_axes(image: np.ndarray) -> np.ndarray:
    """(H, W) or (H, W, C) to (H, W, C)."""
    return image[..., None] if image.ndim == 2 else image
