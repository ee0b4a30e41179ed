"""Derivatives of every objective against finite differences, in forward and reverse mode."""

import functools

import cases
import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import every
from jax.test_util import check_grads

from mvcl import losses

# Values of m3g end with a tolerance of their solver; it has tests of its own.
SMOOTH = [
    c for c in cases.ALL if c.reference.derivative and c.name.partition("(")[0] not in ("m3g", "m3g_pair")
]


def check(loss, *arguments, order=1):
    # Not compiled: operations of the same shape are shared by all tests, programs would be ten for each.
    with jax.disable_jit():
        chex.assert_numerical_grads(loss, arguments, order=order, atol=1e-5, rtol=1e-4, eps=1e-5)


@every(SMOOTH)
def test_gradient_in_both_modes(x64, rng, case):
    check(case.run, jnp.asarray(case.draw(rng, 3, 2)))


@every(SMOOTH, fast=["mv_infonce", "mmcr"])
def test_second_derivatives_in_both_modes(x64, rng, case):
    check(case.run, jnp.asarray(case.draw(rng, 3, 2)), order=2)


@every(SMOOTH, lambda case: case.takes.mask, fast=["mv_dhel"])
def test_second_derivatives_with_a_mask(x64, rng, case):
    z = jnp.asarray(case.draw(rng, 3, 2))
    check(functools.partial(case.run, mask=cases.some_missing(rng, z.shape[:2])), z, order=2)


@pytest.mark.parametrize("temperature", [1.0, 2e-3])
def test_one_shift_and_row_maxima_by_embeddings_and_temperature(x64, rng, temperature):
    """The smaller temperature needs row maxima; the vectors are so close that it leaves several terms."""

    def loss(z, factor):
        scaled = 1 + np.sqrt(temperature) * z
        return losses.mv_infonce(scaled, negatives="all", temperature=temperature * factor)

    check(loss, jnp.asarray(rng.normal(size=(3, 3, 2))), jnp.ones(()), order=2)


def test_compiled_and_over_several_problems(x64, rng):
    z, direction = jnp.asarray(rng.normal(size=(2, 2, 3, 3, 2)))
    second = jax.jit(jax.vmap(lambda z, v: jax.jvp(jax.grad(losses.mv_infonce), (z,), (v,))[1]))
    slope = jax.vmap(jax.grad(losses.mv_infonce))
    change = (slope(z + 1e-5 * direction) - slope(z - 1e-5 * direction)) / 2e-5
    np.testing.assert_allclose(second(z, direction), change, atol=1e-8)


@every(
    cases.ALL, lambda case: case.takes.block_size, fast=["dhel", "siglip", "gram", "symile", "one_vs_rest"]
)
def test_forward_mode_in_blocks_raises_and_reverse_mode_does_not(rng, case):
    loss = functools.partial(case.run, block_size=2)
    z = jnp.asarray(case.draw(rng, 3, 2), jnp.float32)
    jax.eval_shape(jax.grad(loss), z)
    if case.name.startswith("m3g"):  # its blocks have both modes
        return
    with pytest.raises(TypeError, match=r"forward-mode derivatives .* whole blocks .* block_size"):
        jax.jvp(loss, (z,), (z,))


@pytest.mark.parametrize("loss", [losses.mv_dhel, losses.mv_cl1])
def test_forward_mode_over_devices_raises(rng, loss):
    local = functools.partial(loss, axis_name="data")
    split = jax.shard_map(local, mesh=cases.mesh("data"), in_specs=jax.P(None, "data"), out_specs=jax.P())
    z = jnp.asarray(rng.normal(size=(2, 4, 2)), jnp.float32)
    with pytest.raises(TypeError, match=r"forward-mode derivatives .* 'data'.* without axis_name"):
        jax.jit(lambda z: jax.jvp(split, (z,), (z,)))(z)


SOLVER = {"tolerance": 1e-13, "max_iterations": 2000}
VARIANCE, DEVIATION = "circular_variance", "circular_standard_deviation"


def test_hessian_of_m3g_is_that_of_the_gradient(x64, rng):
    z, direction = jnp.asarray(rng.normal(size=(2, 2, 3, 2)))
    gradient = jax.jit(jax.grad(lambda z: losses.m3g(z, 0.2, **SOLVER)))
    change = lambda h: (gradient(z + h * direction) - gradient(z - h * direction)) / (2 * h)  # noqa: E731
    expected = (4 * change(1e-4) - change(2e-4)) / 3  # to fourth order in the step
    found = jax.jit(lambda z: jax.jvp(gradient, (z,), (direction,))[1])(z)
    np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-8)


@pytest.mark.exhaustive
@pytest.mark.parametrize("cost", [VARIANCE, DEVIATION, lambda s: jnp.sum(jnp.sin(s[0] * s[-1]))])
def test_m3g_by_embeddings_and_epsilon(x64, rng, cost):
    loss = jax.jit(lambda z, epsilon: losses.m3g(z, epsilon, cost, **SOLVER))
    z = jnp.asarray(rng.normal(size=(3, 3, 2)))
    chex.assert_numerical_grads(loss, (z, jnp.asarray(0.3)), order=2, atol=1e-5, rtol=1e-4, eps=1e-5)


@pytest.mark.exhaustive
@pytest.mark.parametrize("cost", [VARIANCE, DEVIATION])
def test_second_derivatives_of_m3g_with_a_mask(x64, rng, cost):
    mask = np.array([[True, True, False], [True] * 3, [False, True, True]])
    loss = jax.jit(lambda z: losses.m3g(z, 0.3, cost, mask=mask, **SOLVER))
    # Not chex's, which puts ones for stop_gradient: the logarithm of a point of weight 0 is then -inf.
    check_grads(loss, (jnp.asarray(rng.normal(size=(3, 3, 2))),), 2, atol=1e-4, rtol=1e-4, eps=1e-5)


@pytest.mark.exhaustive
@pytest.mark.parametrize("cost", [VARIANCE, DEVIATION])
def test_second_order_of_m3g_over_devices(x64, rng, cost):
    """Forward over reverse and reverse over reverse of instances split over devices."""
    z, direction = jnp.asarray(rng.normal(size=(2, 3, 4, 2)))

    def loss(z, axis_name=None):
        return losses.m3g(z, 0.2, cost, axis_name=axis_name, **SOLVER)

    def second(loss):
        def products(z):
            over_reverse = jax.jvp(jax.grad(loss), (z,), (direction,))[1]
            return over_reverse, jax.grad(lambda z: jnp.sum(jax.grad(loss)(z) * direction))(z)

        return jax.jit(products)

    local, rows = functools.partial(loss, axis_name="data"), jax.P(None, "data")
    split = jax.shard_map(local, mesh=cases.mesh("data", devices=4), in_specs=rows, out_specs=jax.P())
    for found, expected in zip(second(split)(z), second(loss)(z)):
        np.testing.assert_allclose(found, expected, atol=1e-11)
