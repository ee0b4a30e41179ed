"""Sleep EEG in scored windows of 30 seconds; each channel is a view."""

import dataclasses
import math
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

import numpy as np

from mvcl import _buckets, _extras
from mvcl._progress import Track, untracked
from mvcl.data import _records, _shards
from mvcl.data._directories import data_root
from mvcl.data._splits import CorruptExample, ExampleSpec, Outline, Split

STAGES = ("W", "N1", "N2", "N3", "R")
"""The sleep stages, by their label."""
SECONDS = 30
_CLIP = 20.0
# Stages 3 and 4 of Rechtschaffen and Kales are one stage in the manual of 2007. Unknown and movement are dropped.
_STAGE_OF = {name: i for i, name in enumerate(STAGES)} | {
    f"Sleep stage {name}": i for name, i in (("W", 0), ("1", 1), ("2", 2), ("3", 3), ("4", 3), ("R", 4))
}
# The samples of a recording that are read, raw or resampled, those of one channel, and samples per second. 13 channels
# of 8 hours at 200 Hz are 75 million. They take 14 bytes each with all copies, and a channel that is resampled 32.
_SAMPLES, _LONGEST, _RATES, _RATIO = 76_000_000, 16_000_000, (1.0, 100_000.0), 100_000
# Bytes of annotations (a night has some 5,000), of a WFDB header, and of its lines.
_ANNOTATIONS, _HEADER, _LINE = 1 << 20, 1 << 16, 1000
# Signals and records of an EDF file; mne takes microseconds for each.
_SIGNALS, _RECORDS = 1000, 500_000
_ANNOTATION = re.compile(rb"([+-]\d{1,9}(?:\.\d{0,9})?)(?:\x15(\d{1,9}(?:\.\d{0,9})?))?\x14(.*)", re.DOTALL)
_UNPACKED = frozenset(("8", "16", "24", "32", "61", "80", "160", "212", "310", "311"))
Format = Literal["physionet2018", "sleep_edfx"]
CHANNELS: dict[str, tuple[str, ...]] = {
    "physionet2018": ("F3-M2", "F4-M1", "C3-M2", "C4-M1", "O1-M2", "O2-M1"),
    "sleep_edfx": ("EEG Fpz-Cz", "EEG Pz-Oz"),
}


@dataclasses.dataclass(frozen=True)
class Recording:
    """A raw recording.

    Attributes:
      signals: (channels, samples) in microvolt, NaN where the recorder gave no value.
      rate: samples per second.
      stages: (start, end, stage number) of each scored interval, in seconds, in order.
      origin: its files, in messages.
    """

    signals: np.ndarray
    rate: float
    stages: Sequence[tuple[float, float, int]]
    origin: str = ""


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
      CorruptExample: a channel is constant or empty, or nothing is scored.
    """
    from scipy.signal import resample_poly

    channels, samples = recording.signals.shape
    _check_size(channels, samples, recording.rate, rate)
    ratio = Fraction(rate) / Fraction(recording.rate).limit_denominator(1000)
    if max(ratio.numerator, ratio.denominator) > _RATIO:  # the filter has 20 times as many coefficients
        raise CorruptExample(f"{recording.rate} Hz cannot be resampled to {rate} Hz, a ratio of {ratio}")
    shape = channels, math.ceil(samples * ratio)
    whole = np.empty(shape, np.float32)
    for channel, signal in enumerate(recording.signals):  # one at a time, since resampling takes memory
        if ratio != 1:
            # Polyphase: the Fourier method treats the signal as periodic.
            signal = resample_poly(signal.astype(np.float64), ratio.numerator, ratio.denominator)
        known = signal[np.isfinite(signal)]
        low, middle, high = np.percentile(known, (25, 50, 75)) if len(known) else (0.0, 0.0, 0.0)
        if not high > low:
            raise CorruptExample(f"channel {channel + 1} of {len(whole)} is constant")
        whole[channel] = ((signal - middle) / ((high - low) / 1.349)).clip(-_CLIP, _CLIP)
    seconds = whole.shape[1] / rate
    starts: list[int] = []
    labels: list[int] = []
    dropped = 0
    for first, last, stage in recording.stages:
        if not (math.isfinite(first) and math.isfinite(last)):
            raise CorruptExample(f"a stage is scored from {first} to {last} s")
        count = int((last - first) / SECONDS + 1e-6)
        # A damaged scoring may have any interval; iterate only over windows inside the recording.
        inside = range(
            max(0, math.ceil(-first / SECONDS)), min(count, math.ceil((seconds - first) / SECONDS))
        )
        if len(starts) + len(inside) > 2 * (seconds / SECONDS + len(recording.stages)):
            raise CorruptExample(f"its {len(recording.stages)} scored intervals overlap")
        starts += [round((first + SECONDS * i) * rate) for i in inside]
        labels += [stage] * len(inside)
        dropped += max(count, 0) - len(inside)
    asleep = [start for start, label in zip(starts, labels) if label != 0]
    if asleep:
        margin = wake_minutes * 60 * rate
        kept = [asleep[0] - margin <= start <= asleep[-1] + margin for start in starts]
        starts, labels = ([x for x, keep in zip(v, kept) if keep] for v in (starts, labels))
    length = SECONDS * rate
    cut, stages = [], []
    for start, label in zip(starts, labels):
        window = whole[:, start : start + length]
        if (
            start < 0
            or window.shape[1] < length
            or not np.isfinite(window).all()
            or (np.ptp(window, 1) == 0).any()
        ):
            dropped += 1
        else:
            cut.append(window)
            stages.append(label)
    if not starts:
        raise CorruptExample(f"no window of {SECONDS} s is scored as one of {', '.join(STAGES)}")
    empty = np.zeros((0, len(whole), length), np.float32)
    return np.stack(cut) if cut else empty, np.asarray(stages, np.int32), dropped


def _check_size(channels: int, samples: int, rate: float, wanted: float = 0.0) -> None:
    """Raise CorruptExample for a recording whose signals take too much memory, as read or at the wanted rate."""
    if not _RATES[0] <= rate <= _RATES[1] or samples < 1:  # NaN too
        raise CorruptExample(f"it has {samples} samples at {rate} Hz")
    longest = max(samples, samples / rate * wanted)
    if longest > _LONGEST or channels * longest > _SAMPLES:
        raise CorruptExample(
            f"{channels} channels of {samples} samples at {rate:g} Hz are too long; at most {_LONGEST:,} samples of a "
            f"channel, and {_SAMPLES:,} of all, are read"
        )


def read_physionet2018(folder: Path, name: str, channels: Sequence[str]) -> Recording:
    """FOLDER/NAME/NAME.{hea,mat,arousal}, or the three files in FOLDER; a stage lasts until the next one starts.

    Raises:
      CorruptExample: a file is missing, truncated, too large, or not in WFDB's format.
      ValueError: the record has no such channel.
    """
    wfdb = _library("wfdb")
    path = folder / name / name if (folder / name).is_dir() else folder / name
    origin = f"{path}.hea with {path.name}.mat and {path.name}.arousal"
    try:
        _check_text(path.with_name(f"{path.name}.hea"))
        header = wfdb.rdheader(str(path))
        _check_channels(channels, header.sig_name or [], f"{path}.hea")
        _check_wfdb(header, path.parent)
        _check_size(len(channels), header.sig_len, float(header.fs))
        picked = [header.sig_name.index(channel) for channel in channels]
        record = wfdb.rdrecord(str(path), channels=picked, return_res=32)
        signals, rate = np.asarray(record.p_signal, np.float32).T, float(record.fs)
        if (size := path.with_name(f"{path.name}.arousal").stat().st_size) > _ANNOTATIONS:
            raise CorruptExample(f"{size} bytes are too many for annotations")
        # Two steps of wfdb.rdann, whose next one does not end for some notes at sample 0.
        annotation = wfdb.io.annotation
        pairs = annotation.load_byte_pairs(str(path), "arousal", None)
        times, _, _, _, _, notes = annotation.proc_ann_bytes(pairs, None)
        marks = [(int(at) / rate, note.strip("\x00 ")) for at, note in zip(times, notes)]
    except UnknownChannel:
        raise
    # wfdb may raise any exception for a damaged file.
    except Exception as error:
        raise CorruptExample(f"recording {origin} cannot be read: {_words(error)}") from error
    # Arousals, '(…' and '…)', are annotated between stages and do not end one.
    stages = [(at, note) for at, note in marks if note in _STAGE_OF or note in ("U", "?")]
    ends = [at for at, _ in stages[1:]] + [signals.shape[1] / rate]
    scored = _scored([(at, end, note) for (at, note), end in zip(stages, ends)])
    return Recording(signals, rate, scored, origin)


def _check_text(path: Path) -> None:
    """Raise CorruptExample for a WFDB header with long lines, in which wfdb's search takes quadratic time."""
    with open(path, "rb") as file:
        raw = file.read(_HEADER + 1)
    if len(raw) > _HEADER or max(map(len, raw.splitlines()), default=0) > _LINE:
        raise CorruptExample("it is longer than a header")


def _check_wfdb(header: Any, folder: Path) -> None:
    """Raise CorruptExample for a header that states other or more signals than its files have."""
    if not hasattr(header, "file_name") or not header.file_name:
        raise CorruptExample("it states no signals")
    if set(header.fmt) - _UNPACKED or any(header.skew) or header.sig_len is None:
        raise CorruptExample(
            "its signals must be of one length, without skew, in a format that is not packed"
        )
    size = sum((folder / name).stat().st_size for name in set(header.file_name))
    if header.sig_len * sum(header.samps_per_frame) > size:
        raise CorruptExample(
            f"it states {len(header.fmt)} signals of {header.sig_len} samples, its files have {size} bytes"
        )


def read_sleep_edfx(folder: Path, name: str, channels: Sequence[str]) -> Recording:
    """The signals NAME (…-PSG.edf) with its hypnogram, whose file name has the same first 7 letters.

    Raises:
      CorruptExample: a file is truncated, too large or not EDF, or there is not exactly one hypnogram.
      ValueError: the recording has no such channel.
    """
    mne = _library("mne")
    path = folder / name
    hypnograms = sorted(path.parent.glob(f"{path.name[:7]}*-Hypnogram.edf"))
    if len(hypnograms) != 1:
        raise CorruptExample(
            f"recording {path} has {len(hypnograms) or 'no'} hypnograms {path.name[:7]}*-Hypnogram.edf in its folder"
        )
    origin = f"{path} with {hypnograms[0].name}"
    try:
        spans = _annotations(hypnograms[0])
        header = _edf_header(path)
        _check_channels(channels, [label for label, _ in header.signals], str(path))
        most = max(count for label, count in header.signals if label in channels)
        _check_size(len(channels), header.records * most, most / (header.seconds or 1.0))
        # Read only these: mne resamples all channels to the highest rate.
        raw = mne.io.read_raw_edf(path, include=list(channels), stim_channel=None, verbose="ERROR")
        rate = float(raw.info["sfreq"])
        _check_size(len(channels), raw.n_times, rate)
        signals = np.empty((len(channels), raw.n_times), np.float32)
        for row, channel in zip(signals, channels):  # one at a time, since mne takes 16 bytes per sample
            row[:] = raw.get_data(picks=[channel], verbose="ERROR")[0] * 1e6
    except UnknownChannel:
        raise
    except Exception as error:  # mne may raise any exception for a damaged file
        raise CorruptExample(f"recording {origin} cannot be read: {_words(error)}") from error
    return Recording(signals, rate, _scored(spans), origin)


_READERS: dict[str, Callable[[Path, str, Sequence[str]], Recording]] = {
    "physionet2018": read_physionet2018,
    "sleep_edfx": read_sleep_edfx,
}


class UnknownChannel(ValueError):
    """A recording lacks a requested channel. Not a `CorruptExample`: other recordings lack it too."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PrepareEeg:
    """Resample and scale recordings and cut them into scored windows of 30 s. A repeated run resumes."""

    source: str = ""
    """Folder of the raw recordings, as downloaded."""
    format: Format = "physionet2018"
    """physionet2018: WFDB, a folder or three files per subject; sleep_edfx: *-PSG.edf and *-Hypnogram.edf."""
    channels: tuple[str, ...] = ()
    """Channels to keep, one view each; empty: the 6 of PhysioNet 2018, or the 2 of SleepEDFx."""
    rate: int = 100
    """Samples per second after resampling."""
    wake_minutes: float = 30.0
    """Minutes of wake time to keep before the first and after the last sleep."""
    max_corrupt: int = 10
    """Stop when more recordings than this cannot be read."""
    directory: str | None = None
    """Folder to write; None: mvcl_eeg_FORMAT under TFDS_DATA_DIR or ~/tensorflow_datasets."""
    verify: bool = False
    """Verify the checksums of the prepared folder and exit."""

    def run(self, track: Track = untracked) -> Path:
        """Write the folder and return it."""
        directory = _buckets.path(self.directory or _default(self.format))
        if self.verify:
            _shards.verify(_buckets.local_copy(directory, track), "eeg", track)
            return directory
        if _buckets.is_remote(directory):
            return _buckets.uploaded(
                directory, lambda folder: dataclasses.replace(self, directory=folder).run(track), track
            )
        if self.rate < 1:
            raise ValueError(f"rate must be at least 1 sample per second, got {self.rate}")
        if self.wake_minutes < 0:
            raise ValueError(f"wake_minutes must be at least 0, got {self.wake_minutes}")
        source = Path(self.source)
        if not self.source or not source.is_dir():
            raise ValueError(f"--source must be the folder of the raw recordings, got {self.source!r}")
        channels = self.channels or CHANNELS[self.format]
        names = _recordings(source, self.format)
        _library("wfdb" if self.format == "physionet2018" else "mne")

        def read(name: str) -> _shards.Item:
            recording = _READERS[self.format](source, name, channels)
            try:
                cut, stages, dropped = windows(recording, self.rate, self.wake_minutes)
            except CorruptExample as error:
                raise CorruptExample(f"recording {recording.origin}: {error}") from error
            if not len(cut):
                raise CorruptExample(
                    f"recording {recording.origin}: none of its {dropped} windows is complete"
                )
            # Half precision: its relative error of 2^-11 is below the recorder's resolution.
            records = [window.astype("<f2").tobytes() for window in cut]
            facts = {"subject": _subject(name, self.format), "labels": stages.tolist(), "dropped": dropped}
            return _shards.Item(records, facts)

        settings = {
            "format": self.format,
            "channels": channels,
            "rate": self.rate,
            "wake_minutes": self.wake_minutes,
        }
        return _shards.write(
            directory,
            "eeg",
            settings,
            names,
            read,
            per_shard=8,  # 994 nights in 125 files, few enough to keep open
            max_corrupt=self.max_corrupt,
            unit="recording",
            track=track,
        )


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

    def open(self, track: Track = untracked) -> dict[str, Split]:
        """The splits `train` and `test`, and `transfer/train` and `transfer/test` with a second folder."""
        if not 0 < self.test_fraction < 1:
            raise ValueError(f"data.test_fraction must be between 0 and 1, got {self.test_fraction}")
        splits = self._opened(
            _buckets.local_copy(self.path or _default("physionet2018"), track), self.channels
        )
        if self.transfer:
            folder = _default(self.transfer) if self.transfer in CHANNELS else self.transfer
            other = self._opened(_buckets.local_copy(folder, track), ())
            splits |= {f"transfer/{name}": split for name, split in other.items()}
        return splits

    def _opened(self, directory: Path, channels: Sequence[str]) -> dict[str, Split]:
        return _open(
            directory, channels, self.test_fraction, self.split_seed, windowed=self.standardize == "window"
        )

    def expected(self) -> Outline:
        """Outline of the prepared PhysioNet 2018: about 900 windows for each of 795 training subjects."""
        views = len(self.channels) or len(CHANNELS["physionet2018"])
        spec = ExampleSpec(((SECONDS * 100,),) * views, given=True)
        return Outline(795 * 900, len(STAGES), spec)


def _default(format: str) -> Path:
    return data_root(None) / f"mvcl_eeg_{format}"


def _open(
    directory: Path, channels: Sequence[str], test_fraction: float, seed: int, *, windowed: bool
) -> dict[str, Split]:
    prepared = _shards.open_prepared(directory, "eeg")
    with _shards.facts(directory):
        there = [str(name) for name in prepared.settings["channels"]]
        length = SECONDS * int(prepared.settings["rate"])
        labels, groups, subjects = _windows_of(prepared.items)
        if not there or not 0 < 2 * len(there) * length <= _records.LARGEST:
            raise ValueError(f"its windows are {len(there)} channels of {length} samples")
    _check_channels(channels, there, str(directory / "manifest.json"))
    names = tuple(channels) or tuple(there)
    picked = [there.index(name) for name in names]
    held_out = max(1, round(test_fraction * subjects))
    if held_out >= subjects:
        raise ValueError(
            f"{directory / 'manifest.json'} has {subjects} subjects, of which {held_out} would be held out"
        )
    test = np.isin(groups, np.random.default_rng(seed).permutation(subjects)[:held_out])

    def split(rows: np.ndarray) -> Split:
        def read(row: int, epoch: int) -> tuple[np.ndarray, ...]:
            record = int(rows[row])
            raw = prepared.read(record)
            if len(raw) != 2 * len(there) * length:
                raise CorruptExample(
                    f"{prepared.name(record)} has {len(raw)} bytes, but its manifest.json states {len(there)} channels "
                    f"of {length} samples"
                )
            signals = np.frombuffer(raw, "<f2").reshape(len(there), length)[picked].astype(np.float32)
            return tuple(_standardized(signals) if windowed else signals)

        spec = ExampleSpec(((length,),) * len(names), names, given=True)
        return Split(labels[rows], STAGES, spec, read, groups=groups[rows])

    return {"train": split(np.flatnonzero(~test)), "test": split(np.flatnonzero(test))}


def _windows_of(items: Sequence[Mapping[str, Any]]) -> tuple[np.ndarray, np.ndarray, int]:
    """Stage and subject number of each window, and how many subjects there are."""
    labels = np.asarray([label for item in items for label in item["labels"]], np.int32)
    if any(len(item["labels"]) != item["count"] for item in items) or np.any(
        (labels < 0) | (labels >= len(STAGES))
    ):
        raise ValueError(f"each of its windows must have one stage of 0 to {len(STAGES) - 1}")
    subjects = sorted({str(item["subject"]) for item in items})
    number = {subject: i for i, subject in enumerate(subjects)}
    of_item = np.asarray([number[str(item["subject"])] for item in items], np.int32)
    return labels, np.repeat(of_item, [item["count"] for item in items]), len(subjects)


def _standardized(signals: np.ndarray) -> np.ndarray:
    """Mean 0 and deviation 1 (divisor of one less than the samples) of each row; a constant one becomes 0."""
    deviation = signals.std(1, ddof=1, keepdims=True)
    return (signals - signals.mean(1, keepdims=True)) / np.where(deviation > 0, deviation, 1)


def _recordings(source: Path, format: str) -> list[str]:
    """Names of the raw recordings in a folder, sorted."""
    if format == "sleep_edfx":
        names = sorted(str(path.relative_to(source)) for path in source.rglob("*-PSG.edf"))
        wanted = "*-PSG.edf files"
    else:
        names = sorted({path.stem for path in (*source.glob("*.hea"), *source.glob("*/*.hea"))})
        wanted = "*.hea files or folders with one each"
    if not names:
        raise ValueError(f"{source} has no {wanted}, so no recordings of {format}")
    return names


def _subject(name: str, format: str) -> str:
    """Subject of a recording: SC4ssN… and ST7ssN… are night N of subject ss; in PhysioNet 2018 each record is a
    subject."""
    return Path(name).name[:5] if format == "sleep_edfx" else name


def _scored(spans: Sequence[tuple[float, float, str]]) -> list[tuple[float, float, int]]:
    return [(first, last, _STAGE_OF[name]) for first, last, name in spans if name in _STAGE_OF]


def _check_channels(wanted: Sequence[str], there: Sequence[str], origin: str) -> None:
    unknown = [name for name in wanted if name not in there]
    if unknown:
        raise UnknownChannel(f"{origin} has no channel {unknown[0]!r}; it has {', '.join(map(repr, there))}")


@dataclasses.dataclass(frozen=True)
class _EdfHeader:
    """Header of an EDF file: its size in bytes, records of so many seconds, label and samples per record of signals."""

    size: int
    records: int
    seconds: float
    signals: Sequence[tuple[str, int]]


def _edf_header(path: Path) -> _EdfHeader:
    """The header of an EDF file; raises CorruptExample if the file is shorter than its header states, which mne reads
    without an error, or if the header is not EDF's."""
    size = path.stat().st_size
    with open(path, "rb") as file:
        fixed = file.read(256)
        try:
            start, records, seconds = int(fixed[184:192]), int(fixed[236:244]), float(fixed[244:252])
            count = int(fixed[252:256])
            if not (0 < count <= _SIGNALS and start == 256 * (1 + count) and 0 <= seconds < math.inf):
                raise ValueError(f"{count} signals, a header of {start} bytes and records of {seconds} s")
            rest = file.read(256 * count)
            labels = [rest[16 * i :][:16].strip().decode("latin-1") for i in range(count)]
            samples = [int(rest[216 * count + 8 * i :][:8]) for i in range(count)]
            if min(samples) < 0 or not sum(samples):
                raise ValueError(f"from {min(samples)} to {max(samples)} samples in a record")
        except ValueError as error:
            raise CorruptExample(f"{path} is not an EDF file: {error}") from error
    there = (size - start) // (2 * sum(samples))
    if there > _RECORDS:
        raise CorruptExample(f"{path} has {there} records; at most {_RECORDS} are read")
    if records > there:
        wanted = start + 2 * records * sum(samples)
        raise CorruptExample(f"{path} is truncated: it has {size} bytes, its header states {wanted}")
    return _EdfHeader(start, there, seconds, list(zip(labels, samples)))


def _annotations(path: Path) -> list[tuple[float, float, str]]:
    """(start, end, text) of each annotation of an EDF+ file, in seconds from its first one.

    mne's own search for them takes quadratic time in a file of up to any size.
    """
    header = _edf_header(path)
    if (size := path.stat().st_size) > header.size + _ANNOTATIONS:
        raise CorruptExample(f"{size} bytes are too many for annotations")
    spans, first = [], None
    for part in path.read_bytes()[header.size :].split(b"\x14\x00"):
        # After padding: +ONSET, 21 and DURATION, then 20 and TEXT each; a record starts with one without a text.
        if found := _ANNOTATION.fullmatch(part.rpartition(b"\x00")[2]):
            start, length = float(found[1]), float(found[2] or 0)
            texts = [text.decode() for text in found[3].split(b"\x14") if text]
            first = (0.0 if texts else start) if first is None else first
            spans += [(start - first, start - first + length, text) for text in texts]
    return spans


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def _library(name: str) -> Any:
    import importlib

    with _extras.needed("eeg", by="reading EEG"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # importing wfdb 4.3 with pandas 3.1 gives a deprecation warning
        return importlib.import_module(name)
