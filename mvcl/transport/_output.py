"""What the solver returns, and what can be read off it without the tensor of the plan."""

import dataclasses
import math
from collections.abc import Sequence
from functools import partial, reduce

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.special import xlogy
from jax.typing import ArrayLike

from mvcl import _checks, _numerics, transport
from mvcl.transport import _blocks as blocks
from mvcl.transport import _tree
from mvcl.transport._contraction import groups, joint_marginal, marginals, scaled_potentials
from mvcl.transport._costs import Barycenter, SphericalBarycenter, place
from mvcl.transport._geometry import Geometry
from mvcl.transport._problem import Problem, Status

_MOST_ENTRIES = 2**26


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class SinkhornOutput:
    """The solver's result; only `dual` carries gradients, and epsilon its own, unless `use_danskin` is False.

    The plan, never held, is `P[i_1..i_k] = exp((sum_l f_l[i_l] - C[i_1..i_k]) / epsilon)`. Names and meanings are those
    of ott's `MMSinkhornOutput` where it has them.

    Attributes:
      potentials: k vectors (n_l,) f, in the unit of the costs; -inf where the weight is 0.
      dual: scalar, the dual objective `sum_l <a_l, f_l> - epsilon transport_mass`. It never exceeds the minimum that
        `Problem` has, and meets it at the optimum, to second order in the error. A view with `tau` or `unmatched` has
        `ρ <a, 1 - exp(-f / ρ)>` in place of `<a, f>`, and f at most its price.
      error: scalar, `sum_l ||marginal_l - a_l||_p` of these very potentials, p = `norm_error`. With `tau` a_l is
        `a_l exp(-f_l / ρ_l)`; what is below it at a point whose f is the price of unmatched weight does not count.
      errors: (max_iterations / inner_iterations,), that error after each `inner_iterations` sweeps; -1 where they were
        not made, inf where epsilon had just changed.
      transport_mass: scalar, the sum of the plan.
      n_iters, n_passes: int32, sweeps over the views, and passes over the tuples, each for half of the views, with the
        last, which only measures.
      status: int32, a `Status`.
      problem: geometry, weights (n_l,) of all k views, and epsilon, a scalar.
      threshold, inner_iterations, use_danskin: the solver's.
    """

    potentials: tuple[jax.Array, ...]
    dual: jax.Array
    error: jax.Array
    errors: jax.Array
    transport_mass: jax.Array
    n_iters: jax.Array
    n_passes: jax.Array
    status: jax.Array
    threshold: jax.Array
    problem: Problem
    inner_iterations: int = dataclasses.field(metadata={"static": True})
    use_danskin: bool = dataclasses.field(metadata={"static": True})

    @property
    def epsilon(self) -> jax.Array:
        """Scalar, the regularisation of the plan."""
        return self.problem.epsilon  # type: ignore[return-value]

    @property
    def a_s(self) -> tuple[jax.Array, ...]:
        """k weight vectors (n_l,)."""
        return self.problem.a_s  # type: ignore[return-value]

    @property
    def geometry(self) -> Geometry:
        """The costs of the tuples."""
        return self.problem.geometry

    @property
    def x_s(self) -> tuple[jax.Array, ...]:
        """The k point clouds (n_l, d); ValueError if the problem has only costs."""
        if self.geometry.x_s is None:
            what = "the geometry must be made by Geometry.from_points to have points"
            raise ValueError(f"{what}, got costs alone")
        return self.geometry.x_s

    @property
    def cost_fns(self) -> "transport.CostFn | Sequence[transport.CostFn] | None":
        """The ott `CostFn`, or those of the pairs of views; None for other costs."""
        return self.geometry.cost_fns

    @property
    def converged(self) -> jax.Array:
        """Whether `error` is below the threshold."""
        return self.status == Status.CONVERGED

    @property
    def ent_reg_cost(self) -> jax.Array:
        """`dual + epsilon`: of ott's `MMSinkhorn` the value, `sum_l <a_l, f_l> + epsilon (1 - mass)`."""
        return self.dual + self.epsilon

    @property
    def shape(self) -> tuple[int, ...]:
        """Numbers of points (n_1, ..., n_k)."""
        return tuple(a.shape[-1] for a in self.a_s)

    @property
    def n_marginals(self) -> int:
        """k."""
        return len(self.a_s)

    @property
    @jax.jit
    def primal_cost(self) -> jax.Array:
        """Scalar, `<P, C>` of the plan at hand, without the entropy, as in ott's `SinkhornOutput`."""
        (costs, scaled, epsilon), k = self._plan, self.n_marginals
        if costs.pairwise:  # of each pair's marginal and its matrix
            joints = [joint_marginal(costs, scaled, epsilon, pair) for pair in costs.pairs]
            return reduce(jnp.add, [_mean(joint, matrix) for joint, matrix in zip(joints, costs.arrays)])
        group, rest = groups(k)

        def block(tiles: blocks.Tiles) -> jax.Array:
            plan = jnp.exp(blocks.exponent_block(costs, scaled, epsilon, tiles))
            return _mean(plan, blocks.cost_block(costs, tiles), axis=tuple(range(len(group), k)))

        return jnp.sum(blocks.over_blocks(blocks.default_work(), costs.shape, group, rest, block))

    @property
    @jax.jit
    def primal_bound(self) -> jax.Array:
        """Scalar, a bound of `<P, C> + epsilon <P, log P - 1>` from above, of a plan whose marginals are the weights.

        It is the solver's, every view scaled down to its weights, and the product of what its marginals then lack.
        ValueError for a problem with `tau` or `unmatched`.
        """
        if self.problem.tau is not None or self.problem.unmatched is not None:
            what = "primal_bound and gap need marginals that must be the weights"
            raise ValueError(f"{what}, got tau or unmatched")
        (costs, scaled, epsilon), weights = self._plan, self.a_s
        found = marginals(costs, scaled, epsilon)
        log_a, log_m = ([jnp.log(jnp.where(x > 0, x, 1)) for x in of] for of in (weights, found))
        lower = [jnp.where(a > 0, jnp.minimum(l - m, 0), 0) for a, l, m in zip(weights, log_a, log_m)]
        scaled = tuple(f + step for f, step in zip(scaled, lower))
        found = marginals(costs, scaled, epsilon)
        total, mass = jnp.sum(weights[0]), jnp.sum(found[0])
        of_views = [epsilon * jnp.sum(jnp.where(a > 0, m * f, 0)) for a, m, f in zip(weights, found, scaled)]
        of_plan = reduce(jnp.add, of_views)
        rest = [jnp.maximum(a - m, 0) for a, m in zip(weights, found)]
        lacking = jnp.maximum(total - mass, 0)
        some = lacking > 0
        q = jnp.where(some, lacking, 1)
        left = [e / jnp.maximum(jnp.sum(e), jnp.finfo(costs.dtype).tiny) for e in rest]
        shares = [jnp.where(some, e, a / total) for e, a in zip(left, weights)]
        entropy = reduce(jnp.add, [jnp.sum(xlogy(e, e)) for e in shares])
        of_product = q * (_mean_cost(costs, shares) + epsilon * (entropy + jnp.log(total)))
        of_plan += epsilon * mass * jnp.log(total / mass)
        return of_plan + jnp.where(some, of_product, 0) - epsilon * total

    @property
    def gap(self) -> jax.Array:
        """Scalar, `primal_bound - dual`: at least what `dual` is below the minimum; 0 up to rounding at best."""
        return self.primal_bound - self.dual

    @property
    def marginals(self) -> tuple[jax.Array, ...]:
        """The k marginals (n_l,) of the plan."""
        return marginals(*self._plan)

    def marginal(self, l: int) -> jax.Array:
        """Marginal (n_l,) of the plan on view l."""
        return joint_marginal(*self._plan, (self._view("l", l),))

    def pair_marginal(self, l: int, m: int) -> jax.Array:
        """Marginal (n_l, n_m) of the plan on two views: how much of each point is matched with each of the other."""
        pair = (self._view("l", l), self._view("m", m))
        if pair[0] == pair[1]:
            raise ValueError(f"l and m must be two views, got {l} and {m}")
        return joint_marginal(*self._plan, pair)

    def entries(self, indices: ArrayLike) -> jax.Array:
        """Entries (t,) of the plan at t tuples, given as (t, k) whole numbers that are checked unless traced."""
        return _entries(self, self._tuples("indices", indices))

    @property
    @jax.jit
    def tensor(self) -> jax.Array:
        """The whole plan (n_1, ..., n_k); ValueError for more than 2^26 entries."""
        if math.prod(self.shape) > _MOST_ENTRIES:
            raise ValueError(
                f"the plan of shape {self.shape} has {math.prod(self.shape):.3g} entries, above "
                f"{_MOST_ENTRIES}; marginal, pair_marginal, entries and partners need no tensor"
            )
        costs, scaled, epsilon = self._plan
        terms = [place(f, (view,), self.n_marginals) for view, f in enumerate(scaled)]
        return jnp.exp(reduce(jnp.add, terms, -costs.tensor() / epsilon))

    def partners(self, l: int) -> jax.Array:
        """The most likely tuple of each point of view l, of equal ones the first: (n_l, k) whole numbers."""
        return _partners(self, self._view("l", l))

    def matching_accuracy(
        self, truth: ArrayLike | None = None, present: jax.Array | Sequence[ArrayLike] | None = None
    ) -> jax.Array:
        """Share of the points, of all views, whose most likely tuple is the true one.

        Args:
          truth: (t, k) whole numbers, the true tuples; None for the tuples (i, ..., i) of views of one size.
          present: k boolean vectors (n_l,), the points that count, as the mask of `m3g`; None for positive weights.
        """
        n, k = self.shape[0], self.n_marginals
        if truth is None and len(set(self.shape)) > 1:
            raise ValueError(f"truth must be given for views of different sizes, got sizes {self.shape}")
        true = self._tuples("truth", jnp.tile(jnp.arange(n)[:, None], (1, k)) if truth is None else truth)
        points = [a > 0 for a in self.a_s] if present is None else [jnp.asarray(p) for p in present]
        if [p.shape for p in points] != [(n,) for n in self.shape] or any(p.dtype != bool for p in points):
            what = f"present must hold boolean vectors of shapes {[(n,) for n in self.shape]}"
            raise ValueError(f"{what}, got {[(p.shape, str(p.dtype)) for p in points]}")
        there = jnp.stack([p[true[:, l]] for l, p in enumerate(points)], axis=1)
        right = jnp.zeros((), jnp.int32)
        for l in range(k):
            found = self.partners(l)[true[:, l]]
            right += jnp.sum(there[:, l] & jnp.all((found == true) | ~there, axis=1))
        return right / jnp.maximum(jnp.sum(there), 1)

    def conditional_means(self, view: int) -> jax.Array:
        """Means of the points of every view that a point of one view is matched with, `E[x_m | i]` under the plan.

            sum_j P_lm[i, j] x_m,j / sum_j P_lm[i, j],    P_lm the marginal of the plan on views l = `view` and m

        The barycentric projection of the points of view l is `cost.point(out.conditional_means(l))` for a `Barycenter`
        or `SphericalBarycenter`.

        Returns:
          (k, n_l, d): for view m the means; for m = l the points themselves. 0 for a point of weight 0.
        """
        view, found = self._view("view", view), list(self.x_s)
        if self.geometry.edges is not None:
            found = list(_tree.conditional_means(*self._plan, view, self.x_s))
        else:
            for other in {*range(self.n_marginals)} - {view}:
                joint = self.pair_marginal(view, other)
                mass = jnp.sum(joint, axis=1)[:, None]
                means = _numerics.inner("ij,jd->id", joint, self.x_s[other])
                found[other] = means / jnp.where(mass > 0, mass, 1)
        return jnp.stack([jnp.where(self.a_s[view][:, None] > 0, x, 0) for x in found])

    def barycenter(
        self, cost: Barycenter | SphericalBarycenter, indices: ArrayLike | None = None
    ) -> tuple[jax.Array, jax.Array]:
        """Support points and masses of the barycentre: the point b of every tuple, with the tuple's mass in the plan.

        Args:
          cost: the cost of the problem.
          indices: (t, k) whole numbers, the tuples to take, as `partners(0)`; None for all, as in `tensor`.

        Returns:
          (t, d) points and (t,) masses, which sum to the mass of the plan if the tuples are all.
        """
        if indices is None:
            masses, at = self.tensor.reshape(-1), jnp.indices(self.shape).reshape(self.n_marginals, -1).T
        else:
            at = self._tuples("indices", indices)
            masses = self.entries(at)
        return cost.point(jnp.stack([x[at[:, l]] for l, x in enumerate(self.x_s)])), masses

    @property
    def _plan(self) -> tuple[Geometry, tuple[jax.Array, ...], jax.Array]:
        """Costs, potentials over epsilon, and epsilon, without its gradient."""
        finite = tuple(jnp.where(a > 0, f, 0) for f, a in zip(self.potentials, self.a_s))
        epsilon = lax.stop_gradient(self.epsilon) if self.use_danskin else self.epsilon
        return self.geometry.bare, scaled_potentials(finite, self.a_s, epsilon), epsilon

    def _tuples(self, name: str, indices: ArrayLike) -> jax.Array:
        at = jnp.asarray(indices)
        if at.ndim != 2 or at.shape[1] != self.n_marginals or not jnp.issubdtype(at.dtype, jnp.integer):
            what = f"{name} must be whole numbers of shape (t, {self.n_marginals})"
            raise ValueError(f"{what}, got {at.shape} of {at.dtype}")
        if not isinstance(at, jax.core.Tracer):
            for l, (column, n) in enumerate(zip(np.asarray(at).T, self.shape)):
                if np.any((column < 0) | (column >= n)):
                    what = f"{name} must be from 0 to {n - 1} for view {l}"
                    raise ValueError(f"{what}, got {column.min()} to {column.max()}")
        return at

    def _view(self, name: str, view: int) -> int:
        if not 0 <= _checks.whole(name, view, 0) < self.n_marginals:
            raise ValueError(f"{name} must be a view from 0 to {self.n_marginals - 1}, got {view}")
        return int(view)


def true_tuple_mass(
    out: SinkhornOutput, truth: ArrayLike | None = None, counted: ArrayLike | None = None
) -> jax.Array:
    """Share of the plan's mass on the true tuples, `sum_t P[t] / sum P`.

    Args:
      out: of the solver.
      truth: (t, k) whole numbers, the true tuples, all different; None for the tuples (i, ..., i).
      counted: boolean (t,), False for tuples to leave out; None for none.

    Returns:
      Scalar in [0, 1]: n^(1-k) for n uniform points and a large epsilon, 1 for a plan of the true tuples only.
    """
    if truth is None:
        truth = jnp.tile(jnp.arange(min(out.shape))[:, None], (1, out.n_marginals))
    shares = out.entries(truth)
    shares = shares if counted is None else jnp.where(jnp.asarray(counted), shares, 0)
    return jnp.sum(shares) / out.transport_mass


@jax.jit
def _entries(out: SinkhornOutput, indices: jax.Array) -> jax.Array:
    costs, scaled, epsilon = out._plan
    exponent = reduce(jnp.add, [f[indices[:, l]] for l, f in enumerate(scaled)])
    return jnp.exp(exponent - costs.entries(indices) / epsilon)


@partial(jax.jit, static_argnums=1)
def _partners(out: SinkhornOutput, view: int) -> jax.Array:
    costs, scaled, epsilon = out._plan
    if costs.edges is not None:
        return _tree.partners(costs, scaled, epsilon, view)
    shape, work = costs.shape, blocks.default_work()
    others = [other for other in range(len(shape)) if other != view]
    joined = len(others) // 2
    group, rest = (view, *others[:joined]), tuple(others[joined:])

    def exponents(tiles: blocks.Tiles) -> jax.Array:
        sizes = [tiles[v][1] for v in group]
        return blocks.exponent_block(costs, scaled, epsilon, tiles).reshape(*sizes, -1)

    def place_in_rest(starts: Sequence[jax.Array]) -> jax.Array:
        tiles: blocks.Tiles = {v: (start, 1) for v, start in zip(group, starts)}
        return jnp.argmax(exponents(tiles | {v: (jnp.int32(0), shape[v]) for v in rest}))

    # Only the maxima: with their places, which XLA does not vectorise on CPU, the sweep took nine times as long.
    largest = blocks.over_blocks(work, shape, group, rest, lambda tiles: jnp.max(exponents(tiles), axis=-1))
    best = jnp.argmax(largest.reshape(shape[view], -1), axis=1)
    joined_shape = tuple(shape[v] for v in group[1:])
    found = (jnp.arange(shape[view]), *(jnp.unravel_index(best, joined_shape) if joined else ()))
    found = tuple(x.astype(jnp.int32) for x in found)
    # The place in the rest, among the tuples of the one group index of each point.
    at = lax.map(place_in_rest, found)
    index = dict(zip((*group, *rest), (*found, *jnp.unravel_index(at, [shape[v] for v in rest]))))
    return jnp.stack([index[v].astype(jnp.int32) for v in range(len(shape))], axis=1)


def _mean(plan: jax.Array, cost: jax.Array, axis: tuple[int, ...] | None = None) -> jax.Array:
    """Sum of plan times cost; an entry of 0 has no cost, which may be infinite."""
    return jnp.sum(jnp.where(plan > 0, plan * cost, 0), axis=axis)


def _mean_cost(costs: Geometry, shares: blocks.Vectors) -> jax.Array:
    """Mean cost of tuples of independent points; the shares of a view's points sum to 1."""
    shape = costs.shape
    if costs.pairwise:
        terms = [shares[l] @ matrix @ shares[m] for matrix, (l, m) in zip(costs.arrays, costs.pairs)]
        return jnp.sum(jnp.stack(terms))
    group, rest = groups(len(shape))

    def block(tiles: blocks.Tiles) -> jax.Array:
        mean = blocks.cost_block(costs, tiles)
        for view in reversed(rest):
            mean = mean @ shares[view]
        return mean

    mean = blocks.over_blocks(blocks.default_work(), shape, group, rest, block)
    for view in reversed(group):
        mean = mean @ shares[view]
    return mean
