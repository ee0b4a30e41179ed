"""tfds data sets prepared as ArrayRecord files, and the digits."""

import dataclasses
import difflib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from mvcl import _buckets, _extras
from mvcl._progress import Track, untracked
from mvcl.data._classes import keep, select
from mvcl.data._directories import data_root, lock
from mvcl.data._images import maybe_in_memory, three_axes
from mvcl.data._kept import kept
from mvcl.data._splits import CorruptExample, ExampleSpec, Outline, Split

DIGITS_VERSION = "1.0.0"
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
        _check_known(name)
        raise ValueError(
            f"data set {name!r} is not prepared in {data_root(directory)}; run: mvcl data prepare {name}"
        )
    return _buckets.local_copy(folder, track)


def open_tfds(folder: Path, splits: dict[str, str], classes: Sequence[str], track: Track) -> dict[str, Split]:
    import tensorflow_datasets as tfds

    _check_features(folder)
    builder = tfds.builder_from_directory(str(folder))
    image_key, label_key = builder.info.supervised_keys or ("image", "label")
    names = tuple(builder.info.features[label_key].names)
    kept = keep(names, classes)
    opened = {}
    for part, name in splits.items():
        if any(term.split("[")[0] not in builder.info.splits for term in name.split("+")):
            known = ", ".join(builder.info.splits)
            raise ValueError(f"data set {builder.info.name} has no split {name!r}; it has {known}")
        try:
            source = builder.as_data_source(split=name)
        except NotImplementedError as error:
            raise ValueError(
                f"{folder} is not in ArrayRecord format, which random access needs; move it away and run: "
                f"mvcl data prepare {builder.info.name}"
            ) from error
        image_feature = builder.info.features[image_key]
        decoders = None
        if isinstance(image_feature, tfds.features.Image):
            decoders = {image_key: tfds.decode.SkipDecoding()}
        labelled = builder.as_data_source(split=name, decoders=decoders) if decoders else source
        labels = _labels(labelled, label_key, f"{folder} ({part})", track)
        rows, labels = select(labels, names, kept)

        def read(
            row: int, epoch: int, source: Any = source, rows: np.ndarray = rows, part: str = part
        ) -> tuple[np.ndarray, ...]:
            try:
                return (three_axes(np.asarray(source[int(rows[row])][image_key])),)
            except Exception as error:
                raise CorruptExample(
                    f"record {int(rows[row])} of {folder} ({part}) cannot be read: {error}"
                ) from error

        called = partial(_record_name, rows, f"{folder} ({part})")
        spec = _spec(image_feature.shape, read, len(rows))
        opened[part] = maybe_in_memory(
            Split(labels, kept, spec, read, name=called), f"{folder} ({part})", track
        )
    return opened


def _spec(
    shape: Sequence[int | None], read: Callable[[int, int], tuple[np.ndarray, ...]], rows: int
) -> ExampleSpec:
    """Specification of an image from its tfds feature; unknown channels are read from the first readable image."""
    if len(shape) == 3 and shape[2] is not None:
        return ExampleSpec((tuple(shape),))
    last: CorruptExample | None = None
    for row in range(rows):
        try:
            return ExampleSpec(((None, None, read(row, 0)[0].shape[2]),))
        except CorruptExample as error:
            last = error
    raise ValueError(f"none of {rows} images can be read") from last


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


def _record_name(rows: np.ndarray, origin: str, row: int) -> str:
    return f"record {int(rows[row])} of {origin}"


def _labels(source: Any, key: str, origin: str, track: Track) -> np.ndarray:
    """The label of each record; -1 if the record cannot be read."""
    step = 1024
    chunks: list[int] = []
    starts = range(0, len(source), step)
    for start in track(starts, f"reading the labels of {origin}", len(starts), f"blocks of {step}"):
        rows = list(range(start, min(start + step, len(source))))
        try:
            chunks.extend(int(record[key]) for record in source.__getitems__(rows))
        except Exception:  # a damaged record may raise anything
            del chunks[start:]
            chunks.extend(_label(source, row, key) for row in rows)
    return np.asarray(chunks, np.int32)


def _label(source: Any, row: int, key: str) -> int:
    try:
        return int(source[row][key])
    except Exception:
        return -1  # reading it raises the error
