"""What the solver returns."""

import dataclasses
import enum
import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike

from mvcl import _checks
from mvcl.transport import _plan
from mvcl.transport._costs import TupleCosts


class Status(enum.IntEnum):
    """Why the iteration stopped."""

    CONVERGED = 0
    ITERATION_LIMIT = 1
    NOT_FINITE = 2
    # Weights that were not known when they were checked are negative, all 0 or of different sums: no plan has them.
    INFEASIBLE = 3


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class SinkhornOutput:
    """What the iteration ended with; of all of it only `dual` carries gradients, and epsilon its own.

    The plan is `P[i_1..i_k] = exp((sum_l f_l[i_l] - C[i_1..i_k]) / epsilon)`. It is never held: what the methods
    return is summed over its entries, a block at a time. A method costs about one pass of the solver unless it says
    otherwise. Names are those of ott's `MMSinkhornOutput` where it has them.

    Attributes:
      potentials: k vectors (n_l,) f, in the unit of the costs; -inf where the weight is 0.
      dual: scalar, the dual objective `sum_l <a_l, f_l> - epsilon transport_mass`. It never exceeds
        `min_P <P, C> + epsilon <P, log P - 1>` and meets it at the optimum, to second order in the error.
      error: scalar, `sum_l ||marginal_l - a_l||_1` of these very potentials.
      errors: (max_iterations,), that error after each sweep; -1 for sweeps that were not made, inf where epsilon had
        just changed.
      transport_mass: scalar, the sum of the plan; that of the weights at the optimum.
      n_iters: int32, sweeps in which every view was updated; the last may have updated half of the views.
      n_passes: int32, passes over the tuples, each for half of the views, with the last, which only measures.
      status: int32, a `Status`.
      epsilon: scalar, the regularisation of the plan.
      a_s: k weight vectors (n_l,).
      costs: the costs of the tuples.
    """

    potentials: tuple[jax.Array, ...]
    dual: jax.Array
    error: jax.Array
    errors: jax.Array
    transport_mass: jax.Array
    n_iters: jax.Array
    n_passes: jax.Array
    status: jax.Array
    epsilon: jax.Array
    a_s: tuple[jax.Array, ...]
    costs: TupleCosts

    @property
    def converged(self) -> jax.Array:
        """Whether `error` is below the threshold."""
        return self.status == Status.CONVERGED

    @property
    def ent_reg_cost(self) -> jax.Array:
        """ott's value, `sum_l <a_l, f_l> + epsilon (1 - mass)`; it counts `<P, log P>`, epsilon more than `dual`."""
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
    def primal(self) -> jax.Array:
        """Scalar, `<P, C> + epsilon <P, log P - 1>` of a plan whose marginals are the weights, bounded from above.

        That plan is the solver's, scaled down where it is too large and filled up where it lacks mass. Where the
        solver's fits, the bound is its value.
        """
        return _plan.primal(self.costs, self._finite, self.a_s, self._constant_epsilon)

    @property
    def gap(self) -> jax.Array:
        """Scalar, `primal - dual`, which is no less than what `dual` is below the minimum; 0 up to rounding at best."""
        return self.primal - self.dual

    @property
    def marginals(self) -> tuple[jax.Array, ...]:
        """The k marginals (n_l,) of the plan."""
        return _plan.marginals(self.costs, self._scaled, self._constant_epsilon)

    def marginal(self, l: int) -> jax.Array:
        """Marginal (n_l,) of the plan on view l."""
        view = self._view("l", l)
        return _plan.joint_marginal(self.costs, self._scaled, self._constant_epsilon, (view,))

    def pair_marginal(self, l: int, m: int) -> jax.Array:
        """Marginal (n_l, n_m) of the plan on views l and m: what of each point is matched with each of the other.

        Raises:
          ValueError: l and m are one view, or not views.
        """
        pair = (self._view("l", l), self._view("m", m))
        if pair[0] == pair[1]:
            raise ValueError(f"l and m must be two views, got {l} and {m}")
        return _plan.joint_marginal(self.costs, self._scaled, self._constant_epsilon, pair)

    def entries(self, indices: ArrayLike) -> jax.Array:
        """Entries (t,) of the plan at t tuples, given as (t, k) whole numbers.

        Raises:
          ValueError: other shapes, or, unless they are traced, indices that no point has.
        """
        return _plan.entries(
            self.costs, self._scaled, self._constant_epsilon, self._tuples("indices", indices)
        )

    def plan(self, max_entries: int = 2**26) -> jax.Array:
        """The whole plan as a tensor (n_1, ..., n_k).

        Raises:
          ValueError: it has more than `max_entries` entries.
        """
        if math.prod(self.shape) > max_entries:
            raise ValueError(
                f"the plan of shape {self.shape} has {math.prod(self.shape):.3g} entries, above "
                f"max_entries={max_entries}; marginal, pair_marginal, entries and partners need no tensor"
            )
        return _plan.plan(self.costs, self._scaled, self._constant_epsilon)

    def partners(self, l: int) -> jax.Array:
        """The most likely tuple of each point of view l: (n_l, k) whole numbers, column l counting up.

        The tuple of the largest entry of the plan among those with the point, found by looking at all n_1 ... n_k
        tuples, which takes no memory but more time than a pass. Of equal entries it is the first.
        """
        return _plan.partners(self.costs, self._scaled, self._constant_epsilon, self._view("l", l))

    def matching_accuracy(
        self, truth: ArrayLike | None = None, present: jax.Array | Sequence[ArrayLike] | None = None
    ) -> jax.Array:
        """Share of the points, of all views, whose most likely tuple is the true one.

        Args:
          truth: (t, k) whole numbers, the true tuples; None for the tuples (i, ..., i) of views of one size. Points
            in no true tuple are not counted.
          present: k boolean vectors (n_l,), the points that are there; None for those of positive weight. Others are
            not counted, nor is what a point is matched with in a view where the true point is not there. For `m3g`
            with a mask it is the mask.

        Raises:
          ValueError: other shapes, None for views of different sizes or, unless they are traced, indices that no point
            has.
        """
        n, k = self.shape[0], self.n_marginals
        if truth is None and len(set(self.shape)) > 1:
            raise ValueError(f"truth must be given for views of different sizes, got sizes {self.shape}")
        true = self._tuples("truth", jnp.tile(jnp.arange(n)[:, None], (1, k)) if truth is None else truth)
        points = [a > 0 for a in self.a_s] if present is None else [jnp.asarray(p) for p in present]
        if [p.shape for p in points] != [(n,) for n in self.shape] or any(p.dtype != bool for p in points):
            raise ValueError(
                f"present must hold boolean vectors of shapes {[(n,) for n in self.shape]}, got "
                f"{[(p.shape, str(p.dtype)) for p in points]}"
            )
        there = jnp.stack([p[true[:, l]] for l, p in enumerate(points)], axis=1)
        right, counted = jnp.zeros((), jnp.int32), jnp.zeros((), jnp.int32)
        for l in range(k):
            found = self.partners(l)[true[:, l]]
            right += jnp.sum(there[:, l] & jnp.all((found == true) | ~there, axis=1))
            counted += jnp.sum(there[:, l])
        return right / jnp.maximum(counted, 1)

    @property
    def _constant_epsilon(self) -> jax.Array:
        return lax.stop_gradient(self.epsilon)

    @property
    def _finite(self) -> tuple[jax.Array, ...]:
        return tuple(jnp.where(a > 0, f, 0) for f, a in zip(self.potentials, self.a_s))

    @property
    def _scaled(self) -> tuple[jax.Array, ...]:
        return _plan.scaled_potentials(self._finite, self.a_s, self._constant_epsilon)

    def _tuples(self, name: str, indices: ArrayLike) -> jax.Array:
        at = jnp.asarray(indices)
        if at.ndim != 2 or at.shape[1] != self.n_marginals or not jnp.issubdtype(at.dtype, jnp.integer):
            raise ValueError(
                f"{name} must be whole numbers of shape (t, {self.n_marginals}), got {at.shape} of {at.dtype}"
            )
        if not isinstance(at, jax.core.Tracer):
            for l, (column, n) in enumerate(zip(np.asarray(at).T, self.shape)):
                if np.any((column < 0) | (column >= n)):
                    raise ValueError(
                        f"{name} must be from 0 to {n - 1} for view {l}, got {column.min()} to {column.max()}"
                    )
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
      out: of `multimarginal_sinkhorn`.
      truth: (t, k) whole numbers, the true tuples, all different; None for the tuples (i, ..., i).
      counted: boolean (t,), False for tuples to leave out; None for none.

    Returns:
      Scalar in [0, 1]: n^(1-k) for n uniform points and a large epsilon, 1 for a plan of the true tuples only. No
      gradient flows through it.

    Raises:
      ValueError: truth of another shape.
    """
    if truth is None:
        truth = jnp.tile(jnp.arange(min(out.shape))[:, None], (1, out.n_marginals))
    shares = out.entries(truth)
    return (
        jnp.sum(shares if counted is None else jnp.where(jnp.asarray(counted), shares, 0))
        / out.transport_mass
    )
