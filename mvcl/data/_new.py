"""Rows that no training has seen, in the format of a source: all of them, with labels or without."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from mvcl import _buckets, _files, _progress
from mvcl.data import _images, _memory, _tables
from mvcl.data._splits import ExampleSpec, Source, Split


def new_rows(
    source: Source, path: str, spec: ExampleSpec, scaling: Mapping[str, Any], names: tuple[str, ...]
) -> dict[str, Split]:
    """The split `all` of a table, an .npz file, an image or a folder of images; or the splits of a prepared folder.

    Args:
      source: of the run, whose options are kept; one without files reads a table, or images, as `spec` is.
      path: the file or folder; of images any files below it, or one.
      spec, scaling: of the examples that the run was trained on.
      names: of its classes; rows of other classes, or without, have the label -1.

    Raises:
      ValueError: nothing is there, or it has other views or images than the run.
    """
    place, tables = _buckets.local_copy(path), isinstance(source, _tables.Tables)
    if not place.exists():
        raise ValueError(
            f"--data.path must be a file or folder of new rows, got {path!r}, which does not exist"
        )
    if hasattr(source, "path") and not (tables or isinstance(source, (_images.Folder, _images.Arrays))):
        return dict(dataclasses.replace(source, path=path).open())  # type: ignore[type-var]
    labels: Any = None
    with _files.naming(path):
        if spec.given:
            reader = source if isinstance(source, _tables.Tables) else _tables.Tables()
            views, labels, ids = reader.read(place, least=1)
            known = {name: views[name] for name in spec.view_names if name in views}
            cut = {name: view[:, : view.shape[1] - reader.skip_last] for name, view in known.items()}
            split = _memory.split_of_arrays(cut, spec=spec, scaling=scaling)
            split = dataclasses.replace(split, ids=tuple(ids))
        elif place.suffix.lower() == ".npz":
            arrays = _files.read_npz(place)
            images = [arrays[name] for name in ("images", *_images.IMAGE_ARRAYS) if name in arrays]
            if not images:
                raise ValueError(f"it has no array images; it has {', '.join(arrays)}")
            split = _memory.split_of_arrays(np.concatenate(images), spec=spec)
        else:
            split = _of_files(place, spec)
    number = {name: i for i, name in enumerate(names)}
    texts = [""] * len(split) if labels is None else [str(label).strip() for label in labels]
    numbers = np.asarray([number.get(text, -1) for text in texts], np.int32)
    return {"all": dataclasses.replace(split, labels=numbers, class_names=names)}


def _of_files(place: Path, spec: ExampleSpec) -> Split:
    found = [place] if place.is_file() else sorted(place.rglob("*"))
    files = [file for file in found if file.suffix.lower() in _images.IMAGE_SUFFIXES]
    if not files:
        raise ValueError(f"it has no image ({', '.join(_images.IMAGE_SUFFIXES)})")
    shape: _images.Shape = (None, None, spec.channels)
    if spec.image_shape is not None:  # a program for images of one size
        from PIL import Image

        sizes = {Image.open(file).size[::-1] for file in _progress.track(files, "opening images", len(files))}
        if len(sizes) > 1:
            raise ValueError(
                f"the run's images have one size, and these {len(sizes)}: resize them, or give them to mvcl.load(RUN) "
                "as a list of arrays"
            )
        shape = (*sizes.pop(), spec.channels)
    return _images.split_of_files(np.zeros(len(files), np.int32), ("",), files, str(place), shape)
