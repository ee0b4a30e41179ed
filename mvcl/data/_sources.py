"""Where examples come from: each source opens as splits, and a split is labels and a function of a row number."""

import dataclasses
import difflib
import fcntl
import io
import json
import os
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, redirect_stdout
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, UnidentifiedImageError

from mvcl import _extras

# A split whose decoded images all have one size and take no more than this is decoded once and kept.
_IN_MEMORY_BYTES = 1 << 30
_IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".webp", ".ppm", ".tif", ".tiff")


class CorruptExample(RuntimeError):
    """An example that cannot be decoded; the message names it."""


@dataclasses.dataclass(frozen=True)
class Split:
    """The examples of one split.

    Attributes:
      labels: (N,) int32 class numbers.
      class_names: name of each class.
      image_shape: (H, W, C) when all images have it, else None.
      read: row number -> uint8 (H, W, C) image, or float32 in [0, 1]. Thread-safe.
      images: all N images in memory, when they are.
      name: row number -> what an example is called in messages, when it has a name.
    """

    labels: np.ndarray
    class_names: tuple[str, ...]
    image_shape: tuple[int, int, int] | None
    read: Callable[[int], np.ndarray]
    images: np.ndarray | None = None
    name: Callable[[int], str] | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, rows: np.ndarray) -> np.ndarray:
        """The images of these rows, stacked; they must all have one size."""
        if self.images is not None:
            return self.images[rows]
        return np.stack([self.read(int(row)) for row in rows])


@dataclasses.dataclass(frozen=True)
class ViewSplit:
    """The examples of one split whose views are given: tables, modalities, sensor channels.

    Sequences of different lengths are padded to one length with rows of NaN.

    Attributes:
      labels: (N,) int32 class numbers, or float32 targets of a regression.
      class_names: name of each class; () for a regression.
      view_names: name of each of the k views.
      shapes: shape of one example of each view.
      read: row number -> one float32 array a view. Thread-safe.
      present: (N, k) bool, False where an example lacks a view, whose array may then hold NaN; None is all there.
      views: all N rows of each view in memory, when they are.
      groups: (N,) int32 subject or speaker of each example, when splits must respect it.
    """

    labels: np.ndarray
    class_names: tuple[str, ...]
    view_names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    read: Callable[[int], tuple[np.ndarray, ...]]
    present: np.ndarray | None = None
    views: tuple[np.ndarray, ...] | None = None
    groups: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def image_shape(self) -> None:
        """None: the views are no images of one size."""
        return None

    def take(self, rows: np.ndarray) -> tuple[np.ndarray, ...]:
        """These rows of each view, stacked."""
        if self.views is not None:
            return tuple(view[rows] for view in self.views)
        examples = [self.read(int(row)) for row in rows]
        return tuple(
            np.stack([example[v] for example in examples])
            if examples
            else np.zeros((0, *self.shapes[v]), np.float32)
            for v in range(len(self.shapes))
        )


@dataclasses.dataclass(frozen=True)
class DomainSplit:
    """Classes whose images come from k domains: an example is a class and shows one image of each domain.

    Attributes:
      labels: (N,) int32, the class of each example; no class twice.
      class_names: name of each class.
      domains: name of each of the k domains.
      read_views: (row, epoch) -> k uint8 images (H, W, C), one a domain; another choice each epoch. Thread-safe.
    """

    labels: np.ndarray
    class_names: tuple[str, ...]
    domains: tuple[str, ...]
    read_views: Callable[[int, int], Sequence[np.ndarray]]

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def image_shape(self) -> None:
        """None: sizes differ."""
        return None


@dataclasses.dataclass(frozen=True)
class Outline:
    """What a program must know of a training split.

    Attributes:
      examples: how many there are.
      classes: how many classes; 0 where the label is a number.
      image_shape: (H, W, C) where all images have it, else None.
      channels: of the images.
      view_shapes: shape of one example of each view, where examples hold their views.
      masked: whether an example may lack a view.
      views: number of views, where the examples settle it.
    """

    examples: int
    classes: int
    image_shape: tuple[int, int, int] | None = None
    channels: int = 3
    view_shapes: tuple[tuple[int, ...], ...] | None = None
    masked: bool = False
    views: int | None = None


_PUBLISHED = {
    ("cifar10",): Outline(50_000, 10, (32, 32, 3)),
    ("cifar100",): Outline(50_000, 100, (32, 32, 3)),
    ("imagenet2012",): Outline(1_281_167, 1000),
    ("imagenet2012", "imagenet100"): Outline(126_689, 100),
}
AnySplit = Split | ViewSplit | DomainSplit


def expected(source: Any) -> Outline | None:
    """The outline of a source's training split where it is known without the data: by its `expected` method."""
    known = getattr(source, "expected", None)
    return None if known is None else known()


def outline(split: AnySplit) -> Outline:
    """The outline of an opened split."""
    size, classes = len(split), len(split.class_names)
    if isinstance(split, ViewSplit):
        return Outline(
            size, classes, view_shapes=split.shapes, masked=split.present is not None, views=len(split.shapes)
        )
    if isinstance(split, DomainSplit):
        return Outline(size, classes, views=len(split.domains))
    shape = split.image_shape
    return Outline(size, classes, shape, shape[2] if shape else _first_readable(split).shape[2])


def _first_readable(split: Split) -> np.ndarray:
    for row in range(len(split)):
        try:
            return split.read(row)
        except CorruptExample as error:
            last = error
    raise last


@dataclasses.dataclass(frozen=True, kw_only=True)
class Digits:
    """scikit-learn's handwritten digits: 1,437 training and 360 test images, 8x8 grey; offline."""

    directory: str | None = None
    """Where the prepared data set lives; None is TFDS_DATA_DIR or ~/tensorflow_datasets."""

    def open(self) -> dict[str, Split]:
        """The splits `train` and `test`."""
        return _open_tfds(_digits_directory(self.directory), {"train": "train", "test": "test"}, ())


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tfds:
    """A tfds data set by name, prepared once as ArrayRecord by `mvcl data prepare NAME`."""

    name: str = "cifar10"
    """Name of the data set, with `/config` and `:version` where it has them."""
    train_split: str = "train"
    """tfds split that is trained on."""
    test_split: str = "test"
    """tfds split that is evaluated on; imagenet2012 calls it `validation`."""
    classes: tuple[str, ...] = ()
    """Keep these classes only: class names, or one name of a bundled list (imagenet100) or of a text file
    with a class a line. Empty keeps all."""
    directory: str | None = None
    """Where prepared data sets live; None is TFDS_DATA_DIR or ~/tensorflow_datasets."""

    def open(self) -> dict[str, Split]:
        """The splits `train` and `test`."""
        prepared = _prepared_directory(self.name, self.directory)
        return _open_tfds(prepared, {"train": self.train_split, "test": self.test_split}, self.classes)

    def expected(self) -> Outline | None:
        """The published size of the training split, for a few data sets."""
        return _PUBLISHED.get((self.name, *self.classes)) if self.train_split == "train" else None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Folder:
    """A folder of images: PATH/train/CLASS/*.jpg and PATH/test/CLASS/*.jpg (or `val`), sizes may differ.

    With class folders directly under PATH, every fifth image in name order, class by class, is the test split.
    """

    path: str = ""
    """The folder."""
    classes: tuple[str, ...] = ()
    """Keep these classes only, as in the tfds source. Empty keeps all."""

    def open(self) -> dict[str, Split]:
        """The splits `train` and `test`."""
        root = Path(self.path)
        if not self.path or not root.is_dir():
            raise ValueError(f"data.path must be a folder of images, got {self.path!r}")
        test = next((root / name for name in ("test", "val", "validation") if (root / name).is_dir()), None)
        if (root / "train").is_dir() and test is not None:
            parts = {"train": _image_files(root / "train"), "test": _image_files(test)}
        elif (root / "train").is_dir():
            raise ValueError(f"{root} has a train folder but no test or val folder beside it")
        else:
            files = _image_files(root)
            parts = {
                "train": {c: [f for i, f in enumerate(v) if i % 5 != 4] for c, v in files.items()},
                "test": {c: v[4::5] for c, v in files.items()},
            }
        names = _keep(tuple(sorted(parts["train"])), self.classes)
        extra = sorted(set(parts["test"]) - set(parts["train"]))
        if extra:
            raise ValueError(f"{test} has classes that {root / 'train'} lacks: {', '.join(extra[:5])}")
        return {split: _folder_split(files, names, split) for split, files in parts.items()}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Arrays:
    """Images in one .npz file.

    Per split `train` and `test`: `train_images` (N, H, W) or (N, H, W, C), uint8 or floating in [0, 1], or the
    encoded files end to end as `train_jpeg` (bytes, uint8) with `train_offsets` (N + 1,); and `train_labels`
    (N,) integers. `x_train`, `y_train`, `x_test`, `y_test` are understood too. `class_names` is optional. With
    only `images` and `labels`, every fifth row is the test split. Read without pickle.
    """

    path: str = ""
    """The .npz file."""
    classes: tuple[str, ...] = ()
    """Keep these classes only, as in the tfds source. Empty keeps all."""

    def open(self) -> dict[str, Split]:
        """The splits `train` and `test`."""
        if not self.path or not Path(self.path).is_file():
            raise ValueError(f"data.path must be an .npz file, got {self.path!r}")
        try:
            with open(self.path, "rb") as file, np.load(file, allow_pickle=False) as archive:
                arrays = {name: archive[name] for name in archive.files}
        except (ValueError, OSError, EOFError, KeyError, zipfile.BadZipFile, zlib.error) as error:
            raise ValueError(f"data.path {self.path} is not a readable .npz file: {error}") from error
        aliases = {
            "x_train": "train_images",
            "y_train": "train_labels",
            "x_test": "test_images",
            "y_test": "test_labels",
        }
        arrays = {aliases.get(name, name): value for name, value in arrays.items()}
        if "images" in arrays and "labels" in arrays:
            test = np.arange(len(arrays["images"])) % 5 == 4
            for part, rows in (("train", ~test), ("test", test)):
                arrays[f"{part}_images"] = arrays["images"][rows]
                arrays[f"{part}_labels"] = arrays["labels"][rows]
        return {part: _array_split(arrays, part, self.path, self.classes) for part in ("train", "test")}


def prepare(name: str, directory: str | None = None) -> Path:
    """Prepare a data set once, as ArrayRecord, and return its folder.

    Args:
      name: `digits`, or a tfds name such as `cifar10` (its images need the `tensorflow` extra to be written).
      directory: root of the prepared data sets; None is TFDS_DATA_DIR or ~/tensorflow_datasets.

    Raises:
      ValueError: the name is unknown, or TensorFlow is needed and not installed.
    """
    if name == "digits":
        return _digits_directory(directory)
    _check_known(name)
    if (folder := _find_prepared(name, directory)) is not None:
        return folder
    with _extras.needed("tensorflow", by=f"preparing {name}"):
        import tensorflow  # noqa: F401
    import tensorflow_datasets as tfds

    builder = tfds.builder(name, data_dir=_data_root(directory), file_format="array_record")
    with _lock(Path(_data_root(directory)), name):
        builder.download_and_prepare()
    return Path(builder.data_dir)


def class_list(classes: Sequence[str]) -> tuple[str, ...]:
    """Class names from names, or from the one name of a bundled list or of a text file."""
    if len(classes) != 1:
        return tuple(classes)
    bundled = resources.files("mvcl.data") / "classes" / f"{classes[0]}.txt"
    if bundled.is_file():
        text = bundled.read_text()
    elif Path(classes[0]).is_file():
        text = Path(classes[0]).read_text()
    else:
        return tuple(classes)
    return tuple(line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#"))


def _data_root(directory: str | None) -> str:
    return os.path.expanduser(directory or os.environ.get("TFDS_DATA_DIR") or "~/tensorflow_datasets")


@contextmanager
def _lock(root: Path, name: str) -> Iterator[None]:
    """One process prepares while the others wait."""
    root.mkdir(parents=True, exist_ok=True)
    with open(root / f".{name.replace('/', '_')}.lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _digits_directory(directory: str | None) -> Path:
    from mvcl.data._digits import MvclDigits

    root = Path(_data_root(directory))
    folder = root / "mvcl_digits" / str(MvclDigits.VERSION)
    if not folder.is_dir():
        try:
            with _lock(root, "mvcl_digits"):
                if not folder.is_dir():
                    _quietly(MvclDigits(data_dir=str(root), file_format="array_record").download_and_prepare)
        except OSError as error:
            raise ValueError(
                f"cannot write the digits to {root} ({error}); name another folder with TFDS_DATA_DIR or "
                "--data.directory"
            ) from error
    return folder


def _quietly(function: Callable[[], Any]) -> None:
    import tensorflow_datasets as tfds

    tfds.disable_progress_bar()
    with open(os.devnull, "w") as sink, redirect_stdout(sink):
        function()


def _check_known(name: str) -> None:
    import tensorflow_datasets as tfds

    base = name.partition(":")[0].partition("/")[0]
    known = tfds.list_builders(with_community_datasets=False)  # the community's list is on the network
    if base not in known:
        close = difflib.get_close_matches(base, known, n=3)
        hint = f"; did you mean {' or '.join(close)}?" if close else ""
        raise ValueError(f"data set {base!r} is not known to tfds{hint}")


def _find_prepared(name: str, directory: str | None) -> Path | None:
    """Folder of a prepared tfds data set, found without its builder, which may need TensorFlow."""
    base, _, version = name.partition(":")
    root = Path(_data_root(directory)) / base
    folders = [root / version] if version else sorted([*root.glob("*/"), *root.glob("*/*/")], reverse=True)
    return next((folder for folder in folders if (folder / "dataset_info.json").is_file()), None)


def _prepared_directory(name: str, directory: str | None) -> Path:
    folder = _find_prepared(name, directory)
    if folder is None:
        _check_known(name)
        raise ValueError(
            f"data set {name!r} is not prepared in {_data_root(directory)}; run: mvcl data prepare {name}"
        )
    return folder


def _open_tfds(folder: Path, splits: dict[str, str], classes: Sequence[str]) -> dict[str, Split]:
    import tensorflow_datasets as tfds

    _check_features(folder)
    builder = tfds.builder_from_directory(str(folder))
    image_key, label_key = builder.info.supervised_keys or ("image", "label")
    names = tuple(builder.info.features[label_key].names)
    kept = _keep(names, classes)
    opened = {}
    for part, name in splits.items():
        if any(term.split("[")[0] not in builder.info.splits for term in name.split("+")):
            known = ", ".join(builder.info.splits)
            raise ValueError(f"data set {builder.info.name} has no split {name!r}; it has {known}")
        try:
            source = builder.as_data_source(split=name)
        except NotImplementedError as error:
            raise ValueError(
                f"{folder} is not in ArrayRecord format, which reading row by row needs; move it away and run: "
                f"mvcl data prepare {builder.info.name}"
            ) from error
        image_feature = builder.info.features[image_key]
        decoders = None
        if isinstance(image_feature, tfds.features.Image):
            decoders = {image_key: tfds.decode.SkipDecoding()}
        labelled = builder.as_data_source(split=name, decoders=decoders) if decoders else source
        labels = _labels(labelled, label_key)
        rows, labels = _select(labels, names, kept)

        def read(row: int, source: Any = source, rows: np.ndarray = rows, part: str = part) -> np.ndarray:
            try:
                return _three_axes(np.asarray(source[int(rows[row])][image_key]))
            except Exception as error:
                raise CorruptExample(
                    f"record {int(rows[row])} of {folder} ({part}) cannot be read: {error}"
                ) from error

        shape = image_feature.shape
        fixed = shape if len(shape) == 3 and None not in shape else None
        called = partial(_record_name, rows, f"{folder} ({part})")
        opened[part] = _maybe_in_memory(Split(labels, kept, fixed, read, name=called))
    return opened


def _check_features(folder: Path) -> None:
    """tfds imports the modules that features.json names; a stranger's file may name its own only."""

    def names(node: Any) -> Iterator[Any]:
        if isinstance(node, dict):
            for key, value in node.items():
                yield from (value,) if key == "pythonClassName" else names(value)
        elif isinstance(node, list):
            for value in node:
                yield from names(value)

    path = folder / "features.json"
    try:
        found = list(names(json.loads(path.read_text())))
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"{path} cannot be read ({error}); prepare the data set again") from error
    strange = [name for name in found if not str(name).startswith("tensorflow_datasets.")]
    if strange:
        raise ValueError(
            f"{path} names the class {strange[0]!r}, which is none of tfds's own; it is not imported. Prepare the data "
            "set with a tfds builder, or use data:folder or data:arrays"
        )


def _record_name(rows: np.ndarray, origin: str, row: int) -> str:
    return f"record {int(rows[row])} of {origin}"


def _labels(source: Any, key: str) -> np.ndarray:
    """The label of each record; -1 where the record cannot be read."""
    step = 1024
    chunks: list[int] = []
    for start in range(0, len(source), step):
        rows = list(range(start, min(start + step, len(source))))
        try:
            chunks.extend(int(record[key]) for record in source.__getitems__(rows))
        except Exception:  # whatever a damaged record makes the reader raise
            del chunks[start:]
            chunks.extend(_label(source, row, key) for row in rows)
    return np.asarray(chunks, np.int32)


def _label(source: Any, row: int, key: str) -> int:
    try:
        return int(source[row][key])
    except Exception:
        return -1  # said when its turn comes to be read


def _keep(names: tuple[str, ...], classes: Sequence[str]) -> tuple[str, ...]:
    wanted = class_list(classes)
    unknown = [name for name in wanted if name not in names]
    if unknown:
        close = difflib.get_close_matches(unknown[0], names, n=1)
        hint = f"; did you mean {close[0]}?" if close else f"; it has {', '.join(names[:10])}"
        raise ValueError(f"data.classes: {unknown[0]!r} is not a class of the data{hint}")
    return tuple(name for name in names if name in wanted) if wanted else names


def _select(
    labels: np.ndarray, names: tuple[str, ...], kept: tuple[str, ...]
) -> tuple[np.ndarray, np.ndarray]:
    """Rows of the kept classes, and their labels numbered among these; a label of -1 is unknown and stays."""
    number = {name: i for i, name in enumerate(kept)}
    table = np.asarray([number.get(name, -1) for name in names], np.int32)
    new = np.where(labels < 0, -1, table[np.maximum(labels, 0)])
    rows = np.flatnonzero((new >= 0) | ((labels < 0) & (len(kept) == len(names))))
    return rows, new[rows]


def _three_axes(image: np.ndarray) -> np.ndarray:
    return image[..., None] if image.ndim == 2 else image


def _maybe_in_memory(split: Split) -> Split:
    shape = split.image_shape
    if shape is None or len(split) * int(np.prod(shape)) > _IN_MEMORY_BYTES:
        return split
    # Decoding releases the interpreter's lock, so threads help.
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        try:
            images = list(pool.map(split.read, range(len(split)), chunksize=256))
        except CorruptExample:
            return split  # read when its turn comes, where what to do about it is known
    return dataclasses.replace(split, images=np.stack(images) if images else np.zeros((0, *shape), np.uint8))


def _image_files(folder: Path) -> dict[str, list[Path]]:
    files = {
        d.name: sorted(f for f in d.rglob("*") if f.suffix.lower() in _IMAGE_SUFFIXES)
        for d in sorted(folder.iterdir())
        if d.is_dir()
    }
    files = {name: paths for name, paths in files.items() if paths}
    if not files:
        raise ValueError(f"{folder} holds no class folders with images ({', '.join(_IMAGE_SUFFIXES)})")
    return files


def _decode(data: str | Path | io.BytesIO, name: str, mode: str = "RGB") -> np.ndarray:
    try:
        with Image.open(data) as image:
            return _three_axes(np.asarray(image.convert(mode)))
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise CorruptExample(f"image {name} cannot be decoded ({error}); mend or remove it") from error


def _header(path: Path | io.BytesIO) -> tuple[int, int, str] | None:
    """Width, height and mode; None if the file is no image, which is said when its turn comes to be read."""
    try:
        with Image.open(path) as image:
            return (*image.size, image.mode)
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError):
        return None


def _folder_split(files: dict[str, list[Path]], names: tuple[str, ...], part: str) -> Split:
    paths = [(path, label) for label, name in enumerate(names) for path in files.get(name, [])]
    if not paths:
        raise ValueError(f"the {part} split of the folder is empty")
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = list(pool.map(_header, [path for path, _ in paths], chunksize=64))
    headers = [header for header in found if header is not None]
    if not headers:
        raise ValueError(
            f"none of the images of the {part} split can be opened, the first being {paths[0][0]}"
        )
    mode = "L" if all(header[2] in ("1", "L") for header in headers) else "RGB"
    sizes = {header[:2] for header in headers}
    width, height = next(iter(sizes))
    shape = (height, width, 1 if mode == "L" else 3) if len(sizes) == 1 else None

    def read(row: int) -> np.ndarray:
        return _decode(paths[row][0], str(paths[row][0]), mode)

    labels = np.asarray([label for _, label in paths], np.int32)
    return _maybe_in_memory(Split(labels, names, shape, read, name=lambda row: f"image {paths[row][0]}"))


def _array_split(arrays: dict[str, np.ndarray], part: str, path: str, classes: Sequence[str]) -> Split:
    def get(name: str) -> np.ndarray:
        if f"{part}_{name}" not in arrays:
            raise ValueError(f"{path} has no array {part}_{name}; it has {', '.join(sorted(arrays))}")
        return arrays[f"{part}_{name}"]

    labels = get("labels").reshape(-1)
    if not np.issubdtype(labels.dtype, np.integer) or (len(labels) and labels.min() < 0):
        raise ValueError(f"{path}: {part}_labels must be integers >= 0, got {labels.dtype}")
    every = np.concatenate([arrays[k].reshape(-1) for k in ("train_labels", "test_labels") if k in arrays])
    count = int(every.max()) + 1 if len(every) else 0
    names = tuple(str(n) for n in arrays.get("class_names", np.arange(count)))
    if len(names) < count:
        raise ValueError(f"{path}: class_names has {len(names)} names for labels up to {count - 1}")
    kept = _keep(names, classes)
    rows, kept_labels = _select(labels.astype(np.int64), names, kept)
    if f"{part}_jpeg" in arrays:
        return _encoded_split(
            get("jpeg"), get("offsets"), rows, kept_labels, kept, f"{path} ({part})", len(labels)
        )
    images = get("images")
    if images.ndim not in (3, 4):
        raise ValueError(f"{path}: {part}_images must be (N, H, W) or (N, H, W, C), got {images.shape}")
    if len(images) != len(labels):
        raise ValueError(f"{path}: {part} has {len(images)} images and {len(labels)} labels")
    images = images[..., None] if images.ndim == 3 else images
    if images.dtype != np.uint8:
        if not np.issubdtype(images.dtype, np.floating):
            raise ValueError(f"{path}: {part}_images must be uint8 or floating in [0, 1], got {images.dtype}")
        if len(images) and not (images.min() >= 0 and images.max() <= 1):  # NaN fails too
            low, high = images.min(), images.max()
            raise ValueError(f"{path}: floating {part}_images must lie in [0, 1], got {low} to {high}")
        images = images.astype(np.float32)
    images = images[rows]
    shape = (images.shape[1], images.shape[2], images.shape[3])
    return Split(kept_labels, kept, shape, images.__getitem__, images)


def _encoded_split(
    data: np.ndarray,
    offsets: np.ndarray,
    rows: np.ndarray,
    labels: np.ndarray,
    names: tuple[str, ...],
    origin: str,
    count: int,
) -> Split:
    sound = offsets.shape == (count + 1,) and offsets[-1] <= len(data) and (np.diff(offsets) >= 0).all()
    if not sound:
        raise ValueError(f"{origin}: offsets must be {count + 1} rising positions in {len(data)} bytes")

    def image(row: int) -> io.BytesIO:
        return io.BytesIO(data[offsets[rows[row]] : offsets[rows[row] + 1]].tobytes())

    headers = [header for row in range(len(rows)) if (header := _header(image(row))) is not None]
    if not headers:
        raise ValueError(f"{origin}: none of the images can be opened")
    mode = "L" if all(h[2] in ("1", "L") for h in headers) else "RGB"
    sizes = {h[:2] for h in headers}
    shape = None
    if len(sizes) == 1:
        width, height = next(iter(sizes))
        shape = (height, width, 1 if mode == "L" else 3)

    def read(row: int) -> np.ndarray:
        return _decode(image(row), f"{rows[row]} of {origin}", mode)

    return _maybe_in_memory(Split(labels, names, shape, read))
