"""Values against loops in float64 over (k, n, d, temperature, mask), with and without extra negatives and
blocks.
"""

import functools

import brute_force
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mvcl import losses

# name -> (function of a (k, n, d) array, its loops, options to try, does the formula have negatives?)
PAIRS = {
    "info_nce": [{}, {"symmetric": True}],
    "nt_xent": [{}],
    "dcl": [{}],
    "dhel": [{}, {"symmetric": False}],
    "rince": [{}, {"q": 0.9, "lam": 0.1}],
    "siglip": [{}, {"scale": 2.0, "bias": 0.5}],
    "spectral": [{}, {"radius": 0.5}],
    "byol": [{}],
}
VIEWS = {
    "mv_infonce": [{}, {"negatives": "all"}],
    "mv_dhel": [{}],
    "mv_cl1": [{}],
    "mv_cl2": [{}, {"energy": "sum"}],
    "poly_view": [{}, {"aggregation": "arithmetic"}],
    "sufficient_statistics": [{}, {"normalize_rest": False}],
    "poly_siglip": [{}, {"scale": 3.0, "bias": -1.0, "aggregation": "arithmetic"}],
}
CASES = [(name, options) for table in (PAIRS, VIEWS) for name, listed in table.items() for options in listed]
HAS_TEMPERATURE = {"info_nce", "nt_xent", "dcl", "dhel", "rince"} | (set(VIEWS) - {"poly_siglip"})
HAS_NEGATIVES = (set(PAIRS) | set(VIEWS)) - {"byol", "poly_siglip"}


def call(name, z, options, **more):
    # Compiled as a whole: op by op, compiling takes ten times as long.
    loss = functools.partial(
        getattr(losses, name), **options, **{k: v for k, v in more.items() if k != "mask"}
    )
    arrays = {"mask": more["mask"]} if "mask" in more else {}
    return jax.jit(loss)(*((z[0], z[1]) if name in PAIRS else (z,)), **arrays)


def draw(rng, k, n, d, missing):
    z = rng.normal(size=(k, n, d))
    mask = np.ones((k, n), bool)
    if missing:
        mask = rng.random((k, n)) < 0.6
        mask[:2, 0] = True  # at least one positive
        mask[0, 1] = True
    return z, mask


@pytest.mark.parametrize(("name", "options"), CASES)
def test_equals_the_formula(x64, rng, name, options):
    grid = [(2, 2, 3, 3.0, False), (2, 7, 2, 0.05, True)]
    if name in VIEWS:
        grid = [(2, 2, 3, 3.0, False), (3, 6, 2, 0.05, True), (4, 5, 3, 0.002, False)]
    for k, n, d, temperature, missing in grid:
        z, mask = draw(rng, k, n, d, missing)
        chosen = options | ({"temperature": temperature} if name in HAS_TEMPERATURE else {})
        expected = getattr(brute_force, name)(brute_force.unit(z), mask, **chosen)
        holes = np.where(mask[:, :, None], z, np.nan) if missing else z
        for block_size in (None, 2) if missing and name != "byol" else (None,):
            more = {} if name == "byol" else {"block_size": block_size}
            found = call(name, holes, chosen, **(more | ({"mask": mask} if missing else {})))
            np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-11, err_msg=f"{k, n, d, chosen}")


@pytest.mark.parametrize(("name", "options"), [case for case in CASES if case[0] in HAS_NEGATIVES])
def test_extra_negatives_join_the_negatives(x64, rng, name, options):
    z, mask = draw(rng, 2 if name in PAIRS else 3, 5, 4, True)
    extra = rng.normal(size=(3, 4))
    loops = functools.partial(getattr(brute_force, name), **options)
    # The radius clips the queue too; it must be done to the loops' queue by hand.
    prepared = brute_force.unit(extra)
    if "radius" in options:
        prepared = prepared * np.sqrt(options["radius"])
    expected = loops(brute_force.unit(z), mask, extra=prepared)
    for block_size in (None, 2):
        found = call(name, z, options, mask=mask, extra_negatives=extra, block_size=block_size)
        np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("name", [*PAIRS, *VIEWS])
def test_without_projection(x64, rng, name):
    z, mask = draw(rng, 2 if name in PAIRS else 3, 4, 3, False)
    z *= 2.0
    expected = getattr(brute_force, name)(z, mask)
    np.testing.assert_allclose(call(name, z, {}, normalize=False), expected, rtol=1e-11)


@pytest.mark.parametrize(
    ("name", "pairs"), [(name, "unordered") for name in PAIRS] + [("info_nce", "ordered"), ("nt_xent", "all")]
)
def test_all_pairs(x64, rng, name, pairs):
    weights = rng.random((3, 3))
    for missing, factors, reduction in (
        (False, None, "mean"),
        (True, weights, "mean"),
        (True, weights, "sum"),
    ):
        z, mask = draw(rng, 3, 5, 3, missing)
        kwargs = {"mask": mask} if missing else {}
        expected = brute_force.all_pairs(
            getattr(brute_force, name), brute_force.unit(z), mask, pairs, factors, reduction
        )
        loss = losses.all_pairs(getattr(losses, name), factors, pairs, reduction)
        np.testing.assert_allclose(jax.jit(loss)(z, **kwargs), expected, rtol=1e-11, atol=1e-11)
    # A function it knows nothing about goes the general way, pair by pair.
    opaque = losses.all_pairs(lambda *a, **k: getattr(losses, name)(*a, **k), pairs=pairs)
    expected = brute_force.all_pairs(getattr(brute_force, name), brute_force.unit(z), mask, pairs)
    np.testing.assert_allclose(jax.jit(opaque)(z, **kwargs), expected, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("normalize_rest", [False, True])
@pytest.mark.parametrize("name", list(PAIRS))
def test_one_vs_rest(x64, rng, name, normalize_rest):
    for missing in (False, True):
        z, mask = draw(rng, 4, 5, 3, missing)
        expected = brute_force.one_vs_rest(
            getattr(brute_force, name), brute_force.unit(z), mask, normalize_rest
        )
        loss = losses.one_vs_rest(getattr(losses, name), normalize_rest)
        options = {"mask": mask} if missing else {}
        found = [jax.jit(loss)(z, **options)]
        if name != "byol" and missing != normalize_rest:  # in blocks, view after view
            found.append(jax.jit(functools.partial(loss, block_size=2))(z, **options))
        np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-11)


def test_one_vs_rest_in_blocks_with_a_learned_temperature(x64, rng):
    """Bound into the pair loss, closed over by it, or an option: its derivative and a sweep are the whole blocks'."""
    z, temperatures = rng.normal(size=(3, 5, 4)), jnp.asarray([0.01, 0.5])
    bound = lambda z, t, b: losses.one_vs_rest(functools.partial(losses.info_nce, temperature=t))(  # noqa: E731
        z, block_size=b
    )
    closed = lambda z, t, b: losses.one_vs_rest(lambda x, y, **o: losses.info_nce(x, y, t, **o))(  # noqa: E731
        z, block_size=b
    )
    option = lambda z, t, b: losses.one_vs_rest(losses.info_nce)(z, temperature=t, block_size=b)  # noqa: E731
    slopes = jax.value_and_grad(option, (0, 1))
    expected = jax.jit(jax.vmap(lambda t: slopes(z, t, None)))(temperatures)
    for loss in (bound, closed, option):
        slopes = jax.value_and_grad(loss, (0, 1))
        found = jax.jit(jax.vmap(lambda t, slopes=slopes: slopes(z, t, 2)))(temperatures)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12), found, expected)


def test_groups_of_views(x64, rng):
    q, k = rng.normal(size=(2, 5, 3)), rng.normal(size=(3, 5, 3))
    units, mask = brute_force.unit(np.concatenate([q, k])), np.ones((2, 5), bool)
    pair_loss = functools.partial(losses.info_nce, temperature=0.3)
    expected = np.mean(
        [brute_force.info_nce(units[[a, 2 + b]], mask, 0.3) for a in range(2) for b in range(3)]
    )
    np.testing.assert_allclose(jax.jit(losses.cross_pairs(pair_loss))(q, k), expected, rtol=1e-12)
    means = brute_force.unit(np.stack([units[:2].mean(0), units[2:].mean(0)]))
    expected = brute_force.info_nce(means, mask, 0.3)
    np.testing.assert_allclose(jax.jit(losses.mean_pair(pair_loss))(q, k), expected, rtol=1e-12)
    there = np.ones((5, 5), bool)
    there[1, 2] = there[4, 0] = False
    q[1, 2] = k[2, 0] = np.nan
    means = brute_force.unit(
        np.stack([np.where(there[s, :, None], units[s], 0).sum(0) for s in (slice(0, 2), slice(2, 5))])
    )
    found = jax.jit(losses.mean_pair(pair_loss))(q, k, mask=there)
    np.testing.assert_allclose(found, brute_force.info_nce(means, mask, 0.3), rtol=1e-12)


def test_coinciding_vectors():
    """Values known by hand."""
    z, k, n, t = np.ones((4, 7, 3), np.float32), 4, 7, 0.25
    expected = {
        "info_nce": np.log(n),
        "nt_xent": np.log(2 * n - 1),
        "dcl": np.log(2 * n - 2),
        "dhel": 1 / t + 2 * np.log(n - 1),
        "rince": np.exp(0.5 / t) * (np.sqrt(0.001 * (2 * n - 1)) - 1) / 0.5,
        "mv_infonce": np.log(n),
        "mv_dhel": (k - 1) / t + k * np.log(n - 1) - np.log(k * (k - 1)),
        "mv_cl1": np.log(n),
        "mv_cl2": np.log((n - 1) / (k - 1)),
        "poly_view": np.log(k * (n - 1) + 1),
        "sufficient_statistics": np.log(k * (n - 1) + 1),
    }
    for name, value in expected.items():
        np.testing.assert_allclose(call(name, z, {"temperature": t}), value, rtol=2e-6, err_msg=name)
    np.testing.assert_allclose(
        losses.mv_infonce(z, t, negatives="all"), np.log((k * n - 1) / (k - 1)), rtol=1e-6
    )
    np.testing.assert_allclose(losses.byol(z[0], -z[1]), 4, rtol=1e-6)
    np.testing.assert_allclose(losses.spectral(z[0], z[1]), -1, rtol=1e-6)
    np.testing.assert_allclose(
        losses.siglip(z[0], z[1], 2.0, 1.0), np.log1p(np.exp(-3)) + 6 * np.log1p(np.exp(3)), rtol=1e-6
    )


def test_a_temperature_may_be_traced_and_swept(x64, rng):
    z = rng.normal(size=(3, 5, 4))
    temperatures = jnp.asarray([0.01, 0.1, 1.0])  # on both sides of the switch to row maxima
    for loss in (losses.mv_infonce, losses.mv_dhel, losses.poly_view, losses.all_pairs(losses.nt_xent)):
        swept = jax.jit(jax.vmap(lambda t, loss=loss: loss(z, temperature=t)))(temperatures)
        fixed = [jax.jit(functools.partial(loss, temperature=float(t))) for t in temperatures]
        one_by_one = [f(z) for f in fixed]
        np.testing.assert_allclose(swept, one_by_one, rtol=1e-12)
        traced = jax.jit(lambda t, loss=loss: loss(z, temperature=t))
        slope = jax.jit(jax.grad(traced))(0.1)
        np.testing.assert_allclose(slope, (traced(0.1 + 1e-6) - traced(0.1 - 1e-6)) / 2e-6, rtol=1e-7)
