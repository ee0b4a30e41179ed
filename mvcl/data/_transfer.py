"""The data sets for transfer of a pretrained encoder."""

import dataclasses
from pathlib import Path
from typing import Literal, get_args

from mvcl.data._splits import ExampleSpec, Outline, Split
from mvcl.data._tfds import open_tfds, prepare, prepared_directory

Metric = Literal["top1", "mean_per_class"]


@dataclasses.dataclass(frozen=True)
class TransferSet:
    """A transfer data set with its splits and metric.

    Attributes:
      tfds: its tfds name.
      train: tfds split for the final training, after the choice of hyperparameters: the official training images, plus
        the official validation images if there are any.
      test: tfds split whose score is reported.
      metric: top1, or mean_per_class for classes of unequal size, as Kornblith 2019 and Chen 2020 report.
      classes: how many.
      train_size: images of the training split.
      side: height and width of all images; None if they differ.
    """

    tfds: str
    train: str
    test: str
    metric: Metric
    classes: int
    train_size: int
    side: int | None = None


# Kornblith 2019 (arXiv 1805.08974), Table 1, and Chen 2020 (SimCLR), Appendix B.8. tfds calls Food-101's test images
# `validation`. SUN397 and DTD have ten official partitions; both papers use the first.
TRANSFER: dict[str, TransferSet] = {
    "caltech101": TransferSet("caltech101", "train", "test", "mean_per_class", 102, 3_059),
    "cars196": TransferSet("cars196", "train", "test", "top1", 196, 8_144),
    "cifar10": TransferSet("cifar10", "train", "test", "top1", 10, 50_000, 32),
    "cifar100": TransferSet("cifar100", "train", "test", "top1", 100, 50_000, 32),
    "dtd": TransferSet("dtd", "train+validation", "test", "top1", 47, 3_760),
    "food101": TransferSet("food101", "train", "validation", "top1", 101, 75_750),
    "oxford_flowers102": TransferSet(
        "oxford_flowers102", "train+validation", "test", "mean_per_class", 102, 2_040
    ),
    "oxford_iiit_pet": TransferSet("oxford_iiit_pet", "train", "test", "mean_per_class", 37, 3_680),
    "sun397": TransferSet("sun397/standard-part1-120k", "train", "test", "top1", 397, 19_850),
}
TransferName = Literal[
    "caltech101",
    "cars196",
    "cifar10",
    "cifar100",
    "dtd",
    "food101",
    "oxford_flowers102",
    "oxford_iiit_pet",
    "sun397",
]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Transfer:
    """One of the nine data sets of Shidani 2024, Table 3, with its official splits."""

    name: TransferName = "food101"
    """Name of the data set, as in tfds."""
    directory: str | None = None
    """Folder of the prepared data sets; None is TFDS_DATA_DIR or ~/tensorflow_datasets."""

    def open(self) -> dict[str, Split]:
        """The splits `train` and `test`."""
        chosen = self._chosen()
        prepared = prepared_directory(chosen.tfds, self.directory)
        return open_tfds(prepared, {"train": chosen.train, "test": chosen.test}, ())

    def expected(self) -> Outline:
        """The published size of the training split."""
        chosen = self._chosen()
        side = chosen.side
        return Outline(chosen.train_size, chosen.classes, ExampleSpec(((side, side, 3),)))

    def _chosen(self) -> TransferSet:
        if self.name not in TRANSFER:
            raise ValueError(f"data.name must be one of {', '.join(TRANSFER)}; got {self.name!r}")
        return TRANSFER[self.name]


@dataclasses.dataclass(frozen=True, kw_only=True)
class PrepareTransfer:
    """Prepare the nine transfer sets; sets that are prepared already are skipped."""

    names: tuple[TransferName, ...] = get_args(TransferName)
    """Names of the data sets."""
    directory: str | None = None
    """Root of the prepared data sets; None is TFDS_DATA_DIR or ~/tensorflow_datasets."""

    def run(self) -> Path:
        """Prepare them and return the folder of the last one."""
        folder = Path()
        for name in self.names:
            folder = prepare(TRANSFER[name].tfds, self.directory)
            print(folder)
        return folder
