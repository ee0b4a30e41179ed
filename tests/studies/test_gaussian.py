"""The Gaussian study: the grid against the library's losses, and the numbers against closed forms."""

import dataclasses
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mvcl import cli, studies

CONFIG = Path(__file__).parents[2] / "configs/shidani/gaussian.py"
TINY = studies.Gaussian(
    objectives=("arithmetic", "multi_crop"),
    views=(3,),
    instances=16,
    epochs=2,
    steps_per_epoch=2,
    seeds=3,
    evaluation_batches=2,
)


def curve(parameters, x):
    """A smooth curve in three dimensions that turns about once in one unit of x."""
    angle = parameters["turn"] * x
    return jnp.stack([jnp.cos(angle), jnp.sin(angle), parameters["rise"] * jnp.tanh(x)], axis=-1)


@pytest.mark.parametrize("name", list(studies.OBJECTIVES))
def test_grid_gives_the_loss_and_its_gradient(name, rng):
    x = jnp.asarray(rng.normal(size=(3, 40)) + 0.3 * rng.normal(size=(1, 40)), jnp.float32)
    parameters = {"turn": jnp.float32(0.8), "rise": jnp.float32(1.5)}

    def exact(p):
        z = curve(p, x.reshape(-1)).reshape(3, 40, -1)
        return studies.objective_loss(name, 0.2)(z)

    def grid(p):
        return studies.through_grid(name, lambda v: curve(p, v), x, temperature=0.2, nodes=128, reach=6.0)

    loss, gradient = jax.value_and_grad(exact)(parameters)
    found, found_gradient = jax.value_and_grad(grid)(parameters)
    np.testing.assert_allclose(found, loss, atol=3e-5)
    for key in parameters:
        np.testing.assert_allclose(found_gradient[key], gradient[key], atol=3e-4)


def test_numbers_are_bounds_of_the_models_information():
    found = studies.numbers(TINY, report=lambda line: None)
    assert [(r["objective"], r["views"]) for r in found["runs"]] == [
        ("arithmetic", 3),
        ("multi_crop", 3),
    ]
    for run in found["runs"]:
        m = run["views"]
        covariance = np.ones((m, m)) + 0.25 * np.eye(m)  # signal 1, noise 1/2
        whole, rest = np.linalg.det(covariance), np.linalg.det(covariance[1:, 1:])
        truth = 0.5 * np.log(covariance[0, 0] * rest / whole)
        np.testing.assert_allclose(run["information"], truth, rtol=1e-10)
        chance = np.log(16 * m - m + 1) if run["objective"] == "arithmetic" else np.log(16)
        np.testing.assert_allclose(run["bound"], chance - np.array(run["loss"]), rtol=1e-5)
        np.testing.assert_allclose(run["gap"], truth - np.array(run["bound"]), rtol=1e-5)
        np.testing.assert_allclose(run["ratio"], np.array(run["bound"]) / truth, rtol=1e-5)
        assert len(run["training_loss"]) == 2


def test_verdict_tells_a_fall_from_a_rise():
    def run(name, views, gap):
        return {"objective": name, "views": views, "gap": [gap - 0.01, gap + 0.01]}

    found = {
        "runs": [run("arithmetic", m, g) for m, g in ((2, 0.3), (4, 0.2), (8, 0.19))]
        + [run("geometric", m, g) for m, g in ((2, 0.1), (4, 0.2), (8, 0.3))]
        + [run("multi_crop", m, g) for m, g in ((2, 0.3), (4, 0.1), (8, 0.2))]
    }
    geometric, arithmetic, multi_crop = studies.verdict(found).splitlines()[2:]
    # Two seeds 0.02 apart: a deviation of 0.0141 and, over root 2 and for two means, an error of 0.0141.
    assert "| 0.3000, 0.2000, 0.1900 | falls, level | -0.1100 ± 0.0141 | yes |" in arithmetic
    assert "| rises, rises | +0.2000 ± 0.0141 | no |" in geometric
    assert "| falls, rises | -0.1000 ± 0.0141 | no |" in multi_crop


@pytest.mark.parametrize(
    ("field", "value"),
    [("objectives", ("vicreg",)), ("views", (1,)), ("noise", 0.0), ("grid", 3), ("seeds", 0)],
)
def test_bad_fields_are_refused(field, value):
    with pytest.raises(ValueError, match=field):
        studies.numbers(dataclasses.replace(TINY, **{field: value}), report=lambda line: None)


def test_the_config_is_a_study_that_train_runs(tmp_path, capsys):
    assert studies.load(CONFIG).views == (2, 4, 8, 10)
    assert studies.load(CONFIG.parents[1] / "digits.py") is None
    small = "--seeds 2 --epochs 1 --steps-per-epoch 2 --instances 16 --views 2 --objectives multi_crop"
    assert cli.main(["train", str(CONFIG), "--workdir", str(tmp_path), *small.split()]) == 0
    assert f"page: {tmp_path / 'gaussian.md'}" in capsys.readouterr().out
    found = json.loads((tmp_path / "gaussian.json").read_text())
    assert found["config"]["instances"] == 16
    assert found["config"]["learning_rate"] == 5e-4
    assert [len(run["gap"]) for run in found["runs"]] == [2]
    assert "Bound / truth" in (tmp_path / "gaussian.svg").read_text()
