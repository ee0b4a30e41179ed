"""k-marginal Sinkhorn against a plain float64 solver that holds the tensor, ott, and itself."""

import itertools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

from mvcl.transport import CostFn, Epsilon, Status, TupleCosts, multimarginal_sinkhorn
from mvcl.transport import _joints as joints

TIGHT = {"threshold": 1e-11, "max_iterations": 3000}


def unit(rng, k, n, d=3):
    z = rng.normal(size=(k, n, d))
    return z / np.linalg.norm(z, axis=-1, keepdims=True)


def circular_variance(points):
    return 1 - np.sum(np.mean(points, axis=0) ** 2)


def circular_standard_deviation(points):
    return -np.log(np.sum(np.mean(points, axis=0) ** 2))


def tensor_of(z, cost):
    k, n, _ = z.shape
    out = np.empty((n,) * k)
    for index in itertools.product(range(n), repeat=k):
        out[index] = cost(np.stack([z[l, i] for l, i in enumerate(index)]))
    return out


def log_plan(cost, potentials, epsilon):
    total = -np.asarray(cost, np.float64)
    for l, f in enumerate(np.asarray(potentials, np.float64)):
        total = total + f.reshape([-1 if a == l else 1 for a in range(cost.ndim)])
    return total / epsilon


def log_marginal(log_p, keep):
    """Log-sum-exp over all axes but those kept, in float64."""
    others = tuple(a for a in range(log_p.ndim) if a not in keep)
    top = log_p.max(axis=others, keepdims=True)
    return np.log(np.exp(log_p - top).sum(axis=others)) + top.reshape([log_p.shape[a] for a in sorted(keep)])


def error_of(cost, potentials, epsilon):
    log_p = log_plan(cost, potentials, epsilon)
    n = cost.shape[0]
    return sum(np.abs(np.exp(log_marginal(log_p, (l,))) - 1 / n).sum() for l in range(cost.ndim))


def solve(cost, epsilon, tolerance=1e-12, sweeps=5000):
    """Potentials, plan and `<P, C> + ε <P, log P - 1>` summed over the tensor."""
    k, n = cost.ndim, cost.shape[0]
    f = np.zeros((k, n))
    for _ in range(sweeps):
        for l in range(k):
            f[l] -= epsilon * (log_marginal(log_plan(cost, f, epsilon), (l,)) + np.log(n))
        if error_of(cost, f, epsilon) < tolerance:
            break
    log_p = log_plan(cost, f, epsilon)
    plan = np.exp(log_p)
    return f, plan, np.sum(plan * cost) + epsilon * np.sum(plan * (log_p - 1))


CASES = [
    ("circular_variance", circular_variance, "auto", 2, 6),
    ("circular_variance", circular_variance, "auto", 3, 5),
    ("circular_variance", circular_variance, "auto", 4, 4),
    ("circular_variance", circular_variance, "auto", 5, 3),
    ("circular_variance", circular_variance, "auto", 6, 3),
    pytest.param("circular_variance", circular_variance, "auto", 7, 3, marks=pytest.mark.slow),
    pytest.param("circular_variance", circular_variance, "auto", 8, 2, marks=pytest.mark.slow),
    ("circular_variance", circular_variance, "logsumexp", 4, 4),
    ("circular_variance", circular_variance, "dense", 4, 4),
    ("circular_standard_deviation", circular_standard_deviation, "auto", 4, 3),
    ("circular_standard_deviation", circular_standard_deviation, "dense", 3, 4),
    (lambda s: jnp.sum(jnp.abs(s[0] - s[-1])), lambda s: np.sum(np.abs(s[0] - s[-1])), "auto", 3, 4),
]


@pytest.mark.parametrize(("cost", "plainly", "path", "k", "n"), CASES)
def test_value_plan_and_gradient_are_those_of_the_tensor(x64, rng, cost, plainly, path, k, n):
    """Every path; the gradient in the embeddings is sum_i P[i] dC[i], dC by central differences."""
    z, epsilon, step = unit(rng, k, n), 0.2, 1e-6
    c = tensor_of(z, plainly)
    _, plan, value = solve(c, epsilon)
    direction = rng.normal(size=z.shape)
    slope = (tensor_of(z + step * direction, plainly) - tensor_of(z - step * direction, plainly)) / (2 * step)

    def f(z):
        out = multimarginal_sinkhorn(z, cost, epsilon=epsilon, path=path, **TIGHT)
        return out.dual, out

    (_, out), gradient = jax.value_and_grad(f, has_aux=True)(z)
    assert out.converged
    assert out.status == Status.CONVERGED
    np.testing.assert_allclose(out.dual, value, rtol=1e-10)
    np.testing.assert_allclose(out.ent_reg_cost, value + epsilon, rtol=1e-10)
    np.testing.assert_allclose(np.exp(log_plan(c, out.potentials, epsilon)), plan, atol=1e-10)
    np.testing.assert_allclose(np.sum(gradient * direction), np.sum(plan * slope), rtol=1e-7)


@pytest.mark.parametrize("k", [3, 4])
def test_gradients_in_pair_costs_tensor_and_epsilon(x64, rng, k):
    n, epsilon, step = 3, 0.3, 1e-5
    index = list(itertools.combinations(range(k), 2))
    matrices = rng.uniform(size=(len(index), n, n))
    c = sum(
        m.reshape([n if a in pair else 1 for a in range(k)]) + np.zeros((n,) * k)
        for m, pair in zip(matrices, index)
    )
    _, plan, _ = solve(c, epsilon)
    by_pairs, by_epsilon = jax.grad(
        lambda m, e: multimarginal_sinkhorn(pair_costs=m, epsilon=e, **TIGHT).dual, argnums=(0, 1)
    )(matrices, epsilon)
    for got, pair in zip(by_pairs, index):
        np.testing.assert_allclose(
            got, plan.sum(axis=tuple(a for a in range(k) if a not in pair)), atol=1e-10
        )
    difference = solve(c, epsilon + step)[2] - solve(c, epsilon - step)[2]
    np.testing.assert_allclose(by_epsilon, difference / (2 * step), rtol=1e-7)
    by_tensor, by_epsilon = jax.grad(
        lambda c, e: multimarginal_sinkhorn(cost_tensor=c, epsilon=e, **TIGHT).dual, argnums=(0, 1)
    )(c, epsilon)
    np.testing.assert_allclose(by_tensor, plan, atol=1e-10)
    np.testing.assert_allclose(by_epsilon, difference / (2 * step), rtol=1e-7)


def test_otts_multimarginal_solver_and_cost_functions(x64, rng):
    """ott's cost is sum_{l<m} ||z_l - z_m||², k² times the circular variance, so epsilon is k² times as large."""
    from ott.experimental import mmsinkhorn
    from ott.geometry import costs

    k, n, epsilon = 3, 6, 0.1
    z = unit(rng, k, n)
    with jax.numpy_rank_promotion("allow"):
        solver = mmsinkhorn.MMSinkhorn(threshold=1e-10, max_iterations=20000)
        theirs = solver(tuple(jnp.asarray(v) for v in z), epsilon=k**2 * epsilon)
        mixed = (costs.SqEuclidean(), costs.PNormP(1.5), costs.Cosine())
        theirs_mixed = solver(tuple(jnp.asarray(v) for v in z), epsilon=1.0, cost_fns=mixed)
        assert isinstance(mixed[0], CostFn)
    ours = multimarginal_sinkhorn(z, epsilon=epsilon, **TIGHT)
    np.testing.assert_allclose(ours.ent_reg_cost, theirs.ent_reg_cost / k**2, rtol=1e-8)
    ours = multimarginal_sinkhorn(z, mixed[0], epsilon=k**2 * epsilon, **TIGHT)
    np.testing.assert_allclose(ours.ent_reg_cost, theirs.ent_reg_cost, rtol=1e-8)
    ours = multimarginal_sinkhorn(z, mixed, epsilon=1.0, **TIGHT)
    np.testing.assert_allclose(ours.ent_reg_cost, theirs_mixed.ent_reg_cost, rtol=1e-8)


@pytest.mark.parametrize("k", [3, 4, 5])
def test_contractions_are_exact_in_float32_up_to_their_bounds_on_the_spread(rng, k):
    """Log-joints at any potentials, far from a solution too, whose exponents span thousands; some points absent."""
    sizes = (5, 4, 6, 3, 5)[:k]
    of_rows, of_kernels = joints.spread_bounds(k, jnp.float32)
    assert 55 < of_rows < 87  # exp(-87) is the smallest normal number
    cases = [(joints.Way.ROWS, s) for s in (0.1, 10.0, 0.99 * of_rows)]
    cases += [(joints.Way.KERNELS, s) for s in (0.1, 0.99 * of_kernels)]
    for way, spread in cases:
        index = list(itertools.combinations(range(k), 2))
        costs = [np.float32(rng.uniform(size=(sizes[l], sizes[m]))) for l, m in index]
        costs = [(c - c.min()) / np.ptp(c) for c in costs]
        scaled = [np.float32(rng.normal(size=n) * spread) for n in sizes]
        scaled[1][2] = scaled[2][0] = joints.ABSENT
        c = np.zeros(sizes)
        for m, pair in zip(costs, index):
            c = c + np.float64(m).reshape([sizes[a] if a in pair else 1 for a in range(k)])
        total = -c * spread
        for l, f in enumerate(scaled):
            total = total + np.float64(f).reshape([-1 if a == l else 1 for a in range(k)])
        held = TupleCosts(tuple(jnp.asarray(m) for m in costs))
        vectors = tuple(jnp.asarray(f) for f in scaled)
        for work in (joints.Work(2**17), joints.Work(18)):
            for group in joints.groups(k):
                joint = joints.log_joint(work, held, vectors, jnp.float32(1 / spread), group, way)
                expected = log_marginal(total, group)
                there = expected > -1e20
                assert np.all(np.asarray(joint)[~there] < -1e20)
                # float32 holds an exponent of a few hundred to 1e-5 and no better
                rounding = 1e-6 * max(1, np.abs(total[total > -1e20]).max())
                np.testing.assert_allclose(np.asarray(joint)[there], expected[there], atol=1e-5 + rounding)


@pytest.mark.parametrize("epsilon", [10.0, 0.2, 0.02, 0.004, 0.001])
def test_float32_agrees_with_float64_from_large_to_small_epsilon(rng, epsilon):
    """0.004 and 0.001 are on the other side of the switch to log-sum-exp: the spread is up to 4/(k² ε)."""
    k, n = 4, 5
    z = np.float32(unit(rng, k, n))
    c = tensor_of(np.float64(z), circular_variance)
    out = multimarginal_sinkhorn(z, epsilon=epsilon, threshold=1e-3, max_iterations=1000)
    log_p = log_plan(c, out.potentials, epsilon)
    mass = np.exp(log_p).sum()
    np.testing.assert_allclose(out.transport_mass, mass, rtol=1e-4 + 1e-6 / epsilon)
    np.testing.assert_allclose(out.error, error_of(c, out.potentials, epsilon), atol=1e-5 + 2e-6 / epsilon)
    expected = np.asarray(out.potentials, np.float64).sum() / n - epsilon * mass
    np.testing.assert_allclose(out.dual, expected, rtol=1e-5)


@pytest.mark.parametrize(("k", "n", "path"), [(3, 6, "pairwise"), (6, 4, "pairwise"), (4, 6, "logsumexp")])
def test_streamed_is_not_streamed(x64, rng, k, n, path):
    """Value and gradient, one row at a time and a divisor of the rows at a time."""
    z = unit(rng, k, n)

    def f(z, block_size):
        out = multimarginal_sinkhorn(
            z, path=path, block_size=block_size, max_iterations=3, threshold=0.0, pair_spread=1.0
        )
        return out.dual

    whole, gradient = jax.value_and_grad(f)(z, None)
    for block_size in (1, 3 * n):
        value, streamed = jax.value_and_grad(f)(z, block_size)
        np.testing.assert_allclose(value, whole, rtol=1e-12)
        np.testing.assert_allclose(streamed, gradient, atol=1e-14)


@pytest.mark.parametrize(
    ("lengths", "width", "elements"), [((6, 6), 6, 100), ((7, 7, 7), 1, 50), ((4,), 100, 10)]
)
def test_blocks_tile_the_index_space(lengths, width, elements):
    sizes = joints.tile_sizes(lengths, width, elements)
    assert all(length % size == 0 for length, size in zip(lengths, sizes))
    partial_axes = [axis for axis, size in enumerate(sizes) if 1 < size < lengths[axis]]
    assert len(partial_axes) <= 1  # or the blocks would not lie one after the other
    assert np.prod(sizes) * width <= elements or np.prod(sizes) == 1


@pytest.mark.parametrize("max_iterations", [1, 7])
def test_the_error_is_that_of_the_last_iterate(x64, rng, max_iterations):
    """ott's solver of 12 forced steps, checked every 10, says converged with marginals off by 1.5."""
    for k in (2, 3, 4):
        z, epsilon = unit(rng, k, 5), 0.01
        out = multimarginal_sinkhorn(
            z, epsilon=epsilon, threshold=1e-6, max_iterations=max_iterations, pair_spread=4 / k**2
        )
        c = tensor_of(z, circular_variance)
        np.testing.assert_allclose(out.error, error_of(c, out.potentials, epsilon), rtol=1e-8)
        assert out.n_iters == max_iterations
        assert out.status == Status.ITERATION_LIMIT
        assert not out.converged
        # the same number of sweeps written plainly
        f = np.zeros((k, 5))
        for _, l in itertools.product(range(max_iterations), range(k)):
            f[l] -= epsilon * (log_marginal(log_plan(c, f, epsilon), (l,)) + np.log(5))
        np.testing.assert_allclose(out.potentials, f, atol=1e-10)


def test_stops_at_the_first_iterate_that_fits(x64, rng):
    z = unit(rng, 4, 6)
    out = multimarginal_sinkhorn(z, epsilon=0.1, threshold=1e-4)
    assert out.converged
    c = tensor_of(z, circular_variance)
    np.testing.assert_allclose(out.error, error_of(c, out.potentials, 0.1), rtol=1e-6)
    assert out.error < 1e-4
    before = multimarginal_sinkhorn(z, epsilon=0.1, threshold=0.0, max_iterations=int(out.n_iters) - 1)
    assert before.error >= 1e-4


def test_epsilon_scheduler_ends_at_its_target(x64, rng):
    z = unit(rng, 3, 8)
    plain = multimarginal_sinkhorn(z, epsilon=0.05, threshold=1e-9, max_iterations=5000)
    scaled = multimarginal_sinkhorn(z, epsilon=Epsilon(0.05, 30.0, 0.7), threshold=1e-9, max_iterations=5000)
    assert scaled.converged
    assert scaled.epsilon == 0.05
    np.testing.assert_allclose(scaled.dual, plain.dual, rtol=1e-9)
    # too short for the schedule: the last sweep and what is reported are those of the target all the same
    short = multimarginal_sinkhorn(z, epsilon=Epsilon(0.01, 30.0, 0.9), max_iterations=2)
    c = tensor_of(z, circular_variance)
    assert not short.converged
    np.testing.assert_allclose(short.error, error_of(c, short.potentials, 0.01), rtol=1e-8)


@pytest.mark.parametrize("epsilon", [1e-3, 10.0])
@pytest.mark.parametrize(
    ("cost", "dtype"),
    [
        ("circular_variance", jnp.float32),
        ("circular_variance", jnp.bfloat16),
        ("circular_standard_deviation", jnp.float32),
    ],
)
def test_hard_embeddings_give_no_nan(rng, epsilon, cost, dtype):
    """Clusters, perfectly aligned views, duplicated points, opposite points, a zero vector."""
    one = unit(rng, 1, 6)
    clusters = np.repeat(unit(rng, 1, 2), 3, axis=1) + 1e-3 * rng.normal(size=(3, 6, 3))
    opposite = np.concatenate([one, -one, one])
    zero = np.array(unit(rng, 3, 6))
    zero[1, 2] = 0
    batch = np.stack([np.tile(one, (3, 1, 1)), clusters, np.tile(one[:, :1], (3, 6, 1)), opposite, zero])

    @jax.jit
    @jax.vmap
    def f(z):
        def value(z):
            out = multimarginal_sinkhorn(z, cost, epsilon=epsilon, max_iterations=200)
            return out.dual, out

        return jax.value_and_grad(value, has_aux=True)(z)

    (value, out), gradient = f(jnp.asarray(batch, dtype))
    assert value.dtype == jnp.float32
    assert np.all(np.isfinite(value))
    assert np.all(np.isfinite(np.asarray(gradient, np.float32)))
    np.testing.assert_array_equal(
        out.status, np.where(out.error < 1e-3, Status.CONVERGED, Status.ITERATION_LIMIT)
    )
    assert out.converged[2]  # one point, repeated: any plan is as good
    np.testing.assert_allclose(out.transport_mass, 1, atol=1e-3 + 1e-6 / epsilon)


def test_not_a_number_is_reported_and_stops():
    z = np.ones((3, 4, 2), np.float32)
    z[0, 0, 0] = np.nan
    out = multimarginal_sinkhorn(z, max_iterations=10**6)
    assert out.status == Status.NOT_FINITE
    assert not out.converged


def test_vmap_is_the_problems_one_by_one(rng):
    z = np.float32(np.stack([unit(rng, 3, 6) for _ in range(3)]))
    epsilon = np.float32([0.5, 0.1, 0.001])  # the last takes the other way

    def f(z, epsilon):
        out = multimarginal_sinkhorn(z, epsilon=epsilon, max_iterations=30)
        return out.dual, out.n_iters

    one = jax.jit(jax.value_and_grad(f, has_aux=True))
    (values, iterations), gradients = jax.jit(jax.vmap(jax.value_and_grad(f, has_aux=True)))(z, epsilon)
    for i in range(3):
        (value, n_iters), gradient = one(z[i], epsilon[i])
        assert iterations[i] == n_iters  # each stops by itself
        np.testing.assert_allclose(values[i], value, rtol=1e-6)
        np.testing.assert_allclose(gradients[i], gradient, atol=1e-6)


@pytest.mark.parametrize(("k", "cost"), [(2, "v"), (3, "v"), (4, "v"), (5, "v"), (3, "dense")])
def test_eight_devices_are_one(x64, rng, k, cost):
    n = 8 if k < 5 else 4
    devices = 8 if k < 5 else 4
    z = unit(rng, k, n)
    cost = {
        "v": "circular_variance",
        "dense": lambda s: jnp.sum(jnp.abs(s[0] - s[-1])),
    }[cost]
    mesh = jax.make_mesh((devices,), ("data",), (AxisType.Auto,), devices=jax.devices()[:devices])

    def f(z, axis_name=None):
        out = multimarginal_sinkhorn(z, cost, axis_name=axis_name, pair_spread=4 / k**2)
        return out.dual, out

    (expected, single), gradient = jax.value_and_grad(f, has_aux=True)(z)
    shared = jax.shard_map(partial(f, axis_name="data"), mesh=mesh, in_specs=P(), out_specs=P())
    (value, out), shared_gradient = jax.jit(jax.value_and_grad(shared, has_aux=True))(z)
    np.testing.assert_allclose(value, expected, rtol=1e-12)
    np.testing.assert_allclose(shared_gradient, gradient, atol=1e-12)
    np.testing.assert_allclose(out.potentials, single.potentials, atol=1e-12)
    assert out.n_iters == single.n_iters


def test_devices_share_the_work():
    """Multiply-adds and temporaries of one device of eight; a pass is one block, so the compiler counts all of it."""
    k, n = 4, 32
    costs = TupleCosts(tuple(jnp.zeros((6, n, n), jnp.float32)))
    mesh = jax.make_mesh((8,), ("data",), (AxisType.Auto,))
    scaled, epsilon = tuple(jnp.zeros((k, n), jnp.float32)), jnp.float32(1)

    def compiled(axis_name):
        work = joints.Work(2**20, axis_name)

        def f(costs, scaled, epsilon):
            joint = joints.log_joint(work, costs, scaled, epsilon, (0, 1), joints.Way.ROWS)
            return joint, joints.pair_marginals(work, costs, scaled, epsilon)

        if axis_name is not None:
            f = jax.shard_map(f, mesh=mesh, in_specs=P(), out_specs=P("data"), check_vma=False)
        return jax.jit(f).lower(costs, scaled, epsilon).compile()

    alone, shared = compiled(None), compiled("data")
    assert shared.cost_analysis()["flops"] < alone.cost_analysis()["flops"] / 6
    assert shared.memory_analysis().temp_size_in_bytes < alone.memory_analysis().temp_size_in_bytes / 4


def test_memory_grows_slower_than_the_tensor():
    """n = 256, k = 4: the tensor has 17 GB, n^(k-1) numbers 67 MB; value and gradient stay below 32 MB."""

    def temporaries(n):
        z = jax.ShapeDtypeStruct((4, n, 8), jnp.float32)
        f = jax.jit(jax.value_and_grad(lambda z: multimarginal_sinkhorn(z).dual))
        return f.lower(z).compile().memory_analysis().temp_size_in_bytes

    assert temporaries(256) < 32 * 2**20


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"z": np.ones((3, 4, 2), np.int32)}, "z must have a floating dtype, got int32"),
        (
            {"z": np.ones((3, 4, 2)), "pair_costs": np.ones((3, 4, 4))},
            "exactly one of z, pair_costs and cost_tensor",
        ),
        ({}, "exactly one of z, pair_costs and cost_tensor must be given, got none"),
        (
            {"pair_costs": np.ones((4, 3, 3))},
            r"pair_costs must hold k\(k-1\)/2 matrices, one for each pair of views, got 4",
        ),
        (
            {"pair_costs": [np.ones((2, 3)), np.ones((2, 4)), np.ones((4, 3))]},
            r"pair_costs must have the shapes .*\(3, 4\)\] for views of \(2, 3, 4\) points",
        ),
        ({"cost_tensor": np.ones(4)}, r"cost_tensor must have shape \(n_1, ..., n_k\) .* got \(4,\)"),
        (
            {"pair_costs": np.ones((3, 4, 4)), "path": "resultant"},
            "path must be one of 'auto', 'pairwise', 'logsumexp'",
        ),
        ({"z": np.ones((3, 4, 2)), "cost": "cosine"}, "cost must be one of 'circular_variance'"),
        ({"z": np.ones((3, 4, 2)), "epsilon": -1.0}, "epsilon must be positive, got -1.0"),
        ({"z": np.ones((3, 4, 2)), "max_iterations": 0}, "max_iterations must be a whole number >= 1, got 0"),
        ({"z": np.ones((3, 4, 2)), "block_size": 0}, "block_size must be None or a whole number >= 1, got 0"),
        (
            {"z": np.ones((8, 512, 2))},
            r"4.72e\+21 tuples.* 9.44e\+21 operations.*n <= 51 with 8 views, or k <= 5 with 512",
        ),
        (
            {"z": np.ones((4, 256, 2)), "path": "dense"},
            r"4.29e\+09 entries .* n <= 215 with 4 views, or a cost that is a",
        ),
    ],
)
def test_bad_arguments_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        multimarginal_sinkhorn(**options)
