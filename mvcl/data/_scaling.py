"""Checks, choice and scaling of feature tables."""

import dataclasses
import json
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from mvcl import _buckets, _files
from mvcl.data._splits import Split, in_memory

Scaling = Literal["minmax", "standard", "none"]


@dataclasses.dataclass
class RawTables:
    """Tables as read, before checks and scaling.

    Attributes:
      names: of the k views.
      views: k arrays (N, d_v), a row of NaN where an example lacks the view.
      labels: (N,) of any kind, or None.
      ids: name of each example.
    """

    names: list[str]
    views: list[np.ndarray]
    labels: np.ndarray | None
    ids: list[str]

    def choose(self, views: Sequence[str]) -> None:
        """Keep these views, by name or by number from 1, in this order; none given keeps all."""
        rows = chosen(views, self.names) if views else range(len(self.names))
        self.names, self.views = [self.names[row] for row in rows], [self.views[row] for row in rows]

    def splits(
        self, scaling: Sequence[Scaling], scaling_file: str = "", held_out: bool = False
    ) -> dict[str, Split]:
        """Check and scale the tables; return the splits `train` and `test`."""
        present = self._checked()
        test = np.arange(len(self.ids)) % 5 == 4
        parts = {"train": ~test, "test": test} if held_out else dict.fromkeys(("train", "test"), test | True)
        file = _buckets.path(scaling_file)
        if scaling_file and file.is_file():
            fitted = self._read_scaling(file)
        else:
            fitted = self._fit(scaling, present & parts["train"][:, None])
            if scaling_file:
                file.parent.mkdir(parents=True, exist_ok=True)
                _files.write_whole(file, json.dumps(fitted) + "\n")
        scaled = [
            _scaled(name, view, fitted[name], present[:, i])
            for i, (name, view) in enumerate(zip(self.names, self.views))
        ]
        labels, class_names = _classes(self.labels, len(self.ids))

        def part(rows: np.ndarray) -> Split:
            there = present[rows]
            return in_memory(
                tuple(_rows(view, rows) for view in scaled),
                labels[rows],
                class_names,
                view_names=tuple(self.names),
                given=True,
                present=None if there.all() else there,
                ids=tuple(name for name, row in zip(self.ids, rows) if row),
                scaling=fitted,
            )

        return {name: part(rows) for name, rows in parts.items()}

    def _checked(self) -> np.ndarray:
        """(N, k) bool, True where a view is present; raises `ValueError` for invalid tables."""
        if len(self.views) < 2:
            raise ValueError(f"data must have at least 2 views, got {', '.join(self.names)}")
        check_distinct(self.ids)
        present = np.stack([~np.isnan(view).all(axis=1) for view in self.views], axis=1)
        for name, view, here in zip(self.names, self.views, present.T):
            if view.shape[1] == 0 or not here.any():
                missing = "example" if view.shape[1] else "columns of features"
                raise ValueError(f"view {name} has no {missing}")
            bad = ~np.isfinite(view) & here[:, None]
            if bad.any():
                row, column = np.argwhere(bad)[0]
                raise ValueError(
                    f"view {name} has {bad.sum()} entries that are NaN, empty or infinite, the first in column "
                    f"{column} of example {self.ids[row]}; fill them in, or make the whole row NaN if the example "
                    "lacks this view"
                )
        if not present.any(axis=1).all():
            lost = int(np.argmin(present.any(axis=1)))
            raise ValueError(f"example {self.ids[lost]} is in no view; remove it")
        if not (present.sum(axis=1) > 1).any():
            first = ", ".join(f"{self.ids[i]!r} in {n}" for n, i in zip(self.names, present.argmax(axis=0)))
            raise ValueError(f"no example is in more than one view; the views must share ids, got {first}")
        return present

    def _fit(self, kinds: Sequence[Scaling], training: np.ndarray) -> dict[str, dict[str, Any]]:
        """Shift and scale of each view's columns, fitted to the training examples that have the view."""
        if len(kinds) not in (1, len(self.views)) or not set(kinds) <= {"minmax", "standard", "none"}:
            raise ValueError(
                "data.scaling must name one scaling, minmax, standard or none, or one for each of "
                f"{len(self.views)} views, got {', '.join(kinds)}"
            )
        fitted = {}
        for i, (name, view) in enumerate(zip(self.names, self.views)):
            kind, rows = kinds[i % len(kinds)], _rows(view, training[:, i])
            if not len(rows):
                raise ValueError(f"view {name} has no example in the training split")
            shift, scale = np.zeros(view.shape[1]), np.ones(view.shape[1])
            if kind == "minmax":
                shift = rows.min(axis=0)
                scale = rows.max(axis=0) - shift
            elif kind == "standard":
                shift, scale = rows.mean(axis=0), rows.std(axis=0)
                scale[rows.min(axis=0) == rows.max(axis=0)] = 0  # constant up to rounding errors
            scale = np.where(scale > 0, scale, 1)
            fitted[name] = {"kind": kind, "shift": shift.tolist(), "scale": scale.tolist()}
        return fitted

    def _read_scaling(self, path: Path) -> dict[str, dict[str, Any]]:
        with _files.reading(path, "fitted scaling (data.scaling_file)"):
            fitted = _files.read_json(path)
            here = {name: view.shape[1] for name, view in zip(self.names, self.views)}
            shapes = {
                name: np.asarray([view["shift"], view["scale"]], float) for name, view in fitted.items()
            }
            if {name: both.shape[1] for name, both in shapes.items()} != here:
                raise ValueError(f"it was fitted on other views than these, {here}")
            if not all(np.isfinite(both).all() and both[1].all() for both in shapes.values()):
                raise ValueError("shift and scale must be finite numbers, and scale not 0")
            return fitted


def _scaled(name: str, view: np.ndarray, fitted: Mapping[str, Any], here: np.ndarray) -> np.ndarray:
    """(N, d) float32: a view, scaled; warns of columns that are constant in the rows that are `here`."""
    rows = _rows(view, here)
    shift, scale = np.asarray(fitted["shift"]), np.asarray(fitted["scale"])
    constant = np.flatnonzero(rows.min(axis=0) == rows.max(axis=0))
    if len(constant):
        shown = ", ".join(map(str, constant[:5])) + (", ..." if len(constant) > 5 else "")
        zero = shift[constant].any() and np.allclose(rows[0, constant], shift[constant])
        warnings.warn(
            f"view {name}: {len(constant)} of {view.shape[1]} columns are constant ({shown})"
            + ("; scaling makes them 0" if zero else ""),
            stacklevel=3,
        )
    with np.errstate(all="ignore"):
        scaled = ((view - shift) / scale).astype(np.float32)
    if not np.isfinite(_rows(scaled, here)).all():
        raise ValueError(f"view {name} has entries too large for float32 after scaling")
    return scaled


def save_scaling(split: Split, path: Path) -> None:
    """Write the fitted scaling of a split of tables, for `Tables.scaling_file`; nothing for other splits."""
    if split.scaling:
        _files.write_whole(path, json.dumps(split.scaling) + "\n")


def chosen(views: Sequence[str], names: Sequence[str]) -> list[int]:
    """Position of each chosen view, by its name or else by its number from 1."""
    there = ", ".join(f"{number} {name}" for number, name in enumerate(names, start=1))
    rows: list[int] = []
    for view in views:
        if view in names:
            row = names.index(view)
        elif view.isdecimal() and 1 <= int(view) <= len(names):
            row = int(view) - 1
        else:
            raise ValueError(f"data.views: there is no view {view!r}; there are {there}")
        if row in rows:
            raise ValueError(f"data.views: view {names[row]} is chosen twice; there are {there}")
        rows.append(row)
    if len(rows) < 2:
        raise ValueError(f"data.views must choose at least 2 views, got {views[0]}; there are {there}")
    return rows


def check_distinct(ids: Sequence[str]) -> None:
    """Raise ValueError if an id is repeated."""
    if repeated := len(ids) - len(set(ids)):
        raise ValueError(
            f"ids must be distinct: {repeated} are repeated, such as {Counter(ids).most_common(1)[0][0]}"
        )


def _rows(view: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Some rows of an array; the array itself, not a copy, if these are all."""
    return view if rows.all() else view[rows]


def _classes(labels: np.ndarray | None, n: int) -> tuple[np.ndarray, tuple[str, ...]]:
    """(N,) int32 class numbers, and the class names in order."""
    if labels is None:
        return np.zeros(n, np.int32), ("unlabelled",)
    if labels.dtype.kind in "OUS":
        labels = np.asarray([str(label).strip() for label in labels])
    elif (
        labels.dtype.kind == "f" and (whole := (np.abs(labels) < 2**53) & (labels == np.round(labels))).all()
    ):
        labels = labels.astype(np.int64)
    elif labels.dtype.kind not in "biu":
        first = labels[~whole][0] if labels.dtype.kind == "f" else labels.dtype
        raise ValueError(f"labels must be whole numbers or strings, got {first}")
    names, numbers = np.unique(labels, return_inverse=True)
    if len(names) < 2:
        raise ValueError(f"labels must name at least 2 classes, got {', '.join(map(str, names))}")
    return numbers.reshape(-1).astype(np.int32), tuple(str(name) for name in names)
