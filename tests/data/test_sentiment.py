"""Sentiment features with a file for each utterance, in MERBench's layout."""

import csv

import numpy as np
import pytest

from mvcl import data

VIEWS, WIDTHS = ("text", "audio", "vision"), (4, 3, 2)
# Names as MERBench writes them: VIDEO_CLIP; a video name may have underscores.
NAMES = {
    "train": ["a_b_0001", "a_b_0002", "c_0001", "d_0003", "e_0001"],
    "val": ["f_0001"],
    "test": ["g_0001", "g_0002"],
}
ALL = [name for names in NAMES.values() for name in names]


@pytest.fixture
def scores(rng):
    return {name: float(np.float32(rng.uniform(-1, 1))) for name in ALL}


@pytest.fixture
def rows(rng):
    """Features of each view by name, 1 to 9 rows."""
    return {
        view: {name: rng.normal(size=(rng.integers(1, 10), d)).astype(np.float32) for name in ALL}
        for view, d in zip(VIEWS, WIDTHS)
    }


@pytest.fixture
def labels(tmp_path, scores):
    """The file of the table of utterances."""
    return write_table(tmp_path / "labels.csv", scores)


def write_table(path, scores):
    with open(path, "w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["label", "name", "split"])
        table.writerows([scores[name], name, split] for split, names in NAMES.items() for name in names)
    return str(path)


def write_features(folder, rows):
    """A folder for each view: .npy of sequences, a folder of frames for vision."""
    for view in VIEWS:
        (folder / view).mkdir()
        for name, array in rows[view].items():
            if view == "vision":
                (folder / view / name).mkdir()
                for i, frame in enumerate(array):
                    np.save(folder / view / name / f"frame{i:04d}.npy", frame)
            else:
                np.save(folder / view / f"{name}.npy", array)
    return {view: str(folder / view) for view in VIEWS}


def opened(tmp_path, standardize=False, **options):
    out = str(tmp_path / "out")
    data.PrepareSentiment(dataset="chsims", directory=out, **options).run()
    return data.Sentiment(path=out, dataset="chsims", standardize=standardize).open()


def test_merbench_layout(tmp_path, scores, rows, labels):
    splits = opened(tmp_path, labels=labels, **write_features(tmp_path, rows))
    assert list(splits) == ["train", "valid", "test"]
    longest = [max(len(rows[view][name]) for name in ALL) for view in VIEWS]
    for split, names in zip(splits.values(), NAMES.values()):
        assert split.spec.shapes == tuple(zip(longest, WIDTHS))
        assert split.present is None
        np.testing.assert_array_equal(split.labels, np.float32([scores[name] for name in names]))
        for row, name in enumerate(names):
            for view, found in zip(VIEWS, split.read(row, 0)):
                expected = rows[view][name]
                np.testing.assert_array_equal(found[: len(expected)], expected)
                assert np.isnan(found[len(expected) :]).all()
    videos = splits["train"].groups.tolist()
    assert videos[0] == videos[1]
    assert len(set(videos)) == 4


def test_features_are_standardized_by_the_training_rows(tmp_path, rows, labels):
    splits = opened(tmp_path, True, labels=labels, **write_features(tmp_path, rows))
    for split, names in zip(splits.values(), NAMES.values()):
        for view, width, array in zip(VIEWS, WIDTHS, split.take(np.arange(len(names)))):
            every = np.concatenate([rows[view][name] for name in NAMES["train"]]).astype(np.float64)
            for name, found in zip(names, array):
                expected = (rows[view][name] - every.mean(0)) / every.std(0)
                np.testing.assert_allclose(found[: len(expected)], expected, rtol=1e-4, atol=1e-4)
                assert found.shape[1] == width
    with pytest.raises(ValueError, match=r"was prepared for chsims, but data\.dataset is mosei"):
        data.Sentiment(path=str(tmp_path / "out")).open()
    with pytest.raises(ValueError, match=r"csv' is not a prepared folder; run: mvcl data prepare sentiment"):
        data.Sentiment(path=labels).open()


def test_one_vector_each_in_an_archive(tmp_path, rows, labels):
    means = {view: {name: array.mean(0) for name, array in rows[view].items()} for view in VIEWS}
    means["audio"]["c_0001"] = np.zeros(WIDTHS[1], np.float32)  # what MERBench writes without speech
    means["vision"]["d_0003"] = np.zeros((0,), np.float32)
    features = {view: str(tmp_path / f"{view}.npz") for view in VIEWS}
    for view, path in features.items():
        np.savez(path, **means[view])
    split = opened(tmp_path, labels=labels, **features)["train"]
    assert split.spec.shapes == ((1, 4), (1, 3), (1, 2))
    expected = [[True, name != "c_0001", name != "d_0003"] for name in NAMES["train"]]
    assert split.present.tolist() == expected
    np.testing.assert_array_equal(split.read(0, 0)[0][0], means["text"]["a_b_0001"])


def test_long_sequences_are_averaged(tmp_path, rows, labels):
    rows["audio"]["a_b_0001"] = np.arange(33.0, dtype=np.float32).reshape(11, 3)
    splits = opened(tmp_path, labels=labels, max_length=(9, 4, 9), **write_features(tmp_path, rows))
    found = splits["train"].read(0, 0)[1]
    assert splits["train"].spec.shapes[1] == (4, 3)
    # 11 rows of 3, 6, 9, ... in groups of 3; the last group has 2.
    np.testing.assert_allclose(found[:, 0], [3.0, 12.0, 21.0, 28.5])


def saved(path, array):
    return lambda folder: np.save(folder / path, array)


def table(text):
    return lambda folder: (folder / "labels.csv").write_text(f"name,split,label\n{text}\n")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda f: (f / "text" / "c_0001.npy").unlink(), "text/c_0001 .* it is missing; for an utterance"),
        (lambda f: (f / "text" / "c_0001.npy").write_bytes(b"x"), "text/c_0001 is not a readable --text"),
        (saved("text/c_0001.npy", np.ones((2, 5))), "c_0001 has 5 columns, the ones before 4"),
        (saved("text/c_0001.npy", np.ones((2, 2, 4))), r"c_0001 .* \(time, d\) .* got \(2, 2, 4\)"),
        (saved("text/c_0001.npy", np.full((2, 4), np.nan)), "c_0001 must be finite"),
        (saved("vision/c_0001/z.npy", np.ones(7)), "c_0001 .* same shape"),
        (lambda f: (f / "labels.csv").write_text("name,split\n"), "lacks the column label; it has name, "),
        (table("a,all,1"), "the split of 'a' must be one of train"),
        (table("a,dev,x"), "could not convert string to float: 'x'"),
        (table("../a,dev,1"), r"name '\.\./a' must be a file name"),
        (table("a,train,0\na,test,0"), "name 'a' must be .* there once"),
        (table("c_0001,train,2\na,test,0"), r"label of c_0001 .* in \[-1.0, 1.0\] for chsims, got 2.0"),
    ],
)
def test_raises_on_bad_files(tmp_path, rows, labels, damage, message):
    features = write_features(tmp_path, rows)
    damage(tmp_path)
    with pytest.raises(ValueError, match=message):
        opened(tmp_path, labels=labels, **features)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"labels": ""}, r"is not a readable table of utterances \(--labels"),
        ({"labels": "other.npz"}, r"other\.npz is not a readable table"),
        ({"audio": "none"}, "none is not a readable --audio, a folder"),
        ({"max_length": (5, 0, 5)}, "--max-length must be 3 positive numbers"),
    ],
)
def test_raises_on_wrong_options(tmp_path, rows, labels, monkeypatch, options, message):
    monkeypatch.chdir(tmp_path)
    np.savez("other.npz", train_corpus=np.arange(3))
    features = write_features(tmp_path, rows)
    with pytest.raises(ValueError, match=message):
        opened(tmp_path, **{"labels": labels, **features, **options})
