"""Utterances as text, audio and vision feature sequences, with a sentiment score for regression."""

import dataclasses
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from mvcl import _buckets, _files, _progress
from mvcl.data._prepared import Item, Preparer, blocks, data_root, is_prepared, open_prepared, write_shards
from mvcl.data._splits import ExampleSpec, Outline, Split
from mvcl.data._utterances import VIEWS, Cuts, Utterances, read_files, read_raw

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
class PrepareSentiment(Preparer):
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

    def _kind(self) -> tuple[str, Path]:
        return "sentiment", _default(self.dataset)

    def _write(self, directory: Path) -> None:
        features = dict(zip(VIEWS, (self.text, self.audio, self.vision)))
        if bool(self.source) == bool(self.labels) or (self.source and any(features.values())):
            raise ValueError("give --source, or --labels with --text, --audio and --vision")
        if self.labels:
            splits = read_files(Path(self.labels), features, self.dataset, self.allow_pickle)
        else:
            splits = read_raw(Path(self.source), self.allow_pickle, self.dataset)
        most = self.max_length or _PUBLISHED[self.dataset][1]
        if len(most) != len(VIEWS) or min(most) < 1:
            raise ValueError(f"--max-length must be 3 positive numbers, got {self.max_length}")
        parts = blocks({name: len(split.labels) for name, split in splits.items()}, BLOCK)

        def read(name: str) -> Item:
            part, rows = parts[name]
            cuts, facts = _converted(splits[part], part, rows, most)
            return [b"".join(cut.astype("<f4").tobytes() for cut in record) for record in cuts], facts, []

        settings = {"dataset": self.dataset, "shapes": _shapes(splits, most)}
        write_shards(directory, "sentiment", settings, list(parts), read, per_shard=4, unit="block")


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
        whole = bool(self.path) and not is_prepared(path)
        if whole:
            items, shapes, cuts = _in_memory(read_raw(path, self.allow_pickle, self.dataset))
        else:
            items, shapes, cuts = _open_prepared(path, self.dataset)
        of_record = np.repeat([item["split"] for item in items], [len(item["labels"]) for item in items])
        names = [name for name in ("train", "valid", "test") if name in of_record]
        parts = {name: [item for item in items if item["split"] == name] for name in names}
        moments = _moments(parts["train"])
        # MMSA joins video and clip by `$_$`, CH-SIMS by `/`.
        videos = {
            name: [str(one).split("$_$")[0].split("/")[0] for item in part for one in item["ids"]]
            for name, part in parts.items()
            if all(item["ids"] is not None for item in part)
        }
        every = np.unique([video for of_part in videos.values() for video in of_part])

        spec = ExampleSpec(shapes, VIEWS, given=True)

        def opened(name: str) -> Split:
            rows = np.flatnonzero(of_record == name)

            def read(row: int, epoch: int) -> tuple[np.ndarray, ...]:
                found = []
                for cut, shape, (shift, scale) in zip(cuts(int(rows[row])), shapes, moments):
                    found.append(np.full(shape, np.nan, np.float32))
                    found[-1][: len(cut)] = (cut - shift) / scale if self.standardize else cut
                return tuple(found)

            labels = np.asarray([one for item in parts[name] for one in item["labels"]], np.float32)
            lengths = np.asarray([one for item in parts[name] for one in item["lengths"]])
            present = None if lengths.all() else lengths > 0
            groups = np.searchsorted(every, videos[name]).astype(np.int32) if name in videos else None
            split = Split(labels, (), spec, read, present=present, groups=groups)
            return dataclasses.replace(split, arrays=split.take(np.arange(len(split)))) if whole else split

        return {name: opened(name) for name in names}

    def expected(self) -> Outline:
        """The published size of the training split, with the features of Koromilas 2025: BERT, HuBERT and CLIP."""
        size, longest = _PUBLISHED[self.dataset]
        return Outline(size, 0, ExampleSpec(tuple(zip(longest, _WIDTHS)), VIEWS, given=True))


def _default(dataset: Dataset) -> Path:
    return data_root(None) / f"mvcl_sentiment_{dataset}"


def _shapes(splits: Mapping[str, Utterances], most: Sequence[int]) -> list[tuple[int, int]]:
    """Of each view (time, d), padded."""
    longest = [max(split.longest[v] for split in splits.values()) for v in range(len(VIEWS))]
    return list(zip(map(min, longest, most), splits["train"].widths))


def _converted(
    split: Utterances, name: str, rows: range, most: Sequence[int]
) -> tuple[list[list[np.ndarray]], dict[str, Any]]:
    """Sequences of some rows, and the facts about them; sums and squares are over all rows of all sequences."""
    cuts = [[shortened(cut, t) for cut, t in zip(split.cuts(row), most)] for row in rows]
    views = [np.concatenate(view) for view in zip(*cuts)]
    return cuts, {
        "split": name,
        "labels": split.labels[rows.start : rows.stop].tolist(),
        "ids": None if split.ids is None else list(split.ids[rows.start : rows.stop]),
        "lengths": [[len(cut) for cut in record] for record in cuts],
        "sums": [view.sum(0, dtype=np.float64).tolist() for view in views],
        "squares": [np.square(view, dtype=np.float64).sum(0).tolist() for view in views],
    }


Opened = tuple[Sequence[Mapping[str, Any]], tuple[tuple[int, ...], ...], Cuts]
"""Facts of blocks of utterances, padded shapes of the views, and the sequences of each utterance of all blocks."""


def _in_memory(splits: dict[str, Utterances]) -> Opened:
    most = (sys.maxsize,) * len(VIEWS)
    tracked = _progress.track(splits.items(), "reading utterances", len(splits), "splits")
    found = [_converted(split, name, range(len(split.labels)), most) for name, split in tracked]
    cuts = [cut for of_split, _ in found for cut in of_split]
    return [facts for _, facts in found], tuple(_shapes(splits, most)), cuts.__getitem__


def _open_prepared(path: Path, dataset: str) -> Opened:
    prepared = open_prepared(path, "sentiment")
    with _files.reading(path / "manifest.json", "manifest of sentiment data"):
        if (found := prepared.settings["dataset"]) != dataset:
            raise ValueError(f"it was prepared for {found}, but data.dataset is {dataset}")
        times, widths = np.asarray(prepared.settings["shapes"], np.int64).reshape(len(VIEWS), 2).T
        items = []
        for item in prepared.items:
            if item["ids"] is not None and len(item["ids"]) != item["count"]:
                raise ValueError(f"{item['name']} needs an id for each of {item['count']} records")
            facts = {**item, "labels": np.asarray(item["labels"], np.float32).reshape(-1)}
            facts["lengths"] = np.asarray(item["lengths"], np.int64).reshape(item["count"], len(VIEWS))
            for of in ("sums", "squares"):
                facts[of] = [np.asarray(item[of][v], np.float64).reshape(d) for v, d in enumerate(widths)]
            items.append(facts)
        lengths = np.concatenate([item["lengths"] for item in items])
        if (lengths < 0).any() or (lengths > times).any():
            raise ValueError("its lengths are out of range")
        if missing := {"train", "test"} - {item["split"] for item in items}:
            raise ValueError(f"it has no split {min(missing)}")

    def cuts(row: int) -> list[np.ndarray]:
        sizes = lengths[row] * widths
        flat = np.split(np.frombuffer(prepared.read(row, 4 * sizes.sum()), "<f4"), np.cumsum(sizes)[:-1])
        return [one.reshape(-1, width) for one, width in zip(flat, widths)]

    return items, tuple(zip(times.tolist(), widths.tolist())), cuts


def shortened(sequence: np.ndarray, most: int) -> np.ndarray:
    """(t, d) to at most `most` rows: means of groups of ceil(t / most) neighbouring rows, the last group smaller."""
    group = -(-len(sequence) // most)
    if group <= 1:
        return sequence
    starts = np.arange(0, len(sequence), group)
    sums = np.add.reduceat(sequence, starts, axis=0, dtype=np.float64)
    return (sums / np.diff(starts, append=len(sequence))[:, None]).astype(sequence.dtype)


def _moments(items: Sequence[Mapping[str, Any]]) -> list[tuple[np.ndarray, np.ndarray]]:
    """Mean and deviation of each view's features, float32; the deviation of a constant feature is 1."""
    found = []
    counts = np.sum([length for item in items for length in item["lengths"]], axis=0)
    for v, count in enumerate(counts):
        sums, squares = (np.sum([item[of][v] for item in items], axis=0) for of in ("sums", "squares"))
        mean = sums / max(count, 1)
        variance = squares / max(count, 1) - mean**2
        changes = variance > 1e-12 * (1 + mean**2)  # smaller variances are rounding errors
        deviation = np.sqrt(np.where(changes, variance, 1))
        found.append((mean.astype(np.float32), deviation.astype(np.float32)))
    return found
