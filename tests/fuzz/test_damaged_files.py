# ruff: noqa: PT017
"""Damaged files of every format: each is read, or a `ValueError` of one line names the file; no code of a file runs."""

import functools
import json
import random
import shutil
import sys
import warnings
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.io
from flax import nnx
from safetensors.numpy import load_file

from mvcl import data, models, training

sys.path += [str(Path(__file__).parents[1] / folder) for folder in ("data", "models")]
import test_aircraft
import test_domains
import test_eeg
import test_sentiment
import test_sources
import test_tables
import torch_files

MUTATIONS, PARTS = 300, ("train", "test")
CONV_NET = models.ConvNet(widths=(4, 8))
VIEW, CLASSES = test_tables.WIDE, test_tables.LABELS
EXTREMES = (b"0", b"-1", b"65536", b"9" * 40, b"\xff" * 8, b"\x00" * 8, b"nan", b"[", b'"', b"../")


def mutated(content, draw):
    """The bytes with one to four changes: flipped bits, extreme values, pieces removed, repeated or cut off."""
    found = bytearray(content)
    for _ in range(draw.randint(1, 4)):
        at, length = draw.randrange(len(found) + 1), draw.randint(1, 16)
        kind = draw.randrange(5)
        if kind == 0 and at < len(found):
            found[at] ^= 1 << draw.randrange(8)
        elif kind == 1:
            found[at : at + length] = draw.choice(EXTREMES)
        elif kind == 2:
            del found[at : at + length]
        elif kind == 3:
            found[at:at] = found[at : at + length]
        elif draw.random() < 0.3:
            del found[at:]
    return bytes(found)


# Sources: (writer of a valid folder, source of that folder)


@functools.cache
def encoder():
    return CONV_NET.build((8, 8, 3), dtype=jnp.float32, rngs=nnx.Rngs(0))


def write_torch(folder):
    models.export(encoder(), CONV_NET, folder / "b")
    torch_files.save({"model": load_file(folder / "b"), "epoch": 3}, folder / "a.pth")
    (folder / "b").unlink()


def write_csv(folder):
    for name, view in (("one", VIEW), ("two", VIEW[:, :2])):
        rows = [(f"s{i}", *row, CLASSES[i]) for i, row in enumerate(view)]
        header = ",".join(["id", *(f"f{i}" for i in range(view.shape[1])), "label"])
        test_tables.write_csv(folder / f"{name}.csv", header, rows)


def write_utterance_files(folder):
    names = test_sentiment.ALL
    rows = {view: {name: np.ones((3, 2), np.float32) for name in names} for view in test_sentiment.VIEWS}
    test_sentiment.write_features(folder, rows)
    test_sentiment.write_table(folder / "labels.csv", dict.fromkeys(names, 0.5))


def open_utterance_files(folder):
    views = {view: str(folder / view) for view in test_sentiment.VIEWS}
    return test_sentiment.opened(folder, labels=str(folder / "labels.csv"), **views)


def write_prepared(folder):
    write_utterance_files(folder)
    open_utterance_files(folder)
    for path in folder.iterdir():
        if path.name == "labels.csv":
            path.unlink()
        elif path.name != "out":
            shutil.rmtree(path)


def open_prepared(folder):
    return data.Sentiment(path=str(folder / "out"), dataset="chsims").open()


def write_recordings(folder):
    for name in ("tr01", "tr02"):
        test_eeg.write_physionet(folder, name, seconds=60, stages=((1, "W"), (31, "N1")))


def write_nights(folder):
    for name in ("SC4001E", "SC4011E"):
        test_eeg.write_sleep_edfx(folder, name, [(0, 30, "Sleep stage W"), (30, 30, "Sleep stage 2")], 60)


def open_eeg(folder, **options):
    out = str(folder / "out")
    data.PrepareEeg(source=str(folder), directory=out, **options).run()
    return data.Eeg(path=out, test_fraction=0.5).open()


def tables(folder):
    return data.Tables(path=str(folder)).open()


def open_table(folder):
    return data.Tables(path=str(next(folder.iterdir()))).open()


def open_domains(folder):
    options = {"domains": test_domains.DOMAINS, "held_out": "", "classes_per_draw": 2}
    return data.DomainNet(path=str(folder), **options).open()


FORMATS = {
    "images": (
        lambda folder: test_sources.write_folder(folder, np.random.default_rng(0), count=2),
        lambda folder: data.Folder(path=str(folder)).open(),
    ),
    "npz of images": (
        lambda folder: np.savez(
            folder / "a.npz",
            **{f"{part}_images": np.arange(80, dtype=np.uint8).reshape(5, 4, 4) for part in PARTS},
            **{f"{part}_labels": np.arange(5) % 2 for part in PARTS},
        ),
        lambda folder: data.Arrays(path=str(folder / "a.npz")).open(),
    ),
    "lists": (lambda folder: test_domains.write(folder, np.random.default_rng(0)), open_domains),
    "aircraft": (test_aircraft.write, test_aircraft.opened),
    "npz of tables": (test_tables.archive(), open_table),
    "mat 5": (
        lambda folder: scipy.io.savemat(
            folder / "a.mat", {"X1": VIEW, "X2": VIEW[:, ::-1], "Y": CLASSES}, do_compression=True
        ),
        open_table,
    ),
    "mat 7.3": (lambda folder: test_tables.write_matlab_7_3(folder / "a.mat"), open_table),
    "csv": (write_csv, tables),
    "parquet": (test_tables.write_parquet, tables),
    "npy": (lambda folder: [np.save(folder / f"{n}.npy", VIEW) for n in ("one", "two")], tables),
    "utterances": (write_utterance_files, open_utterance_files),
    "prepared folder": (write_prepared, open_prepared),
    "tfds": (
        lambda folder: test_domains.write_tfds(
            folder, "dtd", {"train": 5, "validation": 4, "test": 3}, 3, (4, 3, 3)
        ),
        lambda folder: data.TransferImages(name="dtd", directory=str(folder)).open(),
    ),
    "config": (
        lambda folder: (folder / "config.json").write_text(training.to_json(training.Config())),
        lambda folder: [] if training.load(folder) else None,
    ),
    "weights": (
        lambda folder: models.export(encoder(), CONV_NET, folder / "a.safetensors"),
        lambda folder: models.load_weights(encoder(), folder / "a.safetensors") and None,
    ),
    "PyTorch's weights": (
        write_torch,
        lambda folder: models.load_weights(encoder(), folder / "a.pth") and None,
    ),
    "WFDB": (write_recordings, open_eeg),
    "EDF": (write_nights, lambda folder: open_eeg(folder, format="sleep_edfx")),
}
# A slow conversion in each case; into these folders.
SLOW, MADE = ("tfds", "utterances", "WFDB", "EDF"), ("out",)
# Their bytes have checksums: what is read is what was written.
CHECKED = ("npz of images", "npz of tables")


def read_rows(splits):
    """Arrays of all readable examples, or None if one is corrupt."""
    found = []
    for name in sorted(splits or ()):
        for row in range(len(splits[name])):
            try:
                found += [np.asarray(array) for array in splits[name].read(row, 0)]
            except data.CorruptExample as error:
                assert "\n" not in str(error)
                return None
    return found


@pytest.mark.parametrize("name", FORMATS)
def test_a_damaged_file_is_read_or_named(name, tmp_path):
    write, read = FORMATS[name]
    draw, folder = random.Random(name), tmp_path / "case"
    folder.mkdir()
    write(folder)
    files = {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
    sound, refused = read_rows(read(folder)), 0
    assert sound is not None
    for _ in range(MUTATIONS // 10 if name in SLOW else MUTATIONS):
        for made in MADE if name != "prepared folder" else ():
            shutil.rmtree(folder / made, ignore_errors=True)
        file = draw.choice(list(files))
        file.write_bytes(mutated(files[file], draw))
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = read_rows(read(folder))
        except ValueError as error:
            refused += 1
            assert "\n" not in str(error)
            assert str(folder) in str(error) or "data." in str(error), error
        else:
            refused += found is None
            if name in CHECKED and found is not None:
                for one, other in zip(found, sound, strict=True):
                    np.testing.assert_array_equal(one, other)
        file.write_bytes(files[file])
    assert refused


# No code of a file runs


def test_a_pickle_runs_no_code(tmp_path):
    mark, file = tmp_path / "code-was-run", tmp_path / "images.npz"
    bomb = np.asarray([torch_files.Bomb(mark)], object)
    np.savez(file, train_images=bomb, train_labels=np.zeros(1, int))
    with pytest.raises(ValueError, match="pickle"):
        data.Arrays(path=str(file)).open()
    assert not mark.exists()


def test_a_prepared_data_set_imports_no_module(tmp_path, monkeypatch):
    """tfds imports the module of each class that features.json names."""
    folder, mark = tmp_path / "sets" / "tiny" / "1.0.0", tmp_path / "code-was-run"
    folder.mkdir(parents=True)
    (folder / "dataset_info.json").write_text("{}")
    (folder / "features.json").write_text(json.dumps({"a": {"b": [{"pythonClassName": "foreign.Tensor"}]}}))
    (tmp_path / "foreign.py").write_text(f"import os\nos.mkdir({str(mark)!r})\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ValueError, match=r"names the class 'foreign\.Tensor'.*not imported"):
        data.Tfds(name="tiny", directory=str(tmp_path / "sets")).open()
    assert not mark.exists()
