"""Untrusted configs, checkpoints and data files: no code of them is run, and no file outside their folder is
written."""

import ast
import contextlib
import dataclasses
import functools
import io
import json
import os
import shutil
import zipfile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from mvcl import data, losses, report, training

PACKAGE = Path(training.__file__).parents[1]


class Bomb:
    """Creates a folder when unpickled."""

    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return (os.mkdir, (str(self.mark),))


@pytest.fixture
def mark(tmp_path):
    """The folder that unpickled code would create; checks that it does not exist after the test."""
    path = tmp_path / "code-was-run"
    yield path
    assert not path.exists()


def calls(tree):
    return [node for node in ast.walk(tree) if isinstance(node, ast.Call)]


def name_of(node):
    return ast.unparse(node.func)


@pytest.mark.parametrize("file", sorted(PACKAGE.rglob("*.py")), ids=lambda f: str(f.relative_to(PACKAGE)))
def test_no_unsafe_calls_in_the_package(file):
    tree = ast.parse(file.read_text())
    for call in calls(tree):
        name = name_of(call)
        keywords = {k.arg: ast.unparse(k.value) for k in call.keywords}
        if name in ("np.load", "numpy.load"):
            assert keywords.get("allow_pickle") == "False", ast.unparse(call)
        assert name not in ("eval", "exec", "compile", "__import__", "os.system"), ast.unparse(call)
        assert not name.endswith((".extract", ".extractall", "unpack_archive")), ast.unparse(call)
        if name.endswith("import_module"):
            assert file.name in ("_eeg.py", "_buckets.py")  # optional packages with constant names
        assert keywords.get("shell") is None
        assert keywords.get("allow_pickle") != "True"
    imported = {
        alias.name.split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for alias in ([ast.alias(node.module or "")] if isinstance(node, ast.ImportFrom) else node.names)
    }
    assert not imported & {"dill", "cloudpickle", "marshal", "shelve", "joblib", "torch", "yaml", "runpy"}
    if "pickle" in imported:  # it allows arrays and containers only; see its tests
        assert file.name == "_pickles.py"


def with_objects(path, mark, **arrays):
    """Write an .npz file with a pickled array."""
    np.savez(path, **arrays, train_images=np.asarray([Bomb(mark)], object))


def test_raises_on_pickled_arrays(tmp_path, mark):
    with_objects(tmp_path / "x.npz", mark, train_labels=np.zeros(1, int))
    with pytest.raises(ValueError, match=r"not a readable \.npz file.*pickle"):
        data.Arrays(path=str(tmp_path / "x.npz")).open()


def test_report_runs_no_code(tmp_path, mark):
    run = tmp_path / "run"
    run.mkdir()
    (run / "config.json").write_text(training.to_json(training.Config()))
    (run / "metrics.jsonl").write_text('{"step": 1, "loss": 1.0, "chance": 2.0}\n')
    with_objects(run / "views.npz", mark)
    with_objects(run / "embeddings.npz", mark)
    with contextlib.suppress(ValueError):  # it may raise or omit the images
        report.write_report([run], tmp_path / "report.html")


def test_archive_paths_write_no_files(tmp_path):
    outside = tmp_path / "outside.npy"
    buffer = io.BytesIO()
    np.save(buffer, np.zeros((2, 4, 4), np.uint8))
    folder = tmp_path / "in"
    folder.mkdir()
    with zipfile.ZipFile(folder / "x.npz", "w") as archive:
        for name in ("../outside.npy", str(outside), "train_images.npy", "test_images.npy"):
            archive.writestr(name, buffer.getvalue())
        labels = io.BytesIO()
        np.save(labels, np.asarray([0, 1]))
        for part in ("train", "test"):
            archive.writestr(f"{part}_labels.npy", labels.getvalue())
    splits = data.Arrays(path=str(folder / "x.npz")).open()
    assert len(splits["train"]) == 2
    assert [f.name for f in tmp_path.rglob("*") if f.is_file()] == ["x.npz"]


@pytest.mark.parametrize(
    "name", ["os.system", "Popen", "builtins.eval", "__class__", "Path", "Config.__init__", ""]
)
def test_saved_config_allows_config_classes_only(name):
    tree = json.loads(training.to_json(training.Config()))
    tree["encoder"] = {"_type": name, "command": "touch x"}
    with pytest.raises(ValueError, match="names the unknown class"):
        training.from_json(json.dumps(tree))


@pytest.mark.parametrize(
    "text", ["", "[]", "1", "null", '{"_type": "Config", "bogus": 1}', '{"_type": "Train"}', "{" * 50]
)
def test_raises_on_an_invalid_saved_config(text):
    with pytest.raises(ValueError, match="the saved config"):
        training.from_json(text)


def state(step):
    mesh = Mesh(np.asarray(jax.devices()[:1]), ("data",))
    sharding = NamedSharding(mesh, PartitionSpec())
    return jax.tree.map(
        lambda x: jax.device_put(x, sharding), {"w": jnp.arange(64.0) + step, "step": jnp.int32(step)}
    )


def test_checkpoint_with_pickles_runs_no_code(tmp_path, mark):
    """Replaces each file of a checkpoint by a pickle, and by JSON with unsafe names."""
    import pickle

    manager = training.Checkpoints(tmp_path / "sound", 2)
    manager.save(1, state(1), {"seed": 0})
    manager.close()
    like = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), state(0))
    files = [f.relative_to(tmp_path / "sound") for f in (tmp_path / "sound" / "1").rglob("*") if f.is_file()]
    assert len(files) > 3
    for number, file in enumerate(files):
        for content in (
            pickle.dumps(Bomb(mark)),
            b'{"__reduce__": ["os.mkdir", ["x"]], "handler": "os.system"}',
        ):
            copy = tmp_path / f"copy{number}"
            shutil.copytree(tmp_path / "sound", copy)
            (copy / file).write_bytes(content)
            manager = training.Checkpoints(copy, 2)
            try:
                restored = manager.restore(like, log=lambda _: None)
            except training.DamagedCheckpoints:
                restored = None
            if restored is not None:  # a file that restore does not read
                np.testing.assert_array_equal(restored[0]["w"], state(1)["w"])
            manager.close()
            shutil.rmtree(copy)
            assert not mark.exists()


def test_prepared_data_set_imports_no_module(tmp_path, monkeypatch, mark):
    """tfds imports the module of each class that features.json names."""
    data.prepare("digits", str(tmp_path))
    (tmp_path / "foreign.py").write_text(f"import os\nos.mkdir({str(mark)!r})\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    (file,) = tmp_path.rglob("features.json")
    text = file.read_text()
    assert "tensor_feature.Tensor" in text
    file.write_text(text.replace("tensorflow_datasets.core.features.tensor_feature.Tensor", "foreign.Tensor"))
    with pytest.raises(ValueError, match=r"names the class 'foreign\.Tensor'.*not imported"):
        data.Digits(directory=str(tmp_path)).open()
    file.write_text("[" * 100_000)
    with pytest.raises(ValueError, match="cannot be read"):
        data.Digits(directory=str(tmp_path)).open()


def test_config_fields_are_plain_data():
    """A saved config has numbers, strings and names of the package's own classes and objectives."""

    def visit(value):
        if dataclasses.is_dataclass(value):
            for field in dataclasses.fields(value):
                visit(getattr(value, field.name))
        elif isinstance(value, tuple):
            for item in value:
                visit(item)
        elif isinstance(value, functools.partial):
            assert value.func in losses.objectives().values()
            visit(tuple(value.keywords.values()))
        else:
            assert value is None or isinstance(value, (bool, int, float, str)), value

    visit(training.from_json(training.to_json(training.Config())))
