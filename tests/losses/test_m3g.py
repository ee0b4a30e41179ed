"""M3G against a plain float64 solver that holds the tensor, closed forms and finite differences."""

from functools import partial

import brute_force
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from parametrize import some

from mvcl import losses
from mvcl.losses import m3g, m3g_with_status
from tests.transport.test_sinkhorn_derivatives import check


@pytest.mark.parametrize("order", some([1, 2], fast=[1]))
@pytest.mark.parametrize("masked", some([False, True], fast=[False]))
@pytest.mark.parametrize("cost", some(brute_force.COSTS, fast=["circular_variance"]))
def test_derivatives_by_embeddings_and_epsilon_are_finite_differences(x64, rng, cost, masked, order):
    mask = np.array([[True, True, False], [True] * 3, [False, True, True]]) if masked else None
    loss = lambda at: m3g(*at, cost, mask=mask, threshold=1e-13, max_iterations=5000)  # noqa: E731
    check(loss, (jnp.asarray(rng.normal(size=(3, 3, 3))), jnp.asarray(0.2)), rng, order)


def test_an_unconverged_loss_is_an_upper_bound(x64, rng):
    """Each half-sweep raises the dual, which the loss subtracts."""
    z = brute_force.unit(rng.normal(size=(3, 16, 8)))
    run = jax.jit(partial(m3g, epsilon=0.05, threshold=1e-12), static_argnames="max_iterations")
    one, two, three, last = (float(run(z, max_iterations=i)) for i in (1, 2, 3, 5000))
    assert one > two > three > last


def test_measures_of_pairs_are_the_worst(rng):
    """Of every function of functions; they are not lost where a pair loss has no terms."""
    z = np.float32(brute_force.unit(rng.normal(size=(4, 6, 3))))
    pair = partial(losses.m3g_pair, epsilon=0.05, max_iterations=2)
    of_pair = jax.jit(losses.of_views(pair))
    each = [of_pair(z[[l, m]])[1] for m in range(4) for l in range(m)]
    found = jax.jit(losses.of_views(losses.all_pairs(pair)))(z)[1]
    assert "solver_error" in found
    assert found.keys() == each[0].keys()
    for name, value in found.items():
        np.testing.assert_allclose(value, max(float(one[name]) for one in each), rtol=1e-5)
    for maker in (losses.one_vs_rest, losses.cross_pairs, losses.mean_pair):
        assert jax.eval_shape(losses.of_views(maker(pair)), z)[1].keys() == found.keys()


def test_epsilon_scaling_ends_at_epsilon(rng):
    z = np.float32(brute_force.unit(rng.normal(size=(3, 8, 3))))
    options = {"epsilon": 0.02, "threshold": 1e-4, "max_iterations": 2000}
    scaled, out = jax.jit(partial(m3g_with_status, **options, epsilon_init=20.0, epsilon_decay=0.8))(z)
    assert out.converged
    expected = brute_force.m3g(np.float64(z), np.ones((3, 8), bool), 0.02)
    np.testing.assert_allclose(scaled, expected, rtol=1e-3)


def test_a_full_mask_changes_nothing(rng):
    """Not a bit of the loss; gradients to the last rounding."""
    z = np.float32(brute_force.unit(rng.normal(size=(2, 9, 3))))
    value, gradient = jax.jit(jax.value_and_grad(m3g))(z)
    masked, of_masked = jax.jit(jax.value_and_grad(partial(m3g, mask=np.ones((2, 9), bool))))(z)
    assert masked == value
    np.testing.assert_allclose(of_masked, gradient, atol=1e-7)
