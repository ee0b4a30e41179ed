"""From a loss of two views to a loss of many: functions of functions."""

import dataclasses
import functools
import inspect
from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike

from mvcl import _checks, _numerics
from mvcl.losses import _lse, _views
from mvcl.losses._declaration import Operands, QueueRows, Takes, declare, makes, takes

PairLoss = Callable[..., jax.Array]
ViewLoss = Callable[..., jax.Array]
GroupLoss = Callable[..., jax.Array]


def _of_a_pair(operands: Operands, **properties: Any) -> Callable[..., Takes]:
    """What a higher-order function of a pair loss takes: what the pair loss takes, of other operands."""

    def like(*, pair: PairLoss, **_: Any) -> Takes:
        # The mask is read here too: a pair loss without one sees the views that all instances have.
        return dataclasses.replace(takes(pair), operands=operands, terms=None, measured=None, **properties)

    return like


@declare(like=_of_a_pair(Operands.VIEWS, pair_weights=True))
def _all_pairs(
    z: ArrayLike,
    *,
    pair: PairLoss,
    weights: ArrayLike | None,
    pairs: str,
    reduction: str,
    mask: ArrayLike | None = None,
    **options: Any,
) -> jax.Array:
    z = _checks.views(z, options.get("axis_name"))
    k = z.shape[0]
    chosen = tuple(
        (l, m)
        for l in range(k)
        for m in range(k)
        if l < m or (l > m and pairs != "unordered") or (l == m and pairs == "all")
    )
    factors = None
    if weights is not None:
        factors = _checks.array("weights", weights, "k k")
        if factors.shape != (k, k):
            raise ValueError(f"weights must have shape ({k}, {k}), got {factors.shape}")
    return _over_pairs(pair, z, chosen, factors, reduction, mask, options)


@makes(_all_pairs)
def all_pairs(
    pair: PairLoss,
    weights: ArrayLike | None = None,
    pairs: Literal["unordered", "ordered", "all"] = "unordered",
    reduction: Literal["mean", "sum"] = "mean",
) -> ViewLoss:
    """A pair loss summed or averaged over the pairs of views.

        unordered, mean:  2 / (k (k-1)) Σ_{l<m} W_lm L(z_l, z_m)

    Koromilas 2025 Eq. 4, Piran 2024 Eq. 3; "ordered" is Shidani 2024 Eq. 1 (Multi-Crop). Losses of this
    package compute every similarity once for all the pairs that need it; any other callable is called pair by
    pair.

    Args:
      pair: `f(x, y) -> scalar`, for instance `nt_xent` or `functools.partial(info_nce, temperature=0.2)`.
      weights: (k, k) factors W of the pairs, None for ones; "unordered" reads those above the diagonal.
      pairs: "unordered" (l < m), "ordered" (l != m) or "all" (l = m too).
      reduction: "mean" divides the sum by the number of pairs, whatever the weights; "sum" does not.

    Returns:
      `f(z, *, mask=None, **options)` of (k, n, d) views; the options go to the pair loss. With a mask the
      pairs are those that some instance has.

    Raises:
      ValueError: for an unknown option, or weights that are not (k, k).
    """
    _checks.option("pairs", pairs, ("unordered", "ordered", "all"))
    _checks.option("reduction", reduction, ("mean", "sum"))
    return functools.partial(_all_pairs, pair=pair, weights=weights, pairs=pairs, reduction=reduction)


@declare(like=_of_a_pair(Operands.VIEWS, normalize=True))
def _one_vs_rest(
    z: ArrayLike,
    *,
    pair: PairLoss,
    normalize_rest: bool,
    normalize: bool = True,
    mask: ArrayLike | None = None,
    **options: Any,
) -> jax.Array:
    z = _checks.views(z, options.get("axis_name"))
    k = z.shape[0]
    there = _checks.mask(mask, z.shape[:2])
    z = _views.embeddings(z, normalize, there)
    options = options | _left_alone(pair, normalize)
    columns = _views.rows_everywhere(z, options.get("axis_name"))
    rows = _lse.block_rows(k, z.shape[1], columns, _checks.block_size(options.get("block_size")))
    if rows is not None and takes(pair).block_size:
        return _one_view_at_a_time(pair, z, normalize_rest, there, options | {"block_size": rows})
    rest, rest_there = _views.rest(z, there)
    if normalize_rest:
        rest = _numerics.unit(rest)
    both = jnp.concatenate([z, rest])
    both_there = None if there is None or rest_there is None else jnp.concatenate([there, rest_there])
    return _over_pairs(pair, both, tuple((l, k + l) for l in range(k)), None, "mean", both_there, options)


@makes(_one_vs_rest)
def one_vs_rest(pair: PairLoss, normalize_rest: bool = False) -> ViewLoss:
    """A pair loss of each view with the mean of the others.

        1/k Σ_l L(z_l, r_l),   r_l = mean_{m != l} z_m

    Koromilas 2025 Eq. 5, Piran 2024 Eq. 4. The views are put on the unit sphere here and the pair loss is
    called with `normalize=False` (where it declares that option), so that the mean keeps its length.

    Args:
      pair: `f(x, y, normalize=...) -> scalar`, for instance `nt_xent`.
      normalize_rest: renormalise the mean. The released NT-Xent average does not, the released DHEL average
        does.

    Returns:
      `f(z, *, normalize=True, mask=None, **options)` of (k, n, d) views; the options go to the pair loss.
      With a mask the mean is over the other views that are there.
    """
    return functools.partial(_one_vs_rest, pair=pair, normalize_rest=normalize_rest)


def _one_view_at_a_time(
    pair_loss: PairLoss,
    z: jax.Array,
    normalize_rest: bool,
    there: jax.Array | None,
    options: dict[str, Any],
) -> jax.Array:
    """`one_vs_rest` for batches that go in blocks: no two views share a similarity, so only one mean is held."""

    pair: _views.Pairs = ((0, 1),)

    def one(view: jax.Array, here: jax.Array | None, total: jax.Array, count: jax.Array | None) -> jax.Array:
        rest, rest_there = _views.rest_of(view, here, total, count, z.shape[0])
        if normalize_rest:
            rest = _numerics.unit(rest)
        both = None if here is None or rest_there is None else jnp.stack([here, rest_there])
        return _values(pair_loss, jnp.stack([view, rest]), pair, both, options)[0]

    total, count = z.sum(0), None if there is None else there.sum(0)
    # What the pair loss closes over, a learned temperature for instance, becomes an argument: the loop takes every
    # view's terms again in the backward pass and keeps nothing else.
    first = None if there is None else there[0]
    again, closed_over = jax.closure_convert(one, z[0], first, total, count)
    values = lax.map(lambda v: _views.recomputed(again, *v, total, count, *closed_over), (z, there))
    if there is None or count is None:
        return values.mean()
    return _mean_or_sum(values, there & (count[None] > there.astype(count.dtype)), "mean", options)


@declare(like=_of_a_pair(Operands.GROUPS))
def _cross_pairs(
    queries: ArrayLike, keys: ArrayLike, *, pair: PairLoss, mask: ArrayLike | None = None, **options: Any
) -> jax.Array:
    q, k = groups(queries, keys, options.get("axis_name"))
    chosen = tuple((a, q.shape[0] + b) for a in range(q.shape[0]) for b in range(k.shape[0]))
    return _over_pairs(pair, jnp.concatenate([q, k]), chosen, None, "mean", mask, options)


@makes(_cross_pairs)
def cross_pairs(pair: PairLoss) -> GroupLoss:
    """A pair loss averaged over all pairs of a query view and a key view.

        1 / (m m') Σ_{a, b} L(q_a, k_b)

    Jeon 2025, the released code's `loss_avg`.

    Args:
      pair: `f(x, y) -> scalar`.

    Returns:
      `f(queries, keys, *, mask=None, **options)` of (m, n, d) and (m', n, d) views; `mask` is (m + m', n),
      the queries' first. The options go to the pair loss.
    """
    return functools.partial(_cross_pairs, pair=pair)


@declare(like=_of_a_pair(Operands.GROUPS, normalize=True, queue_rows=QueueRows.GROUP_MEAN))
def _mean_pair(
    queries: ArrayLike,
    keys: ArrayLike,
    *,
    pair: PairLoss,
    normalize: bool = True,
    mask: ArrayLike | None = None,
    **options: Any,
) -> jax.Array:
    q, k = groups(queries, keys, options.get("axis_name"))
    there = _checks.mask(mask, (q.shape[0] + k.shape[0], q.shape[1]))
    z = _views.embeddings(jnp.concatenate([q, k]), normalize, there)
    sides = (slice(None, q.shape[0]), slice(q.shape[0], None))
    means = jnp.stack([_views.mean_there(z[s], None if there is None else there[s]) for s in sides])
    exist = None if there is None else jnp.stack([there[s].any(axis=0) for s in sides])
    options = options | _left_alone(pair, True)
    return _over_pairs(pair, _numerics.unit(means), ((0, 1),), None, "mean", exist, options)


@makes(_mean_pair)
def mean_pair(pair: PairLoss) -> GroupLoss:
    """A pair loss of the mean query and the mean key, both renormalised.

    Jeon 2025, the released code's `fea_avg`.

    Args:
      pair: `f(x, y, normalize=...) -> scalar`.

    Returns:
      `f(queries, keys, *, normalize=True, mask=None, **options)` of (m, n, d) and (m', n, d) views; `mask` is
      (m + m', n), the queries' first, and the means are over what is there. The options go to the pair loss.
    """
    return functools.partial(_mean_pair, pair=pair)


def groups(queries: ArrayLike, keys: ArrayLike, axis_name: str | None) -> tuple[jax.Array, jax.Array]:
    """Two groups of at least one view each, of the same instances."""
    rows = 2 if axis_name is None or lax.axis_size(axis_name) < 2 else 1
    q = _checks.array("queries", queries, "m n d", (1, rows, 1))
    k = _checks.array("keys", keys, "m n d", (1, rows, 1))
    if q.shape[1:] != k.shape[1:] or q.dtype != k.dtype:
        raise ValueError(
            f"keys must have the instances, features and dtype of queries, (m, {q.shape[1]}, {q.shape[2]}) "
            f"{q.dtype}, got {k.shape} {k.dtype}"
        )
    return q, k


def _over_pairs(
    pair_loss: PairLoss,
    z: jax.Array,
    pairs: _views.Pairs,
    weights: jax.Array | None,
    reduction: str,
    mask: ArrayLike | None,
    options: dict[str, Any],
) -> jax.Array:
    there = _checks.mask(mask, z.shape[:2])
    values = _values(pair_loss, z, pairs, there, options)
    left, right = _views.columns_of(pairs)
    if weights is not None:
        values = values * weights.astype(values.dtype)[left, right]
    if there is None:
        return values.mean() if reduction == "mean" else values.sum()
    return _mean_or_sum(values, there[left] & there[right], reduction, options)


def _mean_or_sum(values: jax.Array, both: jax.Array, reduction: str, options: dict[str, Any]) -> jax.Array:
    """Over the pairs of views that some instance has; `both` is (pairs, n)."""
    count = jnp.sum(both, axis=1)
    if options.get("axis_name") is not None:
        count = lax.psum(count, options["axis_name"])
    exists = count > 0
    total = jnp.sum(jnp.where(exists, values, 0))
    return total / jnp.maximum(exists.sum(), 1).astype(total.dtype) if reduction == "mean" else total


def _values(
    pair_loss: PairLoss, z: jax.Array, pairs: _views.Pairs, mask: jax.Array | None, options: dict[str, Any]
) -> jax.Array:
    """(pairs,): the pair loss of each, at once where it knows how."""
    function, bound = pair_loss, {}
    if isinstance(pair_loss, functools.partial) and not pair_loss.args:
        function, bound = pair_loss.func, dict(pair_loss.keywords)
    if function in _views.OF_PAIRS:
        arguments = {**bound, **options} | ({} if mask is None else {"mask": mask})
        filled = inspect.signature(function).bind(None, None, **arguments)
        filled.apply_defaults()
        keywords = {name: value for name, value in filled.arguments.items() if name not in ("x", "y")}
        return _views.OF_PAIRS[function](z, pairs, **keywords)
    left, right = _views.columns_of(pairs)
    call = functools.partial(pair_loss, **options)
    if mask is None:
        return jax.vmap(call)(z[left], z[right])
    flags = jnp.stack([mask[left], mask[right]], axis=1)
    return jax.vmap(lambda x, y, flag: call(x, y, mask=flag))(z[left], z[right], flags)


def _left_alone(pair_loss: PairLoss, unit: bool) -> dict[str, Any]:
    """The option that keeps the pair loss from projecting vectors, which are no longer than 1 if `unit`."""
    if not takes(pair_loss).normalize:
        return {}
    function = pair_loss.func if isinstance(pair_loss, functools.partial) else pair_loss
    known = function in _views.OF_PAIRS and not getattr(pair_loss, "args", ())
    return {"normalize": _views.PROJECTED if unit and known else False}
