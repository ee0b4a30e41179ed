"""Weighted marginals of different sizes: every path against ott's MMSinkhorn and a plain dense solver."""

from functools import partial

import jax
import numpy as np
import pytest
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P
from ott.experimental import mmsinkhorn

from mvcl.transport import Epsilon, Status, multimarginal_sinkhorn
from tests.transport import tensors

TIGHT = {"threshold": 1e-10, "max_iterations": 5000}
SIZES = {2: (40, 33), 3: (11, 40, 9), 4: (3, 12, 25, 5), 5: (3, 13, 4, 5, 6)}
OTT = mmsinkhorn.MMSinkhorn(threshold=1e-9, max_iterations=20000)


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


@pytest.mark.parametrize(
    "kind", ["circular_variance", "circular_standard_deviation", "one CostFn", "a CostFn for each pair"]
)
@pytest.mark.parametrize("k", [2, 3, 4, 5])
def test_48_random_problems(x64, k, kind):
    """Three of each; the points of weight 0 are different ones in each, and none in the last."""
    for draw, epsilon in enumerate([0.05, 0.2, 1.0]):
        rng = np.random.default_rng([k, draw])
        z, cost, tensor = tensors.points_and_tensor(rng, SIZES[k], kind)
        a_s = tensors.weights(rng, SIZES[k], zeros=draw < 2)
        out = multimarginal_sinkhorn(z, cost, a_s=a_s, epsilon=epsilon, **TIGHT)
        with jax.numpy_rank_promotion("allow"):
            potentials, value, marginals = ott_solution(tensor, tuple(a_s), epsilon)
        assert out.converged
        assert out.shape == SIZES[k]
        assert out.n_marginals == k
        assert_same_potentials(out.potentials, potentials, a_s)
        np.testing.assert_allclose(out.ent_reg_cost, value, rtol=1e-7, atol=1e-7)
        for got, theirs, a in zip(out.marginals, marginals, a_s):
            np.testing.assert_allclose(got, theirs, atol=1e-7)
            np.testing.assert_allclose(got, a, atol=1e-7)
        np.testing.assert_allclose(
            tensors.error_of(tensors.plan_of(tensor, out.potentials, epsilon), a_s), out.error, atol=1e-10
        )


def test_points_of_weight_0_are_not_there(x64, rng):
    """The solution is that of the problem without them, wherever they are."""
    sizes, epsilon = (7, 5, 6), 0.1
    z, a_s = tensors.unit(rng, sizes), tensors.weights(rng, sizes)
    far = [np.where(a[:, None] > 0, x, 1e3) for x, a in zip(z, a_s)]
    present = [(x[a > 0], a[a > 0]) for x, a in zip(z, a_s)]
    for cost in ("circular_variance", "circular_standard_deviation"):
        solve = partial(multimarginal_sinkhorn, cost=cost, epsilon=epsilon, **TIGHT)
        without = solve([x for x, _ in present], a_s=[a for _, a in present])
        out = solve(far, a_s=a_s)
        assert out.converged
        np.testing.assert_allclose(out.dual, without.dual, rtol=1e-10)
        for f, g, a in zip(out.potentials, without.potentials, a_s):
            np.testing.assert_allclose(f[a > 0], g, atol=1e-8)


PATHS = [
    ("circular_variance", "pairwise", (5, 7, 4)),
    ("circular_variance", "logsumexp", (9, 7)),
    ("circular_variance", "logsumexp", (5, 3, 4, 7)),
    ("circular_variance", "resultant", (5, 7, 4)),
    ("circular_variance", "dense", (3, 5, 4, 2)),
    ("circular_standard_deviation", "resultant", (5, 3, 4, 7)),
    ("circular_standard_deviation", "dense", (5, 7, 4)),
    ("one CostFn", "pairwise", (2, 3, 2, 4, 3, 5)),
    ("one CostFn", "logsumexp", (5, 7, 4)),
    ("one CostFn", "dense", (5, 7)),
]


@pytest.mark.parametrize(("kind", "path", "sizes"), PATHS)
def test_paths(x64, rng, kind, path, sizes):
    """Each path has the solution; streamed one row at a time, it has the same."""
    z, cost, tensor = tensors.points_and_tensor(rng, sizes, kind)
    a_s = tensors.weights(rng, sizes)
    f, plan, minimum = tensors.solve(tensor, a_s, 0.2)
    for block_size in (None, 1):
        out = multimarginal_sinkhorn(z, cost, a_s=a_s, epsilon=0.2, path=path, block_size=block_size, **TIGHT)
        assert out.converged
        assert_same_potentials(out.potentials, f, a_s, atol=1e-8)
        np.testing.assert_allclose(out.dual, minimum, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(tensors.plan_of(tensor, out.potentials, 0.2), plan, atol=1e-9)


@pytest.mark.parametrize("given", ["pair_costs", "cost_tensor"])
def test_given_costs(x64, rng, given):
    """Matrices and a tensor of different sizes; entries of any sign."""
    sizes = (4, 6, 3, 5)
    index = tensors.PAIRS[len(sizes)]
    matrices = [rng.normal(size=(sizes[l], sizes[m])) for l, m in index]
    tensor = tensors.of_pairs(matrices, sizes)
    a_s = tensors.weights(rng, sizes)
    f, _, minimum = tensors.solve(tensor, a_s, 0.5)
    given_costs = {"pair_costs": matrices, "cost_tensor": tensor}[given]
    out = multimarginal_sinkhorn(**{given: given_costs}, a_s=a_s, epsilon=0.5, **TIGHT)
    assert_same_potentials(out.potentials, f, a_s, atol=1e-8)
    np.testing.assert_allclose(out.dual, minimum, rtol=1e-9)


def test_weights_of_another_total_and_none(x64, rng):
    """Total mass 2.5 in every view; None stands for uniform weights, as in ott."""
    sizes = (5, 7, 4)
    z = tensors.unit(rng, sizes)
    tensor = tensors.circular_variance(z)
    a_s = tensors.weights(rng, sizes, mass=2.5)
    f, _, minimum = tensors.solve(tensor, a_s, 0.2)
    out = multimarginal_sinkhorn(z, a_s=a_s, **TIGHT)
    assert_same_potentials(out.potentials, f, a_s, atol=1e-8)
    np.testing.assert_allclose(out.dual, minimum, rtol=1e-9)
    np.testing.assert_allclose(out.transport_mass, 2.5, rtol=1e-9)

    mixed = [None, a_s[1] / 2.5, None]
    given = [np.full(5, 1 / 5), a_s[1] / 2.5, np.full(4, 1 / 4)]
    f, _, minimum = tensors.solve(tensor, given, 0.2)
    out = multimarginal_sinkhorn(z, a_s=mixed, **TIGHT)
    assert_same_potentials(out.potentials, f, given, atol=1e-8)
    for got, expected in zip(out.a_s, given):
        np.testing.assert_allclose(got, expected, rtol=1e-15)


def test_uniform_weights_are_the_default(x64, rng):
    z = np.stack(tensors.unit(rng, (5, 5, 5)))
    plain = multimarginal_sinkhorn(z, **TIGHT)
    weighted = multimarginal_sinkhorn(list(z), a_s=np.full((3, 5), 0.2), **TIGHT)
    assert plain.n_iters == weighted.n_iters
    np.testing.assert_allclose(weighted.dual, plain.dual, rtol=1e-13)
    for f, g in zip(weighted.potentials, plain.potentials):
        np.testing.assert_allclose(f, g, atol=1e-13)


@pytest.mark.parametrize(
    ("kind", "path", "sizes"),
    [
        ("circular_variance", "pairwise", (11, 9)),
        ("circular_variance", "pairwise", (5, 9, 17)),
        ("circular_variance", "pairwise", (11, 3, 13, 2)),
        ("circular_variance", "logsumexp", (5, 9, 17)),
        ("circular_standard_deviation", "auto", (11, 3, 13, 2)),
        ("circular_standard_deviation", "dense", (5, 9, 17)),
    ],
)
def test_eight_devices_are_one(x64, rng, kind, path, sizes):
    """Sizes that are no multiples of 8 and below it, zeros among the weights: value, gradient and potentials."""
    z, cost, _ = tensors.points_and_tensor(rng, sizes, kind)
    a_s = tensors.weights(rng, sizes)
    mesh = jax.make_mesh((8,), ("data",), (AxisType.Auto,))

    def f(z, a_s, axis_name=None):
        out = multimarginal_sinkhorn(
            z, cost, a_s=a_s, path=path, axis_name=axis_name, threshold=1e-5, pair_spread=1.0
        )
        return out.dual, (out.potentials, out.n_iters, out.error)

    (expected, single), gradient = jax.jit(jax.value_and_grad(f, has_aux=True))(z, a_s)
    shared = jax.shard_map(partial(f, axis_name="data"), mesh=mesh, in_specs=P(), out_specs=P())
    (value, out), shared_gradient = jax.jit(jax.value_and_grad(shared, has_aux=True))(z, a_s)
    np.testing.assert_allclose(value, expected, rtol=1e-11)
    for got, alone in zip(shared_gradient, gradient):
        np.testing.assert_allclose(got, alone, atol=1e-11)
    for got, alone in zip(out[0], single[0]):
        np.testing.assert_allclose(got, alone, atol=1e-11)
    assert out[1] == single[1]
    np.testing.assert_allclose(out[2], single[2], atol=1e-11)


@pytest.mark.parametrize("sizes", [(13, 6), (5, 7, 4), (3, 4, 5, 2)])
def test_iterates_are_those_of_the_plain_iteration(x64, rng, sizes):
    """Status and error after a number of sweeps that does not suffice, with weights."""
    z, a_s, epsilon = tensors.unit(rng, sizes), tensors.weights(rng, sizes), 0.01
    tensor = tensors.circular_variance(z)
    iterates = tensors.sweeps(tensor, a_s, epsilon)
    for count in range(1, 4):
        f, _ = next(iterates)
        if count == 2:
            continue
        out = multimarginal_sinkhorn(z, a_s=a_s, epsilon=epsilon, threshold=1e-9, max_iterations=count)
        assert out.status == Status.ITERATION_LIMIT
        assert not out.converged
        assert out.n_iters == count
        error = tensors.error_of(tensors.plan_of(tensor, f, epsilon), a_s)
        np.testing.assert_allclose(out.error, error, rtol=1e-8)
        for got, expected in zip(out.potentials, f):
            np.testing.assert_allclose(got, expected, atol=1e-10)


def test_stops_at_the_first_sweep_that_fits(x64, rng):
    sizes = (5, 7, 4)
    z, a_s = tensors.unit(rng, sizes), tensors.weights(rng, sizes)
    tensor = tensors.circular_variance(z)
    out = multimarginal_sinkhorn(z, a_s=a_s, epsilon=0.05, threshold=1e-4)
    assert out.status == Status.CONVERGED
    assert out.error < 1e-4
    error = tensors.error_of(tensors.plan_of(tensor, out.potentials, 0.05), a_s)
    np.testing.assert_allclose(out.error, error, rtol=1e-6)
    before = multimarginal_sinkhorn(
        z, a_s=a_s, epsilon=0.05, threshold=1e-4, max_iterations=int(out.n_iters) - 1
    )
    assert before.error >= 1e-4
    broken = [x.copy() for x in z]
    broken[1][np.argmax(a_s[1])] = np.nan
    assert multimarginal_sinkhorn(broken, a_s=a_s).status == Status.NOT_FINITE


def test_epsilon_schedule_has_the_same_solution(x64, rng):
    sizes = (5, 7, 4)
    z, a_s = tensors.unit(rng, sizes), tensors.weights(rng, sizes)
    f, _, minimum = tensors.solve(tensors.circular_variance(z), a_s, 0.03)
    out = multimarginal_sinkhorn(z, a_s=a_s, epsilon=Epsilon(0.03, 30.0, 0.7), **TIGHT)
    assert out.converged
    assert out.epsilon == 0.03
    assert_same_potentials(out.potentials, f, a_s, atol=1e-7)
    np.testing.assert_allclose(out.dual, minimum, rtol=1e-9)


def test_start_at_the_solution(x64, rng):
    """From the potentials of a solved problem one sweep is enough; -inf at points of weight 0 is accepted."""
    sizes = (5, 7, 4)
    z, a_s = tensors.unit(rng, sizes), tensors.weights(rng, sizes)
    f, _, minimum = tensors.solve(tensors.circular_variance(z), a_s, 0.05)
    out = multimarginal_sinkhorn(z, a_s=a_s, epsilon=0.05, init=f, threshold=1e-8)
    assert out.converged
    assert out.n_iters <= 1
    np.testing.assert_allclose(out.dual, minimum, rtol=1e-9)


THREE = [np.ones((n, 2)) for n in (4, 5, 3)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"a_s": [np.ones(4), np.ones(5), np.ones(3)]}, r"a_s must .* total mass.* got .*4.*5.*3"),
        ({"a_s": [None, np.full(5, 0.3), None]}, r"a_s must .* total mass.* got .*1\.5"),
        ({"a_s": [None, [1.2, -0.2, 0, 0, 0], None]}, r"a_s\[1\] must .* got -0\.2"),
        ({"a_s": [None, None, [np.nan, 0.5, 0.5]]}, r"a_s\[2\] must .* got .*nan"),
        ({"a_s": [None, None, [np.inf, 0.5, 0.5]]}, r"a_s\[2\] must .* got .*inf"),
        ({"a_s": [np.zeros(4), None, None]}, r"a_s\[0\] must .* (positive|> 0)"),
        ({"a_s": [np.zeros(4), np.zeros(5), np.zeros(3)]}, r"a_s\[0\] must .* (positive|> 0)"),
        ({"a_s": [None, np.full(4, 0.25), None]}, r"a_s\[1\] must have shape \(5,\), got \(4,\)"),
        ({"a_s": [None, np.full((5, 1), 0.2), None]}, r"a_s\[1\] must have shape \(5,\), got \(5, 1\)"),
        ({"a_s": [None, None]}, r"a_s must .* 3 .* got 2"),
        ({"a_s": np.full((3, 5), 0.2)}, r"a_s\[0\] must have shape \(4,\), got \(5,\)"),
        ({"init": [np.zeros(4), np.zeros(5)]}, r"init must .* 3 .* got 2"),
        (
            {"init": [np.zeros(4), np.zeros(5), np.zeros(5)]},
            r"init\[2\] must have shape \(3,\), got \(5,\)",
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
        ({"z": [np.ones((4, 2)), np.ones((3, 3))]}, r"z\[1\] must .* got \(3, 3\)"),
        ({"z": [np.ones((4, 2)), np.ones(3)]}, r"z\[1\] must .* got \(3,\)"),
        (
            {"z": [np.ones((4, 2)), np.ones((3, 2), np.int32)]},
            r"z\[1\] must have a floating dtype, got int32",
        ),
        ({"pair_costs": [np.ones((4, 3)), np.ones((4, 5))]}, r"pair_costs must .* k\(k-1\)/2.* got 2"),
        (
            {"pair_costs": [np.ones((4, 3)), np.ones((4, 5)), np.ones((5, 3))]},
            r"pair_costs\[2\] must have shape \(3, 5\), got \(5, 3\)",
        ),
        ({"cost_tensor": np.ones(4)}, r"cost_tensor must .* got \(4,\)"),
    ],
)
def test_bad_costs_of_different_sizes_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        multimarginal_sinkhorn(**options)
