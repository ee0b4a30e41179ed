"""DSF: its reduction to InfoNCE, its divergences, what it measures, large dimensions."""

import functools

import brute_force
import cases
import jax
import numpy as np
import pytest
from cases import ROWS, WHOLE
from parametrize import some
from scipy import special

from mvcl import losses


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


@functools.partial(jax.jit, static_argnames="normalize_concentration")
def dsf(queries, keys, queue=None, **options):
    return losses.dsf(queries, keys, queue, **options)


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
