"""Divergence-based similarity of two groups of views."""

import dataclasses
from types import SimpleNamespace
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike

from mvcl import _checks, _numerics
from mvcl.losses import _embeddings as emb
from mvcl.losses import _lse
from mvcl.losses._bessel import bessel_ratio, log_series
from mvcl.losses._combine import groups
from mvcl.losses._declaration import Operands, QueueRows, declare, filled
from mvcl.losses._lse import Vectors, lse_union

__all__ = ["dsf"]


def _measured(
    queries: ArrayLike, keys: ArrayLike, queue: ArrayLike | None = None, **options: Any
) -> tuple[jax.Array, dict[str, jax.Array]]:
    given = filled(dsf, options | {"queue": queue})
    x, y, alone, resultant, kappa, exists = _similarities(queries, keys, given)
    own = given["in_batch_negatives"]
    return _loss(x, y, own), lax.stop_gradient(_measures(x, y, own, alone, resultant, kappa, exists))


@declare(measured=_measured, operands=Operands.GROUPS, queue="queue", queue_rows=QueueRows.GROUP_MEAN)
def dsf(
    queries: ArrayLike,
    keys: ArrayLike,
    queue: ArrayLike | None = None,
    *,
    temperature: ArrayLike = 1.0,
    resultant_scale: float = 0.95,
    normalize_concentration: bool = True,
    mean_resultant: Literal["estimate", "exact"] = "estimate",
    queue_concentration: Literal["own", "batch_mean"] = "own",
    in_batch_negatives: bool = True,
    normalize: bool = True,
    mask: ArrayLike | None = None,
    axis_name: str | None = None,
    block_size: int | None = None,
) -> jax.Array:
    """DSF: contrast von Mises-Fisher distributions, one fitted to each group of views of an instance.

        -mean_i log softmax_j( -D(i || j) / temperature )[i]
        D(i || j) = (d/2 - 1) log(κ_i / κ_j) + log I_{d/2-1}(κ_j) - log I_{d/2-1}(κ_i)
                    + A_i (κ_i - κ_j <μ_i, μ_j>)

    i from the queries, j over the keys; μ is the direction of the group's mean z̄, R = resultant_scale
    ||z̄||, κ = R (d - R²) / (1 - R²). Jeon 2025 (arXiv 2507.06560), Eqs. 3-11; the temperature is Table 3's.

    By default D is not a Kullback-Leibler divergence, though the paper calls it one: with A = R, as the released code
    trains, it can be negative. At d = 128, for equal directions and lengths ||z̄|| of 0.8 and 1, it is -5.64. D is
    the divergence for `mean_resultant="exact"`, whose A = I_{d/2}(κ) / I_{d/2-1}(κ) is about κ/d for small κ. With
    κ divided by d that leaves a similarity hardly any range: at d = 128 and 4,096 negatives the loss cannot fall
    below 6.86, where chance is 8.32; with A = R it can fall to 0.00004. To train with `exact`, set
    `normalize_concentration=False`.

    What depends on i alone cancels in the softmax, so that a similarity is <A_i μ_i, κ_j μ_j> minus a function of
    κ_j that is smooth at 0. The released code expands log I to three terms; for MoCo v3 it subtracts the logarithm of
    the series ratio where it must be added, for MoCo v2 it takes A = 1 at m = 1.

    Cost: n² d multiply-adds in the forward pass.

    Args:
      queries: (m, n, d) floating, m >= 1, n >= 2: one group of views.
      keys: (m', n, d), of the same dtype: the other group.
      queue: (q, d) further negatives, means z̄ of earlier groups of unit vectors, whose lengths give their κ; a row
        longer than 1 counts as a unit vector. Without gradient.
      temperature: positive divisor of the similarities.
      resultant_scale: factor of ||z̄|| that keeps R below one.
      normalize_concentration: divide κ by d, as the released models were trained.
      mean_resultant: "estimate" takes A_i = R_i, as trained; "exact" takes I_{d/2}(κ_i) / I_{d/2-1}(κ_i), the
        true Kullback-Leibler divergence.
      queue_concentration: "own" gives each row of the queue the κ of its own length, as Eq. 11; "batch_mean" gives all
        of them the mean over the batch's 2n concentrations, as the released code.
      in_batch_negatives: False leaves each instance's own key and the queue, as MoCo v2 does.
      normalize: project vectors onto the unit sphere first; without it they must be no longer than 1.
      mask: (m + m', n) bool, the queries' first: a group's mean is over the views that are there; the mean
        over instances is over those with both groups.

    Returns:
      Scalar, float32 or wider. Where all groups coincide it is log(n), the chance level.
    """
    options = locals()  # every argument, by name
    x, y, *_ = _similarities(options.pop("queries"), options.pop("keys"), options)
    return _loss(x, y, in_batch_negatives)


def _similarities(
    queries: ArrayLike, keys: ArrayLike, options: dict[str, Any]
) -> tuple[Vectors, Vectors, jax.Array, jax.Array, jax.Array, jax.Array | None]:
    """(1, n, d + 1) vectors, x with a queue of its own, such that <x_i, y_j> + alone_i = -D(i || j) / temperature.

    And what they were made of: alone, (n,); R and κ, (2, n); which groups exist, (2, n).
    """
    given = SimpleNamespace(**options)
    q, k = groups(queries, keys, given.axis_name)
    d = q.shape[2]
    if d < 2:
        raise ValueError(f"queries must have d >= 2 features, got {q.shape}")
    _checks.option("mean_resultant", given.mean_resultant, ("estimate", "exact"))
    _checks.option("queue_concentration", given.queue_concentration, ("own", "batch_mean"))
    if not given.in_batch_negatives and given.queue is None:
        raise ValueError("queue must be given with in_batch_negatives=False, got None")
    e = emb.embedded(jnp.concatenate([q, k]), given.normalize, given.mask, given.axis_name, given.block_size)
    scale = _checks.scalar("resultant_scale", given.resultant_scale, e.z.dtype, positive=True)
    t = _checks.scalar("temperature", given.temperature, e.z.dtype, positive=True)
    means, exists = emb.group_means(e, q.shape[0])
    direction, resultant, kappa = _fit(means, scale, given.normalize_concentration)
    order = d / 2 - 1
    own = resultant[0] if given.mean_resultant == "estimate" else bessel_ratio(order, kappa[0])
    mean_kappa = lax.stop_gradient(_numerics.mean_where(kappa, exists, given.axis_name))
    # A constant added to every similarity changes nothing; this one keeps them small.
    constant = log_series(order, mean_kappa)

    def vectors(z: jax.Array, last: jax.Array, group: int | None) -> Vectors:
        z = jnp.concatenate([z, last[:, None]], axis=1)[None]
        bound = jnp.max(jnp.sum(lax.stop_gradient(z) ** 2, axis=-1))
        if group is None:  # the queue's, of which every device has all
            return Vectors(z, None, bound=bound)
        return dataclasses.replace(e, z=z, keep=None if exists is None else exists[group][None], bound=bound)

    x = vectors(own[:, None] * direction[0] / t, jnp.ones_like(own) / t, 0)
    y = vectors(kappa[1][:, None] * direction[1], constant - log_series(order, kappa[1]), 1)
    if given.queue is not None:
        rows = _checks.array("queue", given.queue, "q d")
        if rows.shape[1] != d:
            raise ValueError(f"queue must have shape (q, {d}), got {rows.shape}")
        rows = lax.stop_gradient(rows).astype(e.z.dtype)
        rows = jnp.where(_length(rows)[:, None] > 1, _numerics.unit(rows), rows)
        along, _, far = _fit(rows, scale, given.normalize_concentration)
        if given.queue_concentration == "batch_mean":
            far = jnp.broadcast_to(mean_kappa, far.shape)
        extra = vectors(far[:, None] * along, constant - log_series(order, far), None)
        x = dataclasses.replace(x, queue=extra)
    alone = (log_series(order, kappa[0]) - constant - own * kappa[0]) / t
    return x, y, alone, resultant, kappa, exists


def _loss(x: Vectors, y: Vectors, in_batch_negatives: bool) -> jax.Array:
    positive = jnp.sum(x.z * y.z, axis=-1)  # (1, n)
    # The positive, with terms of size κ, is summed once and not found again in a matrix product: its rounding
    # cancels.
    energies, pair = [positive], ((0, 0),)
    if in_batch_negatives:
        energies.append(_lse.across(x, y, pair, diagonal=False, columns=False)[0])
    if x.queue is not None:
        energies.append(_lse.across(x, x.queue, pair, columns=False)[0])
    both = None if x.keep is None or y.keep is None else x.keep & y.keep
    return _numerics.mean_where(lse_union(*(energy - positive for energy in energies)), both, x.axis_name)


def _measures(
    x: Vectors,
    y: Vectors,
    in_batch_negatives: bool,
    alone: jax.Array,
    resultant: jax.Array,
    kappa: jax.Array,
    exists: jax.Array | None,
) -> dict[str, jax.Array]:
    """Means over the batch: R, κ, and the similarities -D / temperature of positives and of negatives."""
    left, right = x.z[0], y.z[0]
    there = jnp.ones(len(right), bool) if exists is None else exists[1]
    positive = jnp.where(there, jnp.sum(left * right, axis=-1), 0)
    total, count = jnp.zeros_like(positive), jnp.zeros_like(positive)
    if in_batch_negatives:
        # The sum of the similarities with all keys is that with the keys' sum.
        keys = jnp.sum(jnp.where(there[:, None], right, 0), axis=0), there.sum().astype(right.dtype)
        together, number = keys if x.axis_name is None else lax.psum(keys, x.axis_name)
        total = total + _numerics.inner("id,d->i", left, together) - positive
        count = count + number - there.astype(right.dtype)
    if x.queue is not None:
        total = total + _numerics.inner("id,d->i", left, x.queue.z[0].sum(0))
        count = count + x.queue.z.shape[1]
    both = None if exists is None else exists.all(0)
    of = {
        "resultant": (resultant, exists),
        "concentration": (kappa, exists),
        "positive_similarity": (positive + alone, both),
        "negative_similarity": (total / jnp.maximum(count, 1) + alone, both),
    }
    return {name: _numerics.mean_where(*of_group, x.axis_name) for name, of_group in of.items()}


def _fit(
    means: jax.Array, scale: jax.Array, normalize_concentration: bool
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """μ (..., d), R and κ (...) of the groups' mean vectors (..., d)."""
    d = means.shape[-1]
    resultant = scale * _length(means)
    kappa = resultant * (d - resultant**2) / (1 - resultant**2)
    return _numerics.unit(means), resultant, kappa / d if normalize_concentration else kappa


def _length(x: jax.Array) -> jax.Array:
    """||x|| with gradient zero at zero."""
    square = jnp.sum(x * x, axis=-1)
    some = square > 0
    return jnp.where(some, jnp.sqrt(jnp.where(some, square, 1)), 0)
