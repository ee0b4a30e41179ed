"""Tables of .csv and .parquet files: their delimiter, the columns of each view, and the numbers of a column."""

import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from mvcl import _files, _lazy

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
