"""`training.geometry` and `training.decompose` on images, tables and every kind of network, and their files."""

import dataclasses
import itertools
import json
import re

import jax
import numpy as np
import pandas as pd
import pytest

from mvcl import augment, cli, data, evaluation, losses, methods, models, training
from mvcl.studies import changed
from mvcl.training import Mesh, Views
from mvcl.training._program import evaluated

TABLES = data.Synthetic(view_shapes=((6,), (6,), (4,)), examples=200, classes=2, missing=0.2)
MLP = models.MLP(widths=(8,))


@pytest.fixture
def config(tiny):
    """A config of a method and other changes, on three tables and all devices."""
    plain = {"data": TABLES, "head": models.MLPHead(layers=1, out=4), "mesh": Mesh()}
    return lambda method, **changes: dataclasses.replace(tiny, method=method, **plain | changes)


SEPARATE = methods.MultiEncoder(encoders=(MLP, MLP, models.MLP(widths=(5,))))
FUSION = models.Transformer(width=8, depth=1, heads=2, dropout=0.0)
FUSED = methods.Fused(tokens=2, fusion=FUSION, augmentation=None)


def given(monkeypatch, run, **options):
    """The initial state of a run, and the features that it has decomposed, with their options."""
    state, calls = run.program.init(), []
    monkeypatch.setattr(evaluation, "decompose", lambda *args, **options: calls.append((*args, options)))
    training.decompose(run, state, **options)
    return state, calls


def test_features_of_separate_encoders_are_those_of_the_views(config, monkeypatch):
    run = training.prepare(config(SEPARATE))
    state, [(train, test, labels, options), (raw, *_)] = given(monkeypatch, run, examples=50)
    assert {key: x.shape[1] for key, x in train.items()} == {("view1",): 8, ("view2",): 8, ("view3",): 5}
    assert {key: x.shape for key, x in raw.items()} == {
        ("view1",): (50, 6), ("view2",): (50, 6), ("view3",): (50, 4),
    }  # fmt: skip
    whole = training.Encoder(run, state).encode(run.splits["test"], "encoder")
    found = np.where(np.repeat(options["present"][1], [8, 8, 5], axis=1), np.hstack([*test.values()]), 0)
    assert np.abs(found[:, None] - whole[None]).max(-1).min(1).max() < 1e-5
    assert set(labels[1]) == {0, 1}


def test_features_of_subsets_of_a_fusing_network_are_those_without_the_other_views(config, monkeypatch):
    run = training.prepare(config(FUSED, objective=losses.comm))
    state, [(train, test, _, options), _] = given(monkeypatch, run, examples=50)
    assert list(train) == evaluation.subsets(run.outline.spec.view_names)
    encoder, every = training.Encoder(run, state), run.splits["test"]
    views = dict(zip(encoder.views, every.take(np.flatnonzero(every.present.all(1)))))
    of_run = options["present"][1].all(1)
    for subset in (("view2",), ("view1", "view3"), encoder.views):
        expected = encoder({name: views[name] for name in subset})
        found = test[subset][of_run]
        distance = np.abs(found[:, None] - expected[None]).max(-1).min(1)
        assert distance.max() < 1e-5


def test_without_held_out_rows_parts_of_the_same_rows_are_used(config, monkeypatch):
    run = training.prepare(config(SEPARATE))
    run = dataclasses.replace(run, splits={"train": run.splits["train"], "test": run.splits["train"]})
    _, [(train, test, *_)] = given(monkeypatch, run, raw=False)
    n = len(run.splits["train"])
    assert [len(of["view1",]) for of in (train, test)] == [n - n // 3, n // 3]
    missing = bytes(np.zeros(8, np.float32))
    assert not {*map(bytes, train["view1",])} & {*map(bytes, test["view1",])} - {missing}


def test_command_prints_the_numbers_and_writes_them(config, tmp_path, capsys):
    source = dataclasses.replace(TABLES, missing=0.0, view_shapes=((6,), (6,)))
    run = training.prepare(config(FUSED, objective=losses.comm, data=source, views=Views(k=2)))
    training.Encoder(run, run.program.init()).save(tmp_path)
    assert cli.main(["decompose", str(tmp_path), "--probe", "linear", "--draws", "10"]) == 0
    said = capsys.readouterr().out
    assert "trained encoder" in said
    assert "raw views" in said
    content = json.loads((tmp_path / "decomposition.json").read_text())
    assert content["rows"]["raw views"]["parts"] == ["unique view1", "unique view2", "shared", "synergy"]
    table = pd.read_csv(tmp_path / "decomposition.csv", index_col=["row", "of"])
    assert "10 bootstrap draws" in said
    for name, numbers in content["rows"]["trained encoder"]["numbers"].items():
        np.testing.assert_allclose(table.loc[("trained encoder", name)].dropna(), [*numbers.values()])
        assert re.search(rf"^{re.escape(name)} +{numbers['value']:.3f} ", said, re.MULTILINE)
    assert cli.main(["decompose", str(tmp_path), "--out", "x.txt"]) == 2


def test_a_run_on_images_or_without_labels_says_what_it_needs(config, tiny):
    run = training.prepare(tiny)
    with pytest.raises(ValueError, match=r"needs a run on at least 2 given views, .* drawn from one image"):
        training.decompose(run, run.program.init())
    run = training.prepare(config(SEPARATE))
    nameless = {name: dataclasses.replace(s, labels=0 * s.labels) for name, s in run.splits.items()}
    with pytest.raises(ValueError, match="decompose needs labels or scores"):
        training.decompose(dataclasses.replace(run, splits=nameless), run.program.init(), raw=False)


@pytest.fixture
def small(tiny):
    """24 examples of two classes; embeddings of length 5."""
    head = models.MLPHead(out=5, norm="none", output_norm="none")
    return changed(tiny, {"data.examples": 24, "data.classes": 2, "head": head, "train.batch_size": 8})


def test_images_are_measured_by_their_drawn_views(small, tmp_path):
    """Four views; training has three, of which one is flipped."""
    plain = dataclasses.replace(small.views.policy, flip_probability=0.0)
    policies = (plain, dataclasses.replace(plain, flip_probability=1.0), plain)
    more = {"encoder": models.ConvNet(widths=(4,)), "views": Views(k=3, policy=plain, policies=policies)}
    run = training.prepare(changed(small, more))
    state = run.program.init()
    found = training.geometry(run, state, out=tmp_path / "geometry.json", views=4)
    split, rows = run.splits["test"], np.arange(12)
    draw = jax.jit(lambda x: augment.draw_views([*policies, plain], x, 1_000_003, 0 * rows, rows))
    views = draw(split.take(rows)[0])
    features = jax.jit(run.program.learner.features, static_argnums=3)
    for output in ("encoder", "head"):
        each = [features(*evaluated(state), {"images": views[:, l]}, output) for l in range(4)]
        got = found.outputs[output].numbers()
        assert got == pytest.approx(evaluation.geometry(each).numbers(), rel=2e-3, abs=1e-4)
        assert found.numbers()[f"{output}: alignment"] == got["alignment"]
    content = json.loads((tmp_path / "geometry.json").read_text())
    assert (content["step"], content["split"], content["examples"]) == (0, "test", 12)
    head = content["outputs"]["head"]
    assert head["views"] == ["view 1", "view 2", "view 3", "view 4"]
    assert head["rows"]["mean"] == found.outputs["head"].rows["mean"]
    assert len(head["spreads"]["all views"]["eigenvalues"]) == 5
    assert head["alignment"][0][0] is None
    assert sum(head["positives"]) == 6 * 12
    assert "head, view 3" in evaluation.evaluation_table(found.results())


def test_training_logs_the_geometry(small, tmp_path, rows):
    """After steps 3 and 6, on one device; then it is measured on eight."""
    tables = {"data.view_shapes": ((6,), (6,), (6,)), "evaluation.labels_per_class": ()}
    often = {"train.geometry_every": 1.0, "train.evaluate_every": 0.0, "evaluation.baselines": False}
    training.train(changed(small, tables | often), tmp_path)
    found = {row["step"]: row for row in rows(tmp_path) if "head_uniformity" in row}
    assert list(found) == [3, 6]
    run, state = training.open_run(tmp_path)
    assert run.program.mesh.size == 8
    numbers = training.geometry(run, state).numbers()
    names = ("alignment", "positive cosine", "negative cosine", "uniformity, Gaussian", "effective rank")
    for output, name in itertools.product(("encoder", "head"), names):
        key = f"{output}_{name.removesuffix(', Gaussian').replace(' ', '_')}"
        assert found[6][key] == pytest.approx(numbers[f"{output}: {name}"], rel=1e-4)
    assert found[3]["head_alignment"] != found[6]["head_alignment"]
