"""A run with a momentum encoder: checkpoints, resuming, evaluation of either network."""

import dataclasses
import shutil
from functools import partial

import jax
import numpy as np
import pytest

from mvcl import data, losses, methods, training
from mvcl.training import _run


@pytest.fixture(scope="module")
def moco(tiny):
    return dataclasses.replace(
        tiny,
        data=data.Synthetic(view_shapes=((6,), (6,)), examples=88),
        objective=partial(losses.dsf, in_batch_negatives=False),
        method=methods.MocoV2(momentum=0.5, queue=80),
        train=dataclasses.replace(tiny.train, steps=4, evaluate_every=0),
        evaluation=dataclasses.replace(tiny.evaluation, labels_per_class=(), baselines=False),
    )


@pytest.mark.exhaustive
def test_resumes_bit_identically_with_momentum_encoder_and_queue(moco, tmp_path):
    trained, workdir = tmp_path / "moco", tmp_path / "again"
    training.train(moco, trained)
    shutil.copytree(trained, workdir)
    shutil.rmtree(workdir / "checkpoints" / "4")
    (workdir / "evaluation.json").unlink()
    _, state = training.open_run(workdir)
    assert int(state["step"]) == 2
    assert np.any(state["statistics"]["queue"])
    training.train(training.load(workdir), workdir)
    (_, first), (_, second) = training.open_run(trained), training.open_run(workdir)
    jax.tree.map(np.testing.assert_array_equal, jax.device_get(first), jax.device_get(second))
    moved = jax.tree.map(
        lambda a, b: bool(np.any(a != b)), first["statistics"]["momentum"], first["params"]["network"]
    )
    assert all(jax.tree.leaves(moved))


def test_evaluates_either_network(moco, tmp_path, write_run):
    state = training.prepare(moco).program.init()
    state["params"] = jax.tree.map(lambda x: 2 * x, state["params"])  # the momentum encoder is half of it
    write_run(moco, tmp_path, state)
    features = {}
    for network in ("config", "momentum"):
        run, state = training.open_run(tmp_path, network=network)
        features[network] = training.encode(run, state, ("test",))[0]["test"]
    np.testing.assert_allclose(features["config"], 2 * features["momentum"], rtol=1e-5)
    assert np.any(features["momentum"])


def test_raises_on_network_without_a_momentum_encoder(tiny, tmp_path):
    (tmp_path / "config.json").write_text(training.to_json(tiny))
    with pytest.raises(ValueError, match="--network must be online or momentum, for a method with"):
        training.open_run(tmp_path, network="momentum")


def test_logs_what_dsf_measures(moco):
    """R, κ, s+ and s-; by Jensen's inequality the loss is at least that of these means with all 80 negatives alike."""
    run = training.prepare(moco)
    state, batch = run.program.init(), next(_run.batches(run, 0))

    @jax.jit
    def loss(state, batch):
        given = methods.Batch(batch, lambda inputs: run.program.views(inputs))
        of_views = methods.of_views(moco.objective)
        return run.program.learner.loss(state["params"], state["statistics"], given, of_views)

    value, (_, _, measures) = loss(state, batch)
    row = {name: float(value) for name, value in measures.items()} | {"loss": float(value)}
    np.testing.assert_allclose(row["resultant"], 0.95, rtol=1e-5)  # one view in a group
    np.testing.assert_allclose(row["concentration"], 0.95 * (8 - 0.95**2) / (1 - 0.95**2) / 8, rtol=1e-4)
    least = np.log1p(80 * np.exp(row["negative_similarity"] - row["positive_similarity"]))
    assert least - 1e-4 < row["loss"] < least + 5
