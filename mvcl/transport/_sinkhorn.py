"""Sinkhorn's iteration for k marginals: potentials, the value of the plan, and why it stopped."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from mvcl import _numerics
from mvcl.transport import _tree
from mvcl.transport._blocks import Vectors, Way, Work, any_way, logsumexp, row_offset
from mvcl.transport._contraction import Kernels, groups, kernels_of, log_joint, scaled_potentials
from mvcl.transport._derivatives import over_devices, potentials_of, slope
from mvcl.transport._geometry import Geometry
from mvcl.transport._problem import SUMS, Given, Penalty, Status, values


class Options(NamedTuple):
    """All of a problem but its numbers."""

    work: Work
    norm_error: float
    inner_iterations: int
    min_iterations: int
    max_iterations: int
    epsilon_decay: float
    scheduled: bool  # whether the caller chose how epsilon decays; else it is constant where kernels are used


class End(NamedTuple):
    """The iteration's result; floats throughout, for their tangents."""

    potentials: tuple[jax.Array, ...]
    dual: jax.Array
    error: jax.Array
    errors: jax.Array
    mass: jax.Array
    passes: jax.Array
    status: jax.Array


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def minimum(options: Options, problem: Given) -> End:
    """The iteration's result, of which only `dual` has a derivative."""
    # One problem after the other under vmap: batched, `cond` would take both ways, each run to the longest.
    out = jax.custom_batching.sequential_vmap(partial(_iterate, options))(problem)
    return jax.tree.map(lambda x: x.astype(problem.costs.dtype), out)


@minimum.defjvp
def _(options: Options, primals: tuple[Given], tangents: tuple[Given]) -> tuple[End, End]:
    """Danskin: the derivative of the dual objective at frozen potentials."""
    (problem,), (change,) = primals, tangents
    out = minimum(options, problem)
    at = problem._replace(potentials=out.potentials)
    at = at._replace(potentials=potentials_of(options.work, at))
    by_arrays, by_epsilon = over_devices(options.work, slope(options.work, at), problem.epsilon)
    terms = [jnp.sum(d * t) for d, t in zip(by_arrays, change.costs.arrays)]
    of_views = lambda penalties, weights: values(penalties, weights, at.potentials)  # noqa: E731
    terms += jax.jvp(of_views, (problem.penalties, problem.weights), (change.penalties, change.weights))[1]
    total = sum(terms, start=by_epsilon * change.epsilon)
    return out, jax.tree.map(jnp.zeros_like, out)._replace(dual=total)


solve = jax.jit(minimum, static_argnums=0)


class _Carry(NamedTuple):
    passes: jax.Array  # each measures and updates one group
    potentials: tuple[jax.Array, ...]
    other_error: jax.Array  # of the group updated last, after its update
    previous_epsilon: jax.Array
    error: jax.Array
    errors: jax.Array
    mass: jax.Array
    going: jax.Array


def _iterate(options: Options, problem: Given) -> End:
    """Passes over the two groups in turn until the potentials at hand are measured to fit.

    A pass begins with the joint marginal of its group. Its error and that of the other group, known since its update,
    are that of the potentials: if it is small they are the result, else the group is updated. So measuring is free.
    """

    dtype, axes = problem.costs.dtype, frozenset().union(*map(_numerics.varying, jax.tree.leaves(problem)))

    def run(way: Way) -> _Carry:
        # With a schedule of epsilon each pass has kernels of its own.
        constant = way is Way.KERNELS and not options.scheduled
        kernels = kernels_of(problem.costs, problem.epsilon) if constant else None
        body = partial(_pass, options, way, kernels, problem)
        start = _Carry(
            passes=jnp.asarray(0),
            potentials=tuple(jnp.where(a > 0, f, 0) for f, a in zip(problem.potentials, problem.weights)),
            other_error=jnp.asarray(jnp.inf, dtype),
            previous_epsilon=jnp.asarray(jnp.inf, dtype),
            error=jnp.asarray(jnp.inf, dtype),
            errors=jnp.full(-(-options.max_iterations // options.inner_iterations), -1, dtype),
            mass=jnp.asarray(jnp.inf, dtype),
            going=jnp.asarray(True),
        )
        start = jax.tree.map(lambda x: _numerics.vary(x, axes), start)
        return lax.while_loop(lambda carry: carry.going, body, start)

    end = any_way(options.work.way, problem.costs, problem.epsilon, run)
    finite = [jnp.all(jnp.isfinite(x)) for x in (end.error, *end.potentials)]
    converged = end.error < problem.threshold
    exponents = sum([jnp.max(jnp.abs(f)) for f in end.potentials], start=0 * end.error) / problem.epsilon
    rounded = jnp.finfo(dtype).eps * exponents > problem.threshold
    status = jnp.where(rounded, Status.ROUNDING, Status.ITERATION_LIMIT)
    status = jnp.where(converged, Status.CONVERGED, status)
    status = jnp.where(jnp.all(jnp.stack(finite)), status, Status.NOT_FINITE)
    # What `checked_weights` checks, for weights that were traced then.
    sums, least = (jnp.stack([of(a) for a in problem.weights]) for of in (jnp.sum, jnp.min))
    must = [(p.slack == 0) & (p.price == jnp.inf) for p in problem.penalties or ()]
    fixed = jnp.stack(must) if must else True
    low, high = jnp.min(sums, where=fixed, initial=jnp.inf), jnp.max(sums, where=fixed, initial=0)
    feasible = jnp.all(least >= 0) & jnp.all(sums > 0) & (high - low <= SUMS * high)
    status = jnp.where(feasible, status, Status.INFEASIBLE)
    terms = values(problem.penalties, problem.weights, end.potentials)
    dual = sum(terms, start=-problem.epsilon * end.mass)
    return End(end.potentials, dual, end.error, end.errors, end.mass, end.passes, status)


def _pass(options: Options, way: Way, kernels: Kernels | None, problem: Given, carry: _Carry) -> _Carry:
    """Measures the group whose turn it is, and updates it unless the potentials fit."""
    costs, weights, epsilon = problem.costs, problem.weights, problem.epsilon
    both, axis_name = groups(len(costs.shape)), options.work.axis_name
    sweep = carry.passes // 2
    multiple = jnp.maximum(problem.epsilon_init * options.epsilon_decay**sweep, 1)
    # The last sweep is made at the target whatever the schedule says, and so is its measurement.
    eps = jnp.where(sweep >= options.max_iterations - 1, epsilon, multiple * epsilon).astype(costs.dtype)

    def update(
        group: tuple[int, ...], costs: Geometry, potentials: tuple[jax.Array, ...], eps: jax.Array
    ) -> tuple[tuple[jax.Array, ...], jax.Array, jax.Array, jax.Array]:
        penalties = problem.penalties or (None,) * len(weights)
        fits = [Fit(weights[view], potentials[view], eps, penalties[view]) for view in group]
        scaled = scaled_potentials(potentials, weights, eps)
        if costs.edges:
            fits, before, after, mass = _update_of_tree(options, costs, scaled, fits, group)
        else:
            joint = log_joint(options.work, costs, scaled, eps, group, way, kernels)
            fits, before, after, mass = _update(options.work, joint, fits, options.norm_error)
        updated = list(potentials)
        for view, fit in zip(group, fits):
            updated[view] = fit.potentials
        return tuple(updated), before, after, mass

    updates = [partial(update, group) for group in both]
    updated, before, after, mass = lax.switch(carry.passes % 2, updates, costs, carry.potentials, eps)
    # A marginal known at another epsilon is not known.
    error = jnp.where(eps == carry.previous_epsilon, before + carry.other_error, jnp.inf)
    if axis_name is not None:
        axes = _numerics.varying(epsilon)
        error, mass = (_numerics.vary(lax.pmax(x, axis_name), axes) for x in (error, mass))
    inner, at_limit = options.inner_iterations, carry.passes >= options.max_iterations * 2
    checked = (carry.passes % (2 * inner) == 0) | jnp.asarray(inner == 1)  # else after every half of a sweep
    checked &= sweep >= options.min_iterations
    stop = (checked & (error < problem.threshold) & (eps == epsilon)) | at_limit | jnp.isnan(error)
    last = jnp.maximum((carry.passes + 1) // 2 - 1, 0) // inner  # the sweep that made these potentials
    recorded = (carry.passes > 0) & (checked | at_limit)
    return _Carry(
        passes=jnp.where(stop, carry.passes, carry.passes + 1),
        potentials=jax.tree.map(partial(jnp.where, stop), carry.potentials, updated),
        other_error=after,
        previous_epsilon=eps,
        error=error,
        errors=carry.errors.at[last].set(jnp.where(recorded, error, carry.errors[last])),
        mass=mass,
        going=~stop,
    )


class Fit(NamedTuple):
    """A view, as its step takes it."""

    weights: jax.Array
    potentials: jax.Array
    epsilon: jax.Array
    penalty: Penalty | None

    def step(self, log_marginal: jax.Array) -> tuple["Fit", jax.Array]:
        """The view after its step, and the change (n_l,) of its potentials over ε."""
        change = jnp.where(self.weights > 0, _log_weights(self.weights) - log_marginal, 0)
        potentials = self.potentials + self.epsilon * change
        if self.penalty is not None:
            potentials = self.penalty.step(potentials, self.epsilon)
            change = (potentials - self.potentials) / self.epsilon
        return self._replace(potentials=potentials), change

    def away(self, marginal: jax.Array) -> jax.Array:
        """How much each point's part of the marginal is off."""
        if self.penalty is None:
            return jnp.abs(marginal - self.weights)
        return self.penalty.away(marginal, self.weights, self.potentials)


def _update(
    work: Work, joint: jax.Array, fits: Sequence[Fit], norm_error: float
) -> tuple[list[Fit], jax.Array, jax.Array, jax.Array]:
    """Sinkhorn's step for a group, view after view: the views, the error before and after, the mass before."""
    rank = joint.ndim
    first = _marginal(work, joint, 0, logsumexp)
    linear = jnp.exp(joint)
    marginals = [jnp.exp(first)] + [_marginal(work, linear, axis, jnp.sum) for axis in range(1, rank)]
    zero = _numerics.vary(jnp.zeros((), joint.dtype), _numerics.varying(joint))
    before = distance(marginals, fits, norm_error, zero)
    fits = list(fits)
    for axis, fit in enumerate(fits):
        found = first if axis == 0 else _marginal(work, joint, axis, logsumexp)
        fits[axis], change = fit.step(found)
        if axis == 0:
            change = lax.dynamic_slice_in_dim(change, row_offset(work, len(change)), joint.shape[0])
        joint = joint + change.reshape([-1 if other == axis else 1 for other in range(rank)])
    # The view updated last fits.
    linear = jnp.exp(joint)
    fitted = [_marginal(work, linear, axis, jnp.sum) for axis in range(rank - 1)]
    return fits, before, distance(fitted, fits, norm_error, zero), jnp.sum(marginals[0])


def _update_of_tree(
    options: Options, costs: Geometry, scaled: Vectors, fits: Sequence[Fit], group: Sequence[int]
) -> tuple[list[Fit], jax.Array, jax.Array, jax.Array]:
    """The same by messages along the edges; those that two views share are computed once, by the compiler."""

    def marginals_of(views: Sequence[int]) -> list[jax.Array]:
        return [jnp.exp(_tree.messages(costs, scaled, epsilon, view)[0]) for view in views]

    scaled, fits, epsilon = list(scaled), list(fits), fits[0].epsilon
    marginals = marginals_of(group)
    before = distance(marginals, fits, options.norm_error, 0 * epsilon)
    for place, view in enumerate(group):
        fits[place], change = fits[place].step(_tree.messages(costs, scaled, epsilon, view)[0])
        scaled[view] += change
    after = distance(marginals_of(group[:-1]), fits, options.norm_error, 0 * epsilon)
    return fits, before, after, jnp.sum(marginals[0])


def _log_weights(a: jax.Array) -> jax.Array:
    """log a where a is positive; for uniform weights the same number however they are given and compiled."""
    n = len(a)
    uniform = jnp.ones((), a.dtype) / jnp.asarray(n, a.dtype)
    return jnp.where(a == uniform, -math.log(n), jnp.log(jnp.where(a > 0, a, 1)))


def _marginal(work: Work, joint: jax.Array, axis: int, total: Callable[..., jax.Array]) -> jax.Array:
    """(n,) of one view of the group, on every device; with `logsumexp` exact however small it is."""
    marginal = total(joint, axis=tuple(a for a in range(joint.ndim) if a != axis))
    if work.axis_name is None:
        return marginal
    gathered = lax.all_gather(marginal, work.axis_name, tiled=axis == 0)
    return gathered if axis == 0 else total(gathered, axis=0)


def distance(marginals: Vectors, fits: Sequence[Fit], norm_error: float, zero: jax.Array) -> jax.Array:
    """sum_l ||marginal_l - a_l||_p."""
    away = [fit.away(m) for m, fit in zip(marginals, fits)]
    of_views = [jnp.sum(x) if norm_error == 1 else jnp.sum(x**norm_error) ** (1 / norm_error) for x in away]
    return sum(of_views, start=zero)
