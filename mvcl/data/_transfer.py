"""The data sets for transfer of a pretrained encoder."""

import dataclasses
from pathlib import Path
from typing import Literal, get_args

from mvcl._progress import Track, untracked, write_line
from mvcl.data._aircraft import open_aircraft, unpack_aircraft
from mvcl.data._splits import ExampleSpec, Outline, Split
from mvcl.data._tfds import open_tfds, prepare, prepared_directory


@dataclasses.dataclass(frozen=True)
class TransferSet:
    """A transfer data set with its splits. The score is top-1 accuracy on the test split.

    Attributes:
      tfds: its tfds name; empty for a set that tfds lacks, FGVC-Aircraft.
      train: tfds split for the final training, after the choice of hyperparameters: the official training images, plus
        the official validation images if there are any.
      test: tfds split whose score is reported.
      classes: how many.
      train_size: images of the training split.
      side: height and width of all images; None if they differ.
    """

    tfds: str
    train: str
    test: str
    classes: int
    train_size: int
    side: int | None = None


# The sets of Shidani 2024, F.2, in the order of Table 3, with their official splits. tfds calls Food-101's test images
# `validation`. SUN397 and DTD have ten official partitions; this is the first, as in Chen 2020 (SimCLR), Appendix B.8.
TRANSFER: dict[str, TransferSet] = {
    "food101": TransferSet("food101", "train", "validation", 101, 75_750),
    "cifar10": TransferSet("cifar10", "train", "test", 10, 50_000, 32),
    "cifar100": TransferSet("cifar100", "train", "test", 100, 50_000, 32),
    "sun397": TransferSet("sun397/standard-part1-120k", "train", "test", 397, 19_850),
    "cars196": TransferSet("cars196", "train", "test", 196, 8_144),
    "aircraft": TransferSet("", "train", "test", 100, 6_667),
    "dtd": TransferSet("dtd", "train+validation", "test", 47, 3_760),
    "oxford_iiit_pet": TransferSet("oxford_iiit_pet", "train", "test", 37, 3_680),
    "caltech101": TransferSet("caltech101", "train", "test", 102, 3_059),
}
"""Transfer sets by the names that `--data.name NAME` chooses."""
TransferName = Literal[
    "food101",
    "cifar10",
    "cifar100",
    "sun397",
    "cars196",
    "aircraft",
    "dtd",
    "oxford_iiit_pet",
    "caltech101",
]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Transfer:
    """One of the nine data sets of Shidani 2024, Table 3, with its official splits."""

    name: TransferName = "food101"
    """Name of the data set, as in tfds; `aircraft` is FGVC-Aircraft."""
    directory: str | None = None
    """Folder of the prepared data sets; None is TFDS_DATA_DIR or ~/tensorflow_datasets."""

    def open(self, track: Track = untracked) -> dict[str, Split]:
        """The splits `train` and `test`."""
        chosen = self._chosen()
        if not chosen.tfds:
            return open_aircraft(self.directory, track)
        prepared = prepared_directory(chosen.tfds, self.directory, track)
        return open_tfds(prepared, {"train": chosen.train, "test": chosen.test}, (), track)

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
    aircraft: str = ""
    """Official archive of FGVC-Aircraft, fgvc-aircraft-2013b.tar.gz, which tfds does not download."""
    directory: str | None = None
    """Root of the prepared data sets; None is TFDS_DATA_DIR or ~/tensorflow_datasets."""

    def run(self, track: Track = untracked) -> Path:
        """Prepare them and return the folder of the last one; an archive that is not given is named first."""
        folder = Path()
        names = sorted(self.names, key=lambda name: TRANSFER[name].tfds != "")
        for name in track(names, "transfer set", len(names), "sets"):
            tfds = TRANSFER[name].tfds
            folder = (
                prepare(tfds, self.directory, track)
                if tfds
                else unpack_aircraft(self.aircraft, self.directory, track)
            )
            write_line(str(folder))
        return folder
