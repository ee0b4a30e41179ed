"""Where every objective begins and ends: prepared embeddings, their similarities, means over what is there."""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike

from mvcl import _checks, _numerics
from mvcl.losses import _lse
from mvcl.losses._lse import Vectors

Pairs = tuple[tuple[int, int], ...]


@dataclasses.dataclass(frozen=True)
class Embedded:
    """Embeddings that are ready for a formula, and how to compute with them."""

    z: jax.Array  # (k, n, d) float32 or wider; zero where `keep` is False
    keep: jax.Array | None  # (k, n) bool, None where all are there
    projected: bool  # onto the unit sphere, or means of such vectors: none is longer than 1; a queue is projected too
    axis_name: str | None
    block_size: int | None


def embedded(
    z: ArrayLike,
    normalize: bool,
    mask: ArrayLike | None,
    axis_name: str | None = None,
    block_size: int | None = None,
) -> Embedded:
    """Checks and prepares (k, n, d) embeddings."""
    z = _checks.views(z, axis_name)
    keep = _checks.mask(mask, z.shape[:2])
    block_size = _checks.block_size(block_size)
    return Embedded(_prepared(z, normalize, keep), keep, normalize, axis_name, block_size)


def _prepared(z: jax.Array, normalize: bool, keep: jax.Array | None) -> jax.Array:
    """float32 or wider, on the unit sphere if asked; what the mask hides is zero and never read."""
    if keep is not None:
        z = jnp.where(keep[:, :, None], z, 0)
    return _numerics.unit(z) if normalize else _numerics.widen(z)


def queue_embeddings(extra_negatives: ArrayLike | None, e: Embedded) -> Embedded | None:
    """`(1, q, d)` extra negatives, prepared as the embeddings are."""
    if extra_negatives is None:
        return None
    q = _checks.array("extra_negatives", extra_negatives, "q d")
    if q.shape[1] != e.z.shape[2]:
        raise ValueError(f"extra_negatives must have shape (q, {e.z.shape[2]}), got {q.shape}")
    z = _prepared(q.astype(e.z.dtype)[None], e.projected, None)
    return dataclasses.replace(e, z=z, keep=None)


def scaled(e: Embedded, temperature: ArrayLike) -> Vectors:
    """Vectors whose inner products are similarities <u, v> / temperature."""
    t = _checks.scalar("temperature", temperature, e.z.dtype, positive=True)
    z = e.z * lax.rsqrt(t)
    bound: float | jax.Array
    if not e.projected:
        bound = jnp.max(jnp.sum(lax.stop_gradient(z) ** 2, axis=-1))
    elif isinstance(temperature, jax.Array):
        bound = 1 / t
    else:
        bound = 1 / float(temperature)  # type: ignore[arg-type]
    return Vectors(z, e.keep, bound)


@dataclasses.dataclass(frozen=True)
class Similarities:
    """Vectors whose inner products are similarities, further negatives, and how to compute with them."""

    vectors: Vectors
    queue: Vectors | None
    axis_name: str | None
    block_size: int | None


def similarities(e: Embedded, temperature: ArrayLike, extra_negatives: ArrayLike | None) -> Similarities:
    """The embeddings and the queue at a temperature."""
    q = queue_embeddings(extra_negatives, e)
    queue = None if q is None else scaled(q, temperature)
    return Similarities(scaled(e, temperature), queue, e.axis_name, e.block_size)


def same_view_energy(s: Similarities) -> jax.Array:
    """`(k, n)`: LSE_{j != i} s(z_li, z_lj)."""
    return _lse.within(s.vectors, axis_name=s.axis_name, block_size=s.block_size)


class PairEnergies(NamedTuple):
    """By pair (l, m), `(pairs, n)` each."""

    positive: jax.Array  # s(z_li, z_mi)
    forward: jax.Array  # LSE_j s(z_li, z_mj)
    backward: jax.Array  # LSE_j s(z_mi, z_lj)
    exists: jax.Array | None  # does instance i have both views?


def pair_energies(
    s: Similarities, pairs: Pairs, *, diagonal: bool = True, backward: bool = True
) -> PairEnergies:
    """Each unordered block is computed once, whichever way round and however often its views are asked for."""
    v = s.vectors
    oriented = backward or len({frozenset(p) for p in pairs}) < len(pairs)
    unique = tuple(sorted({(min(p), max(p)) for p in pairs})) if oriented else pairs
    rows, columns = _lse.across(
        v, v, unique, diagonal=diagonal, columns=oriented, axis_name=s.axis_name, block_size=s.block_size
    )
    place = {p: i for i, p in enumerate(unique)}
    if unique != pairs:
        both = jnp.concatenate([rows, columns])
        forth = [place[p] if p in place else place[p[::-1]] + len(unique) for p in pairs]
        back = [place[p[::-1]] if p[::-1] in place else place[p] + len(unique) for p in pairs]
        rows, columns = both[np.asarray(forth)], both[np.asarray(back)]
    return PairEnergies(positives(v.z, pairs), rows, columns, both_there(v.keep, pairs))


def positives(z: jax.Array, pairs: Pairs) -> jax.Array:
    """`(pairs, n)`: <z_li, z_mi>."""
    k = len(pairs)
    if pairs == tuple((l, k + l) for l in range(k)):
        return jnp.sum(z[:k] * z[k : 2 * k], axis=-1)
    # View by view: gathering both sides of all pairs would copy (pairs, n, d) twice, and scatter it back.
    views = list(z)
    return jnp.stack([jnp.sum(views[l] * views[m], axis=-1) for l, m in pairs])


def same_instance(z: jax.Array) -> jax.Array:
    """`(k, k, n)`: <z_li, z_mi>."""
    k = z.shape[0]
    pairs = tuple((l, m) for l in range(k) for m in range(l, k))
    place = {p: i for i, p in enumerate(pairs)}
    index = [[place[min(l, m), max(l, m)] for m in range(k)] for l in range(k)]
    return positives(z, pairs)[np.asarray(index)]


def both_there(keep: jax.Array | None, pairs: Pairs) -> jax.Array | None:
    if keep is None:
        return None
    left, right = sides(pairs)
    return keep[left] & keep[right]


def sides(pairs: Pairs) -> tuple[np.ndarray, np.ndarray]:
    """The pairs' first and second views."""
    both = np.asarray(pairs).reshape(-1, 2)
    return both[:, 0], both[:, 1]


def queue_energy(s: Similarities) -> jax.Array | None:
    """`(k, n)`: the log-sum-exp of each vector's similarities with the queue; None without one."""
    if s.queue is None:
        return None
    return _lse.across(
        s.vectors,
        s.queue,
        tuple((l, 0) for l in range(s.vectors.z.shape[0])),
        columns=False,
        axis_name=s.axis_name,
        gathered=False,
        block_size=s.block_size,
    )[0]


def with_queue(s: Similarities, *energies: jax.Array) -> jax.Array:
    """`(k, n)` log-sum-exps over disjoint sets, joined with that over the queue where there is one."""
    extra = queue_energy(s)
    return lse_union(*energies) if extra is None else lse_union(*energies, extra)


def other_views_energy(s: Similarities, *, diagonal: bool = True) -> jax.Array:
    """`(k, n)`: LSE_{m != l, j} s(z_li, z_mj). Each of the k(k-1)/2 blocks of two views serves both of them."""
    v, pairs = s.vectors, unordered(s.vectors.z.shape[0])
    rows, columns = _lse.across(
        v, v, pairs, diagonal=diagonal, axis_name=s.axis_name, block_size=s.block_size
    )
    return _over_other_views(rows, columns, v.z.shape[0])


def unordered(k: int) -> Pairs:
    return tuple((l, m) for l in range(k) for m in range(l + 1, k))


def _over_other_views(rows: jax.Array, columns: jax.Array, k: int) -> jax.Array:
    """`(k, n)`: by view l, the log-sum-exp over all other views, from the blocks of `unordered(k)`."""
    place = {pair: i for i, pair in enumerate(unordered(k))}
    index = [
        [place[l, m] if l < m else place[m, l] + len(place) for m in range(k) if m != l] for l in range(k)
    ]
    return _numerics.logsumexp(jnp.concatenate([rows, columns])[np.asarray(index)], axis=1)


def alignment(v: Vectors) -> jax.Array:
    """`(k, n)`: LSE_{m != l} s(z_li, z_mi) over the views that are there."""
    k = v.z.shape[0]
    pairs = unordered(k)
    same = positives(v.z, pairs)
    exists = both_there(v.keep, pairs)
    if exists is not None:
        same = jnp.where(exists, same, -jnp.inf)
    return _over_other_views(same, same, k)


def lse_union(*energies: jax.Array) -> jax.Array:
    """log Σ exp of log-sum-exps over disjoint sets; an empty set's is -inf."""
    return energies[0] if len(energies) == 1 else _numerics.logsumexp(jnp.stack(energies), axis=0)


def mean_existing(energy: jax.Array, e: Embedded, there: jax.Array | None = None) -> jax.Array:
    """Mean over the log-sum-exps of sets that are not empty, and of vectors that are `there`."""
    if there is not None:
        energy = jnp.where(there, energy, -jnp.inf)
    return _numerics.mean_where(energy, None if e.keep is None else energy != -jnp.inf, e.axis_name)


def mean_of_sums(energy: jax.Array, e: Embedded) -> jax.Array:
    """mean_i Σ_l energy_li, over the views that i has and the instances that have one."""
    if e.keep is None:
        return _numerics.mean_where(energy.sum(0), None, e.axis_name)
    there = e.keep & (energy != -jnp.inf)
    return _numerics.mean_where(jnp.where(there, energy, 0).sum(0), there.any(0), e.axis_name)


def group_means(e: Embedded, queries: int) -> tuple[jax.Array, jax.Array | None]:
    """`(2, n, d)`: the means of the first so many views and of the others, and which exist.

    Means are over the views that are there, and zero where none is.
    """
    means, exist = [], []
    for side in (slice(None, queries), slice(queries, None)):
        if e.keep is None:
            means.append(e.z[side].mean(0))
            continue
        count = jnp.maximum(e.keep[side].sum(0), 1).astype(e.z.dtype)
        means.append(e.z[side].sum(0) / count[:, None])
        exist.append(e.keep[side].any(0))
    return jnp.stack(means), jnp.stack(exist) if exist else None


def mean_of_others(e: jax.Array, there: jax.Array | None) -> tuple[jax.Array, jax.Array | None]:
    """`(k, n, d)` means of the other views that are there, and whether there are any."""
    count = None if there is None else there.sum(0)[None]
    return mean_of_some_others(e, there, e.sum(0)[None], count, e.shape[0])


def mean_of_some_others(
    e: jax.Array, there: jax.Array | None, total: jax.Array, count: jax.Array | None, k: int
) -> tuple[jax.Array, jax.Array | None]:
    """The same for some of the k views, given the sum over all and how many views each instance has."""
    if there is None or count is None:
        return (total - e) / (k - 1), None
    others = count - there.astype(count.dtype)
    # Where no other view is there, the difference of sums leaves rounding errors.
    other = jnp.where(others[..., None] > 0, total - e, 0)
    return other / jnp.maximum(others, 1).astype(e.dtype)[..., None], others > 0


def instances_everywhere(z: jax.Array, axis_name: str | None) -> int:
    """Instances on all devices."""
    return z.shape[1] * (1 if axis_name is None else lax.axis_size(axis_name))


def in_blocks(a: jax.Array, block: int) -> jax.Array:
    """`(blocks, block, ...)`: the rows of an array cut evenly, zeros added at the end."""
    pad = [(0, -a.shape[0] % block)] + [(0, 0)] * (a.ndim - 1)
    return jnp.pad(a, pad).reshape(-1, block, *a.shape[1:])


def recomputed(function: Callable[..., jax.Array], *arguments: jax.Array | None) -> jax.Array:
    """`function(*arguments)`, computed again in the backward pass; reverse mode only."""
    return _recomputed(function, *jax.tree.map(reverse_only, arguments))


def reverse_only(a: jax.Array) -> jax.Array:
    """a; its forward-mode derivative raises an error that names `block_size`."""
    if not jnp.issubdtype(a.dtype, jnp.floating):
        return a
    return _numerics.reverse_only(
        a,
        "forward-mode derivatives (jax.jvp, jacfwd, hessian) need whole blocks of similarities, "
        "and here they are computed in blocks of rows. Use jax.grad, or pass a block_size of all rows.",
    )


# `jax.checkpoint` in a loop would still store what depends on no differentiated input, such as the mask of i = j, for
# all n² entries.
@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _recomputed(function: Callable[..., jax.Array], *arguments: jax.Array | None) -> jax.Array:
    return function(*arguments)


def _recomputed_forward(function: Callable[..., jax.Array], *arguments: jax.Array) -> tuple[jax.Array, Any]:
    return function(*arguments), arguments


def _recomputed_backward(function: Callable[..., jax.Array], residual: Any, cotangent: jax.Array) -> Any:
    return jax.vjp(function, *residual)[1](cotangent)


_recomputed.defvjp(_recomputed_forward, _recomputed_backward)


# `terms(embedded, pairs, **options)` of a pair loss, its `Takes.terms`: a loss is the sum over its `Terms` of the mean
# over what exists. The options are all that the pair loss has but normalize, mask, axis_name and block_size, which
# `Embedded` holds.
TermsOf = Callable[..., "tuple[Terms, ...]"]


class Terms(NamedTuple):
    """Numbers of which a loss takes the mean, for each pair of views by instance."""

    values: jax.Array  # (pairs, ..., n)
    # Of the same shape: True where the number exists, or of how many numbers it is the sum; None: all exist.
    counts: jax.Array | None = None


def mean_terms(
    terms: tuple[Terms, ...], axis_name: str | None, weights: jax.Array | None = None
) -> jax.Array:
    """`(pairs,)`: the sum of the means, over the instances of all devices; (pairs, n) weights multiply the values.

    Weights do not change the number that a mean divides by, which is at least 1.
    """
    return sum((_mean(term, axis_name, weights) for term in terms[1:]), _mean(terms[0], axis_name, weights))


def _mean(term: Terms, axis_name: str | None, weights: jax.Array | None) -> jax.Array:
    values, counts = term
    axes = tuple(range(1, values.ndim))
    if weights is not None:
        shape = (len(values), *(1 for _ in axes[:-1]), values.shape[-1])
        factors = weights.reshape(shape).astype(values.dtype)
        if counts is not None:  # the weight of what does not exist is not read either
            values, factors = jnp.where(counts > 0, values, 0), jnp.where(counts > 0, factors, 0)
        values = values * factors
    if counts is None or counts.dtype == jnp.bool_:
        return _numerics.mean_where(values, counts, axis_name, axis=axes)
    sums = jnp.sum(jnp.where(counts > 0, values, 0), axis=axes), jnp.sum(counts, axis=axes)
    total, number = sums if axis_name is None else lax.psum(sums, axis_name)
    return total / jnp.maximum(number, 1)


def loss_of_pair(
    terms: TermsOf,
    *,
    x: ArrayLike,
    y: ArrayLike,
    normalize: bool,
    mask: ArrayLike | None,
    axis_name: str | None,
    block_size: int | None = None,
    **options: Any,
) -> jax.Array:
    """The loss of two (n, d) views, from all arguments of a pair loss."""
    e = embedded(_checks.pair(x, y, axis_name), normalize, mask, axis_name, block_size)
    return mean_terms(terms(e, ((0, 1),), **options), axis_name)[0]
