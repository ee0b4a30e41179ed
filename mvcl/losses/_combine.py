"""From a loss of two views to a loss of many: functions of functions."""

import dataclasses
import functools
import inspect
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike

from mvcl import _checks, _numerics
from mvcl.losses import _embeddings as emb
from mvcl.losses._declaration import Loss, Measured, Operands, declare, filled, name, takes, unwrap
from mvcl.losses._lse import Pairs, Vectors

__all__ = ["all_pairs", "cross_pairs", "mean_pair", "microbatched", "one_vs_rest"]


def _loss_of(measured: Callable[..., Measured]) -> Loss:
    """The loss without the measures, which `declare` finds below it."""
    parameters = inspect.signature(measured).parameters.values()
    operands = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]

    @functools.wraps(measured)
    def loss(*views: ArrayLike, **options: Any) -> jax.Array:
        if len(views) == 1 and not {*operands[1:]} <= {*options}:
            what = f"the loss compares {' and '.join(operands)}, (m, n, d) each"
            raise ValueError(f"{what}; of views z (k, n, d): loss(z[:1], z[1:])")
        return measured(*views, **options)[0]

    return loss


@_loss_of
def _all_pairs(
    z: ArrayLike,
    *,
    pair: Loss,
    weights: ArrayLike | None,
    pairs: str,
    reduction: str,
    mask: ArrayLike | None = None,
    teacher: int = 0,
    **options: Any,
) -> Measured:
    z = _checks.views(z, options.get("axis_name"))
    k, n = z.shape[0] - teacher, z.shape[1]
    if teacher and pairs == "all":
        raise ValueError('pairs must be "unordered" or "ordered" between student and teacher, got "all"')
    every = itertools.product(range(k), repeat=2)
    some = {"unordered": itertools.combinations, "ordered": itertools.permutations}
    views = chosen = tuple(every if pairs == "all" else some[pairs](range(k), 2))
    if teacher:  # (l, m) with the teacher's view in place of either
        of_left = [((k + l, m), (l, m)) for l, m in views if l < teacher]
        of_right = [((l, k + m), (l, m)) for l, m in views if m < teacher]
        chosen, views = zip(*of_left, *of_right)
    factors = None
    if weights is not None:
        factors = _checks.numbers("weights", weights, jnp.promote_types(z.dtype, jnp.float32))
        if factors.shape not in ((k, k), (k, k, n)):
            raise ValueError(f"weights must have shape ({k}, {k}) or ({k}, {k}, {n}), got {factors.shape}")
        if factors.ndim == 3 and takes(pair).terms is None:
            raise ValueError(
                f"weights must have shape ({k}, {k}) for {name(pair)}, which does not declare the terms of its mean "
                f"over instances, got {factors.shape}"
            )
        factors = factors[emb.sides(views)]
    loss, measures = _over_pairs(pair, z, chosen, mask, options, weights=factors, reduction=reduction)
    return loss * teacher if teacher and reduction == "mean" else loss, measures


@declare(made=_all_pairs, of_pair={"operands": Operands.VIEWS, "pair_weights": True, "teacher": True})
def all_pairs(
    pair: Loss,
    weights: ArrayLike | None = None,
    pairs: Literal["unordered", "ordered", "all"] = "unordered",
    reduction: Literal["mean", "sum"] = "mean",
) -> Loss:
    """A pair loss summed or averaged over the pairs of views.

        unordered, mean:  2 / (k (k-1)) Σ_{l<m} W_lm L(z_l, z_m)

    Koromilas 2025 Eq. 4, Piran 2024 Eq. 3; "ordered" is Shidani 2024 Eq. 1 (Multi-Crop). Losses of this package compute
    every similarity once for all the pairs that need it; any other callable is called pair by pair.

    Cost: each of the k (k-1)/2 blocks of two views once, and of the k within a view where the loss needs them.

    Args:
      pair: `f(x, y) -> scalar`, for instance `nt_xent` or `functools.partial(info_nce, temperature=0.2)`.
      weights: (k, k) factors W of the pairs, arrays or nested tuples, None for ones; "unordered" reads those above the
        diagonal. Or (k, k, n), for losses that declare their `terms`: those of instance i in the pair (l, m) are
        multiplied by W_lmi, each mean still divided by the number of its terms.
      pairs: "unordered" (l < m), "ordered" (l != m) or "all" (l = m too).
      reduction: "mean" divides the sum by the number of pairs, whatever the weights; "sum" does not.

    Returns:
      `f(z, *, weights=weights, mask=None, **options)` of (k, n, d) views; the options go to the pair loss.
      With a mask the pairs are those that some instance has. Inside `shard_map`, (k, k, n) weights are those of
      the device's instances.
    """
    return functools.partial(_all_pairs, pair=pair, weights=weights, pairs=pairs, reduction=reduction)


@_loss_of
def _one_vs_rest(
    z: ArrayLike,
    *,
    pair: Loss,
    normalize_rest: bool,
    normalize: bool = True,
    mask: ArrayLike | None = None,
    teacher: int = 0,
    **options: Any,
) -> Measured:
    e = emb.embedded(z, normalize, mask, options.get("axis_name"))
    k = teacher or len(e.z)  # the teacher's views, with the means of the student's others
    student = slice(None, -teacher or None)
    others = dataclasses.replace(e, z=e.z[student], keep=None if e.keep is None else e.keep[student])
    rest, exist = emb.mean_of_others(others)
    if normalize_rest:
        rest = _numerics.unit(rest)
    both = jnp.concatenate([e.z[-k:], rest[:k]])
    there = None if e.keep is None or exist is None else jnp.concatenate([e.keep[-k:], exist[:k]])
    chosen = tuple((l, k + l) for l in range(k))
    loss, measures = _over_pairs(pair, both, chosen, there, options, projected=normalize)
    return loss * teacher if teacher else loss, measures


@declare(made=_one_vs_rest, of_pair={"operands": Operands.VIEWS, "normalize": True, "teacher": True})
def one_vs_rest(pair: Loss, normalize_rest: bool = False) -> Loss:
    """A pair loss of each view with the mean of the others.

        1/k Σ_l L(z_l, r_l),   r_l = mean_{m != l} z_m

    Koromilas 2025 Eq. 5, Piran 2024 Eq. 4. Views are put on the unit sphere first, so that the mean keeps its length.

    Cost: k times the pair loss.

    Args:
      pair: `f(x, y, normalize=...) -> scalar`, for instance `nt_xent`.
      normalize_rest: renormalise the mean. The released NT-Xent average does not, the released DHEL average does.

    Returns:
      `f(z, *, normalize=True, mask=None, **options)` of (k, n, d) views; the options go to the pair loss.
      With a mask the mean is over the other views that are there.
    """
    return functools.partial(_one_vs_rest, pair=pair, normalize_rest=normalize_rest)


@_loss_of
def _cross_pairs(
    queries: ArrayLike, keys: ArrayLike, *, pair: Loss, mask: ArrayLike | None = None, **options: Any
) -> Measured:
    z, m = groups(queries, keys, options.get("axis_name"))
    return _over_pairs(pair, z, tuple(itertools.product(range(m), range(m, len(z)))), mask, options)


@declare(made=_cross_pairs, of_pair={"operands": Operands.GROUPS})
def cross_pairs(pair: Loss) -> Loss:
    """A pair loss averaged over all pairs of a query view and a key view.

        1 / (m m') Σ_{a, b} L(q_a, k_b)

    Jeon 2025 (arXiv 2507.06560), Algorithm 1, `loss_avg`; the released code has none.

    Cost: m m' times the pair loss.

    Args:
      pair: `f(x, y) -> scalar`.

    Returns:
      `f(queries, keys, *, mask=None, **options)` of (m, n, d) and (m', n, d) views; `mask` is (m + m', n),
      the queries' first. The options go to the pair loss.
    """
    return functools.partial(_cross_pairs, pair=pair)


@_loss_of
def _mean_pair(
    queries: ArrayLike,
    keys: ArrayLike,
    *,
    pair: Loss,
    renormalize: bool,
    normalize: bool = True,
    mask: ArrayLike | None = None,
    **options: Any,
) -> Measured:
    z, m = groups(queries, keys, options.get("axis_name"))
    means, exist = emb.group_means(emb.embedded(z, normalize, mask, options.get("axis_name")), m)
    queue = takes(pair).queue
    if renormalize:
        means = _numerics.unit(means)
        if queue is not None and options.get(queue) is not None:
            options[queue] = _numerics.unit(_checks.array(queue, options[queue], "q d"))
    return _over_pairs(pair, means, ((0, 1),), exist, options, projected=renormalize)


@declare(made=_mean_pair, of_pair={"operands": Operands.GROUPS, "normalize": True, "queue_of_means": True})
def mean_pair(pair: Loss, renormalize: bool = True) -> Loss:
    """A pair loss of the mean query and the mean key.

        L( unit(mean_a q_a), unit(mean_b k_b) )

    Jeon 2025 (arXiv 2507.06560), Algorithm 1, `fea_avg`, which prints the means, not projected again:
    `renormalize=False`. The released code has none.

    Cost: that of the pair loss.

    Args:
      pair: `f(x, y, normalize=...) -> scalar`.
      renormalize: project the means, and the rows of a queue, means of earlier keys, onto the unit sphere.

    Returns:
      `f(queries, keys, *, normalize=True, mask=None, **options)` of (m, n, d) and (m', n, d) views; `mask` is
      (m + m', n), the queries' first, and the means are over what is there. The options go to the pair loss.
    """
    return functools.partial(_mean_pair, pair=pair, renormalize=renormalize)


def groups(queries: ArrayLike, keys: ArrayLike, axis_name: str | None) -> tuple[jax.Array, int]:
    """`(m + m', n, d)`: two groups of at least one view each, of the same instances; and m."""
    rows = 2 if axis_name is None or lax.axis_size(axis_name) < 2 else 1
    q = _checks.array("queries", queries, "m n d", (1, rows, 1))
    k = _checks.array("keys", keys, "m n d", (1, rows, 1))
    if q.shape[1:] != k.shape[1:] or q.dtype != k.dtype:
        what = "keys must have the instances, features and dtype of queries"
        raise ValueError(f"{what}, (m, {q.shape[1]}, {q.shape[2]}) {q.dtype}, got {k.shape} {k.dtype}")
    return jnp.concatenate([q, k]), len(q)


def _over_pairs(
    pair_loss: Loss,
    z: jax.Array,
    pairs: Pairs,
    mask: ArrayLike | None,
    options: dict[str, Any],
    *,
    weights: jax.Array | None = None,
    reduction: str = "mean",
    projected: bool | None = None,
) -> Measured:
    """The pair loss over these pairs, of all at once where it declares its terms, and the largest of its measures.

    Weights are those of the pairs, (pairs,), or (pairs, n), which multiply the terms.

    `projected` is None for vectors as they were given, which the pair loss prepares. Else they are ready, and it says
    whether they are unit vectors or means of some.
    """
    there, declared = _checks.mask(mask, z.shape[:2]), takes(pair_loss)
    left, right = emb.sides(pairs)
    measures, of_instances = {}, weights if weights is not None and weights.ndim == 2 else None
    if declared.terms is None:
        left_alone = {"normalize": False} if declared.normalize and projected is not None else {}
        flags = {} if there is None else {"mask": jnp.stack([there[left], there[right]], axis=1)}
        bound = unwrap(pair_loss)[1] | options | left_alone

        def of_pair(x: jax.Array, y: jax.Array, flag: dict[str, jax.Array]) -> Measured:
            if declared.measured is None:
                return pair_loss(x, y, **options, **left_alone, **flag), {}
            return declared.measured(x, y, **bound, **flag)

        values, found = jax.vmap(of_pair)(z[left], z[right], flags)
        measures = jax.tree.map(jnp.max, found)
    else:
        given = filled(pair_loss, options | {"mask": there})
        shared: Any = {name: given.pop(name) for name in emb.SHARED if name in given}
        if projected is None:
            e = emb.embedded(z, **shared)
        else:
            block, negatives = _checks.block_size(shared.get("block_size")), shared.get("extra_negatives")
            e = emb.queued(Vectors(z, there, shared["axis_name"], block, projected), negatives)
        values = emb.mean_terms(declared.terms(e, pairs, **given), e.axis_name, of_instances)
    if weights is not None and of_instances is None:
        values = values * weights.astype(values.dtype)
    exists = None
    if there is not None:  # over the pairs of views that some instance has
        both = jnp.sum(there[left] & there[right], axis=1)
        exists = _numerics.device_sum(both, options.get("axis_name")) > 0
    total = emb.mean_where(values, exists, None) if reduction == "mean" else jnp.sum(values, where=exists)
    return total, measures


Encode = Callable[[Any], jax.Array]


def microbatched(
    objective: Callable[..., jax.Array], encode: Encode | Sequence[Encode], batch: Any, *, size: int
) -> jax.Array:
    """The objective of a batch that is encoded `size` rows at a time, with the gradient of the whole batch.

    Each part is encoded again in the backward pass, so that its activations are not kept; the embeddings of all are.

        def loss(params):
            return losses.microbatched(losses.mv_dhel, lambda x: apply(params, x), views, size=64)
        value, gradient = jax.value_and_grad(loss)(params)

    With nnx `encode` is the module inside `nnx.value_and_grad`, with equinox `jax.vmap(model)`.

    Args:
      objective: of (k, n, d) embeddings.
      encode: (m, ...) rows of a view -> (m, d), each row by itself: without batch statistics, dropout or other state
        that it changes. A list has one for each view.
      batch: (k, n, ...), or a list or dict of k arrays (n, ...).
      size: rows that are encoded at once, at least 1; the last part is filled up with the last row.

    Returns:
      Scalar, as the objective's.
    """
    given = list(batch.values()) if isinstance(batch, Mapping) else batch
    views, size = _checks.several("batch", given), _checks.whole("size", size)
    encoders = [encode] * len(views) if callable(encode) else list(encode)
    if len(encoders) != len(views):
        what = f"encode must be a function, or one of each of {len(views)} views"
        raise ValueError(f"{what}, got {len(encoders)}")
    return objective(jnp.stack([_in_parts(f, jnp.asarray(x), size) for f, x in zip(encoders, views)]))


def _in_parts(encode: Encode, rows: jax.Array, size: int) -> jax.Array:
    count, size = len(rows), min(size, len(rows))
    filled = jnp.concatenate([rows, jnp.repeat(rows[-1:], -count % size, axis=0)])
    parts = filled.reshape((-1, size, *rows.shape[1:]))
    found = lax.map(jax.checkpoint(lambda part: encode(part)), parts)
    return found.reshape((-1, *found.shape[2:]))[:count]
