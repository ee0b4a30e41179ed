"""Sleep recordings written by the test in WFDB's and EDF's own formats."""

import dataclasses
import json
import math

import numpy as np
import pytest
import scipy.io
import wfdb

from mvcl import data
from mvcl.data import _eeg
from mvcl.data._eeg import CHANNELS, STAGES, Eeg, PrepareEeg, windows

SIX = CHANNELS["physionet2018"]
# The peak of A sin after scaling by IQR/1.349; its quartiles are ±A/sqrt(2).
SINE = 1.349 / math.sqrt(2)


def sine(frequency, seconds, rate, amplitude=40.0, offset=7.0):
    return offset + amplitude * np.sin(2 * np.pi * frequency * np.arange(int(seconds * rate)) / rate)


def write_physionet(root, name, seconds=270, rate=200, stages=((15, "W"), (75, "N1"), (165, "R")), scale=1.0):
    """A record in the challenge's layout: signals in a MATLAB file with a WFDB header, stages among arousals."""
    folder = root / name
    folder.mkdir(parents=True)
    channels = ("F3-M2", "F4-M1", "C3-M2", "C4-M1", "O1-M2", "O2-M1", "E1-M2", "SaO2")
    signals = np.stack([scale * sine(0.513 + 0.247 * i, seconds, rate) for i in range(len(channels))])
    digital = np.round(signals * 100).astype(np.int16)
    scipy.io.savemat(folder / f"{name}.mat", {"val": digital}, format="4")  # 24 bytes of header, then samples
    lines = [f"{name} {len(channels)} {rate} {digital.shape[1]}"]
    for channel, of in zip(channels, digital):
        lines.append(f"{name}.mat 16+24 100/uV 16 0 {of[0]} {int(of.sum()) % 65536} 0 {channel}")
    (folder / f"{name}.hea").write_text("\n".join(lines) + "\n")
    first = stages[0][0]
    notes = sorted([*stages, (first + 33, "(arousal_rera"), (first + 41, "arousal_rera)")])
    samples = np.asarray([max(1, int(at * rate)) for at, _ in notes])  # wfdb drops notes at sample 0
    texts = {"symbol": ['"'] * len(notes), "aux_note": [note for _, note in notes]}
    wfdb.wrann(name, "arousal", samples, **texts, fs=rate, write_dir=str(folder))


def fields(*pairs):
    return b"".join(str(text).encode().ljust(width)[:width] for text, width in pairs)


def edf_header(labels, samples, records, seconds, kind, limit):
    n = len(labels)
    unit, limits = "" if kind else "uV", (-limit, limit, -32768, 32767)
    alike = [("", 80), (unit, 8), *((number, 8) for number in limits), ("", 80)]
    return (
        fields(("0", 8), ("X F X Female_33yr", 80), ("Startdate 24-APR-1989 X X X", 80), ("24.04.89", 8))
        + fields(("16.13.00", 8), (256 * (n + 1), 8), (kind, 44), (records, 8), (seconds, 8), (n, 4))
        + fields(*[(label, 16) for label in labels])
        + b"".join(fields(*[one] * n) for one in alike)
        + fields(*[(count, 8) for count in samples], *[("", 32)] * n)
    )


def write_sleep_edfx(root, night, hypnogram, seconds=600, scale=1.0):
    """A night in SleepEDFx's layout: an EDF file of signals and an EDF+ file of annotations."""
    root.mkdir(parents=True, exist_ok=True)
    labels, rates = ("EEG Fpz-Cz", "EEG Pz-Oz", "Temp rectal"), (100, 100, 1)
    signals = [scale * sine(0.513 + 0.247 * i, seconds, rate) for i, rate in enumerate(rates)]
    raw = edf_header(labels, [30 * rate for rate in rates], seconds // 30, 30, "", 200)
    for record in range(seconds // 30):
        for signal, rate in zip(signals, rates):
            part = signal[record * 30 * rate : (record + 1) * 30 * rate]
            raw += np.round((part + 200) / 400 * 65535 - 32768).astype("<i2").tobytes()
    (root / f"{night}0-PSG.edf").write_bytes(raw)
    notes = [f"+{at}\x15{length}\x14{note}\x14\0" for at, length, note in hypnogram]
    marks = "".join(["+0\x14\x14\0", *notes]).encode()
    marks += bytes(len(marks) % 2)
    header = edf_header(["EDF Annotations"], [len(marks) // 2], 1, 0, "EDF+C", 1)
    (root / f"{night}C-Hypnogram.edf").write_bytes(header + marks)


HYPNOGRAM = [(0, 60, "Sleep stage W"), (60, 90, "Sleep stage 3"), (150, 60, "Sleep stage 4")]
HYPNOGRAM += [(210, 30, "Movement time"), (240, 45, "Sleep stage 2"), (285, 30, "Sleep stage ?")]


@pytest.fixture
def records(tmp_path):
    """Writes so many records into `raw`; returns the options that prepare them into `out`."""

    def write(count, **options):
        for i in range(count):
            write_physionet(tmp_path / "raw", f"tr0{i}-0001", **{"scale": 1 + i % 4, **options})
        return PrepareEeg(source=str(tmp_path / "raw"), directory=str(tmp_path / "out"))

    return write


def follow(split, starts):
    """Rows of a split, each by the second at which its window starts, are the scaled sines."""
    for row, start in starts:
        time = start + np.arange(3000) / 100
        for view, found in enumerate(split.read(row, 0)):
            expected = SINE * np.sin(2 * np.pi * (0.513 + 0.247 * view) * time)
            # half precision, quantised samples, the filter's ripple, and quartiles of a finite sample
            np.testing.assert_allclose(found, expected, atol=0.01)
            assert found.dtype == np.float32


def test_physionet_windows_are_the_signal_resampled_and_scaled(tmp_path, records):
    assert records(4).run() == tmp_path / "out"
    splits = Eeg(path=str(tmp_path / "out"), test_fraction=0.25).open()
    assert {name: len(split) for name, split in splits.items()} == {"train": 24, "test": 8}
    split = splits["train"]
    assert (split.spec.view_names, split.spec.shapes, split.class_names) == (SIX, ((3000,),) * 6, STAGES)
    # stages from 15, 75 and 165 s to the next one or to the end at 270 s: 2, 3 and 3 windows, the rest dropped
    assert split.labels.tolist() == [0, 0, 1, 1, 1, 4, 4, 4] * 3
    assert np.bincount(split.groups).tolist().count(8) == 3
    assert not set(splits["test"].groups) & set(split.groups)
    follow(split, ((0, 15), (4, 135), (7, 225), (8, 15)))
    np.testing.assert_array_equal(split.take(np.array([3, 1]))[2][1], split.read(1, 0)[2])


def test_sleep_edfx_windows_follow_the_hypnogram(tmp_path):
    write_sleep_edfx(tmp_path / "raw", "SC4001E", HYPNOGRAM)
    # The second night of subject 00.
    write_sleep_edfx(tmp_path / "raw" / "deeper", "SC4002E", HYPNOGRAM, scale=2.0)
    write_sleep_edfx(tmp_path / "raw", "ST7011J", HYPNOGRAM[:2])
    PrepareEeg(source=str(tmp_path / "raw"), format="sleep_edfx", directory=str(tmp_path / "out")).run()
    splits = Eeg(path=str(tmp_path / "out"), test_fraction=0.5).open()
    # Stages 3 and 4 are one; of stage 2's 45 s one window; unscored ones are dropped.
    whole = [0, 0, 3, 3, 3, 3, 3, 2]
    sizes = {len(split): split.labels.tolist() for split in splits.values()}
    assert sizes == {16: whole * 2, 5: [0, 0, 3, 3, 3]}  # both nights of a subject in one split
    split = next(split for split in splits.values() if len(split) == 16)
    assert split.spec.view_names == ("EEG Fpz-Cz", "EEG Pz-Oz")
    assert set(split.groups) == {split.groups[0]}
    follow(split, ((0, 0), (7, 240), (9, 30)))


def test_prepare_resumes_after_an_interruption(tmp_path, monkeypatch, records):
    options = records(10, seconds=100, stages=((0, "N2"),))
    reader, read = _eeg.read_physionet2018, []

    def interrupted(path, channels):
        if len(read) == 9:
            raise KeyboardInterrupt
        read.append(path.name)
        return reader(path, channels)

    monkeypatch.setattr(_eeg, "read_physionet2018", interrupted)
    with pytest.raises(KeyboardInterrupt):
        options.run()
    with pytest.raises(ValueError, match=r"is not finished; run: mvcl data prepare eeg"):
        Eeg(path=str(tmp_path / "out")).open()
    shard = tmp_path / "out" / "eeg-00000-of-00002.array_record"
    first = shard.stat()
    read[:] = ["whole"] * 7  # the next two are the second shard
    options.run()
    assert read[7:] == ["tr08-0001", "tr09-0001"]
    assert (shard.stat().st_mtime_ns, shard.stat().st_ino) == (first.st_mtime_ns, first.st_ino)
    assert sum(map(len, Eeg(path=str(tmp_path / "out")).open().values())) == 30
    with pytest.raises(ValueError, match=r"other settings \(rate was 100, is 50\); use another --directory"):
        dataclasses.replace(options, rate=50).run()


def test_detects_damage_by_size_and_on_reading(tmp_path, records):
    options = records(2)
    options.run()
    shard = tmp_path / "out" / "eeg-00000-of-00001.array_record"
    whole = shard.read_bytes()
    shard.write_bytes(whole[:40_000] + bytes([whole[40_000] ^ 1]) + whole[40_001:])
    splits = Eeg(path=str(tmp_path / "out"), test_fraction=0.5).open().values()
    with pytest.raises(data.CorruptExample, match=r"record .* in .*eeg-00000-of-00001.array_record cannot"):
        [split.take(np.arange(len(split))) for split in splits]
    shard.write_bytes(whole[:-1])
    with pytest.raises(ValueError, match=rf"has {len(whole) - 1} bytes instead of {len(whole)}"):
        Eeg(path=str(tmp_path / "out")).open()
    options.run()  # the damaged shard is written again
    assert shard.read_bytes() == whole
    shard.with_suffix(".json").write_text("{")
    options.run()  # so is a shard without facts
    assert shard.read_bytes() == whole
    (tmp_path / "out" / "manifest.json").write_text("[]")
    with pytest.raises(ValueError, match=r"manifest\.json is not a readable JSON file"):
        options.run()


def test_skips_counts_and_logs_corrupt_records(tmp_path, capsys, records):
    options = records(6, seconds=100, stages=((0, "N2"),))
    damage = [(".mat", b"torn"), (".arousal", b"\1\2\3"), (".arousal", None), (".hea", b"not a header\n")]
    for i, (suffix, content) in enumerate(damage):
        file = tmp_path / "raw" / f"tr0{i}-0001" / f"tr0{i}-0001{suffix}"
        file.unlink() if content is None else file.write_bytes(content)
    write_physionet(tmp_path / "raw", "tr07-0001", seconds=60, stages=((0, "U"),))
    write_physionet(tmp_path / "raw", "tr08-0001", seconds=60, stages=((0, "N2"),), scale=0.0)
    with pytest.raises(ValueError, match=r"more files than --max-corrupt cannot be read; .*recording .*tr03"):
        dataclasses.replace(options, max_corrupt=3).run()
    assert not list((tmp_path / "out").glob("*.array_record"))
    dataclasses.replace(options, max_corrupt=6).run()
    err = capsys.readouterr().err
    names = [f"tr0{i}-0001" for i in (0, 1, 2, 3, 7, 8)]
    assert all(text in err for text in (*names, "no window of 30 s is scored", "a channel is constant"))
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert [len(shard["skipped"]) for shard in manifest["shards"]] == [6]
    splits = Eeg(path=str(tmp_path / "out"), test_fraction=0.5).open()
    assert [len(splits[name]) for name in ("train", "test")] == [3, 3]


def test_error_names_corrupt_nights(tmp_path, capsys):
    root = tmp_path / "raw"
    for i in range(5):
        write_sleep_edfx(root, f"SC40{i}1E", HYPNOGRAM)
    signals, hypnogram = root / "SC4001E0-PSG.edf", root / "SC4011EC-Hypnogram.edf"
    signals.write_bytes(signals.read_bytes()[:-2])  # mne reads all but the last record
    hypnogram.write_bytes(hypnogram.read_bytes()[:-2])
    (root / "SC4021EC-Hypnogram.edf").unlink()
    (root / "SC4031E0-PSG.edf").write_bytes(b"hello" * 400)
    PrepareEeg(source=str(root), format="sleep_edfx", directory=str(tmp_path / "out"), max_corrupt=4).run()
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("skipped: ")]
    expected = ["SC4001E0-PSG.edf is truncated: it has", "SC4011EC-Hypnogram.edf is truncated: it has"]
    expected += ["has 0 hypnograms SC4021E*-Hypnogram.edf in its folder", "SC4031E0-PSG.edf cannot be read"]
    assert all(words in line for words, line in zip(expected, lines, strict=True)), lines


def recording(values, stages, rate=100.0):
    stages = [(first, last, STAGES[stage]) for first, last, stage in stages]
    return np.asarray(values, np.float64), rate, stages


def test_drops_windows_that_are_missing_constant_or_long_awake(rng):
    x = rng.normal(size=(2, 300 * 100))
    x[0, 3500] = np.nan  # in the second window
    x[1, 6000:9000] = 5.0  # the third is constant
    x[1, 9500] = 1e6  # an artefact, clipped
    cut, labels, dropped = windows(recording(x, [(0.0, 150.0, 2), (150.0, 400.0, 1)]), 100, 30)
    assert (labels.tolist(), dropped) == ([2, 2, 2] + [1] * 5, 2 + 3)  # three exceed the end at 300 s
    assert cut.max() == 20
    quartiles = np.percentile(x[1], (25, 50, 75))
    expected = (x[1, 12_000:15_000] - quartiles[1]) / ((quartiles[2] - quartiles[0]) / 1.349)
    np.testing.assert_allclose(cut[2, 1], expected, rtol=1e-6, atol=1e-6)
    endless = [(-3e15, 60.0, 1), (60.0, 3e15, 2)]  # a damaged scoring; the parts inside are kept
    clean = rng.normal(size=(1, 120 * 100))
    assert windows(recording(clean, endless), 100, 30)[1].tolist() == [1, 1, 2, 2]
    awake = [(0.0, 120.0, 0), (120.0, 180.0, 3), (180.0, 300.0, 0)]
    clean = rng.normal(size=(1, 300 * 100))
    assert windows(recording(clean, awake), 100, 1.0)[1].tolist() == [0, 0, 3, 3, 0, 0]
    assert windows(recording(clean, awake), 100, 0.0)[1].tolist() == [3, 3]
    assert windows(recording(clean, awake), 100, 30)[1].tolist() == [0] * 4 + [3, 3] + [0] * 4


def test_transfer_by_format_and_windows_standardised(tmp_path, monkeypatch):
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "root"))
    for i in range(2):
        write_physionet(tmp_path / "a", f"tr0{i}-0001")
        write_sleep_edfx(tmp_path / "b", f"SC40{i}1E", HYPNOGRAM)
    PrepareEeg(source=str(tmp_path / "a")).run()
    PrepareEeg(source=str(tmp_path / "b"), format="sleep_edfx").run()
    plain = Eeg(transfer=str(tmp_path / "root" / "mvcl_eeg_sleep_edfx")).open()
    assert sorted(plain) == ["test", "train", "transfer/test", "transfer/train"]
    assert [len(plain[name].spec.shapes) for name in ("train", "transfer/train")] == [6, 2]
    splits = Eeg(transfer="sleep_edfx", standardize="window").open()
    for name in ("train", "transfer/test"):
        for before, after in zip(plain[name].read(0, 0), splits[name].read(0, 0), strict=True):
            expected = (before - before.mean()) / before.std(ddof=1)
            np.testing.assert_allclose(after, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"source": ""}, r"--source must be a folder of recordings, \*\.hea files, .* got ''"),
        ({"source": ".", "format": "sleep_edfx"}, r"of recordings, \*-PSG\.edf files, got '\.'"),
        ({"source": ".", "rate": 0}, "rate must be at least 1"),
        ({"source": ".", "wake_minutes": -1}, "wake_minutes must be at least 0"),
    ],
)
def test_raises_on_bad_options(tmp_path, monkeypatch, options, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=message):
        PrepareEeg(**options, directory=str(tmp_path / "out")).run()


def test_raises_on_an_unprepared_folder(tmp_path, records):
    with pytest.raises(ValueError, match=r"is not a prepared folder; run: mvcl data prepare eeg"):
        Eeg(path=str(tmp_path)).open()
    records(1).run()
    for fraction, message in ((0.2, "1 subjects, of which 1 would be held"), (1.0, r"in \(0, 1\), got 1\.0")):
        with pytest.raises(ValueError, match=message):
            Eeg(path=str(tmp_path / "out"), test_fraction=fraction).open()
    (tmp_path / "out" / "manifest.json").write_text('{"kind": "sentiment", "format": 1}')
    with pytest.raises(ValueError, match="has sentiment in format 1, expected eeg"):
        Eeg(path=str(tmp_path / "out")).open()
