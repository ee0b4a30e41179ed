"""`training.geometry` on images, tables and every method, against embeddings computed view by view."""

import dataclasses
import json
from functools import partial

import jax
import numpy as np
import pytest

from mvcl import augment, data, evaluation, losses, models, training
from mvcl.training import AdamW, Checkpoint, Config, Mesh, Train, Views
from mvcl.training._program import evaluated

IMAGES = data.Synthetic(image_size=8, examples=24, classes=2)
POLICY = dataclasses.replace(augment.digits(), image_size=8)


def config(**changes):
    plain = Config(
        data=IMAGES,
        views=Views(k=3, policy=POLICY),
        encoder=models.ConvNet(widths=(4,)),
        head=models.MLPHead(out=5, norm="none", output_norm="none"),
        objective=partial(losses.mv_dhel, temperature=0.5),
        optimizer=AdamW(learning_rate=1e-2),
        train=Train(steps=4, batch_size=8, log_every=2, evaluate_every=0),
        mesh=Mesh(data=1),
        checkpoint=Checkpoint(every_steps=10),
        evaluation=evaluation.Classification(knn_k=3, labels_per_class=(1,), draws=1, batch_size=16),
    )
    return dataclasses.replace(plain, **changes)


TABLES = data.Synthetic(view_shapes=((6,), (6,), (6,)), examples=24, classes=2, missing=0.2)
MLP = models.MLP(widths=(7,))


def measured(config, **options):
    run = training.prepare(config)
    state = run.program.init()
    return run, state, training.geometry(run, state, **options)


def test_images_are_measured_by_their_drawn_views(tmp_path):
    """Four views; training has three, of which one is flipped."""
    policies = (POLICY, dataclasses.replace(POLICY, flip_probability=1.0), POLICY)
    flipped = config(views=Views(k=3, policies=policies))
    run, state, found = measured(flipped, out=tmp_path / "geometry.json", views=4)
    split, rows = run.splits["test"], np.arange(12)
    draw = jax.jit(lambda x: augment.draw_views([*policies, POLICY], x, 1_000_003, 0 * rows, rows))
    views = draw(split.take(rows)[0])
    features = jax.jit(run.program.learner.features, static_argnums=3)
    for output in ("encoder", "head"):
        each = [features(*evaluated(state), {"images": views[:, l]}, output) for l in range(4)]
        expected = evaluation.geometry(each).numbers()
        got = found.outputs[output].numbers()
        assert got == pytest.approx(expected, rel=2e-3, abs=1e-4)
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


LOGGED = config(
    data=dataclasses.replace(TABLES, missing=0.0),
    encoder=MLP,
    train=Train(steps=6, batch_size=8, log_every=2, evaluate_every=0, geometry_every=1),
    evaluation=evaluation.Classification(knn_k=3, labels_per_class=(), batch_size=16, baselines=False),
)


def test_training_logs_the_geometry(tmp_path):
    """After steps 3 and 6, on one device; then it is measured on eight."""
    training.train(LOGGED, tmp_path)
    rows = map(json.loads, (tmp_path / "metrics.jsonl").read_text().splitlines())
    found = {row["step"]: row for row in rows if "head_uniformity" in row}
    assert list(found) == [3, 6]
    run, state = training.open_run(tmp_path)
    assert run.program.mesh.size == 8
    numbers = training.geometry(run, state).numbers()
    for output in ("encoder", "head"):
        for key, name in (
            ("alignment", "alignment"),
            ("positive_cosine", "positive cosine"),
            ("negative_cosine", "negative cosine"),
            ("uniformity", "uniformity, Gaussian"),
            ("effective_rank", "effective rank"),
        ):
            assert found[6][f"{output}_{key}"] == pytest.approx(numbers[f"{output}: {name}"], rel=1e-4)
    assert found[3]["head_alignment"] != found[6]["head_alignment"]
