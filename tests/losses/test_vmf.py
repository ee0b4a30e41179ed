"""Von Mises-Fisher distributions: fit, divergence, Bessel functions."""

import functools

import brute_force
import jax
import mpmath
import numpy as np
import pytest
from parametrize import some

from mvcl.losses import VonMisesFisher, bessel_ratio, log_series, vmf_divergence, vmf_fit


@pytest.mark.parametrize("by_d", [True, False])
def test_fit_by_hand(x64, rng, by_d):
    z, mask = brute_force.unit(rng.normal(size=(3, 5, 4))), np.ones((3, 5), bool)
    mask[0, 1] = mask[1:, 2] = False
    mask[:, 4] = False  # an instance without views: uniform
    found = vmf_fit(np.where(mask[:, :, None], z, np.nan), mask, normalize_concentration=by_d)
    for i in range(4):
        expected = brute_force.fit(z[mask[:, i], i].mean(0), by_d)
        for of, by_hand in zip(found, expected):
            np.testing.assert_allclose(of[i], by_hand, rtol=1e-12)
    assert [np.abs(of[4]).max() for of in found] == [0, 0, 0]


@pytest.mark.parametrize("d", [3, 64])
def test_divergence_by_hand(x64, rng, d):
    """Of all pairs, against the formula as printed; not negative, zero of equal ones, with finite gradients there."""
    p = vmf_fit(brute_force.unit(rng.normal(size=(2, 4, d))), normalize_concentration=False)
    rows, columns = (VonMisesFisher(*(of[at] for of in p)) for at in (np.s_[:, None], np.s_[None]))
    compiled = jax.jit(vmf_divergence, static_argnums=2)
    ratio = jax.jit(functools.partial(bessel_ratio, d / 2 - 1))
    for kind in ("exact", "estimate"):
        found = compiled(rows, columns, kind)
        for (i, j), value in np.ndenumerate(found):
            (mu, r, kappa), (nu, _, other) = ([np.asarray(of[at]) for of in p] for at in (i, j))
            a = ratio(kappa) if kind == "exact" else r
            np.testing.assert_allclose(value, brute_force.kl(mu, kappa, a, nu, other), rtol=1e-9, atol=1e-11)
        assert np.all(np.diag(found) == 0)
        assert kind == "estimate" or np.min(found) > -1e-12
    slope = jax.jit(jax.grad(lambda q: vmf_divergence(p, q).sum()))(p)
    np.testing.assert_allclose(slope.concentration, 0, atol=1e-12)
    assert all(np.isfinite(of).all() for of in slope)


@pytest.mark.parametrize(
    ("normalize_concentration", "estimate", "exact"),
    [(False, (142.10, 49.63), (141.85, 49.65)), (True, (-5.64, 7.14), (0.242, 0.240))],
)
def test_the_default_of_dsf_is_no_divergence(x64, normalize_concentration, estimate, exact):
    """Lengths 0.8 and 1 at d = 128, equal directions: R for A_d(κ) is a divergence where κ is not divided by d."""
    z = np.zeros((2, 2, 128))
    z[:, :, 0] = 1
    z[:, 0, 0], z[:, 0, 1] = 0.8, [0.6, -0.6]
    p = vmf_fit(z, normalize_concentration=normalize_concentration)
    for kind, expected in (("estimate", estimate), ("exact", exact)):
        found = vmf_divergence(p, VonMisesFisher(*(of[::-1] for of in p)), kind)
        np.testing.assert_allclose(found, expected, atol=0.005)


def test_invalid_arguments_raise(rng):
    p = vmf_fit(brute_force.unit(rng.normal(size=(2, 4, 3))))
    for match, wrong in [
        (r"order must be at least 0, got -0.5", lambda: log_series(-0.5, 1.0)),
        (r"order must be a finite number, got .*Tracer", lambda: jax.jit(bessel_ratio)(1.0, 1.0)),
        (r"x must have a floating dtype, got int32", lambda: log_series(1, 3)),
        (r"z must have shape \(m, n, d\), got \(3,\)", lambda: vmf_fit(np.ones(3))),
        (r"resultant_scale must be in \(0, 1\)", lambda: vmf_fit(np.ones((1, 2, 3)), resultant_scale=1)),
        (r"mean_resultant must be one of 'exact', 'estimate', got 'x'", lambda: vmf_divergence(p, p, "x")),
        (r"\(\.\.\., d\), d >= 2, got", lambda: vmf_divergence(p, vmf_fit(np.ones((1, 2, 4))))),
    ]:
        with pytest.raises(ValueError, match=match):
            wrong()


# Below, at and above the order from which the series does not serve.
ORDERS = [0, 0.5, 1, 3.5, 15, 29.5, 30, 63, 255.5, 1023, 2048]
BESSEL = [(order, kind) for order in ORDERS for kind in (np.float32, np.float64)]


@pytest.mark.parametrize("case", some(BESSEL, fast=[(0, np.float32), (29.5, np.float64), (63, np.float64)]))
def test_log_series_of_bessel_functions_and_its_derivatives(case):
    """Against mpmath; the slope is A = I_{ν+1} / I_ν, and A' = 1 - A² - (2ν+1) A / x."""
    order, kind = case
    with jax.enable_x64(kind is np.float64), mpmath.workdps(40):
        x = np.array([0, 1e-6, 0.01, 1.0, 7.3, 29.9, 30.1, 300.0, 1e4, 1e6, order + 0.7]).astype(kind)
        series, ratio = (jax.value_and_grad(functools.partial(f, order)) for f in (log_series, bessel_ratio))
        found = jax.jit(jax.vmap(lambda x: (*series(x), *ratio(x))))(x)
        expected = [(0, 0, 0, 1 / (2 * order + 2))]
        nu = mpmath.mpf(order)
        for v in map(mpmath.mpf, map(float, x[1:])):
            i, after = (mpmath.besseli(nu + more, v, maxterms=10**7) for more in (0, 1))
            a = after / i
            value = mpmath.log(i) - nu * mpmath.log(v / 2) + mpmath.loggamma(nu + 1)
            expected.append([float(e) for e in (value, a, a, 1 - a * a - (2 * nu + 1) * a / v)])
    tolerance = 1e-6 if kind is np.float32 else 1e-12
    for of, exact in zip(found, np.transpose(expected)):
        assert of.dtype == kind
        np.testing.assert_allclose(of, exact, rtol=10 * tolerance, atol=tolerance)
