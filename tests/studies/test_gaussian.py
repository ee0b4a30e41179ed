"""The Gaussian studies: the grid against the library's losses, and the numbers against closed forms."""

from functools import partial

import _gaussian
import _gaussian_grid
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from mvcl import losses, metrics, studies, training
from tests.parametrize import some

variance = training.config_module(studies.find("shidani_variance"))


def tiny(name, **options):
    """M = 3, K = 16; the grid has fewer nodes than the 48 vectors of a batch, which are summed exactly otherwise."""
    options = {"networks": 3, "epochs": 2, "steps_per_epoch": 2, "grid": 32} | options
    return _gaussian.gaussian(name, 3, 16, evaluation_batches=1, **options)


@pytest.fixture(scope="module", params=some(["arithmetic", "multi_crop"], fast=["arithmetic"]))
def trained(request, tmp_path_factory):
    """Name and folder of a run of an objective."""
    folder = tmp_path_factory.mktemp(request.param) / "run"
    training.train(tiny(request.param), folder)
    return request.param, folder


def curve(parameters, x):
    """A smooth curve in three dimensions that turns about once in one unit of x."""
    angle = parameters["turn"] * x
    return jnp.stack([jnp.cos(angle), jnp.sin(angle), parameters["rise"] * jnp.tanh(x)], axis=-1)


@pytest.mark.parametrize("name", _gaussian.OBJECTIVES)
@pytest.mark.exhaustive
def test_grid_gives_the_loss_and_its_gradient(name, rng):
    x = jnp.asarray(rng.normal(size=(3, 40)) + 0.3 * rng.normal(size=(1, 40)), jnp.float32)
    parameters = {"turn": jnp.float32(0.8), "rise": jnp.float32(1.5)}
    objective = _gaussian.OBJECTIVES[name]

    def exact(p):
        return _gaussian_grid.of_inputs(x, embed=partial(curve, p), objective=objective.at(0.2))

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
    config = tiny("arithmetic", grid=0, learning_rate=0.1, weight_decay=0.5)
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
    run = training.prepare(tiny("arithmetic"))
    state = run.program.init()
    views = tuple(view[:5] for view in run.splits["test"].arrays)
    found = run.program.apply(state, {"views": views}).reshape(5, 3, 3, -1)
    first = run.program.learner.network(state["params"], {}).encoder
    for m in range(3):
        np.testing.assert_allclose(found[:, m, 0], first(views[m][:, :1]), atol=1e-5)
    assert not np.allclose(found[:, :, 0], found[:, :, 1])


def test_numbers_are_bounds_of_the_models_information(trained):
    name, folder = trained
    found = _gaussian.each_network(folder)
    assert len(found) == 3
    covariance = np.ones((3, 3)) + 0.25 * np.eye(3)  # signal 1, noise 1/2
    whole, rest = np.linalg.det(covariance), np.linalg.det(covariance[1:, 1:])
    truth = 0.5 * np.log(covariance[0, 0] * rest / whole)
    chance = np.log(16 * 3 - 3 + 1) if name == "arithmetic" else np.log(16)
    for network in found:
        np.testing.assert_allclose(network["information"], truth, rtol=1e-10)
        np.testing.assert_allclose(network["bound"], chance - network["loss"], rtol=1e-5)
        np.testing.assert_allclose(network["gap"], truth - network["bound"], rtol=1e-5)
        np.testing.assert_allclose(network["ratio"], truth / network["bound"], rtol=1e-5)
        np.testing.assert_allclose(network["valid gap"], truth - network["valid"], rtol=1e-5)
    assert len({network["loss"] for network in found}) == 3


@pytest.mark.exhaustive
def test_measures_the_losses_of_the_library(trained):
    name, folder = trained
    prepared, state = training.open_run(folder)
    of = _gaussian.OBJECTIVES[name]
    z = training.encode(prepared, state, ("test",))[0]["test"].reshape(64, 16, 3, 3, -1)
    found = _gaussian.each_network(folder)
    for s in range(3):
        batches = jnp.asarray(z[:, :, :, s].swapaxes(1, 2))  # (batches, M, K, d)
        np.testing.assert_allclose(found[s]["loss"], jax.vmap(of.at(0.1))(batches).mean(), rtol=1e-5)

        def bound(batch, view):
            return metrics.info_nce_bound(metrics.group_scores(batch, (view,), 0.1, of.critic))

        valid = [jax.vmap(partial(bound, view=view))(batches).mean() for view in range(3)]
        np.testing.assert_allclose(found[s]["valid"], np.mean(valid), atol=1e-5)


def test_a_finished_run_keeps_the_value_of_each_network(trained):
    name, folder = trained
    table = training.train(tiny(name), folder)
    values = [network["gap"] for network in _gaussian.each_network(folder)]
    gap = next(result for result in table["trained encoder"] if result.name == "gap")
    assert gap.each == tuple(values)
    expected = (np.mean(values), np.std(values, ddof=1))
    np.testing.assert_allclose((gap.value, gap.deviation), expected, rtol=1e-9)
    assert int(training.open_run(folder)[1]["step"]) == 4
