"""Utterances with a sentiment score, in files as MMSA and MERBench write them."""

import csv
import dataclasses
import io
import math
import pickle
import pickletools
import re
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from mvcl import _files

VIEWS = ("text", "audio", "vision")
_SPLITS = {"train": "train", "valid": "valid", "val": "valid", "dev": "valid", "test": "test"}
_RANGE = {"mosei": 3.0, "chsims": 1.0}  # scores are in [-3, 3] and [-1, 1]
_COLUMNS = ("name", "split", "label")


@dataclasses.dataclass(frozen=True)
class Utterances:
    """A split of a raw file; `cuts` gives the three (t, d) sequences of a row without padding, t = 0 for a missing
    view, and `widths` the d."""

    labels: np.ndarray
    ids: Sequence[str] | None
    widths: tuple[int, ...]
    cuts: Callable[[int], list[np.ndarray]]


def _checked_scores(scores: Any, dataset: str, split: str) -> np.ndarray:
    labels = np.asarray(scores, np.float64).reshape(-1).astype(np.float32)
    bound = _RANGE[dataset]
    outside = labels[~(np.abs(labels) <= bound + 1e-3)]  # NaN too
    if not len(labels) or len(outside):
        raise ValueError(
            f"the labels of {split} must be numbers in [{-bound}, {bound}] for {dataset}, got "
            f"{outside[:3].tolist() or 'none'}"
        )
    return labels


def _ordered(splits: Mapping[str, Any]) -> dict[str, Any]:
    if missing := [name for name in ("train", "test") if not splits.get(name)]:
        raise ValueError(f"it has no split {missing[0]}; it has {', '.join(splits) or 'nothing'}")
    return {name: splits[name] for name in ("train", "valid", "test") if splits.get(name)}


# One file of all utterances


def read_raw(path: Path, allow_pickle: bool, dataset: str) -> dict[str, Utterances]:
    """The splits of an .npz, a pickle, or a folder train/text.npy and so on; train first.

    Raises:
      ValueError: the file is missing, not readable, not allowed, or lacks something; the message names it.
    """
    known = path.is_file() and path.suffix in (".pkl", ".pickle", ".npz")
    if not path.name or not (known or path.is_dir()):
        raise ValueError(
            "the utterances (--source) must be a folder of .npy files, an .npz or a .pkl, got "
            f"{str(path) if path.name else ''!r}"
        )
    raw: Any = {}
    with _files.reading(path, "file of utterances"):
        if path.suffix == ".npz":
            for name, array in _files.read_npz(path).items():
                part, _, key = name.partition("_")
                raw.setdefault(part, {})[key] = array
        elif path.is_file():
            raw = unpickle(io.BytesIO(path.read_bytes()), path, allow_pickle)
        for file in sorted(path.glob("*/*.npy")):
            raw.setdefault(file.parent.name, {})[file.stem] = _files.read_npy(file)
        if not isinstance(raw, dict) or not all(isinstance(part, dict) for part in raw.values()):
            raise ValueError("it must contain a dict of splits, each a dict of arrays")
        parts = _ordered({_SPLITS.get(name, str(name)): part for name, part in raw.items()})
        splits = {name: _split(part, name, dataset) for name, part in parts.items()}
        if len(widths := {split.widths for split in splits.values()}) > 1:
            raise ValueError(f"the features of its splits have different widths, {sorted(widths)}")
        return splits


def _split(part: dict[str, Any], split: str, dataset: str) -> Utterances:
    key = "labels" if "regression_labels" not in part and "labels" in part else "regression_labels"
    if lacking := [name for name in (*VIEWS, key) if name not in part]:
        raise ValueError(f"{split} lacks {', '.join(lacking)}; it has {', '.join(part) or 'nothing'}")
    labels = _checked_scores(part[key], dataset, split)
    ids = part.get("id", part.get("ids"))
    columns = {name: part[name] for name in VIEWS} | ({} if ids is None else {"id": ids})
    for name, column in columns.items():
        if len(column) != len(labels):
            raise ValueError(f"{split} has {len(labels)} labels and {len(column)} entries of {name}")
    widths, lengths = [], []
    for name in VIEWS:
        found = set(map(np.shape, part[name]))
        if any(len(shape) != 2 for shape in found) or len({shape[1] for shape in found}) != 1:
            raise ValueError(f"{name} of {split} must be sequences (time, d), got {sorted(found)[:3]}")
        np.asarray(part[name][0], np.float32)  # it is numbers
        widths.append(next(iter(found))[1])
        lengths.append(_lengths(part, name, len(labels), max(shape[0] for shape in found)))

    def cut(view: int, row: int) -> np.ndarray:
        sequence, given = np.asarray(part[VIEWS[view]][row], np.float32), lengths[view]
        if given is not None:
            sequence = sequence[: given[row]]
        else:  # padding: rows of zeros at either end
            filled = np.flatnonzero((np.isfinite(sequence) & (sequence != 0)).any(-1))
            sequence = sequence[filled[0] : filled[-1] + 1] if len(filled) else sequence[:0]
        return np.nan_to_num(sequence, nan=0.0, posinf=0.0, neginf=0.0)  # COVAREP writes -inf for silence

    names = None if ids is None else [str(i[0] if isinstance(i, (list, np.ndarray)) else i) for i in ids]
    return Utterances(labels, names, tuple(widths), lambda row: [cut(view, row) for view in range(3)])


def _lengths(part: dict[str, Any], name: str, count: int, most: int) -> np.ndarray | None:
    """Length of each sequence of a view, if the file gives it: NAME_lengths, or BERT's mask for text."""
    bert = part.get("text_bert")
    if f"{name}_lengths" in part:
        lengths = np.asarray(part[f"{name}_lengths"], np.float64).reshape(-1)
    elif name == "text" and isinstance(bert, np.ndarray) and bert.shape == (count, 3, most):
        lengths = bert[:, 1].astype(np.float64).sum(-1)  # ids, mask, segments
    else:
        return None
    if len(lengths) != count or not ((lengths >= 0) & (lengths <= most)).all():
        raise ValueError(f"{name}_lengths must be {count} numbers from 0 to {most}")
    return lengths.astype(np.int64)


# A file for each utterance


def read_files(
    labels: Path, features: Mapping[str, str], dataset: str, allow_pickle: bool
) -> dict[str, Utterances]:
    """The splits of a table of scores and one folder, or .npz, of features for each of text, audio and vision.

    The table is a .csv with the columns name, split and label, or MERBench's label.npz. An utterance's features are
    NAME.npy, or the frames in the folder NAME, or the array NAME of the .npz: (time, d), (1, time, d), or (d,) for a
    sequence of one row. Only zeros, or time 0, is a missing view.

    Raises:
      ValueError: a file is missing, damaged, or does not fit the others; the message names it.
    """
    table: dict[str, dict[str, float]] = {}
    with _files.reading(labels, "table of utterances (--labels, a .csv or MERBench's label.npz)"):
        for name, split, score in _rows_of(labels, allow_pickle):
            if split not in _SPLITS:
                raise ValueError(f"the split of {name!r} must be one of {', '.join(_SPLITS)}, got {split!r}")
            if not name or Path(name).name != name or any(name in part for part in table.values()):
                raise ValueError(f"name {name!r} must be a file name without a folder, and there once")
            table.setdefault(_SPLITS[split], {})[name] = float(score)
        table = _ordered(table)
        scores = {s: _checked_scores(list(part.values()), dataset, s) for s, part in table.items()}
    every = [name for part in table.values() for name in part]
    widths, readers = zip(*(_features(view, features[view], every) for view in VIEWS))

    def opened(names: list[str], scores: np.ndarray) -> Utterances:
        # VIDEO_CLIP as MMSA writes it, VIDEO$_$CLIP
        ids = [re.sub(r"(?<=.)_(?=\d+$)", "$_$", name) for name in names]
        return Utterances(scores, ids, widths, lambda row: [read(names[row]) for read in readers])

    return {split: opened(list(part), scores[split]) for split, part in table.items()}


def _rows_of(path: Path, allow_pickle: bool) -> Iterator[tuple[str, str, Any]]:
    """Name, split and score of each utterance of a .csv, or of MERBench's label.npz, in which SPLIT_corpus is a pickled
    dict of NAME to a dict with the score `val`."""
    if path.suffix == ".csv":
        with open(path, newline="", encoding="utf-8-sig") as text:
            reader = csv.DictReader(text)
            there = reader.fieldnames or ()
            if lacking := [name for name in _COLUMNS if name not in there]:
                raise ValueError(f"it lacks the column {lacking[0]}; it has {', '.join(there) or 'nothing'}")
            yield from ((row["name"] or "", row["split"] or "", row["label"]) for row in reader)
        return
    with zipfile.ZipFile(path) as archive:
        for member in archive.namelist():
            file = io.BytesIO(archive.read(member))
            np.lib.format.read_magic(file)
            np.lib.format.read_array_header_1_0(file)
            corpus = np.asarray(unpickle(file, path, allow_pickle)).item()
            split = member.removesuffix(".npy").removesuffix("_corpus")
            yield from ((str(name), split, entry["val"]) for name, entry in corpus.items())


def _features(view: str, given: str, names: Sequence[str]) -> tuple[int, Callable[[str], np.ndarray]]:
    """Of one view: width, and a reader by name of (t, d), t = 0 where the utterance lacks the view."""
    path, archive = Path(given), None
    if not given or not path.is_dir():
        with _files.reading(given, f"--{view}, a folder with NAME.npy for each utterance, or an .npz"):
            archive = np.load(path, allow_pickle=False)

    def rows(name: str) -> np.ndarray:
        with _files.reading(path / name, f"--{view} of an utterance, numbers (time, d) or (d,)"):
            if archive is not None:
                array = archive[name]
            elif (file := path / f"{name}.npy").is_file():
                array = np.load(file, mmap_mode="r", allow_pickle=False)
            elif (path / name).is_dir():
                files = sorted((path / name).glob("*.npy"))
                frames = [np.load(frame, allow_pickle=False).reshape(-1) for frame in files]
                array = np.stack(frames) if frames else np.zeros(0)
            else:
                raise ValueError("it is missing; for an utterance without this view write zeros (1, d)")
            array = array[0] if array.ndim == 3 and len(array) == 1 else array
            if array.dtype.kind not in "fiu" or (array.size and array.ndim not in (1, 2)):
                raise ValueError(f"got {array.shape} {array.dtype}")
            return np.atleast_2d(array) if array.size else np.zeros((0, 0), np.float32)

    width = next((columns for name in names if (columns := rows(name).shape[1])), 0)
    if not width:
        raise ValueError(f"--{view}: no utterance has features in {path}")

    def read(name: str) -> np.ndarray:
        found = rows(name).astype(np.float32)
        if found.shape[1] not in (0, width):
            raise ValueError(f"--{view}: {path / name} has {found.shape[1]} columns, the ones before {width}")
        if not np.isfinite(found).all():
            raise ValueError(f"--{view}: {path / name} must be finite, got NaN or infinity")
        return found if found.any() else np.zeros((0, width), np.float32)

    return width, read


# Pickles


def unpickle(file: BinaryIO, path: Path, allowed: bool) -> Any:
    """The content of a pickle of numbers, text, containers and numpy arrays; raises for anything else."""
    if not allowed:
        raise ValueError(
            f"{path} is a pickle, which is read only with --allow-pickle, and then only numpy arrays and plain "
            "containers"
        )
    start = file.tell()
    for place, (code, memo, _) in enumerate(pickletools.genops(file)):
        # The unpickler makes room for an index as it comes: a damaged one takes gigabytes.
        if code.name in ("PUT", "BINPUT", "LONG_BINPUT") and not 0 <= int(memo or 0) <= place:
            raise pickle.UnpicklingError(f"entry {memo} of its memo stands at place {place}")
    file.seek(start)
    return _Unpickler(file, encoding="latin1").load()


class _Unpickler(pickle.Unpickler):
    """Reads numbers, text, containers and numpy arrays; any other name raises an error before it is looked up.

    A pickle names functions and calls them. Here each allowed name is one of this module, so that numpy checks an
    array's bytes against a dtype that is made here, not in the file.
    """

    def find_class(self, module: str, name: str) -> Any:
        """The replacement of an allowed name."""
        module = module.replace("numpy._core.", "numpy.core.").replace("__builtin__", "builtins")
        if (module, name) not in _ADMITTED:
            raise pickle.UnpicklingError(
                f"it uses {module}.{name}; allowed are numpy arrays, numbers, text, lists, tuples, sets and dicts"
            )
        return _ADMITTED[module, name]


class _Dtype:
    def __init__(self, name: str, *_: Any) -> None:
        if name[:1] not in "?bBiufcUSO" or (name[1:] and not name[1:].isdigit()):
            raise pickle.UnpicklingError(f"arrays of dtype {name!r} are not allowed")
        self.made = np.dtype(name)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.made = self.made.newbyteorder("=" if state[1] == "|" else state[1])


class _Array(np.ndarray):
    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, dtype, fortran, raw = state
        if dtype.made.hasobject and len(raw) != math.prod(shape):
            raise pickle.UnpicklingError(f"an array of {shape} objects has {len(raw)}")
        super().__setstate__((1, shape, dtype.made, fortran, raw))


def _bytes(text: str | bytes = b"", encoding: str = "latin1") -> bytes:
    return text.encode("latin1") if isinstance(text, str) else bytes(memoryview(text))  # not bytes(10**12)


def _from_buffer(raw: Any, dtype: _Dtype, shape: tuple[int, ...], order: str, *_: Any) -> np.ndarray:
    return np.frombuffer(raw, dtype.made).reshape(shape, order="F" if order == "F" else "C")


_ADMITTED: dict[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): lambda *_: np.ndarray.__new__(_Array, (0,), np.uint8),
    ("numpy.core.multiarray", "scalar"): lambda dtype, raw: np.frombuffer(_bytes(raw), dtype.made)[0],
    ("numpy.core.numeric", "_frombuffer"): _from_buffer,
    ("numpy", "ndarray"): None,  # named in calls of _reconstruct
    ("numpy", "dtype"): _Dtype,
    ("_codecs", "encode"): _bytes,
    ("collections", "OrderedDict"): OrderedDict,
    **{("builtins", kind.__name__): kind for kind in (set, frozenset)},
    **{("builtins", name): _bytes for name in ("bytes", "bytearray")},
}
