"""Scores of two views, and aggregations of many, that the caller writes."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike

from mvcl import _checks, _numerics
from mvcl.losses import _embeddings as emb
from mvcl.losses import _lse
from mvcl.losses._declaration import Loss, takes
from mvcl.losses._lse import Vectors

Critic = Callable[[jax.Array, jax.Array], jax.Array]
"""(m, d) and (n, d) vectors -> (m, n) scores, each of its two vectors alone."""
Aggregation = Callable[[jax.Array], jax.Array]
"""(j, ...) -> (...), for every j >= 1, the same in every order of the j."""


def checked(critic: Critic, temperature: ArrayLike, objective: Loss, name: str = "critic") -> Critic:
    """The critic, which raises for scores of a wrong shape; it leaves no place for a temperature of the objective."""
    if not callable(critic):
        raise ValueError(f"{name} must be a function of (m, d) and (n, d) vectors, got {critic!r}")
    if isinstance(temperature, jax.Array) or temperature != takes(objective).options["temperature"]:
        raise ValueError(f"temperature is not used with a {name}, which may have its own, got {temperature}")

    def scores(x: jax.Array, y: jax.Array) -> jax.Array:
        found = _checks.array(f"the {name}'s result", critic(x, y))
        if found.shape != (len(x), len(y)):
            what = f"{name} must make (m, n) scores of (m, d) and (n, d) vectors"
            raise ValueError(f"{what}, {(len(x), len(y))} of {x.shape} and {y.shape}, got {found.shape}")
        return _numerics.widen(found)

    return scores


def same_instance(critic: Critic, x: jax.Array, y: jax.Array) -> jax.Array:
    """`(k, m, n)`: the scores of x_li, (k, n, d), and y_mi, (m, n, d)."""
    return jax.vmap(critic, in_axes=1, out_axes=2)(x, y)


def against_views(
    critic: Critic, x: Vectors, y: Vectors, total: Callable[..., jax.Array] = _numerics.logsumexp
) -> jax.Array:
    """`(k, m, n)`: the log-sum-exp over j != i of the scores of x_li and y_mj; with x's queue a last one, over that.

    Or another `total(scores, axis=, where=)`. In blocks the critic is called again in the backward pass.
    """
    (k, n, d), (m, axis) = x.z.shape, (len(y.z), x.axis_name)
    others = _numerics.gather(y.z, axis, 1).reshape(-1, d)
    everywhere = _lse.everywhere(n, axis)
    there = None if y.keep is None else _numerics.gather(y.keep, axis, 1)
    if x.queue is not None:
        others = jnp.concatenate([others, _numerics.vary_as(x.queue.z[0], others)])
    own = jnp.arange(n) + (0 if axis is None else lax.axis_index(axis) * n)

    def rows(at: tuple[jax.Array, jax.Array]) -> jax.Array:
        vectors, places = at
        scores = critic(vectors, others)
        of_views = scores[:, : m * everywhere].reshape(-1, m, everywhere)
        counts = (places[:, None] != jnp.arange(everywhere)[None])[:, None]
        found = total(of_views, axis=2, where=counts if there is None else counts & there[None])
        if x.queue is None:
            return found
        extra = total(scores[:, m * everywhere :], axis=1)
        return jnp.concatenate([found, extra[:, None]], axis=1)

    every = x.z.reshape(-1, d), jnp.tile(own, k)
    block = _lse.block_rows(1, k * n, len(others), x.block_size)
    if block is None:
        found = rows(every)
    else:
        found = lax.map(jax.checkpoint(rows), tuple(emb.in_blocks(a, block) for a in every))
    return jnp.moveaxis(found.reshape(-1, found.shape[-1])[: k * n].reshape(k, n, -1), 1, 2)


def of_others(aggregation: Aggregation, values: jax.Array, exists: jax.Array | None) -> jax.Array:
    """`(k, n, ...)`: the aggregation of (k, k, n, ...) values over the β != α that exist; zero of none."""
    k = len(values)
    anchor, other = np.arange(k)[:, None], np.array([[b for b in range(k) if b != a] for a in range(k)])
    given = jnp.moveaxis(values[anchor, other], 1, 0)  # (k - 1, k, n, ...)

    def result(some: jax.Array) -> jax.Array:
        found = _checks.array("the aggregation's result", aggregation(some))
        if found.shape != some.shape[1:]:
            what = f"aggregation must make (...) of (j, ...), {some.shape[1:]} of {some.shape}"
            raise ValueError(f"{what}, got {found.shape}")
        return _numerics.widen(found)

    if exists is None:
        return result(given)
    there = jnp.moveaxis(exists[anchor, other], 1, 0)
    order, trailing = jnp.argsort(~there, axis=0), (1,) * (values.ndim - 3)
    given = jnp.take_along_axis(given, order.reshape(*order.shape, *trailing), axis=0)
    count, total = there.sum(0).reshape(*there.shape[1:], *trailing), jnp.zeros_like(given[0])
    for j in range(1, k):  # the order does not matter: the first j are those that exist
        total = jnp.where(count == j, result(given[:j]), total)
    return total
