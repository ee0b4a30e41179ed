"""Costs that are declared by their pairs, against loops over the tuples; barycentres that are known in closed form."""

import itertools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mvcl.transport import Barycenter, Geometry, SphericalBarycenter, SumOverPairs
from tests.transport import tensors

# A bound on the spread settles the way of the contraction before compilation, which takes half as long.
SETTLED = {"spread": 50.0, "threshold": 1e-10, "max_iterations": 3000}
SIZES = (3, 4, 2)
WEIGHTS = (1 / 6, 2 / 6, 3 / 6)
CHAIN = np.eye(3, k=1) + np.eye(3, k=-1)


def coulomb(x, y, softening=0.1):
    return 1 / jnp.sqrt(jnp.sum((x - y) ** 2) + softening**2)


def distance(x, y):
    return jnp.sum(jnp.abs(x - y) ** 1.5)


def skew(x, y):
    """Not symmetric, so that the order of its arguments counts."""
    return jnp.sum(x**2 * y)


def forbidden(x, y):
    raise AssertionError("the function of a pair of weight 0 was called")


def points_of(rng, k, unit=False):
    points = [rng.normal(size=(n, 2)) for n in SIZES[:k]]
    return [x / np.linalg.norm(x, axis=1, keepdims=True) for x in points] if unit else points


def tensor_of(points, cost):
    out = np.empty([len(x) for x in points])
    for index in np.ndindex(*out.shape):
        out[index] = cost([x[i] for x, i in zip(points, index)])
    return out


def sum_of(pair, weights):
    """Loop over the pairs of a tuple."""
    pairs = lambda s: itertools.combinations(range(len(s)), 2)  # noqa: E731
    return lambda s: sum(weights[l, m] * pair(s[l], s[m]) for l, m in pairs(s))


def around_mean(b, x):
    return np.sum((x - b) ** 2)


def on_sphere(b, x):
    return 1 - b / np.linalg.norm(b) @ x


def spread(weights, distance):
    """Loop over the points of a tuple, of their distances to the mean."""
    mean = lambda s: sum(w * x for w, x in zip(weights, s))  # noqa: E731
    return lambda s: sum(w * distance(mean(s), x) for w, x in zip(weights, s))


# Declared cost, the same in numpy, whether its points are unit vectors.
CASES = {
    "chain": (SumOverPairs(coulomb, CHAIN), sum_of(coulomb, CHAIN), False),
    "barycenter": (Barycenter(WEIGHTS), spread(WEIGHTS, around_mean), False),
    "equal": (Barycenter(), spread(np.full(3, 1 / 3), around_mean), False),
    "sphere": (SphericalBarycenter(WEIGHTS), spread(WEIGHTS, on_sphere), True),
}


@pytest.mark.parametrize("name", CASES)
def test_declared_costs_and_their_derivatives_are_those_of_every_tuple(x64, rng, name):
    cost, plainly, unit = CASES[name]
    points, step = points_of(rng, 3, unit), 1e-6
    direction = [rng.normal(size=x.shape) for x in points]
    of = partial(Geometry.from_points, cost=cost, scale=3.0)
    costs, change = jax.jit(lambda *at: jax.jvp(of, *at))((points,), (direction,))
    moved = ([x + s * step * d for x, d in zip(points, direction)] for s in (1, 0, -1))
    after, expected, before = (tensor_of(at, plainly) for at in moved)
    if isinstance(cost, SphericalBarycenter):
        mean, found = sum(w * x[1] for w, x in zip(WEIGHTS, points)), cost.point([x[1] for x in points])
        np.testing.assert_allclose(found, mean / np.linalg.norm(mean), rtol=1e-12)
    assert costs.pairwise != unit
    assert not costs.dense
    np.testing.assert_allclose(costs.tensor(), 3 * expected, atol=1e-13)
    slope = jax.jvp(Geometry.tensor, (costs,), (change,))[1]
    np.testing.assert_allclose(slope, 3 * (after - before) / (2 * step), rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(cost(jnp.stack([x[1] for x in points])), expected[1, 1, 1], atol=1e-14)


def test_one_function_for_each_pair_and_none_for_pairs_of_weight_0(x64, rng):
    points = points_of(rng, 3)
    weights = np.array([[5, 2, 0], [2, 5, -1], [0, -1, 5]])
    cost = SumOverPairs([distance, forbidden, skew], weights)
    expected = tensor_of(points, lambda s: 2 * distance(s[0], s[1]) - skew(s[1], s[2]))
    np.testing.assert_allclose(Geometry.from_points(points, cost).tensor(), expected, rtol=1e-12)


def test_conditional_means_are_sums_over_the_plan(x64, rng):
    points = points_of(rng, 3)
    a_s = [None, np.array([0.0, 0.3, 0.3, 0.4]), None]

    @jax.jit
    def of(points):
        out = tensors.solution(points, Barycenter(), a_s=a_s, epsilon=0.3, **SETTLED)
        means, one = out.conditional_means(1), out.barycenter(Barycenter(), [[2, 3, 1]])
        return out.tensor, means, out.barycenter(Barycenter()), one

    whole, got, (support, masses), (some_points, some_masses) = of(points)
    plan = np.asarray(whole)[:, 1:]  # without the point of weight 0
    mass = plan.sum((0, 2))[:, None]
    np.testing.assert_array_equal(got[:, 0], 0)
    np.testing.assert_allclose(got[0][1:], np.einsum("ijk,id->jd", plan, points[0]) / mass, rtol=1e-9)
    np.testing.assert_array_equal(got[1][1:], points[1][1:])
    np.testing.assert_allclose(got[2][1:], np.einsum("ijk,kd->jd", plan, points[2]) / mass, rtol=1e-9)
    of_tuples = [(points[0][i] + points[1][j] + points[2][k]) / 3 for i, j, k in np.ndindex(3, 4, 2)]
    np.testing.assert_allclose(support, of_tuples, rtol=1e-12)
    np.testing.assert_allclose(masses, np.reshape(whole, -1), rtol=1e-12)
    np.testing.assert_allclose(some_points, support[-1:], rtol=1e-12)
    np.testing.assert_allclose(some_masses, masses[-1:], rtol=1e-12)


def test_missing_views_leave_their_terms_out(x64, rng):
    """`present`: a sum over pairs is over the pairs there are, the spherical barycentre is that of the points there."""
    k, n, weights = 3, 3, WEIGHTS
    z = rng.normal(size=(k, n, 2))
    z /= np.linalg.norm(z, axis=-1, keepdims=True)
    there = np.array([[1, 1, 0], [1, 0, 0], [1, 1, 1]], bool)
    pairs, sphere = (
        jax.jit(lambda z, cost=cost: Geometry.from_points(z, cost, present=there).tensor())(z)
        for cost in (SumOverPairs(coulomb), SphericalBarycenter(weights))
    )
    for index in np.ndindex(n, n, n):
        views = [l for l, i in enumerate(index) if there[l, i]]
        stack = {l: z[l, index[l]] for l in views}
        expected = sum(coulomb(stack[l], stack[m]) for l, m in itertools.combinations(views, 2))
        np.testing.assert_allclose(pairs[index], expected, rtol=1e-12)
        total = sum(weights[l] * stack[l] for l in views)
        expected = sum(weights[l] for l in views) - np.linalg.norm(total)
        np.testing.assert_allclose(sphere[index], expected, atol=1e-7)  # the root of the rounding of a square


def test_declared_costs_are_values():
    """Equal and hashable by what they hold, arrays or nested tuples, as configs and static arguments need it."""
    assert SumOverPairs(coulomb, CHAIN) == SumOverPairs(coulomb, tuple(map(tuple, CHAIN.tolist())))
    assert len({SumOverPairs([coulomb] * 3), SumOverPairs((coulomb,) * 3), SumOverPairs(coulomb)}) == 2
    assert hash(Barycenter(np.array([0.5, 0.5]))) == hash(Barycenter((0.5, 0.5)))
    assert Barycenter() != SphericalBarycenter()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SumOverPairs("coulomb"), "pair must be a function of two points or several.*'coulomb'"),
        (lambda: SumOverPairs([]), r"pair must be a function of two points or several.*\[\]"),
        (lambda: SumOverPairs(coulomb, [1.0, 0.0]), r"weights must have shape \(k, k\), got \(2,\)"),
        (lambda: SumOverPairs(coulomb, [[0, 1], [2, 0]]), "weights must be finite and symmetric"),
        (lambda: SumOverPairs(coulomb, [[0, np.inf], [np.inf, 0]]), "weights must be finite and symmetric"),
        (lambda: Barycenter((0.5, 0.6)), r"weights must be k numbers.* sum to 1, got \[0.5, 0.6\]"),
        (lambda: SphericalBarycenter((1.5, -0.5)), "weights must be k numbers that are not negative"),
        (lambda: SumOverPairs([coulomb] * 2), "pair must be one function or 3.*3 views, got 2"),
        (lambda: SumOverPairs(coulomb, CHAIN[:2, :2]), r"weights must .* \(3, 3\) for 3 views, got \(2, 2\)"),
        (
            lambda: SumOverPairs(jnp.subtract),
            r"pair must return a scalar for two points .*, got shape \(2,\)",
        ),
        (lambda: Barycenter((0.5, 0.5)), "weights must hold 3 numbers for 3 views, got 2"),
        (lambda: 3, "cost must be a name, a cost of mvcl.transport, a CostFn"),
        (lambda: jnp.ones((2, 2, 2)), r"got an array \(2, 2, 2\); of a tensor of costs: .*from_tensor"),
    ],
)
def test_raises_on_invalid_costs_and_those_that_do_not_suit_the_points(rng, make, message):
    with pytest.raises(ValueError, match=message):
        Geometry.from_points(points_of(rng, 3), make())


def test_raises_on_views_that_are_not_there_and_for_costs_without_points(rng):
    points = points_of(rng, 2)
    with pytest.raises(ValueError, match="view must be a view from 0 to 1, got 2"):
        jax.eval_shape(lambda z: tensors.solution(z, Barycenter()).conditional_means(2), points)
    with pytest.raises(ValueError, match=r"the geometry must be made by Geometry\.from_points"):
        jax.eval_shape(lambda c: tensors.solution(Geometry.from_tensor(c)).conditional_means(0), np.eye(2))
