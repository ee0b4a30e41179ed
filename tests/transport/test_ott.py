"""The solver against ott's MMSinkhorn: weights with zeros, views of different sizes, ott's cost functions."""

import jax
import numpy as np
import pytest
from ott.experimental import mmsinkhorn
from parametrize import some

from tests.transport import tensors

SHAPES = [(40, 33), (11, 40, 9), (3, 12, 25, 5), (3, 13, 4, 5, 6), (5, 7, 4), (16, 22, 14), (40, 3, 4, 9)]
KINDS = ["circular_variance", "circular_standard_deviation", "a CostFn for each pair"]
OTT = mmsinkhorn.MMSinkhorn(threshold=1e-9, max_iterations=20000)


@jax.jit
def ott_solution(cost, a_s, epsilon):
    """Potentials and value of ott's solver for a given tensor."""
    out = mmsinkhorn.run((cost, a_s, epsilon), OTT, OTT.init_state(cost.shape))
    return out.potentials, out.ent_reg_cost


CASES = [(sizes, kind) for sizes in SHAPES for kind in KINDS]


@pytest.mark.parametrize("case", some(CASES, fast=[((5, 7, 4), "circular_variance")]))
def test_five_random_problems_have_otts_solution(x64, case):
    """The first three have 3 to n_l points of positive weight in a view."""
    sizes, kind = case
    for draw, epsilon in enumerate([0.05, 0.1, 0.3, 0.2, 1.0]):
        rng = np.random.default_rng([*sizes, draw])
        z, cost, tensor = tensors.points_and_tensor(rng, sizes, kind)
        present = [rng.integers(3, n, endpoint=True) for n in sizes] if draw < 3 else sizes
        a_s = tensors.weights(rng, sizes, present=present)
        out = tensors.solution(
            tensors.costs_of(z, cost=cost),
            a_s=a_s,
            epsilon=epsilon,
            threshold=1e-10,
            max_iterations=5000,
            spread=4.0,
        )
        with jax.numpy_rank_promotion("allow"):
            potentials, value = ott_solution(tensor, tuple(a_s), epsilon)
        assert out.converged
        tensors.assert_same_potentials(out.potentials, potentials, a_s, atol=1e-7)
        np.testing.assert_allclose(out.ent_reg_cost, value, rtol=1e-7, atol=1e-7)
