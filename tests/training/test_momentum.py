"""Runs whose state is more than parameters: resuming, evaluation of either network."""

import shutil
from functools import partial

import jax
import numpy as np
import pytest

from mvcl import data, evaluation, losses, methods, training
from mvcl.studies import changed


@pytest.fixture(scope="module")
def moco(tiny):
    changes = {
        "data": data.Synthetic(view_shapes=((6,), (6,)), examples=88),
        "objective": partial(losses.dsf, in_batch_negatives=False),
        "method": methods.MocoV2(momentum=0.5, queue=80),
        "train.steps": 4,
        "train.evaluate_every": 0,
    }
    return changed(tiny, changes | {"evaluation.labels_per_class": (), "evaluation.baselines": False})


@pytest.fixture(scope="module")
def sem(moco):
    """Two steps an epoch; W is computed at steps 2 and 4."""
    changes = {
        "objective": losses.all_pairs(partial(losses.nt_xent, temperature=1.0), None, "all", "sum"),
        "method": methods.Sem(pretrain_epochs=1, update_epochs=1, hidden=(8,), features=6, embedding=4),
        "optimizer": training.AdamW(learning_rate=1e-3, end_learning_rate=1e-3),
        "evaluation": evaluation.Clustering(features="head", runs=1, starts=1, svm_share=0),
        "train.steps": 6,
    }
    return changed(moco, changes)


@pytest.mark.exhaustive
@pytest.mark.parametrize(("config", "steps"), [("moco", 4), ("sem", 6)])
def test_resumes_bit_identically_with_the_state_of_a_method(config, steps, request, tmp_path):
    """Queue and momentum encoder; W, which is computed again at the step of the checkpoint."""
    config, trained, cut = request.getfixturevalue(config), tmp_path / "trained", tmp_path / "cut"
    training.train(config, trained)
    shutil.copytree(trained, cut)
    shutil.rmtree(cut / "checkpoints" / str(steps))
    (cut / "evaluation.json").unlink()
    assert int(training.open_run(cut)[1]["step"]) == steps - 2
    training.train(config, cut)
    states = [jax.device_get(training.open_run(folder)[1]) for folder in (trained, cut)]
    jax.tree.map(np.testing.assert_array_equal, *states)
    records = [file.read_text() for folder in (trained, cut) for file in folder.glob("refresh.jsonl")]
    assert records == records[:1] * (2 if isinstance(config.method, methods.Sem) else 0)


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
