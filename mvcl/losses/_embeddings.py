"""Where every objective begins and ends: prepared embeddings, their similarities, means over what is there."""

import dataclasses
from collections.abc import Callable
from functools import partial, reduce
from itertools import combinations, combinations_with_replacement, permutations
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike

from mvcl import _checks, _numerics
from mvcl.losses import _lse
from mvcl.losses._declaration import Queued
from mvcl.losses._lse import Pairs, Vectors, lse_union
from mvcl.losses._lse.whole import Two, gradient_again, sides

SHARED = tuple(Queued.__annotations__)


def embedded(
    z: ArrayLike,
    normalize: bool = True,
    mask: ArrayLike | None = None,
    axis_name: str | None = None,
    block_size: int | None = None,
    extra_negatives: ArrayLike | None = None,
) -> Vectors:
    """Checked embeddings, (k, n, d), and negatives, (q, d): float32 or wider, unit if asked, zero where hidden."""
    z = _checks.views(z, axis_name)
    keep, block = _checks.mask(mask, z.shape[:2]), _checks.block_size(block_size)
    if keep is not None:
        z = jnp.where(keep[:, :, None], z, 0)
    z = _numerics.unit(z) if normalize else _numerics.widen(z)
    return queued(Vectors(z, keep, axis_name, block, normalize), extra_negatives)


def queued(e: Vectors, extra_negatives: ArrayLike | None) -> Vectors:
    """The embeddings with `(1, q, d)` extra negatives, prepared as they are."""
    if extra_negatives is None:
        return e
    q = _checks.array("extra_negatives", extra_negatives, "q d")
    if q.shape[1] != e.z.shape[2]:
        raise ValueError(f"extra_negatives must have shape (q, {e.z.shape[2]}), got {q.shape}")
    q = q.astype(e.z.dtype)[None]
    queue = Vectors(_numerics.unit(q) if e.projected else q, None, projected=e.projected)
    return dataclasses.replace(e, queue=queue)


def scaled(e: Vectors, temperature: ArrayLike, name: str = "temperature") -> Vectors:
    """Vectors, and a queue, whose inner products are similarities <u, v> / temperature."""
    t = _checks.scalar(name, temperature, e.z.dtype, positive=True)
    z = e.z * lax.rsqrt(t)
    bound: float | jax.Array
    if e.projected:
        bound = 1 / (t if isinstance(temperature, jax.Array) else float(temperature))  # type: ignore[arg-type]
    else:
        bound = jnp.max(jnp.sum(lax.stop_gradient(z) ** 2, axis=-1))
    return dataclasses.replace(e, z=z, bound=bound, queue=e.queue and scaled(e.queue, temperature))


def pair_energies(s: Vectors, pairs: Pairs, *, diagonal: bool = True, backward: bool = True) -> Two:
    """By pair (l, m), `(pairs, n)`: LSE_j s(z_li, z_mj), and LSE_j s(z_mi, z_lj); each block is computed once."""
    oriented = backward or len({frozenset(p) for p in pairs}) < len(pairs)
    unique = tuple(sorted({(min(p), max(p)) for p in pairs})) if oriented else pairs
    rows, columns = _lse.across(s, s, unique, diagonal=diagonal, columns=oriented)
    if unique == pairs:
        return rows, columns
    place = {p: i for i, p in enumerate(unique)}
    both = jnp.concatenate([rows, columns])
    forth, back = (
        np.asarray([place[p] if p in place else place[p[::-1]] + len(unique) for p in some])
        for some in (pairs, [p[::-1] for p in pairs])
    )
    return both[forth], both[back]


def positives(v: Vectors, pairs: Pairs) -> tuple[jax.Array, jax.Array | None]:
    """`(pairs, n)`: <z_li, z_mi>, and whether instance i has both views; None: all have."""
    k, z, exists = len(pairs), v.z, None
    if v.keep is not None:
        left, right = sides(pairs)
        exists = v.keep[left] & v.keep[right]
    if pairs == tuple((l, k + l) for l in range(k)):
        return jnp.sum(z[:k] * z[k : 2 * k], axis=-1), exists
    # View by view: gathering both sides of all pairs would copy (pairs, n, d) twice, and scatter it back.
    views = list(z)
    return jnp.stack([jnp.sum(views[l] * views[m], axis=-1) for l, m in pairs]), exists


def same_instance(v: Vectors) -> jax.Array:
    """`(k, k, n)`: <z_li, z_mi>."""
    k = v.z.shape[0]
    pairs = tuple(combinations_with_replacement(range(k), 2))
    index = [[pairs.index((min(l, m), max(l, m))) for m in range(k)] for l in range(k)]
    return positives(v, pairs)[0][np.asarray(index)]


def queue_energies(s: Vectors) -> tuple[jax.Array, ...]:
    """The log-sum-exp `(k, n)` of each vector's similarities with its queue, or nothing without a queue."""
    if s.queue is None:
        return ()
    return (_lse.across(s, s.queue, tuple((l, 0) for l in range(s.z.shape[0])), columns=False)[0],)


def with_queue(s: Vectors, *energies: jax.Array) -> jax.Array:
    """`(k, n)` log-sum-exps over disjoint sets, joined with that over the queue where there is one."""
    return lse_union(*energies, *queue_energies(s))


def against_other_views(s: Vectors, *, diagonal: bool = True) -> jax.Array:
    """`(k, k-1, n)`: LSE_j s(z_li, z_mj), by other view m. Each of the k(k-1)/2 blocks of two views serves both."""
    k, n, _ = s.z.shape
    rows, _ = pair_energies(s, tuple(permutations(range(k), 2)), diagonal=diagonal)
    return rows.reshape(k, k - 1, n)


def other_views_of_instance(s: Vectors) -> jax.Array:
    """`(k, k-1, n)`: s(z_li, z_mi), by other view m; -inf where one of the two is not there."""
    k = s.z.shape[0]
    pairs = tuple(combinations(range(k), 2))
    same, exists = positives(s, pairs)
    if exists is not None:
        same = jnp.where(exists, same, -jnp.inf)
    index = [[pairs.index((min(l, m), max(l, m))) for m in range(k) if m != l] for l in range(k)]
    return same[np.asarray(index)]


def mean_where(
    a: jax.Array, where: jax.Array | None, axis_name: str | None, axis: int | tuple[int, ...] | None = None
) -> jax.Array:
    """Mean over the entries where `where` is True, on all devices of `axis_name`; zero if there are none.

    Where it is a number, an entry is the sum of so many.
    """
    if where is None:
        mean = jnp.mean(a, axis=axis)
        return mean if axis_name is None else lax.pmean(mean, axis_name)
    total = jnp.sum(jnp.where(where, a, 0), axis=axis)
    count = jnp.sum(where, axis=axis, dtype=a.dtype)
    if axis_name is not None:
        total, count = lax.psum((total, count), axis_name)
    return total / jnp.maximum(count, 1)


def mean_existing(energy: jax.Array, e: Vectors) -> jax.Array:
    """Mean over the log-sum-exps of sets that are not empty."""
    return mean_where(energy, None if e.keep is None else energy != -jnp.inf, e.axis_name)


def summed_energies(
    energy: jax.Array, e: Vectors, views: Any = slice(None)
) -> tuple[jax.Array, jax.Array | None]:
    """Σ_l energy_li, over the views that i has; and where it has one, None: everywhere."""
    if e.keep is None:
        return energy[views].sum(0), None
    there = e.keep & (energy != -jnp.inf)
    return jnp.where(there, energy, 0)[views].sum(0), there[views].any(0)


def counts(e: Vectors) -> jax.Array:
    """`(k,)`: how many instances have each view, on all devices."""
    if e.keep is None:
        return jnp.full(e.z.shape[0], _lse.everywhere(e.z.shape[1], e.axis_name), e.z.dtype)
    return _numerics.device_sum(jnp.sum(e.keep, axis=1, dtype=e.z.dtype), e.axis_name)


def sum_of_views(z: jax.Array) -> jax.Array:
    """`(n, d)`: the sum of (k, n, d) vectors, view by view: XLA's sum over the leading axis takes ten times as long."""
    return reduce(jnp.add, list(z))


def centres(z: jax.Array, keep: jax.Array | None) -> tuple[jax.Array, jax.Array | None]:
    """`(n, d)`: the means of the views that are there, zero where none is; and where one is, None: everywhere."""
    if keep is None:
        return sum_of_views(z) / len(z), None
    return sum_of_views(z) / jnp.maximum(keep.sum(0), 1).astype(z.dtype)[:, None], keep.any(0)


def group_means(e: Vectors, queries: int) -> tuple[jax.Array, jax.Array | None]:
    """`(2, n, d)`: the `centres` of the first so many views and of the others, and which exist."""
    groups = slice(None, queries), slice(queries, None)
    means, exist = zip(*(centres(e.z[side], None if e.keep is None else e.keep[side]) for side in groups))
    return jnp.stack(means), None if e.keep is None else jnp.stack(exist)


def mean_of_others(e: Vectors) -> tuple[jax.Array, jax.Array | None]:
    """`(k, n, d)` means of the other views that are there, and whether there are any."""
    z, total = e.z, e.z.sum(0)[None]
    if e.keep is None:
        return (total - z) / (z.shape[0] - 1), None
    others = e.keep.sum(0)[None] - e.keep.astype(jnp.int32)
    # Where no other view is there, the difference of sums leaves rounding errors.
    other = jnp.where(others[..., None] > 0, total - z, 0)
    return other / jnp.maximum(others, 1).astype(z.dtype)[..., None], others > 0


def in_blocks(a: jax.Array, block: int) -> jax.Array:
    """`(blocks, block, ...)`: the rows of an array cut evenly, zeros added at the end."""
    pad = [(0, -a.shape[0] % block)] + [(0, 0)] * (a.ndim - 1)
    return jnp.pad(a, pad).reshape(-1, block, *a.shape[1:])


def recomputed(function: Callable[..., Any], *arguments: Any) -> Any:
    """`function(*arguments)`, of trees of arrays, computed again in the backward pass; reverse mode only."""
    return _recomputed(function, *jax.tree.map(_lse.reverse_only, arguments))


# `jax.checkpoint` in a loop would still store what depends on no differentiated input, such as the mask of i = j, for
# all n² entries.
@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _recomputed(function: Callable[..., Any], *arguments: Any) -> Any:
    return function(*arguments)


gradient_again(_recomputed, lambda function, residual, by: jax.vjp(function, *residual[:-1])[1](by))


# A pair loss is the sum over its terms of the mean over what exists. Each has numbers, (pairs, ..., n), and, of their
# shape, True where the number exists or of how many numbers it is the sum; None: all exist.
Terms = tuple[tuple[jax.Array, jax.Array | None], ...]


def mean_terms(terms: Terms, axis_name: str | None, weights: jax.Array | None = None) -> jax.Array:
    """`(pairs,)`: the sum of the means over all devices' instances; (pairs, n) weights multiply values, not counts."""
    means = []
    for values, counts in terms:
        axes = tuple(range(1, values.ndim))
        if weights is not None:
            shape = (len(values), *(1 for _ in axes[:-1]), values.shape[-1])
            factors = weights.reshape(shape).astype(values.dtype)
            if counts is not None:  # the weight of what does not exist is not read either
                values, factors = jnp.where(counts > 0, values, 0), jnp.where(counts > 0, factors, 0)
            values = values * factors
        means.append(mean_where(values, counts, axis_name, axis=axes))
    return reduce(jnp.add, means)


def loss_of_pair(
    terms: Callable[..., Terms], *, x: ArrayLike, y: ArrayLike, shared: Queued, **options: Any
) -> jax.Array:
    """The loss of two (n, d) views from all arguments of a pair loss; `terms` takes what `Vectors` does not hold."""
    e = embedded(_checks.pair(x, y, shared["axis_name"]), **shared)
    return mean_terms(terms(e, ((0, 1),), **options), e.axis_name)[0]
