"""M3G, the multi-marginal matching gap."""

from __future__ import annotations  # no module of `mvcl.transport` is imported before it is used

import dataclasses
import math
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from mvcl import _checks, _numerics, transport
from mvcl.losses._declaration import Measured, Operands, declare, filled

__all__ = ["m3g", "m3g_pair", "m3g_with_status"]


def _measured(z: ArrayLike, **options: Any) -> Measured:
    loss, _, measures = _gap(z, filled(m3g, options))
    return loss, measures


def _successive(z: ArrayLike, **options: Any) -> Measured:
    """(p, k, n, d) problems, each solved from the potentials of the one before: the sum of their losses, the largest of
    their measures, and `solver_sweeps_saved`, by how many sweeps in all the later ones took less than the first."""
    values, found, passes, start = [], [], [], None
    for problem in jnp.asarray(z):
        value, out, measures = _gap(problem, filled(m3g, options), start)
        start = out.potentials
        values.append(value)
        found.append(measures)
        passes.append(out.n_passes)
    largest = jax.tree.map(lambda *of: jnp.max(jnp.stack(of)), *found)
    saved = jnp.sum(passes[0] - jnp.stack(passes)) / 2
    return sum(values[1:], values[0]), largest | {"solver_sweeps_saved": saved}


@declare(measured=_measured, successive=_successive)
def m3g(
    z: ArrayLike,
    epsilon: ArrayLike = 0.2,
    cost: transport.CostName | Callable[..., jax.Array] = "circular_variance",
    threshold: float = 1e-3,
    max_iterations: int = 100,
    *,
    cost_scale: float = 1.0,
    normalize: bool = True,
    epsilon_init: float = 1.0,
    epsilon_decay: float = 1.0,
    mask: ArrayLike | None = None,
    axis_name: str | None = None,
    block_size: int | None = None,
    max_operations: float = 1e14,
) -> jax.Array:
    """M3G: how much worse the true matching of the views is than the best entropic one.

        h(J) - min_P h(P),   h(P) = <P, C> + ε <P, log P - 1>,   C[i_1..i_k] = c(z_1,i_1, ..., z_k,i_k)

    over tensors P whose k marginals are 1/n; J is 1/n on the diagonal. At the optimal potentials f this is
    `mean_i c(z_1i..z_ki) - ε log n - mean_i Σ_l f_li`. Piran 2024 (ICML), Eqs. 8 to 14. Eq. 14 as printed is
    2 ε log n + ε larger for the h of Eq. 8; this is the h of Eq. 8, which is >= 0 and 0 when J is the plan.

    With a mask, N instances have at least one view; others do not count. P's marginal of view l is 1/N on each instance
    that has it, and the share of the N that lack it on one more point, "missing", which the tuples of J have where
    instances lack a view, and `out` of `m3g_with_status` in the place of the first that does. The cost of a tuple is
    over the points that it has, with the factor of k views. So the loss is >= 0, and 0 when J is the plan or N = 0.

    c is `cost_scale` times the cost by its name. The circular variance of Eq. 12 is
    `1 - R² = (1/k²) Σ_{l<m} ||z_l - z_m||²`, `cost_scale = 1`. Algorithm 2 prints the factor `(2/(k-1))²` in place of
    `1/k²`, `cost_scale = (2k/(k-1))²`. Only `epsilon / cost_scale` decides on the plan.

    The minimum is replaced by the dual objective at the potentials Sinkhorn ends with, which is never above it: the
    loss is >= 0 up to rounding, converged or not. Derivatives are those of `mvcl.transport.MMSinkhorn`.

    Cost: n^k for each sweep over the views, as matrix products; sums over pairs hold no tensor.

    Args:
      epsilon: positive weight of the entropy, in the unit of the cost.
      cost: `"circular_variance"`, 1 - R² with R = ||mean_l z_l||; `"circular_standard_deviation"`, -log R²;
        one that `mvcl.transport` declares, as `SumOverPairs` of a function of two points; an ott `CostFn`, summed over
        the pairs of views; or a function of a (k, d) stack.
      threshold: Sinkhorn stops when Σ_l ||marginal_l - a_l||_1 is below, a_l the weights 1/n or those of the mask.
      max_iterations: sweeps over the views at most.
      cost_scale: positive factor of the cost: 1 for Eq. 12, (2k/(k-1))² for Algorithm 2.
      epsilon_init: multiple of epsilon that the iteration starts with, >= 1.
      epsilon_decay: factor in (0, 1] by which that multiple shrinks with every sweep, down to 1.
      mask: boolean (k, n), False where an instance lacks a view; with all True the loss is that without a mask to the
        last bit, its gradient up to rounding. Not for a cost that is a function of a (k, d) stack.
      axis_name: mesh axis over which the instances are split, inside `shard_map`; the tuples are split over it too.
      block_size: rows of n numbers that Sinkhorn holds at once; None decides.
      max_operations: multiply-adds of one pass; a problem of more raises an error.

    Returns:
      Scalar, float32 or wider. For coinciding vectors, which make every matching as good, (k-1) ε log n.
    """
    return _measured(**locals())[0]  # every argument, by name


def _measured_pair(x: ArrayLike, y: ArrayLike, **options: Any) -> Measured:
    options = filled(m3g_pair, options)
    return _measured(_checks.pair(x, y, options["axis_name"]), **options)


def m3g_with_status(
    z: ArrayLike, *, init: Sequence[ArrayLike] | None = None, **options: Any
) -> tuple[jax.Array, transport.SinkhornOutput]:
    """`m3g` and what its Sinkhorn iteration ended with, for `value_and_grad(..., has_aux=True)` and logs.

    Args:
      z: (k, n, d) embeddings.
      init: k potentials (n,) to start from, as `potentials` of a similar problem; the iteration is then at epsilon from
        its first sweep, whatever `epsilon_init` says. The loss and its gradient are the same up to the threshold.
      **options: those of `m3g`, by name, with its defaults.

    Returns:
      The loss, and the `SinkhornOutput`: `converged`, `error` (measured on the last iterate), `n_iters`,
      `potentials`. For gradients use the loss.
    """
    return _gap(z, filled(m3g, options), init)[:2]


@declare(measured=_measured_pair, operands=Operands.PAIR)
def m3g_pair(
    x: ArrayLike,
    y: ArrayLike,
    epsilon: ArrayLike = 0.2,
    cost: transport.CostName | Callable[..., jax.Array] = "circular_variance",
    threshold: float = 1e-3,
    max_iterations: int = 100,
    *,
    cost_scale: float = 1.0,
    normalize: bool = True,
    mask: ArrayLike | None = None,
    axis_name: str | None = None,
    block_size: int | None = None,
) -> jax.Array:
    """M3G of two views, which `all_pairs` and `one_vs_rest` extend to more.

        h(J) - min_P h(P),   h(P) = <P, C> + ε <P, log P - 1>,   C_ij = c(x_i, y_j)

    over (n, n) matrices P whose rows and columns sum to 1/n; J is 1/n on the diagonal. Piran 2024 (ICML),
    Section 3.2 for k = 2. `m3g` matches the k views of an instance jointly, `all_pairs(m3g_pair)` every pair by itself,
    in n². The circular variance of two unit vectors is `||x - y||² / 4`; in the cost of k views a pair has
    `||x - y||² / k²`, which is `cost_scale = 4 / k²` here.

    Cost: n² for each sweep over the two views.

    Args:
      epsilon: positive weight of the entropy, in the unit of the cost.
      cost: as in `m3g`, of a stack of two vectors.
      threshold: Sinkhorn stops when Σ_l ||marginal_l - a_l||_1 is below, a_l the weights 1/n or those of the mask.
      max_iterations: sweeps over the views at most.
      cost_scale: positive factor of the cost: 1 for Eq. 12, 16 for Algorithm 2.

    Returns:
      Scalar, float32 or wider. For coinciding vectors ε log n.
    """
    return _measured_pair(**locals())[0]  # every argument, by name


def _gap(
    z: ArrayLike, options: dict[str, Any], init: Sequence[ArrayLike] | None = None
) -> tuple[jax.Array, transport.SinkhornOutput, dict[str, jax.Array]]:
    """The loss, the solver's output and measures for the log."""
    given = SimpleNamespace(**options)
    axis_name, cost = given.axis_name, given.cost
    z = _checks.views(z, axis_name)
    epsilon_init = _checks.real("epsilon_init", given.epsilon_init)
    epsilon_decay = _checks.real("epsilon_decay", given.epsilon_decay)
    if not (epsilon_init >= 1 and 0 < epsilon_decay <= 1) or (epsilon_init > 1 and epsilon_decay == 1):
        got = f"epsilon_init={epsilon_init}, epsilon_decay={epsilon_decay}"
        what = "epsilon_init must be >= 1 and epsilon_decay in (0, 1]"
        raise ValueError(f"{what}; from above epsilon, epsilon_decay must be < 1; got {got}")
    dtype = jnp.promote_types(z.dtype, jnp.float32)
    strength = _checks.scalar("epsilon", given.epsilon, dtype, positive=True)
    scale = _checks.real("cost_scale", given.cost_scale, positive=True)
    there = _checks.mask(given.mask, z.shape[:2])
    if there is not None:
        z = jnp.where(there[..., None], z, 0)
        there = _numerics.gather(there, axis_name, axis=1)
    z = _numerics.gather(_numerics.unit(z) if given.normalize else _numerics.widen(z), axis_name, axis=1)
    costs = transport.Geometry.from_points(z, cost, scale=scale, present=there)
    # Compiled on its own: the program behind the barrier, and so each of its roundings, is that without a mask.
    costs, (weights, of_tuples, log_count) = jax.lax.optimization_barrier(
        (costs, _marginals(there, z.shape[:2], costs.dtype))
    )
    weights = jax.lax.stop_gradient(weights)  # a barrier's results count as differentiable, constants too

    true_tuples = None  # (i, ..., i); where instance i lacks the view, its "missing" point stands for i
    if there is not None:
        true_tuples = jnp.where(there.T, jnp.arange(z.shape[1])[:, None], jnp.argmin(there, axis=1)[None])
    schedule = (epsilon_init, epsilon_decay) if init is None else (1.0, 1.0)
    if given.normalize and cost == "circular_variance":
        costs = dataclasses.replace(costs, pair_spread=4 * scale / z.shape[0] ** 2)
    solver = transport.MMSinkhorn(
        threshold=given.threshold,
        inner_iterations=1,
        max_iterations=given.max_iterations,
        axis_name=axis_name,
        block_size=given.block_size,
        max_operations=given.max_operations,
    )
    out = solver.solve(transport.Problem(costs, weights, transport.Epsilon(given.epsilon, *schedule)), init)
    truth = costs.diagonal() @ of_tuples - strength * (log_count + 1)
    mass = jax.lax.stop_gradient(transport.true_tuple_mass(out, true_tuples, of_tuples > 0))
    if axis_name is not None:  # each device has the embeddings of all, and its share of their gradient
        truth, mass = jax.lax.pmean(truth, axis_name), jax.lax.pmean(mass, axis_name)
    measures = {
        "epsilon": out.epsilon,
        "true_tuple_mass": mass,
        "solver_error": out.error,
        "solver_iterations": out.n_iters.astype(jnp.float32),
        "solver_unconverged": 1.0 - out.converged.astype(jnp.float32),
    }
    return truth - out.dual, out, measures


def _marginals(
    there: jax.Array | None, shape: tuple[int, ...], dtype: jnp.dtype
) -> tuple[tuple[jax.Array, ...], jax.Array, jax.Array]:
    """Weights of the points of each view, those of the true tuples (n,), and the logarithm of the number of these."""
    k, n = shape
    if there is None:
        uniform = jnp.full(n, 1, dtype) / jnp.asarray(n, dtype)
        return (uniform,) * k, uniform, jnp.asarray(math.log(n), dtype)
    counted = jnp.any(there, axis=0)
    count = jnp.sum(counted, dtype=dtype)
    share = 1 / jnp.maximum(count, 1)
    # The first missing point of a view stands for all of its missing points.
    stands = ~there & (jnp.cumsum(~there, axis=1) == 1)
    missing = jnp.sum(counted[None] & ~there, axis=1, dtype=dtype)
    of_missing = jnp.where(count > 0, missing * share, 1)  # without any instance, one tuple of missing points
    weights = jnp.where(there, share, jnp.where(stands, of_missing[:, None], 0))
    # With all points there it is the very number of the loss without a mask.
    log_count = jnp.where(count == n, math.log(n), jnp.log(jnp.maximum(count, 1))).astype(dtype)
    return tuple(weights), jnp.where(counted, share, 0), log_count
