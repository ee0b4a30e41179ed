"""Costs whose pairs are a tree of views, as a chain or a star: solved by its edges, summed by messages along them.

The plan is the product of the plans of the edges, over the weights of a view for each of its edges but one (Haasler
2021, arXiv 2004.06909). So k-1 problems of n² solve it, and a sum over all tuples takes k-1 products of a matrix
and a vector.
"""

from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import Any

import jax
import jax.numpy as jnp

from mvcl import _numerics
from mvcl.transport._blocks import Vectors, logsumexp
from mvcl.transport._geometry import Geometry, towards

# (parent, child) -> logarithm (n_parent, n_child) of what the child's side of the tree adds, and its total (n_parent,)
Messages = dict[tuple[int, int], tuple[jax.Array, jax.Array]]


def messages(
    costs: Geometry,
    scaled: Vectors,
    epsilon: jax.Array,
    root: int,
    total: Callable[..., jax.Array] = logsumexp,
) -> tuple[jax.Array, Messages]:
    """The logarithm of the root's marginal (or maximum), and what is added along each edge, parents first."""
    sums, found = list(scaled), {}
    edges = towards(costs.edges or (), root)
    for parent, child in reversed(edges):
        joint = sums[child][None, :] - costs.matrix(parent, child) / epsilon
        found[parent, child] = joint, total(joint, axis=1)
        sums[parent] = sums[parent] + found[parent, child][1]
    return sums[root], {edge: found[edge] for edge in edges}


def marginals(costs: Geometry, scaled: Vectors, epsilon: jax.Array) -> tuple[jax.Array, ...]:
    """Those of all views; messages that two share are computed once, by the compiler."""
    return tuple(jnp.exp(messages(costs, scaled, epsilon, view)[0]) for view in range(len(scaled)))


def joint_marginal(costs: Geometry, scaled: Vectors, epsilon: jax.Array, views: tuple[int, ...]) -> jax.Array:
    """Marginal of the plan on one view or two, in their order."""
    log_root, sides = messages(costs, scaled, epsilon, views[0])
    marginal = jnp.exp(log_root)
    if len(views) == 1:
        return marginal
    shares = _shares(sides, views[1])[::-1]
    return marginal[:, None] * reduce(partial(_numerics.inner, "ij,jk->ik"), shares)


@partial(jax.jit, static_argnums=3)
def conditional_means(
    costs: Geometry, scaled: Vectors, epsilon: jax.Array, view: int, points: Vectors
) -> tuple[jax.Array, ...]:
    """Means (n_l, d) of the points of every view given a point of one, without a matrix of views that have no edge."""
    _, sides = messages(costs, scaled, epsilon, view)
    means = list(points)
    for other in range(len(points)):
        for share in _shares(sides, other):
            means[other] = _numerics.inner("ij,jd->id", share, means[other])
    return tuple(means)


def _shares(sides: Messages, view: int) -> list[jax.Array]:
    """How much of each point of the parent goes to each of the child, for the edges from a view up to the root."""
    parents, found = {child: parent for parent, child in sides}, []
    while view in parents:
        joint, log_sum = sides[parents[view], view]
        found.append(jnp.exp(joint - log_sum[:, None]))
        view = parents[view]
    return found


def partners(costs: Geometry, scaled: Vectors, epsilon: jax.Array, view: int) -> jax.Array:
    """The most likely tuple of each point of a view, (n_l, k)."""
    _, sides = messages(costs, scaled, epsilon, view, jnp.max)
    found = {view: jnp.arange(costs.shape[view], dtype=jnp.int32)}
    for (parent, child), (joint, _) in sides.items():
        found[child] = jnp.argmax(joint, axis=1)[found[parent]].astype(jnp.int32)
    return jnp.stack([found[other] for other in range(len(found))], axis=1)


def potentials_and_dual(
    costs: Geometry, weights: Vectors, epsilon: jax.Array, ends: Sequence[Any]
) -> tuple[tuple[jax.Array, ...], jax.Array]:
    """Those of the tree from the `End` of each edge."""
    potentials, total = [jnp.zeros_like(a) for a in weights], jnp.sum(weights[0])
    dual = -epsilon * total
    for edge, end in zip(costs.pairs, ends):
        dual += end.dual + epsilon * total
        for view, f in zip(edge, end.potentials):
            potentials[view] += f
    for view, a in enumerate(weights):
        more = epsilon * (sum(view in edge for edge in costs.pairs) - 1)
        log_a = jnp.where(a > 0, jnp.log(jnp.where(a > 0, a, 1)), 0)
        potentials[view] -= more * log_a
        dual -= more * jnp.sum(a * log_a)
    return tuple(potentials), dual
