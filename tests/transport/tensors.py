"""Weighted multi-marginal transport with the tensor, in float64: what the solver's results are compared with.

A point of weight 0 has the potential -inf and takes no part.
"""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
from ott.geometry import costs

from mvcl.transport import Geometry, MMSinkhorn, Problem

PAIRS = {k: list(itertools.combinations(range(k), 2)) for k in range(2, 9)}


# Compiled as a whole for each shape, which takes less than its operations one by one.
costs_of = jax.jit(Geometry.from_points, static_argnames=("cost", "scale"))


def solution(geometry, cost="circular_variance", *, a_s=None, epsilon=None, init=None, spread=None, **fields):
    """Of points and a cost, or of a `Geometry`, with a bound on its spread; the error is looked at in every pass."""
    if not isinstance(geometry, Geometry):
        geometry = Geometry.from_points(geometry, cost)
    geometry = dataclasses.replace(geometry, pair_spread=spread)
    solver = MMSinkhorn(**{"inner_iterations": 1} | fields)
    return solver.solve(Problem(geometry, a_s, epsilon), init)


def unit(rng, sizes, d=3):
    """Random unit vectors, one (n_l, d) array for each view."""
    points = [rng.normal(size=(n, d)) for n in sizes]
    return [x / np.linalg.norm(x, axis=-1, keepdims=True) for x in points]


def weights(rng, sizes, mass=1.0):
    """Random weights of the same total mass in each view; one point in five, at least one, is not there."""
    out = [rng.uniform(0.2, 1, size=n) for n in sizes]
    for a in out:
        a[rng.permutation(len(a))[: max(1, len(a) // 5)]] = 0
    return [mass * a / a.sum() for a in out]


def circular_variance(z):
    """(n_1, ..., n_k): `1 - ||mean of the tuple||²`."""
    return 1 - _squared_mean(z)


def circular_standard_deviation(z):
    return -np.log(_squared_mean(z))


NAMED = {"circular_variance": circular_variance, "circular_standard_deviation": circular_standard_deviation}


def _squared_mean(z):
    sizes = [len(x) for x in z]
    out = np.empty(sizes)
    for index in itertools.product(*map(range, sizes[:-1])):
        head = sum(x[i] for x, i in zip(z, index))
        out[index] = np.sum(((head + z[-1]) / len(z)) ** 2, axis=-1)
    return out


def of_pairs(matrices, sizes):
    """The tensor whose entries are the sums of the pairs' entries, in the order (0,1), (0,2), ..."""
    shapes = ([n if view in pair else 1 for view, n in enumerate(sizes)] for pair in PAIRS[len(sizes)])
    with jax.numpy_rank_promotion("allow"):
        return sum(matrix.reshape(shape) for matrix, shape in zip(matrices, shapes))


def p_norm(x, y):
    return np.sum(np.abs(x - y) ** 1.5, axis=-1) / 1.5


def cosine(x, y):
    lengths = np.linalg.norm(x, axis=-1) * np.linalg.norm(y, axis=-1)
    return 1 - np.sum(x * y, axis=-1) / (lengths + 1e-8)  # ott's ridge


def squared_distance(x, y):
    return np.sum((x - y) ** 2, axis=-1)


# ott's cost functions and the same written plainly
DIFFERENT = [(costs.PNormP(1.5), p_norm), (costs.Cosine(), cosine), (costs.SqEuclidean(), squared_distance)]


def of_stack(stack):
    """A cost whose tensor is held."""
    return -jnp.log(jnp.sum(jnp.mean(stack, axis=0) ** 2))


def tensor_costs(kind, k):
    """The solver's `cost`, and the function of the points that makes the tensor of costs."""
    if kind in NAMED:
        return kind, NAMED[kind]
    if kind == "a function":
        return of_stack, circular_standard_deviation
    index = PAIRS[k]
    functions = [DIFFERENT[2] if kind == "one CostFn" else DIFFERENT[p % 3] for p in range(len(index))]

    def tensor(z):
        matrices = [plainly(z[l][:, None], z[m][None]) for (_, plainly), (l, m) in zip(functions, index)]
        return of_pairs(matrices, [len(x) for x in z])

    return functions[0][0] if kind == "one CostFn" else tuple(f for f, _ in functions), tensor


def points_and_tensor(rng, sizes, kind):
    """Points, the solver's `cost` for them, and the tensor of costs; unit vectors for a cost by name."""
    z = unit(rng, sizes)
    if "CostFn" in kind:
        z = [0.5 * x * rng.uniform(0.5, 1, size=(len(x), 1)) for x in z]
    cost, tensor = tensor_costs(kind, len(sizes))
    return z, cost, tensor(z)


def along(vector, axis, rank):
    return np.asarray(vector, np.float64).reshape([-1 if a == axis else 1 for a in range(rank)])


def plan_of(cost, potentials, epsilon):
    """`exp((sum_l f_l - C) / epsilon)`."""
    total = sum(along(f, axis, cost.ndim) for axis, f in enumerate(potentials))
    return np.exp((total - cost) / epsilon)


def marginal(tensor, *views):
    """Sum over all other axes; the axes in the order of `views`."""
    out = tensor.sum(axis=tuple(a for a in range(tensor.ndim) if a not in views))
    return out if list(views) == sorted(views) else out.T


def error_of(plan, a_s):
    """sum_l ||marginal_l - a_l||_1."""
    return sum(np.abs(marginal(plan, l) - a).sum() for l, a in enumerate(a_s))


def objective(cost, plan, epsilon):
    """`<P, C> + epsilon <P, log P - 1>`, with 0 log 0 = 0."""
    there = plan > 0
    p = plan[there]
    return np.sum(p * cost[there]) + epsilon * np.sum(p * (np.log(p) - 1))


def sweeps(cost, a_s, epsilon):
    """Sinkhorn's iteration from 0, view after view: yields the potentials after each sweep and the mass it moved.

    At a point that is not there the potential is -inf from the start.
    """
    kernel = np.exp(-cost / epsilon)
    u = [np.where(a > 0, 1.0, 0.0) for a in a_s]
    while True:
        moved = 0.0
        for view, a in enumerate(a_s):
            rest = kernel
            for axis in reversed(range(kernel.ndim)):
                if axis != view:
                    rest = np.tensordot(rest, u[axis], axes=(axis, 0))
            moved += np.abs(a - u[view] * rest).sum()
            u[view] = np.divide(a, rest, out=np.zeros_like(rest), where=a > 0)
        with np.errstate(divide="ignore"):
            yield [epsilon * np.log(v) for v in u], moved


def solve(cost, a_s, epsilon, tolerance=1e-12):
    """Potentials, plan and minimum."""
    f, _ = next(x for x in itertools.islice(sweeps(cost, a_s, epsilon), 20000) if x[1] < tolerance)
    plan = plan_of(cost, f, epsilon)
    assert error_of(plan, a_s) < 1e-9  # a plan of this form with these marginals is the solution
    return f, plan, objective(cost, plan, epsilon)


def assert_same_potentials(got, expected, a_s, atol):
    """Up to constants whose sum over the views is 0; -inf where a point is not there."""
    constants = []
    for f, g, a in zip(got, expected, a_s):
        np.testing.assert_array_equal(f == -np.inf, a == 0)
        difference = np.asarray(f)[a > 0] - np.asarray(g)[a > 0]
        constants.append(np.mean(difference))
        np.testing.assert_allclose(difference, constants[-1], atol=atol)
    np.testing.assert_allclose(sum(constants), 0, atol=atol)
