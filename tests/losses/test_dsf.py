"""DSF: its reduction to InfoNCE, what it measures, large dimensions; Bessel functions."""

import functools

import brute_force
import cases
import jax
import mpmath
import numpy as np
import pytest
from parametrize import some
from scipy import special

from mvcl import losses
from mvcl.losses._dsf import bessel_ratio, log_series

OPTIONS = (
    "in_batch_negatives",
    "queue_concentration",
    "mean_resultant",
    "normalize_concentration",
    "divergence",
)


def test_a_row_of_the_queue_longer_than_1_counts_as_a_unit_vector(x64, rng):
    q, k = rng.normal(size=(2, 2, 5, 4))
    rows = brute_force.unit(rng.normal(size=(3, 4)))
    expected = brute_force.dsf(brute_force.unit(np.concatenate([q, k])), np.ones((4, 5), bool), extra=rows)
    np.testing.assert_allclose(dsf(q, k, 3 * rows), expected, rtol=1e-10)


def test_groups_of_different_size(x64, rng):
    """A mask that hides all but one query is a group of one."""
    q, k, more = rng.normal(size=(1, 5, 4)), rng.normal(size=(3, 5, 4)), rng.normal(size=(2, 5, 4))
    mask = np.ones((6, 5), bool)
    mask[1:3] = False
    z = brute_force.unit(np.concatenate([q, more, k]))
    np.testing.assert_allclose(dsf(q, k), brute_force.dsf(z, mask), rtol=1e-10)


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


@pytest.mark.parametrize("queue_concentration", ["own", "batch_mean"])
@pytest.mark.parametrize("mean_resultant", ["estimate", "exact"])
@pytest.mark.parametrize("divergence", ["reverse", "symmetric"])
def test_other_divergences_by_hand(x64, rng, divergence, mean_resultant, queue_concentration):
    """Of von Mises-Fisher distributions, Jeon 2025, Eq. 9, from key to query and both ways."""
    q, k = rng.normal(size=(2, 2, 5, 4))
    queue = brute_force.unit(rng.normal(size=(3, 2, 4))).mean(1)
    options = {"divergence": divergence, "mean_resultant": mean_resultant, "temperature": 1.3}
    options["queue_concentration"] = queue_concentration
    units = brute_force.unit(np.concatenate([q, k]))
    expected = brute_force.dsf(units, np.ones((4, 5), bool), extra=queue, **options)
    np.testing.assert_allclose(dsf(q, k, queue, **options), expected, rtol=1e-10)


@pytest.mark.parametrize("scale", [0.0, 1.0, 1.1])
def test_refuses_a_resultant_that_reaches_1(rng, scale):
    with pytest.raises(ValueError, match=r"resultant_scale must be in \(0, 1\)"):
        losses.dsf(*rng.normal(size=(2, 2, 5, 4)), resultant_scale=scale)


@functools.partial(jax.jit, static_argnames=OPTIONS)
def dsf(queries, keys, queue=None, **options):
    return losses.dsf(queries, keys, queue, **options)


@pytest.mark.parametrize("in_batch_negatives", some([True, False], fast=[True]))
def test_measures(x64, rng, in_batch_negatives):
    """R, κ, s+, s-, the effective temperature and the spread of κ by loops, on two devices."""
    n, d = 6, 4
    z, mask = rng.normal(size=(4, n, d)), np.ones((4, n), bool)
    mask[:2, 1] = mask[2:, 2] = mask[0, 3] = False
    queue = brute_force.unit(rng.normal(size=(5, 2, d))).mean(1)
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
    rows = jax.P(None, "data")
    split = jax.shard_map(local, mesh=cases.mesh("data"), in_specs=(rows, rows, jax.P()), out_specs=jax.P())
    loss, found = jax.jit(split)(z, mask, queue)
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
