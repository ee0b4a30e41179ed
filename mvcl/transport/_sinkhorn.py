"""Sinkhorn's iteration for k marginals: potentials, the value of the plan, and why it stopped."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike

from mvcl import _checks, _numerics, transport
from mvcl.transport import _problem
from mvcl.transport._blocks import (
    Vectors,
    Way,
    Work,
    any_way,
    default_work,
    logsumexp,
    row_offset,
    spread_bounds,
    spread_of,
)
from mvcl.transport._contraction import Kernels, groups, kernels_of, log_joint, scaled_potentials
from mvcl.transport._costs import CostName, TupleCosts
from mvcl.transport._derivatives import Point, over_devices, potentials_of, slope
from mvcl.transport._output import SinkhornOutput, Status
from mvcl.transport._problem import Problem


def multimarginal_sinkhorn(
    z: ArrayLike | Sequence[ArrayLike] | TupleCosts | None = None,
    cost: "CostName | transport.CostFn | Sequence[transport.CostFn] | _problem.TupleCost" = "circular_variance",
    *,
    a_s: Sequence[ArrayLike | None] | None = None,
    pair_costs: ArrayLike | Sequence[ArrayLike] | None = None,
    cost_tensor: ArrayLike | None = None,
    epsilon: "ArrayLike | transport.Epsilon | None" = None,
    threshold: float = 1e-3,
    max_iterations: int = 2000,
    pair_spread: float | None = None,
    init: Sequence[ArrayLike] | None = None,
    axis_name: str | None = None,
    block_size: int | None = None,
    max_operations: float = 1e14,
) -> SinkhornOutput:
    r"""Entropic optimal transport between k marginals, if it can be without the tensor of all tuples.

        min_P <P, C> + ε <P, log P - 1>  over tensors P whose marginals are a_1, ..., a_k

    by Sinkhorn's iteration `f_l <- f_l - ε (LSE_l((sum f - C) / ε) - log a_l)`, view after view. Piran 2024
    (ICML), Eqs. 8 to 11 and Algorithm 1, which drops `f_l +`.

    The gradient of `dual` is Danskin's: `P` with respect to C, `<P, log P - 1>` with respect to ε, f_l with respect
    to a_l (0 where a_l is 0), at the potentials the iteration ended with; exact at the optimum. A direction in the
    weights must leave the sums of all views equal. Further derivatives, in both modes, differentiate the potentials
    implicitly; before convergence they are those of the plan at hand, as if it were the optimum. `jax.jvp` of
    `jax.grad` holds k(k-1)/2 matrices (n_l, n_m) more, `jax.grad` of `jax.grad` numbers of n_1 ... n_k / max n_l. Under
    `vmap` the problems are solved one after the other.

    Args:
      z: (k, n, d) points, k >= 2, used as they are, or k arrays (n_l, d) of different sizes, or `TupleCosts`. Exactly
        one of z, pair_costs and cost_tensor is given.
      cost: with z: `"circular_variance"`, `1 - ||mean_l z_l||²`; `"circular_standard_deviation"`,
        `-log ||mean_l z_l||²`; a `SumOverPairs`, `Barycenter` or `SphericalBarycenter`; an ott `CostFn`, summed over
        the pairs of views, or k(k-1)/2 of them in the order (0,1), (0,2), ...; or any function of a (k, d) stack,
        which makes the tensor.
      a_s: weights of the points, k vectors (n_l,) in float32 or wider, all of one sum; None, for all or for one of
        them, is 1/n_l. A point of weight 0 is not there, though its costs must be finite. Values are checked; if they
        are traced, bad ones have the status `INFEASIBLE`.
      pair_costs: (k(k-1)/2, n, n) matrices, or as many (n_l, n_m), whose sum is the cost, in that order.
      cost_tensor: (n_1, ..., n_k).
      epsilon: positive regularisation in the unit of the costs, or an ott `Epsilon`, which starts larger and
        decays by the sweep; the result is always that of its target. None is ott's rule, 1/20 of the standard deviation
        of the costs of all tuples, for which they are passed over once; a constant of every derivative.
      threshold: the iteration stops when `sum_l ||marginal_l - a_l||_1`, measured on its current potentials,
        is below.
      max_iterations: sweeps at most; in a sweep every view is updated once.
      pair_spread: a bound on max - min of the costs of any pair of views, where one is known, as 4/k² is for the
        circular variance of unit vectors. With it and an epsilon that is a number, or costs that are not traced, one
        way of summing over the tuples is compiled; else all are, and the costs decide.
      init: k potentials (n_l,) to start from, as those of a similar problem; 0 otherwise and where they are not
        finite. The result is the same up to the threshold.
      axis_name: inside `shard_map`, the mesh axis whose devices share the work. The arguments are whole on
        every device, and so is the result.
      block_size: rows of n numbers held at once; None takes what suits the backend. Same result either way.
      max_operations: a pass that takes more multiply-adds than this, all devices together, is refused.

    Returns:
      A `SinkhornOutput`. For a cost of 0 everywhere and n points of weight 1/n `dual` is
      `-ε (k log n + 1)`.

    Raises:
      ValueError: for wrong shapes and options, for weights that are negative, not finite or of different sums, and
        for a problem above `max_operations`, naming what would fit.

    Example:
      >>> import jax.numpy as jnp
      >>> from mvcl import transport
      >>> out = transport.multimarginal_sinkhorn(cost_tensor=1 - jnp.eye(2), epsilon=0.01)
      >>> print(out.plan())
      [[0.5 0. ]
       [0.  0.5]]
    """
    limit = _checks.whole("max_iterations", max_iterations)
    if not isinstance(threshold, jax.Array) and _checks.real("threshold", threshold) < 0:
        raise ValueError(f"threshold must be >= 0, got {threshold}")
    max_operations = _checks.real("max_operations", max_operations, positive=True)
    block_size = _checks.block_size(block_size)
    costs = _problem.costs_of(z, cost, pair_costs, cost_tensor, max_operations)
    weights = _problem.checked_weights(a_s, costs)
    epsilon = _problem.default_epsilon(costs) if epsilon is None else epsilon
    schedule = epsilon if isinstance(epsilon, transport.Epsilon) else transport.Epsilon(epsilon)
    target = _checks.scalar("epsilon", schedule.target, costs.dtype, positive=True)
    work = default_work() if block_size is None else Work(block_size * max(costs.shape))
    options = _Options(
        work=work._replace(axis_name=axis_name, way=_way(costs, schedule.target, pair_spread)),
        max_iterations=limit,
        epsilon_init=float(schedule.init),
        epsilon_decay=float(schedule.decay),
    )
    tolerance = jnp.asarray(threshold, costs.dtype)
    start = _problem.first_potentials(init, costs)
    return _on_every_device(options, Problem(costs, weights, target, tolerance, start))


class _Options(NamedTuple):
    """All of a problem but its numbers."""

    work: Work
    max_iterations: int
    epsilon_init: float
    epsilon_decay: float


def _way(costs: TupleCosts, epsilon: ArrayLike, pair_spread: float | None) -> Way | None:
    """The way of summing, where it is known before the costs are."""
    if not costs.pairwise or len(costs.shape) == 2:
        return Way.ELEMENTWISE
    if pair_spread is not None and _checks.real("pair_spread", pair_spread) < 0:
        raise ValueError(f"pair_spread must be >= 0, got {pair_spread}")
    known = pair_spread is not None or not any(isinstance(x, jax.core.Tracer) for x in costs.arrays)
    if not known or isinstance(epsilon, jax.core.Tracer):
        return None
    bound = pair_spread if pair_spread is not None else spread_of(costs, jnp.ones((), costs.dtype))
    spread = float(bound) / float(epsilon)  # type: ignore[arg-type]
    return Way(sum(spread <= most for most in spread_bounds(len(costs.shape), costs.dtype)))


def _on_every_device(options: _Options, problem: Problem) -> SinkhornOutput:
    axis_name = options.work.axis_name
    axes = frozenset(jax.tree.leaves(axis_name)).union(*map(_numerics.varying, jax.tree.leaves(problem)))
    shared = jax.tree.map(lambda x: _numerics.vary(x, axes), problem)
    found = _solve(options, _problem.padded(shared, axis_name))
    dual, rest = found.dual, jax.tree.map(lax.stop_gradient, found)
    costs, weights = jax.tree.map(lax.stop_gradient, (problem.costs, problem.weights))
    if axis_name is not None:
        # The same on every device, which these say; and a mean gives each device's copy of the costs its share of
        # the gradient.
        dual = lax.pmean(dual, axis_name)
        rest, costs, weights = jax.tree.map(
            lambda x: lax.pmax(x, axis_name) if axis_name in _numerics.varying(x) else x,
            (rest, costs, weights),
        )
    potentials = tuple(jnp.where(a > 0, f[: len(a)], -jnp.inf) for f, a in zip(rest.potentials, weights))
    return SinkhornOutput(
        potentials=potentials,
        dual=dual,
        error=rest.error,
        errors=rest.errors,
        transport_mass=rest.mass,
        n_iters=((rest.passes + 1) // 2).astype(jnp.int32),
        n_passes=(rest.passes + 1).astype(jnp.int32),
        status=rest.status.astype(jnp.int32),
        epsilon=problem.epsilon,
        a_s=weights,
        costs=costs,
    )


class _End(NamedTuple):
    """The iteration's result; floats throughout, for their tangents."""

    potentials: tuple[jax.Array, ...]
    dual: jax.Array
    error: jax.Array
    errors: jax.Array
    mass: jax.Array
    passes: jax.Array
    status: jax.Array


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _minimum(options: _Options, problem: Problem) -> _End:
    """The iteration's result, of which only `dual` has a derivative."""
    # One problem after the other under vmap: batched, `cond` would take both ways, each run to the longest.
    out = jax.custom_batching.sequential_vmap(partial(_iterate, options))(problem)
    return jax.tree.map(lambda x: x.astype(problem.costs.dtype), out)


@_minimum.defjvp
def _(options: _Options, primals: tuple[Problem], tangents: tuple[Problem]) -> tuple[_End, _End]:
    """Danskin: the derivative of the dual objective at frozen potentials."""
    (problem,), (change,) = primals, tangents
    out = _minimum(options, problem)
    at = Point(problem.costs, problem.epsilon, out.potentials, problem.weights)
    at = at._replace(potentials=potentials_of(options.work, at))
    by_arrays, by_epsilon = over_devices(options.work, slope(options.work, at), problem.epsilon)
    terms = [jnp.sum(d * t) for d, t in zip(by_arrays, change.costs.arrays)]
    terms += [
        jnp.sum(jnp.where(a > 0, f * t, 0)) for f, a, t in zip(at.potentials, problem.weights, change.weights)
    ]
    total = sum(terms, start=by_epsilon * change.epsilon)
    return out, jax.tree.map(jnp.zeros_like, out)._replace(dual=total)


_solve = jax.jit(_minimum, static_argnums=0)


class _Carry(NamedTuple):
    passes: jax.Array  # each measures and updates one group
    potentials: tuple[jax.Array, ...]
    other_error: jax.Array  # of the group updated last, after its update
    previous_epsilon: jax.Array
    error: jax.Array
    errors: jax.Array
    mass: jax.Array
    going: jax.Array


def _iterate(options: _Options, problem: Problem) -> _End:
    """Passes over the two groups in turn until the potentials at hand are measured to fit.

    A pass begins with the joint marginal of its group under the current potentials. Its error and that of the other
    group, known since its update, are the whole error of these potentials: if it is small enough they are the result,
    else the group is updated. So the last iterate is always measured, and measuring costs nothing.
    """

    def run(way: Way) -> _Carry:
        # With a schedule of epsilon each pass has kernels of its own.
        constant = way is Way.KERNELS and options.epsilon_init == 1
        kernels = kernels_of(problem.costs, problem.epsilon) if constant else None
        body = partial(_pass, options, way, kernels, problem)
        return lax.while_loop(lambda carry: carry.going, body, _start(options, problem))

    end = any_way(options.work.way, problem.costs, problem.epsilon, run)
    finite = [jnp.all(jnp.isfinite(x)) for x in (end.error, *end.potentials)]
    converged = end.error < problem.threshold
    status = jnp.where(converged, Status.CONVERGED, Status.ITERATION_LIMIT)
    status = jnp.where(jnp.all(jnp.stack(finite)), status, Status.NOT_FINITE)
    status = jnp.where(_feasible(problem.weights), status, Status.INFEASIBLE)
    terms = [jnp.sum(a * f) for a, f in zip(problem.weights, end.potentials)]
    dual = sum(terms, start=-problem.epsilon * end.mass)
    return _End(end.potentials, dual, end.error, end.errors, end.mass, end.passes, status)


def _feasible(weights: Vectors) -> jax.Array:
    """What `checked_weights` checks, for weights that were traced then."""
    sums, least = (jnp.stack([of(a) for a in weights]) for of in (jnp.sum, jnp.min))
    low, high = jnp.min(sums), jnp.max(sums)
    return jnp.all(least >= 0) & (low > 0) & (high - low <= _problem.SUMS * high)


def _start(options: _Options, problem: Problem) -> _Carry:
    costs = problem.costs
    axes = frozenset().union(*map(_numerics.varying, jax.tree.leaves(problem)))
    start = _Carry(
        passes=jnp.asarray(0),
        potentials=tuple(jnp.where(a > 0, f, 0) for f, a in zip(problem.init, problem.weights)),
        other_error=jnp.asarray(jnp.inf, costs.dtype),
        previous_epsilon=jnp.asarray(jnp.inf, costs.dtype),
        error=jnp.asarray(jnp.inf, costs.dtype),
        errors=jnp.full(options.max_iterations, -1, costs.dtype),
        mass=jnp.asarray(jnp.inf, costs.dtype),
        going=jnp.asarray(True),
    )
    return jax.tree.map(lambda x: _numerics.vary(x, axes), start)


def _pass(options: _Options, way: Way, kernels: Kernels | None, problem: Problem, carry: _Carry) -> _Carry:
    """Measures the group whose turn it is, and updates it unless the potentials fit."""
    costs, weights, epsilon = problem.costs, problem.weights, problem.epsilon
    both, axis_name = groups(len(costs.shape)), options.work.axis_name
    schedule = transport.Epsilon(epsilon, options.epsilon_init, options.epsilon_decay)
    sweep = carry.passes // 2
    # The last sweep is made at the target whatever the schedule says, and so is its measurement.
    eps = jnp.asarray(schedule(sweep))  # type: ignore[arg-type]
    eps = jnp.where(sweep >= options.max_iterations - 1, epsilon, eps).astype(costs.dtype)

    def update(
        group: tuple[int, ...], costs: TupleCosts, potentials: tuple[jax.Array, ...], eps: jax.Array
    ) -> tuple[tuple[jax.Array, ...], jax.Array, jax.Array, jax.Array]:
        scaled = scaled_potentials(potentials, weights, eps)
        joint = log_joint(options.work, costs, scaled, eps, group, way, kernels)
        steps, before, after, mass = _update(options.work, joint, [weights[view] for view in group])
        updated = list(potentials)
        for view, step in zip(group, steps):
            updated[view] = potentials[view] + eps * step
        return tuple(updated), before, after, mass

    updates = [partial(update, group) for group in both]
    updated, before, after, mass = lax.switch(carry.passes % 2, updates, costs, carry.potentials, eps)
    # A marginal known at another epsilon is not known.
    error = jnp.where(eps == carry.previous_epsilon, before + carry.other_error, jnp.inf)
    if axis_name is not None:
        axes = _numerics.varying(epsilon)
        error, mass = (_numerics.vary(lax.pmax(x, axis_name), axes) for x in (error, mass))
    limit = options.max_iterations * 2
    stop = ((error < problem.threshold) & (eps == epsilon)) | (carry.passes >= limit) | jnp.isnan(error)
    last = jnp.maximum((carry.passes + 1) // 2 - 1, 0)  # the sweep that made these potentials
    return _Carry(
        passes=jnp.where(stop, carry.passes, carry.passes + 1),
        potentials=jax.tree.map(partial(jnp.where, stop), carry.potentials, updated),
        other_error=after,
        previous_epsilon=eps,
        error=error,
        errors=carry.errors.at[last].set(jnp.where(carry.passes > 0, error, carry.errors[last])),
        mass=mass,
        going=~stop,
    )


def _update(
    work: Work, joint: jax.Array, weights: Vectors
) -> tuple[list[jax.Array], jax.Array, jax.Array, jax.Array]:
    """Sinkhorn's step for the views of a group, one after the other, from the logarithm of their joint marginal.

    Returns the steps (n_l,) of the potentials over ε, the group's error before and after them, and the mass before.
    """
    rank = joint.ndim
    first = _marginal(work, joint, 0, logsumexp)
    linear = jnp.exp(joint)
    marginals = [jnp.exp(first)] + [_marginal(work, linear, axis, jnp.sum) for axis in range(1, rank)]
    zero = _numerics.vary(jnp.zeros((), joint.dtype), _numerics.varying(joint))
    before = _distance(marginals, weights, zero)
    steps = []
    for axis, a in enumerate(weights):
        found = first if axis == 0 else _marginal(work, joint, axis, logsumexp)
        change = jnp.where(a > 0, _log_weights(a) - found, 0)
        steps.append(change)
        if axis == 0:
            change = lax.dynamic_slice_in_dim(change, row_offset(work, len(a)), joint.shape[0])
        joint = joint + change.reshape([-1 if other == axis else 1 for other in range(rank)])
    # The view updated last fits.
    linear = jnp.exp(joint)
    after = _distance([_marginal(work, linear, axis, jnp.sum) for axis in range(rank - 1)], weights, zero)
    return steps, before, after, jnp.sum(marginals[0])


def _log_weights(a: jax.Array) -> jax.Array:
    """log a where a is positive; for uniform weights the same number however they are given and compiled."""
    n = len(a)
    uniform = jnp.ones((), a.dtype) / jnp.asarray(n, a.dtype)
    return jnp.where(a == uniform, -math.log(n), jnp.log(jnp.where(a > 0, a, 1)))


def _marginal(work: Work, joint: jax.Array, axis: int, total: Callable[..., jax.Array]) -> jax.Array:
    """(n,) marginal of one view of the group, on every device.

    With `logsumexp` from a log-joint, exact however small it is; with `sum` for its absolute error.
    """
    marginal = total(joint, axis=tuple(a for a in range(joint.ndim) if a != axis))
    if work.axis_name is None:
        return marginal
    gathered = lax.all_gather(marginal, work.axis_name, tiled=axis == 0)
    return gathered if axis == 0 else total(gathered, axis=0)


def _distance(marginals: Sequence[jax.Array], weights: Vectors, zero: jax.Array) -> jax.Array:
    """sum_l ||marginal_l - a_l||_1."""
    return sum((jnp.sum(jnp.abs(m - a)) for m, a in zip(marginals, weights)), start=zero)
