"""Mutual information from determinants and an enumerable distribution; its parts, of tables where they are known."""

import itertools
import math
from functools import partial

import jax
import numpy as np
import pytest
from scipy.optimize import minimize

from mvcl import metrics


@pytest.mark.parametrize(("views", "ratio", "group"), [(2, 0.1, 1), (10, 50.0, 1), (5, 3.0, 2), (6, 3.0, 5)])
def test_gaussian_information_is_a_ratio_of_determinants(views, ratio, group):
    """Of two sets of views: Shidani 2024, Definition E.1."""

    def log_det(m):
        return np.linalg.slogdet(np.eye(m) + ratio * np.ones((m, m)))[1]

    expected = (log_det(group) + log_det(views - group) - log_det(views)) / 2
    np.testing.assert_allclose(metrics.gaussian_information(views, ratio, group), expected, rtol=1e-12)


@pytest.mark.parametrize(("instances", "views"), [(2, 16), (8, 4)])
def test_info_nce_bound_holds_in_the_gaussian_model(x64, rng, instances, views):
    """With the best score it is `expected_info_nce`, less than the truth; other scores give less."""
    ratio, batches = 4.0, 40_000 // instances
    truth = metrics.gaussian_information(views, ratio)
    shared = math.sqrt(ratio) * rng.normal(size=(batches, instances))
    x = shared + rng.normal(size=(views, batches, instances))
    rest = x[1:].mean(0)
    slope = (views - 1) * ratio / (1 + (views - 1) * ratio)  # E[x | the others] = slope * rest
    variance = 1 + ratio / (1 + (views - 1) * ratio)
    best = -((x[0][:, :, None] - slope * rest[:, None, :]) ** 2) / (2 * variance)
    values = metrics.info_nce_bound(best)
    expected = metrics.expected_info_nce(instances, truth)
    np.testing.assert_allclose(values.mean(), expected, atol=5 * float(values.std()) / math.sqrt(batches))
    assert values.mean() < truth
    of_embeddings = np.stack([np.cos(x), np.sin(x)], axis=-1)
    other = jax.vmap(lambda z: metrics.info_nce_bound(metrics.group_scores(z, (0,), 0.5)), in_axes=1)
    assert other(of_embeddings).mean() < values.mean()


@pytest.mark.parametrize("critic", ["geometric", "arithmetic", "harmonic", 0.4, "sufficient_statistics"])
def test_group_scores_by_hand(x64, rng, critic):
    z = rng.normal(size=(5, 4, 3))
    unit = z / np.linalg.norm(z, axis=-1, keepdims=True)
    group, others, t = (1, 4), (0, 2, 3), 0.3
    found = metrics.group_scores(z, group, t, critic)
    for i, j in np.ndindex(4, 4):
        scores = np.array([unit[a, i] @ unit[b, j] / t for a in group for b in others])
        a, b = unit[list(group), i].mean(0), unit[list(others), j].mean(0)
        expected = {
            "geometric": scores.mean(),
            "arithmetic": np.log(np.mean(np.exp(scores))),
            "harmonic": -np.log(np.mean(np.exp(-scores))),
            "sufficient_statistics": a @ b / np.linalg.norm(a) / np.linalg.norm(b) / t,
            0.4: np.log(np.mean(np.exp(0.4 * scores))) / 0.4,
        }[critic]
        np.testing.assert_allclose(found[i, j], expected, rtol=1e-10)


def test_nwj_bound_is_tight_at_the_density_ratio(x64):
    joint = np.array([[4, 1, 1], [1, 3, 2]])  # counts of (x, Y): an enumerable law
    p = joint / joint.sum()
    product = np.outer(p.sum(1), p.sum(0))
    score = 1 + np.log(p / product)
    truth = np.sum(p * np.log(p / product))
    together = np.repeat(score.ravel(), joint.ravel())
    apart = np.repeat(score.ravel(), np.rint(product * 144).astype(int).ravel())  # 144 = 12², so exact
    assert apart.size == 144
    np.testing.assert_allclose(metrics.nwj_bound(together, apart), truth, rtol=1e-12)
    assert metrics.nwj_bound(0.5 * together, 0.5 * apart) < truth


def test_generalized_nwj_bound_is_equation_5(x64, rng):
    joint, product = rng.normal(size=7), rng.normal(size=(3, 5))
    expected = joint.mean() - np.exp(product).mean() + 1
    np.testing.assert_allclose(metrics.generalized_nwj_bound(joint, product), expected, rtol=1e-12)


@pytest.mark.parametrize(("equation", "expected"), [(154, 90.5), (155, 65.0)])
def test_optimal_multiplicity_as_printed(equation, expected):
    found = metrics.optimal_multiplicity(8192, math.log(2), equation)
    np.testing.assert_allclose(found, expected, atol=0.05)
    # The maximum of log(B - M + 1) + log l(M) over a fine grid.
    m, p = np.linspace(2, 400, 400_001), 0.5
    likelihood = p + (1 - p) * (m - 2) / m if equation == 154 else 1 - (1 - p) / (m - 1)
    np.testing.assert_allclose(found, m[np.argmax(np.log(8192 - m + 1) + np.log(likelihood))], atol=2e-3)


def test_best_gaussian_multiplicity_weighs_views_against_instances():
    candidates = (2, 4, 8, 16, 32)
    of = {m: metrics.expected_info_nce(64 // m, metrics.gaussian_information(m, 4.0)) for m in candidates}
    assert metrics.best_gaussian_multiplicity(64, 4.0, candidates) == max(candidates, key=of.__getitem__)


def test_expected_info_nce_of_two_pairs_by_quadrature():
    """Over x, its own y and another y."""
    points, weights = np.polynomial.hermite_e.hermegauss(60)
    x, noise, other = np.meshgrid(*[points] * 3)
    weight = np.prod(np.meshgrid(*[weights / weights.sum()] * 3), axis=0)
    slope, deviation = math.sqrt(1 - math.exp(-1)), math.exp(-0.5)  # 0.5 nats
    logs = [y**2 / 2 - ((y - slope * x) / deviation) ** 2 / 2 for y in (slope * x + deviation * noise, other)]
    expected = np.sum(weight * np.log(2 / (1 + np.exp(logs[1] - logs[0]))))
    np.testing.assert_allclose(metrics.expected_info_nce(2, 0.5), expected, rtol=1e-6)


BIT = np.log(2)


def measured(bits, seen, target):
    """Of views that are some of equally likely bits, and a target: the informations of each view, of all without it,
    and of all; and the tables of joint probabilities of each view and of the others."""
    laws = list(itertools.product((0, 1), repeat=bits))
    columns = [[[law[place] for place in of] for law in laws] for of in seen]
    columns.append([target(*law) for law in laws])
    codes = [np.unique(column, axis=0, return_inverse=True)[1].reshape(-1) for column in columns]
    joint = np.zeros([code.max() + 1 for code in codes])
    np.add.at(joint, tuple(codes), 1 / len(laws))
    k = len(seen)
    own = [joint.sum(tuple(j for j in range(k) if j != i)) for i in range(k)]
    others = [joint.sum(i).reshape(-1, joint.shape[-1]) for i in range(k)]
    alone, without = (np.array([metrics.table_information(of) for of in each]) for each in (own, others))
    whole = metrics.table_information(joint.reshape(-1, joint.shape[-1]))
    return (alone, without, whole), {"tables": own, "others": others}


KNOWN = {  # number of bits, which ones each view has, target; unique, shared, synergy in bits
    "copy": (1, [[0], [0]], lambda a: a, [0, 0], 1, 0),
    "unique bits": (2, [[0], [1]], lambda a, b: (a, b), [1, 1], 0, 0),
    "xor": (2, [[0], [1]], lambda a, b: a ^ b, [0, 0], 0, 1),
    # Bertschinger 2014, Table 1: 0.311 and 1/2 bit.
    "and": (2, [[0], [1]], lambda a, b: a & b, [0, 0], 0.311278, 0.5),
    "all of these": (5, [[0, 1, 3], [0, 2, 4]], lambda a, b, c, x, y: (a, b, c, x ^ y), [1, 1], 1, 1),
    "three views, one of noise": (3, [[0], [1], [2]], lambda a, b, c: a ^ b, [0, 0, 0], 0, 1),
    "three views, a bit of each, one of all, one that only all tell": (
        7,
        [[0, 1, 4], [0, 2, 5], [0, 3, 6]],
        lambda s, a, b, c, x, y, z: (s, a, b, c, x ^ y ^ z),
        [1, 1, 1],
        1,
        1,
    ),
}


@pytest.mark.parametrize("name", KNOWN)
def test_parts_of_known_laws(name):
    bits, seen, target, *parts = KNOWN[name]
    informations, tables = measured(bits, seen, target)
    found = metrics.information_parts(*informations, **tables)
    low, high = metrics.information_bounds(*informations)
    for own, expected, least, most in zip(found, parts, low, high, strict=True):
        np.testing.assert_allclose(own / BIT, expected, atol=2e-5)
        assert np.all(least <= own + 1e-12)
        assert np.all(own <= most + 1e-12)


def test_union_is_the_least_information_that_a_search_finds(rng):
    """With two values of each view a law with these tables has one free number for each value of the target."""
    joint = rng.dirichlet(np.ones(8)).reshape(2, 2, 2)

    def information(free):
        moved = joint + np.array([[1, -1], [-1, 1]])[..., None] * free
        return metrics.table_information(moved.reshape(4, 2)) if moved.min() >= 0 else 9.0

    starts = rng.uniform(-0.02, 0.02, (20, 2))
    best = min(minimize(information, x, method="Nelder-Mead", options={"xatol": 1e-9}).fun for x in starts)
    found = metrics.union_information([joint.sum(1), joint.sum(0)], tolerance=1e-8, steps=3000)
    np.testing.assert_allclose(found, best, atol=1e-6)


@pytest.mark.parametrize(("k", "atoms"), [(2, 4), (3, 18)])
def test_bounds_hold_for_every_decomposition_and_are_met(rng, k, atoms):
    # the atoms, each as the subsets of views that know it: with a subset every larger one
    subsets = [s for r in range(1, k + 1) for s in itertools.combinations(range(k), r)]
    above = {s: frozenset(t for t in subsets if set(s) <= set(t)) for s in subsets}
    families = itertools.chain.from_iterable(itertools.combinations(subsets, r) for r in range(1, 4))
    lattice = sorted({frozenset().union(*map(above.get, family)) for family in families}, key=sorted)
    assert len(lattice) == atoms
    singles, whole = [(i,) for i in range(k)], tuple(range(k))
    rests = [tuple(j for j in whole if j != i) for i in whole]
    sizes = rng.gamma(0.3, size=(2000, atoms)) * (rng.random((2000, atoms)) < 0.5)
    known = np.array([[s in atom for atom in lattice] for s in (*singles, *rests, whole)])
    alone, without, every = np.split(sizes @ known.T, [k, 2 * k], axis=1)
    no_single = np.array([not atom & set(singles) for atom in lattice])
    own = np.array([[(i,) in a and rests[i] not in a for a in lattice] for i in whole])
    unique, synergy = sizes @ own.T, sizes @ no_single
    truth = metrics.Parts(unique, every[:, 0] - synergy - unique.sum(1), synergy)
    low, high = metrics.information_bounds(alone, without, every[:, 0])
    least = metrics.information_parts(alone, without, every[:, 0])
    for part, below, above, minimum in zip(truth, low, high, least, strict=True):
        for value in (part, minimum):
            assert np.all(below <= value + 1e-9)
            assert np.all(value <= above + 1e-9)
        assert np.min(part - below) < 1e-9
        assert np.min(above - part) < 1e-9


def test_two_views_without_tables_share_the_smaller_information():
    found = metrics.information_parts([0.3, 0.5], [0.5, 0.3], 0.6)
    np.testing.assert_allclose([*found.unique, found.shared, found.synergy], [0, 0.2, 0.3, 0.1], atol=1e-12)


def test_informations_of_more_views_are_not_less():
    """Estimates are noisy: all views together tell at least what two do."""
    low, high = metrics.information_bounds([0.2, -0.1], [-0.1, 0.2], 0.15)
    np.testing.assert_allclose([*high.unique, high.shared, high.synergy], [0.2, 0, 0, 0], atol=1e-12)
    np.testing.assert_allclose([*low.unique, low.shared, low.synergy], [0.2, 0, 0, 0], atol=1e-12)


FAIR, UNFAIR, ONES = np.full((2, 2), 0.25), np.array([[0.5, 0.1], [0.3, 0.1]]), np.ones((3, 4, 2))
GROUPS, PARTS = ((), (0, 1, 2), (3,), (0, 0)), ([0.1, 0.2], [0.2, 0.1], 0.2)


@pytest.mark.parametrize(
    ("function", "arguments", "message"),
    [
        (metrics.gaussian_information, (1, 1.0), "views must be a whole number >= 2, got 1"),
        (metrics.gaussian_information, (3, 1.0, 3), "group must be less than views = 3, got 3"),
        (metrics.info_nce_bound, (FAIR[:, :1],), r"scores .* \(\.\.\., K, K\), K >= 2, got \(2, 1\)"),
        *((metrics.group_scores, (ONES, of), "group must be some of the views 0 to 2, got") for of in GROUPS),
        (metrics.optimal_multiplicity, (64, 1.0, 156), "equation must be 154 or 155, got 156"),
        (metrics.best_gaussian_multiplicity, (64, 1.0, (2, 33)), r"candidates must be in \[2, 32\], got"),
        (metrics.information_bounds, ([0.1], [0.0], 0.1), r"k >= 2, got \(1,\), \(1,\) and \(\)"),
        (metrics.union_information, ([FAIR, UNFAIR],), "tables must have the same probabilities of the cl"),
        (partial(metrics.information_parts, tables=[FAIR] * 2), PARTS, "others must be 2 each, got 2 and 0"),
        (metrics.union_information, ([FAIR],), r"at least 2 joint probabilities .* got \(2, 2\)$"),
    ],
)
def test_raises_on_bad_arguments(function, arguments, message):
    with pytest.raises(ValueError, match=message):
        function(*arguments)
