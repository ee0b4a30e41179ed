"""log I_ν against mpmath and scipy."""

import re

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from scipy import special

from mvcl.losses import log_bessel_i
from mvcl.losses._dsf import bessel_ratio, log_series

ORDERS = [0, 0.5, 1, 3.5, 15, 29.5, 30, 63, 255.5, 1023, 2048]


def arguments(order):
    near_the_root = [0.6627 * order, 0.66275 * order + 1.3, order]
    return np.array([x for x in [1e-6, 0.01, 1.0, 7.3, 29.9, 30.1, 300.0, 1e4, 1e6, *near_the_root] if x > 0])


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_value_and_derivative(order, kind):
    with jax.enable_x64(kind is np.float64), mpmath.workdps(30):
        x = arguments(order).astype(kind)
        value = np.asarray(jax.jit(lambda x: log_bessel_i(order, x))(x))
        slope = np.asarray(jax.jit(jax.vmap(jax.grad(lambda x: log_bessel_i(order, x))))(x))
        assert value.dtype == kind
        bessel = [
            [mpmath.besseli(order + a, mpmath.mpf(float(v)), maxterms=10**7) for v in x] for a in (0, 1)
        ]
        exact = np.array([float(mpmath.log(b)) for b in bessel[0]])
        ratio = [float(b / a + mpmath.mpf(order) / mpmath.mpf(float(v))) for a, b, v in zip(*bessel, x)]
    tolerance = 1e-6 if kind is np.float32 else 1e-12
    assert np.max(np.abs(value - exact) / np.maximum(1, np.abs(exact))) < tolerance
    np.testing.assert_allclose(slope, ratio, rtol=tolerance)


def test_against_scipy(x64):
    order, x = 12.5, np.linspace(0.1, 200, 57)
    np.testing.assert_allclose(
        log_bessel_i(order, x), np.log(special.ive(order, x)) + x, rtol=1e-12, atol=1e-12
    )


def test_at_zero():
    assert log_bessel_i(0, jnp.zeros(())) == 0
    assert log_bessel_i(2.0, jnp.zeros(())) == -jnp.inf
    for order in (0.0, 2.5, 63.0):
        assert log_series(order, jnp.zeros(())) == 0
        assert jax.jit(jax.grad(lambda x, o=order: log_series(o, x)))(0.0) == 0
        slope = jax.jit(jax.grad(lambda x, o=order: bessel_ratio(o, x)))(0.0)
        np.testing.assert_allclose(slope, 1 / (2 * order + 2), rtol=1e-5)


def test_slope_of_the_ratio(x64):
    """A' = 1 - A² - (2ν+1) A / x, with scipy's Bessel functions."""
    for order in (0.0, 63.0):
        x = np.array([0.5, 20.0, 80.0, 900.0])
        a = special.ive(order + 1, x) / special.ive(order, x)
        found = jax.jit(jax.vmap(jax.grad(lambda x, o=order: bessel_ratio(o, x))))(x)
        np.testing.assert_allclose(found, 1 - a * a - (2 * order + 1) * a / x, rtol=1e-6)


def test_bad_arguments():
    for order in (-1, 1e60):
        with pytest.raises(
            ValueError, match=rf"order must lie in \[0, 1e\+09\], got {re.escape(str(order))}"
        ):
            log_bessel_i(order, jnp.ones(2))
    with pytest.raises(ValueError, match=r"x must have a floating dtype, got int"):
        log_bessel_i(1, jnp.arange(3))
