"""tfds data sets prepared as ArrayRecord files, and the digits."""

import bisect
import dataclasses
import difflib
import io
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stdout
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any

import grain
import numpy as np

from mvcl import _buckets, _extras
from mvcl._progress import Track, untracked
from mvcl.data import _records
from mvcl.data._classes import keep, select
from mvcl.data._directories import data_root, lock
from mvcl.data._images import decode, maybe_in_memory, of_shape, three_axes
from mvcl.data._kept import kept
from mvcl.data._splits import CorruptExample, ExampleSpec, Outline, Split

DIGITS_VERSION = "1.0.0"
# Bytes of records that are read together, and the most classes: ImageNet-21k has 21,843.
_AT_ONCE, _MOST_CLASSES = 1 << 26, 1 << 17
_PUBLISHED = {
    ("cifar10",): Outline(50_000, 10, ExampleSpec(((32, 32, 3),))),
    ("cifar100",): Outline(50_000, 100, ExampleSpec(((32, 32, 3),))),
    ("imagenet2012",): Outline(1_281_167, 1000, ExampleSpec(((None, None, 3),))),
    ("imagenet2012", "imagenet100"): Outline(126_689, 100, ExampleSpec(((None, None, 3),))),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Digits:
    """scikit-learn's handwritten digits: 1,437 training and 360 test images, 8x8 grey; offline."""

    directory: str | None = None
    """Folder of the prepared data sets; None is TFDS_DATA_DIR or ~/tensorflow_datasets."""

    def open(self, track: Track = untracked) -> dict[str, Split]:
        """The splits `train` and `test`."""
        read = partial(open_tfds, splits={"train": "train", "test": "test"}, classes=(), track=track)
        return kept(_buckets.local_copy(_digits_directory(self.directory, track), track), read)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tfds:
    """A tfds data set by name, prepared as ArrayRecord files by `mvcl data prepare NAME`."""

    name: str = "cifar10"
    """Name of the data set, with `/config` and `:version` if needed."""
    train_split: str = "train"
    """tfds split for training."""
    test_split: str = "test"
    """tfds split for evaluation; `validation` for imagenet2012."""
    classes: tuple[str, ...] = ()
    """Keep only these classes: class names, or the name of a bundled list (imagenet100) or of a text file with one
    class per line. Empty keeps all."""
    directory: str | None = None
    """Folder of the prepared data sets; None is TFDS_DATA_DIR or ~/tensorflow_datasets."""

    def open(self, track: Track = untracked) -> dict[str, Split]:
        """The splits `train` and `test`."""
        prepared = prepared_directory(self.name, self.directory, track)
        return open_tfds(prepared, {"train": self.train_split, "test": self.test_split}, self.classes, track)

    def expected(self) -> Outline | None:
        """The published size of the training split; None for most data sets."""
        return _PUBLISHED.get((self.name, *self.classes)) if self.train_split == "train" else None


def prepare(name: str, directory: str | None = None, track: Track = untracked) -> Path:
    """Write a data set as ArrayRecord files and return its folder.

    Args:
      name: `digits`, or a tfds name such as `cifar10` (its images need the `tensorflow` extra to be written).
      directory: root of the prepared data sets; None is TFDS_DATA_DIR or ~/tensorflow_datasets.
      track: reports the loops of tfds, and the set as one item while it downloads.

    Raises:
      ValueError: the name is unknown, or TensorFlow is needed and not installed.
    """
    if name == "digits":
        return _digits_directory(directory, track)
    _check_known(name)
    if (folder := _find_prepared(name, directory)) is not None:
        return folder
    root = data_root(directory)
    if _buckets.is_remote(root):
        return _buckets.uploaded(root, lambda local: prepare(name, local, track), track) / name.replace(
            ":", "/"
        )
    with _extras.needed("tensorflow", by=f"preparing {name}"):
        import tensorflow  # noqa: F401
    import tensorflow_datasets as tfds

    builder = tfds.builder(name, data_dir=str(root), file_format="array_record")
    with lock(root, name):
        for one in track([builder], f"preparing {name}", 1, "sets"):
            _quietly(one.download_and_prepare, track)
    return Path(builder.data_dir)


def _digits_directory(directory: str | None, track: Track) -> Path:
    root = data_root(directory)
    folder = root / "mvcl_digits" / DIGITS_VERSION
    if _buckets.is_remote(root):
        if not (folder / "dataset_info.json").is_file():
            _buckets.uploaded(root, lambda local: _digits_directory(local, track), track)
        return folder
    if not folder.is_dir():
        from mvcl.data._digits import MvclDigits

        try:
            with lock(root, "mvcl_digits"):
                if not folder.is_dir():
                    builder = MvclDigits(data_dir=str(root), file_format="array_record")
                    _quietly(builder.download_and_prepare, track)
        except OSError as error:
            raise ValueError(
                f"cannot write the digits to {root} ({error}); name another folder with TFDS_DATA_DIR or "
                "--data.directory"
            ) from error
    return folder


def _quietly(prepare: Callable[[], Any], track: Track) -> None:
    """Call a preparation of tfds, whose messages are dropped, and whose loops `track` reports in place of its bars."""
    import tensorflow_datasets as tfds
    from tensorflow_datasets.core import utils

    def loop(items: Iterable[Any], *, desc: str, unit: str, total: int | None = None, **_: Any) -> Any:
        return track(items, desc.rstrip("."), total, unit.strip())

    tfds.disable_progress_bar()  # those of downloads, which are no loops
    bars, utils.tqdm = utils.tqdm, loop
    try:
        with open(os.devnull, "w") as sink, redirect_stdout(sink):
            prepare()
    finally:
        utils.tqdm = bars


def _check_known(name: str) -> None:
    import tensorflow_datasets as tfds

    base = name.partition(":")[0].partition("/")[0]
    known = tfds.list_builders(
        with_community_datasets=False
    )  # the community's list needs a network connection
    if base not in known:
        close = difflib.get_close_matches(base, known, n=3)
        hint = f"; did you mean {' or '.join(close)}?" if close else ""
        raise ValueError(f"data set {base!r} is not known to tfds{hint}")


def _find_prepared(name: str, directory: str | None) -> Path | None:
    """Folder of a prepared tfds data set, found without its builder, which may need TensorFlow."""
    base, _, version = name.partition(":")
    root = data_root(directory) / base
    folders = [root / version] if version else sorted([*root.glob("*/"), *root.glob("*/*/")], reverse=True)
    return next((folder for folder in folders if (folder / "dataset_info.json").is_file()), None)


def prepared_directory(name: str, directory: str | None, track: Track = untracked) -> Path:
    folder = _find_prepared(name, directory)
    if folder is None:
        root = Path(data_root(directory)) / name.partition(":")[0]
        if any(root.glob("**/*.array_record*")):
            raise ValueError(
                f"data set {name!r} in {root} has no dataset_info.json; move it away and prepare it again"
            )
        _check_known(name)
        raise ValueError(
            f"data set {name!r} is not prepared in {data_root(directory)}; run: mvcl data prepare {name}"
        )
    return _buckets.local_copy(folder, track)


@dataclasses.dataclass(frozen=True)
class _Stored:
    """A prepared tfds data set.

    Attributes:
      names: name of each class.
      shape: shape of the images, None where it differs.
      encoded: whether the records have encoded images.
      parse: bytes of a record -> the image, or its bytes, and the label.
      files: split -> its files and their records.
    """

    names: tuple[str, ...]
    shape: tuple[int | None, ...]
    encoded: bool
    parse: Callable[[bytes], tuple[Any, int]]
    files: Mapping[str, Sequence[Any]]


def open_tfds(
    folder: Path, splits: dict[str, str], classes: Sequence[str], track: Track = untracked
) -> dict[str, Split]:
    """The splits of a prepared tfds data set, in ArrayRecord files.

    Args:
      folder: of the prepared data set.
      splits: name of each split here -> its name in tfds.
      classes: names of the classes to keep; empty keeps all.
      track: reports the records that are read.

    Raises:
      ValueError: a file of the data set is missing or damaged, is in another format, or has none of these splits.
    """
    stored = _stored(folder, tuple(splits.values()))
    chosen = keep(stored.names, classes)
    return {part: _split(folder, stored, part, name, chosen, track) for part, name in splits.items()}


def _split(
    folder: Path, stored: _Stored, part: str, name: str, classes: tuple[str, ...], track: Track
) -> Split:
    files = stored.files[name]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        sizes = pool.map(lambda file: _records.check(Path(file.filename), file.examples_in_shard), files)
        try:
            largest = max(sizes)
        except ValueError as error:
            raise ValueError(
                f"{error}, as in {folder / 'dataset_info.json'}; prepare the data set again"
            ) from error
    source = grain.sources.ArrayRecordDataSource(files)
    ends = list(accumulate(file.take for file in files))
    labels = _labels(source, stored.parse, largest, f"{folder} ({part})", track)
    if len(labels) and labels.max() >= len(stored.names):
        raise ValueError(
            f"{folder}: {_features(folder)} state {len(stored.names)} classes, but {part} has the label {labels.max()}"
        )
    rows, labels = select(labels, stored.names, classes)

    def called(row: int) -> str:
        file = files[bisect.bisect_right(ends, rows[row])].filename
        return f"record {int(rows[row])} of {folder} ({part}), in {Path(file).name},"

    def image(row: int) -> np.ndarray:
        try:
            found, _ = stored.parse(source[int(rows[row])])
        except Exception as error:  # a damaged record may raise any
            raise CorruptExample(f"{called(row)} cannot be read: {error}") from error
        if stored.encoded:
            return decode(io.BytesIO(found), called(row), "L" if stored.shape[2] == 1 else "RGB")
        return three_axes(np.asarray(found))

    origin = f"{folder}: {_features(folder)} and {', '.join(Path(file.filename).name for file in files[:4])}"
    shape = _shape(stored.shape, image, np.flatnonzero(labels >= 0)[:16], origin)

    def read(row: int, epoch: int) -> tuple[np.ndarray, ...]:
        return (of_shape(image(row), shape, called(row)),)

    split = Split(labels, classes, ExampleSpec((shape,)), read, name=called)
    return maybe_in_memory(split, f"{folder} ({part})", track)


def _shape(
    shape: tuple[int | None, ...], image: Callable[[int], np.ndarray], rows: np.ndarray, origin: str
) -> tuple[int | None, ...]:
    """(H, W, C) of the images: as stated, or with the channels of the first readable one, which must agree."""
    last: CorruptExample | None = None
    for row in rows.tolist():
        try:
            found = image(row)
        except CorruptExample as error:
            last = error
            continue
        shape = shape if len(shape) == 3 and shape[2] is not None else (None, None, found.shape[-1])
        try:
            of_shape(found, shape, "the first image")
        except CorruptExample as error:
            raise ValueError(f"{origin} do not agree: {error}") from error
        return shape
    raise ValueError(f"{origin}: none of the first {len(rows)} images can be read: {last}") from last


def _stored(folder: Path, splits: Sequence[str]) -> _Stored:
    import tensorflow_datasets as tfds

    _check_features(folder)
    # tfds may raise any exception for a damaged file.
    try:
        info = tfds.builder_from_directory(str(folder)).info
        image_key, label_key = info.supervised_keys or ("image", "label")
        image, label = info.features[image_key], info.features[label_key]
        if label.num_classes > _MOST_CLASSES:
            raise ValueError(f"{label.num_classes} classes are too many")
        names, shape = tuple(map(str, label.names)), tuple(image.shape)
        if (encoded := isinstance(image, tfds.features.Image)) and (
            image.np_dtype != np.uint8 or len(shape) != 3
        ):
            raise ValueError(f"its images must be (H, W, C) uint8, got {shape} {image.np_dtype}")
        skip = {image_key: tfds.decode.SkipDecoding()} if encoded else None
        # Without the other features of a record, such as masks, which tfds would decode.
        features = tfds.features.FeaturesDict({image_key: image, label_key: label})
        if (shards := sum(split.num_shards for split in info.splits.values())) > len(os.listdir(folder)):
            raise ValueError(f"{shards} files are stated, more than there are")
        if info.file_format.value != "array_record":
            raise ValueError("it is not in ArrayRecord format, which random access needs")
        known, name = list(info.splits), info.name
        there = [split for split in splits if all(term.split("[")[0] in known for term in split.split("+"))]
        files = {split: info.splits[split].file_instructions for split in there}
        for split, found in files.items():
            if not found or any(Path(file.filename).parent != folder for file in found):
                raise ValueError(f"the files of {split} must be in its folder, got {str(found)[:80]}")
    except Exception as error:
        reason = f"{type(error).__name__} {' '.join(str(error).split())}"
        raise ValueError(
            f"{folder}: dataset_info.json, {_features(folder)} cannot be read ({reason}); prepare the data set again"
        ) from error
    if lacking := [split for split in splits if split not in files]:
        has = f"it has {', '.join(known)} ({folder / 'dataset_info.json'})"
        raise ValueError(f"data set {name} has no split {lacking[0]!r}; {has}")

    def parse(record: bytes) -> tuple[Any, int]:
        example = features.deserialize_example_np(record, decoders=skip)
        return example[image_key], int(example[label_key])

    return _Stored(names, shape, encoded, parse, files)


def _features(folder: Path) -> str:
    """The files that describe the features, in messages; a missing one counts."""
    return ", ".join(["features.json", *sorted(file.name for file in folder.glob("*.txt"))])


def _check_features(folder: Path) -> None:
    """Allow only tfds's own classes: tfds imports every module that features.json names, which may be unsafe."""

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
    foreign = [name for name in found if not str(name).startswith("tensorflow_datasets.")]
    if foreign:
        raise ValueError(
            f"{path} names the class {foreign[0]!r}, which is not part of tfds; it is not imported. Prepare the data "
            "set with a tfds builder, or use data:folder or data:arrays"
        )


def _labels(
    source: Any, parse: Callable[[bytes], tuple[Any, int]], largest: int, origin: str, track: Track
) -> np.ndarray:
    """The label of each record, of which the largest has so many bytes; -1 if the record cannot be read."""

    def label(row: int) -> int:
        try:
            return parse(source[row])[1]
        except Exception:  # a damaged record may raise any
            return -1  # reading it raises the error

    step = min(1024, max(1, _AT_ONCE // max(1, largest)))
    labels = np.full(len(source), -1, np.int64)
    starts = range(0, len(source), step)
    for start in track(starts, f"reading the labels of {origin}", len(starts), f"blocks of {step}"):
        rows = range(start, min(start + step, len(source)))
        try:
            found = [parse(record)[1] for record in source.__getitems__(rows)]
        except Exception:
            found = [label(row) for row in rows]
        labels[rows.start : rows.stop] = found
    return labels.clip(-1)
