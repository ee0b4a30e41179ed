"""Derivatives of the minimum by the costs, the weights and epsilon: the first by Danskin, further ones implicit.

At its maximum over the potentials f the derivative of the dual objective D(f, θ), θ = (C, ε, a), by f is 0, so that
the derivative of the maximum is `D_θ` at the f that are found (`slope`). The next one is `D_θθ + D_θf df/dθ`, where
df/dθ is that of the solution of `marginal_l(f, C, ε) = a_l` (`potentials_of`).
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.sparse.linalg import cg

from mvcl import _numerics
from mvcl.transport import _blocks as blocks
from mvcl.transport import _tree
from mvcl.transport._contraction import groups, log_joint, pair_marginals, scaled_potentials
from mvcl.transport._costs import pairs, views_of_pairs
from mvcl.transport._geometry import Geometry
from mvcl.transport._problem import Given, values

Tree = TypeVar("Tree")


# Derivatives of `-ε mass` by the arrays of the costs and by epsilon, which is `<P, log P - 1>`.
Slope = tuple[tuple[jax.Array, ...], jax.Array]


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def slope(work: blocks.Work, at: Given) -> Slope:
    """The derivatives with the potentials held; this device's part."""
    # One problem after the other under vmap, as the iteration.
    return jax.custom_batching.sequential_vmap(partial(_slope, work))(at)


@slope.defjvp
def _(work: blocks.Work, primals: tuple[Given], tangents: tuple[Given]) -> tuple[Slope, Slope]:
    change = jax.jvp(partial(_gradient, work), primals, tangents)[1]
    return slope(work, *primals), (change.costs.arrays, change.epsilon)


def _slope(work: blocks.Work, at: Given) -> Slope:
    def by(way: blocks.Way) -> Slope:
        if way is blocks.Way.ELEMENTWISE and not _is_sum_of_two(at.costs):
            change = jax.grad(partial(_minus_mass, work, way))(at)
            return change.costs.arrays, change.epsilon
        plans = pair_marginals(work, at.costs, _scaled(at), at.epsilon, way)
        # log P = (sum f - C) / ε summed by views and by pairs of views
        marginals = _marginals(plans)
        terms = [jnp.sum(m * f) for m, f in zip(marginals, at.potentials)]
        terms += [-jnp.sum(p * c) for p, c in zip(plans, at.costs.arrays)]
        return plans, sum(terms[1:], start=terms[0]) / at.epsilon - jnp.sum(marginals[0])

    return blocks.any_way(work.way, at.costs, at.epsilon, by)


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def potentials_of(work: blocks.Work, at: Given) -> tuple[jax.Array, ...]:
    """The potentials of `at`, whose derivative is that of the solution of `marginal_l(f, C, ε) = a_l`.

        (1/ε) (marginal_l df_l + sum_m P_lm df_m) = da_l - (d marginal_l / d(C, ε)) d(C, ε)

    with the pair marginals P_lm of the plan, by conjugate gradients. Of plans whose marginals do not fit, df keeps them
    as they are, plus da. With penalties the right side is `a_l exp(-f_l / ρ_l)`; potentials at the price stay there.
    """
    return at.potentials


@potentials_of.defjvp
def _(
    work: blocks.Work, primals: tuple[Given], tangents: tuple[Given]
) -> tuple[tuple[jax.Array, ...], tuple[jax.Array, ...]]:
    (at,), (change,) = primals, tangents
    at = at._replace(potentials=potentials_of(work, at))
    held = change._replace(potentials=jax.tree.map(jnp.zeros_like, at.potentials))
    minus_marginals = jax.jvp(partial(_gradient, work), (at,), (held,))[1].potentials
    minus_marginals = over_devices(work, minus_marginals, at.epsilon)
    fit, more = change.weights, [(jnp.zeros_like(f), jnp.zeros_like(f, bool)) for f in at.potentials]
    if at.penalties is not None:
        wanted = lambda penalties, weights: tuple(  # noqa: E731
            p.wanted(a, f) for p, a, f in zip(penalties, weights, at.potentials)
        )
        now, fit = jax.jvp(wanted, (at.penalties, at.weights), (change.penalties, change.weights))
        more = [
            (jnp.where(p.held(f), 0, at.epsilon * p.slack) * m, p.held(f))
            for p, f, m in zip(at.penalties, at.potentials, now)
        ]
    right = [m + da for m, da in zip(minus_marginals, fit)]
    if at.costs.edges:
        marginals = partial(_tree.marginals, at.costs, epsilon=at.epsilon)
        steps = _solve(*jax.linearize(marginals, _scaled(at)), right, more)
    else:
        plans = over_devices(work, _pair_marginals(work, at), at.epsilon)
        steps = _solve(_marginals(plans), partial(_change_of_marginals, plans), right, more)
    return at.potentials, tuple(at.epsilon * step for step in steps)


def implicit(work: blocks.Work, at: Given) -> tuple[tuple[jax.Array, ...], jax.Array]:
    """The potentials with their derivative, and the dual objective at them with all of its derivative."""
    at = at._replace(potentials=potentials_of(work, at))

    def by(way: blocks.Way) -> jax.Array:
        return _minus_mass(work, way, _where_right(work, way, at))

    part = blocks.any_way(work.way, at.costs, at.epsilon, by, blocks.Way.ROWS)
    entropy = over_devices(work, part, at.epsilon)
    return at.potentials, sum(values(at.penalties, at.weights, at.potentials), start=entropy)


def over_devices(work: blocks.Work, parts: Tree, like: jax.Array) -> Tree:
    """The sum of all devices' parts, marked as differing between them wherever `like` is."""
    if work.axis_name is None:
        return parts
    axes = _numerics.varying(like)
    return jax.tree.map(lambda part: _numerics.vary(lax.psum(part, work.axis_name), axes), parts)


def _solve(
    marginals: blocks.Vectors,
    change: Callable[[tuple[jax.Array, ...]], blocks.Vectors],
    right: blocks.Vectors,
    more: Sequence[tuple[jax.Array, jax.Array]],
) -> list[jax.Array]:
    """x of `marginal_l x_l + sum_m P_lm x_m + more_l x_l = right_l`, 0 where the marginal is 0 and where x is held.

    `change` gives the first two terms, `more` the factor and where x is held. The system is scaled to ones on its
    diagonal. Constants with sum 0 added to the x_l of views without more change nothing; the solution is the one whose
    means under these marginals are all equal, by a term that is 0 for it.
    """
    there = [(m > 0) & ~held for m, (_, held) in zip(marginals, more)]
    root = [jnp.sqrt(jnp.where(t, m + extra, 1)) for t, m, (extra, _) in zip(there, marginals, more)]
    loose = [jnp.all((extra == 0) & ~held).astype(extra.dtype) for extra, held in more]
    lengths = [jnp.sqrt(jnp.sum(jnp.square(r), where=t)) for t, r in zip(there, root)]
    unit = [jnp.where(t, r / x, 0) * some for t, r, x, some in zip(there, root, lengths, loose)]
    count = jnp.maximum(sum(loose[1:], start=loose[0]), 1)

    def divided(vectors: blocks.Vectors) -> tuple[jax.Array, ...]:
        return tuple(jnp.where(t, x / r, 0) for t, x, r in zip(there, vectors, root))

    def system(y: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        x = divided(y)
        sums = [c + extra * part for c, part, (extra, _) in zip(change(x), x, more)]
        means = [jnp.sum(u * part) for u, part in zip(unit, y)]
        mean = sum(means[1:], start=means[0]) / count
        return tuple(s + (own - mean) * u for s, own, u in zip(divided(sums), means, unit))

    tolerance = float(jnp.finfo(right[0].dtype).eps) ** 0.75
    # By itself, cg has no derivative of a derivative in reverse mode: jax-ml/jax issue 33872.
    y = lax.custom_linear_solve(
        system, divided(right), lambda matvec, b: cg(matvec, b, tol=tolerance)[0], symmetric=True
    )
    return list(divided(y))


def _change_of_marginals(plans: blocks.Vectors, x: blocks.Vectors) -> list[jax.Array]:
    """`marginal_l x_l + sum_m P_lm x_m`, that of the marginals by potentials that change by ε x."""
    sums = [marginal * part for marginal, part in zip(_marginals(plans), x)]
    for plan, (l, m) in zip(plans, pairs(len(x))):
        sums[l] += _numerics.inner("ij,j->i", plan, x[m])
        sums[m] += _numerics.inner("ij,i->j", plan, x[l])
    return sums


def _marginals(plans: blocks.Vectors) -> list[jax.Array]:
    """Marginals of the views from those of the pairs of views."""
    k = views_of_pairs(len(plans))
    return [jnp.sum(plans[0], axis=1)] + [jnp.sum(plan, axis=0) for plan in plans[: k - 1]]


def _gradient(work: blocks.Work, at: Given) -> Given:
    """This device's derivatives of `-ε mass`, by potentials the negative marginals; with further ones in both modes."""

    def by(way: blocks.Way) -> Given:
        return jax.grad(partial(_minus_mass, work, way))(_where_right(work, way, at))

    return blocks.any_way(work.way, at.costs, at.epsilon, by, blocks.Way.ROWS)


def _minus_mass(work: blocks.Work, way: blocks.Way, at: Given) -> jax.Array:
    """`-ε mass`; this device's part."""
    if at.costs.edges:
        devices = 1 if work.axis_name is None else lax.axis_size(work.axis_name)
        total = blocks.logsumexp(_tree.messages(at.costs, _scaled(at), at.epsilon, 0)[0], axis=0)
        return -at.epsilon * jnp.exp(total) / devices
    joint = log_joint(work, at.costs, _scaled(at), at.epsilon, groups(len(at.costs.shape))[0], way)
    return -at.epsilon * jnp.sum(jnp.exp(joint))


def _pair_marginals(work: blocks.Work, at: Given) -> tuple[jax.Array, ...]:
    """k(k-1)/2 marginals (n_l, n_m) of the plan on the pairs of views, for any costs; this device's part."""

    def by(way: blocks.Way) -> tuple[jax.Array, ...]:
        if way is blocks.Way.ELEMENTWISE and not _is_sum_of_two(at.costs):
            return _pair_marginals_elementwise(work, at)
        right = _where_right(work, way, at)
        return pair_marginals(work, right.costs, _scaled(right), right.epsilon, way)

    return blocks.any_way(work.way, at.costs, at.epsilon, by, blocks.Way.ROWS)


def _pair_marginals_elementwise(work: blocks.Work, at: Given) -> tuple[jax.Array, ...]:
    """The same from all entries of the plan, as derivatives by matrices of pairs that are added to its exponent."""
    shape, scaled = at.costs.shape, _scaled(at)
    group, rest = groups(len(shape))

    def mass(added: tuple[jax.Array, ...]) -> jax.Array:
        def block(tiles: blocks.Tiles) -> jax.Array:
            exponent = blocks.exponent_block(at.costs, scaled, at.epsilon, tiles)
            exponent = exponent + blocks.cost_block(Geometry(added), tiles)
            return jnp.sum(jnp.exp(exponent), axis=tuple(range(len(group), len(shape))))

        return jnp.sum(blocks.over_blocks(work, shape, group, rest, block))

    zero = 0 * at.epsilon  # varies between devices as epsilon does
    return jax.grad(mass)(
        tuple(jnp.zeros((shape[l], shape[m]), at.costs.dtype) + zero for l, m in pairs(len(shape)))
    )


def _where_right(work: blocks.Work, way: blocks.Way, at: Given) -> Given:
    """`at`, or ones where `way` is not right: under vmap its NaN would get into the derivative of the right one."""
    if work.way is not None or way is blocks.Way.ELEMENTWISE:
        return at
    most, _ = blocks.spread_bounds(len(at.costs.shape), at.costs.dtype)
    fit = blocks.spread_of(at.costs, at.epsilon) <= most
    return jax.tree.map(lambda x: jnp.where(fit, x, jnp.ones_like(x)), at)


def _scaled(at: Given) -> tuple[jax.Array, ...]:
    return scaled_potentials(at.potentials, at.weights, at.epsilon)


def _is_sum_of_two(costs: Geometry) -> bool:
    """Whether the plan is a matrix, its own pair marginal."""
    return costs.pairwise and len(costs.shape) == 2 and not costs.edges
