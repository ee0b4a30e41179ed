"""The controls, digits and CIFAR-10: what their cells hold constant and what differs."""

from functools import partial

import _digits
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mvcl import data, losses, studies, training

cifar = training.config_module(studies.find("cifar"))
control = training.config_module(studies.find("control_dsf_temperature"))


def opened(name: str, **options: object) -> studies.Study:
    return studies.open_study(studies.find(name), "small", 5, options).study


def configs(study: studies.Study) -> dict[tuple[object, ...], training.Config]:
    return {tuple(cell.factors.values()): cell.task.config for cell in study.cells}


def views(rng, k=4, n=12, d=16):
    return jnp.asarray(rng.normal(size=(1, n, d)) + 0.7 * rng.normal(size=(k, n, d)), jnp.float32)


@pytest.mark.parametrize("temperature", [0.1, 0.5])
def test_dsf_of_one_view_is_info_nce_at_the_effective_temperature(rng, temperature):
    z = views(rng, 2)
    found = control.dsf_at_effective_temperature(z[:1], z[1:], temperature=temperature)
    expected = losses.info_nce(z[0], z[1], temperature=temperature)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_the_mean_pair_of_several_views_has_the_effective_temperature(rng):
    z = views(rng)
    means = z / jnp.linalg.norm(z, axis=-1, keepdims=True)
    lengths = 0.95 * jnp.linalg.norm(means.reshape(2, 2, 12, 16).mean(1), axis=-1)  # R of queries and keys
    kappa = lengths * (16 - lengths**2) / (1 - lengths**2) / 16
    own = 0.3 * lengths.mean() * kappa.mean()  # what divides A κ <μ, μ> where t is 0.3
    expected = losses.dsf(z[:2], z[2:], temperature=own)
    found = control.dsf_at_effective_temperature(z[:2], z[2:], temperature=0.3)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_the_temperature_of_dsf_has_no_gradient(rng):
    z = views(rng)
    at = partial(control.dsf_at_effective_temperature, temperature=0.3)
    measured = losses.measured_on_views(losses.dsf)
    _, seen = measured(z)
    own = 0.3 * seen["resultant"] * seen["concentration"]
    found = jax.grad(lambda z: at(z[:2], z[2:]))(z)
    expected = jax.grad(lambda z: losses.dsf(z[:2], z[2:], temperature=own))(z)
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_energy_is_weight_times_views():
    found = configs(opened("control_energy_weight"))
    assert set(found) == {(2, 1), (2, 2), (2, 4), (2, 8), (4, 1), (4, 4), (8, 1), (8, 8)}
    for (k, energy), config in found.items():
        assert config.views.k == k
        assert config.objective.keywords["energy_weight"] * k == energy


def test_pairwise_m3g_is_above_joint_at_the_smaller_epsilon_and_more_at_the_larger(rng):
    found, epsilon = configs(opened("control_m3g")), 0.05
    z = views(rng, n=6)
    joint, equal, smaller = (
        float(found[loss, epsilon].objective(z))
        for loss in ("joint", "pairs, epsilon", "pairs, 2 epsilon / k")
    )
    assert joint < smaller < equal
    excess = losses.m3g_pairwise_excess(z, epsilon)
    assert smaller - joint == pytest.approx(float(excess), rel=0.05, abs=2e-3)


def test_encoder_passes_are_equal_within_a_column():
    found = configs(opened("control_encoder_passes"))
    of = {key: config.views.k * config.train.batch_size * config.train.steps for key, config in found.items()}
    least = min(of.values())
    assert {key: passes / least for key, passes in of.items()} == {key: key[2] for key in of}
    assert found["mv_dhel", 4, 2].train.steps == found["mv_dhel", 2, 1].train.steps  # equal epochs


def test_configs_of_a_control_differ_in_what_is_compared_only():
    allowed = {
        "control_dsf_temperature": ("objective",),
        "control_encoder_passes": ("objective", "views.k", "train.steps"),
        "control_energy_weight": ("objective", "views.k"),
        "control_m3g": ("objective",),
        "control_poly_view_rho": ("objective",),
    }
    for name, free in allowed.items():
        first, *others = (training.flatten(training.tree(c)) for c in configs(opened(name)).values())
        for other in others:
            differing = {key for key in first.keys() | other.keys() if first.get(key) != other.get(key)}
            assert all(key.startswith(free) for key in differing), (name, differing)


def test_every_image_objective_is_on_digits():
    study = opened("digits")
    named = set()
    for cell in study.cells:
        if cell.factors["method"] != "none":
            inner, given = losses.unwrap(cell.task.config.objective)
            pair = given.get("pair")
            named.add((inner if pair is None else losses.unwrap(pair)[0]).__name__)
    pairs_and_views = losses.objectives().keys() - losses.higher_order_functions().keys()
    assert named == pairs_and_views


def test_cifar_prints_what_koromilas_prints():
    study = opened("cifar", data="cifar10.npz")
    printed = {cell.factors["objective"]: cell.printed.get("linear") for cell in study.cells}
    assert (printed["nt_xent"], printed["all_pairs(nt_xent)"], printed["mv_dhel"]) == (86.0, 88.7, 89.5)
    assert printed["dsf"] == 91.21  # Jeon 2025, Table 1
    assert printed["m3g"] is None


def labels(classes=10, each=5_000):
    return np.repeat(np.arange(classes), each)


def test_cifar10_is_accepted():
    cifar.check_cifar10("train", (32, 32, 3), labels(), 5_000)


@pytest.mark.parametrize(
    ("shape", "of", "message"),
    [
        ((28, 28, 1), labels(), r"got 50,000 of \(28, 28, 1\) in 10 classes"),
        ((32, 32, 3), labels(100, 500), r"in 100 classes of 500 to 500"),  # CIFAR-100
        ((32, 32, 3), labels(10, 4_000), r"got 40,000 .* classes of 4,000 to 4,000"),
    ],
)
def test_other_data_are_refused(shape, of, message):
    with pytest.raises(ValueError, match=rf"--data must be CIFAR-10, 5,000 train images .*{message}"):
        cifar.check_cifar10("train", shape, of, 5_000)


def test_part_of_other_data_is_refused(tmp_path):
    file = tmp_path / "other.npz"
    images = np.zeros((20, 8, 8, 1), np.uint8)
    np.savez(file, images=images, labels=np.arange(20) % 2)
    with pytest.raises(ValueError, match="--data must be CIFAR-10"):
        cifar.Cifar10Part(path=str(file)).open()


def test_first_images_of_arrays(tmp_path):
    file = tmp_path / "images.npz"
    images = np.arange(20, dtype=np.uint8)[:, None, None, None] * np.ones((1, 8, 8, 1), np.uint8)
    np.savez(file, x_train=images, y_train=np.arange(20) % 2, x_test=images, y_test=np.arange(20) % 2)
    splits = data.Arrays(path=str(file), first=(3, 5)).open()
    assert splits["train"].take(np.arange(3))[0][:, 0, 0, 0].tolist() == [0, 1, 2]
    assert len(splits["test"]) == 5
    assert splits["train"].class_names == ("0", "1")


def test_a_baseline_is_a_row_of_the_evaluation(tmp_path):
    config = _digits.vectors_of(2)
    [raw] = studies.Baseline(config=config, row="raw input").run(tmp_path / "raw", 0)
    assert set(raw) == {"k-NN", "linear", "5 labels/class", "10 labels/class"}
    [trained] = studies.Training(config=config).run(tmp_path / "trained", 0)
    assert not any(":" in name for name in trained)  # measured without baselines
