"""Utterances as text, audio and vision feature sequences, with a sentiment score for regression."""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from mvcl import _buckets, _files, _progress
from mvcl.data._prepared import Item, blocks, data_root, is_prepared, open_prepared, prepare, write_shards
from mvcl.data._splits import CorruptExample, ExampleSpec, Outline, Split, in_memory
from mvcl.data._utterances import VIEWS, Utterances, read_files, read_raw

Dataset = Literal["mosei", "chsims"]
# Training utterances; then the longest sequences of the files that MMSA publishes, unaligned_50.pkl of CMU-MOSEI and
# unaligned_39.pkl of CH-SIMS.
_PUBLISHED: dict[str, tuple[int, tuple[int, int, int]]] = {
    "mosei": (16_326, (50, 500, 500)),
    "chsims": (1_368, (39, 400, 55)),
}
# BERT base, HuBERT large, CLIP ViT-L/14's projection.
_WIDTHS = (768, 1024, 768)
BLOCK = 256  # utterances that are converted together


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

    def run(self) -> Path:
        """Write the folder and return it."""
        return prepare(self.directory or _default(self.dataset), "sentiment", self._write, verify=self.verify)

    def _write(self, directory: Path) -> None:
        splits = self._read()
        most = self.max_length or _PUBLISHED[self.dataset][1]
        if len(most) != len(VIEWS) or min(most) < 1:
            raise ValueError(f"--max-length must be 3 positive numbers, got {self.max_length}")
        parts = blocks({name: len(split.labels) for name, split in splits.items()}, BLOCK)

        def read(name: str) -> Item:
            part, rows = parts[name]
            split = splits[part]
            cuts = [[shortened(cut, t) for cut, t in zip(split.cuts(row), most)] for row in rows]
            sums, squares = _sums(cuts)
            facts = {
                "split": part,
                "labels": split.labels[rows.start : rows.stop].tolist(),
                "ids": None if split.ids is None else list(split.ids[rows.start : rows.stop]),
                "lengths": [[len(cut) for cut in record] for record in cuts],
                "sums": [one.tolist() for one in sums],
                "squares": [one.tolist() for one in squares],
            }
            return Item([b"".join(cut.astype("<f4").tobytes() for cut in record) for record in cuts], facts)

        longest = [min(max(split.longest[v] for split in splits.values()), t) for v, t in enumerate(most)]
        shapes = [list(pair) for pair in zip(longest, splits["train"].widths)]
        settings = {"dataset": self.dataset, "shapes": shapes}
        write_shards(directory, "sentiment", settings, list(parts), read, per_shard=4, unit="block")

    def _read(self) -> dict[str, Utterances]:
        features = dict(zip(VIEWS, (self.text, self.audio, self.vision)))
        if bool(self.source) == bool(self.labels) or (self.source and any(features.values())):
            raise ValueError("give --source, or --labels with --text, --audio and --vision")
        if self.labels:
            return read_files(Path(self.labels), features, self.dataset, self.allow_pickle)
        return read_raw(Path(self.source), self.allow_pickle, self.dataset)


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

    def open(self) -> dict[str, Split]:
        """The splits `train`, `valid` (if there is one) and `test`."""
        path = _buckets.local_copy(self.path or _default(self.dataset))
        prepared = not self.path or is_prepared(path)
        if prepared:
            shapes, parts = _prepared_parts(path, self.dataset)
        else:
            shapes, parts = _raw_parts(read_raw(path, self.allow_pickle, self.dataset))
        train, groups = parts["train"], _groups([part.ids for part in parts.values()])
        moments = [
            _moments(int(train.lengths[:, v].sum()), train.sums[v], train.squares[v])
            for v in range(len(VIEWS))
        ]

        def opened(part: _Part, groups: np.ndarray | None) -> Split:
            def read(row: int, epoch: int) -> tuple[np.ndarray, ...]:
                cuts = part.read(row)
                if self.standardize:
                    cuts = [(cut - shift) / scale for cut, (shift, scale) in zip(cuts, moments)]
                return tuple(_padded(cut, *shape) for cut, shape in zip(cuts, shapes))

            present = None if (part.lengths > 0).all() else part.lengths > 0
            spec = ExampleSpec(shapes, VIEWS, given=True)
            split = Split(part.labels, (), spec, read, present=present, groups=groups)
            if prepared:
                return split
            arrays = split.take(np.arange(len(split)))
            fields: dict[str, Any] = {
                "view_names": VIEWS,
                "given": True,
                "present": present,
                "groups": groups,
            }
            return in_memory(arrays, part.labels, (), **fields)

        return {name: opened(part, group) for (name, part), group in zip(parts.items(), groups)}

    def expected(self) -> Outline:
        """The published size of the training split, with the features of Koromilas 2025: BERT, HuBERT and CLIP."""
        size, longest = _PUBLISHED[self.dataset]
        return Outline(size, 0, ExampleSpec(tuple(zip(longest, _WIDTHS)), VIEWS, given=True))


def _default(dataset: Dataset) -> Path:
    return data_root(None) / f"mvcl_sentiment_{dataset}"


@dataclasses.dataclass(frozen=True)
class _Part:
    """A split, as it is read.

    Attributes:
      labels: (n,) scores.
      lengths: (n, 3) rows of text, audio and vision.
      sums, squares: of each view, over all rows of all its sequences.
      ids: of its utterances, if the raw file had any.
      read: row -> its sequences, (t, d) each.
    """

    labels: np.ndarray
    lengths: np.ndarray
    sums: Sequence[np.ndarray]
    squares: Sequence[np.ndarray]
    ids: Sequence[str] | None
    read: Callable[[int], list[np.ndarray]]


def _raw_parts(splits: dict[str, Utterances]) -> tuple[tuple[tuple[int, int], ...], dict[str, _Part]]:
    """Shapes of the padded views, and the splits of a raw file."""
    longest = [max(split.longest[v] for split in splits.values()) for v in range(len(VIEWS))]
    parts = {}
    for name, split in splits.items():
        rows = _progress.track(range(len(split.labels)), f"reading {name}", len(split.labels), "utterances")
        cuts = [split.cuts(row) for row in rows]
        lengths = np.asarray([[len(cut) for cut in record] for record in cuts])
        parts[name] = _Part(split.labels, lengths, *_sums(cuts), split.ids, cuts.__getitem__)
    return tuple(zip(longest, splits["train"].widths)), parts


def _prepared_parts(path: Path, dataset: str) -> tuple[tuple[tuple[int, int], ...], dict[str, _Part]]:
    """Shapes of the padded views, and the splits of a prepared folder."""
    prepared = open_prepared(path, "sentiment")
    with _files.reading(path / "manifest.json", "manifest of sentiment data"):
        if (found := prepared.settings["dataset"]) != dataset:
            raise ValueError(f"it was prepared for {found}, but data.dataset is {dataset}")
        (time, widths) = np.asarray(prepared.settings["shapes"], np.int64).reshape(len(VIEWS), 2).T
        split_of = np.repeat([i["split"] for i in prepared.items], [i["count"] for i in prepared.items])

        def part(name: str) -> _Part:
            items = [item for item in prepared.items if item["split"] == name]
            rows = np.flatnonzero(split_of == name)
            lengths = np.asarray([one for item in items for one in item["lengths"]], np.int64)
            labels = np.asarray([one for item in items for one in item["labels"]], np.float32)
            ids = None
            if all(item["ids"] is not None for item in items):
                ids = [str(one) for item in items for one in item["ids"]]
            if {len(labels), len(lengths), len(labels if ids is None else ids)} != {len(rows)}:
                raise ValueError(f"{name} needs a label, an id and lengths for {len(rows)} records")
            if (
                labels.ndim != 1
                or lengths.shape[1:] != time.shape
                or (lengths < 0).any()
                or (lengths > time).any()
            ):
                raise ValueError(f"the labels or lengths of {name} are out of range")
            sums, squares = (
                [np.sum([item[of][v] for item in items], axis=0).reshape(d) for v, d in enumerate(widths)]
                for of in ("sums", "squares")
            )

            def read(row: int) -> list[np.ndarray]:
                raw, sizes = prepared.read(int(rows[row])), lengths[row] * widths
                if len(raw) != 4 * sizes.sum():
                    raise CorruptExample(
                        f"{prepared.name(int(rows[row]))} has {len(raw)} bytes, but its manifest.json states sequences "
                        f"of {lengths[row].tolist()} rows of {widths.tolist()} numbers"
                    )
                flat = np.split(np.frombuffer(raw, "<f4"), np.cumsum(sizes)[:-1])
                return [one.reshape(-1, width) for one, width in zip(flat, widths)]

            return _Part(labels, lengths, sums, squares, ids, read)

        names = [name for name in ("train", "valid", "test") if (split_of == name).any() or name != "valid"]
        return tuple(zip(time.tolist(), widths.tolist())), {name: part(name) for name in names}


def _sums(cuts: Sequence[Sequence[np.ndarray]]) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Sums and sums of squares of each view over all rows of all utterances, in double precision."""
    views = [np.concatenate(view) for view in zip(*cuts)]
    return (
        [view.sum(0, dtype=np.float64) for view in views],
        [np.square(view, dtype=np.float64).sum(0) for view in views],
    )


def shortened(sequence: np.ndarray, most: int) -> np.ndarray:
    """(t, d) to at most `most` rows: means of groups of ceil(t / most) neighbouring rows, the last group smaller."""
    group = -(-len(sequence) // most)
    if group <= 1:
        return sequence
    starts = np.arange(0, len(sequence), group)
    sums = np.add.reduceat(sequence, starts, axis=0, dtype=np.float64)
    return (sums / np.diff(starts, append=len(sequence))[:, None]).astype(sequence.dtype)


def _moments(count: int, sums: np.ndarray, squares: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and deviation, float32; the deviation of a constant feature is 1."""
    mean = np.asarray(sums) / max(count, 1)
    variance = np.asarray(squares) / max(count, 1) - mean**2
    changes = variance > 1e-12 * (1 + mean**2)  # smaller variances are rounding errors
    deviation = np.sqrt(np.where(changes, variance, 1))
    return mean.astype(np.float32), deviation.astype(np.float32)


def _padded(cut: np.ndarray, time: int, width: int) -> np.ndarray:
    out = np.full((time, width), np.nan, np.float32)
    out[: len(cut)] = cut
    return out


def _groups(ids: Sequence[Sequence[str] | None]) -> list[np.ndarray | None]:
    """Video number of each utterance, over all splits; MMSA joins video and clip by `$_$`, CH-SIMS by `/`."""
    videos = [None if part is None else [i.split("$_$")[0].split("/")[0] for i in part] for part in ids]
    number = {v: i for i, v in enumerate(sorted({v for part in videos if part is not None for v in part}))}
    return [None if part is None else np.asarray([number[v] for v in part], np.int32) for part in videos]
