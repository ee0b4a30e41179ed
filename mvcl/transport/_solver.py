"""The solver: `MMSinkhorn`, with the fields and the call of ott's, and the function over its parts."""

import dataclasses
from collections.abc import Sequence
from functools import reduce
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike

from mvcl import _checks, _numerics, transport
from mvcl.transport import _problem, _sinkhorn, _tree
from mvcl.transport._blocks import Way, Work, default_work, spread_bounds, spread_of
from mvcl.transport._contraction import marginals, scaled_potentials
from mvcl.transport._costs import CostName, PairForm
from mvcl.transport._derivatives import implicit
from mvcl.transport._geometry import Geometry, TupleCost, check_operations
from mvcl.transport._output import SinkhornOutput
from mvcl.transport._problem import Given, Problem, Status, checked_penalties

# Without a schedule of the caller's: where the exponents of a pair have a spread above the first number, epsilon starts
# where they have the second, and decays so by the sweep. Ours.
_WIDE, _FIRST, _DECAY = 128.0, 5.0, 0.75


def multimarginal_sinkhorn(
    z: ArrayLike | Sequence[ArrayLike] | Geometry,
    cost: "CostName | PairForm | transport.CostFn | Sequence[transport.CostFn] | TupleCost" = "circular_variance",
    a_s: Sequence[ArrayLike | None] | None = None,
    epsilon: "ArrayLike | transport.Epsilon | None" = None,
    *,
    threshold: ArrayLike = 1e-3,
    max_iterations: int = 2000,
    init: Sequence[ArrayLike] | None = None,
) -> SinkhornOutput:
    """`MMSinkhorn(...).solve(Problem(Geometry.from_points(z, cost), a_s, epsilon), init)`, with one inner iteration.

    `z` is points, or a `Geometry`, for which `cost` does not count.

    Example:
      >>> import jax.numpy as jnp
      >>> from mvcl import transport
      >>> geometry = transport.Geometry.from_tensor(1 - jnp.eye(2))
      >>> print(transport.multimarginal_sinkhorn(geometry, epsilon=0.01).tensor)
      [[0.5 0. ]
       [0.  0.5]]
    """
    geometry = z if isinstance(z, Geometry) else Geometry.from_points(z, cost)
    solver = MMSinkhorn(threshold=threshold, inner_iterations=1, max_iterations=max_iterations)
    return solver.solve(Problem(geometry, a_s, epsilon), init)


def _static(default: Any) -> Any:
    return dataclasses.field(default=default, metadata={"static": True})


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class MMSinkhorn:
    r"""Entropic optimal transport between k marginals, if it can be without the tensor of all tuples.

        min_P <P, C> + ε <P, log P - 1>  over tensors P whose marginals are a_1, ..., a_k

    by Sinkhorn's iteration `f_l <- f_l - ε (LSE_l((sum f - C) / ε) - log a_l)`, view after view. Piran 2024
    (ICML), Eqs. 8 to 11 and Algorithm 1, which drops `f_l +`. Fields, defaults and call are those of ott's
    `MMSinkhorn`; with a constant epsilon so are the iterates. Where a `Problem` has penalties, the step ends with
    `f_l <- min(f_l / (1 + ε / ρ_l), λ_l)`.

    Where the spread of a pair's costs, max - min, is more than 128 times epsilon, epsilon starts at a fifth of the
    spread and decays by 3/4 a sweep; not with `init`, an ott `Epsilon` or a cost that is a function of a sum.

    The gradient of `dual` is Danskin's: `P` with respect to C, `<P, log P - 1>` with respect to ε, f_l with respect
    to a_l (0 where a_l is 0), at the potentials the iteration ended with; exact at the optimum. A direction in the
    weights must leave the sums of all views equal. With τ_l < 1, ρ_l depends on ε. Further derivatives, in both modes,
    differentiate the potentials implicitly, as if the plan at hand were the optimum. Under `vmap` the problems are
    solved one after the other.

    Attributes:
      threshold: the iteration stops when `sum_l ||marginal_l - a_l||_p`, measured on its current potentials, is below.
      norm_error: p.
      inner_iterations: sweeps between two looks at the error, which costs nothing; 1 looks after each half of a sweep.
      min_iterations: sweeps before the first look.
      max_iterations: sweeps at most; in a sweep every view is updated once.
      use_danskin: False gives `potentials`, and with them `dual` and all that is read from the plan, their implicit
        derivatives; ott differentiates its iterations.
      axis_name: inside `shard_map`, the mesh axis whose devices share the work; arguments and result are whole on each.
      block_size: rows of n numbers held at once; None takes what suits the backend. Same result either way.
      max_operations: a pass that takes more multiply-adds than this, all devices together, is refused.
    """

    threshold: ArrayLike = 1e-3
    norm_error: float = _static(1.0)
    inner_iterations: int = _static(10)
    min_iterations: int = _static(0)
    max_iterations: int = _static(2000)
    use_danskin: bool = _static(True)
    axis_name: str | None = _static(None)
    block_size: int | None = _static(None)
    max_operations: float = _static(1e14)

    def __call__(
        self,
        x_s: ArrayLike | Sequence[ArrayLike],
        a_s: Sequence[ArrayLike | None] | None = None,
        cost_fns: "CostName | PairForm | transport.CostFn | Sequence[transport.CostFn] | TupleCost | None" = None,
        epsilon: "ArrayLike | transport.Epsilon | None" = None,
    ) -> SinkhornOutput:
        """The solution for points and costs, as `Geometry.from_points` takes them; None is ott's `SqEuclidean`."""
        cost = transport.SqEuclidean() if cost_fns is None else cost_fns
        return self.solve(Problem(Geometry.from_points(x_s, cost), a_s, epsilon))

    def solve(self, problem: Problem, init: Sequence[ArrayLike] | None = None) -> SinkhornOutput:
        """The solution of a problem.

        Args:
          problem: its geometry, weights and epsilon.
          init: k potentials (n_l,) to start from, 0 where not finite. The result is the same up to the threshold.

        Returns:
          A `SinkhornOutput`. For a cost of 0 everywhere and n points of weight 1/n `dual` is `-ε (k log n + 1)`.

        Raises:
          ValueError: wrong shapes and options, weights that are negative, not finite or of different sums, and a
            problem above `max_operations`, naming what would fit.
        """
        options, given = self._given(problem, init)
        axis_name = self.axis_name
        axes = frozenset(jax.tree.leaves(axis_name)).union(*map(_numerics.varying, jax.tree.leaves(given)))
        shared = jax.tree.map(lambda x: _numerics.vary(x, axes), given)
        by_edges = given.costs.edges and given.penalties is None
        found = (self._end_of_tree if by_edges else self._end)(options, shared)
        dual, parts = found.dual, (found, problem.geometry, given.weights)
        rest, geometry, weights = jax.tree.map(lax.stop_gradient, parts) if self.use_danskin else parts
        if axis_name is not None:
            # The same on every device, which these say; and a mean gives each device's copy of the costs its share of
            # the gradient.
            dual = lax.pmean(dual, axis_name)
            rest, geometry, weights = jax.tree.map(
                lambda x: lax.pmax(x, axis_name) if axis_name in _numerics.varying(x) else x,
                (rest, geometry, weights),
            )
        return SinkhornOutput(
            potentials=tuple(jnp.where(a > 0, f, -jnp.inf) for f, a in zip(rest.potentials, weights)),
            dual=dual,
            error=rest.error,
            errors=rest.errors,
            transport_mass=rest.mass,
            n_iters=((rest.passes + 1) // 2).astype(jnp.int32),
            n_passes=(rest.passes + 1).astype(jnp.int32),
            status=rest.status.astype(jnp.int32),
            threshold=lax.stop_gradient(given.threshold),
            problem=dataclasses.replace(problem, geometry=geometry, a_s=weights, epsilon=given.epsilon),
            inner_iterations=self.inner_iterations,
            use_danskin=self.use_danskin,
        )

    def _end(self, options: _sinkhorn.Options, given: Given) -> _sinkhorn.End:
        """What the iteration ends with; `dual` has derivatives, and the potentials unless `use_danskin`."""
        padded = _problem.padded(given, self.axis_name)
        found = _sinkhorn.solve(options, padded)
        rest = jax.tree.map(lax.stop_gradient, found)._replace(dual=found.dual)
        if not self.use_danskin:
            potentials, dual = implicit(options.work, padded._replace(potentials=rest.potentials))
            rest = rest._replace(potentials=potentials, dual=dual)
        return rest._replace(potentials=tuple(f[: len(a)] for f, a in zip(rest.potentials, given.weights)))

    def _end_of_tree(self, options: _sinkhorn.Options, given: Given) -> _sinkhorn.End:
        """The same for a tree of costs, from the problems of its edges."""
        costs, weights, ends = given.costs, given.weights, []
        # To first order the error of a view is at most the sum of those of the edges.
        threshold = given.threshold / (len(weights) * len(costs.pairs))
        for edge, matrix in zip(costs.pairs, costs.arrays):
            of_edge = given._replace(
                costs=Geometry((matrix,)),
                weights=tuple(weights[view] for view in edge),
                potentials=tuple(given.potentials[view] for view in edge),
                threshold=threshold,
            )
            ends.append(self._end(options, of_edge))
        potentials, dual = _tree.potentials_and_dual(costs, weights, given.epsilon, ends)
        held, held_costs, held_weights = jax.tree.map(lax.stop_gradient, (potentials, costs, weights))
        epsilon = lax.stop_gradient(given.epsilon)
        found = marginals(held_costs, scaled_potentials(held, held_weights, epsilon), epsilon)
        fits = [_sinkhorn.Fit(a, f, epsilon, None) for a, f in zip(held_weights, held)]
        error = _sinkhorn.distance(found, fits, options.norm_error, 0 * epsilon)
        worst = reduce(jnp.maximum, [end.status for end in ends])
        ended = jnp.maximum(worst, Status.ITERATION_LIMIT)
        made = reduce(jnp.maximum, [end.errors for end in ends]) >= 0
        errors = sum([jnp.where(end.errors >= 0, end.errors, end.error) for end in ends], start=0 * epsilon)
        return _sinkhorn.End(
            potentials=potentials,
            dual=dual,
            error=error,
            errors=jnp.where(made, errors, -1),
            mass=jnp.sum(found[0]),
            passes=reduce(jnp.maximum, [end.passes for end in ends]),
            status=jnp.where((worst <= Status.ROUNDING) & (error < given.threshold), Status.CONVERGED, ended),
        )

    def _given(self, problem: Problem, init: Sequence[ArrayLike] | None) -> tuple[_sinkhorn.Options, Given]:
        """The checked numbers of a problem, and the rest."""
        if not isinstance(self.threshold, jax.Array) and _checks.real("threshold", self.threshold) < 0:
            raise ValueError(f"threshold must be >= 0, got {self.threshold}")
        block_size, costs = _checks.block_size(self.block_size), problem.geometry.bare
        check_operations(costs, _checks.real("max_operations", self.max_operations, positive=True))
        epsilon = _problem.default_epsilon(costs) if problem.epsilon is None else problem.epsilon
        given = isinstance(epsilon, transport.Epsilon)
        schedule: Any = epsilon if given else transport.Epsilon(epsilon, 1.0, _DECAY)
        target = _checks.scalar("epsilon", schedule.target, costs.dtype, positive=True)
        penalties, fixed = checked_penalties(problem.tau, problem.unmatched, len(costs.shape), target)
        weights = _problem.checked_weights(problem.a_s, costs, fixed)
        work = default_work() if block_size is None else Work(block_size * max(costs.shape))
        way = _way(costs, schedule.target)
        start = jnp.asarray(schedule.init, costs.dtype)  # a multiple of epsilon
        if not given and init is None and costs.of_sum is None and way is not Way.KERNELS:
            spread, wide = lax.stop_gradient(spread_of(costs, target)), _WIDE
            if way is not Way.ELEMENTWISE:  # kernels are those of one epsilon
                wide = max(wide, spread_bounds(len(costs.shape), costs.dtype)[1])
            start = jnp.where(spread > wide, spread / _FIRST, 1).astype(costs.dtype)
        options = _sinkhorn.Options(
            work=work._replace(axis_name=self.axis_name, way=way),
            norm_error=_checks.real("norm_error", self.norm_error, positive=True),
            inner_iterations=_checks.whole("inner_iterations", self.inner_iterations),
            min_iterations=_checks.whole("min_iterations", self.min_iterations, 0),
            max_iterations=_checks.whole("max_iterations", self.max_iterations),
            epsilon_decay=float(schedule.decay),
            scheduled=given and schedule.init != 1,
        )
        threshold = jnp.asarray(self.threshold, costs.dtype)
        first = _problem.first_potentials(init, costs)
        return options, Given(costs, weights, target, threshold, first, start, penalties)


def _way(costs: Geometry, epsilon: ArrayLike) -> Way | None:
    """The way of summing, where it is known before the costs are."""
    pair_spread = costs.pair_spread
    if not costs.pairwise or len(costs.shape) == 2 or costs.edges:
        return Way.ELEMENTWISE
    if pair_spread is not None and _checks.real("pair_spread", pair_spread) < 0:
        raise ValueError(f"pair_spread must be >= 0, got {pair_spread}")
    known = pair_spread is not None or not any(isinstance(x, jax.core.Tracer) for x in costs.arrays)
    if not known or isinstance(epsilon, jax.core.Tracer):
        return None
    bound = pair_spread if pair_spread is not None else spread_of(costs, jnp.ones((), costs.dtype))
    spread = float(bound) / float(epsilon)  # type: ignore[arg-type]
    return Way(sum(spread <= most for most in spread_bounds(len(costs.shape), costs.dtype)))
