"""Derivatives of the dual by points, costs, weights and epsilon: of first order against finite differences, of second
against finite differences of the gradient and a dense formula."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from parametrize import some

from mvcl.transport import Geometry, MMSinkhorn, Problem
from tests.transport import tensors, test_penalties

TIGHT = {"threshold": 1e-13, "max_iterations": 5000}
STEP = 1e-5


def moved(x, direction, step):
    return jax.tree.map(lambda a, d: a + step * d, x, direction)


def dot(x, y):
    return sum(jnp.sum(a * b) for a, b in zip(jax.tree.leaves(x), jax.tree.leaves(y)))


def close(found, expected):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6), found, expected)


def check(loss, x, rng, order=2):
    """`loss` at x in one random direction: forward and reverse, forward over reverse and reverse over reverse."""
    direction = jax.tree.map(lambda a: jnp.asarray(rng.normal(size=a.shape)), x)

    @jax.jit
    def first(x):
        value, gradient = jax.value_and_grad(loss)(x)
        return value, gradient, jax.jvp(loss, (x,), (direction,))[1]

    @jax.jit
    def second(x):
        over_reverse = jax.jvp(jax.grad(loss), (x,), (direction,))[1]
        return over_reverse, jax.grad(lambda x: dot(jax.grad(loss)(x), direction))(x)

    _, gradient, forward = first(x)
    sides = (first(moved(x, direction, step)) for step in (STEP, -STEP))
    (above, gradient_above, _), (below, gradient_below, _) = sides
    close((dot(gradient, direction), forward), ((above - below) / (2 * STEP),) * 2)
    if order == 1:
        return
    expected = jax.tree.map(lambda a, b: (a - b) / (2 * STEP), gradient_above, gradient_below)
    over_reverse, reverse_over_reverse = second(x)
    close(over_reverse, expected)
    close(reverse_over_reverse, expected)


CASES = {
    "two views": (2, {}),
    "products": (3, {"spread": 0.5}),
    "the costs decide": (3, {}),
    "elementwise": (3, {"spread": 1000.0}),
    "function of a sum": (3, {"cost": "circular_standard_deviation"}),
    "tensor": (3, {"cost": tensors.of_stack}),
    "four views": (4, {"spread": 0.25}),
}


@pytest.mark.parametrize("order", some([1, 2], fast=[1]))
@pytest.mark.parametrize("case", some(CASES, fast=["two views"]))
def test_points_weights_and_epsilon(x64, rng, case, order):
    """Views of 2 and 3 points, one of weight 0; the other weights are a softmax, so that their sum is kept."""
    k, options = CASES[case]
    sizes = [2 + view % 2 for view in range(k)]
    z = [jnp.asarray(rng.normal(size=(n, 2))) for n in sizes]
    logits = [jnp.asarray(rng.normal(size=n)) for n in sizes]

    def loss(x):
        z, logits, epsilon = x
        points = [v / jnp.linalg.norm(v, axis=1, keepdims=True) for v in z]
        a_s = [jax.nn.softmax(f if len(f) == 2 else f.at[1].set(-jnp.inf)) for f in logits]
        return tensors.solution(points, a_s=a_s, epsilon=epsilon, **options, **TIGHT).dual

    check(loss, (z, logits, jnp.asarray(0.3)), rng, order)


@pytest.mark.exhaustive
def test_without_danskin_the_potentials_have_their_derivatives(x64, rng):
    """Of a function of the plan."""

    def of_plan(at):
        out = MMSinkhorn(threshold=1e-12, use_danskin=False)(at[0], epsilon=at[1])
        return out.tensor[0, 1, 2] + out.potentials[2][0] - out.potentials[2][1] + out.dual

    points = [jnp.asarray(rng.normal(size=(n, 2))) for n in (3, 2, 3)]
    check(of_plan, (points, jnp.asarray(2.0)), rng, order=1)


@pytest.mark.parametrize("order", some([1, 2], fast=[1]))
@pytest.mark.parametrize("case", some(test_penalties.CASES, fast=test_penalties.CASES[4:5]))
def test_penalised_marginals(x64, rng, case, order):
    """By the costs, weights of any sum, epsilon and tau."""
    kind, tau, unmatched = case
    costs, _, a_s = test_penalties.draw(rng, kind)
    soft = [l for l, t in enumerate(tau or ()) if 0 < t < 1]

    def loss(x):
        costs, changes, epsilon, taus = x
        weights = [a * jnp.exp(changes[soft.index(l)]) if l in soft else a for l, a in enumerate(a_s)]
        given = tau and [taus[soft.index(l)] if l in soft else t for l, t in enumerate(tau)]
        geometry = test_penalties.made(kind, costs)
        return test_penalties.TIGHT.solve(Problem(geometry, weights, epsilon, given, unmatched)).dual

    changes, taus = [jnp.zeros_like(a_s[l]) for l in soft], [jnp.asarray(tau[l]) for l in soft]
    check(loss, (costs, changes, jnp.asarray(test_penalties.EPSILON), taus), rng, order)


@pytest.mark.parametrize("spread", some([1.0, 1000.0, None], fast=[None]))
def test_hessian_of_potentials_that_do_not_fit_is_that_of_their_plan(x64, rng, spread):
    """After one sweep: `D_CC - D_Cf D_ff^+ D_fC` of the dense dual objective D at the potentials of the output."""
    k, n, epsilon = 3, 2, 0.2
    matrices = jnp.asarray(rng.uniform(size=(k, n, n)))

    def solve(matrices):
        tensor = tensors.of_pairs(matrices, (n,) * k)
        costs = Geometry.from_tensor(tensor) if spread is None else Geometry.from_pairs(matrices)
        return tensors.solution(costs, epsilon=epsilon, max_iterations=1, threshold=0.0, spread=spread)

    out = solve(matrices)
    assert out.error > 1e-3
    direction = jnp.asarray(rng.normal(size=matrices.shape))
    product = jax.jit(lambda m, d: jax.jvp(jax.grad(lambda m: solve(m).dual), (m,), (d,))[1])

    def objective(f, matrices):
        total = sum(v.reshape([-1 if a == view else 1 for a in range(k)]) for view, v in enumerate(f))
        with jax.numpy_rank_promotion("allow"):
            costs = tensors.of_pairs(matrices, (n,) * k)
            return jnp.sum(f) / n - epsilon * jnp.sum(jnp.exp((total - costs) / epsilon))

    blocks = jax.jit(jax.hessian(objective, argnums=(0, 1)))(jnp.stack(out.potentials), matrices)
    of_f = blocks[0][0].reshape(k * n, k * n)
    mixed = blocks[1][0].reshape(-1, k * n)
    expected = blocks[1][1].reshape(k * n * n, -1) - mixed @ np.linalg.pinv(of_f, rcond=1e-10) @ mixed.T
    found = product(matrices, direction).reshape(-1)
    np.testing.assert_allclose(found, expected @ direction.reshape(-1), atol=1e-10)


@pytest.mark.exhaustive
def test_vmap_over_problems_that_take_different_ways(x64, rng):
    """Each stops by itself. With the last epsilon matrix products are not right; they are taken and left out."""
    z = jnp.asarray(rng.normal(size=(3, 3, 2, 2)))
    epsilon = jnp.asarray([0.5, 0.1, 0.0004])
    direction = jnp.asarray(rng.normal(size=z.shape[1:]))

    def solve(z, epsilon):
        points = z / jnp.linalg.norm(z, axis=2, keepdims=True)
        return tensors.solution(points, epsilon=epsilon, threshold=1e-11, max_iterations=20000)

    def second(z, epsilon):
        loss, out = lambda z: solve(z, epsilon).dual, solve(z, epsilon)
        hessian = jax.hessian(loss)(z)
        return hessian, jax.grad(lambda z: dot(jax.grad(loss)(z), direction))(z), (out.dual, out.n_iters)

    one, many = jax.jit(second), jax.jit(jax.vmap(second))(z, epsilon)
    for i in range(3):
        hessian, reverse_over_reverse, (value, n_iters) = one(z[i], epsilon[i])
        assert many[2][1][i] == n_iters
        np.testing.assert_allclose(many[2][0][i], value, rtol=1e-9)
        np.testing.assert_allclose(many[0][i], hessian, atol=1e-9)
        np.testing.assert_allclose(many[1][i], reverse_over_reverse, atol=1e-9)
        np.testing.assert_allclose(jnp.tensordot(hessian, direction, 3), reverse_over_reverse, atol=1e-9)


def test_first_order_solves_no_linear_system():
    z = np.ones((3, 4, 2), np.float32)
    loss = lambda z: tensors.solution(z).dual  # noqa: E731
    forward, over_reverse = (lambda z, f=f: jax.jvp(f, (z,), (z,)) for f in (loss, jax.grad(loss)))
    solves = ["linear_solve" in str(jax.make_jaxpr(f)(z)) for f in (jax.grad(loss), forward, over_reverse)]
    assert solves == [False, False, True]
