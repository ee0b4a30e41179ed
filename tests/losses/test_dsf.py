"""DSF: its reduction to InfoNCE, its divergences, large dimensions; von Mises-Fisher fits and Bessel functions."""

import functools

import brute_force
import cases
import jax
import mpmath
import numpy as np
import pytest
from cases import ROWS, WHOLE
from parametrize import some
from scipy import special

from mvcl import losses
from mvcl.losses import VonMisesFisher, bessel_ratio, log_series, vmf_divergence, vmf_fit

dsf = jax.jit(losses.dsf, static_argnames="normalize_concentration")


def test_groups_of_different_size_and_a_row_of_the_queue_longer_than_1(x64, rng):
    """A mask that hides all but one query is a group of one; the row counts as a unit vector."""
    z, rows = rng.normal(size=(6, 5, 4)), brute_force.unit(rng.normal(size=(3, 4)))
    mask = np.ones((6, 5), bool)
    mask[1:3] = False
    for queue, given in ((rows, 3 * rows), ((), None)):
        expected = brute_force.dsf(brute_force.unit(z), mask, extra=queue)
        np.testing.assert_allclose(dsf(z[:1], z[3:], given), expected, rtol=1e-10)


@pytest.mark.parametrize(
    ("mean_resultant", "normalize_concentration"), [("exact", False), ("estimate", True)]
)
def test_one_view_each_is_info_nce(x64, rng, mean_resultant, normalize_concentration):
    """Jeon 2025, Theorem 1: all concentrations are equal, and A_p(κ) κ = 1 / temperature; the default's A is R."""
    q, k = rng.normal(size=(2, 1, 6, 5))
    kappa = 0.95 * (5 - 0.95**2) / (1 - 0.95**2) / (5 if normalize_concentration else 1)
    a = special.iv(2.5, kappa) / special.iv(1.5, kappa) if mean_resultant == "exact" else 0.95
    units = brute_force.unit(np.concatenate([q, k]))
    expected = brute_force.info_nce(units, np.ones((2, 6), bool), temperature=1 / (a * kappa))
    options = {"mean_resultant": mean_resultant, "normalize_concentration": normalize_concentration}
    loss, found = losses.of_views(functools.partial(losses.dsf, **options))(np.concatenate([q, k]))
    np.testing.assert_allclose(loss, expected, rtol=1e-12)
    np.testing.assert_allclose(found["effective_temperature"], 1 / (a * kappa), rtol=1e-12)
    np.testing.assert_allclose(found["log_concentration_deviation"], 0, atol=1e-12)


def drawn(rng, d, rows):
    """Two views each of queries and keys, of which some are missing, and a queue of means of two."""
    z, mask = rng.normal(size=(4, 6, d)), np.ones((4, 6), bool)
    mask[:2, 1] = mask[2:, 2] = mask[0, 3] = False
    return z, mask, brute_force.unit(rng.normal(size=(rows, 2, d))).mean(1)


@pytest.mark.parametrize("divergence", some(["forward", "reverse", "symmetric"], fast=["symmetric"]))
def test_divergences_by_hand(x64, rng, divergence):
    """Jeon 2025, Eq. 9, from query to key, from key to query, and both: on two devices, with missing views."""
    concentrations = ("own", "batch_mean") if divergence == "reverse" else ("batch_mean", "own")
    z, mask, queue = drawn(rng, 64, 3)  # in 64 dimensions no power series, which takes longer to compile
    choices = [
        {"mean_resultant": a, "queue_concentration": c, "divergence": divergence, "temperature": 1.3}
        for a, c in zip(["estimate", "exact"], concentrations)
    ]

    def local(z, mask, queue):
        return [losses.dsf(z[:2], z[2:], queue, mask=mask, axis_name="data", **c) for c in choices]

    split = cases.split(local, ROWS, ROWS, WHOLE)
    expected = [brute_force.dsf(brute_force.unit(z), mask, extra=queue, **c) for c in choices]
    np.testing.assert_allclose(jax.jit(split)(z, mask, queue), expected, rtol=1e-10)


@pytest.mark.parametrize("in_batch_negatives", some([True, False], fast=[True]))
def test_measures(x64, rng, in_batch_negatives):
    """R, κ, s+, s-, the effective temperature and the spread of κ by loops, on two devices."""
    z, mask, queue = drawn(rng, 4, 5)
    options = {"in_batch_negatives": in_batch_negatives, "temperature": 2.0}
    run = losses.of_views(functools.partial(losses.dsf, **options))
    units = brute_force.unit(z)
    queries, keys = brute_force.fits(units, mask)
    every = [*queries.values(), *keys.values()]
    positives, negatives = [], []
    for i in [i for i in queries if i in keys]:
        far = [brute_force.fit(row) for row in queue]
        far += [keys[j] for j in keys if j != i and in_batch_negatives]
        mu, r, kappa = queries[i]
        similarity = [-brute_force.kl(mu, kappa, r, f, lam) / 2 for f, _, lam in [keys[i], *far]]
        positives.append(similarity[0])
        negatives.append(np.mean(similarity[1:]))
    expected = {
        "resultant": np.mean([r for _, r, _ in every]),
        "concentration": np.mean([kappa for _, _, kappa in every]),
        "positive_similarity": np.mean(positives),
        "negative_similarity": np.mean(negatives),
        "effective_temperature": 2 / (np.mean([r for _, r, _ in every]) * np.mean([k for _, _, k in every])),
        "log_concentration_deviation": np.std([np.log(kappa) for _, _, kappa in every]),
    }
    local = lambda z, m, queue: run(z, queue=queue, mask=m, axis_name="data")  # noqa: E731
    loss, found = jax.jit(cases.split(local, ROWS, ROWS, WHOLE))(z, mask, queue)
    np.testing.assert_allclose(loss, brute_force.dsf(units, mask, extra=queue, **options), rtol=1e-10)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-10), found, expected)


def test_large_dimension_in_float32(rng):
    """d = 4096, ν = 2047: where the Bessel functions themselves are far below float32."""
    q, k = (rng.normal(size=(2, 6, 4096)).astype(np.float32) for _ in range(2))
    shared = k.copy()
    shared[0] = q[0]  # a positive of 1,700 whose last place is 1.2e-4: it must cancel, the loss is zero
    swapped = shared[:, ::-1]  # and one whose negatives have that size
    for keys in (k, shared, swapped):
        units = brute_force.unit(np.concatenate([q, keys]).astype(np.float64))
        exact = brute_force.dsf(units, np.ones((4, 6), bool), normalize_concentration=False)
        np.testing.assert_allclose(dsf(q, keys, normalize_concentration=False), exact, rtol=1e-5, atol=1e-5)


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
