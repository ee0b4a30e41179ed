"""Utterances with a sentiment score, in files as MMSA and MERBench write them."""

import csv
import dataclasses
import io
import math
import pickle
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from mvcl import _files, _progress

VIEWS = ("text", "audio", "vision")
_SPLITS = {"train": "train", "valid": "valid", "val": "valid", "dev": "valid", "test": "test"}
_RANGE = {"mosei": 3.0, "chsims": 1.0}  # scores are in [-3, 3] and [-1, 1]
_LABELS = ("regression_labels", "labels")
_COLUMNS = ("name", "split", "label")


@dataclasses.dataclass(frozen=True)
class Utterances:
    """A split: `cut(view, row)` returns the (t, d) rows without padding, t = 0 for a missing view."""

    labels: np.ndarray
    ids: Sequence[str] | None
    longest: tuple[int, ...]
    widths: tuple[int, ...]
    cut: Callable[[int, int], np.ndarray]


def _checked_scores(scores: Any, dataset: str, what: str) -> np.ndarray:
    """The scores as float32; raises `ValueError` for none, or for a score that is not in the range of the data set."""
    labels = np.asarray(scores, np.float64).reshape(-1).astype(np.float32)
    bound = _RANGE[dataset]
    outside = labels[~(np.abs(labels) <= bound + 1e-3)]  # NaN too
    if not len(labels) or len(outside):
        got = outside[:3].tolist() or "none"
        raise ValueError(f"{what} must be numbers in [{-bound}, {bound}] for {dataset}, got {got}")
    return labels


def _ordered(splits: Mapping[str, Any], origin: str) -> dict[str, Any]:
    """train, valid and test in this order, as far as they are there."""
    if missing := [name for name in ("train", "test") if not splits.get(name)]:
        raise ValueError(f"{origin} has no split {missing[0]}; it has {', '.join(splits) or 'nothing'}")
    return {name: splits[name] for name in ("train", "valid", "test") if splits.get(name)}


# One file of all utterances


def read_raw(path: Path, allow_pickle: bool, dataset: str) -> dict[str, Utterances]:
    """The splits of an .npz, a pickle, or a folder train/text.npy and so on; train first.

    Raises:
      ValueError: the file is missing, not readable, not allowed, or lacks something; the message names it.
    """
    if not path.name or not (
        path.is_dir() or (path.suffix in (".pkl", ".pickle", ".npz") and path.is_file())
    ):
        raise ValueError(
            "the utterances must be a prepared folder, a folder of .npy files, an .npz or a .pkl, got "
            f"{str(path) if path.name else ''!r}"
        )
    raw: Any = {}
    with _files.reading(path, "file of utterances"):
        if path.is_dir():
            for file in sorted(path.glob("*/*.npy")):
                with _files.reading(file, ".npy file"):
                    array = np.load(file, mmap_mode="r", allow_pickle=False)
                raw.setdefault(file.parent.name, {})[file.stem] = array
        elif path.suffix == ".npz":
            for name, array in _files.read_npz(path).items():
                part, _, key = name.partition("_")
                raw.setdefault(part, {})[key] = array
        else:
            _check_allowed(path, allow_pickle)
            with open(path, "rb") as stream:
                raw = unpickle(stream)
        if not isinstance(raw, dict) or not all(isinstance(part, dict) for part in raw.values()):
            raise ValueError("it must contain a dict of splits, each a dict of arrays")
        parts = _ordered({_SPLITS.get(name, str(name)): part for name, part in raw.items()}, str(path))
        tracked = _progress.track(parts.items(), f"checking {path}", len(parts), "splits")
        splits = {name: _split(part, f"{path} ({name})", dataset) for name, part in tracked}
        for name, split in splits.items():
            if split.widths != splits["train"].widths:
                raise ValueError(
                    f"the features of {name} have widths {split.widths}, those of train {splits['train'].widths}"
                )
        return splits


def _split(part: dict[str, Any], origin: str, dataset: str) -> Utterances:
    key = next((name for name in _LABELS if name in part), _LABELS[0])
    if lacking := [name for name in (*VIEWS, key) if name not in part]:
        raise ValueError(f"{origin} lacks {', '.join(lacking)}; it has {', '.join(part) or 'nothing'}")
    labels = _checked_scores(part[key], dataset, f"{origin}: {key}")
    views = [part[name] for name in VIEWS]
    shapes = []
    for name, view in zip(VIEWS, views):
        if len(view) != len(labels):
            raise ValueError(f"{origin} has {len(labels)} labels and {len(view)} sequences of {name}")
        stacked = isinstance(view, np.ndarray) and view.dtype.kind != "O"
        found = {np.shape(view)[1:]} if stacked else set(map(np.shape, view))
        if any(len(shape) != 2 for shape in found) or len({shape[1] for shape in found}) != 1:
            raise ValueError(
                f"{origin}: {name} must be sequences (time, d) of one width d, got {sorted(found)[:3]}"
            )
        np.asarray(view[0], np.float32)  # it is numbers
        shapes.append((max(1, *(shape[0] for shape in found)), next(iter(found))[1]))
    longest, widths = zip(*shapes)
    given = [_lengths(part, name, len(labels), most, origin) for name, most in zip(VIEWS, longest)]
    ids = part.get("id", part.get("ids"))
    if ids is not None:
        ids = [str(i[0]) if isinstance(i, (list, np.ndarray)) else str(i) for i in ids]
        if len(ids) != len(labels):
            raise ValueError(f"{origin} has {len(labels)} labels and {len(ids)} ids")

    def cut(view: int, row: int) -> np.ndarray:
        sequence = np.asarray(views[view][row], np.float32)
        lengths = given[view]
        if lengths is not None:
            sequence = sequence[: lengths[row]]
        else:  # padding: rows of zeros at either end
            filled = np.flatnonzero((np.isfinite(sequence) & (sequence != 0)).any(-1))
            sequence = sequence[filled[0] : filled[-1] + 1] if len(filled) else sequence[:0]
        return np.nan_to_num(sequence, nan=0.0, posinf=0.0, neginf=0.0)  # COVAREP writes -inf for silence

    return Utterances(labels, ids, longest, widths, cut)


def _lengths(part: dict[str, Any], name: str, count: int, most: int, origin: str) -> np.ndarray | None:
    """Length of each sequence of a view, if the file gives it: NAME_lengths, or BERT's mask for text."""
    bert = part.get("text_bert")
    if f"{name}_lengths" in part:
        lengths = np.asarray(part[f"{name}_lengths"], np.float64).reshape(-1)
    elif name == "text" and isinstance(bert, np.ndarray) and bert.shape == (count, 3, most):
        lengths = bert[:, 1].astype(np.float64).sum(-1)  # ids, mask, segments
    else:
        return None
    if len(lengths) != count or not ((lengths >= 0) & (lengths <= most)).all():
        raise ValueError(f"{origin}: {name}_lengths must be {count} numbers from 0 to {most}")
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
    if labels.suffix.lower() not in (".csv", ".npz") or not labels.is_file():
        raise ValueError(
            f"--labels must be an existing .csv file or MERBench's label.npz, got {str(labels)!r}"
        )
    with _files.reading(labels, "table of utterances"):
        table = _scores(
            _csv_rows(labels) if labels.suffix.lower() == ".csv" else _npz_rows(labels, allow_pickle)
        )
        table = _ordered(table, str(labels))
        scores = {
            split: _checked_scores(list(part.values()), dataset, f"{labels} ({split}): label")
            for split, part in table.items()
        }
    names = [name for part in table.values() for name in part]
    widths, lengths, readers = zip(*(_features(view, features[view], names) for view in VIEWS))

    def split(part: Mapping[str, float], labels: np.ndarray) -> Utterances:
        names = list(part)
        return Utterances(
            labels,
            [_id(name) for name in names],
            tuple(max(1, *(of_view[name] for name in names)) for of_view in lengths),
            widths,
            lambda view, row: readers[view](names[row]),
        )

    return {name: split(part, scores[name]) for name, part in table.items()}


def _id(name: str) -> str:
    """VIDEO_CLIP as MMSA writes ids, VIDEO$_$CLIP."""
    video, _, clip = name.rpartition("_")
    return f"{video}$_${clip}" if video and clip.isdigit() else name


def _scores(rows: Iterator[tuple[str, str, Any, str]]) -> dict[str, dict[str, float]]:
    """Split -> name of an utterance -> score."""
    table: dict[str, dict[str, float]] = {}
    seen: set[str] = set()
    for name, split, score, where in rows:
        if split not in _SPLITS:
            raise ValueError(f"{where}: split must be one of {', '.join(_SPLITS)}, got {split!r}")
        if not name or name in seen or Path(name).name != name:  # a name is part of a path
            problem = "is there twice" if name in seen else "must be a file name without a folder"
            raise ValueError(f"{where}: name {name!r} {problem}")
        try:
            table.setdefault(_SPLITS[split], {})[name] = float(score)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{where}: label must be a number, got {score!r}") from error
        seen.add(name)
    return table


def _csv_rows(path: Path) -> Iterator[tuple[str, str, Any, str]]:
    with open(path, newline="", encoding="utf-8-sig") as file:
        reader = csv.DictReader(file)
        if lacking := [name for name in _COLUMNS if name not in (reader.fieldnames or ())]:
            has = ", ".join(reader.fieldnames or ()) or "nothing"
            raise ValueError(f"it lacks the column {lacking[0]}; it has {has}")
        for row in reader:
            yield row["name"] or "", row["split"] or "", row["label"], f"{path}, line {reader.line_num}"


def _npz_rows(path: Path, allow_pickle: bool) -> Iterator[tuple[str, str, Any, str]]:
    """MERBench's label.npz: SPLIT_corpus is a pickled dict of NAME to a dict with the score `val`."""
    _check_allowed(path, allow_pickle)
    with zipfile.ZipFile(path) as archive:
        for member in archive.namelist():
            file = io.BytesIO(archive.read(member))
            np.lib.format.read_magic(file)
            np.lib.format.read_array_header_1_0(file)
            corpus = np.asarray(unpickle(file)).item()
            where = f"{path} ({member})"
            for name, entry in corpus.items():
                if not isinstance(entry, dict) or "val" not in entry:
                    raise ValueError(f"{where}: {name} has no score `val`")
                yield str(name), member.removesuffix(".npy").removesuffix("_corpus"), entry["val"], where


def _features(
    view: str, given: str, names: Sequence[str]
) -> tuple[int, dict[str, int], Callable[[str], np.ndarray]]:
    """Of one view: width, length by name, and a reader of (t, d), t = 0 where the utterance lacks the view."""
    path = Path(given)
    if given and path.is_dir():
        load = _from_folder(path)
    elif path.suffix.lower() == ".npz" and path.is_file():
        with _files.reading(path, ".npz file"):
            archive = np.load(path, allow_pickle=False)
        load = archive.__getitem__
    else:
        raise ValueError(
            f"--{view} must be a folder with NAME.npy for each utterance, or an .npz, got {given!r}"
        )

    def rows(name: str) -> np.ndarray:
        """(t, d) of an array (t, d), (1, t, d) or (d,); (0, 0) if it is empty."""
        try:
            array = load(name)
        except KeyError:
            raise
        except Exception as error:  # numpy may raise any for a damaged file
            raise ValueError(f"--{view}: {name} in {path} cannot be read: {error}") from error
        if array.dtype.kind not in "fiu":
            raise ValueError(f"--{view}: {name} in {path} must be numbers, got {array.dtype}")
        array = array[0] if array.ndim == 3 and len(array) == 1 else array
        if array.size and array.ndim not in (1, 2):
            raise ValueError(f"--{view}: {name} in {path} must be (time, d) or (d,), got {array.shape}")
        return np.atleast_2d(array) if array.size else np.zeros((0, 0), np.float32)

    shapes: dict[str, tuple[int, ...]] = {}
    lost = []
    for name in _progress.track(names, f"reading the sizes of {view}", len(names), "utterances"):
        try:
            shapes[name] = rows(name).shape
        except KeyError:
            lost.append(name)
    if lost:
        raise ValueError(
            f"--{view}: {path} has no features of {len(lost)} of {len(names)} utterances, the first is {lost[0]}; "
            f"for an utterance without {view} write an array of zeros (1, d), for a missing view"
        )
    filled = {name: shape[1] for name, shape in shapes.items() if shape[0]}
    if len(set(filled.values())) != 1:
        found = {width: name for name, width in reversed(filled.items())}
        several = ", ".join(f"{width} columns of {name}" for width, name in list(found.items())[:3])
        raise ValueError(f"--{view}: the features in {path} must have one width, got {several or 'none'}")
    [width] = set(filled.values())

    def read(name: str) -> np.ndarray:
        found = rows(name).astype(np.float32)
        if not np.isfinite(found).all():
            raise ValueError(f"{path}: the features of {name} must be finite, got NaN or infinity")
        return found if found.any() else np.zeros((0, width), np.float32)

    return width, {name: shape[0] for name, shape in shapes.items()}, read


def _from_folder(path: Path) -> Callable[[str], np.ndarray]:
    def load(name: str) -> np.ndarray:
        if (file := path / f"{name}.npy").is_file():
            return np.load(file, mmap_mode="r", allow_pickle=False)
        if not (path / name).is_dir():
            raise KeyError(name)
        frames = [np.load(frame, allow_pickle=False) for frame in sorted((path / name).glob("*.npy"))]
        return np.stack([frame.reshape(-1) for frame in frames]) if frames else np.zeros((0, 0), np.float32)

    return load


# Pickles


def _check_allowed(path: Path, allow_pickle: bool) -> None:
    if not allow_pickle:
        raise ValueError(
            f"{path} is a pickle, which is read only with --allow-pickle, and then only numpy arrays and plain "
            "containers. Better prepare it once: mvcl data prepare sentiment --allow-pickle"
        )


def unpickle(file: BinaryIO) -> Any:
    """The content of a pickle of numbers, text, containers and numpy arrays; raises for anything else."""
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
    """A dtype of numbers, strings or objects."""

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


def _empty(*_: Any) -> _Array:
    return np.ndarray.__new__(_Array, (0,), np.uint8)


def _scalar(dtype: _Dtype, raw: bytes | str) -> Any:
    return np.frombuffer(raw.encode("latin1") if isinstance(raw, str) else raw, dtype.made)[0]


def _from_buffer(raw: Any, dtype: _Dtype, shape: tuple[int, ...], order: str, *_: Any) -> np.ndarray:
    return np.frombuffer(raw, dtype.made).reshape(shape, order="F" if order == "F" else "C")


def _bytes(text: str | bytes = b"", encoding: str = "latin1") -> bytes:
    return text.encode("latin1") if isinstance(text, str) else bytes(memoryview(text))  # not bytes(10**12)


_ADMITTED: dict[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): _empty,
    ("numpy.core.multiarray", "scalar"): _scalar,
    ("numpy.core.numeric", "_frombuffer"): _from_buffer,
    ("numpy", "ndarray"): None,  # named in calls of _reconstruct
    ("numpy", "dtype"): _Dtype,
    ("_codecs", "encode"): _bytes,
    ("collections", "OrderedDict"): OrderedDict,
    **{("builtins", kind.__name__): kind for kind in (set, frozenset)},
    **{("builtins", name): _bytes for name in ("bytes", "bytearray")},
}
