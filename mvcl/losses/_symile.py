"""Symile: the multilinear inner product of all views of an instance."""

import math
from functools import partial, reduce
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike

from mvcl import _checks, _numerics
from mvcl.losses import _embeddings as emb
from mvcl.losses import _lse
from mvcl.losses._declaration import declare
from mvcl.losses._lse.whole import either, finite_level, fixed_shift, log_sum, per_sum

__all__ = ["symile"]

Two = tuple[jax.Array, jax.Array]


# Products kept for the backward pass: 2^22 float32 are 16 MB. Above, blocks of so many.
_WHOLE = 2**22
_BLOCK = 2**20


@declare()
def symile(
    z: ArrayLike,
    temperature: ArrayLike = 1.0,
    negatives: Literal["all", "shuffled"] = "all",
    key: jax.Array | None = None,
    *,
    normalize: bool = True,
    mask: ArrayLike | None = None,
    axis_name: str | None = None,
    block_size: int | None = None,
) -> jax.Array:
    """Symile: each view of an instance finds the other views of it, taken together, among other tuples.

        mean_{l,i} [ -p_l(i; i..i) + LSE_j p_l(i; j) ],   p_l(i; j) = Σ_d z_l[i,d] Π_{m != l} z_m[j_m,d] / temperature

    Saporta 2024 (arXiv 2411.01053). With `negatives="all"`, the released n_squared, j runs over all n^(k-1)
    tuples of instances, one for each other view; the released code holds all their products, here they are summed in
    blocks, and one product of three views serves all of them as anchors. With `"shuffled"`, the released n, j runs
    over n - 1 tuples: for each anchor view l independent permutations π_m of the other views make the tuples
    (π_m(j))_m, and in row i that of j = i gives way to the true tuple. The permutation of view m for anchor view l is
    `jax.random.permutation(fold_in(fold_in(key, l), m), n)`, over the instances of all devices.

    Cost: n^k d multiply-adds in the forward pass for "all", k n² d for "shuffled". In blocks "all" holds n^(k-2)
    log-sum-exps for k > 3.

    Args:
      z: (k, n, d) views.
      temperature: positive divisor of the products, no unit.
      negatives: "all" tuples or n - 1 "shuffled" ones.
      key: `jax.random` key of the permutations, needed for "shuffled" alone; the same on all devices.
      mask: a tuple counts if all its vectors are there, an instance is an anchor if it has all views.
      block_size: rows of n products held at once; None decides.

    Returns:
      Scalar, float32 or wider. Where all vectors coincide it is (k - 1) log(n) for "all", log(n) for "shuffled".
    """
    e = emb.embedded(z, normalize, mask, axis_name, block_size)
    t = _checks.scalar("temperature", temperature, e.z.dtype, positive=True)
    _checks.option("negatives", negatives, ("all", "shuffled"))
    known = normalize and not isinstance(temperature, jax.Array)
    bound = 1 / float(temperature) if known else None  # type: ignore[arg-type]
    positive = jnp.prod(e.z, axis=0).sum(1) / t
    if negatives == "all":
        energy = _all_tuples(e, t, bound)
    elif key is None:
        raise ValueError('key must be a jax.random key for negatives="shuffled", got None')
    else:
        others = _shuffled(e, _checks.key("key", key), t, bound)
        energy = emb.lse_union(others, jnp.broadcast_to(positive[None], others.shape))
    anchors = None if e.keep is None else e.keep.all(0)
    return _numerics.mean_where(energy.mean(0) - positive, anchors, axis_name)


def _shuffled(e: emb.Embedded, key: jax.Array, t: jax.Array, bound: float | None) -> jax.Array:
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
    return _lse.across(
        _lse.Vectors(x, anchors, largest),
        _lse.Vectors(y, None if keep is None else jnp.stack(exist), largest),
        tuple((l, l) for l in range(k)),
        diagonal=False,
        columns=False,
        axis_name=e.axis_name,
        block_size=e.block_size,
    )[0]


def _largest(x: jax.Array, axis_name: str | None) -> jax.Array:
    """The length of the longest vector."""
    square = jnp.max(jnp.sum(_numerics.constant(x) ** 2, axis=-1))
    return jnp.sqrt(square if axis_name is None else lax.pmax(square, axis_name))


class _Tuples(NamedTuple):
    """All views: the last two are x and y, and the products of the tuples of the others are u, never all at once."""

    first: tuple[jax.Array, ...]  # (n_l, d) each; none for two views
    x: jax.Array  # (r, d)
    y: jax.Array  # (c, d)
    keep_first: tuple[jax.Array, ...]  # (n_l,) bool each
    keep_x: jax.Array | None  # None where all vectors of all views are there
    keep_y: jax.Array | None

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many vectors each of the first views has."""
        return tuple(len(view) for view in self.first)


class _TupleSums(NamedTuple):
    """Log-sum-exps over all products of a vector of u, of x, of y."""

    u: jax.Array  # (h,)
    x: jax.Array  # (r,)
    y: jax.Array  # (c,)


def _all_tuples(e: emb.Embedded, t: jax.Array, bound: float | None) -> jax.Array:
    """`(k, n)`: by anchor, the log-sum-exp over all tuples of the other views."""
    k, n, _ = e.z.shape
    views = [e.z[0] / t, *_numerics.gather(e.z[1:], e.axis_name, 1)]
    *first, x, y = (_numerics.vary_as(view, e.z) for view in views)
    o = _Tuples(tuple(first), x, y, (), None, None)
    if e.keep is not None:
        *keep_first, keep_x, keep_y = [e.keep[0], *_numerics.gather(e.keep[1:], e.axis_name, 1)]
        o = o._replace(keep_first=tuple(keep_first), keep_x=keep_x, keep_y=keep_y)
    largest = bound if bound is not None else math.prod([_largest(view, None) for view in (*first, x, y)])
    found = _sums(o, largest, e.block_size)
    of_views = found.u.reshape(o.sizes)
    axes = range(k - 2)
    levels = [_numerics.logsumexp(of_views, axis=tuple(m for m in axes if m != l)) for l in axes]
    levels += [found.x, found.y]
    if e.axis_name is not None:
        # Of a view but the first, a device has the tuples with its own rows of the first view.
        levels = [levels[0], *(_lse.over_devices(part, e.axis_name, n) for part in levels[1:])]
    return jnp.stack(levels)


def _sums(o: _Tuples, bound: float | jax.Array, block_size: int | None) -> _TupleSums:
    h, r, c = math.prod(o.sizes), len(o.x), len(o.y)
    if block_size is None:
        longest = max(c, o.x.shape[1])  # a row is a product of two vectors, and its products with all of y
        block_size = h * r if h * r * longest <= _WHOLE else max(1, _BLOCK // longest)
    fixed = fixed_shift(bound, o.x.dtype)
    shift = _numerics.vary_as(_numerics.constant(jnp.asarray(bound, o.x.dtype)), o.x)
    if block_size >= h * r:
        return either(fixed, shift, _dense, o, shift)
    reverse = jax.tree.map(emb.reverse_only, o)
    return _streamed(fixed, max(1, block_size // r), min(block_size, r), reverse, shift)


def _heads(o: _Tuples, at: jax.Array) -> tuple[jax.Array, jax.Array | None]:
    """Products of these tuples of the first views, (h, d), and which are there; None: all. Beyond the last: none."""
    if not o.first:
        return jnp.ones((len(at), o.x.shape[1]), o.x.dtype), None
    places = jnp.unravel_index(at, o.sizes)
    u = reduce(jnp.multiply, [view[place] for view, place in zip(o.first, places)])
    if o.keep_x is None:
        return u, None
    there = [keep[place] for keep, place in zip(o.keep_first, places)]
    return u, jnp.stack(there).all(0)


def _products(u: jax.Array, x: jax.Array, y: jax.Array, *keeps: jax.Array | None) -> Two:
    """(h r, d) products of u, (h, d), and x, (r, d); (h, r, c) inner products with y, (c, d), -inf where not there."""
    pairs = (u[:, None] * x[None]).reshape(-1, u.shape[1])
    similarity = _numerics.products(pairs[None], y[None])[0].reshape(len(u), len(x), len(y))
    return pairs, _masked(similarity, *keeps)


def _masked(similarity: jax.Array, *keeps: jax.Array | None) -> jax.Array:
    for axis, keep in enumerate(keeps):
        if keep is not None:
            similarity = jnp.where(
                jnp.expand_dims(keep, [a for a in range(3) if a != axis]), similarity, -jnp.inf
            )
    return similarity


def _dense(fixed: bool, o: _Tuples, bound: jax.Array) -> _TupleSums:
    """All similarities at once, by one vector of u at a time; in either mode of differentiation."""

    @jax.checkpoint
    def of_one(at: jax.Array) -> tuple[jax.Array, jax.Array | None]:
        u, there = _heads(o, at[None])
        return _numerics.inner("rd,cd->rc", u * o.x, o.y), there

    similarity, there = lax.map(of_one, jnp.arange(math.prod(o.sizes)))
    keep_u = None if there is None else there[:, 0]
    return _sums_of(fixed, _masked(similarity, keep_u, o.keep_x, o.keep_y), bound)


def _sums_of(fixed: bool, similarity: jax.Array, bound: jax.Array) -> _TupleSums:
    if not fixed:
        rows = _numerics.logsumexp(similarity, axis=2)
        columns = _numerics.logsumexp(similarity, axis=(0, 1))
        return _TupleSums(_numerics.logsumexp(rows, axis=1), _numerics.logsumexp(rows, axis=0), columns)
    entries = jnp.exp(similarity - bound)
    rows = entries.sum(2)
    return _TupleSums(*(log_sum(total, bound) for total in (rows.sum(1), rows.sum(0), entries.sum((0, 1)))))


@partial(jax.custom_vjp, nondiff_argnums=(0, 1, 2))
def _streamed(fixed: bool | None, heads: int, rows: int, o: _Tuples, bound: jax.Array) -> _TupleSums:
    """So many vectors of u and of x at a time; their products are computed again in the backward pass."""
    return either(fixed, bound, partial(_forward, heads=heads, rows=rows), o, bound)


def _forward(fixed: bool, o: _Tuples, bound: jax.Array, *, heads: int, rows: int) -> _TupleSums:
    def empty(*shape: int) -> jax.Array:
        return _numerics.vary_as(jnp.full(shape, -jnp.inf, o.x.dtype), o.x)

    def of_heads(carry: Two, at: jax.Array) -> tuple[Two, jax.Array]:
        u, keep_u = _some_heads(o, at)

        def of_rows(carry: Two, block: Any) -> tuple[Two, jax.Array]:
            x, keep_x, level = block
            _, similarity = _products(u, x, o.y, keep_u, keep_x, o.keep_y)
            found = _sums_of(fixed, similarity, bound)
            sums = emb.lse_union(carry[0], found.u), emb.lse_union(carry[1], found.y)
            return sums, emb.lse_union(level, found.x)

        level, columns = carry
        (own, columns), level = lax.scan(of_rows, (empty(heads), columns), (*blocks_x, level))
        return (level, columns), own

    h, blocks_x = math.prod(o.sizes), _cut(o.x, o.keep_x, rows)
    start = empty(len(blocks_x[0]), rows), empty(len(o.y))
    (of_x, of_y), of_u = lax.scan(of_heads, start, _blocks_of(h, heads))
    return _TupleSums(of_u.reshape(-1)[:h], of_x.reshape(-1)[: len(o.x)], of_y)


def _some_heads(o: _Tuples, at: jax.Array) -> Two:
    """`_heads` of a block, of which those beyond the last tuple are not there."""
    u, there = _heads(o, at)
    inside = at < math.prod(o.sizes)
    return u, inside if there is None else there & inside


def _blocks_of(h: int, heads: int) -> jax.Array:
    """(blocks, heads) numbers of the tuples of the first views."""
    return jnp.arange(-(-h // heads) * heads).reshape(-1, heads)


def _cut(x: jax.Array, keep: jax.Array | None, block: int) -> Two:
    """(blocks, block, d) vectors and which are there; vectors that are not are added at the end."""
    there = _numerics.vary_as(jnp.ones(len(x), bool), x) if keep is None else keep
    return emb.in_blocks(x, block), emb.in_blocks(there, block)


def _streamed_forward(
    fixed: bool | None, heads: int, rows: int, o: _Tuples, bound: jax.Array
) -> tuple[_TupleSums, tuple[_Tuples, jax.Array, _TupleSums]]:
    found = _streamed(fixed, heads, rows, o, bound)
    return found, (o, bound, found)


def _streamed_backward(fixed: bool | None, heads: int, rows: int, residual: Any, by: _TupleSums) -> Any:
    o, bound, found = residual
    backward = partial(_backward, heads=heads, rows=rows)
    first, x, y = either(fixed, bound, backward, o, bound, found, by)
    none = tuple(None for _ in o.keep_first)
    return _Tuples(first, x, y, none, None, None), None  # type: ignore[arg-type]


_streamed.defvjp(_streamed_forward, _streamed_backward)


def _backward(
    fixed: bool, o: _Tuples, bound: jax.Array, found: _TupleSums, by: _TupleSums, *, heads: int, rows: int
) -> tuple[tuple[jax.Array, ...], jax.Array, jax.Array]:
    """The cotangents of the first views, of x and of y."""
    level = _TupleSums(*map(finite_level, found))
    slope = _TupleSums(*(per_sum(g, a, bound) for g, a in zip(by, found))) if fixed else by

    def of_heads(carry: Any, head: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[Any, None]:
        at, level_u, slope_u = head
        u, pull, keep_u = jax.vjp(
            lambda first: _some_heads(o._replace(first=first), at), o.first, has_aux=True
        )

        def of_rows(carry: Two, block: Any) -> tuple[Two, jax.Array]:
            x, keep_x, level_x, slope_x, dx = block
            du, dy = carry
            slopes = slope_u[:, None, None], slope_x[None, :, None], slope.y[None, None]
            pairs, similarity = _products(u, x, o.y, keep_u, keep_x, o.keep_y)
            if fixed:
                weight = jnp.exp(similarity - bound) * sum(slopes[1:], slopes[0])
            else:
                levels = level_u[:, None, None], level_x[None, :, None], level.y[None, None]
                terms = [jnp.exp(similarity - a) * g for a, g in zip(levels, slopes)]
                weight = sum(terms[1:], terms[0])
            weight = weight.reshape(len(pairs), -1)
            change = _numerics.inner("ij,jd->id", weight, o.y).reshape(len(u), len(x), -1)
            du, dx = du + (change * x[None]).sum(1), dx + (change * u[:, None]).sum(0)
            return (du, dy + _numerics.transposed_product(weight, pairs)), dx

        first, dx, dy = carry
        (du, dy), dx = lax.scan(of_rows, (_numerics.vary_as(jnp.zeros_like(u), o.x), dy), (*blocks_x, dx))
        return (jax.tree.map(jnp.add, first, pull(du)[0]), dx, dy), None

    blocks_u = (
        _blocks_of(math.prod(o.sizes), heads),
        emb.in_blocks(level.u, heads),
        emb.in_blocks(slope.u, heads),
    )
    blocks_x = *_cut(o.x, o.keep_x, rows), emb.in_blocks(level.x, rows), emb.in_blocks(slope.x, rows)
    start = jax.tree.map(jnp.zeros_like, (o.first, blocks_x[0], o.y))
    (first, dx, dy), _ = lax.scan(of_heads, start, blocks_u)
    return first, dx.reshape(-1, dx.shape[-1])[: len(o.x)], dy
