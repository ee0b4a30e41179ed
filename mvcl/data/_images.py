"""Images in files: encoded images, folders of classes, and one .npz file."""

import dataclasses
import io
import math
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from mvcl import _buckets, _files, _progress
from mvcl.data._splits import CorruptExample, ExampleSpec, Split, decoding, in_memory, keep, select

_FILE_NAMES = ("file", "filename", "file_name", "image", "path", "id")
IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".webp", ".ppm", ".tif", ".tiff")
# Splits of equally sized images of at most this many decoded bytes are kept in memory, if an image has at most as many.
_IN_MEMORY_BYTES, _SMALL = 1 << 28, 1 << 22
# Without EPS, which starts another program.
_FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
_MOST_CLASSES = 1_000_000
_ALIASES = {f"x_{part}": f"{part}_images" for part in ("train", "test")}
IMAGE_ARRAYS = (*_ALIASES, *_ALIASES.values())
"""Names of the images of a split in an .npz file."""
_ALIASES |= {f"y_{part}": f"{part}_labels" for part in ("train", "test")}
Shape = tuple[int | None, int | None, int]
Encoded = Callable[[int], Path | io.BytesIO]
"""Row -> the file of an image, or its bytes."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Folder:
    """A folder of images: PATH/train/CLASS/*.jpg and PATH/test/CLASS/*.jpg (or `val`); sizes may differ.

    Class folders may be directly under PATH, or `train` be alone. Images directly in PATH have no classes, unless a
    table has them; without classes all images are in both splits.
    """

    path: str = ""
    """The folder."""
    labels: str = ""
    """A .csv or .parquet table of the images and their classes: columns `file`, a path in PATH (its ending may be left
    out), and `label`, and `split` (train, test or val) if there is one. Empty: the names of folders are the classes."""
    test_share: float = 0.2
    """Share of each class that is the split `test`, in even steps of the names' order, where the data name no test
    split; 0: all images are in both splits."""
    classes: tuple[str, ...] = ()
    """Keep only these classes, as in the tfds source. Empty keeps all."""

    def open(self) -> dict[str, Split]:
        root = local(self.path, "a folder of images")
        flat = [f for f in sorted(root.iterdir()) if f.suffix.lower() in IMAGE_SUFFIXES]
        if not self.labels and flat and not any(entry.is_dir() for entry in root.iterdir()):
            whole = split_of_files(np.zeros(len(flat), np.int32), ("unlabelled",), flat, str(root))
            return {"train": whole, "test": whole}
        if self.labels:
            parts = _listed(root, Path(self.labels))
        else:
            inside = {part: root / part for part in ("train", "test", "val") if (root / part).is_dir()}
            found = inside if "train" in inside else {"train": root}
            parts = {part: _image_files(folder) for part, folder in found.items()}
        test = parts.get("test", parts.get("val"))
        if test is None:
            files = {c: (v, held_out(len(v), self.test_share)) for c, v in parts["train"].items()}
            test = {c: [f for f, out in zip(*both) if out] for c, both in files.items()}
            parts["train"] = {c: [f for f, out in zip(*both) if not out] for c, both in files.items()}
        names = keep(tuple(parts["train"]), self.classes)
        if extra := sorted(test.keys() - parts["train"].keys()):
            raise ValueError(f"the test split of {root} has classes that train lacks: {', '.join(extra[:5])}")

        def split(part: str, of: Mapping[str, Sequence[Path]]) -> Split:
            paths = [(path, label) for label, name in enumerate(names) for path in of.get(name, ())]
            labels = np.asarray([label for _, label in paths], np.int32)
            return split_of_files(labels, names, [path for path, _ in paths], f"{root} ({part})")

        train = split("train", parts["train"])
        return {"train": train, "test": split("test", test) if any(test.values()) else train}


def held_out(count: int, share: float) -> np.ndarray:
    """(count,) bool: a share of the rows, in even steps, every fifth for 0.2."""
    if not 0 <= share < 1:
        raise ValueError(f"data.test_share must be in [0, 1), got {share}")
    return np.diff(np.floor(np.arange(count + 1) * share + 1e-9)) > 0


def _listed(root: Path, table: Path) -> dict[str, dict[str, list[Path]]]:
    """Split -> class -> files, from a table of the files in a folder."""
    from mvcl.data import _tables

    place = next((file for file in (table, root / table) if file.is_file()), None)
    if place is None:
        raise ValueError(f"data.labels must be a table of the images' classes; {table} does not exist")
    rows = _tables.read_table(place)
    named, usual = {str(name).lower(): name for name in rows}, (_FILE_NAMES, _tables.LABEL_NAMES)
    columns = [next((named[name] for name in names if name in named), None) for names in usual]
    if None in columns:
        raise ValueError(f"{place} must have columns `file` and `label`, got {', '.join(map(str, rows))}")
    splits = rows[named["split"]].astype(str) if "split" in named else ["train"] * len(rows)
    found: dict[str, dict[str, list[Path]]] = {}
    for row, (name, label, part) in enumerate(zip(rows[columns[0]], rows[columns[1]], splits)):
        files = (root / f"{name}{suffix}" for suffix in ("", *IMAGE_SUFFIXES))
        if (file := next((file for file in files if file.is_file()), None)) is None:
            raise ValueError(f"{_tables.place(place, row)} names {name}, which is not in {root}")
        part = {"valid": "val", "validation": "val"}.get(part.lower(), part.lower())
        found.setdefault(part, {}).setdefault(str(label), []).append(file)
    if unknown := found.keys() - {"train", "test", "val"} or {"train"} - found.keys():
        got = ", ".join(sorted(found))
        raise ValueError(f"splits of {place} must be train, and test or val, got {got}: {unknown}")
    return {part: dict(sorted(of.items())) for part, of in found.items()}


def local(path: str, what: str, there: Callable[[Path], bool] = lambda path: path.is_dir()) -> Path:
    """A file or folder on this machine; `ValueError` if it is not `there`."""
    root = _buckets.local_copy(path)
    if not path or not there(root):
        absent = "" if root.exists() else ", which does not exist"
        raise ValueError(f"data.path must be {what}, got {path!r}{absent}")
    return root


def _image_files(folder: Path) -> dict[str, list[Path]]:
    folders = [d for d in sorted(folder.iterdir()) if d.is_dir()]
    files = {}
    for d in _progress.track(folders, f"listing {folder}", len(folders), "folders"):
        if paths := sorted(f for f in d.rglob("*") if f.suffix.lower() in IMAGE_SUFFIXES):
            files[d.name] = paths
    if not files:
        raise ValueError(f"{folder} holds no class folders with images ({', '.join(IMAGE_SUFFIXES)})")
    return files


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
        path = local(self.path, "an .npz file", lambda path: path.is_file())
        arrays = {_ALIASES.get(name, name): value for name, value in _files.read_npz(path).items()}
        with _files.reading(self.path, ".npz file of images"):
            if "images" in arrays and "labels" in arrays:
                images, labels = arrays["images"], arrays["labels"]
                if np.shape(images)[:1] != np.shape(labels)[:1]:
                    raise ValueError(f"it has images {np.shape(images)} and labels {np.shape(labels)}")
                test = np.arange(len(images)) % 5 == 4
                for part, rows in (("train", ~test), ("test", test)):
                    arrays |= {f"{part}_images": images[rows], f"{part}_labels": labels[rows]}
            numbers = [_array(arrays, f"{part}_labels").reshape(-1) for part in ("train", "test")]
            every = np.concatenate(numbers)
            if every.dtype.kind not in "iu" or not ((every >= 0) & (every < _MOST_CLASSES)).all():
                raise ValueError(f"labels must be integers in [0, {_MOST_CLASSES}), got {every.dtype}")
            count = int(every.max(initial=0)) + 1
            names = tuple(str(name) for name in arrays.get("class_names", np.arange(count)).reshape(-1))
            if len(names) < count:
                raise ValueError(f"class_names has {len(names)} names for labels up to {count - 1}")
            return {part: self._split(arrays, part, names) for part in ("train", "test")}

    def _split(self, arrays: dict[str, np.ndarray], part: str, names: tuple[str, ...]) -> Split:
        kept, every = keep(names, self.classes), arrays[f"{part}_labels"].reshape(-1)
        limits, count = dict(zip(("train", "test"), self.first or (None, None), strict=True)), len(every)
        rows, labels = (found[: limits[part]] for found in select(every.astype(np.int64), names, kept))
        if f"{part}_jpeg" in arrays:
            data, offsets = arrays[f"{part}_jpeg"], _array(arrays, f"{part}_offsets")
            if data.dtype != np.uint8 or offsets.shape != (count + 1,) or offsets.dtype.kind not in "iu":
                raise ValueError(f"{part}_jpeg must be uint8 and {part}_offsets {count + 1} whole numbers")
            if (np.diff(offsets.astype(np.int64), prepend=0, append=data.size) < 0).any():
                raise ValueError(f"{part}_offsets must be increasing positions in {part}_jpeg")

            def encoded(row: int) -> io.BytesIO:
                return io.BytesIO(data[offsets[rows[row]] : offsets[rows[row] + 1]].tobytes())

            origin = f"{self.path} ({part})"
            return image_split(labels, kept, encoded, lambda row: f"image {rows[row]} of {origin}", origin)
        images = _array(arrays, f"{part}_images")
        if images.ndim not in (3, 4) or len(images) != count:
            raise ValueError(f"{part}_images must be ({count}, H, W[, C]), got {images.shape}")
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


def _each(function: Callable[[int], Any], count: int, what: str) -> list[Any]:
    """A function of each row, in threads: decoding releases the GIL."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(_progress.track(pool.map(function, range(count)), what, count, "images"))


def shape_of(count: int, encoded: Encoded, name: Callable[[int], str], origin: str) -> tuple[Shape, int]:
    """Shape of images that are grey, if all are, else RGB; and the median of their shorter sides. Each is opened."""

    def header(row: int) -> tuple[tuple[int, int], str] | None:
        with suppress(Exception), Image.open(encoded(row), formats=_FORMATS) as image:
            return image.size, image.mode
        return None  # not an image; reading it raises

    headers = [one for one in _each(header, count, f"opening {origin}") if one is not None]
    if not headers:
        first = f"none of the images can be opened; the first is {name(0)}" if count else "it has no images"
        raise ValueError(f"{origin}: {first}")
    side = int(np.median([min(size) for size, _ in headers]))
    sizes, modes = (set(found) for found in zip(*headers))
    width, height = sizes.pop() if len(sizes) == 1 else (None, None)
    return (height, width, 1 if modes <= {"1", "L"} else 3), side


def image_split(
    labels: np.ndarray,
    class_names: tuple[str, ...],
    encoded: Encoded,
    name: Callable[[int], str],
    origin: str,
    shape: Shape | None = None,
) -> Split:
    """A split of encoded images; decoded in memory if they have one size and fit.

    `name` names a row, and `origin` the split, in messages. Sizes that differ are None in `shape`; without it all
    images are opened. `ValueError` if there is no image, or none can be opened.
    """
    shape, side = (shape, 0) if shape else shape_of(len(labels), encoded, name, origin)
    mode = "L" if shape[2] == 1 else "RGB"

    def read(row: int, epoch: int) -> tuple[np.ndarray, ...]:
        with decoding(name(row)), Image.open(encoded(row), formats=_FORMATS) as picture:
            image = np.asarray(picture if picture.mode == mode else picture.convert(mode))
            image = image[..., None] if image.ndim == 2 else image
            if any(wanted not in (None, size) for wanted, size in zip(shape, image.shape)):
                raise ValueError(f"it has shape {image.shape}, expected {shape}")
            return (image,)

    def opened(row: int, epoch: int) -> tuple[tuple[Image.Image, str]]:
        return ((Image.open(encoded(row), formats=_FORMATS), mode),)

    spec = ExampleSpec((shape,))
    split = Split(labels, class_names, spec, read, name=name, side=side, encoded=opened)
    one = spec.image_shape
    if one is None or len(split) * math.prod(one) > _IN_MEMORY_BYTES or math.prod(one) > _SMALL:
        return split
    images = np.empty((len(split), *one), np.uint8)

    def fill(row: int) -> None:
        images[row] = read(row, 0)[0]

    try:
        _each(fill, len(split), f"decoding {origin}")
    except CorruptExample:
        return split  # the reader handles the corrupt image
    return dataclasses.replace(split, arrays=(images,))


def split_of_files(
    labels: np.ndarray,
    class_names: tuple[str, ...],
    files: Sequence[Path],
    origin: str,
    shape: Shape | None = None,
) -> Split:
    """`image_split` of image files."""
    name = lambda row: f"image {files[row]}"  # noqa: E731
    split = image_split(labels, class_names, files.__getitem__, name, origin, shape)
    return dataclasses.replace(split, files=files)
