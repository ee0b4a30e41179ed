"""tfds data sets, prepared as ArrayRecord files, and the nine data sets for transfer of a pretrained encoder."""

import dataclasses
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from mvcl import _buckets, _checks, _files, _lazy, _progress
from mvcl._configs import hint
from mvcl.data._images import image_split, split_of_files
from mvcl.data._prepared import data_root, lock
from mvcl.data._splits import ExampleSpec, Outline, Split, keep, select

_BLOCK = 1024  # records whose labels are read together


def _outline(images: int, classes: int, side: int | None = None) -> Outline:
    return Outline(images, classes, ExampleSpec(((side, side, 3),)))


_PUBLISHED = {
    ("cifar10",): _outline(50_000, 10, 32),
    ("cifar100",): _outline(50_000, 100, 32),
    ("imagenet2012",): _outline(1_281_167, 1000),
    ("imagenet2012", "imagenet100"): _outline(126_689, 100),
}

_AIRCRAFT = "fgvc-aircraft-2013b"
_LISTS = {"test": ("trainval", "test"), "validation": ("train", "val")}
_WHERE = f"{_AIRCRAFT}.tar.gz of robots.ox.ac.uk/~vgg/data/fgvc-aircraft"


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

    def open(self) -> dict[str, Split]:
        prepared = _find_prepared(self.name, self.directory)
        if prepared is None:
            _check_known(self.name)
            what = f"{self.name!r} is not prepared in {data_root(self.directory)}"
            raise ValueError(f"{what}; run: mvcl data prepare {self.name}")
        folder = _buckets.local_copy(prepared)
        with _files.reading(folder, "prepared data set (dataset_info.json, features.json)"):
            _check_features(folder / "features.json")
            import tensorflow_datasets as tfds

            builder = tfds.builder_from_directory(str(folder))
            image_key, label_key = builder.info.supervised_keys or ("image", "label")
            image, label = builder.info.features[image_key], builder.info.features[label_key]
            names = tuple(map(str, label.names))
            if not isinstance(image, tfds.features.Image):
                raise ValueError(f"its {image_key!r} must be an image, got {type(image).__name__}")
            height, width, channels = image.shape
            raw = tfds.decode.DeserializeMethod.RAW_BYTES
            parts = {"train": self.train_split, "test": self.test_split}
            sources = builder.as_data_source(parts, deserialize_method=raw)
            # Without the other features of a record, such as masks, which tfds would decode.
            features = tfds.features.FeaturesDict({image_key: image, label_key: label})
            skip = {image_key: tfds.decode.SkipDecoding()}

        kept = keep(names, self.classes)

        def parse(record: bytes) -> tuple[Any, int]:
            example = features.deserialize_example_np(record, decoders=skip)
            return example[image_key], int(example[label_key])

        def opened(source: Any, origin: str) -> Split:
            rows, labels = select(_labels(source, parse, len(names), origin), names, kept)
            return image_split(
                labels,
                kept,
                lambda row: io.BytesIO(parse(source[int(rows[row])])[0]),
                lambda row: f"record {int(rows[row])} of {origin}",
                origin,
                (height, width, channels or 3),  # without a number of channels images are decoded as RGB
            )

        return {part: opened(source, f"{folder} ({part})") for part, source in sources.items()}

    def expected(self) -> Outline | None:
        """The published size of the training split; None for most data sets."""
        return _PUBLISHED.get((self.name, *self.classes)) if self.train_split == "train" else None


def prepare(name: str, directory: str | None = None) -> Path:
    """Write a data set, such as `cifar10`, as ArrayRecord files with tfds, and return its folder.

    `ValueError` if the name is unknown, or TensorFlow is needed and not installed.

    Args:
      name: A tfds name such as cifar10 (these need the `tensorflow` extra); or eeg, sentiment or transfer, which
        have further options: `mvcl data prepare eeg --help`.
      directory: Root of the prepared data sets; None is TFDS_DATA_DIR or ~/tensorflow_datasets.
    """
    _check_known(name)
    if (folder := _find_prepared(name, directory)) is not None:
        return folder
    root = data_root(directory)
    if _buckets.is_remote(root):
        return _buckets.uploaded(root, lambda local: prepare(name, local)) / name.replace(":", "/")
    with _lazy.needed("tensorflow", by=f"preparing {name}"):
        import tensorflow  # noqa: F401
    import tensorflow_datasets as tfds

    builder = tfds.builder(name, data_dir=str(root), file_format="array_record")
    with lock(root, name):
        builder.download_and_prepare()
    return Path(builder.data_dir)


def _check_known(name: str) -> None:
    if name.startswith("digits"):
        raise ValueError("the digits need no preparation: mvcl train digits")
    import tensorflow_datasets as tfds

    base = name.partition(":")[0].partition("/")[0]
    # The community's list needs a network connection.
    known = tfds.list_builders(with_community_datasets=False)
    if base not in known:
        raise ValueError(f"data set {base!r} is not known to tfds. {hint(base, known)}".strip())


def _find_prepared(name: str, directory: str | None) -> Path | None:
    """Folder of a prepared tfds data set, found without its builder, which may need TensorFlow."""
    base, _, version = name.partition(":")
    root = data_root(directory) / base
    folders = [root / version] if version else sorted([*root.glob("*/"), *root.glob("*/*/")], reverse=True)
    return next((folder for folder in folders if (folder / "dataset_info.json").is_file()), None)


def _labels(source: Any, parse: Callable[[bytes], tuple[Any, int]], classes: int, origin: str) -> np.ndarray:
    """The label of each record; -1 if the record cannot be read, of which reading it raises the error."""

    def read(rows: range) -> list[int]:
        try:
            return [parse(record)[1] for record in source.__getitems__(rows)]
        except Exception:  # a damaged record may raise any
            return [-1] if len(rows) == 1 else [label for row in rows for label in read(range(row, row + 1))]

    starts = range(0, len(source), _BLOCK)
    tracked = _progress.track(starts, f"reading the labels of {origin}", len(starts), f"blocks of {_BLOCK}")
    found = [label for start in tracked for label in read(range(start, min(start + _BLOCK, len(source))))]
    labels = np.asarray(found, np.int64)
    if len(labels) and labels.max() >= classes:
        raise ValueError(f"{origin} has {classes} classes and the label {labels.max()}")
    return labels.clip(-1)


def _check_features(path: Path) -> None:
    """Allow only tfds' own classes: tfds imports every module that features.json names."""

    def look(node: dict[str, Any]) -> None:
        name = str(node.get("pythonClassName", "tensorflow_datasets."))
        if not name.startswith("tensorflow_datasets."):
            what = f"{path} names the class {name!r}, which is not part of tfds; it is not imported"
            raise ValueError(f"{what}. Prepare the data with tfds, or use data:folder or data:arrays")

    json.loads(path.read_text(encoding="utf-8"), object_hook=look)


# The sets of Shidani 2024, F.2, in the order of Table 3: the official training images, with the official validation
# images if there are any, and the test images. tfds calls Food-101's test images `validation`. SUN397 and DTD have ten
# official partitions; this is the first, as in Chen 2020 (SimCLR), Appendix B.8.
TRANSFER: dict[str, tuple[Tfds | None, Outline]] = {
    "food101": (Tfds(name="food101", test_split="validation"), _outline(75_750, 101)),
    "cifar10": (Tfds(name="cifar10"), _PUBLISHED["cifar10",]),
    "cifar100": (Tfds(name="cifar100"), _PUBLISHED["cifar100",]),
    "sun397": (Tfds(name="sun397/standard-part1-120k"), _outline(19_850, 397)),
    "cars196": (Tfds(name="cars196"), _outline(8_144, 196)),
    "aircraft": (None, _outline(6_667, 100)),
    "dtd": (Tfds(name="dtd", train_split="train+validation"), _outline(3_760, 47)),
    "oxford_iiit_pet": (Tfds(name="oxford_iiit_pet"), _outline(3_680, 37)),
    "caltech101": (Tfds(name="caltech101"), _outline(3_059, 102)),
}
"""Transfer sets by the names that `--data.name NAME` chooses: the source, None if tfds lacks it, and the outline of the
split of the final training, after the choice of hyperparameters."""
TransferName = Literal[
    "food101", "cifar10", "cifar100", "sun397", "cars196", "aircraft", "dtd", "oxford_iiit_pet", "caltech101"
]


@dataclasses.dataclass(frozen=True, kw_only=True)
class TransferImages:
    """One of the nine data sets of Shidani 2024, Table 3, with its official splits."""

    name: TransferName = "food101"
    """Name of the data set, as in tfds; `aircraft` is FGVC-Aircraft."""
    directory: str | None = None
    """Folder of the prepared data sets; None is TFDS_DATA_DIR or ~/tensorflow_datasets."""
    evaluate: Literal["test", "validation"] = "test"
    """Images of the split `test`. `validation`, to choose hyperparameters: the official validation images of aircraft
    and dtd, which then are not trained on; of the others, which have none, every fifth training image of each class."""

    def open(self) -> dict[str, Split]:
        source, _ = TRANSFER[_checks.option("data.name", self.name, TRANSFER)]
        if source is None:
            folder = _buckets.local_copy(_aircraft(self.directory)) / "data"
            lists = (f"images_variant_{part}.txt" for part in _LISTS[self.evaluate])
            return dict(zip(("train", "test"), (_split_of_aircraft(folder, name) for name in lists)))
        source = dataclasses.replace(source, directory=self.directory)
        if self.evaluate == "test":
            return source.open()
        if self.name == "dtd":
            return dataclasses.replace(source, train_split="train", test_split="validation").open()
        whole = source.open()["train"]
        fifth = [np.flatnonzero(whole.labels == label)[4::5] for label in range(len(whole.class_names))]
        held = np.isin(np.arange(len(whole)), np.concatenate(fifth))
        return {"train": whole.only(np.flatnonzero(~held)), "test": whole.only(np.flatnonzero(held))}

    def expected(self) -> Outline | None:
        """The published size of the training split; None for an unknown name, and where a part is held out."""
        return TRANSFER[self.name][1] if self.name in TRANSFER and self.evaluate == "test" else None


@dataclasses.dataclass(frozen=True, kw_only=True)
class PrepareTransfer:
    """Prepare the nine transfer sets; sets that are prepared already are skipped. Aircraft, which tfds does not
    download, must be unpacked in `directory`."""

    names: tuple[TransferName, ...] = get_args(TransferName)
    """Names of the data sets."""
    directory: str | None = None
    """Root of the prepared data sets; None is TFDS_DATA_DIR or ~/tensorflow_datasets."""

    def run(self) -> Path:
        """Prepare them, aircraft first, and return the folder of the last one."""
        folder, where = Path(), self.directory
        sources = [TRANSFER[name][0] for name in sorted(self.names, key=lambda name: name != "aircraft")]
        for source in _progress.track(sources, "transfer set", len(sources), "sets"):
            folder = prepare(source.name, where) if source else _aircraft(where)
            _progress.line(str(folder))
        return folder


def _aircraft(directory: str | None) -> Path:
    root = data_root(directory)
    if not (root / _AIRCRAFT / "data" / "variants.txt").is_file():
        raise ValueError(f"data set 'aircraft' is not in {root}; unpack {_WHERE} (2.75 GB) there")
    return root / _AIRCRAFT


def _split_of_aircraft(folder: Path, name: str) -> Split:
    """The images of a list, without their banners."""
    with _files.reading(folder / name, f"list of images and variants; unpack {_WHERE} again"):
        files = (folder / file for file in ("variants.txt", name))
        names, lines = (file.read_text(encoding="utf-8").splitlines() for file in files)
        rows = [line.partition(" ") for line in lines]
        labels = np.asarray([names.index(variant) for _, _, variant in rows], np.int32)
    images = [folder / "images" / f"{image}.jpg" for image, _, _ in rows]
    whole = split_of_files(labels, tuple(names), images, str(folder / name), (None, None, 3))
    # The last 20 rows name the image's owner; the data set's README asks to remove them.
    cut = lambda row, epoch: (whole.read(row, epoch)[0][:-20],)  # noqa: E731
    return dataclasses.replace(whole, read=cut, encoded=None)
