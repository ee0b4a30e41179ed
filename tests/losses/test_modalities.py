"""Joint contrast of k modalities where vectors coincide, in single precision, over devices and in blocks."""

import functools

import brute_force
import cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import ROWS, WHOLE, agrees_with_differences, both, close
from parametrize import some

from mvcl import losses

KEY = jax.random.key(3)


@pytest.mark.parametrize("loss", some([losses.gram, losses.triangle, losses.pmrl], fast=[losses.gram]))
def test_single_precision_where_views_nearly_coincide(x64, rng, loss):
    """A determinant computed in float32 has no digits left there."""
    run = both(loss)
    for spread in (1e-1, 1e-3, 1e-4):
        z = (rng.normal(size=(1, 8, 16)) + spread * rng.normal(size=(3, 8, 16))).astype(np.float32)
        value, slope = run(z)
        exact, expected = run(np.float64(z))
        assert value.dtype == jnp.float32
        np.testing.assert_allclose(value, exact, atol=2e-6)
        # The inputs' own rounding is 1e-7 / spread of a difference of two views.
        np.testing.assert_allclose(slope, expected, atol=(1e-5 + 5e-7 / spread) * np.abs(expected).max())


@pytest.mark.parametrize("name", ["gram", "triangle", "pmrl"])
def test_default_options_in_more_dimensions_than_views(x64, rng, name):
    """There volumes are not zero."""
    z = brute_force.unit(rng.normal(size=(3, 6, 5)))
    expected = brute_force.REFERENCES[name].loops(z, np.ones((3, 6), bool))
    np.testing.assert_allclose(jax.jit(getattr(losses, name))(z), expected, rtol=1e-11)


@pytest.mark.parametrize("loss", [losses.gram, losses.triangle])
def test_derivative_where_a_volume_is_zero(x64, rng, loss):
    """eps makes it smooth there."""
    run = both(loss, temperature=0.5, eps=1e-2)
    for views in ([1, 2], [0, 1], [0, 1, 2]):
        z = brute_force.unit(rng.normal(size=(3, 5, 4)))
        z[views, 2] = z[views[0], 2]
        agrees_with_differences(run, z, rng, atol=1e-8)


def equal_cosines(rng, cosine, n=4, d=6):
    """(3, n, d) unit vectors: the singular values of an instance are sqrt(1 + 2c), sqrt(1 - c), sqrt(1 - c)."""
    root = np.linalg.cholesky((1 - cosine) * np.eye(3) + cosine)
    bases = [np.linalg.qr(rng.normal(size=(d, 3)))[0] for _ in range(n)]
    return np.stack([root @ b.T for b in bases], axis=1)


def test_equal_singular_values_of_pmrl(x64, rng):
    """Where the leading one is single the loss is smooth; elsewhere a subgradient lies between both sides' slopes."""
    run = both(losses.pmrl, temperature=0.5)
    agrees_with_differences(run, equal_cosines(rng, 0.3), rng, rtol=1e-6)
    agrees_with_differences(run, equal_cosines(rng, 0.999), rng, rtol=1e-6)
    coinciding = np.repeat(brute_force.unit(rng.normal(size=(1, 4, 6))), 3, axis=0)  # the others are zero
    agrees_with_differences(run, coinciding, rng, atol=1e-5)
    z = equal_cosines(rng, 0.0)
    slope = both(losses.pmrl, temperature=0.5, weight=0.0)(z)[1]
    assert np.abs(slope).max() > 0.1
    for direction in rng.normal(size=(4, *z.shape)):
        # -σ_1 / t has the least slope of its directional derivatives at a maximum; all are within σ's bound of 1.
        steep = 2 / 0.5 * np.mean(np.linalg.norm(direction.transpose(1, 0, 2), axis=(1, 2), ord=2))
        assert abs(np.sum(slope * direction)) <= steep


def test_direction_of_two_views_of_negative_cosine(x64, rng):
    """Their sum is at a right angle to the leading vector: its sign is that of the first view."""
    z = brute_force.unit(rng.normal(size=(2, 6, 3)))
    z[1] *= -np.sign(np.sum(z[0] * z[1], axis=1))[:, None]
    left = brute_force.unit(z[0] - z[1])
    expected = np.mean(np.log(np.exp(left @ left.T / 0.1).sum(1)) - 10)
    turned = z @ np.linalg.qr(rng.normal(size=(3, 3)))[0]
    both_of = lambda z: (losses.pmrl(z), losses.pmrl(z) - losses.pmrl(z, weight=0.0))  # noqa: E731
    value, apart = jax.jit(jax.vmap(both_of))(np.stack([z, turned]))
    np.testing.assert_allclose(apart, expected, rtol=1e-9)
    np.testing.assert_allclose(value[0], value[1])


@pytest.mark.parametrize(
    ("devices", "options"), [(2, {}), pytest.param(8, {"block_size": 1}, marks=pytest.mark.exhaustive)]
)
def test_shuffled_tuples_do_not_depend_on_devices(x64, rng, devices, options):
    z, mask = rng.normal(size=(3, 8, 4)), rng.random((3, 8)) < 0.8
    mask[:, 0] = True
    of_key = functools.partial(losses.symile, negatives="shuffled", temperature=0.2)
    run = jax.jit(jax.value_and_grad(lambda z, key: of_key(z, mask=mask, key=key)))
    expected, loss = run(z, KEY), functools.partial(of_key, key=KEY)
    by_hand = brute_force.symile(brute_force.unit(z), mask, 0.2, "shuffled", KEY)
    np.testing.assert_allclose(expected[0], by_hand, rtol=1e-11)
    local = lambda z, m: both(loss, mask=m, axis_name="data", **options)(z)  # noqa: E731
    split = cases.split(local, ROWS, ROWS, out=(WHOLE, ROWS), devices=devices)
    close(jax.jit(split)(z, mask), expected)
    assert run(z, jax.random.key(4))[0] != expected[0]


SHAPES = [(2, 7, 1.0), (3, 5, 1.0), (3, 5, 1e-3), (4, 3, 1.0)]


@pytest.mark.parametrize("shape", some(SHAPES, fast=SHAPES[1:2]))
def test_all_tuples_in_blocks(x64, rng, shape):
    """Blocks of less than a view's rows, and of several vectors of the views before it; with rows left over."""
    k, n, temperature = shape
    z, mask = rng.normal(size=(k, n, 4)), rng.random((k, n)) < 0.8
    mask[:, 0] = True
    run = functools.partial(both, losses.symile, temperature=temperature, mask=mask)
    expected = run(block_size=n**k)(z)
    loops = brute_force.symile(brute_force.unit(z), mask, temperature, key=KEY)
    np.testing.assert_allclose(expected[0], loops, rtol=1e-10)
    for found in cases.together(*(run(block_size=rows) for rows in (2, n + 1, 2 * n)))(z):
        close(found, expected, 1e-11)
