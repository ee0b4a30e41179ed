"""The Gaussian studies: the grid against the library's losses, and the numbers against closed forms."""

import itertools
from functools import partial

import _gaussian
import _gaussian_grid
import _networks
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from mvcl import losses, studies, training
from tests.parametrize import some

gaps = training.config_module(studies.find("shidani_gaps"))


@pytest.fixture(scope="module", params=some(["arithmetic", "multi_crop"], fast=["arithmetic"]))
def trained(request, tmp_path_factory):
    """Name and folder of a run of an objective, M = 3, K = 16.

    The grid has fewer nodes than the 48 vectors of a batch, which are summed exactly otherwise.
    """
    folder = tmp_path_factory.mktemp(request.param) / "run"
    options = {"networks": 3, "epochs": 2, "steps_per_epoch": 2, "grid": 32, "evaluation_batches": 2}
    training.train(_gaussian.gaussian(request.param, 3, 16, **options), folder)
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


def test_numbers_are_bounds_of_the_models_information(trained):
    name, folder = trained
    found = _gaussian.each_network(folder)
    assert len(found) == 3
    covariance = np.ones((3, 3)) + 0.25 * np.eye(3)  # signal 1, noise 1/2
    whole, rest = np.linalg.det(covariance), np.linalg.det(covariance[1:, 1:])
    truth = 0.5 * np.log(covariance[0, 0] * rest / whole)
    chance = np.log(16 * 3 - 3 + 1) if name == "arithmetic" else np.log(16)
    for of in found:
        expected = {"bound": chance - of["loss"], "gap": truth - of["bound"], "ratio": truth / of["bound"]}
        expected |= {"valid gap": truth - of["valid"], "gap, Eq. 7": truth - of["bound, Eq. 5"]}
        assert {name: of[name] for name in expected} == pytest.approx(expected, rel=1e-5, abs=0)
        np.testing.assert_allclose(of["information"], truth, rtol=1e-10)
        np.testing.assert_allclose(of["gap"] - of["gap, Eq. 7"], 1 - of["E' e^F"], atol=1e-6)
    assert len({network["loss"] for network in found}) == 3


def test_both_gaps_in_exact_expectation(x64):
    """All 64 batches of K = 2, M = 3 of a fair bit that a view flips with probability 1/4, summed in Python."""
    # the best critic of pairs: its values differ by log 5/3 at temperature 0.1
    cosine = 1 - 0.1 * np.log(5 / 3)
    vectors = jnp.asarray([[1.0, 0.0], [cosine, np.sqrt(1 - cosine**2)]])
    views = list(itertools.product((0, 1), repeat=3))
    weight = {v: (3 ** v.count(0) + 3 ** v.count(1)) / 128 for v in views}
    batches = list(itertools.product(views, repeat=2))
    z = vectors[jnp.asarray(batches).swapaxes(1, 2)]  # (64, M, K, 2)
    weights = np.array([weight[a] * weight[b] for a, b in batches])
    other = jnp.broadcast_to(vectors, (3, 2, 2))  # both values of the bit, each with probability 1/2
    expected = {"arithmetic": (0.036755, 1.005952), "geometric": (0.026649, 0.995852)}
    for aggregation, (bound, product) in expected.items():
        loss = partial(losses.poly_view, temperature=0.1, aggregation=aggregation)
        mean = partial(_networks.product_mean, other=other, temperature=0.1, aggregation=aggregation)
        found = [weights @ jax.jit(jax.vmap(of))(z) for of in (loss, mean)]
        np.testing.assert_allclose((np.log(4) - found[0], found[1]), (bound, product), atol=1e-6)


def test_product_mean_of_sufficient_statistics(x64, rng):
    """Against loops: view α of another batch with the mean of the other views, negatives of the other instances."""
    z, other = (rng.normal(size=(3, 4, 5)) for _ in range(2))
    z, other = (a / np.linalg.norm(a, axis=-1, keepdims=True) for a in (z, other))
    q = np.stack([z[[b for b in range(3) if b != a]].sum(0) for a in range(3)])
    q /= np.linalg.norm(q, axis=-1, keepdims=True)
    found = []
    for a, x, i in itertools.product(range(3), range(4), range(4)):
        scores = np.exp(np.einsum("d,gjd->gj", other[a, x], q) / 0.2)
        positive, negative = scores[a, i], scores.sum() - scores[:, i].sum()
        found.append((3 * 3 + 1) * positive / (positive + negative))
    value = _networks.product_mean(jnp.asarray(z), jnp.asarray(other), 0.2, "sufficient_statistics")
    np.testing.assert_allclose(value, np.mean(found), rtol=1e-9)


@pytest.mark.parametrize("views", [3, 8])
def test_theorems_2_3_and_c_1_fail_for_both_means(views, tmp_path):
    """The closed forms of M = 3, and Eq. 7: the gap is E[g - log g - 1]."""
    values = {3: {"arithmetic": 7 / 16 * np.log(28 / 25) + 3 / 16 * np.log(4 / 5), "geometric": 0.007935}}
    values[8] = {"arithmetic": 0.049283, "geometric": 0.049099}
    k, joint, product = gaps.agreement(0.25, views)
    share = k / (views - 1)
    for mean, expected in values[views].items():
        arithmetic = mean == "arithmetic"
        critic = 1.25 * share + 0.75 * (1 - share) if arithmetic else 1.25**share * 0.75 ** (1 - share)
        g = product * critic / joint
        of = partial(gaps.Gaps, law="bit, 1/4", mean=mean, critic=gaps.PAIRS)
        pair, many = (of(views=m).run(tmp_path, 0)[0]["gap, Eq. 7"] for m in (2, views))
        assert pair == 0
        np.testing.assert_allclose(many, expected, atol=1e-6)
        np.testing.assert_allclose(many, joint @ (g - np.log(g) - 1), atol=1e-11)


def test_figure_2_ends_at_no_rate_and_shows_what_the_last_third_gained():
    figure = training.config_module(studies.find("shidani_figure2"))
    for study in (figure.paper(), figure.small()):
        assert "gain of the last third" in {measure.name for measure in study.measures}
        for cell in study.cells:
            config = cell.task.config
            assert config.optimizer.end_learning_rate == 0
            assert config.data.instances // config.train.batch_size >= 600


def two_classes(k, m):
    """The printed bound and the one that holds, in nats, where both know everything and the information is log 2.

    E[log(M (K - 1) + 1) - log(1 + M s)] and E[log K - log(1 + s)]: an instance has one of two classes with equal
    probability, every view is its class, and the score of two classes is far below that of one. With s ~ Bin(K - 1,
    1/2) other instances of the same class, a likelihood is 1 / (1 + M s), and of groups 1 / (1 + s).
    """
    s = np.arange(k)
    weight = stats.binom.pmf(s, k - 1, 0.5)
    return np.log(m * (k - 1) + 1) - weight @ np.log1p(m * s), np.log(k) - weight @ np.log1p(s)


def test_the_bounds_of_two_classes_are_those_of_the_text():
    sizes = [(2, 2), (2, 8), (4, 8), (5, 2), (64, 8), (1024, 8)]
    printed, holds = zip(*(two_classes(*size) for size in sizes))
    np.testing.assert_allclose(printed, [0.5493, 1.0986, 0.9301, 0.6952, 0.6992, 0.6935], atol=5e-5)
    np.testing.assert_allclose(holds, [0.3466, 0.3466, 0.5411, 0.5770, 0.6853, 0.6927], atol=5e-5)
