"""Values in float64 against loops of the formula, and values known by hand."""

import functools

import brute_force
import cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import every
from parametrize import some

from mvcl import losses


def test_every_objective_has_a_reference():
    assert set(cases.OBJECTIVES) == set(brute_force.REFERENCES)
    assert set(cases.HIGHER_ORDER) == set(brute_force.OF_PAIRS)


@every(cases.PLAIN)
def test_equals_the_formula_with_every_option_where_views_are_missing_and_with_a_queue(x64, rng, case):
    takes, given, more = case.takes, {}, {}
    z = case.draw(rng)
    if takes.queue:
        extra = rng.normal(size=(3, 3))
        given[takes.queue] = more["extra"] = brute_force.unit(extra)
        if takes.queue_of_means:  # means of unit vectors
            given[takes.queue] = more["extra"] = extra / (1 + np.linalg.norm(extra, axis=1, keepdims=True))
    if "temperature" in takes.options:
        given["temperature"] = more["temperature"] = 0.05
    holes, mask = case.with_holes(rng, z)
    several = [cases.case(case.reference.loops.__name__, options) for options in case.reference.options]
    found = cases.together(*(functools.partial(c.run, **given, **mask) for c in several))(holes)
    expected = [c.by_hand(z, **mask, **more) for c in several]
    np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-11)


@every(cases.PLAIN)
def test_equals_the_formula_of_all_views_as_they_are(x64, rng, case):
    """At a temperature that needs row maxima; of vectors that are not projected."""
    heat = {"temperature": 0.002} if "temperature" in case.takes.options else {}
    z, short = case.draw(rng, views=4), case.draw(rng)
    runs, expected = [lambda z, short: case.run(z, **heat)], [case.by_hand(z, **heat)]
    if case.takes.normalize:
        warm = {"temperature": 3.0} if heat else {}
        short *= case.reference.longest * 0.9 / np.linalg.norm(short, axis=-1).max()
        runs.append(lambda z, short: case.run(short, **warm, normalize=False))
        expected.append(case.loops(short, np.ones(short.shape[:2], bool), **warm))
    np.testing.assert_allclose(cases.together(*runs)(z, short), expected, rtol=1e-11)


@pytest.mark.parametrize("pair", some(cases.PAIRS, fast=["nt_xent", "dhel", "vicreg"]))
def test_all_pairs(x64, rng, pair):
    """Every order, reduction and kind of weights, with a mask; and of a function that declares nothing."""
    z, w, by_instance = rng.normal(size=(3, 6, 3)), rng.random((3, 3)), rng.random((3, 3, 6))
    weighted = [w, by_instance] if losses.takes(cases.OBJECTIVES[pair]).terms else [w]
    options = [{}, {"pairs": "ordered"}] + [
        {"weights": factors, "pairs": pairs, "reduction": reduction}
        for factors in weighted
        for pairs, reduction in (("unordered", "mean"), ("all", "sum"))
    ]
    several = [cases.of_pairs("all_pairs", pair, **o) for o in options]
    opaque = losses.all_pairs(lambda x, y, **o: several[0].objective.keywords["pair"](x, y, **o))
    mask = {"mask": cases.some_missing(rng, z.shape[:2])}
    given = [(case, {}) for case in several[:2]] + [(case, mask) for case in several]
    runs = [functools.partial(case.objective, **o) for case, o in given]
    found = cases.together(functools.partial(opaque, **mask), *runs)(z)
    expected = [case.by_hand(z, **o) for case, o in [(several[0], mask), *given]]
    np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("pair", some(cases.PAIRS, fast=["nt_xent", "byol"]))
def test_one_vs_rest(x64, rng, pair):
    several = [cases.of_pairs("one_vs_rest", pair, normalize_rest=rest) for rest in (False, True)]
    z = rng.normal(size=(4, 6, 3))
    units = brute_force.unit(z)
    for there in (np.ones(z.shape[:2], bool), cases.some_missing(rng, z.shape[:2])):
        found = cases.together(*(functools.partial(c.objective, mask=there) for c in several))(z)
        np.testing.assert_allclose(found, [c.loops(units, there) for c in several], rtol=1e-11, atol=1e-11)


def test_one_vs_rest_in_blocks_with_a_learned_temperature(x64, rng):
    """Its derivative is that of whole blocks."""
    z = rng.normal(size=(3, 6, 3))

    def loss(z, t, block_size):
        return losses.one_vs_rest(functools.partial(losses.info_nce, temperature=t))(z, block_size=block_size)

    slopes = jax.jit(jax.value_and_grad(loss, (0, 1)), static_argnums=2)
    for found, expected in zip(jax.tree.leaves(slopes(z, 0.5, 2)), jax.tree.leaves(slopes(z, 0.5, None))):
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("function", "options"), [("cross_pairs", {}), ("mean_pair", {}), ("mean_pair", {"renormalize": False})]
)
def test_groups_of_views(x64, rng, function, options):
    case = cases.of_pairs(function, "info_nce", **options)
    z = rng.normal(size=(4, 6, 3))
    holes, mask = case.with_holes(rng, z)
    runs = case.run, functools.partial(case.run, **mask)
    found = jax.jit(lambda z, holes: [run(of) for run, of in zip(runs, (z, holes))])(z, holes)
    np.testing.assert_allclose(found, [case.by_hand(z), case.by_hand(z, **mask)], rtol=1e-12)


@pytest.mark.parametrize("pair", some(["info_nce", "nt_xent", "spectral"], fast=["nt_xent"]))
def test_weights_by_instance_as_tuples_and_over_devices(x64, rng, pair):
    z, w = rng.normal(size=(3, 6, 3)), rng.random((3, 3, 6))
    mask = cases.some_missing(rng, z.shape[:2])
    case = cases.of_pairs("all_pairs", pair, pairs="all", reduction="sum")
    expected = case.by_hand(z, mask, weights=w)
    nested = tuple(tuple(tuple(float(v) for v in row) for row in rows) for rows in w)
    whole = lambda z: case.objective(z, weights=nested, mask=mask)  # noqa: E731
    integers = losses.all_pairs(losses.byol, weights=((0, 3), (5, 0)))(z[:2])
    np.testing.assert_allclose(integers, 3 * losses.byol(*z[:2]), rtol=1e-12)
    value, slope = jax.jit(jax.value_and_grad(whole))(z)
    np.testing.assert_allclose(value, expected, rtol=1e-11)

    def local(z, w, m):
        return case.objective(z, weights=w, mask=m, axis_name="data", block_size=1)

    split = cases.split(local, cases.ROWS, jax.P(None, None, "data"), cases.ROWS)
    found = jax.jit(jax.value_and_grad(split))(z, w, mask)
    cases.close(found, (expected, slope), 1e-11)


@pytest.mark.parametrize("declared", [True, False])
@pytest.mark.parametrize("renormalize", [True, False])
def test_mean_pair_projects_a_queue_of_means_as_the_means(x64, rng, renormalize, declared):
    pair = functools.partial(losses.info_nce, temperature=0.5, in_batch_negatives=False)
    if not declared:
        told = losses.declare(operands=losses.Operands.PAIR, normalize=True, queue="extra_negatives")
        pair = told(lambda x, y, pair=pair, **options: pair(x, y, **options))
    q, k = brute_force.unit(rng.normal(size=(2, 2, 5, 4)))
    queue = brute_force.unit(rng.normal(size=(3, 2, 4))).mean(1)
    x, y, far = q.mean(0), k.mean(0), queue
    if renormalize:
        x, y, far = brute_force.unit(x), brute_force.unit(y), brute_force.unit(far)
    own, others = (x * y).sum(1) / 0.5, x @ far.T / 0.5
    expected = np.mean(np.log(np.exp(own) + np.exp(others).sum(1)) - own)
    found = jax.jit(losses.mean_pair(pair, renormalize=renormalize))(q, k, extra_negatives=queue)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


TRACED = ["mv_infonce", "mv_dhel", "poly_view", "symile", "gram", "triangle", "pmrl"]


@pytest.mark.parametrize("name", some(TRACED, fast=["mv_infonce", "gram"]))
def test_a_temperature_may_be_learned_and_swept(x64, rng, name):
    """On both sides of the switch to row maxima."""
    case, temperatures = cases.case(name), jnp.asarray([0.002, 0.3])
    z = case.draw(rng)
    swept = jax.jit(jax.vmap(jax.value_and_grad(lambda t: case.run(z, temperature=t))))
    values, slopes = swept(temperatures)
    expected = [case.by_hand(z, temperature=t) for t in (0.002, 0.3)]
    np.testing.assert_allclose(values, expected, rtol=1e-11)
    (after, _), (before, _) = (swept(temperatures * (1 + step)) for step in (1e-6, -1e-6))
    np.testing.assert_allclose(slopes, (after - before) / (2e-6 * temperatures), rtol=1e-5, atol=1e-5)
