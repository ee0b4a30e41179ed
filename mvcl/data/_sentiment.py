"""Utterances as text, audio and vision feature sequences, with a sentiment score for regression."""

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from mvcl import _files
from mvcl.data._prepared import Item, convert, open_prepared
from mvcl.data._splits import ExampleSpec, Outline, Split

VIEWS = ("text", "audio", "vision")
Dataset = Literal["mosei", "chsims"]
# Training utterances; then the longest sequences of the files that MMSA publishes.
_PUBLISHED: dict[str, tuple[int, tuple[int, int, int]]] = {
    "mosei": (16_326, (50, 500, 500)),
    "chsims": (1_368, (39, 400, 55)),
}
# BERT base, HuBERT large, CLIP ViT-L/14's projection.
_WIDTHS = (768, 1024, 768)
BLOCK = 256  # utterances that are converted together
_SPLITS = {"train": "train", "valid": "valid", "val": "valid", "dev": "valid", "test": "test"}
_RANGE = {"mosei": 3.0, "chsims": 1.0}  # scores are in [-3, 3] and [-1, 1]
_COLUMNS = ("name", "split", "label")


@dataclasses.dataclass(frozen=True, kw_only=True)
class PrepareSentiment:
    """Write utterances as ArrayRecord files, without padding; later reads are by row and need no pickle."""

    directory: str | None = None
    """Folder to write; None: mvcl_sentiment_DATASET under TFDS_DATA_DIR or ~/tensorflow_datasets."""
    labels: str = ""
    """Table of the utterances: a .csv with the columns name, split and label."""
    text: str = ""
    """Folder of text features, NAME.npy for each utterance or a folder NAME of frames, or an .npz with arrays NAME."""
    audio: str = ""
    """The same for audio."""
    vision: str = ""
    """The same for vision."""
    max_length: tuple[int, ...] = ()
    """Longest sequences of text, audio and vision; neighbouring rows of longer ones are averaged. Empty: (50, 500, 500)
    for mosei, (39, 400, 55) for chsims, the lengths of MMSA's files."""
    dataset: Dataset = "mosei"
    """Data set, which fixes the range of the scores: mosei [-3, 3], chsims [-1, 1]."""

    def run(self) -> Path:
        """Write the folder and return it; it may be in a bucket."""
        most = self.max_length or _PUBLISHED[self.dataset][1]
        if len(most) != len(VIEWS) or min(most) < 1:
            raise ValueError(f"--max-length must be 3 positive numbers, got {self.max_length}")
        splits = _scores(Path(self.labels), self.dataset)
        every = [name for part in splits.values() for name in part]
        widths, readers = zip(*(_features(view, getattr(self, view), every) for view in VIEWS))
        parts = {
            f"{split}-{start:06d}": (split, list(part)[start : start + BLOCK])
            for split, part in splits.items()
            for start in range(0, len(part), BLOCK)
        }

        def read(block: str) -> Item:
            split, names = parts[block]
            cuts = [[shortened(of(name), t) for of, t in zip(readers, most)] for name in names]
            views = [np.concatenate(view) for view in zip(*cuts)]  # of all rows of the block
            facts = {
                "split": split,
                "labels": [splits[split][name] for name in names],
                # VIDEO_CLIP as MMSA writes it, VIDEO$_$CLIP
                "ids": [re.sub(r"(?<=.)_(?=\d+$)", "$_$", name) for name in names],
                "lengths": [[len(cut) for cut in record] for record in cuts],
                "sums": [view.sum(0, dtype=np.float64).tolist() for view in views],
                "squares": [np.square(view, dtype=np.float64).sum(0).tolist() for view in views],
            }
            return [b"".join(cut.astype("<f4").tobytes() for cut in record) for record in cuts], facts

        settings = {"dataset": self.dataset, "shapes": list(zip(most, widths))}
        return convert(self.directory, f"sentiment_{self.dataset}", settings, list(parts), read)


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
            labels = prepared.labels.astype(np.float32)
            most, widths = np.asarray(prepared.settings["shapes"], np.int64).reshape(len(VIEWS), 2).T
            lengths = np.asarray([length for item in items for length in item["lengths"]], np.int64)
            if lengths.shape != (len(labels), len(VIEWS)) or (lengths < 0).any() or (lengths > most).any():
                raise ValueError("its lengths are out of range")
            moments = _moments([item for item in items if item["split"] == "train"], widths)
            videos = [str(one).split("$_$")[0] for item in items for one in item["ids"]]
            groups = np.unique(videos, return_inverse=True)[1].astype(np.int32)
            if len(groups) != len(labels):
                raise ValueError(f"it needs an id for each of {len(labels)} utterances")
        shapes = tuple(zip(lengths.max(0, initial=1).tolist(), widths.tolist()))

        def read(row: int, epoch: int) -> tuple[np.ndarray, ...]:
            sizes = lengths[row] * widths
            flat = np.frombuffer(prepared.read(row, 4 * sizes.sum()), "<f4")
            views = tuple(np.full(shape, np.nan, np.float32) for shape in shapes)
            for view, cut, (shift, scale) in zip(views, np.split(flat, np.cumsum(sizes)[:-1]), moments):
                cut = cut.reshape(-1, view.shape[1])
                view[: len(cut)] = (cut - shift) / scale if self.standardize else cut
            return views

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
        both = (np.sum([item[of][v] for item in items], axis=0) for of in ("sums", "squares"))
        mean, square = (of.reshape(width) / max(count, 1) for of in both)
        variance = square - mean**2
        deviation = np.sqrt(np.where(variance > 1e-12 * (1 + mean**2), variance, 1))  # else a rounding error
        found.append((mean.astype(np.float32), deviation.astype(np.float32)))
    return found


def _scores(path: Path, dataset: str) -> dict[str, dict[str, float]]:
    """The score of each utterance by name, by split; train first. `ValueError` if the table lacks something."""
    found: dict[str, dict[str, float]] = {}
    with _files.reading(path, "table of utterances (--labels, a .csv)"):
        every = lambda column: True  # noqa: E731  # further fields of a row are no error
        table = pd.read_csv(path, dtype=str, index_col=False, keep_default_na=False, usecols=every).fillna("")
        if lacking := [name for name in _COLUMNS if name not in table]:
            raise ValueError(f"it lacks the column {lacking[0]}; it has {', '.join(table)}")
        for name, split, score in table[list(_COLUMNS)].itertuples(index=False):
            if split not in _SPLITS:
                raise ValueError(f"the split of {name!r} must be one of {', '.join(_SPLITS)}, got {split!r}")
            if not name or Path(name).name != name or any(name in part for part in found.values()):
                raise ValueError(f"name {name!r} must be a file name without a folder, and there once")
            bound, number = _RANGE[dataset], float(np.float32(score))
            if not abs(number) <= bound + 1e-3:  # NaN too
                ends = f"[{-bound}, {bound}] for {dataset}"
                raise ValueError(f"the label of {name} must be in {ends}, got {number}")
            found.setdefault(_SPLITS[split], {})[name] = number
        if missing := [name for name in ("train", "test") if name not in found]:
            raise ValueError(f"it has no split {missing[0]}; it has {', '.join(found) or 'nothing'}")
        return {name: found[name] for name in ("train", "valid", "test") if name in found}


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
