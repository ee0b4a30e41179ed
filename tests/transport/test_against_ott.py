"""Weighted marginals of different sizes: every path against ott's MMSinkhorn and a plain dense solver."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P
from ott.experimental import mmsinkhorn

from mvcl.transport import Epsilon, Status, multimarginal_sinkhorn, tuple_costs
from tests.transport import tensors

TIGHT = {"threshold": 1e-10, "max_iterations": 5000}
# A bound for all costs here, from which the way of summing is known and only that is compiled.
TIGHT_PAIRS = {**TIGHT, "pair_spread": 4.0}
SIZES = {2: (40, 33), 3: (11, 40, 9), 4: (3, 12, 25, 5), 5: (3, 13, 4, 5, 6)}
SHAPES = [*SIZES.values(), (3, 24), (17, 3, 6)]
SLOW_SHAPES = [(28, 40), (13, 3), (31, 7, 12), (16, 22, 14), (8, 10, 6, 7), (40, 3, 4, 9), (7, 3, 5, 3, 9)]
OTT = mmsinkhorn.MMSinkhorn(threshold=1e-9, max_iterations=20000)


def solve(z, cost="circular_variance", path="auto", **options):
    return multimarginal_sinkhorn(tensors.costs_of(z, cost=cost, path=path), **options)


@jax.jit
def ott_solution(cost, a_s, epsilon):
    """ott's solver of a given tensor; compiled once for each shape."""
    out = mmsinkhorn.run((cost, a_s, epsilon), OTT, OTT.init_state(cost.shape))
    return (
        out.potentials,
        out.ent_reg_cost,
        mmsinkhorn.tensor_marginals(mmsinkhorn.coupling_tensor(out.potentials, cost, epsilon)),
    )


def assert_same_potentials(got, expected, a_s, atol=1e-5):
    """Up to constants whose sum over the views is 0; -inf where a point is not there."""
    constants = []
    for f, g, a in zip(got, expected, a_s):
        np.testing.assert_array_equal(f == -np.inf, a == 0)
        difference = np.asarray(f)[a > 0] - np.asarray(g)[a > 0]
        constants.append(np.mean(difference))
        np.testing.assert_allclose(difference, constants[-1], atol=atol)
    np.testing.assert_allclose(sum(constants), 0, atol=atol)


@pytest.mark.parametrize("kind", ["circular_variance", "circular_standard_deviation"])
@pytest.mark.parametrize(
    "sizes", SHAPES + [pytest.param(sizes, marks=pytest.mark.slow) for sizes in SLOW_SHAPES], ids=str
)
def test_random_problems(x64, sizes, kind):
    _compare_with_ott(sizes, kind)


@pytest.mark.parametrize(
    "k",
    [pytest.param(2, marks=pytest.mark.slow), 3, *(pytest.param(k, marks=pytest.mark.slow) for k in (4, 5))],
)
def test_20_random_problems_with_cost_functions(x64, k):
    _compare_with_ott(SIZES[k], "a CostFn for each pair")


def _compare_with_ott(sizes, kind):
    """Five problems of one shape, compiled once; the first three have 3 to n_l points of positive weight in a view."""
    k = len(sizes)
    _, cost, _ = tensors.points_and_tensor(np.random.default_rng(0), sizes, kind)
    for draw, epsilon in enumerate([0.05, 0.1, 0.3, 0.2, 1.0]):
        rng = np.random.default_rng([*sizes, draw])
        z, _, tensor = tensors.points_and_tensor(rng, sizes, kind)
        present = [rng.integers(3, n, endpoint=True) for n in sizes] if draw < 3 else sizes
        a_s = tensors.weights(rng, sizes, present=present)
        out = solve(z, cost, a_s=a_s, epsilon=epsilon, **TIGHT_PAIRS)
        with jax.numpy_rank_promotion("allow"):
            potentials, value, marginals = ott_solution(tensor, tuple(a_s), epsilon)
        assert out.converged
        assert out.shape == sizes
        assert out.n_marginals == k
        assert_same_potentials(out.potentials, potentials, a_s, atol=1e-7)
        np.testing.assert_allclose(out.ent_reg_cost, value, rtol=1e-7, atol=1e-7)
        plan = tensors.plan_of(tensor, out.potentials, epsilon)
        for l, (theirs, a) in enumerate(zip(marginals, a_s)):
            np.testing.assert_allclose(tensors.marginal(plan, l), theirs, atol=1e-7)
            np.testing.assert_allclose(tensors.marginal(plan, l), a, atol=1e-7)
        np.testing.assert_allclose(tensors.error_of(plan, a_s), out.error, atol=1e-12)


@pytest.mark.parametrize(
    ("cost", "sizes"), [("circular_standard_deviation", SIZES[3]), ("circular_variance", (9, 7))]
)
def test_points_of_weight_0_are_not_there(x64, rng, cost, sizes):
    """The solution is the same wherever they are."""
    z, a_s = tensors.unit(rng, sizes), tensors.weights(rng, sizes)
    far = [np.where(a[:, None] > 0, x, 1e3) for x, a in zip(z, a_s)]
    f, _, minimum = tensors.solve(tensors.NAMED[cost](z), a_s, 0.2)
    out = solve(far, cost, a_s=a_s, **TIGHT_PAIRS)
    assert out.converged
    np.testing.assert_allclose(out.dual, minimum, rtol=1e-9)
    assert_same_potentials(out.potentials, f, a_s, atol=1e-8)


# The bound on the spread, here of 20, 300 and 5000 times epsilon, decides on the way of summing for the pairwise path.
PATHS = [
    ("circular_variance", "pairwise", (5, 7, 4), 1, 4.0),
    ("circular_variance", "pairwise", (5, 7, 4), 1, 60.0),
    ("circular_variance", "pairwise", (5, 3, 2, 7), 1, 4.0),
    ("circular_variance", "logsumexp", (5, 7, 4), 1, None),
    ("circular_variance", "dense", (5, 7, 4), None, None),
    ("circular_standard_deviation", "resultant", (5, 3, 2, 7), 1, None),
]
SLOW_PATHS = [
    ("circular_variance", "pairwise", (5, 3, 2, 7), 1, 60.0),
    ("circular_variance", "pairwise", (5, 3, 2, 7), 1, 1000.0),
    ("circular_variance", "pairwise", (5, 3, 2, 7), None, None),
    ("circular_variance", "logsumexp", (9, 7), 1, None),
    ("circular_variance", "logsumexp", (5, 3, 4, 7), None, None),
    ("circular_variance", "dense", (3, 5, 4, 2), None, None),
    ("circular_standard_deviation", "resultant", (5, 7, 4), None, None),
    ("circular_standard_deviation", "dense", (5, 7, 4), None, None),
    ("circular_standard_deviation", "dense", (5, 7, 4), 1, None),
    ("one CostFn", "pairwise", (2, 3, 2, 4, 3, 5), None, 4.0),
    ("one CostFn", "pairwise", (2, 3, 2, 4, 3, 5), 1, 40.0),
    ("one CostFn", "logsumexp", (5, 7, 4), None, None),
    ("one CostFn", "dense", (5, 7), None, None),
]


@pytest.mark.parametrize(
    ("kind", "path", "sizes", "block_size", "pair_spread"),
    PATHS + [pytest.param(*case, marks=pytest.mark.slow) for case in SLOW_PATHS],
)
def test_paths(x64, rng, kind, path, sizes, block_size, pair_spread):
    """Each path has the solution; also when it takes one row at a time."""
    z, cost, tensor = tensors.points_and_tensor(rng, sizes, kind)
    a_s = tensors.weights(rng, sizes)
    f, plan, minimum = tensors.solve(tensor, a_s, 0.2)
    out = solve(z, cost, path, a_s=a_s, epsilon=0.2, block_size=block_size, pair_spread=pair_spread, **TIGHT)
    assert out.converged
    assert_same_potentials(out.potentials, f, a_s, atol=1e-8)
    np.testing.assert_allclose(out.dual, minimum, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(tensors.plan_of(tensor, out.potentials, 0.2), plan, atol=1e-9)


@pytest.mark.parametrize(("given", "sizes"), [("pair_costs", (4, 6)), ("cost_tensor", (4, 6, 3))])
def test_given_costs(x64, rng, given, sizes):
    """Matrices and a tensor of different sizes, entries of any sign, twice the cost."""
    matrices = [rng.normal(size=(sizes[l], sizes[m])) for l, m in tensors.PAIRS[len(sizes)]]
    tensor = tensors.of_pairs(matrices, sizes)
    a_s = tensors.weights(rng, sizes)
    f, _, minimum = tensors.solve(2 * tensor, a_s, 0.5)
    costs = {"pair_costs": matrices, "cost_tensor": tensor}[given]
    out = multimarginal_sinkhorn(**{given: costs}, a_s=a_s, cost_scale=2.0, epsilon=0.5, **TIGHT)
    assert_same_potentials(out.potentials, f, a_s, atol=1e-8)
    np.testing.assert_allclose(out.dual, minimum, rtol=1e-9)


def test_weights_of_another_total(x64, rng):
    """Total mass 2.5 in every view."""
    z = tensors.unit(rng, SIZES[3])
    a_s = tensors.weights(rng, SIZES[3], mass=2.5)
    f, _, minimum = tensors.solve(tensors.circular_variance(z), a_s, 0.2)
    out = solve(z, "circular_variance", a_s=a_s, epsilon=0.2, **TIGHT_PAIRS)
    assert_same_potentials(out.potentials, f, a_s, atol=1e-8)
    np.testing.assert_allclose(out.dual, minimum, rtol=1e-9)
    np.testing.assert_allclose(out.transport_mass, 2.5, rtol=1e-9)


def test_none_is_uniform(x64, rng):
    """As in ott; weights as lists and of whole numbers too. The default of all views is the same to the last bit."""
    z, options = np.stack(tensors.unit(rng, (5, 5))), {"threshold": 1e-6}
    plain = multimarginal_sinkhorn(z, **options)
    for a_s in ([None, np.full(5, 0.2)], [[0.2] * 5, None], np.full((2, 5), 0.2)):
        out = multimarginal_sinkhorn(list(z), a_s=a_s, **options)
        assert out.n_iters == plain.n_iters
        for l in range(2):
            np.testing.assert_array_equal(out.a_s[l], np.full(5, 0.2))
            np.testing.assert_array_equal(out.potentials[l], plain.potentials[l])
    out = multimarginal_sinkhorn(z, a_s=[[0, 0, 0, 1, 0], None], **options)
    np.testing.assert_array_equal(out.potentials[0] > -np.inf, [False, False, False, True, False])
    np.testing.assert_allclose(out.pair_marginal(0, 1)[3], 0.2, atol=1e-6)


@pytest.mark.parametrize(
    ("sizes", "least"),
    [
        ((5, 9, 4), 200.0),  # the costs of the points that are added to make 8 and 16 must not be far below
        pytest.param((9, 7), 0.0, marks=pytest.mark.slow),
        pytest.param((5, 9, 4), 0.0, marks=pytest.mark.slow),
        pytest.param((11, 3, 13, 2), 0.0, marks=pytest.mark.slow),
    ],
)
def test_eight_devices_on_pair_costs(x64, rng, sizes, least):
    """Sizes that 8 does not divide and below 8, zeros among the weights; the gradient is the plan's pair marginals."""
    index = tensors.PAIRS[len(sizes)]
    matrices = [rng.uniform(size=(sizes[l], sizes[m])) for l, m in index]
    a_s = tensors.weights(rng, sizes)
    f, plan, minimum = tensors.solve(tensors.of_pairs(matrices, sizes), a_s, 0.2)
    shifted = [matrix + least for matrix in matrices]
    value, out, gradient = _on_eight_devices({"pair_costs": shifted}, a_s, pair_spread=1.0)
    np.testing.assert_allclose(value, minimum + least * len(index), rtol=1e-9)
    f[0] = f[0] + least * len(index)
    assert_same_potentials(out.potentials, f, a_s, atol=1e-8)
    for got, (l, m) in zip(gradient["pair_costs"], index):
        np.testing.assert_allclose(got, tensors.marginal(plan, l, m), atol=1e-9)


@pytest.mark.parametrize(
    ("kind", "path", "sizes"),
    [
        pytest.param("circular_variance", "logsumexp", (5, 9, 17), marks=pytest.mark.slow),
        pytest.param("circular_standard_deviation", "resultant", (11, 3, 9, 2), marks=pytest.mark.slow),
        pytest.param("circular_standard_deviation", "dense", (5, 3, 9), marks=pytest.mark.slow),
    ],
)
def test_eight_devices_on_points(x64, rng, kind, path, sizes):
    z, cost, tensor = tensors.points_and_tensor(rng, sizes, kind)
    a_s = tensors.weights(rng, sizes)
    f, _, minimum = tensors.solve(tensor, a_s, 0.2)
    value, out, gradient = _on_eight_devices({"z": z}, a_s, cost=cost, path=path)
    np.testing.assert_allclose(value, minimum, rtol=1e-9)
    assert_same_potentials(out.potentials, f, a_s, atol=1e-8)
    alone = jax.grad(lambda z: multimarginal_sinkhorn(z, cost, a_s=a_s, path=path, **TIGHT).dual)(z)
    for got, expected in zip(gradient["z"], alone):
        np.testing.assert_allclose(got, expected, atol=1e-9)


def _on_eight_devices(costs_or_points, a_s, **options):
    mesh = jax.make_mesh((8,), ("data",), (AxisType.Auto,))

    def f(given, a_s):
        out = multimarginal_sinkhorn(**given, a_s=a_s, axis_name="data", epsilon=0.2, **TIGHT, **options)
        return out.dual, out

    shared = jax.shard_map(f, mesh=mesh, in_specs=P(), out_specs=P())
    (value, out), gradient = jax.jit(jax.value_and_grad(shared, has_aux=True))(costs_or_points, a_s)
    return value, out, gradient


@pytest.mark.parametrize(
    "sizes",
    [
        pytest.param((13, 6), marks=pytest.mark.slow),
        (5, 7, 4),
        pytest.param((3, 4, 5, 2), marks=pytest.mark.slow),
    ],
)
def test_iterates_are_those_of_the_plain_iteration(x64, rng, sizes):
    """Status, error and potentials after three sweeps that do not suffice, with weights."""
    z, a_s, epsilon = tensors.unit(rng, sizes), tensors.weights(rng, sizes), 0.01
    tensor = tensors.circular_variance(z)
    *_, (f, _) = itertools.islice(tensors.sweeps(tensor, a_s, epsilon), 3)
    out = solve(z, a_s=a_s, epsilon=epsilon, threshold=1e-9, max_iterations=3, pair_spread=1.0)
    assert out.status == Status.ITERATION_LIMIT
    assert not out.converged
    assert out.n_iters == 3
    error = tensors.error_of(tensors.plan_of(tensor, f, epsilon), a_s)
    np.testing.assert_allclose(out.error, error, rtol=1e-8)
    assert out.errors.shape == (3,)
    assert out.errors[2] == out.error
    for got, expected in zip(out.potentials, f):
        np.testing.assert_allclose(got, expected, atol=1e-10)


def test_not_a_number_is_reported(x64, rng):
    """At a point that is there."""
    z, a_s = tensors.unit(rng, SIZES[3]), tensors.weights(rng, SIZES[3])
    z[1][np.argmax(a_s[1])] = np.nan
    out = solve(z, "circular_variance", a_s=a_s, epsilon=0.2, **TIGHT_PAIRS)
    assert out.status == Status.NOT_FINITE
    assert not out.converged


def test_epsilon_schedule_has_the_same_solution(x64, rng):
    z, a_s = tensors.unit(rng, (9, 7)), tensors.weights(rng, (9, 7))
    f, _, minimum = tensors.solve(tensors.circular_variance(z), a_s, 0.03)
    out = multimarginal_sinkhorn(z, a_s=a_s, epsilon=Epsilon(0.03, 30.0, 0.7), **TIGHT)
    assert out.converged
    assert out.epsilon == 0.03
    assert_same_potentials(out.potentials, f, a_s, atol=1e-7)
    np.testing.assert_allclose(out.dual, minimum, rtol=1e-9)


def test_start_at_the_solution(x64, rng):
    """From the potentials of the solution one sweep is enough; with other points of weight 0, it takes more."""
    sizes = (9, 7)
    z, a_s = tensors.unit(rng, sizes), tensors.weights(rng, sizes)
    tensor = tensors.circular_variance(z)
    f, _, minimum = tensors.solve(tensor, a_s, 0.05)
    options = {"epsilon": 0.05, "threshold": 1e-8, "max_iterations": 2000, "pair_spread": 1.0}
    out = solve(z, a_s=a_s, init=f, **options)
    assert out.converged
    assert out.n_iters <= 1
    np.testing.assert_allclose(out.dual, minimum, rtol=1e-9)
    assert_same_potentials(out.potentials, f, a_s, atol=1e-7)
    a_s = [np.roll(a, 1) for a in a_s]
    f, _, minimum = tensors.solve(tensor, a_s, 0.05)
    out = solve(z, a_s=a_s, init=out.potentials, **options)
    assert out.converged
    assert out.n_iters > 1
    np.testing.assert_allclose(out.dual, minimum, rtol=1e-9)


THREE = [np.ones((n, 2), np.float32) for n in (4, 5, 3)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"a_s": [np.ones(4), np.ones(5), np.ones(3)]},
            r"a_s must have the same sum in every view, got 4 for view 0, 5 for view 1",
        ),
        (
            {"a_s": [None, np.full(5, 0.3), None]},
            "a_s must have the same sum .* got 1 for view 0, 1.5 for view 1",
        ),
        (
            {"a_s": [None, [1.2, -0.2, 0, 0, 0], None]},
            r"a_s\[1\] must be finite and >= 0, got values from -0.2.* to 1.2",
        ),
        ({"a_s": [None, None, [np.nan, 0.5, 0.5]]}, r"a_s\[2\] must .* got .*nan"),
        ({"a_s": [None, None, [np.inf, 0.5, 0.5]]}, r"a_s\[2\] must .* got .*inf"),
        ({"a_s": [np.zeros(4), None, None]}, r"a_s\[0\] must .* (positive|> 0)"),
        ({"a_s": [np.zeros(4), np.zeros(5), np.zeros(3)]}, r"a_s\[0\] must .* (positive|> 0)"),
        ({"a_s": [None, np.full(4, 0.25), None]}, r"a_s\[1\] must have shape \(5,\).* got \(4,\)"),
        ({"a_s": [None, np.full((5, 1), 0.2), None]}, r"a_s\[1\] must have shape \(5,\).* got \(5, 1\)"),
        ({"a_s": [None, None]}, r"a_s must .* 3 .* got 2"),
        ({"a_s": np.full((3, 5), 0.2)}, r"a_s\[0\] must have shape \(4,\).* got \(5,\)"),
        (
            {"init": [np.zeros(4), np.zeros(5)]},
            r"init must .* \[\(4,\), \(5,\), \(3,\)\], got \[\(4,\), \(5,\)\]",
        ),
        (
            {"init": [np.zeros(4), np.zeros(5), np.zeros(5)]},
            r"init must .* got \[\(4,\), \(5,\), \(5,\)\]",
        ),
    ],
)
def test_bad_weights_and_starts_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        multimarginal_sinkhorn(THREE, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"z": [np.ones((4, 2))]}, "z must"),
        (
            {"z": [np.ones((4, 2)), np.ones((3, 3))]},
            r"z\[1\] must have the dimension .* of z\[0\], 2 .* got 3",
        ),
        ({"z": [np.ones((4, 2)), np.ones(3)]}, r"z\[1\] must .* got \(3,\)"),
        (
            {"z": [np.ones((4, 2)), np.ones((3, 2), np.int32)]},
            r"z\[1\] must have a floating dtype, got int32",
        ),
        ({"pair_costs": [np.ones((4, 3)), np.ones((4, 5))]}, r"pair_costs must .* k\(k-1\)/2.* got 2"),
        (
            {"pair_costs": [np.ones((4, 3)), np.ones((4, 5)), np.ones((5, 3))]},
            r"pair_costs must .* \[\(4, 3\), \(4, 5\), \(3, 5\)\] .* got \[\(4, 3\), \(4, 5\), \(5, 3\)\]",
        ),
        ({"cost_tensor": np.ones(4)}, r"cost_tensor must .* got \(4,\)"),
        ({"cost_tensor": np.ones((4, 3)), "cost_scale": 0.0}, "cost_scale must be positive, got 0.0"),
        ({"z": tuple_costs(THREE), "cost_scale": 2.0}, "cost_scale must be 1 .* got cost_scale=2.0"),
        ({"z": tuple_costs(THREE), "path": "dense"}, "path 'auto' or 'pairwise' .* path='dense'"),
    ],
)
def test_bad_costs_of_different_sizes_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        multimarginal_sinkhorn(**options)


def test_traced_weights_without_a_plan_are_infeasible(rng):
    z = jnp.asarray(rng.normal(size=(2, 3, 2)), jnp.float32)

    @jax.jit
    def status(a, b):
        return multimarginal_sinkhorn(z, a_s=(a, b)).status

    good = jnp.asarray([0.5, 0.5, 0.0])
    assert status(good, good) == Status.CONVERGED
    for bad in ([0.5, 0.6, 0.0], [1.0, 0.5, -0.5], [0.0, 0.0, 0.0], [0.5, 0.5, np.nan]):
        assert status(good, jnp.asarray(bad)) == Status.INFEASIBLE
    zeros = jnp.zeros(3)
    assert status(zeros, zeros) == Status.INFEASIBLE


def test_gradient_of_otts_value_by_epsilon(x64, rng):
    """`ent_reg_cost` is epsilon more than `dual`, and so is 1 its derivative."""
    z = tensors.unit(rng, [4, 5])

    def value(epsilon):
        return multimarginal_sinkhorn(z, epsilon=epsilon, threshold=1e-11, max_iterations=2000).ent_reg_cost

    step = 1e-5
    expected = (value(0.2 + step) - value(0.2 - step)) / (2 * step)
    np.testing.assert_allclose(jax.grad(value)(0.2), expected, rtol=1e-6)
