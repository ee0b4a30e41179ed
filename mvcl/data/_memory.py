"""Arrays in memory as a split, images or views by name; rows of files that no training has seen; images of Hugging
Face's `datasets`, its files and its objects."""

import dataclasses
import io
import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mvcl import _buckets, _files, _lazy
from mvcl.data import _images, _tables
from mvcl.data._features import Scaling, classes_of, filled, fit, present_in, scaled
from mvcl.data._images import held_out, image_split, local
from mvcl.data._splits import ExampleSpec, Source, Split, in_memory


@dataclasses.dataclass(frozen=True, kw_only=True)
class Memory:
    """Arrays that a program gave to `mvcl.fit`. A run does not keep them, but knows them by their digest."""

    def open(self) -> dict[str, Split]:
        """Raises `ValueError`: only the program has the arrays."""
        how = "call mvcl.fit with them and this workdir to resume it"
        new = "mvcl.load(RUN) and `mvcl embed RUN --data.path NEW` encode new ones"
        raise ValueError(f"this run was trained on arrays in memory: {how}. {new}")


def split_of_arrays(
    given: Any,
    *,
    labels: Any = None,
    mask: Any = None,
    spec: ExampleSpec | None = None,
    scaling: Sequence[Scaling] | Mapping[str, Any] = ("standard",),
) -> Split:
    """Images, or views by name, as a split.

    Args:
      given, labels, mask: as in `mvcl.fit`; with `spec` also a list of images of any sizes, and a view that is None is
        missing. Columns of a DataFrame go by their names, and one of texts becomes a column of 0 and 1 for each text,
        as in `Tables`.
      spec: specification of the examples, where a network has been built for them.
      scaling: of the columns of tables (n, d): fitted here, one for all views or one for each; or as a split has it.

    Raises:
      ValueError: an array has another type or shape than the others or `spec`; entries, not rows, are NaN.
    """
    many = isinstance(given, (Mapping, list, tuple))
    if not (many if spec is None else spec.given):
        return _of_images(given, labels, spec)
    known = scaling if isinstance(scaling, Mapping) else {}
    columns = {name: of["columns"] for name, of in known.items() if "columns" in of}
    views = _named(given, spec, columns)
    count = len(next(iter(views.values())))
    views |= {name: filled(views[name], of["fill"]) for name, of in known.items() if "fill" in of}
    present = present_in(views, list(map(str, range(count))), new=spec is not None, mask=mask)
    fitted = scaling
    if not isinstance(fitted, Mapping):
        tables = {name: view for name, view in views.items() if view.ndim == 2}
        here = present[:, [name in tables for name in views]]
        fitted = fit(fitted, tables, here, columns=columns) if tables else {}
    arrays = [scaled(view, fitted.get(name)) for name, view in views.items()]
    numbers, class_names = classes_of(None if labels is None else np.asarray(labels), count)
    there = None if present.all() else present
    options: dict[str, Any] = {"view_names": tuple(views), "given": True, "present": there}
    return in_memory(tuple(arrays), numbers, class_names, scaling=fitted, **options)


def _named(given: Any, spec: ExampleSpec | None, columns: dict[str, Sequence[str]]) -> dict[str, np.ndarray]:
    """The views by name, floating, those that are missing all NaN. DataFrames have the `columns` of their view;
    where there are none, those found are added to them."""
    names = () if spec is None else spec.view_names or tuple(f"view {i + 1}" for i in range(spec.views or 0))
    if isinstance(given, (list, tuple)):
        names = names or tuple(f"view {i + 1}" for i in range(len(given)))
        if len(given) != len(names):
            raise ValueError(f"there must be {len(names)} views, {', '.join(names)}, got {len(given)}")
        given = dict(zip(names, given))
    if not isinstance(given, Mapping):
        raise ValueError(f"views must be a dict of arrays by name, {', '.join(names)}; got {np.shape(given)}")
    found = {str(name): view for name, view in given.items() if view is not None}
    if unknown := [name for name in found if names and name not in names]:
        raise ValueError(f"there is no view {unknown[0]!r}; the views are {', '.join(names)}")
    views = {}
    for name, view in found.items():
        if hasattr(view, "iloc") and np.ndim(view) == 2:  # a DataFrame
            origin, known = Path(f"view {name}"), columns.get(name, ())
            view, columns[name] = _tables.numbers(view, origin, known, gaps=True)
        array = np.asarray(view)
        if array.dtype.kind not in "biuf" or array.ndim < 2:
            raise ValueError(f"view {name} must be numbers (n, ...), got {array.dtype} {array.shape}")
        scale = 255 if array.dtype == np.uint8 and array.ndim > 2 else 1
        views[name] = np.divide(array, scale, dtype=np.float64 if array.ndim == 2 else np.float32)
    lengths = {name: len(view) for name, view in views.items()}
    if len(set(lengths.values())) != 1 or not (count := len(next(iter(views.values())))):
        raise ValueError(f"views must have the same number of rows, at least 1, got {lengths or 'no view'}")
    if spec is None:
        if len(views) < 2:
            raise ValueError(f"there must be at least 2 views of an example, got {', '.join(views)}")
        return views
    for name, shape in zip(names, spec.view_shapes):
        array = views.setdefault(name, np.full((count, *shape), np.nan, np.float32))
        if array.shape[1:] != shape:
            raise ValueError(f"view {name} must be (n, {', '.join(map(str, shape))}), got {array.shape}")
    return {name: views[name] for name in names}


def _of_images(given: Any, labels: Any, spec: ExampleSpec | None) -> Split:
    every = [np.asarray(image) for image in given] if isinstance(given, (list, tuple)) else []
    several = len({image.shape for image in every}) > 1
    every, least = (every, 2) if several else ([np.asarray(given)], 3)
    channels = None if spec is None else spec.channels
    for image in every:
        fit = image.dtype == np.uint8 or (image.dtype.kind == "f" and ((image >= 0) & (image <= 1)).all())
        depth = 1 if image.ndim == least else image.shape[-1]
        if not (fit and image.ndim in (least, least + 1) and image.size and depth == (channels or depth)):
            kind = f", with {channels} channels" if channels else "; views, such as tables, a dict by name"
            wanted = f"(n, H, W) or (n, H, W, C), uint8 or floating in [0, 1]{kind}"
            raise ValueError(f"images must be {wanted}; got {image.dtype} {image.shape}")
    every = [image[..., None] if image.ndim == least else image for image in every]
    numbers, names = classes_of(None if labels is None else np.asarray(labels), len(given))
    if not several:
        whole = every[0] if every[0].dtype == np.uint8 else every[0].astype(np.float32)
        return in_memory((whole,), numbers, names)
    sizes = ExampleSpec(((None, None, every[0].shape[-1]),))
    return Split(numbers, names, sizes, lambda row, epoch: (every[row],))


def new_rows(
    source: Source, path: str, spec: ExampleSpec, scaling: Mapping[str, Any], names: tuple[str, ...]
) -> dict[str, Split]:
    """The split `all` of a table, an .npz file, an image or a folder of images; or the splits of a prepared folder.

    `spec`, `scaling` and `names`, of classes, are the run's; rows of other classes, or without, have the label -1.
    Of its source the options are kept; one without files reads a table, or images, as `spec` is: any files below the
    path, or one, whose label is the name of its folder. `ValueError` if there are other views or images than the run's.
    """
    place = _buckets.local_copy(path)
    if not place.exists():
        raise ValueError(f"--data.path must be a file or folder of new rows; {path!r} does not exist")
    if spec.given and hasattr(source, "path") and not isinstance(source, _tables.Tables):
        return dict(dataclasses.replace(source, path=path).open())  # type: ignore[type-var]
    labels: Any = ()
    with _files.naming(path):
        if spec.given:
            reader = source if isinstance(source, _tables.Tables) else _tables.Tables()
            named = {name: of["columns"] for name, of in scaling.items() if "columns" in of}
            views, found, ids, _ = reader.read(place, 1, named)
            known = {name: views[name] for name in spec.view_names if name in views}
            cut = {name: view[:, : view.shape[1] - reader.skip_last] for name, view in known.items()}
            cut = {name: filled(view, None, mask=reader.missing == "mask") for name, view in cut.items()}
            split = dataclasses.replace(split_of_arrays(cut, spec=spec, scaling=scaling), ids=tuple(ids))
            labels = () if found is None else found.astype(np.int64) if found.dtype.kind == "f" else found
        elif place.suffix.lower() == ".npz":
            arrays = _files.read_npz(place)
            images = [arrays[name] for name in ("images", *_images.IMAGE_ARRAYS) if name in arrays]
            if not images:
                raise ValueError(f"it has no array images; it has {', '.join(arrays)}")
            split = split_of_arrays(np.concatenate(images), spec=spec)
        else:
            split = _of_files(place, spec)
            labels = [file.parent.name for file in split.files]
    number = {name: i for i, name in enumerate(names)}
    numbers = np.full(len(split), -1, np.int32)
    numbers[: len(labels)] = [number.get(str(label).strip(), -1) for label in labels]
    return {"all": dataclasses.replace(split, labels=numbers, class_names=names)}


def _of_files(place: Path, spec: ExampleSpec) -> Split:
    found = [place] if place.is_file() else sorted(place.rglob("*"))
    files = [file for file in found if file.suffix.lower() in _images.IMAGE_SUFFIXES]
    if not files:
        raise ValueError(f"it has no image ({', '.join(_images.IMAGE_SUFFIXES)})")
    shape: _images.Shape = (None, None, spec.channels)
    if spec.image_shape is not None:  # a program for images of one size
        name = lambda row: f"image {files[row]}"  # noqa: E731
        (height, width, _), _ = _images.shape_of(len(files), files.__getitem__, name, str(place))
        if height is None:
            how = "resize them, or give them to mvcl.load(RUN) as a list of arrays"
            raise ValueError(f"the run's images have one size, and these have several: {how}")
        shape = (height, width, spec.channels)
    return _images.split_of_files(np.zeros(len(files), np.int32), ("",), files, str(place), shape)


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
        place = local(self.path, "a folder of Parquet or Arrow files")
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
