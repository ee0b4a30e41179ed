"""Utterances as text, audio and vision feature sequences, with a sentiment score for regression."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from mvcl import _buckets, _untrusted
from mvcl._progress import Track, untracked
from mvcl.data import _pickles, _records, _shards
from mvcl.data._directories import data_root
from mvcl.data._splits import CorruptExample, ExampleSpec, Outline, Split, in_memory
from mvcl.data._utterances import (
    SPLITS,
    TORN,
    VIEWS,
    Utterances,
    checked_scores,
    read_files,
    shortened,
)

Dataset = Literal["mosei", "chsims"]
# Training utterances; then the longest sequences of the files that MMSA publishes, unaligned_50.pkl of CMU-MOSEI and
# unaligned_39.pkl of CH-SIMS.
_PUBLISHED: dict[str, tuple[int, tuple[int, int, int]]] = {
    "mosei": (16_326, (50, 500, 500)),
    "chsims": (1_368, (39, 400, 55)),
}
# BERT base, HuBERT large, CLIP ViT-L/14's projection.
_WIDTHS = (768, 1024, 768)
_LABELS = ("regression_labels", "labels")
_BLOCK = 256


@dataclasses.dataclass(frozen=True, kw_only=True)
class PrepareSentiment:
    """Write utterances as ArrayRecord files, without padding; later reads are by row and need no pickle."""

    source: str = ""
    """A .pkl file as MMSA distributes it, an .npz file, or a folder train/text.npy and so on."""
    labels: str = ""
    """Instead of `source`: the table of utterances whose features are one file each, a .csv with the columns name,
    split and label, or MERBench's label.npz."""
    text: str = ""
    """With `labels`: folder of text features, NAME.npy for each utterance or a folder NAME of frames, or an .npz."""
    audio: str = ""
    """The same for audio."""
    vision: str = ""
    """The same for vision."""
    max_length: tuple[int, ...] = ()
    """Longest sequences of text, audio and vision; neighbouring rows of longer ones are averaged. Empty: (50, 500, 500)
    for mosei, (39, 400, 55) for chsims, the lengths of MMSA's files."""
    dataset: Dataset = "mosei"
    """Data set, which fixes the range of the scores: mosei [-3, 3], chsims [-1, 1]."""
    allow_pickle: bool = False
    """Read a .pkl file or label.npz; only numpy arrays and plain containers are allowed in it."""
    directory: str | None = None
    """Folder to write; None: mvcl_sentiment_DATASET under TFDS_DATA_DIR or ~/tensorflow_datasets."""
    verify: bool = False
    """Verify the checksums of the prepared folder and exit."""

    def run(self, track: Track = untracked) -> Path:
        """Write the folder and return it."""
        directory = _buckets.path(self.directory or _default(self.dataset))
        if self.verify:
            _shards.verify(_buckets.local_copy(directory, track), "sentiment", track)
            return directory
        if _buckets.is_remote(directory):
            return _buckets.uploaded(
                directory, lambda folder: dataclasses.replace(self, directory=folder).run(track), track
            )
        splits, most = self._read(track), self._longest()
        names = [
            f"{name}-{start:06d}"
            for name, split in splits.items()
            for start in range(0, len(split.labels), _BLOCK)
        ]

        def read(name: str) -> _shards.Item:
            part, _, start = name.rpartition("-")
            split = splits[part]
            rows = range(int(start), min(int(start) + _BLOCK, len(split.labels)))
            cuts = [[shortened(split.cut(view, row), t) for view, t in enumerate(most)] for row in rows]
            records = [b"".join(cut.astype("<f4").tobytes() for cut in record) for record in cuts]
            facts = {
                "split": part,
                "labels": split.labels[rows.start : rows.stop].tolist(),
                "ids": None if split.ids is None else list(split.ids[rows.start : rows.stop]),
                "lengths": [[len(cut) for cut in record] for record in cuts],
                "sums": [np.concatenate(v).sum(0, dtype=np.float64).tolist() for v in zip(*cuts)],
                "squares": [
                    np.square(np.concatenate(v), dtype=np.float64).sum(0).tolist() for v in zip(*cuts)
                ],
            }
            return _shards.Item(records, facts)

        first = next(iter(splits.values()))
        longest = [min(max(split.longest[v] for split in splits.values()), t) for v, t in enumerate(most)]
        settings = {"dataset": self.dataset, "shapes": [list(pair) for pair in zip(longest, first.widths)]}
        return _shards.write(
            directory,
            "sentiment",
            settings,
            names,
            read,
            per_shard=4,
            max_corrupt=0,
            unit="block",
            track=track,
        )

    def _read(self, track: Track) -> dict[str, Utterances]:
        features = dict(zip(VIEWS, (self.text, self.audio, self.vision)))
        if self.labels and self.source:
            raise ValueError("give --source, or --labels with --text, --audio and --vision, not both")
        if self.labels:
            return read_files(Path(self.labels), features, self.dataset, self.allow_pickle, track)
        if given := [view for view, path in features.items() if path]:
            raise ValueError(f"--{given[0]} needs --labels, the table of the utterances' names and scores")
        return _read_raw(Path(self.source), "--source", self.allow_pickle, self.dataset, track)

    def _longest(self) -> tuple[int, ...]:
        most = self.max_length or _PUBLISHED[self.dataset][1]
        if len(most) != len(VIEWS) or min(most) < 1:
            raise ValueError(
                f"--max-length must be 3 positive numbers, for text, audio and vision, got {self.max_length}"
            )
        return most


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sentiment:
    """Multimodal sentiment, CMU-MOSEI or CH-SIMS: text, audio and vision of an utterance, each a sequence of feature
    vectors, and a sentiment score. Sequences are padded at the end with rows of NaN."""

    path: str = ""
    """A folder written by `mvcl data prepare sentiment`; empty: its default output folder. Or a raw file of all
    utterances, which is read into memory: .npz with train_text, train_audio, train_vision, train_regression_labels and
    so on, a folder train/text.npy and so on, or MMSA's .pkl."""
    dataset: Dataset = "mosei"
    """Data set, which fixes the range of the scores: mosei [-3, 3], chsims [-1, 1]."""
    allow_pickle: bool = False
    """Read a .pkl file; only numpy arrays and plain containers are allowed in it."""
    standardize: bool = True
    """Standardise each feature to mean 0 and deviation 1 over the training split."""

    def open(self, track: Track = untracked) -> dict[str, Split]:
        """The splits `train`, `valid` (if there is one) and `test`."""
        path = _buckets.local_copy(self.path or _default(self.dataset), track)
        if not self.path or _shards.is_prepared(path):
            return self._open_prepared(path)
        splits = _read_raw(path, "data.path", self.allow_pickle, self.dataset, track)
        longest = [max(split.longest[v] for split in splits.values()) for v in range(len(VIEWS))]
        widths = next(iter(splits.values())).widths
        shapes = tuple(zip(longest, widths))
        numbers = _groups([split.ids for split in splits.values()])
        views = {
            name: tuple(
                np.stack([_padded(split.cut(v, row), *shapes[v]) for row in rows])
                for v, rows in enumerate(
                    track(range(len(split.labels)), f"padding {view} of {name}", len(split.labels), "rows")
                    for view in VIEWS
                )
            )
            for name, split in splits.items()
        }
        there = {
            name: np.stack([~np.isnan(view).all((1, 2)) for view in arrays], axis=1)
            for name, arrays in views.items()
        }
        if self.standardize:
            for v in range(len(VIEWS)):
                known = views["train"][v][~np.isnan(views["train"][v]).any(-1)].astype(np.float64)
                shift, scale = _moments(len(known), known.sum(0), np.square(known).sum(0))
                for arrays in views.values():
                    np.subtract(arrays[v], shift, out=arrays[v])
                    np.divide(arrays[v], scale, out=arrays[v])

        def opened(name: str, split: Utterances, groups: np.ndarray | None) -> Split:
            present = _unless_all(there[name])
            return in_memory(
                views[name], split.labels, (), view_names=VIEWS, given=True, present=present, groups=groups
            )

        return {name: opened(name, split, groups) for (name, split), groups in zip(splits.items(), numbers)}

    def _open_prepared(self, path: Path) -> dict[str, Split]:
        prepared = _shards.open_prepared(path, "sentiment")
        with _shards.facts(path):
            dataset = str(prepared.settings["dataset"])
            shapes = tuple((int(time), int(width)) for time, width in prepared.settings["shapes"])
            if len(shapes) != len(VIEWS) or not 0 < sum(4 * t * d for t, d in shapes) <= _records.LARGEST:
                raise ValueError(f"its shapes must be 3 of (time, width), got {str(shapes)[:80]}")
            parts = _parts(prepared.items, shapes)
        if dataset != self.dataset:
            raise ValueError(
                f"{path / 'manifest.json'} was prepared for {dataset[:80]}, but data.dataset is {self.dataset}"
            )
        train = parts["train"]
        moments = [
            _moments(int(train.lengths[:, v].sum()), train.sums[v], train.squares[v])
            for v in range(len(VIEWS))
        ]
        sizes = [width for _, width in shapes]

        def opened(part: _Part, groups: np.ndarray | None) -> Split:
            def read(row: int, epoch: int) -> tuple[np.ndarray, ...]:
                record = int(part.rows[row])
                raw = prepared.read(record)
                if len(raw) != 4 * part.lengths[row] @ sizes:
                    raise CorruptExample(
                        f"{prepared.name(record)} has {len(raw)} bytes, but its manifest.json states sequences of "
                        f"{part.lengths[row].tolist()} rows of {sizes} numbers"
                    )
                flat = np.frombuffer(raw, "<f4")
                views, at = [], 0
                for v, (time, width) in enumerate(shapes):
                    size = int(part.lengths[row, v]) * width
                    cut = flat[at : at + size].reshape(-1, width)
                    at += size
                    if self.standardize:
                        cut = (cut - moments[v][0]) / moments[v][1]
                    views.append(_padded(cut, time, width))
                return tuple(views)

            spec = ExampleSpec(shapes, VIEWS, given=True)
            present = _unless_all(part.lengths > 0)
            return Split(part.labels, (), spec, read, present=present, groups=groups)

        groups = _groups([part.ids for part in parts.values()])
        return {name: opened(part, group) for (name, part), group in zip(parts.items(), groups)}

    def expected(self) -> Outline:
        """The published size of the training split, with the features of Koromilas 2025: BERT, HuBERT and CLIP."""
        size, longest = _PUBLISHED[self.dataset]
        return Outline(size, 0, ExampleSpec(tuple(zip(longest, _WIDTHS)), VIEWS, given=True))


def _default(dataset: Dataset) -> Path:
    return data_root(None) / f"mvcl_sentiment_{dataset}"


@dataclasses.dataclass(frozen=True)
class _Part:
    """A split of a prepared folder.

    Attributes:
      rows: (n,) numbers of its records.
      labels: (n,) scores.
      lengths: (n, 3) rows of text, audio and vision.
      sums, squares: of each view, over all rows of all its sequences.
      ids: of its utterances, if the raw file had any.
    """

    rows: np.ndarray
    labels: np.ndarray
    lengths: np.ndarray
    sums: Sequence[np.ndarray]
    squares: Sequence[np.ndarray]
    ids: Sequence[str] | None


def _parts(items: Sequence[Mapping[str, Any]], shapes: Sequence[tuple[int, int]]) -> dict[str, _Part]:
    """The splits that the items of a prepared folder state; raises an error of `_shards.facts` if they are wrong."""
    blocks: dict[str, list[_Part]] = {}
    start = 0
    for item in items:
        rows = start + np.arange(item["count"])
        start += len(rows)
        labels = np.asarray(item["labels"], np.float32).reshape(len(rows))
        lengths = np.asarray(item["lengths"], np.int64).reshape(len(rows), len(VIEWS))
        sums, squares = (
            [np.asarray(item[name][v], np.float64).reshape(width) for v, (_, width) in enumerate(shapes)]
            for name in ("sums", "squares")
        )
        if (
            (lengths < 0).any()
            or (lengths > [time for time, _ in shapes]).any()
            or not np.isfinite(labels).all()
        ):
            raise ValueError(f"the lengths or the labels of {str(item['name'])[:80]} are out of range")
        ids = None if item["ids"] is None else [str(one) for one in item["ids"]]
        if ids is not None and len(ids) != len(rows):
            raise ValueError(f"{str(item['name'])[:80]} has {len(rows)} utterances and {len(ids)} ids")
        blocks.setdefault(str(item["split"]), []).append(_Part(rows, labels, lengths, sums, squares, ids))
    if not {"train", "test"} <= set(blocks) <= set(SPLITS.values()):
        raise ValueError(f"its splits must be train and test, and maybe valid, got {str(list(blocks))[:80]}")
    return {name: _joined(found) for name, found in blocks.items()}


def _joined(parts: Sequence[_Part]) -> _Part:
    rows, labels, lengths = (
        np.concatenate([getattr(part, name) for part in parts]) for name in ("rows", "labels", "lengths")
    )
    sums, squares = (
        [np.sum(arrays, axis=0) for arrays in zip(*(getattr(part, name) for part in parts))]
        for name in ("sums", "squares")
    )
    ids = (
        None if any(part.ids is None for part in parts) else [one for part in parts for one in part.ids or ()]
    )
    return _Part(rows, labels, lengths, sums, squares, ids)


def _moments(count: int, sums: np.ndarray, squares: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and deviation, float32; the deviation of a constant feature is 1."""
    mean = np.asarray(sums) / max(count, 1)
    variance = np.asarray(squares) / max(count, 1) - mean**2
    changes = variance > 1e-12 * (1 + mean**2)  # smaller variances are rounding errors
    return mean.astype(np.float32), np.where(changes, np.sqrt(np.where(changes, variance, 1)), 1).astype(
        np.float32
    )


def _padded(cut: np.ndarray, time: int, width: int) -> np.ndarray:
    out = np.full((time, width), np.nan, np.float32)
    out[: len(cut)] = cut
    return out


def _unless_all(present: np.ndarray) -> np.ndarray | None:
    return None if present.all() else present


def _groups(ids: Sequence[Sequence[str] | None]) -> list[np.ndarray | None]:
    """Video number of each utterance, over all splits; MMSA joins video and clip by `$_$`, CH-SIMS by `/`."""
    videos = [None if part is None else [i.split("$_$")[0].split("/")[0] for i in part] for part in ids]
    number = {v: i for i, v in enumerate(sorted({v for part in videos if part is not None for v in part}))}
    return [None if part is None else np.asarray([number[v] for v in part], np.int32) for part in videos]


def _read_raw(
    path: Path, field: str, allow_pickle: bool, dataset: str, track: Track
) -> dict[str, Utterances]:
    """The splits of a raw file, with train first.

    Raises:
      ValueError: the file is missing, not readable, not allowed, or lacks something; the message names it.
    """
    if path.suffix in (".pkl", ".pickle") and path.is_file():
        if not allow_pickle:
            raise ValueError(
                f"{path} is a pickle, which is read only with allow_pickle, and then only numpy arrays and plain "
                "containers. Better prepare it once: mvcl data prepare sentiment --source FILE --allow-pickle"
            )
        raw = _pickles.load(path)
    elif path.suffix == ".npz" and path.is_file():
        raw = _read_npz(path)
    elif path.is_dir() and str(path) != ".":
        raw = {
            part.name: {file.stem: _read_npy(file) for file in sorted(part.glob("*.npy"))}
            for part in sorted(path.iterdir())
            if part.is_dir()
        }
    else:
        raise ValueError(
            f"{field} must be a prepared folder, a folder of .npy files, an .npz or a .pkl, got {str(path)!r}"
        )
    with _untrusted.reading(path, "file of utterances"):
        if not isinstance(raw, dict) or not all(isinstance(part, dict) for part in raw.values()):
            raise ValueError(f"{path} must contain a dict of splits, each a dict of arrays")
        parts = {SPLITS[name]: part for name, part in raw.items() if name in SPLITS and part}
        missing = [name for name in ("train", "test") if name not in parts]
        if missing:
            raise ValueError(
                f"{path} has no split {missing[0]}; it has {', '.join(map(str, raw)) or 'nothing'}"
            )
        splits: dict[str, Utterances] = {}
        there: list[str] = [name for name in ("train", "valid", "test") if name in parts]
        for part in track(there, f"checking {path}", len(there), "splits"):
            splits[part] = _utterances(parts[part], f"{path} ({part})", dataset)
        for name, split in splits.items():
            if split.widths != splits["train"].widths:
                raise ValueError(
                    f"{path}: the features of {name} have widths {split.widths}, those of train "
                    f"{splits['train'].widths}"
                )
        return splits


def _read_npz(path: Path) -> dict[str, dict[str, Any]]:
    raw: dict[str, dict[str, Any]] = {}
    for name, array in _untrusted.read_npz(path).items():
        part, _, key = name.partition("_")
        raw.setdefault(part, {})[key] = array
    return raw


def _read_npy(path: Path) -> np.ndarray:
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except TORN as error:
        raise ValueError(f"{path} is not a readable .npy file: {error}") from error


def _utterances(part: Mapping[str, Any], origin: str, dataset: str) -> Utterances:
    key = next((name for name in _LABELS if name in part), None)
    lacking = [name for name in VIEWS if name not in part] + ([] if key else [_LABELS[0]])
    if lacking or key is None:
        raise ValueError(
            f"{origin} lacks {', '.join(lacking)}; it has {', '.join(map(str, part)) or 'nothing'}"
        )
    labels = checked_scores(_numbers(part[key], f"{origin}: {key}"), dataset, f"{origin}: {key}")
    views = [part[name] for name in VIEWS]
    widths, longest = [], []
    for name, view in zip(VIEWS, views):
        if not isinstance(view, (np.ndarray, list)) or len(view) != len(labels):
            size = len(view) if hasattr(view, "__len__") else type(view).__name__
            raise ValueError(f"{origin} has {len(labels)} labels and {size} sequences of {name}")
        stacked = isinstance(view, np.ndarray) and view.dtype != object
        shapes = {np.shape(view)[1:]} if stacked else {np.shape(row) for row in view}
        if any(len(shape) != 2 for shape in shapes) or len({shape[1] for shape in shapes}) != 1:
            raise ValueError(
                f"{origin}: {name} must be sequences (time, d) of one width d, got {sorted(shapes)[:3]}"
            )
        _numbers(view[0], f"{origin}: {name}")
        widths.append(next(iter(shapes))[1])
        longest.append(max(1, *(shape[0] for shape in shapes)))
    given = _lengths(part, len(labels), longest, origin)
    ids = part.get("id", part.get("ids"))
    names = None if ids is None else [str(i[0]) if isinstance(i, (list, np.ndarray)) else str(i) for i in ids]
    if names is not None and len(names) != len(labels):
        raise ValueError(f"{origin} has {len(labels)} labels and {len(names)} ids")

    def cut(view: int, row: int) -> np.ndarray:
        sequence = np.asarray(views[view][row], np.float32)
        lengths = given[view]
        if lengths is not None:
            sequence = sequence[: lengths[row]]
        else:  # padding: rows of zeros at either end
            filled = np.flatnonzero((np.isfinite(sequence) & (sequence != 0)).any(-1))
            sequence = sequence[filled[0] : filled[-1] + 1] if len(filled) else sequence[:0]
        return np.nan_to_num(sequence, nan=0.0, posinf=0.0, neginf=0.0)  # COVAREP writes -inf for silence

    return Utterances(labels, names, tuple(longest), tuple(widths), cut)


def _numbers(value: Any, what: str) -> np.ndarray:
    try:
        return np.asarray(value, np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{what} must be numbers: {error}") from error


def _lengths(
    part: Mapping[str, Any], count: int, longest: Sequence[int], origin: str
) -> list[np.ndarray | None]:
    """Length of each sequence of each view, if the file gives it: NAME_lengths, or BERT's mask for text."""
    found: list[np.ndarray | None] = []
    for name, most in zip(VIEWS, longest):
        lengths: np.ndarray | None = None
        bert = part.get("text_bert")
        if f"{name}_lengths" in part:
            lengths = (
                _numbers(part[f"{name}_lengths"], f"{origin}: {name}_lengths").reshape(-1).astype(np.int64)
            )
        elif name == "text" and isinstance(bert, np.ndarray) and bert.shape == (count, 3, most):
            lengths = bert[:, 1].astype(np.float64).sum(-1).astype(np.int64)  # ids, mask, segments
        if lengths is not None and (len(lengths) != count or lengths.min() < 0 or lengths.max() > most):
            raise ValueError(f"{origin}: {name}_lengths must be {count} numbers from 0 to {most}")
        found.append(lengths)
    return found
