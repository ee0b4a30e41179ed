"""The first images of CIFAR-10."""

import dataclasses
from collections.abc import Mapping

import numpy as np

from mvcl import data


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cifar10Part:
    """The first images of both splits of CIFAR-10, from a file as `data:arrays` reads it, decoded into memory."""

    path: str = ""
    """The .npz file, with all images."""
    train: int = 5_000
    """Training images."""
    test: int = 2_000
    """Test images."""

    def open(self, track: data.Track = data.untracked) -> dict[str, data.Split]:
        """The splits `train` and `test`.

        Raises:
          ValueError: the file is not one, or holds other data.
        """
        splits = data.Arrays(path=self.path).open(track)
        check_cifar10(splits)
        found = {}
        for name, count in (("train", self.train), ("test", self.test)):
            split = splits[name]
            images, labels = split.take(np.arange(min(count, len(split))))[0], split.labels[:count]
            found[name] = data.in_memory((images,), labels, split.class_names)
        return found


def check_cifar10(splits: Mapping[str, data.Split]) -> None:
    """Raise `ValueError` for anything but CIFAR-10, which the published numbers are about."""
    for name, each in (("train", 5_000), ("test", 1_000)):
        split = splits[name]
        counts = np.bincount(split.labels, minlength=1)
        if split.spec.shapes != ((32, 32, 3),) or len(counts) != 10 or (counts != each).any():
            raise ValueError(
                f"--data must be CIFAR-10, {each:,} {name} images of 32x32x3 in each of 10 classes, got {len(split):,} "
                f"of {split.spec.shapes[0]} in {len(counts)} classes of {counts.min():,} to {counts.max():,}"
            )
