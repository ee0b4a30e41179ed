"""The Gaussian study: the grid against the library's losses, and the numbers against closed forms."""

import dataclasses
import itertools
import json
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from mvcl import cli, losses, metrics, studies, training
from mvcl.studies import _gaussian

CONFIG = Path(__file__).parents[2] / "configs/shidani/gaussian.py"
TINY = studies.Gaussian(
    objectives=("arithmetic", "multi_crop"),
    views=(3,),
    instances=16,
    epochs=2,
    steps_per_epoch=2,
    seeds=3,
    grid=32,  # less than the 48 vectors of a batch, which are summed exactly otherwise
    evaluation_batches=2,
)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The folder of the study TINY, and its numbers."""
    folder = tmp_path_factory.mktemp("study")
    return folder, studies.numbers(TINY, folder)


def curve(parameters, x):
    """A smooth curve in three dimensions that turns about once in one unit of x."""
    angle = parameters["turn"] * x
    return jnp.stack([jnp.cos(angle), jnp.sin(angle), parameters["rise"] * jnp.tanh(x)], axis=-1)


def test_trainings_are_counted(tmp_path, monkeypatch):
    within = []
    monkeypatch.setattr(
        _gaussian, "_trained", lambda *arguments: within.append(arguments[-1]._nested[-1].name())
    )
    studies.numbers(dataclasses.replace(TINY, views=(3, 4)), tmp_path)
    assert [name.partition(" (")[0] for name in within] == [f"training {i} of 4" for i in (1, 2, 3, 4)]


@pytest.mark.parametrize("name", list(studies.OBJECTIVES))
def test_grid_gives_the_loss_and_its_gradient(name, rng):
    x = jnp.asarray(rng.normal(size=(3, 40)) + 0.3 * rng.normal(size=(1, 40)), jnp.float32)
    parameters = {"turn": jnp.float32(0.8), "rise": jnp.float32(1.5)}
    objective = studies.OBJECTIVES[name]

    def exact(p):
        return studies.of_inputs(x, embed=partial(curve, p), objective=objective.at(0.2))

    def grid(p):
        return objective.on_grid(x, embed=partial(curve, p), temperature=0.2, nodes=128, reach=6.0)

    loss, gradient = jax.value_and_grad(exact)(parameters)
    found, found_gradient = jax.value_and_grad(grid)(parameters)
    np.testing.assert_allclose(found, loss, atol=3e-5)
    for key in parameters:
        np.testing.assert_allclose(found_gradient[key], gradient[key], atol=3e-4)


@pytest.mark.slow
def test_networks_train_in_one_run_as_separately():
    """Three AdamW steps of 3 networks, against single networks with the optimiser's weight mask."""
    study = dataclasses.replace(TINY, grid=0, learning_rate=0.1, weight_decay=0.5)
    config = studies.config_of(study, "arithmetic", 3, 16)
    run = training.prepare(config)
    state, views = run.program.init(), run.splits["train"].arrays
    rows = [np.arange(16 * step, 16 * (step + 1)) for step in range(3)]
    first = run.program.learner.network(state["params"], {}).encoder
    graph, params = nnx.split(first)
    rule = optax.adamw(0.1, weight_decay=0.5, mask=lambda tree: jax.tree.map(lambda a: a.ndim > 1, tree))
    opt = rule.init(params)

    def loss(params, x):
        z = nnx.merge(graph, params)(x.reshape(-1, 1)).reshape(3, 16, -1)
        return losses.poly_view(z, temperature=0.1, aggregation="arithmetic")

    for of_batch in rows:
        batch = {"views": tuple(jnp.asarray(v[of_batch]) for v in views), "index": jnp.asarray(of_batch)}
        state, _ = run.program.step(state, batch)
        gradient = jax.grad(loss)(params, jnp.stack([v[of_batch, 0] for v in views]))
        updates, opt = rule.update(gradient, opt, params)
        params = optax.apply_updates(params, updates)
    found = nnx.state(run.program.learner.network(state["params"], {}).encoder, nnx.Param)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(params), strict=True):
        np.testing.assert_allclose(a, b, atol=2e-5)


def test_features_are_embeddings_by_view_and_network():
    config = studies.config_of(TINY, "arithmetic", 3, 16)
    run = training.prepare(config)
    state = run.program.init()
    views = tuple(view[:5] for view in run.splits["test"].arrays)
    found = run.program.apply(state["params"], {}, {"views": views}).reshape(5, 3, 3, -1)
    first = run.program.learner.network(state["params"], {}).encoder
    for m in range(3):
        np.testing.assert_allclose(found[:, m, 0], first(views[m][:, :1]), atol=1e-5)
    assert not np.allclose(found[:, :, 0], found[:, :, 1])


def test_numbers_are_bounds_of_the_models_information(trained):
    _, found = trained
    assert [(r["objective"], r["views"]) for r in found["runs"]] == [("arithmetic", 3), ("multi_crop", 3)]
    for run in found["runs"]:
        m = run["views"]
        covariance = np.ones((m, m)) + 0.25 * np.eye(m)  # signal 1, noise 1/2
        whole, rest = np.linalg.det(covariance), np.linalg.det(covariance[1:, 1:])
        truth = 0.5 * np.log(covariance[0, 0] * rest / whole)
        np.testing.assert_allclose(run["information"], truth, rtol=1e-10)
        chance = np.log(16 * m - m + 1) if run["objective"] == "arithmetic" else np.log(16)
        np.testing.assert_allclose(run["bound"], [chance - run["loss"][0], run["loss"][1]], rtol=1e-5)
        np.testing.assert_allclose(run["gap"], [truth - run["bound"][0], run["loss"][1]], rtol=1e-5)
        np.testing.assert_allclose(run["valid gap"][0], truth - run["valid"][0], rtol=1e-5)
        assert run["loss"][1] > 0


def test_measures_the_losses_of_the_library(trained):
    folder, found = trained
    for run, name in zip(found["runs"], TINY.objectives):
        config = studies.config_of(TINY, name, 3, 16)
        prepared = training.prepare(config)
        like = prepared.program.abstract_state()
        checkpoints = training.Checkpoints(folder / f"{name}_3" / "checkpoints", 1)
        state, _ = checkpoints.restore(like)
        checkpoints.close()
        z = training.encode(prepared, state, ("test",))[0]["test"].reshape(2, 16, 3, 3, -1)
        of_network = [
            np.mean([studies.OBJECTIVES[name].at(0.1)(batch[:, :, s].swapaxes(0, 1)) for batch in z])
            for s in range(3)
        ]
        np.testing.assert_allclose(run["loss"], [np.mean(of_network), np.std(of_network, ddof=1)], rtol=1e-5)
        bounds = run["bound"][0] + run["loss"][0] - np.array(of_network)
        np.testing.assert_allclose(run["ratio"][0], np.mean(run["information"] / bounds), rtol=1e-4)
        valid = [
            metrics.info_nce_bound(
                metrics.group_scores(
                    batch[:, :, s].swapaxes(0, 1), (v,), 0.1, studies.OBJECTIVES[name].critic
                )
            )
            for s, batch, v in itertools.product(range(3), z, range(3))
        ]
        np.testing.assert_allclose(run["valid"][0], np.mean(valid), atol=1e-5)


def test_opens_a_run_from_its_folder(trained):
    folder = trained[0] / "multi_crop_3"
    assert training.to_json(training.load(folder)) == (folder / "config.json").read_text()
    assert int(training.open_run(folder)[1]["step"]) == 4


def test_finished_run_is_not_repeated(trained, capsys):
    folder, found = trained
    again = studies.numbers(TINY, folder)
    assert again["runs"] == found["runs"]
    assert "step" not in capsys.readouterr().out.replace("from step 4 of 4", "")


def test_verdict_on_decrease_and_increase():
    def run(name, views, gap):
        return {"objective": name, "views": views, "gap": [gap, 0.02 / np.sqrt(2)]}

    found = {
        "config": {"seeds": 2},
        "runs": [run("arithmetic", m, g) for m, g in ((2, 0.3), (4, 0.2), (8, 0.19))]
        + [run("geometric", m, g) for m, g in ((2, 0.1), (4, 0.2), (8, 0.3))]
        + [run("multi_crop", m, g) for m, g in ((2, 0.3), (4, 0.1), (8, 0.2))],
    }
    geometric, arithmetic, multi_crop = studies.verdict(found).splitlines()[2:]
    # Two seeds 0.02 apart: a deviation of 0.0141 and, over root 2 and for two means, an error of 0.0141.
    assert "| 0.3000, 0.2000, 0.1900 | falls, level | -0.1100 ± 0.0141 | yes |" in arithmetic
    assert "| rises, rises | +0.2000 ± 0.0141 | no |" in geometric
    assert "| falls, rises | -0.1000 ± 0.0141 | no |" in multi_crop


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("objectives", ("vicreg",)),
        ("views", (1,)),
        ("noise", 0.0),
        ("grid", 3),
        ("seeds", 0),
        ("batch_views", (2, 5)),
        ("batch", 64),
    ],
)
def test_raises_on_bad_fields(field, value):
    with pytest.raises(ValueError, match=field):
        studies.check(dataclasses.replace(TINY, **({"batch": 8, "batch_views": (2, 4), field: value})))


def test_train_runs_the_config(tmp_path, capsys):
    small = (
        "--seeds 2 --epochs 1 --steps-per-epoch 2 --instances 16 --views 2 --objectives geometric --batch 8 "
        "--batch-views 2 4"
    )
    assert cli.main(["train", str(CONFIG), "--workdir", str(tmp_path), *small.split()]) == 0
    assert f"page: {tmp_path / 'gaussian.md'}" in capsys.readouterr().out
    found = json.loads((tmp_path / "gaussian.json").read_text())
    assert found["config"]["instances"] == 16
    assert found["config"]["learning_rate"] == 5e-4
    assert [len(run["gap"]) for run in found["runs"]] == [2]
    assert [(run["views"], run["instances"]) for run in found["of_batch"]] == [(2, 4), (4, 2)]
    assert "Truth / bound" in (tmp_path / "gaussian.svg").read_text()
    page = (tmp_path / "gaussian.md").read_text()
    equation_154 = metrics.optimal_multiplicity(8, found["of_batch"][0]["loss"][0], 154)
    assert f"| {equation_154:.1f} |" in page.split("## The best M")[1]
    assert studies.page(found) == page


def test_docs_page_is_made_from_its_numbers():
    docs = CONFIG.parents[2] / "docs"
    found = json.loads((docs / "gaussian.json").read_text())
    assert studies.page(found) == (docs / "gaussian.md").read_text()


def test_two_classes():
    """K = 2: the other instance is of the same class with probability 1/2."""
    printed, valid = studies.two_classes(2, 8)
    np.testing.assert_allclose([printed, valid], [np.log(9) / 2, np.log(2) / 2], rtol=1e-12)
    printed, valid = studies.two_classes(1024, 8)
    assert valid < np.log(2) < printed


def test_multi_crop_variance_falls_less_than_printed():
    found = studies.multi_crop_variance(views=(2, 4), batches=2000)
    assert found[0] == {"views": 2, "measured": 1.0, "printed": 1.0}
    assert found[1]["printed"] == 2 * 7 / (3 * 4 * 3)
    assert 0.45 < found[1]["measured"] < 0.65


def test_dry_run_prints_parameters_and_cost(capsys):
    small = "--seeds 2 --instances 16 --views 2 4 --batch 0 --objectives multi_crop --dry-run"
    assert cli.main(["train", str(CONFIG), *small.split()]) == 0
    out = capsys.readouterr().out
    assert f"parameters of a network: {2 * 32 + 33 * 32:,}" in out
    assert "multi_crop at M = 4" in out
