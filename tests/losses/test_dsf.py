"""DSF against the divergence as printed, with scipy's Bessel functions."""

import jax
import numpy as np
import pytest
from brute_force import unit
from scipy import special

from mvcl import losses


def fit(z, normalize=True):
    """μ, R, κ of each instance of an (m, n, d) group."""
    mean = unit(z).mean(0)
    d = mean.shape[1]
    length = np.linalg.norm(mean, axis=1)
    r = 0.95 * length
    kappa = r * (d - r**2) / (1 - r**2)
    return unit(mean), r, kappa / d if normalize else kappa


def log_bessel(order, kappa):
    return np.log(special.ive(order, kappa)) + kappa


def divergence(mu_i, kappa_i, a_i, mu_j, kappa_j):
    order = len(mu_i) / 2 - 1
    return (
        order * np.log(kappa_i / kappa_j)
        + log_bessel(order, kappa_j)
        - log_bessel(order, kappa_i)
        + a_i * (kappa_i - kappa_j * (mu_i @ mu_j))
    )


def loops(q, k, queue=None, normalize=True, exact=False, in_batch=True):
    mu, r, kappa = fit(q, normalize)
    nu, _, lam = fit(k, normalize)
    n, d = mu.shape
    a = special.ive(d / 2, kappa) / special.ive(d / 2 - 1, kappa) if exact else r
    mean_kappa = np.concatenate([kappa, lam]).mean()
    terms = []
    for i in range(n):
        logits = [-divergence(mu[i], kappa[i], a[i], nu[j], lam[j]) for j in range(n) if in_batch or j == i]
        own = logits[i] if in_batch else logits[0]
        if queue is not None:
            logits += [-divergence(mu[i], kappa[i], a[i], e, mean_kappa) for e in unit(queue)]
        terms.append(np.log(np.sum(np.exp(logits))) - own)
    return np.mean(terms)


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize(
    ("m", "p", "n", "d", "normalize"), [(2, 3, 5, 4, True), (1, 1, 6, 7, False), (4, 2, 3, 2, True)]
)
def test_equals_the_divergence(x64, rng, m, p, n, d, normalize, exact):
    q, k, queue = rng.normal(size=(m, n, d)), rng.normal(size=(p, n, d)), rng.normal(size=(3, d))
    options = {"normalize_concentration": normalize, "mean_resultant": "exact" if exact else "estimate"}
    np.testing.assert_allclose(losses.dsf(q, k, **options), loops(q, k, None, normalize, exact), rtol=1e-10)
    found = losses.dsf(q, k, queue, block_size=2, **options)
    np.testing.assert_allclose(found, loops(q, k, queue, normalize, exact), rtol=1e-10)
    found = losses.dsf(q, k, queue, in_batch_negatives=False, **options)
    np.testing.assert_allclose(found, loops(q, k, queue, normalize, exact, in_batch=False), rtol=1e-10)


def test_one_view_each_is_info_nce(x64, rng):
    """Jeon 2025, Theorem 1: all concentrations are equal, and 1 / (A κ) is the temperature."""
    q, k = rng.normal(size=(1, 6, 5)), rng.normal(size=(1, 6, 5))
    kappa = 0.95 * (5 - 0.95**2) / (1 - 0.95**2) / 5
    np.testing.assert_allclose(
        losses.dsf(q, k), losses.info_nce(q[0], k[0], temperature=1 / (0.95 * kappa)), rtol=1e-12
    )


def test_gradient_and_vanishing_means(x64, rng):
    q, k = rng.normal(size=(2, 4, 3)), rng.normal(size=(2, 4, 3))
    loss = jax.jit(lambda q, k: losses.dsf(q, k, mean_resultant="exact"))
    slopes = jax.jit(jax.grad(loss, (0, 1)))(q, k)
    for which in (0, 1):
        step = 1e-6 * rng.normal(size=q.shape)
        up, down = ((q + s * step, k) if which == 0 else (q, k + s * step) for s in (1, -1))
        np.testing.assert_allclose((loss(*up) - loss(*down)) / 2, np.vdot(slopes[which], step), rtol=1e-6)
    q[1] = -q[0]  # the mean is zero: μ = 0, κ = 0
    value, slope = jax.value_and_grad(loss)(q, k)
    assert np.isfinite(value)
    assert np.isfinite(slope).all()


def test_large_dimension_in_float32(rng):
    """d = 4096, ν = 2047: where the Bessel functions themselves are far below float32."""
    q, k = (rng.normal(size=(2, 6, 4096)).astype(np.float32) for _ in range(2))
    shared = k.copy()
    shared[0] = q[0]  # a positive of 1,700 whose last place is 1.2e-4: it must cancel, the loss is zero
    swapped = shared[:, ::-1]  # and one whose negatives have that size
    for keys in (k, shared, swapped):
        value = losses.dsf(q, keys, normalize_concentration=False)
        with jax.enable_x64(True):
            exact = losses.dsf(q.astype(np.float64), keys.astype(np.float64), normalize_concentration=False)
        np.testing.assert_allclose(value, exact, rtol=1e-5, atol=1e-5)


def test_bad_arguments(rng):
    q = rng.normal(size=(2, 4, 3)).astype(np.float32)
    with pytest.raises(ValueError, match=r"queue must be given with in_batch_negatives=False, got None"):
        losses.dsf(q, q, in_batch_negatives=False)
    with pytest.raises(ValueError, match=r"mean_resultant must be one of 'estimate', 'exact', got 'A'"):
        losses.dsf(q, q, mean_resultant="A")
    with pytest.raises(ValueError, match=r"keys must have the instances.*got \(2, 3, 3\)"):
        losses.dsf(q, q[:, :3])
