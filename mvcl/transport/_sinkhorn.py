"""Sinkhorn's iteration for k marginals: potentials, the value of the plan, and why it stopped."""

import enum
import math
import numbers
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Literal, NamedTuple, NoReturn, TypeVar

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike

from mvcl import _checks, _numerics
from mvcl.transport import _costs, _ott
from mvcl.transport._joints import (
    Form,
    bilinear_spread_bound,
    log_joint,
    logsumexp,
    pair_marginals,
    row_offset,
)

if TYPE_CHECKING:
    from ott.geometry.costs import CostFn
    from ott.geometry.epsilon_scheduler import Epsilon

CostName = Literal["circular_variance", "circular_standard_deviation"]
Path = Literal["auto", "pairwise", "logsumexp", "resultant", "dense"]
OfSum = Callable[[jax.Array, int], jax.Array]
Result = TypeVar("Result")

# Numbers of one block; what a core of a CPU keeps in its cache.
_CPU_BLOCK, _ACCELERATOR_BLOCK = 2**18, 2**26
_DENSE_LIMIT = 2**31


class Status(enum.IntEnum):
    """Why the iteration stopped."""

    CONVERGED = 0
    ITERATION_LIMIT = 1
    NOT_FINITE = 2


class SinkhornOutput(NamedTuple):
    """What the iteration ended with; only `value` and `matched_cost` carry gradients.

    Attributes:
      potentials: (k, n) f, in the unit of the costs; the plan is
        `exp((sum_l f_l[i_l] - C[i_1..i_k]) / epsilon)`.
      value: scalar, the dual objective `mean_i sum_l f_li - epsilon mass`. It never exceeds
        `min_P <P, C> + epsilon <P, log P - 1>` and meets it at the optimum, to second order in the error.
      matched_cost: scalar, `mean_i C[i..i]`: what matching the i-th points of all views costs.
      error: scalar, `sum_l ||marginal_l - 1/n||_1` of these very potentials.
      mass: scalar, the sum of the plan; 1 at the optimum.
      n_iters: int32, sweeps in which every view was updated.
      status: int32, a `Status`.
      epsilon: scalar, the regularisation of the plan.
    """

    potentials: jax.Array
    value: jax.Array
    matched_cost: jax.Array
    error: jax.Array
    mass: jax.Array
    n_iters: jax.Array
    status: jax.Array
    epsilon: jax.Array

    @property
    def converged(self) -> jax.Array:
        """Whether `error` is below the threshold."""
        return self.status == Status.CONVERGED

    @property
    def ent_reg_cost(self) -> jax.Array:
        """ott's value, `mean_i sum_l f_li + epsilon (1 - mass)`; it counts `<P, log P>`, epsilon more."""
        return self.value + self.epsilon


def multimarginal_sinkhorn(
    z: ArrayLike | None = None,
    cost: "CostName | CostFn | Sequence[CostFn] | _costs.TupleCost" = "circular_variance",
    *,
    pair_costs: ArrayLike | None = None,
    cost_tensor: ArrayLike | None = None,
    epsilon: "ArrayLike | Epsilon" = 0.2,
    threshold: float = 1e-3,
    max_iterations: int = 100,
    path: Path = "auto",
    pair_spread: float | None = None,
    axis_name: str | None = None,
    block_size: int | None = None,
    max_operations: float = 1e14,
) -> SinkhornOutput:
    r"""Entropic optimal transport between k uniform marginals of n points, if it can be without the tensor.

        min_P <P, C> + ε <P, log P - 1>  over tensors P whose k marginals are 1/n

    by Sinkhorn's iteration `f_l <- f_l - ε (LSE_l((sum f - C) / ε) + log n)`, view after view. Piran 2024
    (ICML), Eqs. 8 to 11 and Algorithm 1, which drops `f_l +`. How the marginals come about is at the head of
    `_joints.py`.

    The gradient of `value` is Danskin's: `P` with respect to C, `<P, log P - 1>` with respect to ε, taken at
    the potentials the iteration ended with; exact at the optimum. Its blocks are streamed like those of the
    forward pass. Under `vmap` the problems are solved one after the other, so that each stops by itself and
    memory is that of one.

    Args:
      z: (k, n, d) embeddings, k >= 2, n >= 2, used as they are. Exactly one of z, pair_costs and cost_tensor
        is given.
      cost: with z: `"circular_variance"`, `1 - ||mean_l z_l||²`; `"circular_standard_deviation"`,
        `-log ||mean_l z_l||²`; an ott `CostFn`, summed over the pairs of views, or k(k-1)/2 of them in the
        order (0,1), (0,2), ...; or any function of a (k, d) stack, which makes the tensor.
      pair_costs: (k(k-1)/2, n, n) matrices whose sum is the cost, in that order.
      cost_tensor: (n,) * k.
      epsilon: positive regularisation in the unit of the costs, or an ott `Epsilon`, which starts larger and
        decays by the sweep; the result is always that of its target.
      threshold: the iteration stops when `sum_l ||marginal_l - 1/n||_1`, measured on its current potentials,
        is below.
      max_iterations: sweeps at most; in a sweep every view is updated once.
      path: `"auto"` takes the first of these that applies. `"pairwise"` contracts by matrix products, and
        goes over to `"logsumexp"` by itself for an epsilon so small that float32 could not hold a pair's
        kernel; `"resultant"` streams over all tuples of a named cost; `"dense"` holds the tensor.
      pair_spread: a bound on max - min of the costs of any pair of views, where one is known, as 4/k² is for the
        circular variance of unit vectors. With an epsilon that is a number, the way of the pairwise path is then
        settled before compilation, which takes half as long; without, both are compiled and the costs decide.
      axis_name: inside `shard_map`, the mesh axis whose devices share the work. The arguments are whole on
        every device, and so is the result; n must be a multiple of the number of devices.
      block_size: rows of n numbers held at once; None takes what suits the backend. Same result either way.
      max_operations: a pass that takes more multiply-adds than this, all devices together, is refused.

    Returns:
      A `SinkhornOutput`. For a cost of 0 everywhere `value` is `-ε (k log n + 1)`.

    Raises:
      ValueError: for wrong shapes and options, and for a problem above `max_operations`, naming what would
        fit.
    """
    _check_limits(max_iterations, threshold)
    max_operations = _checks.real("max_operations", max_operations, positive=True)
    block_size = _checks.block_size(block_size)
    kind, costs, of_sum = _prepare(z, cost, pair_costs, cost_tensor, path, max_operations)
    form = _form(kind, costs, of_sum, max_operations, axis_name=axis_name, block_size=block_size)
    schedule = epsilon if isinstance(epsilon, _ott.Epsilon) else _ott.Epsilon(epsilon)
    options = _Options(
        form=form,
        bilinear=_is_bilinear(form, kind, schedule.target, pair_spread, costs.dtype),
        max_iterations=int(max_iterations),
        epsilon_init=float(schedule.init),
        epsilon_decay=float(schedule.decay),
    )
    target = _checks.scalar("epsilon", schedule.target, costs.dtype, positive=True)
    return _on_every_device(options, costs, target, jnp.asarray(threshold, costs.dtype))


def _form(
    kind: str,
    costs: jax.Array,
    of_sum: OfSum | None,
    max_operations: float,
    *,
    axis_name: str | None,
    block_size: int | None,
) -> Form:
    n = costs.shape[-1]
    k = costs.ndim if kind == "dense" else (1 + math.isqrt(1 + 8 * costs.shape[0])) // 2
    _check_size(k, n, max_operations, dense=kind == "dense")
    if axis_name is not None and n % lax.axis_size(axis_name):
        raise ValueError(
            f"n must be a multiple of the {lax.axis_size(axis_name)} devices of {axis_name!r}, got {n}"
        )
    default = _CPU_BLOCK if jax.default_backend() == "cpu" else _ACCELERATOR_BLOCK
    return Form(
        views=k,
        points=n,
        tensor=kind == "dense",
        of_sum=of_sum,
        block_elements=default if block_size is None else block_size * n,
        axis_name=axis_name,
    )


def _on_every_device(
    options: "_Options", costs: jax.Array, epsilon: jax.Array, threshold: jax.Array
) -> SinkhornOutput:
    axis_name = options.form.axis_name
    given = (costs, epsilon, threshold)
    axes = _numerics.axis_names(axis_name).union(*map(_numerics.varying, given))
    out = _solve(options, *(_numerics.vary(a, axes) for a in given))
    values, rest = (out.value, out.matched_cost), jax.tree.map(lax.stop_gradient, out)
    if axis_name is not None:
        # The same on every device, which these say; and a mean gives each device's copy of the costs its share of
        # the gradient.
        values = lax.pmean(values, axis_name)
        rest = jax.tree.map(lambda x: lax.pmax(x, axis_name), rest)
    return rest._replace(value=values[0], matched_cost=values[1])


def _matched_cost(form: Form, costs: jax.Array) -> jax.Array:
    """mean_i C[i..i]."""
    n, k = form.points, form.views
    if form.tensor:  # the diagonal's entries are 1 + n + ... + n^(k-1) apart
        return jnp.mean(costs.reshape(-1)[:: (n**k - 1) // (n - 1)])
    # Masked, not gathered: the transpose of a gather is a scatter, which took longer than a pass at n = 64.
    total = jnp.sum(jnp.where(jnp.eye(n, dtype=bool)[None], costs, 0), axis=(0, 2))
    return jnp.mean(total if form.of_sum is None else form.of_sum(total, k))


def _prepare(
    z: ArrayLike | None,
    cost: object,
    pair_costs: ArrayLike | None,
    cost_tensor: ArrayLike | None,
    path: str,
    max_operations: float,
) -> tuple[str, jax.Array, OfSum | None]:
    """The path, the array of costs and the function of their sum."""
    _checks.option("path", path, ("auto", "pairwise", "logsumexp", "resultant", "dense"))
    given = [
        name
        for name, x in (("z", z), ("pair_costs", pair_costs), ("cost_tensor", cost_tensor))
        if x is not None
    ]
    if len(given) != 1:
        raise ValueError(f"exactly one of z, pair_costs and cost_tensor must be given, got {given or 'none'}")
    possible: tuple[str, ...]
    if cost_tensor is not None:
        tensor = jnp.asarray(cost_tensor)
        if tensor.ndim < 2 or len(set(tensor.shape)) != 1 or tensor.shape[0] < 2:
            raise ValueError(
                f"cost_tensor must have shape (n,) * k with k >= 2 and n >= 2, got {tensor.shape}"
            )
        if not jnp.issubdtype(tensor.dtype, jnp.floating):
            raise ValueError(f"cost_tensor must have a floating dtype, got {tensor.dtype}")
        return _choose(path, ("dense",), "a cost tensor"), _numerics.widen(tensor), None
    if pair_costs is not None:
        matrices = _checks.array("pair_costs", pair_costs, "pairs n n", (1, 2, 2))
        k = (1 + math.isqrt(1 + 8 * matrices.shape[0])) // 2
        if matrices.shape[0] != k * (k - 1) // 2 or matrices.shape[1] != matrices.shape[2]:
            raise ValueError(f"pair_costs must have shape (k(k-1)/2, n, n), got {matrices.shape}")
        kind = _choose(path, ("pairwise", "logsumexp", "dense"), "pair_costs")
        matrices = _numerics.widen(matrices)
        if kind == "dense":
            _check_size(k, matrices.shape[1], max_operations, dense=True)
            return kind, _tensor_of_pairs(matrices, k), None
        return kind, matrices, None

    points = _numerics.widen(_checks.views(z))  # type: ignore[arg-type]
    k, n, _ = points.shape
    _check_size(k, n, max_operations, dense=path == "dense")
    if isinstance(cost, str):
        of_square = _costs.NAMED_COSTS[_checks.option("cost", cost, _costs.NAMED_COSTS)]
        possible = ("resultant", "dense")
        if cost == "circular_variance":
            possible = ("pairwise", "logsumexp", *possible)
        kind = _choose(path, possible, f"cost={cost!r}")
        if kind in ("pairwise", "logsumexp"):
            return kind, _costs.circular_variance_pairs(points), None
        squares = _costs.squared_resultant_pairs(points)
        return (
            (kind, of_square(_tensor_of_pairs(squares, k), k), None)
            if kind == "dense"
            else (kind, squares, of_square)
        )
    if isinstance(cost, _ott.CostFn | Sequence):
        kind = _choose(path, ("pairwise", "logsumexp", "dense"), "a cost that is a sum over pairs")
        matrices = _costs.cost_fn_pairs(points, cost)
        return kind, _tensor_of_pairs(matrices, k) if kind == "dense" else matrices, None
    if not callable(cost):
        raise ValueError(
            f"cost must be a name, a CostFn, several of them or a function of a (k, d) stack, got {cost!r}"
        )
    kind = _choose(path, ("dense",), "a function of a (k, d) stack")
    _check_size(k, n, max_operations, dense=True)
    return kind, _costs.cost_tensor(points, cost), None


def _choose(path: str, possible: tuple[str, ...], what: str) -> str:
    if path == "auto":
        return possible[0]
    if path not in possible:
        raise ValueError(
            f"path must be one of {', '.join(map(repr, ('auto', *possible)))} for {what}, got {path!r}"
        )
    return path


def _is_bilinear(
    form: Form, kind: str, epsilon: ArrayLike, pair_spread: float | None, dtype: jnp.dtype
) -> bool | None:
    """Whether the contraction is right, where that is known before the costs are."""
    if not form.bilinear or kind == "logsumexp":
        return False
    if pair_spread is None or isinstance(epsilon, jax.core.Tracer):
        return None
    return float(pair_spread) <= bilinear_spread_bound(dtype) * float(epsilon)  # type: ignore[arg-type]


def _tensor_of_pairs(matrices: jax.Array, k: int) -> jax.Array:
    n = matrices.shape[-1]
    total = jnp.zeros((n,) * k, matrices.dtype)
    for matrix, (l, m) in zip(matrices, _costs.pairs(k)):
        total = total + matrix.reshape([n if axis in (l, m) else 1 for axis in range(k)])
    return total


def _check_limits(max_iterations: int, threshold: ArrayLike) -> None:
    if (
        isinstance(max_iterations, bool)
        or not isinstance(max_iterations, numbers.Integral)
        or max_iterations < 1
    ):
        raise ValueError(f"max_iterations must be a whole number >= 1, got {max_iterations!r}")
    if not isinstance(threshold, jax.Array) and _checks.real("threshold", threshold) < 0:
        raise ValueError(f"threshold must be >= 0, got {threshold}")


def _check_size(k: int, n: int, max_operations: float, *, dense: bool) -> None:
    """Refuses what would not end, and a tensor that no memory holds."""
    tuples = n**k
    if 2 * tuples > max_operations:
        most = max_operations / 2
        views = next((v for v in range(k, 1, -1) if n**v <= most), None)
        fits = f"n <= {_root(most, k)} with {k} views" + (
            f", or k <= {views} with {n} points" if views else ""
        )
        raise ValueError(
            f"{n} points in {k} views make {tuples:.3g} tuples, and a pass over them takes {2 * tuples:.3g} "
            f"operations, above max_operations={max_operations:.3g}; what fits: {fits}"
        )
    if dense and tuples > _DENSE_LIMIT:
        raise ValueError(
            f"a tensor of {n} points in {k} views has {tuples:.3g} entries (a pass takes {2 * tuples:.3g} "
            f"operations), above {_DENSE_LIMIT}; what fits: n <= {_root(_DENSE_LIMIT, k)} with {k} views, "
            "or a cost that is a sum over pairs of views, which needs no tensor"
        )


def _root(most: float, k: int) -> int:
    """Largest n with n^k <= most."""
    n = int(most ** (1 / k)) + 1
    while n**k > most:
        n -= 1
    return n


class _Options(NamedTuple):
    """All of a problem but its numbers."""

    form: Form
    bilinear: bool | None  # None where the costs decide
    max_iterations: int
    epsilon_init: float
    epsilon_decay: float


@partial(jax.jit, static_argnums=0)
def _solve(options: _Options, costs: jax.Array, epsilon: jax.Array, threshold: jax.Array) -> SinkhornOutput:
    out = _minimum(options, costs, epsilon, threshold)
    return out._replace(
        matched_cost=_matched_cost(options.form, costs),
        n_iters=out.n_iters.astype(jnp.int32),
        status=out.status.astype(jnp.int32),
    )


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _minimum(options: _Options, costs: jax.Array, epsilon: jax.Array, threshold: jax.Array) -> SinkhornOutput:
    """The iteration's result, of which only `value` has a derivative; floats throughout, for their tangents."""
    # One problem after the other under vmap: batched, `cond` would take both ways, and each would run to the
    # longest.
    out = jax.custom_batching.sequential_vmap(partial(_iterate, options))(costs, epsilon, threshold)
    return jax.tree.map(lambda x: x.astype(costs.dtype), out)


@_minimum.defjvp
def _(
    options: _Options, primals: tuple[jax.Array, ...], tangents: tuple[jax.Array, ...]
) -> tuple[SinkhornOutput, SinkhornOutput]:
    """Danskin: the derivative of the dual objective at frozen potentials, that is of `-ε mass`.

    With that of `matched_cost`, the costs' is J - P.
    """
    out = _minimum(options, *primals)
    costs, epsilon = _first_order(primals[0]), _first_order(primals[1])
    slope = jax.custom_batching.sequential_vmap(partial(_slope, options))
    by_costs, by_epsilon = slope(costs, epsilon, out.potentials)
    if options.form.axis_name is not None:  # each device has summed over its own tuples
        by_costs, by_epsilon = (
            _numerics.vary(lax.psum(d, options.form.axis_name), _numerics.varying(costs))
            for d in (by_costs, by_epsilon)
        )
    change = jnp.sum(by_costs * tangents[0]) + by_epsilon * tangents[1]
    return out, jax.tree.map(jnp.zeros_like, out)._replace(value=change)


@jax.custom_jvp
def _first_order(x: jax.Array) -> jax.Array:
    """x, in an expression that stands for a first derivative and has no further ones."""
    return x


@_first_order.defjvp
def _(primals: tuple[jax.Array], tangents: tuple[jax.Array]) -> NoReturn:
    raise NotImplementedError(
        "second derivatives of multimarginal_sinkhorn and m3g are not implemented: the potentials are held fixed in "
        "the first. Take finite differences of the gradient."
    )


def _slope(
    options: _Options, costs: jax.Array, epsilon: jax.Array, potentials: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Derivatives of `-ε mass` by costs and epsilon: P, and <P, log P - 1>; this device's part."""

    def by_pairs(costs: jax.Array, epsilon: jax.Array) -> tuple[jax.Array, jax.Array]:
        plan = pair_marginals(options.form, costs, potentials / epsilon, epsilon)
        # log P = (sum f - C) / ε summed by views and by pairs of views
        marginals = [jnp.sum(plan[0], axis=1)] + [
            jnp.sum(plan[m], axis=0) for m in range(options.form.views - 1)
        ]
        of_views = jnp.sum(jnp.stack(marginals) * potentials)
        return plan, (of_views - jnp.sum(plan * costs)) / epsilon - jnp.sum(marginals[0])

    def by_autodiff(costs: jax.Array, epsilon: jax.Array) -> tuple[jax.Array, jax.Array]:
        def minus_mass(costs: jax.Array, epsilon: jax.Array) -> jax.Array:
            scaled = potentials / epsilon
            joint = log_joint(options.form, costs, scaled, epsilon, options.form.groups[0], False)
            return -epsilon * jnp.sum(jnp.exp(joint))

        return jax.grad(minus_mass, argnums=(0, 1))(costs, epsilon)

    if options.form.views == 2 and options.form.pairwise:
        return by_pairs(costs, epsilon)
    return _either(options, costs, epsilon, lambda bilinear: by_pairs if bilinear else by_autodiff)


def _either(
    options: _Options,
    costs: jax.Array,
    epsilon: jax.Array,
    branch: Callable[[bool], Callable[[jax.Array, jax.Array], Result]],
) -> Result:
    """`branch(bilinear)(costs, epsilon)`, the way that is right at this spread of the costs, chosen when it runs."""
    if options.bilinear is not None:
        return branch(options.bilinear)(costs, epsilon)
    spread = jnp.max(jnp.max(costs, axis=(1, 2)) - jnp.min(costs, axis=(1, 2))) / epsilon
    fits = spread <= bilinear_spread_bound(costs.dtype)
    return lax.cond(fits, branch(True), branch(False), costs, epsilon)


class _Carry(NamedTuple):
    passes: jax.Array  # each measures and updates one group
    potentials: jax.Array
    other_error: jax.Array  # of the group updated last, after its update
    previous_epsilon: jax.Array
    error: jax.Array
    mass: jax.Array
    going: jax.Array


def _iterate(options: _Options, costs: jax.Array, epsilon: jax.Array, threshold: jax.Array) -> SinkhornOutput:
    """Passes over the two groups in turn until the potentials at hand are measured to fit.

    A pass begins with the joint marginal of its group under the current potentials, which with the error of
    the other group, known since its update, is the whole error of these potentials. Either it is small
    enough, and they are the result as they are, or the group is updated. The last iterate is thus always
    measured, and measuring costs nothing.
    """
    form = options.form

    def run(bilinear: bool) -> Callable[[jax.Array, jax.Array], _Carry]:
        def passes(costs: jax.Array, epsilon: jax.Array) -> _Carry:
            body = partial(_pass, options, bilinear, costs, epsilon, threshold)
            start = _start(form, costs, _numerics.varying(costs) | _numerics.varying(epsilon))
            return lax.while_loop(lambda carry: carry.going, body, start)

        return passes

    end = _either(options, costs, epsilon, run)
    failed = ~(jnp.isfinite(end.error) & jnp.all(jnp.isfinite(end.potentials)))
    converged = end.error < threshold
    status = jnp.where(
        failed, Status.NOT_FINITE, jnp.where(converged, Status.CONVERGED, Status.ITERATION_LIMIT)
    )
    groups = len(form.groups)
    return SinkhornOutput(
        potentials=end.potentials,
        value=jnp.sum(end.potentials) / form.points - epsilon * end.mass,
        matched_cost=_matched_cost(form, costs),
        error=end.error,
        mass=end.mass,
        n_iters=((end.passes + groups - 1) // groups).astype(jnp.int32),
        status=status.astype(jnp.int32),
        epsilon=epsilon,
    )


def _start(form: Form, costs: jax.Array, axes: frozenset[str]) -> _Carry:
    infinite = _numerics.vary(jnp.asarray(jnp.inf, costs.dtype), axes)
    return _Carry(
        passes=_numerics.vary(jnp.asarray(0), axes),
        potentials=_numerics.vary(jnp.zeros((form.views, form.points), costs.dtype), axes),
        other_error=infinite,
        previous_epsilon=infinite,
        error=infinite,
        mass=infinite,
        going=_numerics.vary(jnp.asarray(True), axes),
    )


def _pass(
    options: _Options,
    bilinear: bool,
    costs: jax.Array,
    epsilon: jax.Array,
    threshold: jax.Array,
    carry: _Carry,
) -> _Carry:
    """Measures the group whose turn it is, and updates it unless the potentials fit."""
    form = options.form
    groups = form.groups
    schedule = _ott.Epsilon(epsilon, options.epsilon_init, options.epsilon_decay)
    sweep = carry.passes // len(groups)
    # The last sweep is made at the target whatever the schedule says, and so is its measurement.
    eps = jnp.where(sweep >= options.max_iterations - 1, epsilon, schedule(sweep)).astype(costs.dtype)

    def update(
        group: tuple[int, ...], costs: jax.Array, potentials: jax.Array, eps: jax.Array
    ) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
        joint = log_joint(form, costs, potentials / eps, eps, group, bilinear)
        step, before, after, mass = _update(form, joint, group)
        return potentials + eps * step, before, after, mass

    updates = [partial(update, group) for group in groups]
    updated, before, after, mass = lax.switch(
        carry.passes % len(groups), updates, costs, carry.potentials, eps
    )
    # A marginal known at another epsilon is not known.
    error = jnp.where(eps == carry.previous_epsilon, before + carry.other_error, jnp.inf)
    if form.axis_name is not None:
        error, mass = (
            _numerics.vary(lax.pmax(x, form.axis_name), _numerics.varying(costs)) for x in (error, mass)
        )
    limit = options.max_iterations * len(groups)
    stop = ((error < threshold) & (eps == epsilon)) | (carry.passes >= limit) | jnp.isnan(error)
    return _Carry(
        passes=jnp.where(stop, carry.passes, carry.passes + 1),
        potentials=jnp.where(stop, carry.potentials, updated),
        other_error=after,
        previous_epsilon=eps,
        error=error,
        mass=mass,
        going=~stop,
    )


def _update(
    form: Form, joint: jax.Array, group: tuple[int, ...]
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """Sinkhorn's step for the views of a group, one after the other, from the logarithm of their joint
    marginal.

    Returns:
      The (k, n) step of the potentials over ε; the group's error before and after it; the mass before it.
    """
    n, rank = form.points, len(group)
    first = _log_marginal(form, joint, 0)
    marginals = [jnp.exp(first)] + [_marginal(form, joint, axis) for axis in range(1, rank)]
    zero = _numerics.vary(jnp.zeros((), joint.dtype), _numerics.varying(joint))
    before = _distance(marginals, n, zero)
    step = jnp.zeros((form.views, n), joint.dtype)
    for axis, view in enumerate(group):
        change = -math.log(n) - (first if axis == 0 else _log_marginal(form, joint, axis))
        step = step.at[view].set(change)
        if axis == 0:
            change = lax.dynamic_slice_in_dim(change, row_offset(form), joint.shape[0])
        joint = joint + change.reshape([-1 if a == axis else 1 for a in range(rank)])
    # The view updated last fits.
    after = _distance([_marginal(form, joint, axis) for axis in range(rank - 1)], n, zero)
    return step, before, after, jnp.sum(marginals[0])


def _log_marginal(form: Form, joint: jax.Array, axis: int) -> jax.Array:
    """(n,) log-marginal of one view of the group, on every device; exact however small it is."""
    others = tuple(a for a in range(joint.ndim) if a != axis)
    marginal = logsumexp(joint, axis=others) if others else joint
    if form.axis_name is None:
        return marginal
    gathered = lax.all_gather(marginal, form.axis_name, tiled=axis == 0)
    return gathered if axis == 0 else logsumexp(gathered, axis=0)


def _marginal(form: Form, joint: jax.Array, axis: int) -> jax.Array:
    """(n,) marginal, for its absolute error: what underflows does not count in it."""
    marginal = jnp.sum(jnp.exp(joint), axis=tuple(a for a in range(joint.ndim) if a != axis))
    if form.axis_name is None:
        return marginal
    gathered = lax.all_gather(marginal, form.axis_name, tiled=axis == 0)
    return gathered if axis == 0 else jnp.sum(gathered, axis=0)


def _distance(marginals: list[jax.Array], n: int, zero: jax.Array) -> jax.Array:
    """sum_l ||marginal_l - 1/n||_1."""
    return sum((jnp.sum(jnp.abs(m - 1 / n)) for m in marginals), start=zero)
