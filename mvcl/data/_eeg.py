"""Sleep EEG in scored windows of 30 seconds; each channel is a view."""

import dataclasses
import importlib
import math
import warnings
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

import numpy as np

from mvcl import _checks, _lazy
from mvcl.data._prepared import Item, convert, open_prepared
from mvcl.data._splits import ExampleSpec, Outline, Split, decoding

STAGES = ("W", "N1", "N2", "N3", "R")
"""The sleep stages, by their label."""
SECONDS = 30
_CLIP = 20.0
# Stages 3 and 4 of Rechtschaffen and Kales are one stage in the manual of 2007. Unknown and movement are dropped.
_STAGE_OF = {name: i for i, name in enumerate(STAGES)} | {
    f"Sleep stage {name}": i for name, i in (("W", 0), ("1", 1), ("2", 2), ("3", 3), ("4", 3), ("R", 4))
}
CHANNELS: dict[str, tuple[str, ...]] = {
    "physionet2018": ("F3-M2", "F4-M1", "C3-M2", "C4-M1", "O1-M2", "O2-M1"),
    "sleep_edfx": ("EEG Fpz-Cz", "EEG Pz-Oz"),
}
Recording = tuple[np.ndarray, float, list[tuple[float, float, str]]]
"""Signals (channels, samples) in microvolt, NaN where the recorder gave no value; samples per second; (start, end,
name) of each scored interval, in seconds, in order."""


class UnknownChannel(ValueError):
    """A recording lacks a requested channel. Not a `CorruptExample`: other recordings lack it too."""


def windows(recording: Recording, rate: int, wake_minutes: float) -> tuple[np.ndarray, np.ndarray, int]:
    """Cut a recording into its scored windows of 30 s.

    Each channel is resampled by a polyphase filter, then scaled over the whole recording:
    (x - median) / (interquartile range / 1.349), which gives a normal signal unit deviation and is robust to artefacts;
    the result is clipped to 20. Windows start at the start of each scored interval; a remainder below 30 s is dropped,
    and so is a window that exceeds the recording, has a missing sample or a constant channel. Of the wake time before
    the first and after the last sleep, `wake_minutes` are kept.

    Returns:
      (n, channels, 30 rate) float32, (n,) int32 stages, and the number of scored windows dropped for their samples.

    Raises:
      ValueError: a channel is constant or empty, nothing is scored, or no window is complete.
    """
    signals, recorded, intervals = recording
    whole = np.stack([_scaled(signal, recorded, rate) for signal in signals])
    seconds, length = whole.shape[1] / rate, SECONDS * rate
    scored: list[tuple[int, int]] = []  # first sample and stage
    dropped = 0
    for first, last, name in intervals:
        if (stage := _STAGE_OF.get(name)) is not None:
            count = int((last - first) / SECONDS + 1e-6)
            # A damaged scoring may have any interval: only windows that start inside the recording.
            before, end = max(0, math.ceil(-first / SECONDS)), math.ceil((seconds - first) / SECONDS)
            inside = range(before, min(count, end))
            scored += [(round((first + SECONDS * i) * rate), stage) for i in inside]
            dropped += max(count, 0) - len(inside)
    if not scored:
        raise ValueError(f"no window of {SECONDS} s is scored as one of {', '.join(STAGES)}")
    if asleep := [start for start, stage in scored if stage]:
        margin = wake_minutes * 60 * rate
        scored = [one for one in scored if asleep[0] - margin <= one[0] <= asleep[-1] + margin]
    cut, stages = [], []
    for start, stage in scored:
        window = whole[:, start : start + length]
        if window.shape[1] == length and np.isfinite(window).all() and (np.ptp(window, 1) > 0).all():
            cut.append(window)
            stages.append(stage)
    dropped += len(scored) - len(cut)
    if not cut:
        raise ValueError(f"none of its {dropped} windows is complete")
    return np.stack(cut), np.asarray(stages, np.int32), dropped


def _scaled(signal: np.ndarray, rate: float, wanted: int) -> np.ndarray:
    """A channel, resampled and scaled, float32."""
    from scipy.signal import resample_poly

    ratio = Fraction(wanted) / Fraction(rate).limit_denominator(1000)
    if max(ratio.numerator, ratio.denominator) > 100_000:  # a filter has 20 times as many coefficients
        raise ValueError(f"{rate} Hz cannot be resampled to {wanted} Hz, a ratio of {ratio}")
    if ratio != 1:
        # Polyphase: the Fourier method treats the signal as periodic.
        signal = resample_poly(signal.astype(np.float64), ratio.numerator, ratio.denominator)
    known = signal[np.isfinite(signal)]
    low, middle, high = np.percentile(known, (25, 50, 75)) if len(known) else (0.0, 0.0, 0.0)
    if not high > low:
        raise ValueError("a channel is constant")
    return ((signal - middle) / ((high - low) / 1.349)).clip(-_CLIP, _CLIP).astype(np.float32)


def read_physionet2018(path: Path, channels: Sequence[str]) -> Recording:
    """PATH.hea, PATH.mat and PATH.arousal, in WFDB's format; a stage lasts until the next one starts."""
    wfdb = _library("wfdb")
    there = wfdb.rdheader(str(path)).sig_name or []
    numbers = [_number(channel, there, f"{path}.hea") for channel in channels]
    record = wfdb.rdrecord(str(path), channels=numbers, return_res=32)
    signals, rate = np.asarray(record.p_signal, np.float32).T, float(record.fs)
    found = wfdb.rdann(str(path), "arousal")
    marks = [(int(at) / rate, note.strip("\x00 ")) for at, note in zip(found.sample, found.aux_note)]
    # Arousals, '(…' and '…)', are annotated between stages and do not end one.
    stages = [(at, note) for at, note in marks if note in _STAGE_OF or note in ("U", "?")]
    ends = [at for at, _ in stages[1:]] + [signals.shape[1] / rate]
    return signals, rate, [(at, end, note) for (at, note), end in zip(stages, ends)]


def read_sleep_edfx(path: Path, channels: Sequence[str]) -> Recording:
    """The signals PATH (…-PSG.edf) with its hypnogram, whose file name has the same first 7 letters."""
    mne = _library("mne")
    hypnograms = sorted(path.parent.glob(f"{path.name[:7]}*-Hypnogram.edf"))
    if len(hypnograms) != 1:
        raise ValueError(f"it has {len(hypnograms)} hypnograms {path.name[:7]}*-Hypnogram.edf in its folder")
    there = _edf_channels(path)
    for channel in channels:
        _number(channel, there, str(path))
    # Read only these: mne resamples all channels to the highest rate.
    raw = mne.io.read_raw_edf(path, include=list(channels), stim_channel=None, verbose="ERROR")
    signals = np.empty((len(channels), raw.n_times), np.float32)
    for row, channel in zip(signals, channels):  # one at a time, since mne takes 16 bytes per sample
        row[:] = raw.get_data(picks=[channel], verbose="ERROR")[0] * 1e6
    _edf_channels(hypnograms[0])
    found = mne.read_annotations(hypnograms[0])
    ends = (found.onset + found.duration).tolist()
    return signals, float(raw.info["sfreq"]), [*zip(found.onset.tolist(), ends, found.description.tolist())]


def _edf_channels(path: Path) -> list[str]:
    """Channels of an EDF file; raises if it is shorter than its header states, which mne reads without an error."""
    with open(path, "rb") as file:
        fixed = file.read(256)
        start, records, count = int(fixed[184:192]), int(fixed[236:244]), int(fixed[252:256])
        rest = file.read(256 * count)
    samples = sum(int(rest[216 * count + 8 * i :][:8]) for i in range(count))
    size, wanted = path.stat().st_size, start + 2 * records * samples
    if size < wanted:
        raise ValueError(f"{path} is truncated: it has {size} bytes, its header states {wanted}")
    return [rest[16 * i :][:16].strip().decode("latin-1") for i in range(count)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class PrepareEeg:
    """Resample and scale recordings and cut them into scored windows of 30 s. A repeated run resumes."""

    directory: str | None = None
    """Folder to write; None: mvcl_eeg_FORMAT under TFDS_DATA_DIR or ~/tensorflow_datasets."""
    source: str = ""
    """Folder of the raw recordings, as downloaded."""
    format: Literal["physionet2018", "sleep_edfx"] = "physionet2018"
    """physionet2018: WFDB, a folder or three files per subject; sleep_edfx: *-PSG.edf and *-Hypnogram.edf."""
    channels: tuple[str, ...] = ()
    """Channels to keep, one view each; empty: the 6 of PhysioNet 2018, or the 2 of SleepEDFx."""
    rate: int = 100
    """Samples per second after resampling."""
    wake_minutes: float = 30.0
    """Minutes of wake time to keep before the first and after the last sleep."""
    max_corrupt: int = 10
    """Stop when more recordings than this cannot be read."""

    def run(self) -> Path:
        """Write the folder and return it; it may be in a bucket."""
        _checks.fields("eeg", self, rate="[1, inf)", wake_minutes="[0, inf)")
        source, channels = Path(self.source), self.channels or CHANNELS[self.format]
        edf = self.format == "sleep_edfx"
        files = source.rglob("*-PSG.edf") if edf else [*source.glob("*.hea"), *source.glob("*/*.hea")]
        names = sorted({str(file.relative_to(source)) if edf else file.stem for file in files})
        if not self.source or not names:
            wanted = "*-PSG.edf files" if edf else "*.hea files, or folders with one each"
            raise ValueError(f"--source must be a folder of recordings, {wanted}, got {self.source!r}")
        _library("mne" if edf else "wfdb")

        def read(name: str) -> Item:
            path = source / name
            path = path / name if not edf and path.is_dir() else path
            with decoding(f"recording {path}", passing=UnknownChannel):
                recording = (read_sleep_edfx if edf else read_physionet2018)(path, channels)
                cut, stages, dropped = windows(recording, self.rate, self.wake_minutes)
            # SC4ssN… and ST7ssN… are night N of subject ss; in PhysioNet 2018 each record is a subject.
            facts = {"subject": path.name[:5] if edf else name, "labels": stages.tolist(), "dropped": dropped}
            # Half precision: its relative error of 2^-11 is below the recorder's resolution.
            return [window.astype("<f2").tobytes() for window in cut], facts

        settings = {name: getattr(self, name) for name in ("format", "rate", "wake_minutes")}
        settings["channels"] = channels
        variant = f"eeg_{self.format}"
        # 994 nights in 125 files, few enough to keep open.
        return convert(self.directory, variant, settings, names, read, self.max_corrupt, per_shard=8)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Eeg:
    """Sleep EEG in windows of 30 s, one view per channel, from a folder written by `mvcl data prepare eeg`.

    Subjects are split into training and test at random; no subject is in both. The label is the sleep stage.
    """

    path: str = ""
    """The prepared folder; empty: the default output folder for PhysioNet 2018."""
    channels: tuple[str, ...] = ()
    """Channels to use as views, in this order; empty: all prepared channels."""
    test_fraction: float = 0.2
    """Share of the subjects in the test split."""
    split_seed: int = 0
    """Seed for the split of subjects."""
    standardize: Literal["recording", "window"] = "recording"
    """What a channel is standardised over: the recording, as prepared, or the window too, to mean 0 and deviation 1."""
    transfer: str = ""
    """A second prepared folder, opened as the splits transfer/train and transfer/test with all its channels; or a
    format, physionet2018 or sleep_edfx, for its default output folder."""

    def open(self) -> dict[str, Split]:
        """The splits `train` and `test`, and `transfer/train` and `transfer/test` with a second folder."""
        _checks.fields("data", self, test_fraction="(0, 1)")
        splits = self._opened(self.path, "eeg_physionet2018", self.channels)
        if self.transfer:
            path, name = ("", f"eeg_{self.transfer}") if self.transfer in CHANNELS else (self.transfer, "eeg")
            splits |= {f"transfer/{part}": split for part, split in self._opened(path, name, ()).items()}
        return splits

    def _opened(self, folder: str, name: str, channels: Sequence[str]) -> dict[str, Split]:
        with open_prepared(folder, name) as prepared:
            there = [str(name) for name in prepared.settings["channels"]]
            length = SECONDS * int(prepared.settings["rate"])
            labels = prepared.labels.astype(np.int32)
            if not np.isin(labels, range(len(STAGES))).all():
                raise ValueError(f"each record must have one of {len(STAGES)} classes")
            subjects, groups = np.unique(prepared.of_records("subject").astype(str), return_inverse=True)
            names = tuple(channels) or tuple(there)
            held_out = max(1, round(self.test_fraction * len(subjects)))
            if held_out >= len(subjects):
                raise ValueError(f"it has {len(subjects)} subjects, of which {held_out} would be held out")
        picked = [_number(channel, there, folder or f"mvcl_{name}") for channel in names]
        test = np.isin(groups, np.random.default_rng(self.split_seed).permutation(len(subjects))[:held_out])

        def read(row: int, epoch: int) -> tuple[np.ndarray, ...]:
            raw = prepared.read(row, 2 * len(there) * length)
            signals = np.frombuffer(raw, "<f2").reshape(len(there), length)[picked].astype(np.float32)
            if self.standardize == "window":  # a constant channel becomes 0
                deviation = signals.std(1, ddof=1, keepdims=True)
                signals = (signals - signals.mean(1, keepdims=True)) / np.where(deviation > 0, deviation, 1)
            return tuple(signals)

        spec = ExampleSpec(((length,),) * len(names), names, given=True)
        whole = Split(labels, STAGES, spec, read, groups=groups.astype(np.int32))
        return {"train": whole.only(np.flatnonzero(~test)), "test": whole.only(np.flatnonzero(test))}

    def expected(self) -> Outline:
        """Outline of the prepared PhysioNet 2018: about 900 windows for each of 795 training subjects."""
        views = len(self.channels) or len(CHANNELS["physionet2018"])
        spec = ExampleSpec(((SECONDS * 100,),) * views, given=True)
        return Outline(795 * 900, len(STAGES), spec)


def _number(channel: str, there: Sequence[str], origin: str) -> int:
    if channel not in there:
        raise UnknownChannel(f"{origin} has no channel {channel!r}; it has {', '.join(map(repr, there))}")
    return list(there).index(channel)


def _library(name: str) -> Any:
    with _lazy.needed("eeg", by="reading EEG"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # importing wfdb 4.3 with pandas 3.1 gives a deprecation warning
        return importlib.import_module(name)
