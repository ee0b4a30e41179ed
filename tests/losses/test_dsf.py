"""DSF: its reduction to InfoNCE, its range, what it measures, vanishing means, large dimensions; Bessel functions."""

import functools

import brute_force
import cases
import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from parametrize import some
from scipy import special

from mvcl import losses
from mvcl.losses._bessel import bessel_ratio, log_series

OPTIONS = ("in_batch_negatives", "queue_concentration", "mean_resultant", "normalize_concentration")


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
    found = dsf(q, k, mean_resultant=mean_resultant, normalize_concentration=normalize_concentration)
    np.testing.assert_allclose(found, losses.info_nce(q[0], k[0], temperature=1 / (a * kappa)), rtol=1e-12)


def measured(**options):
    return losses.measured_on_views(functools.partial(losses.dsf, **options))


@functools.partial(jax.jit, static_argnames=OPTIONS)
def dsf(queries, keys, queue=None, **options):
    return losses.dsf(queries, keys, queue, **options)


def test_the_default_is_no_divergence():
    """The number in the docstring: at d = 128, equal directions, lengths 0.8 and 1; a divergence is not negative."""
    mu, d = np.eye(128)[0], 128
    (r, kappa), (_, other) = ((r, r * (d - r**2) / (1 - r**2) / d) for r in (0.95 * 0.8, 0.95))
    exact = special.iv(d / 2, kappa) / special.iv(d / 2 - 1, kappa)
    found = [brute_force.divergence(mu, kappa, a, mu, other) for a in (r, exact)]
    np.testing.assert_allclose(found, [-5.64, 0.24], atol=0.005)


@pytest.mark.parametrize(
    ("options", "lowest"),
    [
        ({"mean_resultant": "exact"}, 6.86),
        ({"mean_resultant": "exact", "normalize_concentration": False}, 0.0),
        ({}, 0.00004),
    ],
)
def test_range_of_the_similarity(options, lowest):
    """The numbers in the docstring: all positives at cosine 1, all 4,096 negatives at -1, at d = 128."""
    z, queue = np.zeros((2, 2, 128)), np.zeros((4096, 128))
    z[..., 0], queue[:, 0] = 1, -1
    loss = functools.partial(brute_force.dsf, z, np.ones((2, 2), bool), in_batch_negatives=False, **options)
    np.testing.assert_allclose(loss(extra=queue), lowest, atol=0.005 if lowest > 1 else 5e-6)


@pytest.mark.parametrize("in_batch_negatives", some([True, False], fast=[True]))
def test_measures(x64, rng, in_batch_negatives):
    """R, κ, s+ and s- by loops, on two devices."""
    n, d = 6, 4
    z, mask = rng.normal(size=(4, n, d)), np.ones((4, n), bool)
    mask[:2, 1] = mask[2:, 2] = mask[0, 3] = False
    queue = brute_force.unit(rng.normal(size=(5, 2, d))).mean(1)
    run = measured(in_batch_negatives=in_batch_negatives, temperature=2.0)
    units, fits = brute_force.unit(z), {}
    fit = lambda m: (brute_force.unit(m), 0.95 * np.linalg.norm(m))  # noqa: E731
    kappa = lambda r: r * (d - r**2) / (1 - r**2) / d  # noqa: E731
    for g, i in np.ndindex(2, n):
        here = [units[l, i] for l in (2 * g, 2 * g + 1) if mask[l, i]]
        if here:
            fits[g, i] = fit(np.mean(here, axis=0))
    positives, negatives = [], []
    for i in [i for i in range(n) if (0, i) in fits and (1, i) in fits]:
        (mu, r), far = fits[0, i], [fit(row) for row in queue]
        if in_batch_negatives:
            far += [fits[1, j] for j in range(n) if j != i and (1, j) in fits]
        similarity = [
            -brute_force.divergence(mu, kappa(r), r, f, kappa(s)) / 2 for f, s in [fits[1, i], *far]
        ]
        positives.append(similarity[0])
        negatives.append(np.mean(similarity[1:]))
    expected = {
        "resultant": np.mean([r for _, r in fits.values()]),
        "concentration": np.mean([kappa(r) for _, r in fits.values()]),
        "positive_similarity": np.mean(positives),
        "negative_similarity": np.mean(negatives),
    }
    options = {"in_batch_negatives": in_batch_negatives, "temperature": 2.0}
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


@pytest.mark.parametrize("order", some(ORDERS, fast=[0, 29.5, 2048]))
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_log_bessel_and_its_derivative(order, kind):
    near_the_root = [0.6627 * order, 0.66275 * order + 1.3, order]
    points = [1e-6, 0.01, 1.0, 7.3, 29.9, 30.1, 300.0, 1e4, 1e6, *near_the_root]
    with jax.enable_x64(kind is np.float64), mpmath.workdps(30):
        x = np.array([x for x in points if x > 0]).astype(kind)
        of_all = jax.vmap(jax.value_and_grad(lambda x: losses.log_bessel_i(order, x)))
        value, slope = map(np.asarray, jax.jit(of_all)(x))
        assert value.dtype == kind
        bessel = [
            [mpmath.besseli(order + a, mpmath.mpf(float(v)), maxterms=10**7) for v in x] for a in (0, 1)
        ]
        exact = np.array([float(mpmath.log(b)) for b in bessel[0]])
        ratio = [float(b / a + mpmath.mpf(order) / mpmath.mpf(float(v))) for a, b, v in zip(*bessel, x)]
    tolerance = 1e-6 if kind is np.float32 else 1e-12
    assert np.max(np.abs(value - exact) / np.maximum(1, np.abs(exact))) < tolerance
    np.testing.assert_allclose(slope, ratio, rtol=tolerance)


def test_bessel_functions_at_zero():
    @jax.jit
    def at_zero(x):
        series = [jax.value_and_grad(functools.partial(log_series, order))(x) for order in (0.0, 63.0)]
        ratios = [jax.value_and_grad(functools.partial(bessel_ratio, order))(x) for order in (0.0, 63.0)]
        return series, ratios, [losses.log_bessel_i(order, x) for order in (0, 2.0)]

    series, ratios, logarithms = at_zero(jnp.zeros(()))
    np.testing.assert_array_equal(series, np.zeros((2, 2)))
    np.testing.assert_allclose(ratios, [(0, 1 / 2), (0, 1 / 128)], rtol=1e-5)
    np.testing.assert_array_equal(logarithms, [0, -np.inf])


@pytest.mark.parametrize("order", [0.0, 63.0])
def test_slope_of_the_ratio_of_bessel_functions(x64, order):
    """A' = 1 - A² - (2ν+1) A / x, with scipy's Bessel functions; log_series has A for its slope."""
    x = np.array([0.5, 20.0, 80.0, 400.0])
    a = special.ive(order + 1, x) / special.ive(order, x)
    value, slope = jax.jit(jax.vmap(jax.value_and_grad(lambda x: bessel_ratio(order, x))))(x)
    np.testing.assert_allclose(value, a, rtol=1e-12)
    np.testing.assert_allclose(slope, 1 - a * a - (2 * order + 1) * a / x, rtol=1e-6)
