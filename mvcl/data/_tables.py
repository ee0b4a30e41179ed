"""Feature tables as views: MATLAB files, .npz files, .csv and .parquet files, and folders with one file per view."""

import dataclasses
import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from mvcl import _checks, _files, _lazy, _progress
from mvcl.data._features import Raw, Scaling, check_distinct, chosen, splits_of
from mvcl.data._images import local
from mvcl.data._splits import ExampleSpec, Outline, Split

LABEL_NAMES: tuple[str, ...] = ("labels", "label", "y", "gt", "gnd", "truth", "truelabel", "y_true")
LABEL_NAMES += ("target", "targets", "class")
_ID_NAMES = ("id", "ids", "sample_id", "sample", "index")
_CELL_NAMES = ("x", "data", "views", "view", "fea", "features")
_SUFFIXES = (".mat", ".npz", ".csv", ".parquet")
_NUMBERED = re.compile(r"(?:x|view|fea|features?)_?(\d+)", re.IGNORECASE)
# File name -> examples, classes, and the width of each view.
_PUBLISHED = {
    "DHA": (483, 23, {"X1": 110, "X2": 6144}),
    "CCV": (6773, 20, {"MFCC": 4000, "SIFT": 5000, "STIP": 5000}),
    "NUSWIDE": (5000, 5, {"X1": 65, "X2": 226, "X3": 145, "X4": 74, "X5": 129}),
    "Caltech": (1400, 7, {"X1": 48, "X2": 40, "X3": 254, "X4": 1984, "X5": 512, "X6": 928}),
    "Video-3V": (101_499, 31, {"X1": 512, "X2": 647, "X3": 838}),
    "handwritten": (2000, 10, {"X1": 240, "X2": 76, "X3": 216, "X4": 47, "X5": 64, "X6": 6}),
}
_MOST_CATEGORIES = 100
_GAPS = "choose --data.missing mean or mask, fill them in, or make the whole row empty if the example lacks this view"


def read_table(file: Path) -> Any:
    """A .csv or .parquet file as a pandas DataFrame; of a .csv the delimiter and the decimal point are found."""
    with _lazy.needed("tables", by=f"reading {file}"):
        from pyarrow import csv, parquet
    with _files.reading(file, f"{file.suffix} file"):
        # pyarrow's numbers are exact, unlike those of pandas' default parser.
        if file.suffix.lower() == ".csv":
            with open(file, encoding="utf-8-sig", errors="replace") as lines:
                head, text = lines.readline(), lines.read(1 << 16)
            delimiter = max(",;\t|", key=head.count)
            decimal = rf"(^|{re.escape(delimiter)})\s*[-+]?\d+,\d+\s*($|\W)"
            point = "," if delimiter != "," and re.search(decimal, text) else "."
            parse = csv.ParseOptions(delimiter=delimiter)
            found = csv.read_csv(file, None, parse, csv.ConvertOptions(decimal_point=point))
        else:
            found = parquet.ParquetFile(file).read()
        table = found.to_pandas(ignore_metadata=True)
        if not table.columns.is_unique or not len(table):
            raise ValueError("it must have rows, and columns of different names")
        return table


def place(file: Path, row: Any) -> str:
    """A row of a table as its file numbers it: line 2 of a .csv is the first after the header."""
    return f"line {row + 2} of {file}" if file.suffix.lower() == ".csv" else f"row {row + 1} of {file}"


def of_columns(tables: Mapping[str, Any], wanted: Sequence[str], new: bool = False) -> dict[str, Any]:
    """Tables with the wanted columns, as of `Tables.columns`; one is split, of which `new` rows may lack some."""
    found = dict(tables) if len(tables) > 1 else {}
    for text in wanted:
        view, equals, patterns = text.partition("=")
        table = tables.get(view) if len(tables) > 1 else next(iter(tables.values()))
        if not equals or table is None:
            raise ValueError(f"data.columns must be VIEW=COLUMN,... of {', '.join(tables)}, got {text!r}")
        names: list[str] = []
        for pattern in patterns.split(","):
            fits = [name for name in table if fnmatchcase(str(name), pattern)]
            if not fits and not new:
                there = ", ".join(map(str, table))
                raise ValueError(f"data.columns: no column is {pattern!r}; there are {there}")
            names += fits
        found |= {view: table[list(dict.fromkeys(names))]} if names else {}
    return found


def numbers(
    table: Any, file: Path, known: Sequence[str] = (), gaps: bool = False
) -> tuple[np.ndarray, list[str]]:
    """(n, d) float64 of a table, and a name for each of the d columns; texts become a column `NAME=TEXT` for each text.

    `known` are the names of the columns, where they were found before. With `gaps` entries may be empty, otherwise only
    whole rows. `ValueError` with line and column if a text is not one of a few, or an entry is empty.
    """
    columns: dict[str, np.ndarray] = {}
    for name, values in table.items():
        if values.dtype.kind in "biuf":
            columns[str(name)] = values.to_numpy(np.float64)
            continue
        texts = values.astype(object).fillna("").astype(str).str.strip().to_numpy()
        empty = texts == ""
        if empty.all():
            columns[str(name)] = np.full(len(table), np.nan)
        of = [key.removeprefix(f"{name}=") for key in known if key.startswith(f"{name}=")]
        of = of or sorted({*texts[~empty]})
        wrong = np.flatnonzero(~empty & ~np.isfinite(pd.to_numeric(texts, errors="coerce")))
        some = 2 * len(wrong) <= (~empty).sum() or len(of) > _MOST_CATEGORIES
        if not known and len(wrong) and len(of) > 1 and some:
            what = f"column {name!r} must have numbers, or at most {_MOST_CATEGORIES} different texts"
            got = f"{place(file, wrong[0])} has {texts[wrong[0]]!r}"
            raise ValueError(f"{what}; {got}. --data.columns chooses columns")
        for text in of:
            columns[f"{name}={text}"] = np.where(empty, np.nan, texts == text)
    if lacking := [name for name in known if name not in columns]:
        what = f"{file} must have the columns of the training data"
        raise ValueError(f"{what}; it lacks {', '.join(lacking[:5])}")
    names = list(known or columns)
    found = np.stack([columns[name] for name in names], 1) if names else np.zeros((len(table), 0))
    holes = ~np.isfinite(found) & ~np.isnan(found).all(axis=1, keepdims=True)
    if not gaps and holes.any():
        row, column = np.argwhere(holes)[0]
        what = f"{holes.sum()} entries of {file} are empty, NaN or infinite"
        raise ValueError(f"{what}, the first in column {names[column]!r}, {place(file, row)}; {_GAPS}")
    return found, names


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tables:
    """Views that are feature tables of the same examples: a .mat or .npz file, or a folder with one file per view.

    In a .mat file (v5 to v7.3): a cell array `X` or matrices `X1`, `X2`, ...; in an .npz file matrices; examples are
    rows or columns, whichever fits the labels, rows if both do. A row of only NaN means that the example lacks the
    view. In a folder: .csv or .parquet files that share a column of ids, `id` or the only one that they share, or .npy
    files of equal length; an example whose id is not in a file lacks that view. A column of texts becomes a column for
    each text. Labels are integers or strings named `Y`, `gt`, `labels` or similar: a variable, a column of one file, or
    a separate file. Without labels all examples have the class `unlabelled`.
    """

    path: str = ""
    """The file or the folder."""
    views: tuple[str, ...] = ()
    """Views to use, in this order: their names, or their numbers from 1. Empty: all, in the order of the file."""
    scaling: tuple[Scaling, ...] = ("minmax",)
    """Scaling of each column: to [0, 1], to mean 0 and deviation 1, or none; one for all views, or one per view."""
    labels: str = ""
    """Name of the variable or column with the labels; empty: search for the usual names."""
    columns: tuple[str, ...] = ()
    """Columns of views, VIEW=COLUMN,... with * and ?: of the file of a view; of one .csv or .parquet file they make the
    views (blood=hb,wbc_* urine=ph). Empty: all columns of each file."""
    missing: Literal["error", "mean", "mask"] = "error"
    """Empty entries: an error; the `mean` of the column in training; or `mask`, the example lacks the whole view."""
    skip_last: int = 0
    """Number of last columns to drop from each view, as the released code does for NUS-WIDE."""
    held_out: bool = False
    """Use every fifth example as the split `test`. Otherwise `train` and `test` are both the whole table, as usual in
    clustering."""

    def open(self) -> dict[str, Split]:
        fits = lambda path: path.is_dir() or (path.is_file() and path.suffix.lower() in _SUFFIXES)  # noqa: E731
        path = local(self.path, f"a folder of tables or a file ({', '.join(_SUFFIXES)})", fits)
        _checks.fields("data", self, skip_last="[0, inf)")
        with _files.reading(path, "table of features"):
            return splits_of(self.read(path), self, self.skip_last, self.missing)

    def read(self, path: Path, least: int = 2, known: Mapping[str, Sequence[str]] | None = None) -> Raw:
        """Views, labels and ids of a file or folder, as they are there; `least` views at least, of `known` columns."""
        with _files.reading(path, "table of features"):
            if path.is_dir() or path.suffix.lower() in (".csv", ".parquet"):
                return _of_files(path, self, least, known or {})
            found = _read_mat(path) if path.suffix.lower() == ".mat" else _files.read_npz(path)
            return _of_matrices(found, self.labels, least)

    def expected(self) -> Outline | None:
        """The published size of a few tables, by file name; None if views are chosen by other names."""
        examples, classes, widths = _PUBLISHED.get(Path(self.path).stem, (0, 0, {}))
        if not examples or not all(view in widths or view.isdecimal() for view in self.views):
            return None
        rows = examples - examples // 5 if self.held_out else examples
        shapes = tuple((widths[name] - self.skip_last,) for name in chosen(self.views, list(widths)))
        return Outline(rows, classes, ExampleSpec(shapes, given=True))


def _read_mat(path: Path) -> dict[str, Any]:
    """Variables of a MATLAB file: arrays, texts, and lists of them for cell arrays; a sparse matrix is made dense."""
    import scipy.io

    try:
        found = scipy.io.loadmat(str(path))
    except NotImplementedError:  # version 7.3, an HDF5 file
        with _lazy.needed("tables", by=f"reading {path}, a MATLAB 7.3 file,"):
            import h5py
        with h5py.File(path, "r") as file:
            return {name: _plain_hdf5(file[name]) for name in file if not name.startswith("#")}
    return {name: _plain(value) for name, value in found.items() if name[:2] != "__"}


def _plain(value: Any) -> Any:
    if hasattr(value, "toarray"):
        return value.toarray()
    if isinstance(value, np.ndarray) and value.dtype == object:
        return [_plain(item) for item in value.ravel(order="F")]
    if isinstance(value, np.ndarray) and value.dtype.kind == "U":
        texts = [str(text).strip() for text in value.ravel()]
        return texts[0] if len(texts) == 1 else texts
    return value


def _plain_hdf5(item: Any) -> Any:
    """A variable of MATLAB 7.3, which stores columns first; None for a structure."""
    from scipy.sparse import csc_matrix

    if hasattr(item, "keys"):  # a group
        if "MATLAB_sparse" not in item.attrs:
            return None
        shape = (int(item.attrs["MATLAB_sparse"]), len(item["jc"]) - 1)
        parts = [item[part][()] if part in item else [] for part in ("data", "ir", "jc")]
        matrix = csc_matrix(tuple(parts), shape=shape)
        matrix.check_format()  # scipy writes where the indices point
        return matrix.toarray()
    kind, value = item.attrs.get("MATLAB_class"), item[()]
    if "MATLAB_empty" in item.attrs:
        return "" if kind == b"char" else np.zeros((0, 0))
    if item.dtype.kind == "O":  # references
        return [_plain_hdf5(item.file[cell]) for cell in np.ravel(value)]
    if kind == b"char":
        return "".join(map(chr, np.ravel(value.T, order="F")))
    return np.asarray(value).T


def _of_matrices(found: Mapping[str, Any], wanted: str, least: int = 2) -> Raw:
    """Find views and labels among named variables; a list is a cell array."""
    label_name = _label_name(found, wanted)
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
        views = {name: value for name, value in rest.items() if np.ndim(value) == 2}
    has = ", ".join(f"{name} {_shape(value)}" for name, value in found.items()) or "nothing"
    if len(views) < least:
        raise ValueError(f"it has no cell array X of views and no matrices X1, X2, ...; it has {has}")
    for name, value in views.items():
        numbers = isinstance(value, np.ndarray) and value.dtype.kind in "biuf"
        if not numbers or value.ndim != 2 or not value.size:
            raise ValueError(f"view {name} must be a matrix of numbers, got {_shape(value)}")
    for axis in (0, 1):
        lengths = {value.shape[axis] for value in views.values()}
        lengths |= set() if labels is None else {len(labels)}
        if len(lengths) == 1:
            arrays = {name: np.asarray(view.T if axis else view, np.float64) for name, view in views.items()}
            count = lengths.pop()
            if ids is not None and len(ids) != count:
                raise ValueError(f"there are {len(ids)} ids for {count} examples")
            return Raw(arrays, labels, [str(i) for i in (range(count) if ids is None else ids)])
    raise ValueError(f"the views and labels have different numbers of examples: {has}")


def _shape(value: Any) -> str:
    if isinstance(value, list):
        return f"(cell array of {len(value)})"
    return f"({' x '.join(map(str, np.shape(value)))} {getattr(value, 'dtype', type(value).__name__)})"


def _label_name(found: Sequence[str] | Mapping[str, Any], wanted: str) -> str | None:
    if wanted and wanted not in found:
        raise ValueError(f"data.labels: it has no {wanted!r}; it has {', '.join(found)}")
    by_name = {name.lower(): name for name in found}
    return wanted or next((by_name[name] for name in LABEL_NAMES if name in by_name), None)


def _vector(value: Any, name: str) -> np.ndarray:
    """One label per example, from a row, a column, a cell array of strings, or a cell array with a copy per view."""
    if isinstance(value, list) and not all(isinstance(item, str) for item in value):
        vectors = [np.ravel(item) for item in value]
        if any(not np.array_equal(vectors[0], v) for v in vectors):
            raise ValueError(f"{name} must be one vector, got {len(value)} different ones")
        value = vectors[0]
    value = np.asarray(value)
    if value.ndim > 2 or (value.ndim == 2 and min(value.shape) > 1):
        raise ValueError(f"{name} must be a row or a column with one label per example, got {_shape(value)}")
    return value.reshape(-1)


def _of_files(path: Path, options: Tables, least: int, known: Mapping[str, Sequence[str]]) -> Raw:
    files = {
        file.stem: file
        for file in (sorted(path.iterdir()) if path.is_dir() else [path])
        if file.suffix.lower() in (".csv", ".parquet", ".npy") and not file.name.startswith(".")
    }
    npy = [file.suffix.lower() == ".npy" for file in files.values()]
    if len(files) < (1 if options.columns else least) or any(npy) != all(npy):
        what = f"{path} must hold a .csv or .parquet file for each view, or a .npy file for each"
        raise ValueError(f"{what}, got {len(files)}; --data.columns makes views of the columns of one")
    tracked = _progress.track(files.items(), f"reading {path}", len(files), "files")
    if all(npy):
        return _of_matrices({stem: _files.read_npy(file) for stem, file in tracked}, options.labels, least)
    tables = {stem: read_table(file) for stem, file in tracked}
    column = _shared_column(tables)
    for stem, table in tables.items():
        with _files.naming(files[stem]):
            table.index = _ids(table.pop(column), column, files[stem]) if column else table.index.astype(str)
    labels = _pop_labels(tables, options.labels)
    ids = list(dict.fromkeys(i for table in tables.values() for i in table.index))
    views, names, single = {}, {}, next(iter(files.values()))
    gaps = options.missing != "error"
    if options.columns:
        tables = of_columns(tables, options.columns, least < 2)
    for stem, table in tables.items():
        found, names[stem] = numbers(table, files.get(stem, single), known.get(stem, ()), gaps)
        rows = table.index.get_indexer(ids)
        views[stem] = np.where(rows[:, None] < 0, np.nan, found[rows])
    if labels is None:
        return Raw(views, None, ids, names)
    labels = labels.reindex(ids)
    if (lacking := labels.isna() | (labels.astype(str).str.strip() == "")).any():
        count, first = f"{lacking.sum()} of {len(ids)} examples", labels.index[lacking][0]
        raise ValueError(f"{count} of {path} have no label, the first is {first}")
    return Raw(views, labels.to_numpy(), ids, names)


def _shared_column(tables: Mapping[str, Any]) -> str:
    """The column of ids; "" of a single table without one."""
    shared = [name for name in next(iter(tables.values())) if all(name in table for table in tables.values())]
    usual = [name for name in shared if name.lower() in _ID_NAMES]
    if len(tables) == 1:
        return usual[0] if usual else ""
    if len(usual or shared) != 1:
        some = ", ".join(shared[:5]) or "none"
        raise ValueError(f"the files must share one column of ids, best named id; they share {some}")
    return (usual or shared)[0]


def _ids(column: Any, name: str, file: Path) -> list[str]:
    """Each row's id as text, the same whether the column was read as integers, floats or text."""
    values = column.tolist()
    ids = [str(int(v) if isinstance(v, float) and v.is_integer() else v).strip() for v in values]
    empty = [row for row, value in enumerate(values) if value is None or value != value or not ids[row]]
    if empty:
        first = place(file, empty[0])
        raise ValueError(f"{len(empty)} of {len(ids)} rows have no {name}, the first is {first}")
    check_distinct(ids)
    return ids


def _pop_labels(tables: dict[str, Any], wanted: str) -> Any:
    """Remove the columns of labels; one pandas Series of them by id, or None."""
    found = {}
    for stem, table in list(tables.items()):
        name = _label_name(list(table), wanted) if not wanted or wanted in table else None
        if not wanted and name is None and stem.lower() in LABEL_NAMES and len(table.columns) == 1:
            name = table.columns[0]
        if name is not None:
            found[stem] = table.pop(name)
            if not len(table.columns):
                del tables[stem]  # a separate file of labels
    if not found:
        if wanted:
            raise ValueError(f"data.labels: no file has a column {wanted!r}")
        return None
    labels = pd.concat(list(found.values()))
    if (labels.groupby(level=0).nunique() > 1).any():
        raise ValueError(f"the labels of {', '.join(found)} differ; name one column with data.labels")
    return labels[~labels.index.duplicated()]
