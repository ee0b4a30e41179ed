"""k-marginal Sinkhorn against a plain float64 solver that holds the tensor, against itself and against ott."""

import itertools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P
from ott.experimental import mmsinkhorn
from ott.geometry import costs
from parametrize import some

from mvcl.transport import Epsilon, Geometry, MMSinkhorn, Problem, Status
from mvcl.transport import _blocks as blocks
from mvcl.transport import _contraction as contraction
from tests.transport import tensors

TIGHT = {"threshold": 1e-11, "max_iterations": 5000}
# Of two views; with more, one way to sum is compiled.
STATIC = ("cost", "epsilon", "threshold", "max_iterations", "spread")
solved = jax.jit(tensors.solution, static_argnames=STATIC)
THREE = [np.ones((n, 2), np.float32) for n in (4, 5, 3)]
VARIANCE, DEVIATION = "circular_variance", "circular_standard_deviation"
PAIRS = Geometry.from_pairs
# Costs, sizes, options. A spread of 0.4, 4 and 60 at epsilon 0.2 settles for kernels, or rows, or neither.
CASES = {
    "two views": (VARIANCE, (5, 4), {}),
    "three views by kernels": (VARIANCE, (4, 5, 3), {"spread": 0.4}),
    "three views by rows, one at a time": (VARIANCE, (4, 5, 3), {"spread": 6.0, "block_size": 1}),
    "four views by kernels, a row at a time": (VARIANCE, (4, 3, 2, 5), {"spread": 0.4, "block_size": 1}),
    "four views by rows": (VARIANCE, (4, 3, 2, 5), {"spread": 10.0}),
    "elementwise": ("one CostFn", (4, 5, 3), {"spread": 1000.0, "block_size": 1}),
    "function of a sum": (DEVIATION, (4, 3, 2, 5), {"block_size": 2}),
    "tensor": ("a function", (4, 5, 3), {}),
    "the costs decide": (VARIANCE, (4, 5, 3), {"spread": None}),
    "two views in rows": ("one CostFn", (9, 7), {"block_size": 1}),
    "too wide for rows": (VARIANCE, (5, 3, 2, 7), {"spread": 1000.0, "block_size": 1}),
    "five views": (VARIANCE, (3, 4, 2, 3, 3), {"spread": 0.2, "block_size": 1}),
    "five views by rows": ("a CostFn for each pair", (3, 4, 2, 3, 3), {"spread": 12.0}),
    "six views": ("one CostFn", (2, 3, 2, 4, 3, 5), {"spread": 4.0}),
    "seven views": (VARIANCE, (3, 2, 3, 2, 2, 3, 2), {"spread": 0.1}),
}
FAST = [name for name in list(CASES)[:8] if name != "four views by rows"]


@pytest.mark.parametrize("case", some(CASES, fast=FAST))
def test_value_plan_and_gradient_are_those_of_the_tensor(x64, rng, case):
    """Weights with zeros. The gradient by the points is sum_i P[i] dC[i], dC by central differences."""
    kind, sizes, options = CASES[case]
    z, cost, tensor = tensors.points_and_tensor(rng, sizes, kind)
    a_s, epsilon, step = tensors.weights(rng, sizes), 0.2, 1e-6
    f, plan, minimum = tensors.solve(tensor, a_s, epsilon)
    direction = [rng.normal(size=x.shape) for x in z]
    of_points = tensors.tensor_costs(kind, len(sizes))[1]
    ends = [of_points([x + s * step * d for x, d in zip(z, direction)]) for s in (1, -1)]

    def dual(z):
        out = tensors.solution(z, cost, a_s=a_s, epsilon=epsilon, **options, **TIGHT)
        return out.dual, out

    (value, out), gradient = jax.jit(jax.value_and_grad(dual, has_aux=True))(z)
    assert out.status == Status.CONVERGED
    assert out.converged
    np.testing.assert_allclose(value, minimum, rtol=1e-9)
    np.testing.assert_allclose(out.ent_reg_cost, minimum + epsilon, rtol=1e-9)
    tensors.assert_same_potentials(out.potentials, f, a_s, atol=1e-8)
    np.testing.assert_allclose(tensors.plan_of(tensor, out.potentials, epsilon), plan, atol=1e-9)
    slope = sum(np.sum(g * d) for g, d in zip(gradient, direction))
    np.testing.assert_allclose(slope, np.sum(plan * (ends[0] - ends[1])) / (2 * step), rtol=1e-6)


@pytest.mark.parametrize("given", ["pairs", "tensor"])
def test_given_costs_and_their_gradients(x64, rng, given):
    """Entries of any sign; views of a total mass of 2.5."""
    sizes, epsilon, step = (4, 3, 2), 0.5, 1e-5
    matrices = [rng.normal(size=(sizes[l], sizes[m])) for l, m in tensors.PAIRS[3]]
    tensor = tensors.of_pairs(matrices, sizes)
    a_s = tensors.weights(rng, sizes, mass=2.5)
    f, plan, minimum = tensors.solve(tensor, a_s, epsilon)
    costs, make = {"pairs": (matrices, PAIRS), "tensor": (tensor, Geometry.from_tensor)}[given]

    def dual(costs, epsilon):
        out = tensors.solution(make(costs), a_s=a_s, epsilon=epsilon, spread=9.0, **TIGHT)
        return out.dual, out

    both = jax.jit(jax.value_and_grad(dual, argnums=(0, 1), has_aux=True))
    (_, out), (by_costs, by_epsilon) = both(costs, epsilon)
    tensors.assert_same_potentials(out.potentials, f, a_s, atol=1e-8)
    np.testing.assert_allclose(out.dual, minimum, rtol=1e-9)
    np.testing.assert_allclose(out.transport_mass, 2.5, rtol=1e-9)
    expected = [tensors.marginal(plan, *pair) for pair in tensors.PAIRS[3]] if given == "pairs" else plan
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-9), by_costs, expected)
    ends = [tensors.solve(tensor, a_s, epsilon + s * step)[2] for s in (1, -1)]
    np.testing.assert_allclose(by_epsilon, (ends[0] - ends[1]) / (2 * step), rtol=1e-7)


def test_none_is_uniform(x64, rng):
    """As in ott; weights as lists and of whole numbers too. The default of all views is the same to the last bit."""
    z, options = np.stack(tensors.unit(rng, (5, 5))), {"threshold": 1e-6}
    plain = tensors.solution(z, **options)
    for a_s in ([None, np.full(5, 0.2)], [[0.2] * 5, None], np.full((2, 5), 0.2)):
        out = tensors.solution(list(z), a_s=a_s, **options)
        assert out.n_iters == plain.n_iters
        for l in range(2):
            np.testing.assert_array_equal(out.a_s[l], np.full(5, 0.2))
            np.testing.assert_array_equal(out.potentials[l], plain.potentials[l])
    out = tensors.solution(z, a_s=[[0, 0, 0, 1, 0], None], **options)
    np.testing.assert_array_equal(out.potentials[0] > -np.inf, [False, False, False, True, False])
    np.testing.assert_allclose(out.pair_marginal(0, 1)[3], 0.2, atol=1e-6)


@pytest.mark.parametrize("k", some([3, 4, 5], fast=[3]))
def test_contractions_are_exact_in_float32_up_to_their_bounds_on_the_spread(rng, k):
    """Log-joints at any potentials, far from a solution too, whose exponents span thousands; some points absent."""
    sizes = (5, 4, 6, 3, 5)[:k]
    of_rows, of_kernels = blocks.spread_bounds(k, jnp.float32)
    assert 55 < of_rows < 87  # exp(-87) is the smallest normal number
    cases = [(blocks.Way.ROWS, s) for s in (0.1, 0.99 * of_rows)]
    cases += [(blocks.Way.KERNELS, 0.99 * of_kernels)]
    for way, spread in cases:
        costs = [np.float32(rng.uniform(size=(sizes[l], sizes[m]))) for l, m in tensors.PAIRS[k]]
        costs = [(c - c.min()) / np.ptp(c) for c in costs]
        scaled = [np.float32(rng.normal(size=n) * spread) for n in sizes]
        scaled[1][2] = scaled[2][0] = contraction.ABSENT
        total = -spread * tensors.of_pairs(costs, sizes)
        total = total + sum(tensors.along(f, axis, k) for axis, f in enumerate(scaled))
        held = Geometry(tuple(jnp.asarray(m) for m in costs))
        vectors = tuple(jnp.asarray(f) for f in scaled)
        both = contraction.groups(k)
        for work, group in zip((blocks.Work(2**17), blocks.Work(18)), both if way == 1 else both[::-1]):
            log_joint = jax.jit(contraction.log_joint, static_argnums=(0, 4, 5))
            joint = log_joint(work, held, vectors, jnp.float32(1 / spread), group, way)
            expected = np.logaddexp.reduce(total, axis=tuple(a for a in range(k) if a not in group))
            there = expected > -1e20
            assert np.all(np.asarray(joint)[~there] < -1e20)
            # float32 holds an exponent of a few hundred to 1e-5 and no better
            rounding = 1e-6 * max(1, np.abs(total[total > -1e20]).max())
            np.testing.assert_allclose(np.asarray(joint)[there], expected[there], atol=1e-5 + rounding)


@pytest.mark.parametrize(
    ("sizes", "width", "elements"), [((6, 6), 6, 100), ((7, 7, 7), 1, 50), ((4,), 100, 10)]
)
def test_blocks_tile_the_index_space(sizes, width, elements):
    of_block = blocks.block_sizes(blocks.Work(elements), sizes, range(len(sizes)), width)
    assert all(length % size == 0 for length, size in zip(sizes, of_block))
    partial_axes = [axis for axis, size in enumerate(of_block) if 1 < size < sizes[axis]]
    assert len(partial_axes) <= 1  # or the blocks would not lie one after the other
    assert np.prod(of_block) * width <= elements or np.prod(of_block) == 1
    axis = len(sizes) - 1
    larger = range(of_block[axis] + 1, sizes[axis] + 1)
    assert all(sizes[axis] % d or d * width > elements for d in larger)  # no larger divisor fits


@pytest.mark.parametrize("sizes", some([(5, 7, 4), (13, 6), (3, 4, 5, 2)], fast=[(5, 7, 4)]))
def test_iterates_are_those_of_the_plain_iteration_until_the_first_that_fits(x64, rng, sizes):
    """Entry s-1 of the errors is that after s sweeps, -1 where the solver had stopped; and three that do not suffice.

    ott's solver of 12 forced steps, checked every 10, says converged with marginals off by 1.5.
    """
    z, a_s, epsilon = tensors.unit(rng, sizes), tensors.weights(rng, sizes), 0.05
    tensor = tensors.circular_variance(z)
    solve = partial(solved, z, a_s=a_s, epsilon=epsilon, threshold=1e-6, spread=1.0)
    out, short = (solve(max_iterations=most) for most in (2000, 3))
    count = int(out.n_iters)
    iterates = [f for f, _ in itertools.islice(tensors.sweeps(tensor, a_s, epsilon), count - 1)]
    errors = [tensors.error_of(tensors.plan_of(tensor, f, epsilon), a_s) for f in iterates]
    assert out.status == Status.CONVERGED
    assert out.n_passes in (2 * count, 2 * count + 1)
    assert out.errors[count - 1] == out.error < 1e-6 <= errors[-1]
    np.testing.assert_allclose(out.errors[: count - 1], errors, rtol=1e-6)
    np.testing.assert_array_equal(out.errors[count:], -1)
    assert short.status == Status.ITERATION_LIMIT
    assert not short.converged
    assert short.n_iters == 3
    np.testing.assert_allclose(short.errors, errors[:3], rtol=1e-8)
    for got, expected in zip(short.potentials, iterates[2]):
        np.testing.assert_allclose(got, expected, atol=1e-10)


def test_epsilon_schedule_ends_at_its_target(x64, rng):
    z, a_s = tensors.unit(rng, (9, 7)), tensors.weights(rng, (9, 7))
    tensor = tensors.circular_variance(z)
    f, _, minimum = tensors.solve(tensor, a_s, 0.03)
    out = tensors.solution(z, a_s=a_s, epsilon=Epsilon(0.03, 30.0, 0.7), **TIGHT)
    assert out.converged
    assert out.epsilon == 0.03
    tensors.assert_same_potentials(out.potentials, f, a_s, atol=1e-7)
    np.testing.assert_allclose(out.dual, minimum, rtol=1e-9)
    # too short for the schedule: the last sweep and what is reported are those of the target all the same
    short = tensors.solution(z, a_s=a_s, epsilon=Epsilon(0.01, 30.0, 0.9), max_iterations=2)
    assert not short.converged
    error = tensors.error_of(tensors.plan_of(tensor, short.potentials, 0.01), a_s)
    np.testing.assert_allclose(short.error, error, rtol=1e-8)


def test_a_schedule_has_the_same_iterates_whatever_the_spread_of_the_costs(x64, rng):
    """A small spread is computed by kernels, which belong to one epsilon."""
    costs = [rng.normal(size=(size, other)) for size, other in ((5, 4), (5, 6), (4, 6))]
    geometry, options = Geometry.from_pairs(costs), {"epsilon": Epsilon(0.3, 10.0, 0.5), "max_iterations": 6}
    small, large = (tensors.solution(geometry, **options, spread=spread).errors for spread in (9.0, 1e6))
    assert np.isfinite(large).any()
    np.testing.assert_allclose(small, large, rtol=1e-9)


def test_a_small_epsilon_starts_larger(x64, rng):
    """As an `Epsilon` from a fifth of the spread by 3/4; not with a start of the caller's."""
    z = np.stack(tensors.unit(rng, (9, 9)))
    spread = np.ptp(tensors.circular_variance(z))
    epsilon = spread / 500
    out, by_hand = (tensors.solution(z, epsilon=e) for e in (epsilon, Epsilon(epsilon, 100.0, 0.75)))
    assert out.converged
    assert out.n_iters == by_hand.n_iters
    np.testing.assert_allclose(out.dual, by_hand.dual, rtol=1e-12)
    assert np.isfinite(tensors.solution(z, epsilon=epsilon, init=np.zeros((2, 9))).errors[0])


def test_start_at_the_solution(x64, rng):
    """From the potentials of the solution one sweep is enough; with other points of weight 0, it takes more."""
    z, a_s = tensors.unit(rng, (9, 7)), tensors.weights(rng, (9, 7))
    tensor = tensors.circular_variance(z)
    f, _, minimum = tensors.solve(tensor, a_s, 0.05)
    options = {"epsilon": 0.05, "threshold": 1e-8, "max_iterations": 2000}
    out = solved(z, a_s=a_s, init=f, **options)
    assert out.converged
    assert out.n_iters <= 1
    np.testing.assert_allclose(out.dual, minimum, rtol=1e-9)
    a_s = [np.roll(a, 1) for a in a_s]
    f, _, minimum = tensors.solve(tensor, a_s, 0.05)
    out = solved(z, a_s=a_s, init=out.potentials, **options)
    assert out.converged
    assert out.n_iters > 1
    np.testing.assert_allclose(out.dual, minimum, rtol=1e-9)


def test_without_options_normal_points_in_many_dimensions_converge():
    """epsilon is 1/20 of the standard deviation of the tensor of costs, and changes with them."""
    for cost, seeds in (("circular_variance", (0, 3)), (tensors.of_stack, (0,))):
        for seed in seeds:
            z = np.random.default_rng(seed).normal(size=(3, 20, 50)).astype(np.float32)
            out = tensors.solution(z, cost)
            assert out.converged
            np.testing.assert_allclose(out.epsilon, np.std(out.geometry.tensor()) / 20, rtol=1e-5)
    tensor = out.geometry.tensor()
    value = lambda c, e: tensors.solution(Geometry.from_tensor(c), epsilon=e).dual  # noqa: E731
    of_std = jax.grad(lambda c: jnp.std(c) / 20)(tensor)
    by_tensor, by_epsilon = jax.grad(value, argnums=(0, 1))(tensor, out.epsilon)
    found = jax.grad(lambda c: value(c, None))(tensor)
    np.testing.assert_allclose(found, by_tensor + by_epsilon * of_std, rtol=1e-3, atol=1e-7)


def test_not_a_number_is_reported_and_stops():
    """At a point that is there."""
    z = np.ones((2, 4, 2), np.float32)
    z[0, 0, 0] = np.nan
    out = tensors.solution(z, max_iterations=10**6)
    assert out.status == Status.NOT_FINITE
    assert not out.converged


def test_traced_weights_without_a_plan_are_infeasible(rng):
    z = jnp.asarray(rng.normal(size=(2, 3, 2)), jnp.float32)

    @jax.jit
    def status(a, b):
        return tensors.solution(z, a_s=(a, b)).status

    good = jnp.asarray([0.5, 0.5, 0.0])
    assert status(good, good) == Status.CONVERGED
    for bad in ([0.5, 0.6, 0.0], [1.0, 0.5, -0.5], [0.0, 0.0, 0.0], [0.5, 0.5, np.nan]):
        assert status(good, jnp.asarray(bad)) == Status.INFEASIBLE
    zeros = jnp.zeros(3)
    assert status(zeros, zeros) == Status.INFEASIBLE


# Sizes that 8 does not divide and below 8, and what the costs are above 0.
SHARED = [((5, 9, 4), 200.0), ((9, 7), 0.0), ((5, 9, 4), 0.0), ((11, 3, 13, 2), 0.0), ((8, 8, 8, 8, 8), 0.0)]


@pytest.mark.parametrize("case", some(SHARED, fast=[SHARED[0]]))
def test_eight_devices_share_pair_costs(x64, rng, case):
    """Zeros among the weights; the gradient is the plan's pair marginals.

    The costs of the points that are added to divide the sizes must not be far below.
    """
    sizes, least = case
    index = tensors.PAIRS[len(sizes)]
    matrices = [rng.uniform(size=(sizes[l], sizes[m])) for l, m in index]
    a_s = tensors.weights(rng, sizes)
    f, plan, minimum = tensors.solve(tensors.of_pairs(matrices, sizes), a_s, 0.2)
    shifted = [matrix + least for matrix in matrices]

    def dual(matrices, a_s):
        options = {"a_s": a_s, "axis_name": "data", "epsilon": 0.2, "spread": 1.0, **TIGHT}
        out = tensors.solution(Geometry.from_pairs(matrices), **options)
        return out.dual, out

    mesh = jax.make_mesh((8,), ("data",), (AxisType.Auto,))
    shared = jax.shard_map(dual, mesh=mesh, in_specs=P(), out_specs=P())
    (value, out), gradient = jax.jit(jax.value_and_grad(shared, has_aux=True))(shifted, a_s)
    np.testing.assert_allclose(value, minimum + least * len(index), rtol=1e-9)
    f[0] = f[0] + least * len(index)
    tensors.assert_same_potentials(out.potentials, f, a_s, atol=1e-8)
    for got, (l, m) in zip(gradient, index):
        np.testing.assert_allclose(got, tensors.marginal(plan, l, m), atol=1e-9)


@pytest.mark.exhaustive
def test_memory_grows_slower_than_the_tensor():
    """n = 256, k = 4: the tensor has 17 GB, n^(k-1) numbers 67 MB; value and gradient stay below 32 MB."""
    f = jax.jit(jax.value_and_grad(lambda z: tensors.solution(z).dual))
    program = f.lower(jax.ShapeDtypeStruct((4, 256, 8), jnp.float32)).compile()
    assert program.memory_analysis().temp_size_in_bytes < 32 * 2**20


Z = np.ones((3, 4, 2))
UNEQUAL, BIG = [np.ones(4), np.ones(5), np.ones(3)], np.ones((4, 256, 2))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"geometry": np.ones((3, 4, 2), np.int32)}, "x_s must have a floating dtype, got int32"),
        ({"geometry": [Z[0]]}, "x_s must hold the points of k >= 2 views, got 1"),
        (
            {"geometry": [Z[0], np.ones((3, 3))]},
            r"x_s\[1\] must have the dimension .* of x_s\[0\], 2 .* got 3",
        ),
        ({"geometry": [Z[0], np.ones((3, 2), np.float16)]}, r"x_s\[1\] must have the dimension and dtype"),
        ({"cost": "cosine"}, "cost must be one of 'circular_variance'"),
        ({"epsilon": -1.0}, "epsilon must be positive, got -1.0"),
        ({"threshold": -1.0}, "threshold must be >= 0, got -1.0"),
        ({"spread": -1.0}, "pair_spread must be >= 0, got -1.0"),
        ({"max_iterations": 0}, "max_iterations must be a whole number >= 1, got 0"),
        ({"block_size": 0}, "block_size must be a whole number >= 1, got 0"),
        ({"inner_iterations": 0}, "inner_iterations must be a whole number >= 1, got 0"),
        ({"norm_error": 0.0}, "norm_error must be positive, got 0.0"),
        ({"max_operations": 119.0}, "60 tuples, and a pass over them takes 120 operations"),
        (
            {"geometry": np.ones((8, 512, 2))},
            r"9.44e\+21 operations.*n <= 51 with 8 views, or k <= 5 with 512",
        ),
        ({"geometry": BIG, "cost": tensors.of_stack}, r"4.29e\+09 entries.* n <= 215 with 4 views"),
        ({"a_s": UNEQUAL}, r"the same sum in every view, got 4 for view 0, 5 for view 1"),
        ({"a_s": [None, [1.2, -0.2, 0, 0, 0], None]}, r"a_s\[1\] must be finite and >= 0"),
        ({"a_s": [None, None, [np.inf, 0.5, 0.5]]}, r"a_s\[2\] must .* got .*inf"),
        ({"a_s": [0 * UNEQUAL[0], None, None]}, r"a_s\[0\] must have a positive weight, got 4 zeros"),
        ({"a_s": [None, np.ones((5, 1)), None]}, r"a_s\[1\] must .* \(5,\).* got \(5, 1\)"),
        ({"a_s": [None, None]}, "a_s must hold the weights of 3 views, got 2"),
        ({"init": UNEQUAL[:2]}, r"init must .*, \(3,\)\], got \[\(4,\), \(5,\)\]"),
    ],
)
def test_raises_on_bad_arguments(options, message):
    with pytest.raises(ValueError, match=message):
        tensors.solution(**{"geometry": THREE} | options)


@pytest.mark.parametrize(
    ("make", "costs", "message"),
    [
        (PAIRS, [np.ones((4, 3))] * 2, r"matrices must be k\(k-1\)/2, .* got 2"),
        (PAIRS, [np.ones((2, n)) for n in (3, 4, 5)], r"matrices .*\(3, 4\)\] for .* \(2, 3, 4\)"),
        (partial(PAIRS, edges=[(0, 1), (0, 1)]), [np.ones((4, 3))] * 2, "edges must be 2 pairs .* tree"),
        (partial(PAIRS, edges=[(0, 1), (1, 2)]), [np.ones((4, 3))] * 2, r"\(4, 4\), \(4, 3\)\] for"),
        (Geometry.from_tensor, np.ones(4), r"tensor must have shape \(n_1, ..., n_k\) .* got \(4,\)"),
    ],
)
def test_raises_on_costs_of_wrong_shapes(make, costs, message):
    with pytest.raises(ValueError, match=message):
        make(costs)


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
