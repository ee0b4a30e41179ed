"""Data from every source: folders, arrays, Hugging Face's files; synthetic data, which all evaluations accept."""

import argparse
import dataclasses
import io
import itertools
import json

import numpy as np
import pyarrow
import pytest
import sklearn.datasets
from PIL import Image
from pyarrow import parquet

from mvcl import data, evaluation
from mvcl.data import Synthetic


@pytest.fixture(scope="session")
def digits():
    return data.Digits().open()


def png(image):
    """The image as a file, lossless, so that pixels can be compared."""
    Image.fromarray(image).save(file := io.BytesIO(), "PNG")
    return file.getvalue()


def write_folder(root, rng, sizes=((6, 5),), classes=("cat", "dog"), count=5):
    expected = {}
    for part in ("train", "test"):
        for name in classes:
            (root / part / name).mkdir(parents=True)
            for i in range(count):
                image = rng.integers(0, 256, (*sizes[i % len(sizes)], 3), np.uint8)
                Image.fromarray(image).save(root / part / name / f"{i}.png")
                expected[part, name, i] = image
    return expected


def test_digits_equal_scikit_learn(digits):
    images, labels = sklearn.datasets.load_digits().images, sklearn.datasets.load_digits().target
    images = np.round(images * 255 / 16).astype(np.uint8)
    known = {(x.tobytes(), y) for x, y in zip(images, labels)}
    for part, size in (("train", 1437), ("test", 360)):
        split = digits[part]
        assert len(split) == size
        assert split.arrays[0].shape == (size, 8, 8, 1)
        assert {(x.tobytes(), int(y)) for x, y in zip(split.arrays[0][..., 0], split.labels)} <= known
    together = np.concatenate([digits["train"].arrays[0], digits["test"].arrays[0]])
    assert len({x.tobytes() for x in together}) == len({x for x, _ in known})
    assert np.bincount(digits["test"].labels).min() >= 35


def test_digits_split_is_fixed(digits):
    # Pinned: a change here changes every published number.
    for part, labels, total in (
        ("train", [4, 7, 6, 0, 0, 8, 0, 6, 2, 8, 5, 0], 7_162_982),
        ("test", [1, 4, 2, 3, 2, 9, 6, 4, 0, 8, 0, 0], 1_790_819),
    ):
        assert digits[part].labels[:12].tolist() == labels
        assert int(digits[part].arrays[0].astype(np.int64).sum()) == total


@pytest.mark.parametrize(("images", "labels"), [("{}_images", "{}_labels"), ("x_{}", "y_{}")])
def test_arrays(tmp_path, rng, images, labels):
    x = rng.integers(0, 256, (10, 4, 5, 3), np.uint8)
    arrays = {images.format("train"): x, labels.format("train"): np.arange(10, dtype=np.uint8) % 3}
    arrays |= {images.format("test"): x[:4], labels.format("test"): np.arange(4, dtype=np.uint8) % 3}
    np.savez(tmp_path / "a.npz", **arrays, class_names=["a", "b", "c"])
    splits = data.Arrays(path=str(tmp_path / "a.npz")).open()
    np.testing.assert_array_equal(splits["train"].take(np.array([3, 1]))[0], x[[3, 1]])
    chosen = data.Arrays(path=str(tmp_path / "a.npz"), classes=("b",), first=(2, 1)).open()["train"]
    np.testing.assert_array_equal(chosen.arrays[0], x[[1, 4]])
    assert splits["test"].labels.tolist() == [0, 1, 2, 0]
    assert splits["train"].class_names == ("a", "b", "c")


def test_encoded_arrays(tmp_path, rng):
    images, arrays = rng.integers(0, 256, (6, 4, 5, 3), np.uint8), {}
    files = [png(image) for image in images]
    for part in ("train", "test"):
        arrays[f"{part}_jpeg"] = np.frombuffer(b"".join(files), np.uint8)
        arrays[f"{part}_offsets"] = np.cumsum([0, *map(len, files)])
        arrays[f"{part}_labels"] = np.arange(6) % 2
    np.savez(tmp_path / "a.npz", **arrays)
    opened = data.Arrays(path=str(tmp_path / "a.npz"), classes=("1",)).open()["train"]
    np.testing.assert_array_equal(opened.arrays[0], images[1::2])
    assert opened.labels.tolist() == [0, 0, 0]


@pytest.mark.parametrize(("sizes", "shape"), [(((6, 5),), (6, 5, 3)), (((6, 5), (9, 4)), None)])
def test_folder_of_one_and_of_several_sizes_and_of_fewer_classes(tmp_path, rng, sizes, shape):
    expected = write_folder(tmp_path, rng, sizes=sizes, classes=("ape", "cat", "dog"))
    splits = data.Folder(path=str(tmp_path), classes=("dog", "ape")).open()
    assert splits["train"].spec.image_shape == shape
    assert splits["train"].class_names == ("ape", "dog")
    np.testing.assert_array_equal(splits["train"].read(6, 0)[0], expected["train", "dog", 1])
    assert splits["test"].labels.tolist() == [0] * 5 + [1] * 5
    if shape:
        np.testing.assert_array_equal(splits["test"].take(np.array([7]))[0], expected["test", "dog", 2][None])


def test_without_parts_every_fifth_is_held_out(tmp_path, rng):
    images, labels = rng.integers(0, 256, (10, 4, 5), np.uint8), np.arange(10) % 3
    np.savez(tmp_path / "b.npz", images=images, labels=labels)
    (tmp_path / "a").mkdir()
    for i, image in enumerate(images):
        Image.fromarray(image).save(tmp_path / "a" / f"{i}.png")
    for source in (data.Arrays(path=str(tmp_path / "b.npz")), data.Folder(path=str(tmp_path))):
        splits = source.open()
        assert (len(splits["train"]), len(splits["test"])) == (8, 2)
        np.testing.assert_array_equal(splits["test"].arrays[0][..., 0], images[[4, 9]])
    flat = data.Folder(path=str(tmp_path / "a")).open()["train"]
    assert (len(flat), flat.class_names) == (10, ("unlabelled",))
    assert flat.named[3] == str(tmp_path / "a" / "3.png")
    protocol = evaluation.Classification().of_clusters(0)
    assert protocol.measure({}, {})[0].protocol == "not measured: the data have no classes"
    whole = data.Folder(path=str(tmp_path), test_share=0).open()
    assert whole["test"] is whole["train"]
    assert evaluation.Classification().without_test().measure({}, {})[0].value is None
    assert [len(of) for of in data.Folder(path=str(tmp_path), test_share=0.5).open().values()] == [5, 5]


def test_labels_of_a_flat_folder_in_a_table(tmp_path, rng):
    for i in range(4):
        Image.fromarray(rng.integers(0, 256, (4, 5 + i), np.uint8)).save(tmp_path / f"{i}.png")
    table, lines = tmp_path / "l.csv", ["image,class,split", "0,b,train", "1.png,a,train", "2,a,valid"]
    table.write_text("\n".join(lines))
    splits = data.Folder(path=str(tmp_path), labels="l.csv").open()
    assert (splits["train"].class_names, splits["train"].labels.tolist()) == (("a", "b"), [0, 1])
    assert ([file.name for file in splits["train"].files], len(splits["test"])) == (["1.png", "0.png"], 1)
    assert splits["train"].outline.side == 4
    table.write_text("\n".join([*lines, "9,a,train"]))
    with pytest.raises(ValueError, match=r"line 5 of .*l\.csv names 9, which is not in"):
        data.Folder(path=str(tmp_path), labels="l.csv").open()


class Rows(dict):
    """What is used of a `datasets.Dataset` of ten rows: its columns by name, and its rows by number."""

    def __len__(self):
        return 10

    def __getitem__(self, key):
        return super().__getitem__(key) if isinstance(key, str) else {name: self[name][key] for name in self}

    def select_columns(self, names):
        return self

    def cast_column(self, name, kind):
        return None if kind.decode else self


def test_images_of_hugging_face_in_files_and_as_an_object(tmp_path, rng):
    images = rng.integers(0, 256, (10, 4, 5, 3), np.uint8)
    cells = [{"bytes": png(image), "path": None} for image in images]
    names = {"features": {"image": {"_type": "Image"}, "label": {"names": ["a", "b"]}}}
    meta = {b"huggingface": json.dumps({"info": names}).encode()}
    table = pyarrow.table({"image": cells, "label": [0, 1] * 5}).replace_schema_metadata(meta)
    (tmp_path / "hub" / "data").mkdir(parents=True)
    parquet.write_table(table, tmp_path / "hub" / "data" / "train-00000-of-00001.parquet")
    for part in ("train", "test"):
        (tmp_path / "disk" / part).mkdir(parents=True)
        with pyarrow.ipc.new_stream(str(tmp_path / "disk" / part / "data-0.arrow"), table.schema) as file:
            file.write_table(table)
    hub, disk = (data.HuggingFace(path=str(tmp_path / name)).open() for name in ("hub", "disk"))
    assert (len(hub["train"]), len(hub["test"]), len(disk["test"])) == (8, 2, 10)
    np.testing.assert_array_equal(hub["test"].arrays[0], images[[4, 9]])
    rows, kinds = Rows(image=cells, label=[0, 1] * 5), argparse.Namespace
    rows.features = {"image": kinds(decode=True, mode=None), "label": kinds(names=["a", "b"])}
    of = data.split_of_dataset(rows)
    for split in (of, disk["train"]):
        np.testing.assert_array_equal(split.arrays[0], images)
        assert (split.class_names, split.labels.tolist()) == (("a", "b"), [0, 1] * 5)
    with pytest.raises(ValueError, match=r"data.image='photo' .* must be columns, of image, label"):
        data.HuggingFace(path=str(tmp_path / "hub"), image="photo").open()


def test_error_names_a_corrupt_image(tmp_path, rng):
    write_folder(tmp_path, rng, sizes=((6, 5), (9, 4)))
    broken = tmp_path / "train" / "cat" / "1.png"
    for content in (broken.read_bytes()[:60], b"no image"):  # complete header, missing pixels; neither
        broken.write_bytes(content)
        split = data.Folder(path=str(tmp_path)).open()["train"]  # the run decides what to do
        with pytest.raises(data.CorruptExample, match=r"cat/1\.png cannot be read"):
            split.read(1, 0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"train_labels": np.arange(3)}, r"train_images must be \(3, H, W\[, C\]\), got \(4, 2, 2\)"),
        ({"train_labels": np.ones(4)}, "must be integers"),
        ({"train_labels": np.full(4, 1_000_000)}, r"must be integers in \[0, 1000000\)"),
        ({"train_images": np.zeros((4, 2, 2), np.int64)}, "uint8, or floating"),
        ({"train_images": np.full((4, 2, 2), 1.5)}, r"floating in \[0, 1\], got"),
        ({"train_images": None}, "no array train_images"),
        ({"class_names": np.array(["a"])}, "1 names for labels up to 3"),
    ],
)
def test_raises_on_bad_arrays(tmp_path, change, message):
    images, labels = np.zeros((4, 2, 2), np.uint8), np.arange(4)
    arrays = {"train_images": images, "train_labels": labels, "test_images": images, "test_labels": labels}
    arrays = {k: v for k, v in (arrays | change).items() if v is not None}
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(ValueError, match=message):
        data.Arrays(path=str(tmp_path / "a.npz")).open()


OPTIONS = {
    "images": Synthetic(image_size=12, channels=1),
    "sizes": Synthetic(image_size=12, sizes="different"),
    "views": Synthetic(view_shapes=((5,), (7, 3)), padded=True, missing=0.4, groups=6),
    "numbers": Synthetic(view_shapes=((20,), (4,)), regression=True, examples=200),
    "domains": Synthetic(domains=("a", "b", "c"), sizes="different"),
    "transfer": Synthetic(view_shapes=((30,), (30,)), transfer=True),
}


@pytest.mark.parametrize("kind", OPTIONS)
def test_same_options_give_the_same_examples_of_the_stated_shapes(kind):
    one, two = OPTIONS[kind].open(), OPTIONS[kind].open()
    assert one.keys() == two.keys()
    for name, split in one.items():
        assert split.labels.shape == (len(split),)
        for row, epoch in itertools.product(range(0, len(split), 7), (0, 3)):
            both = split.read(row, epoch), two[name].read(row, epoch)
            for array, again, shape in zip(*both, split.spec.shapes, strict=True):
                np.testing.assert_array_equal(array, again)
                assert all(size in (None, found) for size, found in zip(shape, array.shape, strict=True))
    # another seed gives other examples
    other = dataclasses.replace(OPTIONS[kind], seed=1).open()["train"]
    assert not np.array_equal(other.read(0, 0)[0], one["train"].read(0, 0)[0])


def test_missing_views_padding_and_groups():
    splits = OPTIONS["views"].open()
    train = splits["train"]
    assert train.present.any(axis=1).all()
    assert 0.1 < 1 - train.present.mean() < 0.4
    table, sequence = train.arrays
    np.testing.assert_array_equal(np.isnan(table).all(axis=1), ~train.present[:, 0])
    padding = np.isnan(sequence)
    assert (padding == padding.all(axis=2, keepdims=True)).all()  # whole rows
    assert (np.diff(padding.all(axis=2).astype(int), axis=1) >= 0).all()  # at the end
    assert not set(train.groups) & set(splits["test"].groups)


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        (Synthetic, {"examples": 1}, "data.examples must be at least 2, got 1"),
        (Synthetic, {"channels": 2}, "data.channels must be 1 or 3, got 2"),
        (Synthetic, {"missing": 1.0}, r"data.missing must be in \[0, 1\), got 1.0"),
        (Synthetic, {"missing": 0.5}, "data.padded and data.missing need data.view_shapes"),
        (Synthetic, {"domains": ("a", "b")}, "data.domains must be at least 3 names"),
        (data.Tfds, {"name": "cifar_10", "directory": "none"}, "cifar_10.*did you mean.*cifar10"),
        (data.Tfds, {"name": "cifar100", "directory": "none"}, "run: mvcl data prepare cifar100"),
        (data.Folder, {"path": "none"}, r"data\.path must be a folder"),
    ],
)
def test_raises_on_options_that_name_no_data(kind, options, message):
    with pytest.raises(ValueError, match=message):
        kind(**options).open()
