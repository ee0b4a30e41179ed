"""`training.decompose`: features of subsets of views of each kind of network, its files, and what it asks of a run."""

import dataclasses
import json
from functools import partial

import numpy as np
import pandas as pd
import pytest

from mvcl import cli, data, evaluation, losses, methods, models, training
from mvcl.training import Checkpoint, Config, Train, Views

TABLES = data.Synthetic(view_shapes=((6,), (6,), (4,)), examples=200, classes=2, missing=0.2)
MLP = models.MLP(widths=(8,))


def config(method, **changes):
    plain = Config(
        data=TABLES,
        views=Views(k=3),
        encoder=MLP,
        head=models.MLPHead(layers=1, out=4),
        objective=partial(losses.mv_dhel, temperature=0.5),
        method=method,
        train=Train(steps=2, batch_size=16, log_every=1, evaluate_every=0),
        checkpoint=Checkpoint(every_steps=10),
        evaluation=evaluation.Classification(labels_per_class=(), batch_size=64, baselines=False),
    )
    return dataclasses.replace(plain, **changes)


SEPARATE = methods.MultiEncoder(encoders=(MLP, MLP, models.MLP(widths=(5,))))
FUSED = methods.Fused(
    tokens=2, fusion=models.Transformer(width=8, depth=1, heads=2, dropout=0.0), augmentation=None
)


def given(monkeypatch, config):
    """The features that a run of this config has decomposed, and its options."""
    run, calls = training.prepare(config), []
    monkeypatch.setattr(evaluation, "decompose", lambda *args, **options: calls.append((*args, options)))
    state = run.program.init()
    training.decompose(run, state, examples=50)
    return run, state, calls


def test_features_of_separate_encoders_are_those_of_the_views(monkeypatch):
    run, state, [(train, test, labels, options), (raw, *_)] = given(monkeypatch, config(SEPARATE))
    assert {key: x.shape[1] for key, x in train.items()} == {("view1",): 8, ("view2",): 8, ("view3",): 5}
    assert {key: x.shape for key, x in raw.items()} == {
        ("view1",): (50, 6), ("view2",): (50, 6), ("view3",): (50, 4),
    }  # fmt: skip
    whole = training.Encoder(run, state).encode(run.splits["test"], "encoder")
    found = np.where(np.repeat(options["present"][1], [8, 8, 5], axis=1), np.hstack([*test.values()]), 0)
    assert np.abs(found[:, None] - whole[None]).max(-1).min(1).max() < 1e-5
    assert set(labels[1]) == {0, 1}


def test_features_of_subsets_of_a_fusing_network_are_those_without_the_other_views(monkeypatch):
    run, state, [(train, test, _, options), _] = given(monkeypatch, config(FUSED, objective=losses.comm))
    assert list(train) == evaluation.subsets(run.outline.spec.view_names)
    encoder, every = training.Encoder(run, state), run.splits["test"]
    complete = np.flatnonzero(every.present.all(1))
    views = dict(zip(encoder.views, every.take(complete)))
    of_run = options["present"][1].all(1)
    for subset in (("view2",), ("view1", "view3"), encoder.views):
        expected = encoder({name: views[name] for name in subset})
        found = test[subset][of_run]
        distance = np.abs(found[:, None] - expected[None]).max(-1).min(1)
        assert distance.max() < 1e-5


def test_without_held_out_rows_parts_of_the_same_rows_are_used(monkeypatch):
    run = training.prepare(config(SEPARATE))
    run = dataclasses.replace(run, splits={"train": run.splits["train"], "test": run.splits["train"]})
    calls = []
    monkeypatch.setattr(evaluation, "decompose", lambda *args, **options: calls.append(args))
    training.decompose(run, run.program.init(), raw=False)
    train, test, _ = calls[0]
    n = len(run.splits["train"])
    assert [len(of["view1",]) for of in (train, test)] == [n - n // 3, n // 3]
    assert not {*map(bytes, train["view1",])} & {*map(bytes, test["view1",])} - {
        bytes(np.zeros(8, np.float32))
    }


def test_command_prints_the_numbers_and_writes_them(tmp_path, capsys):
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
    numbers = content["rows"]["trained encoder"]["numbers"]["synergy"]
    np.testing.assert_allclose(table.loc[("trained encoder", "synergy")], [*numbers.values()])
    assert f"{numbers['value']:.3f}" in said
    assert cli.main(["decompose", str(tmp_path), "--out", "x.txt"]) == 2


def test_a_run_on_images_or_without_labels_says_what_it_needs():
    images = data.Synthetic(image_size=8, examples=24, classes=2)
    run = training.prepare(config(methods.Simclr(), data=images, encoder=models.ConvNet(widths=(4,))))
    with pytest.raises(ValueError, match=r"needs a run on at least 2 given views, .* drawn from one image"):
        training.decompose(run, run.program.init())
    run = training.prepare(config(SEPARATE))
    nameless = {name: dataclasses.replace(s, labels=0 * s.labels) for name, s in run.splits.items()}
    with pytest.raises(ValueError, match="decompose needs labels or scores"):
        training.decompose(dataclasses.replace(run, splits=nameless), run.program.init(), raw=False)
