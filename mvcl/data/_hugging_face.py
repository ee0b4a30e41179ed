"""Images of Hugging Face's `datasets`: its files, and its objects."""

import dataclasses
import io
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mvcl import _files, _lazy
from mvcl.data._features import classes_of
from mvcl.data._images import folder, held_out, image_split
from mvcl.data._splits import Split


@dataclasses.dataclass(frozen=True, kw_only=True)
class HuggingFace:
    """Images in files of Hugging Face's `datasets`, which is not needed: Parquet files, or a folder of `save_to_disk`.

    A file's name or folder has the split: `train`, and `test` or `validation`. Images are encoded, {bytes, path}; those
    of Parquet files are kept in memory so.
    """

    path: str = ""
    """The folder."""
    image: str = ""
    """Column of the images; empty: the first one."""
    label: str = ""
    """Column of the labels; empty: the first one of class labels, if there is one."""
    test_share: float = 0.2
    """Share of the rows that is the split `test`, in even steps, where there is none; 0: both splits have all rows."""

    def open(self) -> dict[str, Split]:
        place = folder(self.path, "a folder of Parquet or Arrow files")
        with _files.reading(place, "data set of Hugging Face's datasets"):
            tables = _arrow_tables(place)
            train = tables["train"]
            info = json.loads((train.schema.metadata or {}).get(b"huggingface", "{}"))
            features = info.get("info", {}).get("features", {})
            images = [field.name for field in train.schema if str(field.type).startswith("struct<bytes")]
            image, label = _columns(train.column_names, images, self.image, self.label)
            label = label or next((name for name, of in features.items() if "names" in of), "")
            rows = np.arange(len(train))
            out = held_out(len(train), self.test_share) & ("test" not in tables)

            def split(table: Any, rows: np.ndarray) -> Split:
                column = table[image]
                labels = table[label].to_pandas().to_numpy()[rows] if label else None
                names = features.get(label, {}).get("names", ())
                return _of_cells(lambda row: column[int(rows[row])].as_py(), labels, names, len(rows))

            found = {"train": split(train, rows[~out])}
            if "test" in tables:
                return found | {"test": split(tables["test"], np.arange(len(tables["test"])))}
            return found | {"test": split(train, rows[out]) if out.any() else found["train"]}


def split_of_dataset(rows: Any, image: str = "", label: str = "") -> Split:
    """A split of a `datasets.Dataset` object, whose images stay encoded until they are read.

    `image` and `label` are as in `HuggingFace`. `ValueError` if there are no such columns.
    """
    kinds = rows.features
    images = [name for name, kind in kinds.items() if hasattr(kind, "decode") and hasattr(kind, "mode")]
    image, label = _columns(list(kinds), images, image, label)
    label = label or next((name for name, kind in kinds.items() if hasattr(kind, "names")), "")
    encoded = rows.select_columns([image]).cast_column(image, type(kinds[image])(decode=False))
    labels = np.asarray(list(rows[label])) if label else None
    names = getattr(kinds.get(label), "names", ())
    return _of_cells(lambda row: encoded[row][image], labels, names, len(rows))


def _columns(there: Sequence[str], images: Sequence[str], image: str, label: str) -> tuple[str, str]:
    if not images or image not in ("", *there) or label not in ("", *there):
        given = f"data.image={image!r} and data.label={label!r}"
        raise ValueError(f"{given} must be columns, of {', '.join(there)}")
    return image or images[0], label


def _of_cells(
    cell: Callable[[int], dict[str, Any]], labels: np.ndarray | None, names: Sequence[str], count: int
) -> Split:
    """A split of images in cells {bytes, path}; labels are numbers of `names`, or of any kind without them."""

    def encoded(row: int) -> Path | io.BytesIO:
        found = cell(row)
        return Path(found["path"]) if found["bytes"] is None else io.BytesIO(found["bytes"])

    numbers, known = (labels, tuple(names)) if names else classes_of(labels, count)
    assert numbers is not None
    return image_split(numbers.astype(np.int32), known, encoded, lambda row: f"image {row}", "the data set")


def _arrow_tables(place: Path) -> dict[str, Any]:
    """The tables `train` and, if there are files of it, `test`."""
    with _lazy.needed("tables", by=f"reading {place}"):
        import pyarrow
        from pyarrow import ipc, parquet
    found: dict[str, list[Any]] = {}
    files = [f for f in sorted(place.rglob("*")) if f.suffix in (".arrow", ".parquet")]
    for file in (file for file in files if not file.name.startswith("cache-")):
        words = {*re.split("[^a-z]+", str(file.relative_to(place)).lower())}
        part = "test" if "test" in words else "val" if words & {"validation", "valid", "val"} else "train"
        arrow = file.suffix == ".arrow"
        read = ipc.open_stream(pyarrow.memory_map(str(file))).read_all if arrow else None
        found.setdefault(part, []).append(read() if read else parquet.read_table(file))
    if "train" not in found:
        raise ValueError(f"it has no .parquet or .arrow file of a training split, but {len(files)} others")
    tables = {part: pyarrow.concat_tables(of) for part, of in found.items()}
    return {"test": tables["val"], **tables} if "val" in tables else tables
