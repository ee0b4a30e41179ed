"""Small splits kept as arrays beside the prepared files they come from, whose reader takes longer to import."""

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

import numpy as np

from mvcl import _files, _untrusted
from mvcl.data._splits import Split, in_memory

_NAME = "kept.npz"


def kept(folder: Path, read: Callable[[Path], dict[str, Split]]) -> dict[str, Split]:
    """The splits of a folder as they were kept; otherwise read, and kept if all their images are in memory.

    What is kept is used while the other files of the folder are the same, by name, size and time of change.
    """
    files = _fingerprint(folder)
    if (splits := _load(folder / _NAME, files)) is not None:
        return splits
    splits = read(folder)
    with suppress(OSError):  # of a folder without write access nothing is kept
        _save(folder / _NAME, files, splits)
    return splits


def _fingerprint(folder: Path) -> str:
    files = [(file.name, file.stat()) for file in sorted(folder.iterdir()) if _NAME not in file.name]
    return json.dumps([(name, status.st_size, status.st_mtime_ns) for name, status in files])


def _load(path: Path, files: str) -> dict[str, Split] | None:
    try:
        found = _untrusted.read_npz(path)
        if str(found["files"]) != files:
            return None
        names = tuple(found["class_names"].tolist())
        return {
            part: in_memory((found[f"{part}_images"],), found[f"{part}_labels"], names)
            for part in found["parts"].tolist()
        }
    except (OSError, ValueError, KeyError, TypeError):  # missing or damaged
        return None


def _save(path: Path, files: str, splits: Mapping[str, Split]) -> None:
    arrays: dict[str, np.ndarray] = {}
    for part, split in splits.items():
        if split.arrays is None:
            return
        arrays |= {f"{part}_images": split.arrays[0], f"{part}_labels": split.labels}
    names = np.asarray(next(iter(splits.values())).class_names)
    _files.save_arrays(
        path, files=np.asarray(files), parts=np.asarray(list(splits)), class_names=names, **arrays
    )
