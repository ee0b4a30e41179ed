"""The plan without the tensor, against the dense plan in numpy; weights with zeros, views of different sizes."""

import itertools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from parametrize import some

from mvcl.transport import Geometry, MMSinkhorn, Problem, true_tuple_mass
from tests.transport import tensors

EPSILON = 0.2
SIZES = (4, 5, 3)
VARIANCE, DEVIATION = "circular_variance", "circular_standard_deviation"
CASES = [
    (VARIANCE, (3, 5, 2, 4)),
    (DEVIATION, SIZES),
    ("a function", (7, 5)),
    (VARIANCE, SIZES),
    (VARIANCE, (7, 5)),
    (VARIANCE, (3, 2, 4, 2, 3)),
    (DEVIATION, (3, 2, 4, 2, 3)),
    ("a CostFn for each pair", (3, 5, 2, 4)),
]
PATHS = some(CASES, fast=[CASES[1], CASES[3]])


def problem(rng, case, threshold=10.0):
    """A solution, by default after the first sweep, its weights, the tensor of costs and its plan."""
    kind, sizes = case
    z, cost, tensor = tensors.points_and_tensor(rng, sizes, kind)
    a_s = tensors.weights(rng, sizes)
    options = {"epsilon": EPSILON, "threshold": threshold, "max_iterations": 2000, "spread": 4.0}
    out = tensors.solution(tensors.costs_of(z, cost=cost), a_s=a_s, **options)
    return out, a_s, tensor, tensors.plan_of(tensor, out.potentials, EPSILON)


def most_likely(plan, l, i):
    """The tuple of the largest entry of those with point i of view l."""
    slab = np.take(plan, i, axis=l)
    best = list(np.unravel_index(np.argmax(slab), slab.shape))
    return [*best[:l], i, *best[l:]]


def assert_most_likely(out, plan, a_s, views):
    """For points of positive weight."""
    for l in views:
        partners = out.partners(l)
        assert partners.shape == (plan.shape[l], plan.ndim)
        for i in np.flatnonzero(a_s[l] > 0):
            np.testing.assert_array_equal(partners[i], most_likely(plan, l, i))


@pytest.mark.parametrize("case", PATHS)
def test_marginals_entries_plan_and_most_likely_tuples(x64, rng, case):
    """Far from convergence: nothing depends on it."""
    out, a_s, tensor, plan = problem(rng, case)
    k, sizes = len(out.shape), case[1]
    assert out.shape == sizes
    assert out.n_marginals == k
    assert out.error > 1e-3
    assert np.sum(plan == 0) > 0
    for l in range(k):
        np.testing.assert_allclose(out.marginals[l], tensors.marginal(plan, l), atol=1e-13)
    np.testing.assert_allclose(out.marginal(k - 1), tensors.marginal(plan, k - 1), atol=1e-13)
    np.testing.assert_allclose(out.pair_marginal(k - 1, 0), tensors.marginal(plan, k - 1, 0), atol=1e-13)
    indices = np.stack([rng.integers(n, size=20) for n in sizes], axis=1)
    np.testing.assert_allclose(out.entries(indices), plan[tuple(indices.T)], atol=1e-13)
    np.testing.assert_allclose(out.geometry.entries(indices), tensor[tuple(indices.T)], atol=1e-13)
    np.testing.assert_allclose(out.tensor, plan, atol=1e-13)
    np.testing.assert_allclose(out.transport_mass, plan.sum(), rtol=1e-12)
    np.testing.assert_allclose(out.primal_cost, (plan * tensor).sum(), rtol=1e-12)
    np.testing.assert_allclose(out.error, tensors.error_of(plan, a_s), rtol=1e-9)
    linear = sum(np.sum(np.where(a > 0, f, 0) * a) for f, a in zip(out.potentials, a_s))
    np.testing.assert_allclose(out.dual, linear - EPSILON * plan.sum(), rtol=1e-12)
    assert_most_likely(out, plan, a_s, (0, k - 1))  # a view in each half


@pytest.mark.exhaustive
@pytest.mark.parametrize("cost", [VARIANCE, DEVIATION])
def test_streamed(x64, rng, cost):
    """More tuples than a block has, also those with one point of view 0; 523 rows are one block each."""
    out, a_s, tensor, plan = problem(rng, (cost, (3, 523, 509)))
    np.testing.assert_allclose(out.pair_marginal(1, 0), tensors.marginal(plan, 1, 0), atol=1e-13)
    np.testing.assert_allclose(out.marginal(1), tensors.marginal(plan, 1), atol=1e-13)
    assert_most_likely(out, plan, a_s, (0, 1))
    _, _, minimum = tensors.solve(tensor, a_s, EPSILON)
    assert minimum < out.primal_bound < minimum + 1


def test_a_tree_of_costs_has_the_plan_of_its_tensor(x64, rng):
    """Weights with zeros, of sum 1.7; the gradient is the plan's marginals on the edges."""
    edges, sizes, epsilon = ((0, 2), (1, 2), (2, 3)), (4, 3, 5, 2), 0.1
    matrices = [jnp.asarray(rng.uniform(size=(sizes[l], sizes[m]))) for l, m in edges]
    a_s = tensors.weights(rng, sizes, mass=1.7)
    solver = MMSinkhorn(threshold=1e-11, inner_iterations=1, max_iterations=5000)

    @partial(jax.value_and_grad, has_aux=True)
    def dual(matrices):
        out = solver.solve(Problem(Geometry.from_pairs(matrices, edges), a_s, epsilon))
        return out.dual, out

    (_, out), gradient = jax.jit(dual)(matrices)
    tensor = np.asarray(out.geometry.tensor())
    f, plan, minimum = tensors.solve(tensor, a_s, epsilon)
    assert out.converged
    np.testing.assert_allclose((out.dual, out.primal_bound), minimum, rtol=1e-9)
    np.testing.assert_allclose(out.error, tensors.error_of(plan, a_s), atol=1e-10)
    np.testing.assert_allclose(out.primal_cost, (plan * tensor).sum(), rtol=1e-9)
    tensors.assert_same_potentials(out.potentials, f, a_s, atol=1e-8)
    assert_most_likely(out, plan, a_s, range(4))
    for l, m in itertools.permutations(range(4), 2):
        np.testing.assert_allclose(out.pair_marginal(l, m), tensors.marginal(plan, l, m), atol=1e-10)
    for view, marginal in enumerate(out.marginals):
        np.testing.assert_allclose(marginal, tensors.marginal(plan, view), atol=1e-10)
    for slope, edge in zip(gradient, edges):
        np.testing.assert_allclose(slope, tensors.marginal(plan, *edge), atol=1e-9)


def accuracy(plan, a_s, truth):
    """Share of the points of the true tuples, those of weight 0 left out, whose most likely tuple is the true one."""
    return np.mean(
        [
            all(i == j for i, j, b in zip(most_likely(plan, l, row[l]), row, a_s) if b[j] > 0)
            for row in truth
            for l, a in enumerate(a_s)
            if a[row[l]] > 0
        ]
    )


MATCH = {"threshold": 1e-6, "max_iterations": 500, "spread": 4.0}


VIEWS = [(3, 0.5), (3, 0.0), (2, 0.0), (2, 0.7), (4, 0.4)]


@pytest.mark.parametrize("case", some(VIEWS, fast=[VIEWS[0]]))
def test_matching_accuracy_of_aligned_and_shuffled_views_and_with_weights_of_0(x64, rng, case):
    (k, noise), n, epsilon = case, 6, 0.02
    z = tensors.unit(rng, [n])[0] + noise * rng.normal(size=(k, n, 3))
    z /= np.linalg.norm(z, axis=-1, keepdims=True)
    order = np.stack([rng.permutation(n) for _ in range(k)])
    shuffled = np.stack([x[p] for x, p in zip(z, order)])
    truth = np.argsort(order, axis=1).T  # the place of instance i in every view
    diagonal = np.tile(np.arange(n)[:, None], (1, k))
    uniform = [np.full(n, 1 / n)] * k
    out = tensors.solution(z, epsilon=epsilon, **MATCH)
    plan = tensors.plan_of(tensors.circular_variance(z), out.potentials, epsilon)
    expected = accuracy(plan, uniform, diagonal)
    assert (expected == 1) if noise == 0 else (0 < expected < 1)
    np.testing.assert_allclose(out.matching_accuracy(), expected, rtol=1e-12)
    np.testing.assert_allclose(out.matching_accuracy(diagonal), expected, rtol=1e-12)
    true = tuple(diagonal.T)
    np.testing.assert_allclose(out.geometry.diagonal(), tensors.circular_variance(z)[true], atol=1e-13)
    np.testing.assert_allclose(true_tuple_mass(out), plan[true].sum() / plan.sum(), rtol=1e-12)
    some_of = true_tuple_mass(out, diagonal[::-1], np.arange(n) < 2)
    np.testing.assert_allclose(some_of, plan[true][-2:].sum() / plan.sum(), rtol=1e-12)
    out = tensors.solution(shuffled, epsilon=epsilon, **MATCH)
    np.testing.assert_allclose(out.matching_accuracy(truth), expected, rtol=1e-12)
    assert out.matching_accuracy() < expected
    a_s = tensors.weights(rng, (n,) * k)
    out = tensors.solution(z, a_s=a_s, epsilon=epsilon, **MATCH)
    plan = tensors.plan_of(tensors.circular_variance(z), out.potentials, epsilon)
    np.testing.assert_allclose(out.matching_accuracy(), accuracy(plan, a_s, diagonal), rtol=1e-12)


@pytest.mark.parametrize("case", PATHS)
def test_gap(x64, case):
    """primal_bound >= minimum >= dual whatever the error; both meet where it vanishes. Up to rounding."""
    for seed, threshold in itertools.product(range(2), (10.0, 1e-2, 1e-10)):
        rng = np.random.default_rng(seed)
        out, a_s, tensor, _ = problem(rng, case, threshold=threshold)
        _, _, minimum = tensors.solve(tensor, a_s, EPSILON)
        assert out.primal_bound >= minimum - 1e-12
        assert out.dual <= minimum + 1e-12
        assert out.gap >= -1e-12
        assert out.gap == out.primal_bound - out.dual
        if threshold < 1e-9:
            assert out.converged
            np.testing.assert_allclose([out.primal_bound, out.dual], minimum, rtol=1e-9, atol=1e-9)
        if threshold > 1:
            assert out.gap > 1e-4


def test_the_tensor_of_a_large_plan_is_refused_and_not_needed():
    chain = [(view, view + 1) for view in range(8)]
    out = jax.jit(MMSinkhorn().solve)(Problem(Geometry.from_pairs(jnp.ones((8, 9, 9)), chain), epsilon=0.1))
    np.testing.assert_allclose(out.entries([[0] * 9]), 9.0**-9, rtol=1e-4)
    with pytest.raises(ValueError, match=r"has 3.87e\+08 entries, above 67108864"):
        _ = out.tensor


@pytest.fixture(scope="module")
def solved():
    """Some solution, for arguments of its methods."""
    return jax.jit(tensors.solution)(tensors.unit(np.random.default_rng(0), SIZES))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda out: out.marginal(3), "l must be a view from 0 to 2, got 3"),
        (lambda out: out.pair_marginal(1, 1), "l and m must be two views, got 1 and 1"),
        (lambda out: out.pair_marginal(0, 5), "m must be a view from 0 to 2, got 5"),
        (lambda out: out.partners(-4), "l must .* got -4"),
        (lambda out: out.entries(np.zeros((2, 2), np.int32)), r"indices must .* \(t, 3\), got \(2, 2\)"),
        (lambda out: out.entries(np.zeros((2, 3))), r"indices must .* got \(2, 3\) of float"),
        (lambda out: out.entries([[0, 5, 0]]), "indices must be from 0 to 4 for view 1, got 5 to 5"),
        (lambda out: out.matching_accuracy(np.zeros((2, 2), np.int32)), r"truth must .* got \(2, 2\)"),
        (lambda out: out.matching_accuracy([[0, -1, 0]]), "truth must be from 0 to 4 for view 1, got -1"),
        (lambda out: out.matching_accuracy(), r"truth must be given .* got sizes \(4, 5, 3\)"),
        (lambda out: out.geometry.diagonal(), r"one size .* got sizes \(4, 5, 3\)"),
    ],
)
def test_raises_on_bad_arguments(solved, call, message):
    with pytest.raises(ValueError, match=message):
        call(solved)


def test_only_dual_has_a_gradient(x64, rng):
    z = tensors.unit(rng, SIZES)

    def f(z):
        out = tensors.solution(z, spread=4.0)
        first = jnp.zeros((1, 3), int)
        potentials = sum(jnp.sum(f**2) for f in out.potentials)
        rest = potentials + out.transport_mass + out.error
        return rest + jnp.sum(out.entries(first)) + jnp.sum(out.geometry.entries(first))

    for slope in jax.jit(jax.grad(f))(z):
        np.testing.assert_array_equal(slope, 0)
