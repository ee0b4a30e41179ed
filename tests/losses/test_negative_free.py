"""Objectives without negatives: where derivatives need care, memory, random directions, forms of released code."""

import functools

import brute_force
import cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import agrees_with_differences, both, close
from parametrize import some

from mvcl import losses

NAMES = ("vicreg", "barlow_twins", "mmcr", "frossl", "emp_ssl", "lejepa", "visreg")
KEY = jax.random.key(1)


@pytest.mark.parametrize("name", some([*NAMES, "mmcr of n < d"], fast=["visreg", "mmcr of n < d"]))
def test_one_instance_a_device_in_both_modes(x64, rng, name):
    """Directions are not a multiple of the devices. With n < d, the rows are gathered in place of a (d, d) matrix."""
    few = name == "mmcr of n < d"
    case = cases.case("mmcr", {"compression": 0.5}) if few else cases.case(name)
    z = case.draw(rng, 4, 6 if few else 3)
    direction = jnp.asarray(rng.normal(size=z.shape))
    expected = both(case.run)(z)
    np.testing.assert_allclose(expected[0], case.by_hand(z), rtol=1e-11)
    f = cases.split(functools.partial(case.run, axis_name="data"), devices=4)
    program = lambda z: (*jax.value_and_grad(f)(z), jax.jvp(f, (z,), (direction,))[1])  # noqa: E731
    *found, tangent = jax.jit(program)(z)
    np.testing.assert_allclose(tangent, jnp.sum(expected[1] * direction), rtol=1e-10)
    close(found, expected, 1e-10)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "visreg"])
def test_gradient_where_a_column_is_constant_and_views_coincide(x64, rng, name):
    """All are differentiable there."""
    case = cases.case(name)
    z = np.broadcast_to(rng.normal(size=(1, 6, 3)), case.draw(rng, 6, 3).shape).copy()
    z[:, :, 1] = 0.25
    step = 1e-6 if name == "vicreg" else 1e-5  # the third derivative of its square root is 1 / eps
    agrees_with_differences(both(case.run), z, rng, step, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("masked", [False, True])
def test_gradient_of_visreg_holds_the_deviations_of_the_projections(x64, rng, masked):
    options = {"slices": 3, "weight": 0.6, "shape": 2.0, "key": KEY}
    z, direction = rng.normal(size=(2, 3, 6, 3))
    mask = cases.some_missing(rng, (3, 6)) if masked else np.ones((3, 6), bool)
    held = [view[here].std(0) for view, here in zip(z, mask)]
    loops = lambda z: brute_force.visreg(z, mask, **options, deviations=held)  # noqa: E731
    change = (loops(z + 1e-6 * direction) - loops(z - 1e-6 * direction)) / 2e-6
    found = both(losses.visreg, **options, mask=mask)(z)[1]
    np.testing.assert_allclose(np.sum(found * direction), change, rtol=1e-7)


def test_a_constant_feature_has_no_gradient_by_its_deviation(rng):
    z = rng.normal(size=(2, 6, 3)).astype(np.float32)
    z[:, :, 0] = 0
    loss = functools.partial(losses.visreg, slices=4, weight=1.0, shape=0.0, center=0.0, key=KEY)
    value, slope = both(loss)(z)
    np.testing.assert_allclose(value, np.mean((1 - z.std(1)) ** 2), rtol=1e-6)
    np.testing.assert_array_equal(slope[:, :, 0], 0)


@pytest.mark.parametrize("shape", [(20, 12), (12, 20)])
@pytest.mark.parametrize(
    "sigma", [[3.0] * 5, [1.0, 1.0, 0.5, 0.0, 0.0], [2.0], [1.0, 0.3, 3e-2, 3e-2, 3e-3, 1e-3]]
)
def test_mmcr_with_equal_small_and_zero_singular_values(rng, shape, sigma):
    """In float32; the gradient is U V^T over those that are not zero, half of it for each of two views."""
    u, v = (np.linalg.qr(rng.normal(size=(size, len(sigma))))[0] for size in shape)
    c, here = (u * sigma) @ v.T, np.array(sigma) > 0
    z = np.stack([c, c]).astype(np.float32)
    value, slope = both(losses.mmcr, normalize=False)(z)
    np.testing.assert_allclose(value, -sum(sigma), rtol=1e-5)
    np.testing.assert_allclose(slope, np.stack([-u[:, here] @ v[:, here].T] * 2) / 2, atol=3e-4)


def test_zero_singular_values_have_no_direction_at_any_scale(rng):
    """What rounding leaves of them is small beside the largest one, not beside 1."""
    line = rng.normal(size=(5, 8)).astype(np.float32)
    z = np.stack([1e4 * line, 3e3 * line, -7e3 * line])
    found = np.asarray(both(losses.pmrl, normalize=False, temperature=1e4, weight=0.0)(z)[1])
    along = line / np.linalg.norm(line, axis=1, keepdims=True)
    across = found - np.sum(found * along, axis=2, keepdims=True) * along
    np.testing.assert_array_less(np.abs(across), 1e-3 * np.abs(found).max())


def test_directions_are_those_of_the_key_in_every_precision(x64, rng):
    z = rng.normal(size=(3, 6, 3))
    loss = jax.jit(functools.partial(losses.lejepa, slices=6, knots=3))
    np.testing.assert_allclose(loss(z.astype(np.float32), key=KEY), loss(z, key=KEY), rtol=1e-5)
    assert abs(loss(z, key=KEY) - loss(z, key=jax.random.key(2))) > 1e-4
    np.testing.assert_array_equal(loss(z, key=jax.random.PRNGKey(1)), loss(z, key=KEY))
