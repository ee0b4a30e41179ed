"""What the papers claim: reductions to one another, limits on uniform points."""

import functools

import jax
import numpy as np
import pytest
from scipy import special

from mvcl import losses


def test_two_views(x64, rng):
    z = rng.normal(size=(2, 7, 4))
    x, y = z
    for t in (0.1, 0.7):
        expected = losses.nt_xent(x, y, t)
        for loss in (
            losses.poly_view,
            functools.partial(losses.poly_view, aggregation="arithmetic"),
            losses.sufficient_statistics,
            losses.all_pairs(losses.nt_xent),
        ):
            np.testing.assert_allclose(loss(z, temperature=t), expected, rtol=1e-12)
        np.testing.assert_allclose(losses.mv_cl1(z, t), losses.info_nce(x, y, t, symmetric=True), rtol=1e-12)
        np.testing.assert_allclose(losses.mv_cl2(z, t, energy="sum"), losses.dhel(x, y, t), rtol=1e-12)
        np.testing.assert_allclose(losses.mv_dhel(z, t), losses.dhel(x, y, t) - np.log(2), rtol=1e-12)
        np.testing.assert_allclose(
            losses.one_vs_rest(losses.info_nce)(z, temperature=t),
            losses.info_nce(x, y, t, symmetric=True),
            rtol=1e-12,
        )
    for aggregation in ("geometric", "arithmetic"):
        np.testing.assert_allclose(
            losses.poly_siglip(z, 3.0, -1.0, aggregation), losses.siglip(x, y, 3.0, -1.0), rtol=1e-12
        )
    np.testing.assert_allclose(losses.siglip(x, y), losses.siglip(y, x), rtol=1e-12)


def test_many_views(x64, rng):
    z = rng.normal(size=(4, 6, 3))
    np.testing.assert_allclose(
        losses.poly_siglip(z), losses.all_pairs(losses.siglip)(z), rtol=1e-12
    )  # its derivation
    slope = jax.grad(lambda w: losses.all_pairs(losses.dhel, weights=w, reduction="sum")(z))(
        rng.random((4, 4))
    )
    np.testing.assert_allclose(slope[0, 2], losses.dhel(z[0], z[2]), rtol=1e-12)
    assert slope[2, 0] == 0


def test_limits_on_uniform_points():
    """Koromilas 2025, Theorem IV.1: aligned views, uniform on the sphere; E e^{κ u·v} is a Bessel
    function.
    """
    k, n, d, t = 3, 4096, 3, 0.5
    points = np.random.default_rng(1).normal(size=(n, d)).astype(np.float32)
    z = np.broadcast_to(points, (k, n, d))
    kappa, order = 1 / t, d / 2 - 1
    log_mean = np.log(special.gamma(d / 2) * (2 / kappa) ** order * special.iv(order, kappa))
    np.testing.assert_allclose(losses.mv_infonce(z, t), np.log(n) + log_mean - 1 / t, atol=0.01)
    energy = np.log(n - 1) + log_mean
    np.testing.assert_allclose(losses.mv_dhel(z, t), k * energy - 1 / t - np.log(k * (k - 1)), atol=0.02)
    np.testing.assert_allclose(losses.mv_cl2(z, t), energy - 1 / t - np.log(k - 1), atol=0.01)


def test_poly_view_falls_with_rho_and_is_geometric_at_zero(x64, rng):
    z = rng.normal(size=(4, 6, 3))
    value = jax.value_and_grad(lambda z, rho: losses.poly_view(z, aggregation=rho))
    geometric = value(z, "geometric")
    for rho in (1e-12, -1e-12, 1e-40, -1e-40, 0):
        for found, expected in zip(value(z, rho), geometric):
            np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-10)
    for number, name in ((1, "arithmetic"), (-1.0, "harmonic")):
        np.testing.assert_array_equal(value(z, number)[0], value(z, name)[0])
    by_rho = [float(value(z, rho)[0]) for rho in (-1000, -2, -1, -0.1, 0, 0.1, 1, 2, 1000)]
    assert sorted(by_rho, reverse=True) == by_rho
    short = value(z.astype(np.float32), 1e-7)
    np.testing.assert_allclose(short[0], geometric[0], rtol=1e-5)
    np.testing.assert_allclose(short[1], geometric[1], atol=1e-4)


def test_poly_view_is_algorithm_1(x64, rng):
    """Shidani 2024, Algorithm 1, transcribed: the scores, masks and counts of its "arithmetic" and "geometric"."""
    m, k, tau, large = 3, 5, 0.2, 1e9
    z = rng.normal(size=(m, k, 4))
    unit = z.swapaxes(0, 1) / np.linalg.norm(z.swapaxes(0, 1), axis=-1, keepdims=True)  # (k, m, d)
    scores = np.einsum("jmd,knd->jmnk", unit, unit) / tau
    found = {"arithmetic": [], "geometric": []}
    for alpha in range(m):
        of_beta = []
        for beta in (b for b in range(m) if b != alpha):
            mask = np.eye(k)[:, None, :] * (np.arange(m) != beta)[None, :, None]
            logits = (scores[:, alpha] - mask * large).reshape(k, m * k)
            of_beta.append(special.logsumexp(logits, axis=1) - logits[np.arange(k), np.arange(k) + beta * k])
        found["arithmetic"].append(special.logsumexp(of_beta, axis=0) - np.log(k))
        found["geometric"].append(np.mean(of_beta, axis=0))
    printed = {name: np.mean(values) for name, values in found.items()}
    harmonic = losses.poly_view(z, tau, "harmonic", "anchor")
    np.testing.assert_allclose(harmonic + np.log((m - 1) / k), printed["arithmetic"], rtol=1e-10)
    np.testing.assert_allclose(losses.poly_view(z, tau), printed["geometric"], rtol=1e-10)
    np.testing.assert_allclose(losses.poly_view(z, tau, "geometric", "anchor"), losses.poly_view(z, tau))


def test_table_2_of_jeon(x64):
    """The printed values, which are cut off and not rounded; Eq. 15 has one more digit; the loss itself reaches it."""
    printed = {
        1.0: ("3.573", "6.319", "9.090"),
        0.5: ("1.738", "4.331", "7.091"),
        0.2: ("0.011", "0.170", "1.380"),
        0.1: ("0.000", "0.000", "0.0001"),
    }
    found = losses.info_nce_minimum(np.asarray([256, 4096, 65536]), np.asarray(list(printed))[:, None])
    for values, texts in zip(found, printed.values(), strict=True):
        for value, text in zip(values, texts, strict=True):
            assert 0 <= value - float(text) < 10.0 ** -len(text.split(".")[1])
    # Eq. 15: the same, with one more digit
    for t, value in ((1.0, 6.3196), (0.5, 4.3310), (0.2, 0.1706), (0.1, 0.0)):
        np.testing.assert_allclose(losses.info_nce_minimum(4096, t), value, atol=1e-4)
    ends, queue = np.asarray([[1.0, 0.0], [1.0, 0.0]]), np.tile([-1.0, 0.0], (256, 1))
    loss = losses.info_nce(ends, ends, 0.5, in_batch_negatives=False, extra_negatives=queue)
    np.testing.assert_allclose(loss, losses.info_nce_minimum(256, 0.5), rtol=1e-12)
    with pytest.raises(ValueError, match="negatives must be positive, got 0"):
        losses.info_nce_minimum(0, 0.5)
