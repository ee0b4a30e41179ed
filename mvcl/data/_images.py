"""Images in files: encoded images, folders of classes, folders of domains such as DomainNet, and one .npz file."""

import dataclasses
import io
import math
import os
import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import TypeVar

import numpy as np
from PIL import Image

from mvcl import _buckets, _files, _progress
from mvcl.data._splits import (
    CorruptExample,
    ExampleSpec,
    Outline,
    Split,
    by_domain,
    decoding,
    in_memory,
    keep,
    select,
)

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".webp", ".ppm", ".tif", ".tiff")
# Splits of equally sized images of at most this many decoded bytes are kept in memory, if an image has at most as many.
_IN_MEMORY_BYTES, _SMALL = 1 << 28, 1 << 22
# Without EPS, which starts another program.
_FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
_MOST_CLASSES = 1_000_000
_ALIASES = {f"x_{part}": f"{part}_images" for part in ("train", "test")}
_ALIASES |= {f"y_{part}": f"{part}_labels" for part in ("train", "test")}
# Lines of DOMAIN_train.txt of the cleaned version, 409,832 of 586,575 images.
_TRAINING_IMAGES = {
    "clipart": 33_525,
    "infograph": 36_023,
    "painting": 50_416,
    "quickdraw": 120_750,
    "real": 120_906,
    "sketch": 48_212,
}
DOMAINS = tuple(_TRAINING_IMAGES)
"""The domains of DomainNet."""
Shape = tuple[int | None, int | None, int]
_IMAGE: Shape = (None, None, 3)


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
        root = _folder(self.path, "a folder of images")
        folders = {"train": root / "train", "test": root / ("test" if (root / "test").is_dir() else "val")}
        if folders["train"].is_dir():
            if not folders["test"].is_dir():
                raise ValueError(f"{root} has a train folder but no test or val folder")
            parts = {part: _image_files(folder) for part, folder in folders.items()}
        else:
            files = _image_files(root)
            parts = {
                "train": {c: [f for i, f in enumerate(v) if i % 5 != 4] for c, v in files.items()},
                "test": {c: v[4::5] for c, v in files.items()},
            }
        names = keep(tuple(parts["train"]), self.classes)
        if extra := sorted(parts["test"].keys() - parts["train"].keys()):
            raise ValueError(f"{folders['test']} has classes that train lacks: {', '.join(extra[:5])}")

        def split(part: str) -> Split:
            paths = [(path, label) for label, name in enumerate(names) for path in parts[part].get(name, [])]
            labels = np.asarray([label for _, label in paths], np.int32)
            return split_of_files(labels, names, [path for path, _ in paths], f"{root} ({part})")

        return {part: split(part) for part in parts}


def _folder(path: str, what: str) -> Path:
    root = _buckets.local_copy(path)
    if not path or not root.is_dir():
        raise ValueError(f"data.path must be {what}, got {path!r}")
    return root


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
            numbers = {part: _array(arrays, f"{part}_labels").reshape(-1) for part in ("train", "test")}
            every = np.concatenate(list(numbers.values()))
            if every.dtype.kind not in "iu" or not ((every >= 0) & (every < _MOST_CLASSES)).all():
                raise ValueError(
                    f"labels must be integers from 0, less than {_MOST_CLASSES}, got {every.dtype}"
                )
            count = int(every.max(initial=0)) + 1
            names = tuple(str(name) for name in arrays.get("class_names", np.arange(count)).reshape(-1))
            if len(names) < count:
                raise ValueError(f"class_names has {len(names)} names for labels up to {count - 1}")
            limits = dict(zip(numbers, self.first or (None, None), strict=True))
            return {part: self._split(arrays, part, of, names, limits[part]) for part, of in numbers.items()}

    def _split(
        self,
        arrays: dict[str, np.ndarray],
        part: str,
        labels: np.ndarray,
        names: tuple[str, ...],
        limit: int | None,
    ) -> Split:
        kept, count = keep(names, self.classes), len(labels)
        rows, labels = (found[:limit] for found in select(labels.astype(np.int64), names, kept))
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


# Encoded images of any origin


Encoded = Callable[[int], Path | io.BytesIO]
"""Row -> the file of an image, or its bytes."""
T = TypeVar("T")


def _each(function: Callable[[int], T], count: int, what: str) -> list[T]:
    """A function of each row, in threads: decoding releases the GIL."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(_progress.track(pool.map(function, range(count)), what, count, "images"))


def _shape_of(count: int, encoded: Encoded, name: Callable[[int], str], origin: str) -> Shape:
    """Shape of images that are grey, if all are, else RGB; each is opened."""

    def header(row: int) -> tuple[tuple[int, int], str] | None:
        with suppress(Exception), Image.open(encoded(row), formats=_FORMATS) as image:
            return image.size, image.mode
        return None  # not an image; reading it raises

    headers = [one for one in _each(header, count, f"opening {origin}") if one is not None]
    if not headers:
        first = f"none of the images can be opened; the first is {name(0)}" if count else "it has no images"
        raise ValueError(f"{origin}: {first}")
    sizes, modes = (set(found) for found in zip(*headers))
    width, height = sizes.pop() if len(sizes) == 1 else (None, None)
    return height, width, 1 if modes <= {"1", "L"} else 3


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
    images are opened.

    Raises:
      ValueError: there is no image, or none can be opened.
    """
    shape = shape or _shape_of(len(labels), encoded, name, origin)

    def read(row: int, epoch: int) -> tuple[np.ndarray, ...]:
        with decoding(name(row)):
            image = decode(encoded(row), "L" if shape[2] == 1 else "RGB")
            if any(wanted not in (None, size) for wanted, size in zip(shape, image.shape)):
                raise ValueError(f"it has shape {image.shape}, expected {shape}")
            return (image,)

    split = Split(labels, class_names, ExampleSpec((shape,)), read, name=name)
    one = split.spec.image_shape
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
    return image_split(
        labels, class_names, files.__getitem__, lambda row: f"image {files[row]}", origin, shape
    )


def decode(data: Path | io.BytesIO, mode: str = "RGB") -> np.ndarray:
    """(H, W, C) uint8 of an encoded image; Pillow may raise anything for a damaged one, see `decoding`."""
    with Image.open(data, formats=_FORMATS) as image:
        pixels = np.asarray(image if image.mode == mode else image.convert(mode))
    return pixels[..., None] if pixels.ndim == 2 else pixels


# Domains


@dataclasses.dataclass(frozen=True, kw_only=True)
class DomainNet:
    """DomainNet, or any images of the same classes in several domains.

    A training example is one image of a class from each training domain, its views. Every `classes_per_draw`
    consecutive examples of a batch are a draw of as many different classes, so a batch of 512 is 32 draws of 16
    classes; compare examples within a draw, with --train.group (Piran 2024, Section 4.2 and Table A1: 16 a GPU).
    Draws and images depend on draw_seed and epoch, not on train.seed and devices. An epoch reads as many images as the
    training lists of these domains have. Classes that a training domain lacks are left out. `test` is the test list of
    the held-out domain, `seen` has the training lists of the others, and each list is a split, such as real/train.
    """

    path: str = ""
    """Folder with DOMAIN/CLASS/*.jpg and DOMAIN_train.txt, DOMAIN_test.txt with lines `DOMAIN/CLASS/FILE NUMBER`."""
    domains: tuple[str, ...] = DOMAINS
    """The domains."""
    held_out: str = "sketch"
    """Domain that is excluded from training; empty: train on all, and `test` is all test lists."""
    classes: tuple[str, ...] = ()
    """Keep these classes only, as in the tfds source. Empty keeps all."""
    classes_per_draw: int = 16
    """Different classes among as many consecutive examples; at most the number of classes."""
    draw_seed: int = 0
    """Seed for drawing classes and images; --train.seed does not change them."""

    def open(self) -> dict[str, Split]:
        """The splits `train`, `seen` and `test`, and one for each list."""
        if self.held_out and self.held_out not in self.domains:
            raise ValueError(
                f"held_out must be one of {', '.join(self.domains)}, or empty; got {self.held_out!r}"
            )
        seen = tuple(domain for domain in self.domains if domain != self.held_out)
        if len(seen) < 2:
            raise ValueError(f"data.domains must have at least 2 domains for training, got {', '.join(seen)}")
        names, lists = _read_lists(_folder(self.path, "DomainNet's folder"), self.domains)
        kept = keep(names, self.classes)

        def split(part: str) -> Split:
            numbers, paths = lists[part]
            rows, labels = select(numbers, names, kept)
            return split_of_files(labels, kept, [paths[row] for row in rows], part, _IMAGE)

        splits, size = {part: split(part) for part in lists}, self.classes_per_draw
        return by_domain(splits, seen, self.held_out, size=size, seed=self.draw_seed)

    def expected(self) -> Outline | None:
        """345 classes and the draws of an epoch of the cleaned lists; None for other domains or classes."""
        seen = [domain for domain in self.domains if domain != self.held_out]
        if len(self.classes) > 1 or not set(seen) <= set(_TRAINING_IMAGES) or len(seen) < 2:
            return None
        images = sum(_TRAINING_IMAGES[domain] for domain in seen)
        examples = self.classes_per_draw * (images // (len(seen) * self.classes_per_draw))
        return Outline(examples, 345, ExampleSpec((_IMAGE,) * len(seen)))


def _read_lists(
    root: Path, domains: Sequence[str]
) -> tuple[tuple[str, ...], dict[str, tuple[np.ndarray, list[Path]]]]:
    """Class names, and of each list DOMAIN/train and DOMAIN/test the class numbers and files of its images.

    Raises:
      ValueError: a list is missing; or a line of it is not PATH NUMBER, points outside the folder, names a missing
        image, or gives a class another number than an earlier line.
    """
    if len(set(domains)) != len(domains) or not domains:
        raise ValueError(f"domains must be different names, got {', '.join(domains) or 'none'}")
    numbers: dict[str, int] = {}
    parts = [(domain, part) for domain in domains for part in ("train", "test")]
    lists = {f"{domain}/{part}": _read_list(root, f"{domain}_{part}.txt", numbers) for domain, part in parts}
    names = tuple(sorted(numbers, key=numbers.__getitem__))
    if absent := set(range(len(names))) - set(numbers.values()):
        raise ValueError(f"the lists of {root} have no image of class {min(absent)}, but of later ones")
    return names, lists


def _read_list(root: Path, name: str, numbers: dict[str, int]) -> tuple[np.ndarray, list[Path]]:
    """Class numbers and files of a list; adds its classes to `numbers`."""
    if not (root / name).is_file():
        lists = ", ".join(sorted(path.name for path in root.glob("*_*.txt"))) or "no lists"
        raise ValueError(f"{root} lacks {name}; it has {lists}")
    paths, labels = [], []
    there: dict[Path, set[str]] = {}  # one listing per folder: checking each of 600,000 files takes minutes
    names = {number: class_name for class_name, number in numbers.items()}
    with _files.reading(root / name, "list of images, lines DOMAIN/CLASS/FILE NUMBER"):
        lines = (root / name).read_text(encoding="utf-8").splitlines()
        for line, text in enumerate(_progress.track(lines, f"reading {name}", len(lines), "lines"), start=1):
            if not text.strip():
                continue
            found = re.fullmatch(r"((?:[^/\\]+/)+[^/\\]+) (\d{1,9})", text.strip(), re.ASCII)
            path = PurePosixPath(found[1] if found else "..")
            if found is None or ".." in path.parts:
                raise ValueError(f"line {line} must be DOMAIN/CLASS/FILE NUMBER, got {text[:80]!r}")
            folder, name_of_class, number = root / path.parent, path.parts[-2], int(found[2])
            known = numbers.setdefault(name_of_class, number), names.setdefault(number, name_of_class)
            if known != (number, name_of_class):
                raise ValueError(
                    f"line {line}: class {number} is {name_of_class}, elsewhere {name_of_class} is class {known[0]} "
                    f"and class {number} is {known[1]}"
                )
            if folder not in there:
                there[folder] = set(os.listdir(folder)) if folder.is_dir() else set()
            if path.name not in there[folder]:
                raise ValueError(f"line {line}: there is no image {path}; use the cleaned lists")
            paths.append(root / path)
            labels.append(number)
        if not paths:
            raise ValueError("it names no image")
    return np.asarray(labels, np.int32), paths
