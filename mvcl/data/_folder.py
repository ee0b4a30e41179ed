"""Folders of image files."""

import dataclasses
from pathlib import Path

import numpy as np

from mvcl import _buckets
from mvcl._progress import Track, untracked
from mvcl.data._classes import keep
from mvcl.data._images import encoded_split
from mvcl.data._splits import Split

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".webp", ".ppm", ".tif", ".tiff")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Folder:
    """A folder of images: PATH/train/CLASS/*.jpg and PATH/test/CLASS/*.jpg (or `val`); sizes may differ.

    With class folders directly under PATH, every fifth image of each class, in name order, is in the test split.
    """

    path: str = ""
    """The folder."""
    classes: tuple[str, ...] = ()
    """Keep only these classes, as in the tfds source. Empty keeps all."""

    def open(self, track: Track = untracked) -> dict[str, Split]:
        """The splits `train` and `test`."""
        root = _buckets.local_copy(self.path, track)
        if not self.path or not root.is_dir():
            raise ValueError(f"data.path must be a folder of images, got {self.path!r}")
        test = next((root / name for name in ("test", "val", "validation") if (root / name).is_dir()), None)
        if (root / "train").is_dir() and test is not None:
            parts = {"train": _image_files(root / "train", track), "test": _image_files(test, track)}
        elif (root / "train").is_dir():
            raise ValueError(f"{root} has a train folder but no test or val folder")
        else:
            files = _image_files(root, track)
            parts = {
                "train": {c: [f for i, f in enumerate(v) if i % 5 != 4] for c, v in files.items()},
                "test": {c: v[4::5] for c, v in files.items()},
            }
        names = keep(tuple(sorted(parts["train"])), self.classes)
        extra = sorted(set(parts["test"]) - set(parts["train"]))
        if extra:
            raise ValueError(f"{test} has classes that {root / 'train'} lacks: {', '.join(extra[:5])}")
        return {part: _split(files, names, f"{root} ({part})", track) for part, files in parts.items()}


def _image_files(folder: Path, track: Track) -> dict[str, list[Path]]:
    folders = [d for d in sorted(folder.iterdir()) if d.is_dir()]
    files = {
        d.name: sorted(f for f in d.rglob("*") if f.suffix.lower() in IMAGE_SUFFIXES)
        for d in track(folders, f"listing {folder}", len(folders), "folders")
    }
    files = {name: paths for name, paths in files.items() if paths}
    if not files:
        raise ValueError(f"{folder} holds no class folders with images ({', '.join(IMAGE_SUFFIXES)})")
    return files


def _split(files: dict[str, list[Path]], names: tuple[str, ...], origin: str, track: Track) -> Split:
    paths = [(path, label) for label, name in enumerate(names) for path in files.get(name, [])]
    if not paths:
        raise ValueError(f"{origin} holds no image")
    labels = np.asarray([label for _, label in paths], np.int32)
    return encoded_split(
        labels, names, lambda row: paths[row][0], lambda row: f"image {paths[row][0]}", origin, track
    )
