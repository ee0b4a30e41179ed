"""Utterances as text, audio and vision feature sequences, with a sentiment score for regression."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from mvcl.data._prepared import Conversion, Item, Preparer, open_prepared
from mvcl.data._splits import ExampleSpec, Outline, Split
from mvcl.data._utterances import VIEWS, read_files, read_raw

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

    def _name(self) -> str:
        return f"sentiment_{self.dataset}"

    def _conversion(self) -> Conversion:
        features = dict(zip(VIEWS, (self.text, self.audio, self.vision)))
        if bool(self.source) == bool(self.labels) or (self.source and any(features.values())):
            raise ValueError("give --source, or --labels with --text, --audio and --vision")
        most = self.max_length or _PUBLISHED[self.dataset][1]
        if len(most) != len(VIEWS) or min(most) < 1:
            raise ValueError(f"--max-length must be 3 positive numbers, got {self.max_length}")
        if self.labels:
            splits = read_files(Path(self.labels), features, self.dataset, self.allow_pickle)
        else:
            splits = read_raw(Path(self.source), self.allow_pickle, self.dataset)
        parts = {
            f"{name}-{start:06d}": (name, range(start, min(start + BLOCK, len(split.labels))))
            for name, split in splits.items()
            for start in range(0, len(split.labels), BLOCK)
        }

        def read(name: str) -> Item:
            part, rows = parts[name]
            split = splits[part]
            cuts = [[shortened(cut, t) for cut, t in zip(split.cuts(row), most)] for row in rows]
            views = [np.concatenate(view) for view in zip(*cuts)]  # of all rows of the block
            facts = {
                "split": part,
                "labels": split.labels[rows].tolist(),
                "ids": None if split.ids is None else [split.ids[row] for row in rows],
                "lengths": [[len(cut) for cut in record] for record in cuts],
                "sums": [view.sum(0, dtype=np.float64).tolist() for view in views],
                "squares": [np.square(view, dtype=np.float64).sum(0).tolist() for view in views],
            }
            return [b"".join(cut.astype("<f4").tobytes() for cut in record) for record in cuts], facts

        settings = {"dataset": self.dataset, "shapes": list(zip(most, splits["train"].widths))}
        return settings, list(parts), read, 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sentiment:
    """Multimodal sentiment, CMU-MOSEI or CH-SIMS: text, audio and vision of an utterance, each a sequence of feature
    vectors, and a sentiment score. Sequences are padded with rows of NaN to the length of the longest."""

    path: str = ""
    """A folder written by `mvcl data prepare sentiment`; empty: its default output folder."""
    dataset: Dataset = "mosei"
    """Data set, which fixes the range of the scores: mosei [-3, 3], chsims [-1, 1]."""
    standardize: bool = True
    """Standardise each feature to mean 0 and deviation 1 over the training split."""

    def open(self) -> dict[str, Split]:
        """The splits `train`, `valid` (if there is one) and `test`."""
        with open_prepared(self.path, f"sentiment_{self.dataset}") as prepared:
            items, split_of = prepared.items, prepared.of_records("split").astype(str)
            if (found := prepared.settings["dataset"]) != self.dataset:
                raise ValueError(f"it was prepared for {found}, but data.dataset is {self.dataset}")
            if missing := {"train", "test"} - set(split_of):
                raise ValueError(f"it has no split {min(missing)}")
            labels = prepared.of_records("labels").astype(np.float32)
            most, widths = np.asarray(prepared.settings["shapes"], np.int64).reshape(len(VIEWS), 2).T
            lengths = np.asarray([length for item in items for length in item["lengths"]], np.int64)
            if lengths.shape != (len(labels), len(VIEWS)) or (lengths < 0).any() or (lengths > most).any():
                raise ValueError("its lengths are out of range")
            moments = _moments([item for item in items if item["split"] == "train"], widths)
            groups = None
            if all(item["ids"] is not None for item in items):
                # MMSA joins video and clip by `$_$`, CH-SIMS by `/`.
                videos = [str(one).split("$_$")[0].split("/")[0] for item in items for one in item["ids"]]
                groups = np.unique(videos, return_inverse=True)[1].astype(np.int32)
                if len(groups) != len(labels):
                    raise ValueError(f"it needs an id for each of {len(labels)} utterances")
        shapes = tuple(zip(lengths.max(0, initial=1).tolist(), widths.tolist()))

        def read(row: int, epoch: int) -> tuple[np.ndarray, ...]:
            sizes = lengths[row] * widths
            flat = np.frombuffer(prepared.read(row, 4 * sizes.sum()), "<f4")
            found = []
            for cut, shape, (shift, scale) in zip(np.split(flat, np.cumsum(sizes)[:-1]), shapes, moments):
                cut = cut.reshape(-1, shape[1])
                found.append(np.full(shape, np.nan, np.float32))
                found[-1][: len(cut)] = (cut - shift) / scale if self.standardize else cut
            return tuple(found)

        spec = ExampleSpec(shapes, VIEWS, given=True)
        whole = Split(labels, (), spec, read, present=lengths > 0, groups=groups)
        names = [name for name in ("train", "valid", "test") if name in split_of]
        return {name: whole.only(np.flatnonzero(split_of == name)) for name in names}

    def expected(self) -> Outline:
        """The published size of the training split, with the features of Koromilas 2025: BERT, HuBERT and CLIP."""
        size, longest = _PUBLISHED[self.dataset]
        return Outline(size, 0, ExampleSpec(tuple(zip(longest, _WIDTHS)), VIEWS, given=True))


def shortened(sequence: np.ndarray, most: int) -> np.ndarray:
    """(t, d) to at most `most` rows: means of groups of ceil(t / most) neighbouring rows, the last group smaller."""
    group = -(-len(sequence) // most)
    if group <= 1:
        return sequence
    starts = np.arange(0, len(sequence), group)
    sums = np.add.reduceat(sequence, starts, axis=0, dtype=np.float64)
    return (sums / np.diff(starts, append=len(sequence))[:, None]).astype(sequence.dtype)


def _moments(items: Sequence[Mapping[str, Any]], widths: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """Mean and deviation of each view's features, float32; the deviation of a constant feature is 1."""
    found = []
    counts = np.sum([length for item in items for length in item["lengths"]], axis=0)
    for v, (count, width) in enumerate(zip(counts, widths)):
        sums, squares = (
            np.sum([item[of][v] for item in items], axis=0).reshape(width) for of in ("sums", "squares")
        )
        mean = sums / max(count, 1)
        variance = squares / max(count, 1) - mean**2
        changes = variance > 1e-12 * (1 + mean**2)  # smaller variances are rounding errors
        deviation = np.sqrt(np.where(changes, variance, 1))
        found.append((mean.astype(np.float32), deviation.astype(np.float32)))
    return found
