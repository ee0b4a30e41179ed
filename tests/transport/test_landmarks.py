"""Costs through landmarks against the exact costs, and what is read off the plan against its tensor."""

import jax.numpy as jnp
import numpy as np
import pytest
from parametrize import some

from mvcl.transport import Barycenter, Geometry, MMSinkhorn, Problem, SumOverPairs
from tests.transport import tensors

SOLVER = MMSinkhorn(threshold=1e-9, inner_iterations=1)
CHAIN = [(0, 1), (1, 2)]


@pytest.mark.parametrize("edges", some([None, CHAIN], fast=[None]))
def test_dense_landmarks_have_the_exact_plan_and_value(x64, rng, edges):
    """A grid whose points are half of `sqrt(epsilon / scale)` apart; weights of the views, and zeros."""
    clouds = [jnp.asarray(rng.uniform(-1, 1, size=(n, 2))) for n in (4, 6, 5)]
    a_s, line = tensors.weights(rng, (4, 6, 5)), np.linspace(-1.4, 1.4, 15)
    grid = np.stack(np.meshgrid(line, line), axis=-1).reshape(-1, 2)
    chain = SumOverPairs(lambda x, y: jnp.sum((x - y) ** 2), np.eye(3, k=1) + np.eye(3, k=-1))
    cost, scale, epsilon, free = Barycenter((0.5, 0.2, 0.3)), 3.0, 0.5, 1
    if edges is not None:
        cost, scale, free = Barycenter(), 0.8, 2
    exact = Geometry.from_points(clouds, cost if edges is None else chain, scale=scale)
    geometry = Geometry.from_landmarks(clouds, grid, epsilon, cost, edges, scale=scale)
    weights, tau = [*a_s, *(None,) * free], (1, 1, 1, *(0,) * free)
    out = SOLVER.solve(Problem(geometry, weights, epsilon, tau))
    expected = SOLVER.solve(Problem(exact, a_s, epsilon))
    assert out.converged
    np.testing.assert_allclose(out.dual, expected.dual, atol=1e-2)
    np.testing.assert_allclose(out.tensor.sum(axis=tuple(range(3, 3 + free))), expected.tensor, atol=2e-3)
    expected_pair = tensors.marginal(np.asarray(out.tensor), 0, 2)
    np.testing.assert_allclose(out.pair_marginal(0, 2), expected_pair, atol=1e-9)
    for mean, other in zip(out.conditional_means(0)[:3], expected.conditional_means(0)):
        np.testing.assert_allclose(mean, other, atol=5e-2)


def test_another_cost_has_no_factors():
    with pytest.raises(ValueError, match=r"cost must be a Barycenter .*, got SumOverPairs"):
        Geometry.from_landmarks(np.ones((2, 3, 2)), np.ones((4, 2)), 0.1, SumOverPairs(abs))
    with pytest.raises(ValueError, match="edges must be 2 pairs"):
        Geometry.from_landmarks(np.ones((3, 3, 2)), np.ones((4, 2)), 0.1, edges=[(0, 1)])
