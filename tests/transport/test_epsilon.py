"""The controller of epsilon: the mass that it holds, its bounds, and m3g with it."""

import types
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from mvcl.losses import m3g, m3g_with_status
from mvcl.transport import (
    Measured,
    chance_mass,
    epsilon_for_mass,
    multimarginal_sinkhorn,
    next_epsilon,
    true_tuple_mass,
)
from mvcl.transport._epsilon import log_odds

HIGHEST, LOWEST = 0.2, 0.2 / 32
found_at = jax.jit(lambda z, target: m3g_with_status(z, mass_target=target), static_argnums=1)


def unit(z):
    return np.float32(z / np.linalg.norm(z, axis=-1, keepdims=True))


def embeddings(name, rng, n, k, d=32):
    """(k, n, d) unit vectors."""
    instances, noise = rng.normal(size=(1, n, d)), rng.normal(size=(k, n, d))
    return unit(
        {
            "random": noise,
            "aligned": instances + 0.3 * noise,
            # true pairs are the closest for most instances, not for all
            "partly aligned": instances + 1.5 * noise,
            "coinciding": np.ones((k, n, d)),
            # the next instance is always closer than the true one
            "adversarial": np.stack([np.roll(instances[0], l, axis=0) for l in range(k)]) + 0.05 * noise,
        }[name]
    )


@pytest.mark.parametrize("target", [0.3, 0.6])
@pytest.mark.parametrize(("n", "k"), [(32, 2), pytest.param(16, 3, marks=pytest.mark.slow), (8, 4)])
def test_the_target_is_reached_on_aligned_views(rng, n, k, target):
    z = embeddings("aligned", rng, n, k)
    loss, out = found_at(z, target)
    mass = true_tuple_mass(out)
    assert abs(log_odds(mass, n ** (1 - k)) - log_odds(target, n ** (1 - k))) < 0.06
    assert LOWEST < out.epsilon < HIGHEST
    assert out.converged
    np.testing.assert_allclose(loss, m3g(z, float(out.epsilon)), rtol=1e-3)


@pytest.mark.parametrize("name", ["random", "partly aligned", "coinciding", "adversarial"])
@pytest.mark.parametrize(("n", "k"), [(32, 2), (8, 4)])
def test_bounds_hold_where_the_target_is_not_reached(rng, n, k, name):
    z = embeddings(name, rng, n, k)
    loss, out = found_at(z, 0.99)
    assert np.isfinite(loss)
    assert LOWEST * 0.999 <= out.epsilon <= HIGHEST
    mass = true_tuple_mass(out)
    assert mass < 0.99
    if name == "adversarial":  # a smaller epsilon has less mass still, and takes more sweeps
        np.testing.assert_allclose(out.epsilon, HIGHEST, rtol=1e-6)
        assert mass < n ** (1 - k)
    if name == "partly aligned":  # concave: no epsilon of a grid does much better
        of_grid = jax.jit(lambda e: true_tuple_mass(multimarginal_sinkhorn(z, epsilon=e, max_iterations=300)))
        best = max(float(of_grid(e)) for e in np.geomspace(LOWEST, HIGHEST, 9))
        assert mass > 0.9 * best


def test_plan_is_sharp_enough_at_the_largest_epsilon():
    z = unit(np.eye(8)[None] + np.zeros((2, 8, 8)))
    loss, out = m3g_with_status(z, epsilon=0.05, mass_target=0.5)
    np.testing.assert_allclose(out.epsilon, 0.05, rtol=1e-6)
    np.testing.assert_allclose(loss, m3g(z, 0.05), rtol=1e-5)


def test_mass_is_that_of_the_dense_plan(x64, rng):
    z = np.float64(embeddings("aligned", rng, 5, 3))
    loss, out = m3g_with_status(z, mass_target=0.5, tolerance=1e-10, max_iterations=5000)
    plan = np.asarray(out.plan())
    dense = plan[(np.arange(5),) * 3].sum()
    np.testing.assert_allclose(true_tuple_mass(out), dense, rtol=1e-9)
    np.testing.assert_allclose(dense, 0.5, atol=0.0126)  # 0.05 in log-odds
    np.testing.assert_allclose(loss, m3g(z, out.epsilon, tolerance=1e-10, max_iterations=5000), rtol=1e-9)
    truth = np.array([[0, 1, 2], [3, 3, 0]])
    np.testing.assert_allclose(true_tuple_mass(out, truth), plan[0, 1, 2] + plan[3, 3, 0], rtol=1e-9)
    np.testing.assert_allclose(chance_mass(out.a_s), 5.0**-2, rtol=1e-12)
    np.testing.assert_allclose(chance_mass(out.a_s, truth), 2 * 5.0**-3, rtol=1e-12)


def test_gradient_is_that_at_the_epsilon_found(x64, rng):
    z = np.float64(embeddings("aligned", rng, 12, 2))
    solver = {"tolerance": 1e-10, "max_iterations": 5000}
    _, out = m3g_with_status(z, mass_target=0.5, **solver)
    slope = jax.jit(jax.grad(partial(m3g, mass_target=0.5, **solver)))(z)
    np.testing.assert_allclose(slope, jax.grad(m3g)(z, out.epsilon, **solver), atol=1e-8)


def test_vmap_is_one_problem_after_the_other(rng):
    z = np.stack([embeddings(name, rng, 32, 2) for name in ("aligned", "random", "adversarial")])
    both = jax.jit(jax.value_and_grad(partial(m3g, mass_target=0.5)))
    losses, slopes = jax.vmap(both)(z)
    assert np.all(np.isfinite(slopes))
    for i, one in enumerate(z):
        loss, slope = both(one)
        np.testing.assert_allclose(losses[i], loss, rtol=1e-5)
        np.testing.assert_allclose(slopes[i], slope, atol=1e-6)


@pytest.mark.slow
def test_split_over_devices_it_is_the_whole_batch(rng):
    z = embeddings("aligned", rng, 8, 3)
    mesh = Mesh(np.asarray(jax.devices()[:4]), ("data",))

    def loss(z):
        return jax.lax.pmean(m3g(z, mass_target=0.5, axis_name="data"), "data")

    split = jax.shard_map(loss, mesh=mesh, in_specs=P(None, "data"), out_specs=P())
    found, slope = jax.jit(jax.value_and_grad(split))(z)
    expected, whole = jax.value_and_grad(partial(m3g, mass_target=0.5))(z)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    np.testing.assert_allclose(slope, whole, atol=1e-5)


@pytest.mark.slow
def test_with_missing_views(rng):
    z = embeddings("aligned", rng, 8, 3)
    mask = np.ones((3, 8), bool)
    mask[1, 2] = mask[2, :2] = mask[:, 5] = False
    measured = jax.jit(lambda z, mask: m3g.__dict__["mvcl_takes"].measured(z, mass_target=0.5, mask=mask))
    loss, measures = measured(z, mask)
    np.testing.assert_allclose(measures["true_tuple_mass"], 0.5, atol=0.02)
    np.testing.assert_allclose(loss, m3g(z, measures["epsilon"], mask=mask), rtol=1e-3)
    whole, complete = measured(z, np.ones((3, 8), bool))
    np.testing.assert_allclose(whole, found_at(z, 0.5)[0], rtol=1e-5)
    np.testing.assert_allclose(complete["true_tuple_mass"], 0.5, atol=0.0135)


def test_next_epsilon_stays_within_bounds_and_step(rng):
    chance = 1e-4
    for _ in range(200):
        now, before = (
            Measured(e, m)
            for e, m in zip(np.exp(rng.uniform(-6, 1, 2)), rng.choice([0, 1e-30, 1e-4, 0.3, 0.6, 1.0], 2))
        )
        found = float(next_epsilon(now, before, 0.5, chance=chance, lowest=0.01, highest=1.0, step=4.0))
        assert 0.00999 <= found <= 1.001
        nearest = np.clip(now.epsilon, 0.01, 1.0)
        assert nearest / 4.001 <= found <= nearest * 4.001


def test_next_epsilon_by_hand():
    chance, options = 0.01, {"chance": 0.01, "lowest": 1e-3, "highest": 10.0}
    infinite = Measured(jnp.inf, chance)

    def mass(s):  # of log-odds above chance
        return 1 / (1 + np.exp(-s) * (1 - chance) / chance)

    wanted = float(log_odds(0.5, chance))
    # a cost of 2 less: s = 2 / epsilon, so that the target is at 2 / wanted
    np.testing.assert_allclose(
        next_epsilon(Measured(1.0, mass(2.0)), infinite, 0.5, **options), 2 / wanted, rtol=1e-4
    )
    # from the left: too sharp, back to the larger epsilon
    sharp = Measured(0.2, mass(10.0))
    np.testing.assert_allclose(next_epsilon(sharp, infinite, 0.5, **options), 2 / wanted, rtol=1e-4)
    # reached
    np.testing.assert_allclose(next_epsilon(Measured(0.3, 0.505), infinite, 0.5, **options), 0.3, rtol=1e-6)
    # less mass at the smaller epsilon: back
    falls = next_epsilon(Measured(0.1, 0.02), Measured(0.3, 0.04), 0.5, **options)
    np.testing.assert_allclose(falls, 0.3, rtol=1e-6)


@pytest.mark.parametrize("power", [0.5, 1.0, 2.0])
def test_search_reaches_the_target_whatever_the_curve(x64, power):
    """Log-odds above chance that grow as a power of 1 / epsilon: for 2 the line through two points goes too far."""
    n, k, target = 10, 3, 0.5

    def solve(epsilon, init):
        odds = jnp.exp((0.25 / epsilon) ** power) * 0.01 / 0.99
        uniform = jnp.ones(n) / n
        return types.SimpleNamespace(
            entries=lambda indices: jnp.ones(len(indices)) * odds / (1 + odds) / n,
            a_s=(uniform,) * k,
            transport_mass=jnp.ones(()),
            potentials=init,
            n_iters=jnp.int32(2),
            n_passes=jnp.int32(4),
        )

    zeros = (jnp.zeros(n),) * k
    found = epsilon_for_mass(solve, target, init=zeros, chance=0.01, lowest=1e-3, highest=0.2)
    exact = 0.25 / float(log_odds(0.5, 0.01)) ** (1 / power)
    assert abs(log_odds(found.mass, 0.01) - log_odds(target, 0.01)) < 0.05
    np.testing.assert_allclose(found.epsilon, exact, rtol=0.03)
    assert found.n_iters == 2 * found.n_solves
    assert found.n_passes == 4 * found.n_solves


@pytest.mark.parametrize("target", [0.0, 1.0, -1, float("nan"), "half", True])
def test_bad_targets_are_refused(target):
    with pytest.raises(ValueError, match="mass_target must be"):
        m3g(np.ones((3, 4, 2), np.float32), mass_target=target)
