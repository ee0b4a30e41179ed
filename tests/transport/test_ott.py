"""The solver against ott's MMSinkhorn: weights with zeros, views of different sizes, cost functions, fields."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ott.experimental import mmsinkhorn
from ott.geometry import costs
from parametrize import some

from mvcl.transport import Geometry, MMSinkhorn, Problem
from tests.transport import tensors

FIELDS = [
    {},
    {"inner_iterations": 3, "norm_error": 1.5},
    {"inner_iterations": 4, "min_iterations": 21, "threshold": 0.1},
    {"inner_iterations": 5, "max_iterations": 12, "threshold": 0.0},
]


@pytest.mark.parametrize("fields", some(FIELDS, fast=FIELDS[1:2]))
def test_fields_defaults_and_the_call_are_otts(x64, rng, fields):
    """As many sweeps, the same errors after them, the same values by the same names; epsilon and cost by default."""
    x_s = [jnp.asarray(rng.normal(size=(n, 2))) for n in (5, 4, 3)]
    a_s = [None, jnp.asarray([0.1, 0.2, 0.3, 0.4]), None]
    out = jax.jit(MMSinkhorn(**fields))(x_s, a_s)
    with jax.numpy_rank_promotion("allow"):
        expected = jax.jit(mmsinkhorn.MMSinkhorn(**fields))(x_s, a_s)
        tensor, marginals = expected.tensor, expected.marginals
    made = np.asarray(expected.errors[:, 0] >= 0)
    if "max_iterations" not in fields:  # there ott goes on to a multiple of inner_iterations
        assert out.n_iters == expected.n_iters
        np.testing.assert_allclose(out.potentials[0], expected.potentials[0], rtol=1e-9)
        np.testing.assert_allclose(out.tensor, tensor, atol=1e-12)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9), out.marginals, marginals)
        for name in ("ent_reg_cost", "transport_mass", "epsilon"):
            np.testing.assert_allclose(getattr(out, name), getattr(expected, name), rtol=1e-9)
    made = made & np.isfinite(expected.errors[:, 0])  # ott has inf before min_iterations
    assert out.errors.shape == made.shape
    np.testing.assert_allclose(out.errors[made][:2], expected.errors[made, 0][:2], rtol=1e-7)
    for name in ("shape", "n_marginals", "inner_iterations", "threshold", "cost_fns"):
        assert np.all(getattr(out, name) == getattr(expected, name)) or name == "cost_fns"
    assert isinstance(out.cost_fns, costs.SqEuclidean)
    jax.tree.map(np.testing.assert_array_equal, out.x_s, tuple(x_s))


def test_geometry_problem_and_solver_are_pytrees_under_jit_and_vmap(x64, rng):
    """Each is an argument; a batch of problems has the results of each."""
    z = jnp.asarray(rng.normal(size=(2, 3, 4, 2)))
    geometry = jax.jit(jax.vmap(Geometry.from_points))(z)
    solve = jax.jit(jax.vmap(MMSinkhorn.solve, in_axes=(None, 0)))
    batch = solve(MMSinkhorn(threshold=jnp.asarray(1e-6)), Problem(geometry, None, jnp.asarray([0.5, 0.2])))
    for i, epsilon in enumerate((0.5, 0.2)):
        one = tensors.solution(z[i], epsilon=epsilon, threshold=1e-6, inner_iterations=10)
        assert batch.n_iters[i] == one.n_iters
        np.testing.assert_allclose(batch.dual[i], one.dual, rtol=1e-12)
    assert "Geometry(" in repr(batch.problem)
