"""Select the classes of a data set by name."""

import difflib
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

import numpy as np


def class_list(classes: Sequence[str]) -> tuple[str, ...]:
    """Class names: those given, or those in the bundled list or text file that a single entry names."""
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


def keep(names: tuple[str, ...], classes: Sequence[str]) -> tuple[str, ...]:
    """The names of the kept classes, in the order of the data; raises ValueError for an unknown name."""
    wanted = class_list(classes)
    unknown = [name for name in wanted if name not in names]
    if unknown:
        close = difflib.get_close_matches(unknown[0], names, n=1)
        hint = f"; did you mean {close[0]}?" if close else f"; it has {', '.join(names[:10])}"
        raise ValueError(f"data.classes: {unknown[0]!r} is not a class of the data{hint}")
    return tuple(name for name in names if name in wanted) if wanted else names


def select(
    labels: np.ndarray, names: tuple[str, ...], kept: tuple[str, ...]
) -> tuple[np.ndarray, np.ndarray]:
    """Rows of the kept classes and their renumbered labels; the unknown label -1 is kept."""
    number = {name: i for i, name in enumerate(kept)}
    table = np.asarray([number.get(name, -1) for name in names], np.int32)
    new = np.where(labels < 0, -1, table[np.maximum(labels, 0)])
    rows = np.flatnonzero((new >= 0) | ((labels < 0) & (len(kept) == len(names))))
    return rows, new[rows]
