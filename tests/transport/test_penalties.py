"""Penalised marginals: ott's unbalanced solver, a linear program, the conditions of the minimum."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ott.geometry import geometry as ott_geometry
from ott.problems.linear import linear_problem
from ott.solvers.linear import sinkhorn
from parametrize import some
from scipy.optimize import linprog

from mvcl.transport import Geometry, MMSinkhorn, Problem, Status
from tests.transport import tensors

TIGHT = MMSinkhorn(threshold=1e-12, inner_iterations=1, max_iterations=20000)
SIZES, EPSILON = (4, 3, 5), 0.3
INF = np.inf


def draw(rng, kind="pairs"):
    """Costs of three views, what `Geometry` is made of them, their tensor, and weights of different sums."""
    edges = tensors.PAIRS[3] if kind != "tree" else [(0, 2), (1, 2)]
    matrices = [jnp.asarray(rng.uniform(size=(SIZES[l], SIZES[m]))) for l, m in edges]
    tensor = Geometry.from_pairs(matrices, edges if kind == "tree" else None).tensor()
    a_s = [x * rng.uniform(0.5, 2) for x in tensors.weights(rng, SIZES)]
    return (tensor if kind == "tensor" else matrices), np.asarray(tensor), a_s


def made(kind, costs):
    if kind == "tensor":
        return Geometry.from_tensor(costs)
    return Geometry.from_pairs(costs, [(0, 2), (1, 2)] if kind == "tree" else None)


@pytest.mark.parametrize("tau", some([(0.9, 0.8), (1.0, 0.7)], fast=[(0.9, 0.8)]))
def test_two_views_have_otts_unbalanced_plan(x64, rng, tau):
    cost, (a, b) = rng.uniform(size=(5, 7)), (rng.uniform(size=n) for n in (5, 7))
    problem = linear_problem.LinearProblem(ott_geometry.Geometry(cost, epsilon=0.1), a, b, *tau)
    with jax.numpy_rank_promotion("allow"):
        expected = sinkhorn.Sinkhorn(threshold=1e-12, max_iterations=10000)(problem)
    out = TIGHT.solve(Problem(Geometry.from_pairs([cost]), (a, b), 0.1, tau))
    assert out.converged
    np.testing.assert_allclose(out.tensor, expected.matrix, atol=1e-11)
    np.testing.assert_allclose(out.transport_mass, expected.matrix.sum(), rtol=1e-11)


CASES = [
    ("pairs", (0.9, 0.5, 0.8), None),
    ("tree", (0.9, 0.5, 0.8), None),
    ("tensor", (0.9, 1.0, 0.0), None),
    ("tree", (1.0, 0.7, 0.0), None),
    ("tree", (0.9, 0.5, 0.8), (0.05, 0.3, INF)),
    ("pairs", (1.0, 0.7, 1.0), (0.3, 0.4, INF)),
    ("pairs", None, (0.2, 0.3, 0.4)),
]


@pytest.mark.parametrize("case", some(CASES, fast=[CASES[4], CASES[5]]))
def test_the_plan_meets_the_conditions_of_the_minimum(x64, rng, case):
    """The problem is convex: `C + ε log P` is a sum of potentials, and each of these is a slope of its view's term.

    That is `f = -ρ log((P_l + q) / a)` with `f <= λ`, and f = λ where q is positive.
    """
    kind, tau, unmatched = case
    costs, tensor, a_s = draw(rng, kind)
    out = TIGHT.solve(Problem(made(kind, costs), a_s, EPSILON, tau, unmatched))
    assert out.status == Status.CONVERGED
    plan, objective = tensors.plan_of(tensor, out.potentials, EPSILON), 0.0
    for l, (t, price) in enumerate(zip(tau or (1,) * 3, unmatched or (INF,) * 3)):
        there = a_s[l] > 0
        f, a, marginal = out.potentials[l][there], a_s[l][there], tensors.marginal(plan, l)[there]
        if t == 0:
            np.testing.assert_array_equal(f, 0)
            continue
        rho = EPSILON * t / (1 - t) if t < 1 else INF
        whole = a * np.exp(-f / rho)
        rest = np.where(f >= price, whole - marginal, 0)
        assert f.max() <= price
        assert rest.min() >= -1e-10
        np.testing.assert_allclose(marginal + rest, whole, atol=1e-10)
        objective += np.sum(rest) * (price if price < INF else 0)
        objective += rho * np.sum(whole * (np.log(whole / a) - 1) + a) if t < 1 else 0
    np.testing.assert_allclose(out.dual, tensors.objective(tensor, plan, EPSILON) + objective, rtol=1e-9)
    np.testing.assert_allclose(out.transport_mass, plan.sum(), rtol=1e-9)
    np.testing.assert_allclose(out.primal_cost, (plan * tensor).sum(), rtol=1e-9)


def test_partial_transport_is_the_linear_program_for_a_small_epsilon(x64, rng):
    """`min <P, C> + sum_l λ_l <1, a_l - P_l>` over P >= 0 whose marginals are at most the weights."""
    _, tensor, a_s = draw(rng)
    prices = np.array([0.3, 0.2, 0.4])
    rows = [(np.indices(SIZES)[l].reshape(-1) == i) for l, n in enumerate(SIZES) for i in range(n)]
    program = linprog((tensor - prices.sum()).reshape(-1), np.stack(rows), np.concatenate(a_s))
    expected = program.fun + sum(price * a.sum() for price, a in zip(prices, a_s))
    epsilon = 2e-4
    solver = MMSinkhorn(threshold=1e-6, max_iterations=50000)
    out = solver.solve(Problem(Geometry.from_tensor(tensor), a_s, epsilon, unmatched=prices))
    assert out.converged
    assert 0.05 < program.x.sum() < 0.95 * min(a.sum() for a in a_s)
    unmatched = [price * (a - m).sum() for price, a, m in zip(prices, a_s, out.marginals)]
    np.testing.assert_allclose(out.primal_cost + sum(unmatched), expected, atol=2e-3)
    np.testing.assert_allclose(out.transport_mass, program.x.sum(), atol=1e-2)
    with pytest.raises(ValueError, match="must be the weights, got tau or unmatched"):
        _ = out.gap


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tau": (0.5, 0.5)}, "tau must hold a number for each of 3 views, got 2"),
        ({"tau": (0.5, 1.5, 1)}, r"tau\[1\] must be from 0 to 1, got 1.5"),
        ({"unmatched": (1, 1, -1)}, r"unmatched\[2\] must be from 0 to inf, got -1"),
        ({"a_s": [np.full(4, 0.25), np.full(3, 1.0), np.ones(5)], "tau": (1, 1, 0.5)}, "the same sum"),
    ],
)
def test_raises_on_bad_arguments(rng, options, message):
    matrices = [rng.uniform(size=(SIZES[l], SIZES[m])) for l, m in tensors.PAIRS[3]]
    with pytest.raises(ValueError, match=message):
        MMSinkhorn().solve(Problem(Geometry.from_pairs(matrices), epsilon=0.1, **options))
