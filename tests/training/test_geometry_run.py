"""`training.geometry` on images, tables and every method, against embeddings computed view by view."""

import dataclasses
import itertools
import json

import jax
import numpy as np
import pytest

from mvcl import augment, evaluation, models, training
from mvcl.studies import changed
from mvcl.training import Views
from mvcl.training._program import evaluated


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
