"""Derivatives of every objective against finite differences, in forward and reverse mode."""

import functools

import brute_force
import cases
import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import every
from parametrize import some

from mvcl import losses

# Values of m3g end with a threshold of their solver; it has tests of its own.
SMOOTH = [c for c in cases.ALL if c.reference.derivative and not c.name.startswith("m3g")]


def first_along(run, z, direction):
    """Both modes along a direction, against values at both sides. Returns the program, of value, slope and gradient."""
    program = cases.together(lambda z: jax.jvp(run, (z,), (direction,)), jax.grad(run))
    (_, forward), gradient = program(z)
    (after, _), (before, _) = (program(z + step * direction)[0] for step in (1e-5, -1e-5))
    slopes = [forward, np.sum(gradient * direction)]
    np.testing.assert_allclose(slopes, (after - before) / 2e-5, atol=1e-5, rtol=1e-4)
    return program


@every(SMOOTH)
def test_gradient_in_both_modes_and_of_degenerate_vectors(x64, rng, case):
    """Zero vectors, vectors that all coincide, whose value is known, and so on; no value hides a NaN or infinity."""
    z = case.draw(rng)
    program = first_along(case.run, z, jnp.asarray(case.draw(rng)))
    for number, bad in enumerate(cases.degenerate(z, case.takes.normalize)):
        (value, forward), gradient = program(bad)
        assert np.isfinite([value, forward]).all()
        assert np.isfinite(gradient).all()
        if number == 1 and case in cases.PLAIN and case.reference.coinciding:
            known = case.reference.coinciding(*z.shape, case.takes.options.get("temperature"))
            np.testing.assert_allclose(value, known, rtol=1e-4, atol=1e-4)
    for bad in (np.nan, np.inf):
        z[-1, -1, 0] = bad
        assert not np.isfinite(program(z)[0][0])


@pytest.mark.exhaustive
@every(SMOOTH)
def test_second_derivatives_in_both_modes(x64, rng, case):
    z = jnp.asarray(case.draw(rng, 3, 2))
    mask = {"mask": cases.some_missing(rng, z.shape[:2])} if case.takes.mask else {}
    loss = jax.jit(functools.partial(case.run, **mask))
    chex.assert_numerical_grads(loss, (z,), order=2, atol=1e-5, rtol=1e-4, eps=1e-5)


def second_along(loss, z, direction):
    """The second derivative along a direction, forward over reverse, and from differences of the gradient."""
    slope = jax.jit(jax.grad(loss))
    change = (slope(z + 1e-5 * direction) - slope(z - 1e-5 * direction)) / 2e-5
    return jax.jit(lambda z: jax.jvp(jax.grad(loss), (z,), (direction,))[1])(z), change


@pytest.mark.parametrize("name", ["mv_infonce", "mmcr"])
def test_second_derivative_along_a_direction(x64, rng, name):
    """Of log-sum-exps and of polar factors, which have rules of their own; the exhaustive suite has all."""
    case = cases.case(name)
    found, expected = second_along(case.run, case.draw(rng), case.draw(rng))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("temperature", some([1.0, 2e-3], fast=[2e-3]))
def test_one_shift_and_row_maxima_by_embeddings_and_temperature(x64, rng, temperature):
    """The smaller temperature needs row maxima; the vectors are so close that it leaves several terms."""

    def loss(x):
        scaled, factor = 1 + np.sqrt(temperature) * x[1:], 1 + x[0, 0, 0] / 10
        return losses.mv_infonce(scaled, negatives="all", temperature=temperature * factor)

    first_along(loss, *jnp.asarray(rng.normal(size=(2, 4, 3, 2))))


@every(cases.ALL, lambda case: case.takes.block_size, fast=["dhel", "siglip", "symile"])
def test_forward_mode_in_blocks_raises_and_reverse_mode_does_not(rng, case):
    loss = functools.partial(case.run, block_size=2)
    z = jnp.asarray(case.draw(rng, 3, 2), jnp.float32)
    jax.eval_shape(jax.grad(loss), z)
    if case.name.startswith(("m3g", "factor_cl")):  # its blocks have both modes
        return
    with pytest.raises(TypeError, match=r"forward-mode derivatives .* whole blocks .* block_size"):
        jax.jit(lambda z: jax.jvp(loss, (z,), (z,))).lower(z)


@pytest.mark.parametrize("loss", [losses.mv_dhel, losses.mv_cl1])
def test_forward_mode_over_devices_raises(rng, loss):
    split = cases.split(functools.partial(loss, axis_name="data"))
    z = jnp.asarray(rng.normal(size=(2, 4, 2)), jnp.float32)
    with pytest.raises(TypeError, match=r"forward-mode derivatives .* 'data'.* without axis_name"):
        jax.jit(lambda z: jax.jvp(split, (z,), (z,))).lower(z)


@pytest.mark.exhaustive
@pytest.mark.parametrize("cost", brute_force.COSTS)
def test_second_derivative_of_m3g_over_devices(x64, rng, cost):
    solver = {"threshold": 1e-13, "max_iterations": 2000}
    loss = functools.partial(losses.m3g, epsilon=0.2, cost=cost, **solver)
    split = cases.split(functools.partial(loss, axis_name="data"), devices=4)
    at = jnp.asarray(rng.normal(size=(2, 3, 4, 2)))
    np.testing.assert_allclose(second_along(split, *at)[0], second_along(loss, *at)[0], atol=1e-11)
