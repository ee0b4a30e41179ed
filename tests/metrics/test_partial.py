"""Parts of an information, of tables whose parts are known, and bounds of every decomposition on the lattice."""

import itertools

import numpy as np
import pytest
from scipy.optimize import minimize

from mvcl import metrics

BIT = np.log(2)


def tabulated(bits, seen, target):
    """Joint probabilities (m_1, ..., m_k, classes): functions of equally likely bits, the views' and the target's."""
    rows = [(*(of(*b) for of in seen), target(*b)) for b in itertools.product((0, 1), repeat=bits)]
    codes = [np.unique(column, axis=0, return_inverse=True)[1].reshape(-1) for column in zip(*rows)]
    joint = np.zeros([code.max() + 1 for code in codes])
    np.add.at(joint, tuple(codes), 1 / len(rows))
    return joint


def measured(joint):
    """Informations of each view, of all without it, and of all; and the tables of each view and of the others."""
    k = joint.ndim - 1
    own = [joint.sum(tuple(j for j in range(k) if j != i)) for i in range(k)]
    others = [joint.sum(i).reshape(-1, joint.shape[-1]) for i in range(k)]
    alone, without = (np.array([metrics.table_information(of) for of in each]) for each in (own, others))
    whole = metrics.table_information(joint.reshape(-1, joint.shape[-1]))
    return (alone, without, whole), {"tables": own, "others": others}


KNOWN = {  # bits, views, target; unique, shared, synergy in bits
    "copy": (1, [lambda a: a] * 2, lambda a: a, [0, 0], 1, 0),
    "unique bits": (2, [lambda a, b: a, lambda a, b: b], lambda a, b: 2 * a + b, [1, 1], 0, 0),
    "xor": (2, [lambda a, b: a, lambda a, b: b], lambda a, b: a ^ b, [0, 0], 0, 1),
    # Bertschinger 2014, Table 1: 0.311 and 1/2 bit.
    "and": (2, [lambda a, b: a, lambda a, b: b], lambda a, b: a & b, [0, 0], 0.311278, 0.5),
    "all of these": (
        5,
        [lambda a, b, c, x, y: 4 * a + 2 * b + x, lambda a, b, c, x, y: 4 * a + 2 * c + y],
        lambda a, b, c, x, y: 8 * a + 4 * b + 2 * c + (x ^ y),
        [1, 1],
        1,
        1,
    ),
    "three views, one of noise": (
        3,
        [lambda a, b, c: a, lambda a, b, c: b, lambda a, b, c: c],
        lambda a, b, c: a ^ b,
        [0, 0, 0],
        0,
        1,
    ),
    "three views, a bit of each, one of all, one that only all tell": (
        7,
        [
            lambda s, a, b, c, x, y, z: 4 * s + 2 * a + x,
            lambda s, a, b, c, x, y, z: 4 * s + 2 * b + y,
            lambda s, a, b, c, x, y, z: 4 * s + 2 * c + z,
        ],
        lambda s, a, b, c, x, y, z: 16 * s + 8 * a + 4 * b + 2 * c + (x ^ y ^ z),
        [1, 1, 1],
        1,
        1,
    ),
}


@pytest.mark.parametrize("name", KNOWN)
def test_parts_of_known_laws(name):
    bits, seen, target, *parts = KNOWN[name]
    informations, tables = measured(tabulated(bits, seen, target))
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


def up_sets(k):
    """The atoms, each as the subsets of views that know it: with a subset every larger one."""
    subsets = [s for r in range(1, k + 1) for s in itertools.combinations(range(k), r)]
    above = {s: frozenset(t for t in subsets if set(s) <= set(t)) for s in subsets}
    families = itertools.chain.from_iterable(itertools.combinations(subsets, r) for r in range(1, 4))
    return {frozenset().union(*(above[s] for s in family)) for family in families}


@pytest.mark.parametrize(("k", "atoms"), [(2, 4), (3, 18)])
def test_bounds_hold_for_every_decomposition_and_are_met(rng, k, atoms):
    lattice = sorted(up_sets(k), key=sorted)
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


def test_bad_input():
    with pytest.raises(ValueError, match=r"must be \(\.\.\., k\), .* k >= 2, got \(1,\), \(1,\) and \(\)"):
        metrics.information_bounds([0.1], [0.0], 0.1)
    with pytest.raises(ValueError, match="tables must have the same probabilities of the classes"):
        metrics.union_information([np.full((2, 2), 0.25), np.array([[0.5, 0.1], [0.3, 0.1]])])
    with pytest.raises(ValueError, match=r"at least 2 joint probabilities .* got \(2, 2\)$"):
        metrics.union_information([np.full((2, 2), 0.25)])
    with pytest.raises(ValueError, match="tables and others must be 2 each, got 2 and 0"):
        metrics.information_parts([0.1, 0.2], [0.2, 0.1], 0.2, tables=[np.full((2, 2), 0.25)] * 2)
