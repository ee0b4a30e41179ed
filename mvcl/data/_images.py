"""Encoded images, folders of image files, and images in one .npz file."""

import dataclasses
import io
import math
import os
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from PIL import Image

from mvcl import _buckets, _files, _progress
from mvcl.data._splits import CorruptExample, ExampleSpec, Split, in_memory, keep, select

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".webp", ".ppm", ".tif", ".tiff")
# Splits of equally sized images of at most this many decoded bytes are kept in memory, if an image has at most as many.
_IN_MEMORY_BYTES, _SMALL = 1 << 28, 1 << 22
# Without EPS, which starts another program.
_FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
_MOST_CLASSES = 1_000_000
_ALIASES = {
    "x_train": "train_images",
    "y_train": "train_labels",
    "x_test": "test_images",
    "y_test": "test_labels",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Folder:
    """A folder of images: PATH/train/CLASS/*.jpg and PATH/test/CLASS/*.jpg (or `val`); sizes may differ.

    With class folders directly under PATH, every fifth image of each class, in name order, is in the test split.
    """

    path: str = ""
    """The folder."""
    classes: tuple[str, ...] = ()
    """Keep only these classes, as in the tfds source. Empty keeps all."""

    def open(self) -> dict[str, Split]:
        """The splits `train` and `test`."""
        root = _buckets.local_copy(self.path)
        if not self.path or not root.is_dir():
            raise ValueError(f"data.path must be a folder of images, got {self.path!r}")
        test = next((root / name for name in ("test", "val", "validation") if (root / name).is_dir()), None)
        if (root / "train").is_dir() and test is not None:
            parts = {"train": _image_files(root / "train"), "test": _image_files(test)}
        elif (root / "train").is_dir():
            raise ValueError(f"{root} has a train folder but no test or val folder")
        else:
            files = _image_files(root)
            parts = {
                "train": {c: [f for i, f in enumerate(v) if i % 5 != 4] for c, v in files.items()},
                "test": {c: v[4::5] for c, v in files.items()},
            }
        names = keep(tuple(sorted(parts["train"])), self.classes)
        if extra := sorted(set(parts["test"]) - set(parts["train"])):
            raise ValueError(f"{test} has classes that {root / 'train'} lacks: {', '.join(extra[:5])}")
        return {part: _of_files(files, names, f"{root} ({part})") for part, files in parts.items()}


def _image_files(folder: Path) -> dict[str, list[Path]]:
    folders = [d for d in sorted(folder.iterdir()) if d.is_dir()]
    files = {
        d.name: sorted(f for f in d.rglob("*") if f.suffix.lower() in IMAGE_SUFFIXES)
        for d in _progress.track(folders, f"listing {folder}", len(folders), "folders")
    }
    files = {name: paths for name, paths in files.items() if paths}
    if not files:
        raise ValueError(f"{folder} holds no class folders with images ({', '.join(IMAGE_SUFFIXES)})")
    return files


def _of_files(files: dict[str, list[Path]], names: tuple[str, ...], origin: str) -> Split:
    paths = [(path, label) for label, name in enumerate(names) for path in files.get(name, [])]
    labels = np.asarray([label for _, label in paths], np.int32)
    return encoded_split(
        labels, names, lambda row: paths[row][0], lambda row: f"image {paths[row][0]}", origin
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Arrays:
    """Images in one .npz file.

    Per split `train` and `test`: `train_images` (N, H, W) or (N, H, W, C), uint8 or floating in [0, 1], or the
    concatenated encoded files as `train_jpeg` (bytes, uint8) with `train_offsets` (N + 1,); and `train_labels` (N,)
    integers. `x_train`, `y_train`, `x_test`, `y_test` are accepted too. `class_names` is optional. With only `images`
    and `labels`, every fifth row is in the test split. The file is read without pickle.
    """

    path: str = ""
    """The .npz file."""
    classes: tuple[str, ...] = ()
    """Keep only these classes, as in the tfds source. Empty keeps all."""
    first: tuple[int, int] | None = None
    """Keep only the first so many images of train and of test; the others are not decoded. None keeps all."""

    def open(self) -> dict[str, Split]:
        """The splits `train` and `test`."""
        path = _buckets.local_copy(self.path)
        if not self.path or not path.is_file():
            raise ValueError(f"data.path must be an .npz file, got {self.path!r}")
        arrays = {_ALIASES.get(name, name): value for name, value in _files.read_npz(path).items()}
        with _files.reading(self.path, ".npz file of images"):
            if "images" in arrays and "labels" in arrays:
                images, labels = arrays["images"], arrays["labels"]
                if np.shape(images)[:1] != np.shape(labels)[:1]:
                    raise ValueError(f"it has images {np.shape(images)} and labels {np.shape(labels)}")
                test = np.arange(len(images)) % 5 == 4
                for part, rows in (("train", ~test), ("test", test)):
                    arrays |= {f"{part}_images": images[rows], f"{part}_labels": labels[rows]}
            names, numbers = _labels_of(arrays)
            limits = (None, None) if self.first is None else self.first
            return {
                part: self._split(arrays, part, numbers[part], names, limit)
                for part, limit in zip(("train", "test"), limits, strict=True)
            }

    def _split(
        self,
        arrays: dict[str, np.ndarray],
        part: str,
        labels: np.ndarray,
        names: tuple[str, ...],
        limit: int | None,
    ) -> Split:
        kept, count = keep(names, self.classes), len(labels)
        rows, labels = (found[:limit] for found in select(labels, names, kept))
        if f"{part}_jpeg" in arrays:
            data, offsets = arrays[f"{part}_jpeg"], _array(arrays, f"{part}_offsets")
            if data.dtype != np.uint8 or offsets.shape != (count + 1,) or offsets.dtype.kind not in "iu":
                raise ValueError(f"{part}_jpeg must be uint8 and {part}_offsets {count + 1} whole numbers")
            if (np.diff(offsets.astype(np.int64), prepend=0, append=data.size) < 0).any():
                raise ValueError(f"{part}_offsets must be increasing positions in {part}_jpeg")

            def encoded(row: int) -> io.BytesIO:
                return io.BytesIO(data[offsets[rows[row]] : offsets[rows[row] + 1]].tobytes())

            origin = f"{self.path} ({part})"
            return encoded_split(labels, kept, encoded, lambda row: f"image {rows[row]} of {origin}", origin)
        images = _array(arrays, f"{part}_images")
        if images.ndim not in (3, 4) or len(images) != count:
            raise ValueError(
                f"{part}_images must be ({count}, H, W) or ({count}, H, W, C), got {images.shape}"
            )
        images = images[..., None] if images.ndim == 3 else images
        if images.dtype != np.uint8:
            if images.dtype.kind != "f" or not ((images >= 0) & (images <= 1)).all():  # NaN neither
                raise ValueError(f"{part}_images must be uint8, or floating in [0, 1], got {images.dtype}")
            images = images.astype(np.float32)
        return in_memory((images if len(rows) == count else images[rows],), labels, kept)


def _array(arrays: dict[str, np.ndarray], name: str) -> np.ndarray:
    if name not in arrays:
        raise ValueError(f"it has no array {name}; it has {', '.join(sorted(arrays))}")
    return arrays[name]


def _labels_of(arrays: dict[str, np.ndarray]) -> tuple[tuple[str, ...], dict[str, np.ndarray]]:
    """Class names, and the class numbers of each split."""
    labels = {part: _array(arrays, f"{part}_labels").reshape(-1) for part in ("train", "test")}
    every = np.concatenate(list(labels.values()))
    if every.dtype.kind not in "iu" or not ((every >= 0) & (every < _MOST_CLASSES)).all():
        raise ValueError(f"labels must be integers from 0, less than {_MOST_CLASSES}, got {every.dtype}")
    count = int(every.max(initial=-1)) + 1
    names = tuple(str(name) for name in arrays.get("class_names", np.arange(count)).reshape(-1))
    if len(names) < count:
        raise ValueError(f"class_names has {len(names)} names for labels up to {count - 1}")
    return names, {part: numbers.astype(np.int64) for part, numbers in labels.items()}


# Encoded images of any origin


def encoded_split(
    labels: np.ndarray,
    class_names: tuple[str, ...],
    encoded: Callable[[int], Path | io.BytesIO],
    name: Callable[[int], str],
    origin: str,
) -> Split:
    """A split of encoded images: grey if all are, else RGB; decoded in memory if they have one size and fit.

    Args:
      labels: (N,) class numbers.
      class_names: name of each class.
      encoded: row -> the file, or its bytes.
      name: row -> name of the image in messages.
      origin: name of the split in messages.

    Raises:
      ValueError: there is no image, or none can be opened.
    """
    if not len(labels):
        raise ValueError(f"{origin} has no images")
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        opened = pool.map(lambda row: _header(encoded(row)), range(len(labels)), chunksize=64)
        found = list(_progress.track(opened, f"opening {origin}", len(labels), "images"))
    headers = [one for one in found if one is not None]
    if not headers:
        raise ValueError(f"{origin}: none of the images can be opened; the first is {name(0)}")
    mode, channels = ("L", 1) if all(one[2] in ("1", "L") for one in headers) else ("RGB", 3)
    sizes = {one[:2] for one in headers}
    width, height = next(iter(sizes)) if len(sizes) == 1 else (None, None)
    shape = (height, width, channels)

    def read(row: int, epoch: int) -> tuple[np.ndarray, ...]:
        return (of_shape(decode(encoded(row), name(row), mode), shape, name(row)),)

    return maybe_in_memory(Split(labels, class_names, ExampleSpec((shape,)), read, name=name), origin)


def maybe_in_memory(split: Split, origin: str) -> Split:
    """The split with its images decoded in memory, if they have one size and fit."""
    shape = split.spec.image_shape
    if shape is None or len(split) * math.prod(shape) > _IN_MEMORY_BYTES or math.prod(shape) > _SMALL:
        return split

    def fill(row: int) -> None:
        images[row] = split.read(row, 0)[0]

    try:
        images = np.empty((len(split), *shape), split.read(0, 0)[0].dtype if len(split) else np.uint8)
        with ThreadPoolExecutor(os.cpu_count()) as pool:  # decoding releases the GIL
            filled = pool.map(fill, range(len(split)), chunksize=256)
            deque(_progress.track(filled, f"decoding {origin}", len(split), "images"), maxlen=0)
    except CorruptExample:
        return split  # the reader handles the corrupt image
    return dataclasses.replace(split, arrays=(images,))


def of_shape(image: np.ndarray, shape: Sequence[int | None], name: str) -> np.ndarray:
    """The image; raises CorruptExample if it does not have this shape, where None is any size."""
    if len(image.shape) != len(shape) or any(b not in (None, a) for a, b in zip(image.shape, shape)):
        raise CorruptExample(f"{name} has shape {image.shape}, expected {tuple(shape)}; repair or remove it")
    return image


def decode(data: Path | io.BytesIO, name: str, mode: str = "RGB") -> np.ndarray:
    """(H, W, C) uint8 of an encoded image; raises CorruptExample with the name."""
    try:
        with Image.open(data, formats=_FORMATS) as image:
            pixels = np.asarray(image if image.mode == mode else image.convert(mode))
    except Exception as error:  # Pillow may raise any for a damaged file
        words = " ".join(str(error).split()) or type(error).__name__
        raise CorruptExample(f"{name} cannot be decoded ({words}); repair or remove it") from error
    return pixels[..., None] if pixels.ndim == 2 else pixels


def _header(data: Path | io.BytesIO) -> tuple[int, int, str] | None:
    """Width, height and mode; None if the file is not an image that can be decoded, which `read` raises for."""
    try:
        with Image.open(data, formats=_FORMATS) as image:
            return (*image.size, image.mode)
    except Exception:  # Pillow may raise any for a damaged file
        return None
