"""Feature tables as views: MATLAB files, .npz files, and folders with one file per view."""

import dataclasses
import json
import re
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from mvcl import _buckets, _extras, _files, _untrusted
from mvcl._progress import Track, untracked
from mvcl.data import _matlab
from mvcl.data._splits import ExampleSpec, Outline, Split, in_memory

LABEL_NAMES = (
    "labels",
    "label",
    "y",
    "gt",
    "gnd",
    "truth",
    "truelabel",
    "y_true",
    "target",
    "targets",
    "class",
)
_ID_NAMES = ("id", "ids", "sample_id", "sample", "index")
_CELL_NAMES = ("x", "data", "views", "view", "fea", "features")
_NUMBERED = re.compile(r"(?:x|view|fea|features?)_?(\d+)", re.IGNORECASE)
_SUFFIXES = (".csv", ".parquet", ".npy")
_NUMBER_BYTES = 8  # all features become float64
_EXAMPLE_BYTES = 256  # an id, as a string, and what else is kept of an example besides its numbers
_COLUMNS = 50_000  # of a .csv or .parquet file
_CHUNK_BYTES = 8 << 10  # what a column of a group of rows costs in a .parquet file, in memory and in time
Scaling = Literal["minmax", "standard", "none"]
# File name -> examples, classes, and the width of each view.
_PUBLISHED = {
    "DHA": (483, 23, {"X1": 110, "X2": 6144}),
    "CCV": (6773, 20, {"MFCC": 4000, "SIFT": 5000, "STIP": 5000}),
    "NUSWIDE": (5000, 5, {"X1": 65, "X2": 226, "X3": 145, "X4": 74, "X5": 129}),
    "Caltech": (1400, 7, {"X1": 48, "X2": 40, "X3": 254, "X4": 1984, "X5": 512, "X6": 928}),
    "Video-3V": (101_499, 31, {"X1": 512, "X2": 647, "X3": 838}),
    "handwritten": (2000, 10, {"X1": 240, "X2": 76, "X3": 216, "X4": 47, "X5": 64, "X6": 6}),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tables:
    """Views that are feature tables of the same examples: a .mat or .npz file, or a folder with one file per view.

    In a .mat file (v5 to v7.3): a cell array `X` or matrices `X1`, `X2`, ...; in an .npz file matrices; examples are
    rows or columns. A row of only NaN means that the example lacks the view. In a folder: .csv or .parquet
    files that share a column of ids, or .npy files of equal length; an example whose id is not in a file lacks that
    view. Labels are integers or strings named `Y`, `gt`, `labels` or similar: a variable, a column of one file, or a
    separate file. Without labels all examples have the class `unlabelled`.
    """

    path: str = ""
    """The file or the folder."""
    views: tuple[str, ...] = ()
    """Views to use, in this order: their names, or their numbers from 1. Empty: all, in the order of the file."""
    scaling: tuple[Scaling, ...] = ("minmax",)
    """Scaling of each column: to [0, 1], to mean 0 and deviation 1, or none; one for all views, or one per view."""
    scaling_file: str = ""
    """JSON file of a fitted scaling, such as scaling.json of a run folder. It is read if it exists, so that new data
    get the same scaling, else written."""
    labels: str = ""
    """Name of the variable or column with the labels; empty: search for the usual names."""
    id_column: str = ""
    """Column of ids in a folder's files; empty: `id`, or the one column that all files share."""
    samples: Literal["auto", "rows", "columns"] = "auto"
    """Whether examples are the rows or the columns of a matrix; auto: whichever fits the labels, rows if both do."""
    skip_last: int = 0
    """Number of last columns to drop from each view, as the released code does for NUS-WIDE."""
    held_out: bool = False
    """Use every fifth example as the split `test`. Otherwise `train` and `test` are both the whole table, as usual in
    clustering."""

    def open(self, track: Track = untracked) -> dict[str, Split]:
        """The splits `train` and `test`."""
        path = _buckets.local_copy(self.path, track)
        if not self.path or not path.exists():
            raise ValueError(
                f"data.path must be a .mat or .npz file or a folder of tables, got {self.path!r}, which does not exist"
            )
        with _untrusted.naming(path):
            tables = self._read(path, track)
            tables.choose(self.views)
            if self.skip_last < 0:
                raise ValueError(f"data.skip_last must be at least 0, got {self.skip_last}")
            if self.skip_last:
                tables.views = [view[:, : -self.skip_last] for view in tables.views]
            return tables.splits(self.scaling, self.scaling_file, self.held_out, track)

    def _read(self, path: Path, track: Track) -> "RawTables":
        if path.is_dir():
            return _folder(path, self.id_column, self.labels, track)
        if path.suffix.lower() == ".mat":
            return _matrices(_matlab.variables(path), path, self.labels, self.samples)
        if path.suffix.lower() == ".npz":
            return _matrices(
                _untrusted.read_npz(path, _NUMBER_BYTES, track=track), path, self.labels, self.samples
            )
        raise ValueError(f"data.path must be a .mat or .npz file or a folder of tables, got {path}")

    def expected(self) -> Outline | None:
        """The published size of a few tables, by file name; None if views are chosen by other names."""
        if (known := _PUBLISHED.get(Path(self.path).stem)) is None:
            return None
        examples, classes, columns = known
        if not all(view in columns or view.isdecimal() for view in self.views):
            return None
        widths = list(columns.values())
        if self.views:
            widths = [widths[row] for row in _chosen(self.views, list(columns))]
        rows = examples - examples // 5 if self.held_out else examples
        shapes = tuple((width - self.skip_last,) for width in widths)
        return Outline(rows, classes, ExampleSpec(shapes, given=True))


@dataclasses.dataclass
class RawTables:
    """Tables as read, before checks and scaling.

    Attributes:
      names: of the k views.
      views: k arrays (N, d_v), a row of NaN where an example lacks the view.
      labels: (N,) of any kind, or None.
      ids: name of each example.
      files: name -> file of a view, if it has one of its own.
    """

    names: list[str]
    views: list[np.ndarray]
    labels: np.ndarray | None
    ids: list[str]
    files: Mapping[str, Path] = dataclasses.field(default_factory=dict)

    def _titled(self, name: str) -> str:
        """A view in messages."""
        return f"view {name}" + (f" of {self.files[name]}" if name in self.files else "")

    def choose(self, views: Sequence[str]) -> None:
        """Keep these views, by name or by number from 1, in this order; none given keeps all."""
        rows = _chosen(views, self.names) if views else range(len(self.names))
        self.names, self.views = [self.names[row] for row in rows], [self.views[row] for row in rows]

    def splits(
        self,
        scaling: Sequence[Scaling],
        scaling_file: str = "",
        held_out: bool = False,
        track: Track = untracked,
    ) -> dict[str, Split]:
        """Check and scale the tables; return the splits `train` and `test`."""
        present = self._checked()
        fitted = self._fit(scaling, present, held_out)
        file = _buckets.path(scaling_file)
        if scaling_file and file.is_file():
            fitted = self._read_scaling(file)
        elif scaling_file:
            file.parent.mkdir(parents=True, exist_ok=True)
            _files.write_whole(file, json.dumps(fitted) + "\n")
        self._warn_of_constants(present, fitted)
        views = [
            self._scaled(i, fitted[name], present[:, i])
            for i, name in track(enumerate(self.names), "scaling the tables", len(self.names), "views")
        ]
        labels, class_names = _classes(self.labels, len(self.ids))
        test = np.arange(len(self.ids)) % 5 == 4
        parts = {"train": ~test, "test": test} if held_out else {"train": test | True, "test": test | True}

        def part(rows: np.ndarray) -> Split:
            kept = tuple(_rows(view, rows) for view in views)
            there = present[rows]
            return in_memory(
                kept,
                labels[rows],
                class_names,
                view_names=tuple(self.names),
                given=True,
                present=None if there.all() else there,
                ids=tuple(name for name, row in zip(self.ids, rows) if row),
                scaling=fitted,
            )

        return {name: part(rows) for name, rows in parts.items()}

    def _scaled(self, i: int, fitted: Mapping[str, Any], here: np.ndarray) -> np.ndarray:
        """View `i` as float32, scaled; its memory as float64 is freed."""
        scaled = self.views[i] - np.asarray(fitted["shift"])
        scaled /= np.asarray(fitted["scale"])
        with np.errstate(over="ignore"):
            scaled = self.views[i] = scaled.astype(np.float32, order="C")
        if not np.isfinite(_rows(scaled, here)).all():
            raise ValueError(f"{self._titled(self.names[i])} has entries too large for float32 after scaling")
        return scaled

    def _checked(self) -> np.ndarray:
        """(N, k) bool, True where a view is present; raises `ValueError` for invalid tables."""
        if len(self.views) < 2:
            raise ValueError(
                f"data must have at least 2 views, got {len(self.views)}: {', '.join(self.names)}"
            )
        present = np.stack([~np.isnan(view).all(axis=1) for view in self.views], axis=1)
        for name, view, here in zip(self.names, self.views, present.T):
            if view.shape[1] == 0:
                raise ValueError(f"{self._titled(name)} has no columns of features")
            if not here.any():
                raise ValueError(f"{self._titled(name)} has no example")
            bad = ~np.isfinite(view) & here[:, None]
            if bad.any():
                row, column = np.unravel_index(np.argmax(bad), bad.shape)
                raise ValueError(
                    f"{self._titled(name)} has {bad.sum()} entries that are NaN, empty or infinite, the first in "
                    f"column {column} of example {self.ids[row]}; fill them in, or make the whole row NaN if the "
                    "example lacks this view"
                )
        if not present.any(axis=1).all():
            lost = int(np.argmin(present.any(axis=1)))
            raise ValueError(f"example {self.ids[lost]} is in no view; remove it")
        if not (present.sum(axis=1) > 1).any():
            first = ", ".join(
                f"{self.ids[int(np.argmax(here))]!r} in {name}" for name, here in zip(self.names, present.T)
            )
            raise ValueError(f"no example is in more than one view; the views must share ids, got {first}")
        return present

    def _warn_of_constants(self, present: np.ndarray, fitted: dict[str, dict[str, Any]]) -> None:
        """Warn of columns that are constant, and say whether the scaling makes them 0."""
        for name, view, here in zip(self.names, self.views, present.T):
            rows = _rows(view, here)
            constant = np.flatnonzero(rows.min(axis=0) == rows.max(axis=0))
            if not len(constant):
                continue
            shown = ", ".join(map(str, constant[:5])) + (", ..." if len(constant) > 5 else "")
            values, shift = rows[0, constant], np.asarray(fitted[name]["shift"])[constant]
            zero = shift.any() and np.allclose(values, shift)
            warnings.warn(
                f"view {name}: {len(constant)} of {view.shape[1]} columns are constant ({shown})"
                + ("; scaling makes them 0" if zero else ""),
                stacklevel=3,
            )

    def _fit(
        self, kinds: Sequence[Scaling], present: np.ndarray, held_out: bool
    ) -> dict[str, dict[str, Any]]:
        """Shift and scale of each view's columns, fitted to the training examples that have the view."""
        if len(kinds) not in (1, len(self.views)):
            raise ValueError(
                f"data.scaling must name one scaling, or one for each of {len(self.views)} views, got {len(kinds)}"
            )
        unknown = sorted(set(kinds) - {"minmax", "standard", "none"})
        if unknown:
            raise ValueError(f"data.scaling must be minmax, standard or none, got {unknown[0]!r}")
        fitted = {}
        training = np.arange(len(present)) % 5 != 4 if held_out else np.ones(len(present), bool)
        for i, (name, view) in enumerate(zip(self.names, self.views)):
            kind = kinds[i % len(kinds)]
            rows = _rows(view, present[:, i] & training)
            if not len(rows):
                raise ValueError(f"{self._titled(name)} has no example in the training split")
            shift, scale = np.zeros(view.shape[1]), np.ones(view.shape[1])
            if kind == "minmax":
                shift = rows.min(axis=0)
                scale = rows.max(axis=0) - shift
            elif kind == "standard":
                shift, scale = rows.mean(axis=0), rows.std(axis=0)
                scale[rows.min(axis=0) == rows.max(axis=0)] = 0  # constant up to rounding errors
            if not np.isfinite([shift, scale]).all():
                raise ValueError(f"{self._titled(name)} has entries too large for scaling")
            fitted[name] = {
                "kind": kind,
                "shift": shift.tolist(),
                "scale": np.where(scale > 0, scale, 1).tolist(),
            }
        return fitted

    def _read_scaling(self, path: Path) -> dict[str, dict[str, Any]]:
        try:
            fitted = _untrusted.read_json(path, 32 << 20)
            widths = {}
            for name, view in fitted.items():
                shift, scale = (np.asarray(view[part], float) for part in ("shift", "scale"))
                if shift.ndim != 1 or shift.shape != scale.shape or not np.isfinite([shift, scale]).all():
                    raise ValueError(f"shift and scale of {name} must be finite numbers, equally many")
                if not scale.all():
                    raise ValueError(f"scale of {name} must have no zeros")
                widths[name] = len(shift)
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
            raise ValueError(f"data.scaling_file {path} is not a fitted scaling: {error}") from error
        here = {name: view.shape[1] for name, view in zip(self.names, self.views)}
        if widths != here:
            raise ValueError(
                f"data.scaling_file {path} was fitted on other views, {widths}, than these, {here}"
            )
        return fitted


def _chosen(views: Sequence[str], names: Sequence[str]) -> list[int]:
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


def _rows(view: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Some rows of an array; the array itself, not a copy, if these are all."""
    return view if rows.all() else view[rows]


def _classes(labels: np.ndarray | None, n: int) -> tuple[np.ndarray, tuple[str, ...]]:
    """(N,) int32 class numbers, and the class names in order."""
    if labels is None:
        return np.zeros(n, np.int32), ("unlabelled",)
    if labels.dtype == object or labels.dtype.kind in "US":
        labels = np.asarray([str(label).strip() for label in labels])
    elif labels.dtype.kind not in "biuf":
        raise ValueError(f"labels must be whole numbers or strings, got {labels.dtype}")
    elif labels.dtype.kind == "f":
        whole = (np.abs(labels) < 2**53) & (labels == np.round(labels))  # not NaN either
        if not whole.all():
            raise ValueError(f"labels must be whole numbers or strings, got {labels[~whole][0]}")
        labels = labels.astype(np.int64)
    names, numbers = np.unique(labels, return_inverse=True)
    if len(names) < 2:
        raise ValueError(
            f"labels must name at least 2 classes, got {len(names)}: {', '.join(map(str, names))}"
        )
    return numbers.reshape(-1).astype(np.int32), tuple(str(name) for name in names)


def save_scaling(split: Split, path: Path) -> None:
    """Write the fitted scaling of a split of tables, for `Tables.scaling_file`; nothing for other splits."""
    if split.scaling:
        _files.write_whole(path, json.dumps(split.scaling) + "\n")


# Matrices in one file


def _matrices(found: Mapping[str, Any], path: Path, wanted: str, samples: str) -> RawTables:
    """Find views and labels among named variables; a list is a cell array."""
    label_name = _label_name(found, wanted, path)
    labels = None if label_name is None else _vector(found[label_name], label_name)
    rest = {name: value for name, value in found.items() if name != label_name}
    ids = next((_vector(rest.pop(name), name) for name in list(rest) if name.lower() in ("id", "ids")), None)
    numbered = {int(m[1]): name for name in rest if (m := _NUMBERED.fullmatch(name))}
    cells = [name for name, value in rest.items() if isinstance(value, list) and len(value) > 1]
    cells.sort(key=lambda name: (name.lower() not in _CELL_NAMES, name))
    if len(numbered) > 1:
        views = {numbered[i]: rest[numbered[i]] for i in sorted(numbered)}
    elif cells:
        views = {f"{cells[0]}{i + 1}": value for i, value in enumerate(rest[cells[0]])}
    else:
        views = {name: value for name, value in rest.items() if _is_matrix(value)}
    if len(views) < 2:
        raise ValueError(
            f"{path} has no cell array X of views and no matrices X1, X2, ...; it has "
            f"{', '.join(f'{name} {_shape(value)}' for name, value in found.items()) or 'nothing'}"
        )
    for name, value in views.items():
        if not _is_matrix(value) or not value.size:
            raise ValueError(f"view {name} of {path} must be a matrix of numbers, got {_shape(value)}")
    shapes = {name: value.shape for name, value in views.items()}
    n = None if labels is None else len(labels)
    for axis, what in ((0, "rows"), (1, "columns")):
        lengths = {shape[axis] for shape in shapes.values()}
        if samples in ("auto", what) and len(lengths) == 1 and n in (None, *lengths):
            arrays = [np.asarray(value if axis == 0 else value.T, np.float64) for value in views.values()]
            count = len(arrays[0])
            _untrusted.Budget(path).take(_EXAMPLE_BYTES * count, f"a list of {count} examples")
            if ids is not None and len(ids) != count:
                raise ValueError(f"{path}: ids has {len(ids)} entries where the views have {count} examples")
            names = [str(i) for i in (range(count) if ids is None else ids)]
            _check_distinct(names, str(path))
            return RawTables(list(shapes), arrays, labels, names)
    of_labels = "" if n is None else f", and {label_name} has {n} labels"
    raise ValueError(
        f"the views of {path} have different numbers of examples"
        f"{'' if samples == 'auto' else f' as {samples}'}: "
        f"{', '.join(f'{name} is {shape[0]} x {shape[1]}' for name, shape in shapes.items())}{of_labels}"
    )


def _is_matrix(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.ndim == 2 and value.dtype.kind in "biuf"


def _shape(value: Any) -> str:
    if isinstance(value, list):
        return f"(cell array of {len(value)})"
    return f"({' x '.join(map(str, np.shape(value)))} {getattr(value, 'dtype', type(value).__name__)})"


def _label_name(found: Mapping[str, Any], wanted: str, path: Path) -> str | None:
    if wanted:
        if wanted not in found:
            raise ValueError(f"data.labels: {path} has no {wanted!r}; it has {', '.join(found)}")
        return wanted
    by_name = {name.lower(): name for name in found}
    return next((by_name[name] for name in LABEL_NAMES if name in by_name), None)


def _vector(value: Any, name: str) -> np.ndarray:
    """One label per example, from a row, a column, a cell array of strings, or a cell array with a copy per view."""
    if isinstance(value, list):
        if all(isinstance(item, str) for item in value):
            return np.asarray(value)
        vectors = [np.ravel(item) for item in value]
        if any(not np.array_equal(vectors[0], v) for v in vectors):
            raise ValueError(f"{name} must be one vector, got {len(value)} different ones")
        value = vectors[0]
    value = np.asarray(value)
    if value.ndim > 2 or (value.ndim == 2 and min(value.shape) > 1):
        raise ValueError(f"{name} must be a row or a column with one label per example, got {_shape(value)}")
    return value.reshape(-1)


# A folder with one file per view


def _folder(folder: Path, id_column: str, wanted: str, track: Track) -> RawTables:
    files = sorted(
        f for f in folder.iterdir() if f.suffix.lower() in _SUFFIXES and not f.name.startswith(".")
    )
    kinds = {file.suffix.lower() for file in files}
    if len(files) < 2:
        raise ValueError(
            f"{folder} must hold a .csv, .parquet or .npy file for each view, got {len(files)} files"
        )
    if ".npy" in kinds and len(kinds) > 1:
        raise ValueError(f"{folder} holds .npy files, which have no ids, and other files; use one kind")
    stems = [file.stem for file in files]
    if len(set(stems)) < len(stems):
        twice = next(stem for stem in stems if stems.count(stem) > 1)
        raise ValueError(f"{folder} has more than one file named {twice}")
    tracked = track(files, f"reading {folder}", len(files), "files")
    if kinds == {".npy"}:
        arrays = {file.stem: _untrusted.read_npy(file, _NUMBER_BYTES) for file in tracked}
        return _matrices(arrays, folder, wanted, "rows")
    tables = {file.stem: _read_table(file) for file in tracked}
    paths = {file.stem: file for file in files}
    column = _shared_column(tables, id_column, folder)
    rows: dict[str, list[str]] = {}
    for stem, table in tables.items():
        rows[stem] = _ids(table.pop(column), str(paths[stem]), column)
    labels: dict[str, Any] | None = None
    label_files: list[str] = []
    for stem in list(tables):
        name = wanted if wanted in tables[stem] else None
        if not wanted:
            name = _label_name(tables[stem], "", folder)
        if name is None and stem.lower() in LABEL_NAMES and len(tables[stem]) == 1:
            name = next(iter(tables[stem]))
        if name is None:
            continue
        here = dict(zip(rows[stem], tables[stem].pop(name).tolist()))
        if labels is not None and any(labels.get(i, value) != value for i, value in here.items()):
            raise ValueError(
                f"{folder} has labels in more than one file, {', '.join(label_files)} and {paths[stem].name}, and they "
                "differ; name one with data.labels"
            )
        labels = {**here, **(labels or {})}
        label_files.append(paths[stem].name)
        if not tables[stem]:
            del tables[stem]  # a separate file of labels
    if wanted and labels is None:
        raise ValueError(f"data.labels: no file of {folder} has a column {wanted!r}")
    ids = list(dict.fromkeys(i for stem in tables for i in rows[stem]))
    number = {i: row for row, i in enumerate(ids)}
    views, budget = [], _untrusted.Budget(folder)
    for stem in tables:
        budget.take(
            _NUMBER_BYTES * len(ids) * len(tables[stem]), f"{paths[stem].name} for {len(ids)} examples"
        )
    for stem, table in tables.items():
        view = np.full((len(ids), len(table)), np.nan)
        view[[number[i] for i in rows[stem]]] = _numbers(table, paths[stem], len(rows[stem]))
        views.append(view)
    if labels is not None and (lacking := [i for i in ids if _is_empty(labels.get(i))]):
        raise ValueError(
            f"{len(lacking)} of {len(ids)} examples of {folder} have no label in {' or '.join(label_files)}, the first "
            f"is {lacking[0]}"
        )
    known = None if labels is None else np.asarray([labels[i] for i in ids])
    return RawTables(list(tables), views, known, ids, {stem: paths[stem] for stem in tables})


def _read_table(file: Path) -> dict[str, np.ndarray]:
    """Columns by name, in order; empty entries are NaN or None."""
    kind = file.suffix.lower()
    with _untrusted.reading(file, f"{kind} file"):
        table = _csv(file) if kind == ".csv" else _parquet(file)
        if len(set(table.column_names)) < len(table.column_names):
            raise ValueError(f"{file} has two columns of one name")
        if kind == ".csv" and len(table.column_names) == 1 and ";" in table.column_names[0]:
            raise ValueError(
                f"the columns of {file} must be separated by commas, got {table.column_names[0]!r}"
            )
        if not table.num_rows:
            raise ValueError(f"{file} has no rows")
        return {name: table.column(name).to_numpy() for name in table.column_names}


def _csv(file: Path) -> Any:
    with _extras.needed("tables", by=f"reading {file}"):
        from pyarrow import csv

    with open(file, "rb") as stream:
        columns = stream.readline(1 << 20).count(b",") + 1
    if columns > _COLUMNS:
        raise ValueError(f"{file} has {columns} columns, more than {_COLUMNS}; save the table as .npy")
    table = csv.read_csv(file)
    _untrusted.Budget(file).take(_EXAMPLE_BYTES * table.num_rows, f"{table.num_rows} rows")
    return table


def _parquet(file: Path) -> Any:
    """The table of a file, of which the sizes in its footer have been checked."""
    with _extras.needed("tables", by=f"reading {file}"):
        import pyarrow as pa
        from pyarrow import parquet

    footer = parquet.read_metadata(file)
    schema, budget = footer.schema.to_arrow_schema(), _untrusted.Budget(file)
    if max(len(schema), footer.num_columns) > _COLUMNS:
        raise ValueError(
            f"{file} has {footer.num_columns} columns, more than {_COLUMNS}; save the table as .npy"
        )
    for field in schema:
        if pa.types.is_nested(field.type):
            raise ValueError(f"column {field.name!r} of {file} must hold numbers, got {field.type}")
    texts = [field.name for field in schema if not pa.types.is_primitive(field.type)]
    rows, chunks = footer.num_rows, footer.num_columns * footer.num_row_groups
    budget.take(_CHUNK_BYTES * chunks, f"{footer.num_row_groups} groups of {footer.num_columns} columns")
    texts_bytes = _EXAMPLE_BYTES * (1 + len(texts))  # ids are kept as texts
    budget.take(rows * (texts_bytes + _NUMBER_BYTES * len(schema)), f"{rows} rows")
    for i in range(footer.num_row_groups):
        # Not the footer's columns: pyarrow ends the process if their statistics are damaged.
        group = footer.row_group(i)
        if not 0 <= group.num_rows <= rows:
            raise ValueError(f"{file} states different numbers of rows")
        # What takes more than its numbers: texts, and the dictionaries of columns.
        more = group.total_byte_size - _NUMBER_BYTES * group.num_rows * footer.num_columns
        budget.take(max(0, more), f"row group {i}")
    return parquet.ParquetFile(file, read_dictionary=texts).read()


def _shared_column(tables: Mapping[str, Mapping[str, Any]], wanted: str, folder: Path) -> str:
    columns = list(tables.values())
    shared = [name for name in columns[0] if all(name in other for other in columns)]
    if wanted and wanted not in shared:
        lacking = next(stem for stem, table in tables.items() if wanted not in table)
        raise ValueError(f"data.id_column: {lacking} in {folder} has no column {wanted!r}")
    usual = [name for name in shared if name.lower() in _ID_NAMES]
    found = [wanted] if wanted else usual or shared
    if len(found) != 1:
        what = f"share the columns {', '.join(found[:5])}" if found else "share no column"
        raise ValueError(f"the files of {folder} {what}; name the column of ids with data.id_column")
    return found[0]


def _ids(column: np.ndarray, where: str, name: str) -> list[str]:
    """Each row's id as text, the same whether the column was read as integers, floats or text."""
    values = column.tolist()
    if empty := [row for row, value in enumerate(values) if _is_empty(value)]:
        raise ValueError(
            f"{len(empty)} of {len(values)} rows of {where} have no {name}, the first is row {empty[0] + 1}"
        )
    ids = [str(int(v) if isinstance(v, float) and v.is_integer() else v).strip() for v in values]
    _check_distinct(ids, where)
    return ids


def _is_empty(value: Any) -> bool:
    return value is None or value != value or (isinstance(value, str) and not value.strip())


def _numbers(table: Mapping[str, np.ndarray], file: Path, n: int) -> np.ndarray:
    for name, column in table.items():
        if column.dtype.kind not in "biuf":
            odd = next((value for value in column.tolist() if not _is_number(value)), column[0])
            raise ValueError(f"column {name!r} of {file} must hold numbers, got for instance {odd!r}")
    columns = [np.asarray(column, np.float64) for column in table.values()]
    return np.stack(columns, axis=1) if columns else np.zeros((n, 0))


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True


def _check_distinct(ids: Sequence[str], where: str) -> None:
    if len(set(ids)) == len(ids):
        return
    seen: set[str] = set()
    twice = next(i for i in ids if i in seen or seen.add(i))  # type: ignore[func-returns-value]
    raise ValueError(
        f"ids must be distinct: {where} has {len(ids) - len(set(ids))} repeated, the first is {twice}"
    )
