"""Utterances in MMSA's layouts, and unsafe pickles."""

import collections
import os
import pickle

import numpy as np
import pytest

from mvcl import _files, data
from mvcl.data._sentiment import BLOCK
from mvcl.data._utterances import unpickle

WIDTHS, TIMES = (4, 3, 2), (6, 9, 7)
VIEWS = ("text", "audio", "vision")
SIZES = {"train": 10, "valid": 3, "test": 4}


def loaded(path):
    with _files.reading(path, "pickle"), open(path, "rb") as file:
        return unpickle(file, path, allowed=True)


def utterances(rng, sizes=SIZES):
    """(splits as MMSA pickles them, the valid rows of each sequence of each split and view)."""
    raw, valid = {}, {}
    for split, count in sizes.items():
        part = {"id": [f"video{split}{i // 3}$_${i}" for i in range(count)]}
        part["raw_text"] = np.asarray([f"so ‹good› {i}" for i in range(count)], dtype=object)
        part["regression_labels"] = rng.uniform(-3, 3, count).astype(np.float32)
        valid[split] = []
        for view, width, time in zip(VIEWS, WIDTHS, TIMES):
            lengths = rng.integers(1, time + 1, count)
            array = np.zeros((count, time, width), np.float32)
            for row, length in enumerate(lengths):
                array[row, :length] = 5 + 3 * rng.normal(size=(length, width))
            part[view] = array
            if view == "text":  # BERT's ids, mask and segments
                mask = np.arange(time)[None] < lengths[:, None]
                part["text_bert"] = np.stack([101 * mask, mask, 0 * mask], axis=1).astype(np.float32)
            else:
                part[f"{view}_lengths"] = lengths.tolist()
            valid[split].append([a[:n].astype(np.float64) for a, n in zip(array, lengths)])
        raw[split] = part
    return raw, valid


def opened(source, **options):
    """The splits of a raw file, prepared into a folder beside it."""
    out = str(source.parent / "out")
    dataset = options.pop("dataset", "mosei")
    data.PrepareSentiment(source=str(source), allow_pickle=True, directory=out, dataset=dataset).run()
    return data.Sentiment(path=out, dataset=dataset, **options).open()


def write(raw, path):
    path.mkdir(exist_ok=True)
    with open(path / "unaligned.pkl", "wb") as file:
        pickle.dump(raw, file, protocol=4)
    plain = {s: {k: np.asarray(v) for k, v in p.items() if k != "raw_text"} for s, p in raw.items()}
    np.savez(path / "unaligned.npz", **{f"{s}_{k}": v for s, p in plain.items() for k, v in p.items()})
    for split, part in plain.items():
        (path / "npy" / split).mkdir(parents=True)
        for name, array in part.items():
            np.save(path / "npy" / split / f"{name}.npy", array)


def standardized(valid):
    """Expected rows: minus the mean of all training rows, divided by their deviation, in float64."""
    out = {}
    for view in range(3):
        every = np.concatenate(valid["train"][view])
        for split, views in valid.items():
            for row, sequence in enumerate(views[view]):
                out[split, row, view] = (sequence - every.mean(0)) / every.std(0)
    return out


@pytest.mark.parametrize("source", ["unaligned.pkl", "unaligned.npz", "npy"])
def test_all_layouts_give_the_same_sequences(tmp_path, rng, source):
    raw, valid = utterances(rng)
    write(raw, tmp_path / "raw")
    splits = opened(tmp_path / "raw" / source)
    data.PrepareSentiment(directory=str(tmp_path / "raw" / "out"), verify=True).run()
    assert list(splits) == ["train", "valid", "test"]
    expected = standardized(valid)
    for name, split in splits.items():
        assert (len(split), split.class_names, split.spec.view_names) == (SIZES[name], (), VIEWS)
        longest = [max(len(rows) for part in valid.values() for rows in part[view]) for view in range(3)]
        assert split.spec.shapes == tuple(zip(longest, WIDTHS))
        assert split.present is None
        np.testing.assert_array_equal(split.labels, raw[name]["regression_labels"])
        assert split.groups.tolist() == [split.groups[0] + i // 3 for i in range(SIZES[name])]
        stacked = split.take(np.arange(len(split))[::-1])
        for row in range(len(split)):
            for view, found in enumerate(split.read(row, 0)):
                length = len(expected[name, row, view])
                np.testing.assert_allclose(found[:length], expected[name, row, view], rtol=1e-4, atol=1e-4)
                assert np.isnan(found[length:]).all()
                np.testing.assert_array_equal(stacked[view][len(split) - 1 - row], found)
    assert not set(splits["train"].groups) & set(splits["test"].groups)


def test_raw_features_and_padding_without_lengths(tmp_path, rng):
    raw, valid = utterances(rng)
    for part in raw.values():
        for name in ("text_bert", "audio_lengths", "vision_lengths"):
            del part[name]
    raw["train"]["audio"][2] = 0  # empty: the view is missing
    raw["train"]["vision"][4] = np.roll(raw["train"]["vision"][4], 7 - len(valid["train"][2][4]), axis=0)
    raw["train"]["audio"][0, 0, 1] = -np.inf  # COVAREP's silence
    raw["train"]["audio"][0, 0, 2] = np.nan
    valid["train"][1][0][0, 1:] = 0
    kept = (*VIEWS, "regression_labels")
    np.savez(tmp_path / "a.npz", **{f"{s}_{k}": part[k] for s, part in raw.items() for k in kept})
    split = opened(tmp_path / "a.npz", standardize=False)["train"]
    assert split.present.tolist() == [[True, row != 2, True] for row in range(10)]
    assert np.isnan(split.read(2, 0)[1]).all()
    assert split.groups is None
    for row in (0, 4):  # padding in front is padding too
        for view, found in enumerate(split.read(row, 0)):
            length = len(valid["train"][view][row])
            np.testing.assert_allclose(found[:length], valid["train"][view][row], rtol=1e-6)
            assert np.isnan(found[length:]).all()
    assert not any(np.isinf(array).any() for array in split.take(np.arange(10)))


def test_sequences_of_unequal_length_are_padded(tmp_path, rng):
    raw, valid = utterances(rng)
    for split, part in raw.items():
        for view, name in enumerate(VIEWS):
            part[name] = [sequence.astype(np.float32) for sequence in valid[split][view]]
        del part["text_bert"], part["audio_lengths"], part["vision_lengths"]
    with open(tmp_path / "a.pkl", "wb") as file:
        pickle.dump(raw, file)
    split = opened(tmp_path / "a.pkl", standardize=False)["train"]
    np.testing.assert_array_equal(split.read(3, 0)[1][: len(valid["train"][1][3])], raw["train"]["audio"][3])


def test_prepared_blocks_keep_the_order(tmp_path, rng):
    raw, _ = utterances(rng, {"train": BLOCK + 5, "test": 2})
    write(raw, tmp_path / "raw")
    splits = opened(tmp_path / "raw" / "unaligned.npz", standardize=False)
    assert list(splits) == ["train", "test"]
    for name, split in splits.items():
        np.testing.assert_array_equal(split.labels, raw[name]["regression_labels"])
        last = split.read(len(split) - 1, 0)[1]
        length = raw[name]["audio_lengths"][-1]
        np.testing.assert_array_equal(last[:length], raw[name]["audio"][-1, :length])


def without(key):
    return lambda part: part.pop(key)


def changed(key, change):
    return lambda part: part.update({key: change(part.get(key))})


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda part: part.clear(), "no split test; it has train, valid"),
        (without("audio"), "test lacks audio; it has .*vision"),
        (without("regression_labels"), "test lacks regression_labels"),
        (changed("text", lambda x: x[:2]), "4 labels and 2 entries of text"),
        (changed("text", lambda x: x[..., :2]), "different widths"),
        (changed("text", lambda x: x[..., 0]), r"text of test must be sequences \(time, d\)"),
        (changed("regression_labels", lambda x: [np.nan, *x[1:]]), r"-3.0, 3.0\] .* got \[nan\]"),
        (changed("regression_labels", lambda x: [4, *x[1:]]), r"numbers in .* got \[4.0\]"),
        (changed("audio_lengths", lambda _: [1, 2, 3, 10]), "audio_lengths must be 4 numbers from 0 to 9"),
        (changed("audio_lengths", lambda _: [1, 2, 3, -1]), "audio_lengths must be 4 numbers from 0 to 9"),
        (changed("id", lambda _: ["a"]), "4 labels and 1 entries of id"),
        (changed("audio", lambda _: np.full((4, 9, 3), "x")), "could not convert string"),
    ],
)
def test_raises_on_bad_files(tmp_path, rng, damage, message):
    raw, _ = utterances(rng)
    damage(raw["test"])
    (tmp_path / "a.pkl").write_bytes(pickle.dumps(raw))
    with pytest.raises(ValueError, match=rf"a\.pkl is not a readable .*{message}"):
        opened(tmp_path / "a.pkl")


def test_raises_on_a_raw_file_and_on_data_of_another_range(tmp_path, rng):
    raw, _ = utterances(rng)
    write(raw, tmp_path)
    file = tmp_path / "unaligned.npz"
    with pytest.raises(ValueError, match=r"npz' is not a prepared folder; run: mvcl data prepare sentiment"):
        data.Sentiment(path=str(file)).open()
    with pytest.raises(ValueError, match=r"numbers in \[-1.0, 1.0\] for chsims"):
        opened(file, dataset="chsims")
    opened(file)
    with pytest.raises(ValueError, match=r"was prepared for mosei, but data\.dataset is chsims"):
        data.Sentiment(path=str(tmp_path / "out"), dataset="chsims").open()


SHARED = np.arange(3.0)
TREE = {
    "numbers": [1, 2.5, True, None, 1 + 2**70, "text ü", b"bytes", (1, (2,)), {3, 4}, frozenset({5})],
    "arrays": [
        np.arange(6, dtype="<i4").reshape(2, 3),
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.arange(4, dtype=">f8"),
        np.array(["a", "längere"]),
        np.array([b"a", b"bc"]),
        np.array(["x", None, [1, 2]], dtype=object),
        np.zeros((0, 5), np.float16),
        np.array(3.5),
        np.array([True, False]),
    ],
    "scalars": [np.float32(1.5), np.int64(-3)],
    "ordered": collections.OrderedDict(b=1, a=2),
    "shared": [SHARED, SHARED],
}


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_reads_pickled_arrays_as_pickle_does(tmp_path, protocol):
    (tmp_path / "a.pkl").write_bytes(pickle.dumps(TREE, protocol=protocol))
    found = loaded(tmp_path / "a.pkl")
    assert found["numbers"] == TREE["numbers"]
    for a, b in zip(found["arrays"] + found["scalars"], TREE["arrays"] + TREE["scalars"], strict=True):
        assert (a.dtype.newbyteorder("="), a.shape) == (b.dtype.newbyteorder("="), b.shape)
        np.testing.assert_array_equal(a, b)
    assert found["ordered"] == dict(TREE["ordered"])
    assert found["shared"][0] is found["shared"][1]


class Calls:
    """Calls a function when unpickled."""

    def __init__(self, function, *arguments):
        self.call = (function, arguments)

    def __reduce__(self):
        return self.call


def raw_array(shape, dtype, raw):
    """An array's pickle with arbitrary parts."""
    return (
        b"\x80\x02cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85C\x01b\x87R(K\x01"
        + pickle.dumps(shape, 2)[2:-1]
        + b"cnumpy\ndtype\n"
        + pickle.dumps((dtype, False, True), 2)[2:-1]
        + b"R(K\x03U\x01<NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89"
        + pickle.dumps(raw, 3)[2:-1]
        + b"tb."
    )


@pytest.mark.parametrize(
    "bad",
    [
        lambda mark: pickle.dumps(Calls(os.system, f"touch {mark}")),
        lambda mark: pickle.dumps(Calls(bytearray, 10**15)),
        lambda mark: pickle.dumps(np.zeros(2, [("a", "f4"), ("b", "i8")])),
        lambda mark: pickle.dumps(collections.Counter("ab")),
        lambda mark: b"\x80\x04\x8c\x05numpy\x8c\x0endarray.dumps\x93.",  # a dotted name
        lambda mark: b"cnumpy\nndarray\n(K\x05tR.",
        lambda mark: raw_array((10**9,), "f8", b"12345678"),
        lambda mark: raw_array((1,), "V8", b"12345678"),
        lambda mark: raw_array((1,), "O8", b"12345678"),  # an arbitrary pointer
        lambda mark: raw_array((3,), "O8", [1]),
        lambda mark: b"\x80\x04Nr\xff\xff\xff\x7f.",  # a memo of 2**31 entries
        lambda mark: b"not a pickle",
    ],
)
def test_raises_on_unsafe_pickles(tmp_path, bad):
    mark = tmp_path / "ran"
    (tmp_path / "a.pkl").write_bytes(bad(mark))
    with pytest.raises(ValueError, match=r"a\.pkl is not a readable pickle"):
        loaded(tmp_path / "a.pkl")
    assert not mark.exists()
