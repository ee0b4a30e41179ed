"""The plan without the tensor, against the dense plan in numpy; weights with zeros, views of different sizes."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mvcl.transport import multimarginal_sinkhorn
from tests.transport import tensors

EPSILON = 0.2
PATHS = [
    ("circular_variance", "pairwise", (7, 5)),
    ("circular_variance", "pairwise", (4, 5, 3)),
    ("circular_variance", "pairwise", (3, 5, 2, 4)),
    ("circular_variance", "pairwise", (3, 2, 4, 2, 3)),
    ("circular_variance", "logsumexp", (3, 5, 2, 4)),
    ("circular_variance", "resultant", (4, 5, 3)),
    ("circular_variance", "dense", (3, 5, 2, 4)),
    ("circular_standard_deviation", "resultant", (3, 5, 2, 4)),
    ("circular_standard_deviation", "dense", (7, 5)),
    ("a CostFn for each pair", "pairwise", (3, 5, 2, 4)),
    ("a CostFn for each pair", "logsumexp", (4, 5, 3)),
]


def problem(rng, kind, path, sizes, **options):
    """An unconverged solution, its weights, the tensor of costs and its plan: nothing depends on convergence."""
    z, cost, tensor = tensors.points_and_tensor(rng, sizes, kind)
    a_s = tensors.weights(rng, sizes)
    given = {"a_s": a_s, "epsilon": EPSILON, "path": path, "threshold": 1e-9, "max_iterations": 1, **options}
    out = multimarginal_sinkhorn(z, cost, **given)
    return out, a_s, tensor, tensors.plan_of(tensor, out.potentials, EPSILON)


@pytest.mark.parametrize("block_size", [None, 1])
@pytest.mark.parametrize(("kind", "path", "sizes"), PATHS)
def test_marginals_entries_and_plan(x64, rng, kind, path, sizes, block_size):
    out, a_s, tensor, plan = problem(rng, kind, path, sizes, block_size=block_size)
    k = len(sizes)
    assert not out.converged
    assert np.sum(plan == 0) > 0
    for l in range(k):
        np.testing.assert_allclose(out.marginal(l), tensors.marginal(plan, l), atol=1e-13)
        np.testing.assert_allclose(out.marginals[l], tensors.marginal(plan, l), atol=1e-13)
    for l, m in itertools.permutations(range(k), 2):
        np.testing.assert_allclose(out.pair_marginal(l, m), tensors.marginal(plan, l, m), atol=1e-13)
    indices = np.stack([rng.integers(n, size=20) for n in sizes], axis=1)
    np.testing.assert_allclose(out.entries(indices), plan[tuple(indices.T)], atol=1e-13)
    np.testing.assert_allclose(out.costs.entries(indices), tensor[tuple(indices.T)], atol=1e-13)
    diagonal = [tensor[(i,) * k] for i in range(min(sizes))]
    if len(set(sizes)) == 1:
        np.testing.assert_allclose(out.costs.diagonal(), diagonal, atol=1e-13)
    np.testing.assert_allclose(out.plan(), plan, atol=1e-13)
    np.testing.assert_allclose(out.transport_mass, plan.sum(), rtol=1e-12)
    np.testing.assert_allclose(out.error, tensors.error_of(plan, a_s), rtol=1e-9)


@pytest.mark.parametrize(("kind", "path", "sizes"), PATHS)
def test_most_likely_tuples(x64, rng, kind, path, sizes):
    """Against the largest entry of each slice of the plan; one row at a time too."""
    for block_size in (None, 1):
        out, a_s, _, plan = problem(rng, kind, path, sizes, block_size=block_size)
        for l, a in enumerate(a_s):
            partners = out.partners(l)
            assert partners.shape == (sizes[l], len(sizes))
            for i in np.flatnonzero(a > 0):
                slab = np.take(plan, i, axis=l)
                best = list(np.unravel_index(np.argmax(slab), slab.shape))
                best.insert(l, i)
                np.testing.assert_array_equal(partners[i], best)


def accuracy(plan, a_s, truth):
    """Share of the points of weight > 0 whose most likely tuple is the row of the truth that has them."""
    right = []
    for l, a in enumerate(a_s):
        for i in np.flatnonzero(a > 0):
            slab = np.take(plan, i, axis=l)
            best = list(np.unravel_index(np.argmax(slab), slab.shape))
            best.insert(l, i)
            right.append(any(list(row) == best for row in truth))
    return np.mean(right)


@pytest.mark.parametrize(("k", "noise"), [(2, 0.0), (3, 0.5), (4, 0.3)])
def test_matching_accuracy_of_aligned_and_shuffled_views(x64, rng, k, noise):
    n = 6
    one = tensors.unit(rng, [n])[0]
    z = np.stack([one + noise * rng.normal(size=one.shape) for _ in range(k)])
    z /= np.linalg.norm(z, axis=-1, keepdims=True)
    order = np.stack([rng.permutation(n) for _ in range(k)])
    shuffled = np.stack([x[p] for x, p in zip(z, order)])
    truth = np.argsort(order, axis=1).T  # the place of instance i in every view
    diagonal = np.tile(np.arange(n)[:, None], (1, k))
    uniform = [np.full(n, 1 / n)] * k
    for points, rows in ((z, diagonal), (shuffled, truth)):
        out = multimarginal_sinkhorn(points, epsilon=0.01, threshold=1e-6, max_iterations=500)
        plan = tensors.plan_of(tensors.circular_variance(points), out.potentials, 0.01)
        expected = accuracy(plan, uniform, rows)
        assert (expected == 1) if noise == 0 else (0 < expected < 1)
        np.testing.assert_allclose(out.matching_accuracy(rows), expected, rtol=1e-12)
    out = multimarginal_sinkhorn(z, epsilon=0.01, threshold=1e-6, max_iterations=500)
    np.testing.assert_allclose(out.matching_accuracy(), out.matching_accuracy(diagonal), rtol=1e-12)


def test_matching_accuracy_leaves_out_points_of_weight_0(x64, rng):
    sizes = (6, 6, 6)
    z = np.stack([tensors.unit(rng, [6])[0]] * 3)
    z += 0.3 * rng.normal(size=z.shape)
    a_s = tensors.weights(rng, sizes)
    out = multimarginal_sinkhorn(z, a_s=a_s, epsilon=0.02, threshold=1e-6, max_iterations=500)
    plan = tensors.plan_of(tensors.circular_variance(z), out.potentials, 0.02)
    expected = accuracy(plan, a_s, [(i,) * 3 for i in range(6)])
    assert 0 < expected < 1
    np.testing.assert_allclose(out.matching_accuracy(), expected, rtol=1e-12)


def test_matching_accuracy_with_views_of_different_sizes(x64, rng):
    """The truth names t tuples; a point that is in none of them has no right tuple."""
    out, a_s, _, plan = problem(rng, "circular_variance", "auto", (4, 5, 3), max_iterations=100)
    best = np.stack(np.unravel_index(np.argsort(plan, axis=None)[::-1][:3], plan.shape), axis=1)
    truth = np.concatenate([best, [[0, 1, 2], [3, 4, 0]]])
    expected = accuracy(plan, a_s, truth)
    assert 0 < expected < 1
    np.testing.assert_allclose(out.matching_accuracy(truth), expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("kind", "sizes"),
    [
        ("circular_variance", (7, 5)),
        ("circular_variance", (4, 5, 3)),
        ("circular_variance", (3, 5, 2, 4)),
        ("circular_standard_deviation", (4, 5, 3)),
    ],
)
def test_trace_of_errors(x64, rng, kind, sizes):
    """Entry s-1 is the error after s sweeps of a plainly written iteration, -1 where the solver had stopped."""
    z, cost, tensor = tensors.points_and_tensor(rng, sizes, kind)
    a_s = tensors.weights(rng, sizes)
    out = multimarginal_sinkhorn(z, cost, a_s=a_s, epsilon=EPSILON, threshold=1e-6, max_iterations=40)
    assert out.converged
    count = int(out.n_iters)
    assert out.errors.shape == (40,)
    assert 1 < count < 40
    plainly = [
        tensors.error_of(tensors.plan_of(tensor, f, EPSILON), a_s)
        for f, _ in itertools.islice(tensors.sweeps(tensor, a_s, EPSILON), count)
    ]
    np.testing.assert_allclose(out.errors[: count - 1], plainly[:-1], rtol=1e-6)
    np.testing.assert_allclose(out.errors[count - 1], out.error, rtol=1e-12)
    np.testing.assert_array_equal(out.errors[count:], -1)
    assert np.all(out.errors[: count - 1] >= 1e-6)
    short = multimarginal_sinkhorn(z, cost, a_s=a_s, epsilon=EPSILON, threshold=0.0, max_iterations=3)
    expected = plainly[:3] if count > 3 else None
    if expected is not None:
        np.testing.assert_allclose(short.errors, expected, rtol=1e-6)


@pytest.mark.parametrize("max_iterations", [1, 2, 300])
@pytest.mark.parametrize(
    ("kind", "path", "sizes"),
    [
        ("circular_variance", "auto", (7, 5)),
        ("circular_variance", "auto", (3, 5, 2, 4)),
        ("circular_variance", "dense", (4, 5, 3)),
        ("circular_standard_deviation", "auto", (4, 5, 3)),
        ("a CostFn for each pair", "logsumexp", (4, 5, 3)),
    ],
)
def test_gap(x64, kind, path, sizes, max_iterations):
    """primal >= minimum >= dual, converged or not; the gap vanishes with the error."""
    for seed in range(3):
        rng = np.random.default_rng(seed)
        out, a_s, tensor, _ = problem(rng, kind, path, sizes, max_iterations=max_iterations, threshold=1e-10)
        _, _, minimum = tensors.solve(tensor, a_s, EPSILON)
        assert out.primal >= minimum - 1e-12
        assert out.dual <= minimum + 1e-12
        assert out.gap >= 0
        np.testing.assert_allclose(out.gap, out.primal - out.dual, rtol=1e-9, atol=1e-14)
        if max_iterations == 300:
            assert out.converged
            assert out.gap < 1e-8
            np.testing.assert_allclose(out.primal, minimum, rtol=1e-9, atol=1e-9)
            np.testing.assert_allclose(out.ent_reg_cost, out.dual + EPSILON, rtol=1e-12)


def test_dual_is_the_formula_in_the_docstring(x64, rng):
    out, a_s, _, plan = problem(rng, "circular_variance", "auto", (4, 5, 3))
    linear = sum(np.sum(np.where(a > 0, f, 0) * a) for f, a in zip(out.potentials, a_s))
    np.testing.assert_allclose(out.dual, linear - EPSILON * plan.sum(), rtol=1e-12)


def test_dense_plan_has_a_guard(rng):
    z = [np.ones((n, 2), np.float32) for n in (4, 5, 3)]
    out = multimarginal_sinkhorn(z)
    assert out.plan(max_entries=60).shape == (4, 5, 3)
    with pytest.raises(ValueError, match=r"60 .*max_entries=59"):
        out.plan(max_entries=59)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda out: out.marginal(3), "l must .* 3 .* got 3"),
        (lambda out: out.pair_marginal(1, 1), "l and m must .* got 1 and 1"),
        (lambda out: out.pair_marginal(0, 5), "must .* got .*5"),
        (lambda out: out.partners(-4), "l must .* got -4"),
        (lambda out: out.entries(np.zeros((2, 2), np.int32)), r"indices must .* \(t, 3\), got \(2, 2\)"),
        (lambda out: out.entries(np.zeros((2, 3))), "indices must .* got float"),
        (lambda out: out.matching_accuracy(np.zeros((2, 2), np.int32)), r"truth must .* got \(2, 2\)"),
        (lambda out: out.matching_accuracy(), "truth must .* sizes"),
    ],
)
def test_bad_arguments_are_refused(call, message):
    out = multimarginal_sinkhorn([np.ones((n, 2), np.float32) for n in (4, 5, 3)])
    with pytest.raises(ValueError, match=message):
        call(out)


QUANTITIES = {
    "marginal": lambda out: out.marginal(1),
    "pair_marginal": lambda out: out.pair_marginal(2, 0),
    "entries": lambda out: out.entries(jnp.asarray([[0, 1, 2], [3, 4, 0]])),
    "plan": lambda out: out.plan(),
    "partners": lambda out: out.partners(0),
    "matching_accuracy": lambda out: out.matching_accuracy(jnp.asarray([[0, 1, 2], [3, 4, 0]])),
    "errors": lambda out: out.errors,
    "primal": lambda out: out.primal,
    "gap": lambda out: out.gap,
    "n_iters": lambda out: out.n_iters,
}


@pytest.mark.parametrize("kind", ["circular_variance", "circular_standard_deviation"])
def test_jit_and_vmap_over_problems(x64, rng, kind):
    """Points, weights and epsilon of several problems; each stops by itself."""
    sizes = (4, 5, 3)
    problems = [
        (tensors.unit(rng, sizes), tensors.weights(rng, sizes), epsilon) for epsilon in (0.5, 0.1, 0.02)
    ]

    def f(z, a_s, epsilon):
        out = multimarginal_sinkhorn(z, kind, a_s=a_s, epsilon=epsilon, max_iterations=20)
        return {name: quantity(out) for name, quantity in QUANTITIES.items()}

    together = jax.jit(jax.vmap(f))(*jax.tree.map(lambda *x: np.stack(x), *problems))
    jitted = jax.jit(f)
    for i, given in enumerate(problems):
        for one in (f(*given), jitted(*given)) if i == 0 else (jitted(*given),):
            for name, value in one.items():
                np.testing.assert_allclose(together[name][i], value, atol=1e-12, err_msg=name)
    assert len(set(together["n_iters"].tolist())) > 1


def test_output_passes_through_jit_and_vmap(x64, rng):
    """It is a pytree: what jit returns has the methods, and jit takes it; vmap maps over a stack of them."""
    sizes = (4, 5, 3)
    problems = [(tensors.unit(rng, sizes), tensors.weights(rng, sizes)) for _ in range(2)]
    solve = jax.jit(lambda z, a_s: multimarginal_sinkhorn(z, a_s=a_s))
    out = solve(*problems[0])
    plain = multimarginal_sinkhorn(problems[0][0], a_s=problems[0][1])
    np.testing.assert_allclose(out.plan(), plain.plan(), atol=1e-14)
    again = jax.jit(lambda out: out)(out)
    assert jax.tree.structure(again) == jax.tree.structure(out)
    for name, quantity in QUANTITIES.items():
        np.testing.assert_allclose(jax.jit(quantity)(out), quantity(plain), atol=1e-12, err_msg=name)
    stacked = jax.vmap(lambda z, a_s: multimarginal_sinkhorn(z, a_s=a_s))(
        *jax.tree.map(lambda *x: np.stack(x), *problems)
    )
    pairs = jax.vmap(lambda out: out.pair_marginal(0, 1))(stacked)
    np.testing.assert_allclose(pairs[0], plain.pair_marginal(0, 1), atol=1e-12)


def test_only_dual_has_a_gradient(x64, rng):
    sizes = (4, 5, 3)
    z = tensors.unit(rng, sizes)

    def f(z, name):
        out = multimarginal_sinkhorn(z)
        return {
            "potentials": lambda: sum(jnp.sum(f**2) for f in out.potentials),
            "mass": lambda: out.transport_mass,
            "pair_marginal": lambda: jnp.sum(out.pair_marginal(0, 1) ** 2),
            "primal": lambda: out.primal,
            "entries": lambda: jnp.sum(out.entries(jnp.zeros((1, 3), int))),
            "dual": lambda: out.dual,
        }[name]()

    for name in ("potentials", "mass", "pair_marginal", "primal", "entries"):
        assert all(np.all(g == 0) for g in jax.grad(f)(z, name)), name
    assert all(np.any(g != 0) for g in jax.grad(f)(z, "dual"))
