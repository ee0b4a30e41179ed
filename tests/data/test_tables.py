"""Feature tables from every kind of file, their errors, and those of the digits against loops and closed forms."""

import h5py
import numpy as np
import pyarrow as pa
import pytest
import scipy.io
from pyarrow import parquet
from sklearn.datasets import load_digits

from mvcl import data, evaluation, studies, training
from mvcl.data import _features as described

WIDE, NARROW = np.arange(24.0).reshape(8, 3) ** 2, np.arange(16.0).reshape(8, 2)[::-1]
LABELS = np.array([1, 1, 2, 2, 3, 3, 7, 7])


def opened(path, **options) -> data.Split:
    return data.Tables(path=str(path), scaling=("none",), **options).open()["train"]


def same(split, names=("X1", "X2"), labels=(0, 0, 1, 1, 2, 2, 3, 3), classes=("1", "2", "3", "7")):
    assert split.spec.view_names == names
    np.testing.assert_array_equal(split.arrays[0], WIDE.astype(np.float32))
    np.testing.assert_array_equal(split.arrays[1], NARROW.astype(np.float32))
    np.testing.assert_array_equal(split.labels, labels)
    assert split.labels.dtype == np.int32
    assert split.class_names == classes
    assert split.spec.shapes == ((3,), (2,))
    assert split.present is None
    for view, row in zip(split.arrays, split.read(3, 0)):
        np.testing.assert_array_equal(row, view[3])


def cell(*items) -> np.ndarray:
    array = np.empty((1, len(items)), object)
    array[0, :] = items
    return array


@pytest.mark.parametrize(
    "variables",
    [
        {"X": cell(WIDE, NARROW), "Y": LABELS[:, None]},
        {"X": cell(WIDE.T, NARROW.T), "gt": LABELS[None]},
        {"X1": WIDE, "X2": NARROW, "gnd": LABELS[None]},
        {"X2": scipy.sparse.csc_matrix(NARROW), "X1": WIDE, "truth": LABELS[:, None]},
        {"X": cell(WIDE, NARROW), "truelabel": cell(LABELS[None], LABELS[None])},
    ],
    ids=["cells", "columns", "matrices", "sparse", "labels a view"],
)
def test_matlab_5(tmp_path, variables):
    scipy.io.savemat(tmp_path / "a.mat", variables)
    split = opened(tmp_path / "a.mat")
    same(split, names=split.spec.view_names)


def write_matlab_7_3(path, cells=False):
    """As MATLAB lays it out, columns first."""
    with h5py.File(path, "w", userblock_size=512) as file:
        places = ("#refs#/0", "#refs#/1") if cells else ("X1", "X2")
        for place, value in (*zip(places, (WIDE.T, NARROW.T)), ("Y", LABELS[None].astype(float))):
            file.create_dataset(place, data=value).attrs["MATLAB_class"] = np.bytes_("double")
        if cells:
            references = np.array([[file[place].ref] for place in places], h5py.ref_dtype)
            file.create_dataset("X", data=references).attrs["MATLAB_class"] = np.bytes_("cell")
    with open(path, "r+b") as file:
        file.write(b"MATLAB 7.3 MAT-file".ljust(124) + b"\x00\x02IM")


def write_parquet(folder):
    for name, view, labels in (("X1", WIDE, {}), ("X2", NARROW, {"y": LABELS})):
        columns = {"id": np.arange(8)} | {f"c{i}": column for i, column in enumerate(view.T)}
        parquet.write_table(pa.table(columns | labels), folder / f"{name}.parquet", write_statistics=False)


@pytest.mark.parametrize(
    ("write", "file"),
    [
        (lambda folder: write_matlab_7_3(folder / "a.mat"), "a.mat"),
        (lambda folder: write_matlab_7_3(folder / "a.mat", cells=True), "a.mat"),
        (lambda folder: np.savez(folder / "a.npz", X1=WIDE, X2=NARROW, y=LABELS, ids=np.arange(8)), "a.npz"),
        (write_parquet, ""),
    ],
    ids=["matlab 7.3", "cells of matlab 7.3", "npz", "parquet"],
)
def test_files_of_every_kind(tmp_path, write, file):
    write(tmp_path)
    split = opened(tmp_path / file)
    same(split)
    assert split.ids == tuple(map(str, range(8)))


def write_csv(path, header, rows):
    path.write_text("\n".join([header, *(",".join(map(str, row)) for row in rows)]) + "\n")


@pytest.fixture
def folder(tmp_path):
    """Sound has no `d`, shape has no `a`; ids in different orders; labels in a column of shape."""
    write_csv(tmp_path / "sound.csv", "id,f1,f2", [("c", 1, 2), ("a", 3, 5), ("b", 5, 11)])
    write_csv(tmp_path / "shape.csv", "w,id,label", [(7, "b", "x"), (8, "c", "y"), (9, "d", "y")])
    write_csv(tmp_path / "labels.csv", "id,label", [("a", "x"), ("b", "x"), ("c", "y"), ("d", "y")])
    return tmp_path


def test_folder_with_missing_samples(folder):
    split = opened(folder)
    assert split.spec.view_names == ("shape", "sound")
    assert split.ids == ("b", "c", "d", "a")
    np.testing.assert_array_equal(split.present, [[1, 1], [1, 1], [1, 0], [0, 1]])
    np.testing.assert_array_equal(split.arrays[0], [[7], [8], [9], [np.nan]])
    np.testing.assert_array_equal(split.arrays[1], [[5, 11], [1, 2], [np.nan, np.nan], [3, 5]])
    np.testing.assert_array_equal(split.labels, [0, 1, 1, 0])


def test_scaling_is_fitted_to_the_columns(folder):
    split = data.Tables(path=str(folder), scaling=("standard", "minmax")).open()["train"]
    np.testing.assert_allclose(split.arrays[0][:3, 0], np.array([-1, 0, 1]) * np.sqrt(1.5), rtol=1e-6)
    np.testing.assert_allclose(split.arrays[1][[0, 1, 3]], [[1, 1], [0, 0], [0.5, 1 / 3]], rtol=1e-6)


def test_scaling_excludes_the_held_out_part(tmp_path):
    np.savez(tmp_path / "a.npz", X1=WIDE, X2=NARROW, labels=LABELS)
    parts = data.Tables(path=str(tmp_path / "a.npz"), held_out=True).open()
    assert [len(parts[name]) for name in ("train", "test")] == [7, 1]
    rows = np.delete(WIDE, 4, axis=0)
    expected = (WIDE[4] - rows.min(0)) / np.ptp(rows, axis=0)
    np.testing.assert_allclose(parts["test"].arrays[0][0], expected, rtol=1e-6)


def test_rows_of_training_are_no_test_of_classification(tmp_path):
    np.savez(tmp_path / "a.npz", X1=WIDE, X2=NARROW, labels=LABELS)
    config = training.load("tables:smoke")
    for held_out in (False, True):
        tables = data.Tables(path=str(tmp_path / "a.npz"), held_out=held_out)
        options = {"data": tables, "evaluation": evaluation.Classification(), "train.batch_size": 4}
        protocol = training.prepare(studies.changed(config, options)).config.evaluation
        assert isinstance(protocol, evaluation.Classification) == held_out
    unmeasured = evaluation.Classification().without_test()
    assert unmeasured.measure({}, {})[0].protocol == "not measured: no example is held out of training"


def test_warns_of_constant_columns_which_scaling_makes_0(tmp_path):
    np.savez(tmp_path / "a.npz", X1=np.where([[True, False, False]], 0.1, WIDE), X2=NARROW, labels=LABELS)
    for scaling in ("none", "minmax", "standard"):
        with pytest.warns(UserWarning, match=r"view X1: 1 of 3 columns are constant \(0\)"):
            split = data.Tables(path=str(tmp_path / "a.npz"), scaling=(scaling,)).open()["train"]
        assert np.allclose(split.arrays[0][:, 0], 0) == (scaling != "none")


@pytest.mark.parametrize("views", [("vision", "audio"), ("3", "1"), ("vision", "1")])
def test_views_and_their_scaling_are_chosen_by_name_or_number_in_order(tmp_path, views):
    """Of a folder with a file for each view, and one of labels."""
    third = np.arange(32.0).reshape(8, 4) % 5
    for name, view in (("audio", WIDE), ("text", NARROW), ("vision", third), ("labels", LABELS)):
        np.save(tmp_path / f"{name}.npy", view)
    split = opened(tmp_path, views=views)
    assert split.spec.view_names == ("vision", "audio")
    assert split.spec.shapes == ((4,), (3,))
    assert (split.class_names, split.labels.tolist()) == (("1", "2", "3", "7"), [0, 0, 1, 1, 2, 2, 3, 3])
    np.testing.assert_array_equal(split.arrays[0], third.astype(np.float32))
    np.testing.assert_array_equal(split.arrays[1], WIDE.astype(np.float32))
    scaled = data.Tables(path=str(tmp_path), views=views, scaling=("none", "minmax")).open()["train"].arrays
    np.testing.assert_array_equal(scaled[0], split.arrays[0])
    assert (scaled[1].min(), scaled[1].max()) == (0, 1)


def archive(**arrays):
    """One file, with other arrays; without those that are None."""
    arrays = {"X1": WIDE, "X2": NARROW, "y": LABELS} | arrays
    arrays = {name: array for name, array in arrays.items() if array is not None}
    return lambda folder: np.savez(folder / "a.npz", **arrays)


def sound(*lines):
    """A folder of tables, in which sound.csv has these lines."""
    return lambda folder: (folder / "sound.csv").write_text("\n".join(lines) + "\n")


def unlabelled(*lines):
    def write(folder):
        (folder / "labels.csv").unlink()
        write_csv(folder / "shape.csv", "w,id", [(7, "b"), (8, "c"), (9, "d")])
        sound(*lines)(folder)

    return write


def labels(*values):
    def write(folder):
        write_csv(folder / "shape.csv", "w,id", [(7, "b"), (8, "c"), (9, "d")])
        write_csv(folder / "labels.csv", "id,label", zip("abcd", values))

    return write


F = "id,f1,f2"
TWO = sound(F, "c,1,2", "b,3,5")


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        (archive(X2=NARROW[:7]), {}, r"numbers of examples: X1 \(8 x 3 .*X2 \(7 x 2 .*y \(8 "),
        (archive(X1=np.where(WIDE == 9, np.inf, WIDE)), {}, "view X1 has 1 entries.*example 1"),
        (archive(y=np.stack([LABELS, LABELS], axis=1)), {}, r"y must be a row or a column.*got \(8 x 2"),
        (archive(ids=["a"] * 8), {}, "ids must be distinct.*7 are repeated.*as a"),
        (archive(y=LABELS / 2), {}, "labels must be whole numbers or strings, got 0.5"),
        (archive(y=np.ones(8)), {}, "at least 2 classes"),
        (archive(X2=None), {}, "no cell array X of views and no matrices X1"),
        (unlabelled("id,f", "c,1", ",2", "b,3"), {}, r"1 of 3 rows have no id, .* line 3 of .*sound.csv"),
        (unlabelled("id,f", "x,1", "y,2"), {}, r"no example is in more than .* 'b' in shape, 'x' in sound"),
        (unlabelled("key,f", "b,1"), {}, r"files must share one column of ids, .* they share none"),
        (sound(F, "c,1,2"), {"columns": ("sound=g*",)}, r"columns: no column is 'g\*'; there are f1, f2"),
        (labels("x", "", "y", "y"), {}, r"1 of 4 examples .* no label, the first is b"),
        (sound(F, "c,1,2"), {"path": "nothing"}, r"data\.path must be .* 'nothing', which does not exist"),
        (sound(F, "c,1,2", "c,3,5"), {}, r"sound.csv: ids must be distinct: 1 are repeated, such as c"),
        (sound(F, "c,1,2", "a,,5", "b,5,1"), {}, r"1 entries of .*sound.csv .* 'f1', line 3 of .*sound.csv"),
        (sound(F, "c,1,loud", "a,2,5"), {}, r"'f2' must have numbers.* line 2 of .*sound.csv has 'loud'"),
        (sound(F, "c,1,2"), {"labels": "name"}, r"data\.labels: no file has a column 'name'"),
        (TWO, {"views": ("shape", "g")}, r"data\.views.*no view 'g'; there are 1 shape, 2 sound"),
        (TWO, {"views": ("shape", "1")}, r"data\.views.*view shape is chosen twice; there are 1 shape"),
        (TWO, {"views": ("sound",)}, r"data\.views.*must choose at least 2 views, got sound of 1 shape"),
    ],
)
def test_raises_on_invalid_tables(folder, change, options, message):
    change(folder)
    path = folder / "a.npz" if (folder / "a.npz").exists() else folder
    with pytest.raises(ValueError, match=message):
        data.Tables(**{"path": str(path), **options}).open()


def test_one_table_of_texts_decimals_and_gaps(tmp_path):
    lines = ["k;a;b1;b2", "x;1,5;2;3", "y;;4;5", "x;2,5;6;7", ";3;8;9", "y;4;;"]
    (tmp_path / "a.csv").write_text("\n".join(lines))
    options = {"columns": ("v=a,k", "w=b?"), "scaling": ("none",)}
    source = data.Tables(path=str(tmp_path / "a.csv"), missing="mean", **options)
    split = source.open()["train"]
    expected = [[1.5, 1, 0], [2.75, 0, 1], [2.5, 1, 0], [3, 0.5, 0.5], [4, 0, 1]]
    np.testing.assert_array_equal(split.arrays[0], expected)
    np.testing.assert_array_equal(split.present[:, 1], [1, 1, 1, 1, 0])
    assert split.scaling["v"]["columns"] == ["a", "k=x", "k=y"]
    (tmp_path / "new.csv").write_text("a;k\n;z")
    given = str(tmp_path / "new.csv"), split.spec, split.scaling, ()
    np.testing.assert_array_equal(data.new_rows(source, *given)["all"].arrays[0], [[2.75, 0, 0]])
    masked = data.Tables(path=str(tmp_path / "a.csv"), missing="mask", **options).open()["train"]
    np.testing.assert_array_equal(masked.present, [[1, 1], [0, 1], [1, 1], [0, 1], [1, 0]])


def test_new_rows_have_the_scaling_and_the_classes_of_the_run(tmp_path, rng):
    views = {"X1": rng.normal(size=(6, 3)), "X2": rng.normal(size=(6, 2))}
    np.savez(tmp_path / "old.npz", **views, Y=[0, 1, 0, 1, 0, 5])
    np.savez(tmp_path / "new.npz", X1=views["X1"][:4])
    source = data.Tables(path=str(tmp_path / "old.npz"), scaling=("standard",))
    split = source.open()["train"]
    given = split.spec, split.scaling, split.class_names
    same, new = (data.new_rows(source, str(tmp_path / of), *given)["all"] for of in ("old.npz", "new.npz"))
    assert same.digest() == split.digest()
    np.testing.assert_array_equal(new.arrays[0], split.arrays[0][:4])
    np.testing.assert_array_equal(new.present, [[True, False]] * 4)
    np.testing.assert_array_equal(new.labels, -1)


def test_hog_of_a_ramp():
    ramp = np.tile(np.arange(8.0), (1, 8, 1))  # rises to the right: every gradient points at 0 degrees
    found = described.hog(ramp).reshape(4, 9)
    np.testing.assert_allclose(found[:, 0], 0.5, rtol=1e-5)  # four equal cells with unit length in total
    np.testing.assert_array_equal(found[:, 1:], 0)
    np.testing.assert_allclose(described.hog(ramp.transpose(0, 2, 1)).reshape(4, 9)[:, 4], 0.5, rtol=1e-5)


def test_lbp_of_a_flat_image_and_a_dot():
    flat = described.lbp(np.ones((1, 8, 8))).reshape(4, 10)
    # Of a cell's 16 pixels, 9 are inside with 8 equal neighbours, 6 at an edge have 5 of 8, the corner has 3.
    np.testing.assert_allclose(flat, np.tile([0, 0, 0, 1, 0, 6, 0, 0, 9, 0], (4, 1)) / 16)
    dot = np.zeros((1, 8, 8))
    dot[0, 1, 1] = 1
    found = described.lbp(dot).reshape(4, 10)[0] * 16
    assert found[0] == 1  # the dot is above all its neighbours


def test_fourier_profiles_and_moments():
    images = load_digits().images[:20] / 16
    y, x = np.mgrid[:8, :8]
    functions = (described.fourier, described.profiles, described.moments)
    for image, f, p, m in zip(images, *(function(images) for function in functions)):
        phases = [2j * np.pi * (u * y + v * x) / 8 for u in range(8) for v in range(5)]
        waves = [np.log1p(abs(np.sum(image * np.exp(-phase)))) for phase in phases]
        np.testing.assert_allclose(f, waves, atol=1e-12)
        sums = [image[line == i].sum() for line in (y, x) for i in range(8)]
        sums += [image[line == d].sum() for line in (x - y, 7 - x - y) for d in range(-7, 8)]
        np.testing.assert_allclose(p, sums, atol=1e-12)
        mass = image.sum()
        cy, cx = (image * y).sum() / mass, (image * x).sum() / mass
        orders = [(a, t - a) for t in (2, 3, 4) for a in range(t, -1, -1)]
        central = [(image * (y - cy) ** a * (x - cx) ** b).sum() for a, b in orders]
        eta = [moment / mass ** (1 + (a + b) / 2) for moment, (a, b) in zip(central, orders)]
        np.testing.assert_allclose(m, [mass, cy, cx, *eta], rtol=1e-9, atol=1e-12)
