"""From checked embeddings to what the formulas are written in: scaled vectors, their blocks, positives and
queues.
"""

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
    z: jax.Array,
    normalize: bool,
    mask: ArrayLike | None,
    axis_name: str | None = None,
    block_size: int | None = None,
) -> Embedded:
    """Prepares checked (k, n, d) embeddings; the mask and the block size are checked here."""
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


def within(s: Similarities) -> jax.Array:
    """`(k, n)`: LSE_{j != i} s(z_li, z_lj)."""
    return _lse.within(s.vectors, axis_name=s.axis_name, block_size=s.block_size)


class Blocks(NamedTuple):
    """By pair (l, m), `(pairs, n)` each."""

    positive: jax.Array  # s(z_li, z_mi)
    forward: jax.Array  # LSE_j s(z_li, z_mj)
    backward: jax.Array  # LSE_j s(z_mi, z_lj)
    exists: jax.Array | None  # does instance i have both views?


def blocks(s: Similarities, pairs: Pairs, *, diagonal: bool = True, backward: bool = True) -> Blocks:
    """Each unordered block is computed once, whichever way round and however often its views are asked
    for.
    """
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
    return Blocks(positives(v.z, pairs), rows, columns, both_there(v.keep, pairs))


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
    left, right = columns_of(pairs)
    return keep[left] & keep[right]


def columns_of(pairs: Pairs) -> tuple[np.ndarray, np.ndarray]:
    """The pairs' first and second views."""
    both = np.asarray(pairs).reshape(-1, 2)
    return both[:, 0], both[:, 1]


def to_queue(s: Similarities) -> jax.Array | None:
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
    extra = to_queue(s)
    return join(*energies) if extra is None else join(*energies, extra)


class EveryBlock(NamedTuple):
    """Of each vector z_li, over all views m != l, `(k, n)` each."""

    alignment: jax.Array  # LSE_{m != l} s(z_li, z_mi)
    energy: jax.Array  # LSE_{m != l, j} s(z_li, z_mj)


def every_block(s: Similarities, *, diagonal: bool = True) -> EveryBlock:
    """Each of the k(k-1)/2 blocks of two views serves both of them."""
    v, pairs = s.vectors, unordered(s.vectors.z.shape[0])
    rows, columns = _lse.across(
        v, v, pairs, diagonal=diagonal, axis_name=s.axis_name, block_size=s.block_size
    )
    return EveryBlock(alignment(v), both_ways(rows, columns, v.z.shape[0]))


def unordered(k: int) -> Pairs:
    return tuple((l, m) for l in range(k) for m in range(l + 1, k))


def both_ways(rows: jax.Array, columns: jax.Array, k: int) -> jax.Array:
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
    return both_ways(same, same, k)


def join(*energies: jax.Array) -> jax.Array:
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


def rest(e: jax.Array, there: jax.Array | None) -> tuple[jax.Array, jax.Array | None]:
    """`(k, n, d)` means of the other views that are there, and whether there are any."""
    count = None if there is None else there.sum(0)[None]
    return rest_of(e, there, e.sum(0)[None], count, e.shape[0])


def rest_of(
    e: jax.Array, there: jax.Array | None, total: jax.Array, count: jax.Array | None, k: int
) -> tuple[jax.Array, jax.Array | None]:
    """The same for some of the k views, given the sum over all and how many views each instance has."""
    if there is None or count is None:
        return (total - e) / (k - 1), None
    others = count - there.astype(count.dtype)
    # Where no other view is there, the difference of sums leaves rounding errors.
    other = jnp.where(others[..., None] > 0, total - e, 0)
    return other / jnp.maximum(others, 1).astype(e.dtype)[..., None], others > 0


def rows_everywhere(z: jax.Array, axis_name: str | None) -> int:
    """Instances on all devices."""
    return z.shape[1] * (1 if axis_name is None else lax.axis_size(axis_name))


def sum_over(
    entry: Callable[..., jax.Array],
    x: jax.Array,
    y: jax.Array,
    pairs: Pairs,
    keep_x: jax.Array | None,
    keep_y: jax.Array | None,
    *parameters: jax.Array,
    axis_name: str | None,
    block_size: int | None,
    gathered: bool = True,
) -> jax.Array:
    """`(pairs, n)`: Σ_j entry(<x_li, y_mj>, i == j, *parameters) over the j that are there; zero where i is not.

    For sums of something other than exponentials. In blocks each is recomputed in the backward pass; `entry`
    must not close over what is differentiated.
    """
    n = x.shape[1]
    first: jax.Array | int = 0
    if axis_name is not None and gathered:
        first = lax.axis_index(axis_name) * n
        y = _numerics.gather(y, axis_name, 1)
        keep_y = None if keep_y is None else _numerics.gather(keep_y, axis_name, 1)
    y = _numerics.vary_as(y, x)
    given = tuple(_numerics.vary_as(p, x) for p in parameters)
    m = y.shape[1]
    block = _lse.block_rows(len(pairs), n, m, block_size) or n
    left, right = columns_of(pairs)

    def rows(
        vectors: jax.Array,
        y: jax.Array,
        keep_y: jax.Array | None,
        r: jax.Array,
        positions: jax.Array,
        *given: jax.Array,
    ) -> jax.Array:
        inner = _numerics.inner("id,jd->ij", vectors, y[r])
        values = entry(inner, positions[:, None] == jnp.arange(m)[None, :], *given)
        if keep_y is not None:
            values = jnp.where(keep_y[r][None, :], values, 0)
        return values.sum(1)

    if block >= n:
        place = first + jnp.arange(n)
        sums = jax.vmap(lambda l, r: rows(x[l], y, keep_y, r, place, *given))(
            jnp.asarray(left), jnp.asarray(right)
        )
    else:
        pad = -n % block
        places = (first + jnp.arange(n + pad)).reshape(-1, block)
        vectors = jnp.pad(x, ((0, 0), (0, pad), (0, 0))).reshape(x.shape[0], -1, block, x.shape[2])

        def step(at: tuple[jax.Array, jax.Array, jax.Array]) -> jax.Array:
            l, r, b = at
            return recomputed(rows, vectors[l, b], y, keep_y, r, places[b], *given)

        blocks = np.arange(places.shape[0])
        steps = [np.repeat(left, len(blocks)), np.repeat(right, len(blocks)), np.tile(blocks, len(pairs))]
        sums = lax.map(step, tuple(map(jnp.asarray, steps))).reshape(len(pairs), -1)[:, :n]
    return sums if keep_x is None else jnp.where(keep_x[left], sums, 0)


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
