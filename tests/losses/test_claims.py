"""What the papers claim: reductions to one another, limits on uniform points."""

import cases
import jax
import numpy as np
import pytest
from scipy import special

from mvcl import losses


def test_two_views(x64, rng):
    """Losses of many views of two are those of a pair."""
    z, t = rng.normal(size=(2, 6, 3)), 0.3

    @jax.jit
    def claims(z):
        x, y = z
        nt_xent, both_ways = losses.nt_xent(x, y, t), losses.info_nce(x, y, t, symmetric=True)
        dhel, siglip = losses.dhel(x, y, t), losses.siglip(x, y, 3.0, -1.0)
        return [
            *((loss(z, temperature=t), nt_xent) for loss in (losses.poly_view, losses.sufficient_statistics)),
            (losses.poly_view(z, t, "arithmetic"), nt_xent),
            (losses.mv_cl1(z, t), both_ways),
            (losses.one_vs_rest(losses.info_nce)(z, temperature=t), both_ways),
            (losses.all_pairs(losses.nt_xent)(z, temperature=t), nt_xent),
            (losses.one_vs_rest(losses.nt_xent)(z, temperature=t), nt_xent),
            (losses.mv_cl2(z, t, energy="sum"), dhel),
            (losses.mv_dhel(z, t), dhel - np.log(2)),
            *((losses.poly_siglip(z, 3.0, -1.0, a), siglip) for a in ("geometric", "arithmetic")),
            (losses.siglip(z[1], z[0], 3.0, -1.0), siglip),
        ]

    for found, expected in claims(z):
        np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_the_derivative_by_the_weight_of_a_pair_is_its_loss(x64, rng):
    z, w = rng.normal(size=(4, 6, 3)), rng.random((4, 4))
    total = lambda w: losses.all_pairs(losses.byol, weights=w, reduction="sum")(z)  # noqa: E731
    slope = jax.jit(jax.grad(total))(w)
    np.testing.assert_allclose(slope[0, 2], losses.byol(z[0], z[2]), rtol=1e-12)
    assert slope[2, 0] == 0


def test_poly_view_is_geometric_near_rho_zero(x64, rng):
    z = rng.normal(size=(4, 6, 3))
    expected = cases.both(losses.poly_view)(z)
    for rho, kind, tolerance in ((-1e-40, "f8", 1e-10), (1e-7, "f4", 1e-4)):
        cases.close(cases.both(losses.poly_view, aggregation=rho)(z.astype(kind)), expected, tolerance)


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
    options = [("harmonic", "anchor"), ("geometric", "anchor"), ("geometric", "other")]
    found = jax.jit(lambda z: [losses.poly_view(z, tau, *of) for of in options])(z)
    expected = [printed["arithmetic"] - np.log((m - 1) / k), printed["geometric"], printed["geometric"]]
    np.testing.assert_allclose(found, expected, rtol=1e-10)


def test_the_example_of_memory_overhead_costs_the_same():
    """Koromilas 2025, Section V-C6: 512 instances of 4 views against 1,024 of 2; 4 · 512² = 1024²."""

    def flops(loss, *shape):
        compiled = jax.jit(loss).lower(jax.ShapeDtypeStruct(shape, "float32")).compile()
        return compiled.cost_analysis()["flops"]

    mv_dhel = flops(losses.mv_dhel, 4, 512, 128)
    assert 0.8 < mv_dhel / flops(lambda z: losses.info_nce(*z), 2, 1024, 128) < 1.25
    assert flops(lambda z: losses.nt_xent(*z), 2, 1024, 128) / mv_dhel > 2


def test_table_2_of_jeon(x64):
    """The printed values, which are cut off and not rounded; the loss itself reaches them."""
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
    ends, queue = np.asarray([[1.0, 0.0], [1.0, 0.0]]), np.tile([-1.0, 0.0], (256, 1))
    loss = losses.info_nce(ends, ends, 0.5, in_batch_negatives=False, extra_negatives=queue)
    np.testing.assert_allclose(loss, losses.info_nce_minimum(256, 0.5), rtol=1e-12)
    with pytest.raises(ValueError, match="negatives must be positive, got 0"):
        losses.info_nce_minimum(0, 0.5)
