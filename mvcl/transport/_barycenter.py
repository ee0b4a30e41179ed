"""The barycentre of the views, read off the plan between them."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from mvcl import _numerics
from mvcl.transport import _costs
from mvcl.transport._output import SinkhornOutput
from mvcl.transport._pair_forms import Barycenter, SphericalBarycenter


def conditional_means(out: SinkhornOutput, z: ArrayLike | Sequence[ArrayLike], view: int) -> jax.Array:
    """Means of the points of every view that a point of one view is matched with, `E[x_m | i]` under the plan.

        sum_j P_lm[i, j] x_m,j / sum_j P_lm[i, j],    P_lm the marginal of the plan on views l and m

    The barycentric projection of the points of view l = `view` is `cost.point(conditional_means(out, z, view))` for a
    `Barycenter` or `SphericalBarycenter`: the b with the smallest mean cost given the point. As epsilon goes to 0 the
    distribution of these points, with the weights of view l, goes to the barycentre wherever every point has one
    partner in each view. It needs the marginals of k-1 pairs, and no tensor. No gradient flows through the plan.

    Args:
      out: result of `multimarginal_sinkhorn`.
      z: the points of the problem, (k, n, d) or k arrays (n_l, d).
      view: l, whole number below k.

    Returns:
      (k, n_l, d): for view m the means; for m = l the points themselves. 0 for a point of weight 0.

    Raises:
      ValueError: for points that do not fit the plan, and for another view.
    """
    points = _fitting(out, z)
    if not 0 <= view < len(points):
        raise ValueError(f"view must be a whole number from 0 to {len(points) - 1}, got {view}")
    means = []
    for other, x in enumerate(points):
        if other == view:
            means.append(jnp.where(out.a_s[view][:, None] > 0, x, 0))
            continue
        joint = out.pair_marginal(view, other)
        mass = jnp.sum(joint, axis=1)[:, None]
        means.append(_numerics.inner("ij,jd->id", joint, x) / jnp.where(mass > 0, mass, 1))
    return jnp.stack(means)


def barycenter(
    out: SinkhornOutput,
    z: ArrayLike | Sequence[ArrayLike],
    cost: Barycenter | SphericalBarycenter,
    indices: ArrayLike | None = None,
) -> tuple[jax.Array, jax.Array]:
    """Support points and masses of the barycentre: the point b of every tuple, with the tuple's mass in the plan.

    Args:
      out: result of `multimarginal_sinkhorn` with this cost.
      z: the points of the problem, (k, n, d) or k arrays (n_l, d).
      cost: the cost of the problem.
      indices: (t, k) whole numbers, the tuples to take; `out.partners(0)` are the heaviest tuple of each point of view
        0, and the sum of their masses is the share of the plan that they hold. None for all tuples, of which
        `out.plan()` limits the number.

    Returns:
      (t, d) points and (t,) masses, which sum to the mass of the plan if the tuples are all.

    Raises:
      ValueError: for points that do not fit the plan, and for too many tuples.
    """
    points = _fitting(out, z)
    if indices is None:
        masses = out.plan().reshape(-1)
        at = jnp.indices(out.shape).reshape(len(points), -1).T
    else:
        at = jnp.asarray(indices)
        masses = out.entries(at)
    return cost.point(jnp.stack([x[at[:, l]] for l, x in enumerate(points)])), masses


def _fitting(out: SinkhornOutput, z: ArrayLike | Sequence[ArrayLike]) -> tuple[jax.Array, ...]:
    points = _costs.checked_points(z)
    if tuple(len(x) for x in points) != out.shape:
        raise ValueError(
            f"z must have the points of the plan, {out.shape} in its views, got {tuple(len(x) for x in points)}"
        )
    return points
