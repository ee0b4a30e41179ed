"""From checked embeddings to what the formulas are written in: scaled vectors, their blocks, positives and
queues.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike

from mvcl import _checks, _numerics
from mvcl.losses import _lse
from mvcl.losses._lse import Vectors

Pairs = tuple[tuple[int, int], ...]
Function = TypeVar("Function", bound=Callable[..., Any])

# A pair loss -> the same loss of many pairs of views at once: f(z, pairs, **all of its options) ->
# (len(pairs),).
OF_PAIRS: dict[Callable[..., Any], Callable[..., jax.Array]] = {}


def many_pairs(of_pairs: Callable[..., jax.Array]) -> Callable[[Function], Function]:
    """Records the form of a pair loss that shares its similarities between pairs of views.

    `all_pairs` and its like use it; a pair loss without one is called pair by pair.
    """

    def record(pair_loss: Function) -> Function:
        OF_PAIRS[pair_loss] = of_pairs
        return pair_loss

    return record


# Given for `normalize` by the higher-order functions, to losses with a form for many pairs: the vectors are
# unit vectors, or means of them, and are left as they are; only a queue is still to be projected.
PROJECTED = "projected"


def embeddings(z: jax.Array, normalize: bool | str, mask: jax.Array | None) -> jax.Array:
    """float32 or wider, on the unit sphere if asked; what the mask hides is zero and never read."""
    if mask is not None:
        z = jnp.where(mask[:, :, None], z, 0)
    return _numerics.unit(z) if normalize and normalize != PROJECTED else _numerics.widen(z)


def scaled(z: jax.Array, temperature: ArrayLike, unit: bool | str, mask: jax.Array | None) -> Vectors:
    """Vectors whose inner products are similarities <u, v> / temperature."""
    t = _checks.scalar("temperature", temperature, z.dtype, positive=True)
    z = z * lax.rsqrt(t)
    bound: float | jax.Array
    if not unit:
        bound = jnp.max(jnp.sum(lax.stop_gradient(z) ** 2, axis=-1))
    elif isinstance(temperature, jax.Array):
        bound = 1 / t
    else:
        bound = 1 / float(temperature)  # type: ignore[arg-type]
    return Vectors(z, mask, bound)


class Blocks(NamedTuple):
    """By pair (l, m), `(pairs, n)` each."""

    positive: jax.Array  # s(z_li, z_mi)
    forward: jax.Array  # LSE_j s(z_li, z_mj)
    backward: jax.Array  # LSE_j s(z_mi, z_lj)
    exists: jax.Array | None  # does instance i have both views?


def blocks(
    v: Vectors,
    pairs: Pairs,
    *,
    diagonal: bool = True,
    backward: bool = True,
    axis_name: str | None,
    block_size: int | None,
) -> Blocks:
    """Each unordered block is computed once, whichever way round and however often its views are asked
    for.
    """
    oriented = backward or len({frozenset(p) for p in pairs}) < len(pairs)
    unique = tuple(sorted({(min(p), max(p)) for p in pairs})) if oriented else pairs
    rows, columns = _lse.across(
        v, v, unique, diagonal=diagonal, columns=oriented, axis_name=axis_name, block_size=block_size
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


def queue_embeddings(extra_negatives: ArrayLike | None, e: jax.Array, normalize: bool) -> jax.Array | None:
    """`(1, q, d)` extra negatives, prepared as the embeddings are."""
    if extra_negatives is None:
        return None
    q = _checks.array("extra_negatives", extra_negatives, "q d")
    if q.shape[1] != e.shape[2]:
        raise ValueError(f"extra_negatives must have shape (q, {e.shape[2]}), got {q.shape}")
    return embeddings(q.astype(e.dtype)[None], bool(normalize), None)


def queue_vectors(
    extra_negatives: ArrayLike | None, v: Vectors, temperature: ArrayLike, normalize: bool
) -> Vectors | None:
    """Extra negatives whose inner products with `v` are similarities."""
    q = queue_embeddings(extra_negatives, v.z, normalize)
    return None if q is None else scaled(q, temperature, normalize, None)


def to_queue(v: Vectors, queue: Vectors, *, axis_name: str | None, block_size: int | None) -> jax.Array:
    """`(k, n)`: the log-sum-exp of each vector's similarities with the queue."""
    return _lse.across(
        v,
        queue,
        tuple((l, 0) for l in range(v.z.shape[0])),
        columns=False,
        axis_name=axis_name,
        gathered=False,
        block_size=block_size,
    )[0]


class EveryBlock(NamedTuple):
    """Of each vector z_li, over all views m != l, `(k, n)` each."""

    alignment: jax.Array  # LSE_{m != l} s(z_li, z_mi)
    energy: jax.Array  # LSE_{m != l, j} s(z_li, z_mj)


def every_block(
    v: Vectors, *, diagonal: bool = True, axis_name: str | None, block_size: int | None
) -> EveryBlock:
    """Each of the k(k-1)/2 blocks of two views serves both of them."""
    k = v.z.shape[0]
    pairs = unordered(k)
    rows, columns = _lse.across(v, v, pairs, diagonal=diagonal, axis_name=axis_name, block_size=block_size)
    return EveryBlock(alignment(v), both_ways(rows, columns, k))


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


def mean_existing(energy: jax.Array, axis_name: str | None, masked: bool) -> jax.Array:
    """Mean over the log-sum-exps of sets that are not empty."""
    return _numerics.mean_where(energy, energy != -jnp.inf if masked else None, axis_name)


def mean_of_sums(energy: jax.Array, mask: jax.Array | None, axis_name: str | None) -> jax.Array:
    """mean_i Σ_l energy_li, over the views that i has and the instances that have one."""
    if mask is None:
        return _numerics.mean_where(energy.sum(0), None, axis_name)
    there = mask & (energy != -jnp.inf)
    return _numerics.mean_where(jnp.where(there, energy, 0).sum(0), there.any(0), axis_name)


def mean_there(e: jax.Array, there: jax.Array | None) -> jax.Array:
    """`(n, d)`: the mean over the views that are there; zero where none is."""
    if there is None:
        return e.mean(0)
    return e.sum(0) / jnp.maximum(there.sum(0), 1).astype(e.dtype)[:, None]


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


def recomputed(function: Callable[..., jax.Array], *arguments: jax.Array | None) -> jax.Array:
    """`function(*arguments)`, computed again in the backward pass; reverse mode only."""
    return _recomputed(function, *jax.tree.map(_reverse_only, arguments))


def _reverse_only(a: jax.Array) -> jax.Array:
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
