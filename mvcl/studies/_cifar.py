"""The first images of CIFAR-10."""

import dataclasses
from pathlib import Path

import numpy as np

from mvcl import _files, data


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cifar10Part:
    """The first images of both splits of CIFAR-10, from a file as `data:arrays` reads it."""

    path: str = ""
    """The .npz file, with all images."""
    train: int = 5_000
    """Training images."""
    test: int = 2_000
    """Test images."""

    def open(self, track: data.Track = data.untracked) -> dict[str, data.Split]:
        """The splits `train` and `test`.

        Raises:
          ValueError: the file cannot be read, or holds other data.
        """
        splits = data.Arrays(path=self.path, first=(self.train, self.test)).open(track)
        arrays = _files.read_npz(Path(self.path))
        for name, each in (("train", 5_000), ("test", 1_000)):
            labels = arrays.get(f"{name}_labels", arrays.get(f"y_{name}", np.zeros(0, np.int64)))
            check_cifar10(name, splits[name].spec.shapes[0], labels.reshape(-1), each)
        return splits


def check_cifar10(name: str, shape: tuple[int | None, ...], labels: np.ndarray, each: int) -> None:
    """Raise `ValueError` for a split of anything but CIFAR-10, which the published numbers are about.

    Args:
      name: of the split.
      shape: of an image.
      labels: (N,) integers >= 0, of all images.
      each: images of each class.
    """
    counts = np.bincount(labels, minlength=1)
    if shape != (32, 32, 3) or len(counts) != 10 or (counts != each).any():
        raise ValueError(
            f"--data must be CIFAR-10, {each:,} {name} images of 32x32x3 in each of 10 classes, got {len(labels):,} of "
            f"{shape} in {len(counts)} classes of {counts.min():,} to {counts.max():,}"
        )
