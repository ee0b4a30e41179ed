"""Utterances whose features are one file each, as MERBench's extraction writes them, and a table of their scores."""

import csv
import dataclasses
import io
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from mvcl._progress import Track, untracked
from mvcl.data import _pickles

VIEWS = ("text", "audio", "vision")
SPLITS = {"train": "train", "valid": "valid", "val": "valid", "dev": "valid", "test": "test"}
RANGE = {"mosei": 3.0, "chsims": 1.0}  # scores are in [-3, 3] and [-1, 1]
# Errors of numpy for a damaged file; its header is Python text, which numpy tokenizes.
TORN = (ValueError, OSError, EOFError, SyntaxError, tokenize.TokenError)
BAD_ARCHIVE = (*TORN, KeyError, zipfile.BadZipFile, zlib.error)
_COLUMNS = ("name", "split", "label")
Table = dict[str, dict[str, float]]  # split -> name of an utterance -> score


@dataclasses.dataclass(frozen=True)
class Utterances:
    """A split: `cut(view, row)` returns the (t, d) rows without padding, t = 0 for a missing view."""

    labels: np.ndarray
    ids: Sequence[str] | None
    longest: tuple[int, ...]
    widths: tuple[int, ...]
    cut: Callable[[int, int], np.ndarray]


def shortened(sequence: np.ndarray, most: int) -> np.ndarray:
    """(t, d) to at most `most` rows: means of groups of ceil(t / most) neighbouring rows, the last group smaller."""
    group = -(-len(sequence) // most)
    if group <= 1:
        return sequence
    starts = np.arange(0, len(sequence), group)
    sums = np.add.reduceat(sequence, starts, axis=0, dtype=np.float64)
    return (sums / np.diff(starts, append=len(sequence))[:, None]).astype(sequence.dtype)


def checked_scores(scores: np.ndarray, dataset: str, what: str) -> np.ndarray:
    """The scores as float32; raises `ValueError` for none, or for a score that is not in the range of the data set."""
    labels = scores.reshape(-1).astype(np.float32)
    bound = RANGE[dataset]
    if not len(labels) or not (np.abs(labels) <= bound + 1e-3).all():  # NaN fails too
        bad = labels[~(np.abs(labels) <= bound + 1e-3)][:3].tolist()
        raise ValueError(f"{what} must be numbers in [{-bound}, {bound}] for {dataset}, got {bad or 'none'}")
    return labels


def read_files(
    labels: Path,
    features: Mapping[str, str],
    dataset: str,
    allow_pickle: bool,
    track: Track = untracked,
) -> dict[str, Utterances]:
    """The splits of a table of scores and one folder, or .npz, of features for each of text, audio and vision.

    An utterance's features are NAME.npy, or the frames in the folder NAME, or the array NAME of the .npz: (time, d),
    (1, time, d), or (d,) for a sequence of one row. Only zeros, or time 0, is a missing view.

    Args:
      labels: .csv with the columns name, split and label, or MERBench's label.npz.
      features: text, audio and vision to their path.
      dataset: which fixes the range of the scores.
      allow_pickle: read label.npz, whose arrays are pickled dicts.
      track: reports the utterances.

    Raises:
      ValueError: a file is missing, damaged, or does not fit the others; the message names it.
    """
    table = _read_table(labels, allow_pickle)
    missing = [name for name in ("train", "test") if not table.get(name)]
    if missing:
        raise ValueError(f"{labels} has no split {missing[0]}; it has {', '.join(table) or 'nothing'}")
    names = [name for part in table.values() for name in part]
    found = {view: _read_features(view, features[view], names, track) for view in VIEWS}
    return {split: _split(part, f"{labels} ({split})", found, dataset) for split, part in table.items()}


@dataclasses.dataclass(frozen=True)
class _Features:
    """The features of one view: `read(name)` returns (t, d), t = 0 where the utterance lacks the view."""

    width: int
    lengths: Mapping[str, int]
    read: Callable[[str], np.ndarray]


def _split(
    part: Mapping[str, float], origin: str, found: Mapping[str, _Features], dataset: str
) -> Utterances:
    names = list(part)
    scores = checked_scores(np.asarray(list(part.values()), np.float64), dataset, f"{origin}: label")
    return Utterances(
        scores,
        [_id(name) for name in names],
        tuple(max(1, *(found[view].lengths[name] for name in names)) for view in VIEWS),
        tuple(found[view].width for view in VIEWS),
        lambda view, row: found[VIEWS[view]].read(names[row]),
    )


def _id(name: str) -> str:
    """VIDEO_CLIP as MMSA writes ids, VIDEO$_$CLIP."""
    video, _, clip = name.rpartition("_")
    return f"{video}$_${clip}" if video and clip.isdigit() else name


# Scores


def _read_table(path: Path, allow_pickle: bool) -> Table:
    readers: dict[str, Callable[[], list[tuple[str, str, str, str]]]] = {
        ".csv": lambda: _csv_rows(path),
        ".npz": lambda: _corpus_rows(path, allow_pickle),
    }
    if path.suffix.lower() not in readers or not path.is_file():
        raise ValueError(f"--labels must be an existing .csv file or MERBench's label.npz, got {str(path)!r}")
    table: Table = {}
    seen: set[str] = set()
    for name, split, score, where in readers[path.suffix.lower()]():
        if split not in SPLITS:
            raise ValueError(f"{where}: split must be one of {', '.join(SPLITS)}, got {split!r}")
        # A name is part of a path.
        if not name or name in seen or Path(name).name != name:
            problem = "is there twice" if name in seen else "must be a file name without a folder"
            raise ValueError(f"{where}: name {name!r} {problem}")
        try:
            table.setdefault(SPLITS[split], {})[name] = float(score)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{where}: label must be a number, got {score!r}") from error
        seen.add(name)
    return {name: table[name] for name in ("train", "valid", "test") if name in table}


def _csv_rows(path: Path) -> list[tuple[str, str, str, str]]:
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file)
            lacking = [name for name in _COLUMNS if name not in (reader.fieldnames or ())]
            if lacking:
                has = ", ".join(reader.fieldnames or ()) or "nothing"
                raise ValueError(f"it lacks the column {lacking[0]}; it has {has}")
            return [
                (row["name"] or "", row["split"] or "", row["label"], f"{path}, line {reader.line_num}")
                for row in reader
            ]
    except (OSError, ValueError, csv.Error) as error:
        raise ValueError(f"{path} is not a table of utterances: {error}") from error


def _corpus_rows(path: Path, allow_pickle: bool) -> list[tuple[str, str, str, str]]:
    """MERBench's label.npz: SPLIT_corpus is a pickled dict of NAME to a dict with the score `val`."""
    if not allow_pickle:
        raise ValueError(
            f"{path} has pickled dicts, which are read only with --allow-pickle, and then only numbers and plain "
            "containers"
        )
    rows = []
    try:
        with zipfile.ZipFile(path) as archive:
            for member in archive.namelist():
                split, where = member.removesuffix(".npy").removesuffix("_corpus"), f"{path} ({member})"
                for name, entry in _pickled_dict(archive.read(member), where).items():
                    if not isinstance(entry, dict) or "val" not in entry:
                        raise ValueError(f"{where}: {name} has no score `val`")
                    rows.append((str(name), split, entry["val"], where))
    except BAD_ARCHIVE as error:
        raise ValueError(f"{path} is not a label.npz of MERBench: {error}") from error
    return rows


def _pickled_dict(raw: bytes, where: str) -> Mapping[str, object]:
    file = io.BytesIO(raw)
    np.lib.format.read_magic(file)
    np.lib.format.read_array_header_1_0(file)
    value = _pickles.read(file, where)
    value = value.item() if isinstance(value, np.ndarray) and value.size == 1 else value
    if not isinstance(value, dict):
        raise ValueError(f"{where} must be a dict of utterances")
    return value


# Features


def _read_features(view: str, given: str, names: Sequence[str], track: Track) -> _Features:
    """Shapes of all utterances' features, from the headers of their files."""
    path = Path(given)
    if given and path.is_dir():
        load, headers = _from_folder(path), _from_folder(path, mmap_mode="r")
    elif path.suffix.lower() == ".npz" and path.is_file():
        load = headers = _from_archive(path)
    else:
        raise ValueError(
            f"--{view} must be a folder with NAME.npy for each utterance, or an .npz, got {given!r}"
        )
    lengths: dict[str, int] = {}
    width, first, lost = 0, "", []
    for name in track(names, f"reading the sizes of {view}", len(names), "utterances"):
        try:
            array = headers(name)
        except KeyError:
            lost.append(name)
            continue
        rows = _rows(array, f"{path}: {name}")
        lengths[name] = len(rows)
        if not len(rows):
            continue
        if width and rows.shape[1] != width:
            raise ValueError(
                f"--{view}: the features of {name} have width {rows.shape[1]}, those of {first} width {width}"
            )
        width, first = rows.shape[1], first or name
    if lost:
        raise ValueError(
            f"--{view}: {path} has no features of {len(lost)} of {len(names)} utterances, the first is {lost[0]}; "
            f"for an utterance without {view} write an array of zeros (1, d), for a missing view"
        )
    if not width:
        raise ValueError(f"--{view}: {path} has no features, only empty arrays")

    def read(name: str) -> np.ndarray:
        rows = _rows(load(name), f"{path}: {name}").astype(np.float32)
        if not np.isfinite(rows).all():
            raise ValueError(f"{path}: the features of {name} must be finite, got NaN or infinity")
        return rows if rows.any() else np.zeros((0, width), np.float32)

    return _Features(width, lengths, read)


def _rows(array: np.ndarray, where: str) -> np.ndarray:
    """(t, d) of an array (t, d), (1, t, d) or (d,); (0, 0) if it is empty."""
    if array.dtype.kind not in "fiu":
        raise ValueError(f"{where} must be numbers, got {array.dtype}")
    if array.size == 0:
        return np.zeros((0, 0), np.float32)
    if array.ndim == 3 and len(array) == 1:
        array = array[0]
    if array.ndim not in (1, 2):
        raise ValueError(f"{where} must be (time, d) or (d,), got {array.shape}")
    return np.atleast_2d(array)


def _from_folder(path: Path, **options: str) -> Callable[[str], np.ndarray]:
    def one(file: Path) -> np.ndarray:
        try:
            return np.load(file, allow_pickle=False, **options)  # type: ignore[arg-type]
        except TORN as error:
            raise ValueError(f"{file} is not a readable .npy file: {error}") from error

    def load(name: str) -> np.ndarray:
        if (file := path / f"{name}.npy").is_file():
            return one(file)
        if not (path / name).is_dir():
            raise KeyError(name)
        frames = [one(frame) for frame in sorted((path / name).glob("*.npy"))]
        shapes = {frame.shape for frame in frames}
        if len(shapes) > 1:
            raise ValueError(f"{path / name}: all frames must have one shape, got {sorted(shapes)[:2]}")
        return np.stack([frame.reshape(-1) for frame in frames]) if frames else np.zeros((0, 0), np.float32)

    return load


def _from_archive(path: Path) -> Callable[[str], np.ndarray]:
    try:
        archive = np.load(path, allow_pickle=False)
    except BAD_ARCHIVE as error:
        raise ValueError(f"{path} is not a readable .npz file: {error}") from error
    there = set(archive.files)

    def load(name: str) -> np.ndarray:
        if name not in there:
            raise KeyError(name)
        try:
            return archive[name]
        except BAD_ARCHIVE as error:
            raise ValueError(f"{path}: {name} cannot be read: {error}") from error

    return load
