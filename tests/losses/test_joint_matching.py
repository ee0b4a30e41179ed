"""The difference between matching pairs of views and matching all views jointly."""

import itertools
from functools import partial

import jax
import numpy as np
import pytest
from brute_force import COSTS, matching_gap

from mvcl.losses import m3g, m3g_pair, m3g_pairwise_excess

SOLVER = {"tolerance": 1e-11, "max_iterations": 20000}
# Compiled once a shape, for all tests.
excess = jax.jit(partial(m3g_pairwise_excess, **SOLVER))


def unit(z):
    return z / np.linalg.norm(z, axis=-1, keepdims=True)


def embeddings(name, rng, k, n):
    """(k, n, 3) unit vectors."""
    instances, noise = rng.normal(size=(1, n, 3)), rng.normal(size=(k, n, 3))
    return unit(
        {
            "random": noise,
            "aligned": instances + 0.2 * noise,
            "identical": instances + 0 * noise,
            # the truth is the worst matching: every view is turned by another step
            "adversarial": np.stack([np.roll(instances[0], l, axis=0) for l in range(k)]) + 0.05 * noise,
        }[name]
    )


def on_the_circle(degrees):
    """(k, n) angles -> (k, n, 2) unit vectors."""
    angles = np.deg2rad(np.asarray(degrees, float))
    return np.stack([np.cos(angles), np.sin(angles)], axis=-1)


# Two opposite points in each of three views, 60 degrees further from view to view: views 0 and 1 match as they are, 1
# and 2 too, but 0 and 2 the other way round.
CYCLE = on_the_circle([[0, 180], [60, 240], [120, 300]])


@pytest.mark.parametrize("name", ["random", "aligned", "identical", "adversarial"])
@pytest.mark.parametrize(("k", "n"), [(3, 4), (4, 4)])
def test_is_not_negative(x64, rng, name, k, n):
    for _ in range(3):
        z = embeddings(name, rng, k, n)
        for epsilon in (0.02, 0.2, 2.0):
            assert excess(z, epsilon) >= -1e-9


@pytest.mark.parametrize(("k", "n", "epsilon"), [(2, 4, 0.1), (3, 4, 0.1), (4, 4, 0.05)])
def test_equals_the_gaps_summed_over_the_tensors(x64, rng, k, n, epsilon):
    z = unit(rng.normal(size=(k, n, 3)))

    def of_pair(points):
        return np.sum((points[0] - points[1]) ** 2) / k**2

    pairs = [
        matching_gap(z[[l, m]], 2 * epsilon / k, of_pair)[0] for l, m in itertools.combinations(range(k), 2)
    ]
    joint, _ = matching_gap(z, epsilon, COSTS["circular_variance"])
    np.testing.assert_allclose(excess(3 * z, epsilon), np.sum(pairs) - joint, atol=1e-10)


@pytest.mark.parametrize("k", [3, 4])
def test_a_smaller_epsilon_of_the_pairs_has_no_sign(x64, k):
    z, n, epsilon = np.ones((k, 4, 3)), 4, 0.1
    np.testing.assert_allclose(excess(z, epsilon), 0, atol=1e-12)
    of_pair = m3g_pair(z[0], z[1], 0.99 * 2 * epsilon / k, cost_scale=4 / k**2)
    difference = k * (k - 1) / 2 * of_pair - m3g(z, epsilon)
    np.testing.assert_allclose(difference, -0.01 * (k - 1) * epsilon * np.log(n), rtol=1e-9)


def test_pairs_that_agree_and_pairs_that_do_not(x64, rng):
    # As epsilon goes to 0: a pair at 60 degrees costs 1/9 and one at 120 degrees 3/9. No joint matching is better than
    # the true one, 1 + 1 + 3; the pairs by themselves have 1 + 1 + 1.
    np.testing.assert_allclose(excess(CYCLE, 0.002), 2 / 9, atol=5e-3)
    # Aligned views: the best matching of every pair is the true one.
    z = unit(np.array([[1, 1, 1], [1, -1, -1], [-1, 1, -1], [-1, -1, 1]]) + 0.05 * rng.normal(size=(3, 4, 3)))
    np.testing.assert_allclose(excess(z, 0.002), 0, atol=1e-9)


def test_gradient(x64, rng):
    z, step = unit(rng.normal(size=(3, 4, 3))), 1e-5 * rng.normal(size=(3, 4, 3))

    slope = jax.grad(excess)(z, 0.1)
    change = (excess(z + step, 0.1) - excess(z - step, 0.1)) / 2
    np.testing.assert_allclose(np.sum(slope * step), change, rtol=1e-5)


def test_bad_arguments_are_refused():
    z = np.ones((3, 4, 2), np.float32)
    with pytest.raises(ValueError, match="epsilon must be positive"):
        m3g_pairwise_excess(z, 0.0)
    with pytest.raises(ValueError, match=r"k >= 2.*got \(1, 4, 2\)"):
        m3g_pairwise_excess(z[:1])
