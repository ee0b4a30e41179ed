"""Splits of encoded images."""

import dataclasses
import io
import math
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from PIL import Image, UnidentifiedImageError

from mvcl._progress import Track, untracked
from mvcl.data._splits import CorruptExample, ExampleSpec, Split

# Splits of equally sized images of at most this many decoded bytes are kept in memory.
_IN_MEMORY_BYTES = 1 << 30


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
        return (decode(encoded(row), name(row), mode),)

    spec = ExampleSpec(((height, width, channels),))
    return maybe_in_memory(Split(labels, class_names, spec, read, name=name), origin, track)


def maybe_in_memory(split: Split, origin: str, track: Track = untracked) -> Split:
    """The split with its images decoded in memory, if they have one size and fit."""
    shape = split.spec.image_shape
    if shape is None or len(split) * math.prod(shape) > _IN_MEMORY_BYTES:
        return split
    # Decoding releases the GIL, so threads help.
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        try:
            decoded = pool.map(lambda row: split.read(row, 0)[0], range(len(split)), chunksize=256)
            images = list(track(decoded, f"decoding {origin}", len(split), "images"))
        except CorruptExample:
            return split  # the reader handles the corrupt image
    kept = np.stack(images) if images else np.zeros((0, *shape), np.uint8)
    return dataclasses.replace(split, arrays=(kept,))


def decode(data: str | Path | io.BytesIO, name: str, mode: str = "RGB") -> np.ndarray:
    """(H, W, C) uint8; raises CorruptExample with the name."""
    try:
        with Image.open(data) as image:
            return three_axes(np.asarray(image.convert(mode)))
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise CorruptExample(f"{name} cannot be decoded ({error}); repair or remove it") from error


def header(path: Path | io.BytesIO) -> tuple[int, int, str] | None:
    """Width, height and mode; None if the file is not an image, which `read` raises for."""
    try:
        with Image.open(path) as image:
            return (*image.size, image.mode)
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError):
        return None


def three_axes(image: np.ndarray) -> np.ndarray:
    """(H, W) or (H, W, C) to (H, W, C)."""
    return image[..., None] if image.ndim == 2 else image
