"""Rows that no training has seen, in the format of a source: all of them, with labels or without."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from mvcl import _buckets, _files, _progress
from mvcl.data import _features, _images, _memory, _tables
from mvcl.data._splits import ExampleSpec, Source, Split


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
            masked = reader.missing == "mask"
            cut = {name: view[:, : view.shape[1] - reader.skip_last] for name, view in known.items()}
            cut = {name: _features.filled(view, None, mask=masked) for name, view in cut.items()}
            split = _memory.split_of_arrays(cut, spec=spec, scaling=scaling)
            split = dataclasses.replace(split, ids=tuple(ids))
            labels = () if found is None else found.astype(np.int64) if found.dtype.kind == "f" else found
        elif place.suffix.lower() == ".npz":
            arrays = _files.read_npz(place)
            images = [arrays[name] for name in ("images", *_images.IMAGE_ARRAYS) if name in arrays]
            if not images:
                raise ValueError(f"it has no array images; it has {', '.join(arrays)}")
            split = _memory.split_of_arrays(np.concatenate(images), spec=spec)
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
        sizes = set()
        for file in _progress.track(files, f"opening {place}", len(files), "images"):
            with Image.open(file) as image:
                sizes.add(image.size[::-1])
        if len(sizes) > 1:
            how = "resize them, or give them to mvcl.load(RUN) as a list of arrays"
            raise ValueError(f"the run's images have one size, and these {len(sizes)}: {how}")
        shape = (*sizes.pop(), spec.channels)
    return _images.split_of_files(np.zeros(len(files), np.int32), ("",), files, str(place), shape)
