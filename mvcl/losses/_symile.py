"""Symile: the multilinear inner product of all views of an instance."""

import dataclasses
import math
from functools import partial, reduce
from typing import Any, Literal, Unpack

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike

from mvcl import _checks, _numerics
from mvcl.losses import _embeddings as emb
from mvcl.losses import _lse
from mvcl.losses._declaration import Shared, declare
from mvcl.losses._lse import Vectors, lse_union
from mvcl.losses._lse.whole import Two, by_similarity, either, gradient_again, kept, log_sum, shift, weighed

__all__ = ["symile"]

Arrays = tuple[jax.Array, ...]

# Products kept for the backward pass: 2^22 float32 are 16 MB. Above, blocks of so many.
_WHOLE = 2**22
_BLOCK = 2**20


@declare()
def symile(
    z: ArrayLike,
    temperature: ArrayLike = 1.0,
    negatives: Literal["all", "shuffled"] = "all",
    key: jax.Array | None = None,
    **shared: Unpack[Shared],
) -> jax.Array:
    """Symile: each view of an instance finds the other views of it, taken together, among other tuples.

        mean_{l,i} [ -p_l(i; i..i) + LSE_j p_l(i; j) ],   p_l(i; j) = Σ_d z_l[i,d] Π_{m != l} z_m[j_m,d] / temperature

    Saporta 2024 (arXiv 2411.01053). With `negatives="all"`, the released n_squared, j runs over all n^(k-1) tuples of
    instances, one for each other view, summed in blocks. With `"shuffled"`, the released n, j runs over n - 1 tuples:
    for each anchor view l independent permutations π_m of the other views make the tuples (π_m(j))_m, and in row i that
    of j = i gives way to the true tuple; π_m is `jax.random.permutation(fold_in(fold_in(key, l), m), n)`.

    Cost: n^k d multiply-adds in the forward pass for "all", k n² d for "shuffled". In blocks "all" holds n^(k-2)
    log-sum-exps for k > 3.

    Args:
      negatives: "all" tuples or n - 1 "shuffled" ones.
      key: `jax.random` key of the permutations, needed for "shuffled" alone; the same on all devices.
      mask: a tuple counts if all its vectors are there, an instance is an anchor if it has all views.

    Returns:
      Scalar, float32 or wider. Where all vectors coincide it is (k - 1) log(n) for "all", log(n) for "shuffled".
    """
    e = emb.embedded(z, **shared)
    t = _checks.scalar("temperature", temperature, e.z.dtype, positive=True)
    known = e.projected and not isinstance(temperature, jax.Array)
    bound = 1 / float(temperature) if known else None  # type: ignore[arg-type]
    positive = jnp.prod(e.z, axis=0).sum(1) / t
    if negatives == "all":
        energy = _all_tuples(e, t, bound)
    elif key is None:
        raise ValueError('key must be a jax.random key for negatives="shuffled", got None')
    else:
        others = _shuffled(e, _checks.key("key", key), t, bound)
        energy = lse_union(others, jnp.broadcast_to(positive[None], others.shape))
    anchors = None if e.keep is None else e.keep.all(0)
    return emb.mean_where(energy.mean(0) - positive, anchors, e.axis_name)


def _shuffled(e: Vectors, key: jax.Array, t: jax.Array, bound: float | None) -> jax.Array:
    """`(k, n)`: by anchor, the log-sum-exp over the shuffled tuples of the other rows."""
    k, n, d = e.z.shape
    every = _numerics.gather(e.z, e.axis_name, 1)
    keep = None if e.keep is None else _numerics.gather(e.keep, e.axis_name, 1)
    first = 0 if e.axis_name is None else lax.axis_index(e.axis_name) * n
    products, exist = [], []
    for l in range(k):
        product, there = jnp.ones((n, d), e.z.dtype), jnp.ones(n, bool)
        for m in [m for m in range(k) if m != l]:
            order = jax.random.permutation(jax.random.fold_in(jax.random.fold_in(key, l), m), every.shape[1])
            rows = lax.dynamic_slice_in_dim(order, first, n)
            product = product * every[m][rows]
            there = there if keep is None else there & keep[m][rows]
        products.append(product)
        exist.append(there)
    anchors = None if e.keep is None else jnp.broadcast_to(e.keep.all(0)[None], (k, n))
    x, y = e.z / t, jnp.stack(products)
    largest = bound if bound is not None else _largest(x, e.axis_name) * _largest(y, e.axis_name)
    queries = Vectors(x, anchors, e.axis_name, e.block_size, bound=largest)
    keys = dataclasses.replace(queries, z=y, keep=None if keep is None else jnp.stack(exist))
    return _lse.across(queries, keys, tuple((l, l) for l in range(k)), diagonal=False, columns=False)[0]


def _largest(x: jax.Array, axis_name: str | None) -> jax.Array:
    square = jnp.max(jnp.sum(_numerics.constant(x) ** 2, axis=-1))
    return jnp.sqrt(square if axis_name is None else lax.pmax(square, axis_name))


# The last two of all views, (n_l, d) each, are x and y; the products of the tuples of the others are u, never all held.
# `keeps` are (n_l,) bool by view, none where all vectors are there. The sums are log-sum-exps over all products with a
# vector of u, (h,), of x, (r,), and of y, (c,).


def _all_tuples(e: Vectors, t: jax.Array, bound: float | None) -> jax.Array:
    """`(k, n)`: by anchor, the log-sum-exp over all tuples of the other views."""
    k, n, _ = e.z.shape
    all_views = [e.z[0] / t, *_numerics.gather(e.z[1:], e.axis_name, 1)]
    views = tuple(_numerics.vary_as(view, e.z) for view in all_views)
    keeps = () if e.keep is None else (e.keep[0], *_numerics.gather(e.keep[1:], e.axis_name, 1))
    (*_, x, y), block_size = views, e.block_size
    h, r = math.prod(_sizes(views)), len(x)
    if block_size is None:
        longest = max(len(y), x.shape[1])  # a row is a product of two vectors, and its products with all of y
        block_size = h * r if h * r * longest <= _WHOLE else max(1, _BLOCK // longest)
    known = bound if bound is not None else math.prod([_largest(view, None) for view in views])
    fixed, largest = shift(known, x)
    if block_size >= h * r:
        u, *levels = either(fixed, largest, _dense, views, keeps, largest)
    else:
        reverse = tuple(map(_lse.reverse_only, views))
        u, *levels = _streamed(fixed, max(1, block_size // r), min(block_size, r), reverse, keeps, largest)
    of_views, axes = u.reshape(_sizes(views)), range(k - 2)
    of_first = [_numerics.logsumexp(of_views, axis=tuple(m for m in axes if m != l)) for l in axes]
    levels = of_first + levels
    if e.axis_name is not None:
        # Of a view but the first, a device has the tuples with its own rows of the first view.
        levels = [levels[0], *(_lse.over_devices(part, e.axis_name, n) for part in levels[1:])]
    return jnp.stack(levels)


def _sizes(views: Arrays) -> tuple[int, ...]:
    """How many vectors each of the first views has."""
    return tuple(len(view) for view in views[:-2])


def _heads(views: Arrays, keeps: Arrays, at: jax.Array) -> tuple[jax.Array, jax.Array | None]:
    """Products of these tuples of the first views, (h, d), and which are there; None: all. Beyond the last: none."""
    if len(views) == 2:
        return jnp.ones((len(at), views[0].shape[1]), views[0].dtype), None
    places = jnp.unravel_index(at, _sizes(views))
    u = reduce(jnp.multiply, [view[place] for view, place in zip(views, places)])
    return u, jnp.stack([keep[place] for keep, place in zip(keeps, places)]).all(0) if keeps else None


def _products(u: jax.Array, x: jax.Array, y: jax.Array, *keeps: jax.Array | None) -> Two:
    """(h r, d) products of u, (h, d), and x, (r, d); (h, r, c) inner products with y, (c, d), -inf where not there."""
    pairs = (u[:, None] * x[None]).reshape(-1, u.shape[1])
    similarity = _numerics.products(pairs[None], y[None])[0].reshape(len(u), len(x), len(y))
    return pairs, _masked(similarity, *keeps)


def _masked(similarity: jax.Array, *keeps: jax.Array | None) -> jax.Array:
    for axis, keep in enumerate(keeps):
        if keep is not None:
            there = jnp.expand_dims(keep, [a for a in range(3) if a != axis])
            similarity = jnp.where(there, similarity, -jnp.inf)
    return similarity


def _dense(fixed: bool, views: Arrays, keeps: Arrays, bound: jax.Array) -> Arrays:
    """All similarities at once, by one vector of u at a time; in either mode of differentiation."""

    @jax.checkpoint
    def of_one(at: jax.Array) -> tuple[jax.Array, jax.Array | None]:
        u, there = _heads(views, keeps, at[None])
        return _numerics.inner("rd,cd->rc", u * views[-2], views[-1]), there

    similarity, there = lax.map(of_one, jnp.arange(math.prod(_sizes(views))))
    return _sums_of(fixed, _masked(similarity, None if there is None else there[:, 0], *keeps[-2:]), bound)


def _sums_of(fixed: bool, similarity: jax.Array, bound: jax.Array) -> Arrays:
    total: Any = jnp.sum if fixed else _numerics.logsumexp
    entries = kept(fixed, similarity, None, bound)
    rows = total(entries, axis=2)
    sums = total(rows, axis=1), total(rows, axis=0), total(entries, axis=(0, 1))
    return tuple(log_sum(of, bound) for of in sums) if fixed else sums


@partial(jax.custom_vjp, nondiff_argnums=(0, 1, 2))
def _streamed(
    fixed: bool | None, heads: int, rows: int, views: Arrays, keeps: Arrays, bound: jax.Array
) -> Arrays:
    """So many vectors of u and of x at a time; their products are computed again in the backward pass."""
    return either(fixed, bound, partial(_forward, heads=heads, rows=rows), views, keeps, bound)


def _forward(fixed: bool, views: Arrays, keeps: Arrays, bound: jax.Array, *, heads: int, rows: int) -> Arrays:
    (*_, x, y), keep_y = views, keeps[-1] if keeps else None

    def empty(*shape: int) -> jax.Array:
        return _numerics.vary_as(jnp.full(shape, -jnp.inf, x.dtype), x)

    def of_heads(carry: Two, at: jax.Array) -> tuple[Two, jax.Array]:
        u, keep_u = _some_heads(views, keeps, at)

        def of_rows(carry: Two, block: Any) -> tuple[Two, jax.Array]:
            x, keep_x, level = block
            _, similarity = _products(u, x, y, keep_u, keep_x, keep_y)
            of_u, of_x, of_y = _sums_of(fixed, similarity, bound)
            return (lse_union(carry[0], of_u), lse_union(carry[1], of_y)), lse_union(level, of_x)

        level, columns = carry
        (own, columns), level = lax.scan(of_rows, (empty(heads), columns), (*blocks_x, level))
        return (level, columns), own

    h, blocks_x = math.prod(_sizes(views)), _blocks_of_rows(views, keeps, rows)
    start = empty(len(blocks_x[0]), rows), empty(len(y))
    (of_x, of_y), of_u = lax.scan(of_heads, start, _blocks_of(h, heads))
    return of_u.reshape(-1)[:h], of_x.reshape(-1)[: len(x)], of_y


def _some_heads(views: Arrays, keeps: Arrays, at: jax.Array) -> Two:
    """`_heads` of a block, of which those beyond the last tuple are not there."""
    u, there = _heads(views, keeps, at)
    inside = at < math.prod(_sizes(views))
    return u, inside if there is None else there & inside


def _blocks_of(h: int, heads: int) -> jax.Array:
    """(blocks, heads) numbers of the tuples of the first views."""
    return jnp.arange(-(-h // heads) * heads).reshape(-1, heads)


def _blocks_of_rows(views: Arrays, keeps: Arrays, rows: int) -> Two:
    """(blocks, rows, d) vectors of x and which are there; vectors that are not are added at the end."""
    x = views[-2]
    there = keeps[-2] if keeps else _numerics.vary_as(jnp.ones(len(x), bool), x)
    return emb.in_blocks(x, rows), emb.in_blocks(there, rows)


def _streamed_backward(fixed: bool | None, heads: int, rows: int, residual: Any, by: Arrays) -> Any:
    _, keeps, bound, _ = residual
    backward = partial(_backward, heads=heads, rows=rows)
    return either(fixed, bound, backward, residual, by), tuple(None for _ in keeps), None


gradient_again(_streamed, _streamed_backward)


def _backward(fixed: bool, residual: Any, by: Arrays, *, heads: int, rows: int) -> Arrays:
    views, keeps, bound, found = residual
    (*first, x, y), keep_y = views, keeps[-1] if keeps else None
    slopes = [weighed(fixed, *side, bound) for side in zip(found, by)]
    of_y = tuple(a[None, None] for a in slopes[2])

    def of_heads(carry: Any, head: Arrays) -> tuple[Any, None]:
        at, *of_u = head
        u, pull, keep_u = jax.vjp(lambda first: _some_heads((*first, x, y), keeps, at), first, has_aux=True)

        def of_rows(carry: Two, block: Any) -> tuple[Two, jax.Array]:
            x, keep_x, dx, *of_x = block
            du, dy = carry
            sums = tuple(a[:, None, None] for a in of_u), tuple(a[None, :, None] for a in of_x), of_y
            pairs, similarity = _products(u, x, y, keep_u, keep_x, keep_y)
            weight = by_similarity(fixed, kept(fixed, similarity, None, bound), *sums).reshape(len(pairs), -1)
            change = _numerics.inner("ij,jd->id", weight, y).reshape(len(u), len(x), -1)
            du, dx = du + (change * x[None]).sum(1), dx + (change * u[:, None]).sum(0)
            return (du, dy + _numerics.transposed_product(weight, pairs)), dx

        dfirst, dx, dy = carry
        blocks = *blocks_x, dx, *of_blocks_x
        (du, dy), dx = lax.scan(of_rows, (_numerics.vary_as(jnp.zeros_like(u), x), dy), blocks)
        return (jax.tree.map(jnp.add, dfirst, pull(du)[0]), dx, dy), None

    blocks_x = _blocks_of_rows(views, keeps, rows)
    of_blocks_u = [emb.in_blocks(a, heads) for a in slopes[0]]
    of_blocks_x = [emb.in_blocks(a, rows) for a in slopes[1]]
    start = jax.tree.map(jnp.zeros_like, (first, blocks_x[0], y))
    blocks_u = _blocks_of(math.prod(_sizes(views)), heads), *of_blocks_u
    (dfirst, dx, dy), _ = lax.scan(of_heads, start, blocks_u)
    return *dfirst, dx.reshape(-1, dx.shape[-1])[: len(x)], dy
