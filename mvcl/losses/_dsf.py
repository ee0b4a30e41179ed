"""Divergence-based similarity of two groups of views."""

import dataclasses
from types import SimpleNamespace
from typing import Any, Literal, Unpack

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike

from mvcl import _checks, _numerics
from mvcl.losses import _embeddings as emb
from mvcl.losses import _lse
from mvcl.losses._combine import groups
from mvcl.losses._declaration import Measured, Operands, Shared, declare, filled
from mvcl.losses._lse import Vectors, lse_union
from mvcl.losses._vmf import bessel_ratio, length, log_series, of_means

__all__ = ["dsf"]


def _measured(queries: ArrayLike, keys: ArrayLike, shared: Shared | None = None, **given: Any) -> Measured:
    """The loss, and means over the batch: R, κ, the similarities -D / temperature of positives and of negatives, the
    temperature at which a cosine weighs what <μ_i, μ_j> does on average, and the deviation of log κ."""
    options = filled(dsf, {**given, **(shared or {})})
    if not options["in_batch_negatives"] and options["queue"] is None:
        raise ValueError("queue must be given with in_batch_negatives=False, got None")
    x, y, alone, resultant, kappa, exists = _similarities(queries, keys, options)
    positive = jnp.sum(x.z * y.z, axis=-1)  # (1, n)
    left, right, axis = x.z[0], y.z[0], x.axis_name
    total = count = jnp.zeros((), left.dtype)
    # The positive, with terms of size κ, is summed once and not found again in a matrix product: its rounding
    # cancels.
    energies, pair = [positive], ((0, 0),)
    if options["in_batch_negatives"]:
        energies.append(_lse.across(x, y, pair, diagonal=False, columns=False)[0])
        # The sum of the similarities with all keys is that with the keys' sum.
        there = jnp.ones(len(right), bool) if exists is None else exists[1]
        sums = jnp.sum(jnp.where(there[:, None], right, 0), axis=0), there.sum().astype(right.dtype)
        together, number = sums if axis is None else lax.psum(sums, axis)
        total, count = _numerics.inner("id,d->i", left, together) - positive[0], number - 1
    if x.queue is not None:
        energies.append(_lse.across(x, x.queue, pair, columns=False)[0])
        total = total + _numerics.inner("id,d->i", left, x.queue.z[0].sum(0))
        count = count + x.queue.z.shape[1]
    both = None if exists is None else exists.all(0)
    energy = lse_union(*(e - positive for e in energies))
    loss = emb.mean_where(energy, None if both is None else both[None], axis)
    means = {
        "resultant": emb.mean_where(resultant, exists, axis),
        "concentration": emb.mean_where(kappa, exists, axis),
        "positive_similarity": emb.mean_where(positive[0] + alone, both, axis),
        "negative_similarity": emb.mean_where(total / jnp.maximum(count, 1) + alone, both, axis),
    }
    if options["mean_resultant"] == "exact":
        resultant = bessel_ratio(jnp.shape(queries)[2] / 2 - 1, kappa)
    tiny = jnp.finfo(kappa.dtype).tiny
    slope = emb.mean_where(resultant, exists, axis) * means["concentration"]
    means["effective_temperature"] = options["temperature"] / jnp.maximum(slope, tiny)
    logarithm = jnp.log(jnp.maximum(kappa, tiny))
    square = (logarithm - emb.mean_where(logarithm, exists, axis)) ** 2
    means["log_concentration_deviation"] = jnp.sqrt(emb.mean_where(square, exists, axis))
    return loss, lax.stop_gradient(means)


@declare(measured=_measured, operands=Operands.GROUPS, queue="queue", queue_of_means=True)
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
    divergence: Literal["forward", "reverse", "symmetric"] = "forward",
    in_batch_negatives: bool = True,
    **shared: Unpack[Shared],
) -> jax.Array:
    """DSF: contrast von Mises-Fisher distributions, one fitted to each group of views of an instance.

        -mean_i log softmax_j( -D(i || j) / temperature )[i]
        D(i || j) = (d/2 - 1) log(κ_i / κ_j) + log I_{d/2-1}(κ_j) - log I_{d/2-1}(κ_i)
                    + A_i (κ_i - κ_j <μ_i, μ_j>)

    i from the queries, j over the keys; μ is the direction of the group's mean z̄, R = resultant_scale
    ||z̄||, κ = R (d - R²) / (1 - R²). Jeon 2025 (arXiv 2507.06560), Eqs. 3-11; the temperature is Table 3's.

    By default D is not a Kullback-Leibler divergence, though the paper calls it one: with κ divided by d the mean of
    the distribution has length A_d(κ) = I_{d/2}(κ) / I_{d/2-1}(κ), 0.075 where R is 0.95 at d = 128, and the released
    code trains with A = R. At d = 128, for equal directions and lengths ||z̄|| of 0.8 and 1, D is -5.64; with
    `mean_resultant="exact"`, A = A_d(κ), it is the divergence, 0.242. With κ divided by d, `exact` leaves a similarity
    hardly any range: to train with it, set `normalize_concentration=False` and `temperature=d`, Eq. 9 with similarities
    of the default's size. The released code expands log I to three terms; for MoCo v3 it subtracts the logarithm of the
    series ratio where it must be added, for MoCo v2 it takes A = 1 at m = 1.

    Cost: n² d multiply-adds in the forward pass.

    Args:
      queries: (m, n, d) floating, m >= 1, n >= 2: one group of views.
      keys: (m', n, d), of the same dtype: the other group.
      queue: (q, d) further negatives, means z̄ of earlier groups, whose lengths give their κ; a row longer than 1 counts
        as a unit vector. Without gradient.
      resultant_scale: factor of ||z̄|| that keeps R below one.
      normalize_concentration: divide κ by d, as the released models were trained.
      mean_resultant: "estimate" takes A_i = R_i, as trained; "exact" takes I_{d/2}(κ_i) / I_{d/2-1}(κ_i), the
        true Kullback-Leibler divergence.
      queue_concentration: of a row of the queue, "own" is by its length, as Eq. 11; "batch_mean" is the mean over the
        batch's 2n, as in the released code.
      divergence: "forward" is D(i || j), Eq. 9; "reverse" D(j || i); "symmetric" their mean (Jeffreys),
        [A_i κ_i + A_j κ_j - (A_i κ_j + κ_i A_j) <μ_i, μ_j>] / 2. At one view in each group all are InfoNCE.
      in_batch_negatives: False leaves each instance's own key and the queue, as MoCo v2 does.
      mask: (m + m', n) bool, the queries' first: a group's mean is over the views that are there; the mean
        over instances is over those with both groups.
      normalize: project vectors onto the unit sphere first; without it they must be no longer than 1.

    Returns:
      Scalar, float32 or wider. Where all groups coincide it is log(n), the chance level.
    """
    return _measured(**locals())[0]  # every argument, by name


def _similarities(
    queries: ArrayLike, keys: ArrayLike, options: dict[str, Any]
) -> tuple[Vectors, Vectors, jax.Array, jax.Array, jax.Array, jax.Array | None]:
    """(1, n, d + 1) vectors, x with a queue, such that <x_i, y_j> + alone_i = -D(i || j) / temperature; alone, (n,); R
    and κ, (2, n); which groups exist, (2, n)."""
    given = SimpleNamespace(**options)
    z, m = groups(queries, keys, given.axis_name)
    d, kind = z.shape[2], given.divergence
    if d < 2:
        raise ValueError(f"queries must have d >= 2 features, got {jnp.shape(queries)}")
    e = emb.embedded(z, given.normalize, given.mask, given.axis_name, given.block_size)
    scale, by_d = given.resultant_scale, given.normalize_concentration
    t = _checks.scalar("temperature", given.temperature, e.z.dtype, positive=True)
    means, exists = emb.group_means(e, m)
    direction, resultant, kappa = of_means(means, scale, by_d)
    order = d / 2 - 1
    over_groups = (emb.mean_where(x, exists, given.axis_name) for x in (resultant, kappa))
    mean_resultant, mean_kappa = map(lax.stop_gradient, over_groups)

    def own(r: jax.Array, concentration: jax.Array) -> jax.Array:
        return r if given.mean_resultant == "estimate" else bessel_ratio(order, concentration)

    def alone_of(a: jax.Array, c: jax.Array) -> tuple[jax.Array, jax.Array]:
        """What D has of the query alone, and of the key alone."""
        if kind == "symmetric":
            return a * c / 2, a * c / 2
        series = log_series(order, c)
        return (a * c - series, series) if kind == "forward" else (series, a * c - series)

    # A constant added to every similarity changes nothing; this one keeps them small.
    constant = alone_of(own(mean_resultant, mean_kappa), mean_kappa)[1]

    def vectors(a: jax.Array, c: jax.Array, mu: jax.Array, group: int | None) -> Vectors:
        """Of queries (group 0) over the temperature, or of keys, whose last number is what D has of them alone."""
        first, second = (a, c) if group == 0 else (c, a)
        factors = {"forward": [first], "reverse": [second], "symmetric": [first, second]}[kind]
        half = 0.5 if kind == "symmetric" and group == 0 else 1.0
        last = jnp.ones_like(a) if group == 0 else constant - alone_of(a, c)[1]
        z = jnp.concatenate([*(half * f[:, None] * mu for f in factors), last[:, None]], axis=1)[None]
        z = z / t if group == 0 else z
        bound = jnp.max(jnp.sum(lax.stop_gradient(z) ** 2, axis=-1))
        if group is None:  # the queue's, of which every device has all
            return Vectors(z, None, bound=bound)
        return dataclasses.replace(e, z=z, keep=None if exists is None else exists[group][None], bound=bound)

    mine = own(resultant[0], kappa[0])
    x, y = (vectors(own(resultant[g], kappa[g]), kappa[g], direction[g], g) for g in (0, 1))
    if given.queue is not None:
        rows = _checks.array("queue", given.queue, "q d")
        if rows.shape[1] != d:
            raise ValueError(f"queue must have shape (q, {d}), got {rows.shape}")
        rows = lax.stop_gradient(rows).astype(e.z.dtype)
        rows = jnp.where(length(rows)[:, None] > 1, _numerics.unit(rows), rows)
        along, near, far = of_means(rows, scale, by_d)
        if given.queue_concentration == "batch_mean":
            near, far = (jnp.broadcast_to(mean, far.shape) for mean in (mean_resultant, mean_kappa))
        x = dataclasses.replace(x, queue=vectors(own(near, far), far, along, None))
    alone = -(alone_of(mine, kappa[0])[0] + constant) / t
    return x, y, alone, resultant, kappa, exists
