"""Divergence-based similarity of two groups of views."""

from typing import Literal

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike

from mvcl import _checks, _numerics
from mvcl.losses import _lse, _views
from mvcl.losses._bessel import bessel_ratio, log_series
from mvcl.losses._declaration import Operands, QueueRows, declare
from mvcl.losses._higher_order import groups


@declare(
    operands=Operands.GROUPS,
    mask=True,
    axis_name=True,
    block_size=True,
    normalize=True,
    queue="queue",
    queue_rows=QueueRows.GROUP_MEAN,
)
def dsf(
    queries: ArrayLike,
    keys: ArrayLike,
    queue: ArrayLike | None = None,
    *,
    resultant_scale: float = 0.95,
    normalize_concentration: bool = True,
    mean_resultant: Literal["estimate", "exact"] = "estimate",
    in_batch_negatives: bool = True,
    normalize: bool = True,
    mask: ArrayLike | None = None,
    axis_name: str | None = None,
    block_size: int | None = None,
) -> jax.Array:
    """DSF: contrast von Mises-Fisher distributions, one fitted to each group of views of an instance.

        -mean_i log softmax_j( -KL(i || j) )[i]
        KL(i || j) = (d/2 - 1) log(κ_i / κ_j) + log I_{d/2-1}(κ_j) - log I_{d/2-1}(κ_i)
                     + A_i (κ_i - κ_j <μ_i, μ_j>)

    i from the queries, j over the keys; μ is the direction of the group's mean z̄, R = resultant_scale
    ||z̄||, κ = R (d - R²) / (1 - R²). Jeon 2025 (arXiv 2507.06560), Eqs. 3-11. There is no temperature. What
    depends on i alone cancels in the softmax, so that a similarity is <A_i μ_i, κ_j μ_j> minus a function of
    κ_j that is smooth at 0. One variant in the released code subtracts the logarithm of the series ratio
    where it must be added; released v2 sets A = 1 at m = 1.

    Cost: n² d multiply-adds in the forward pass.

    Args:
      queries: (m, n, d) floating, m >= 1, n >= 2: one group of views.
      keys: (m', n, d), of the same dtype: the other group.
      queue: (q, d) further negatives: unit vectors as μ, and as κ the mean over the batch's 2n
        concentrations; without gradient.
      resultant_scale: factor of ||z̄|| that keeps R below one.
      normalize_concentration: divide κ by d, as the released models were trained.
      mean_resultant: "estimate" takes A_i = R_i, as trained; "exact" takes I_{d/2}(κ_i) / I_{d/2-1}(κ_i), the
        true Kullback-Leibler divergence.
      in_batch_negatives: False leaves each instance's own key and the queue, as MoCo v2 does.
      normalize: project vectors onto the unit sphere first; without it they must be no longer than 1.
      mask: (m + m', n) bool, the queries' first: a group's mean is over the views that are there; the mean
        over instances is over those with both groups.
      axis_name: mesh axis over which the instances are split, inside `shard_map`.
      block_size: rows of similarities held at once; None decides.

    Returns:
      Scalar, float32 or wider. Where all groups coincide it is log(n), the chance level.

    Raises:
      ValueError: for shapes, dtypes or values other than these.
    """
    q, k = groups(queries, keys, axis_name)
    d = q.shape[2]
    if d < 2:
        raise ValueError(f"queries must have d >= 2 features, got {q.shape}")
    _checks.option("mean_resultant", mean_resultant, ("estimate", "exact"))
    if not in_batch_negatives and queue is None:
        raise ValueError("queue must be given with in_batch_negatives=False, got None")
    e = _views.embedded(jnp.concatenate([q, k]), normalize, mask, axis_name, block_size)
    scale = _checks.scalar("resultant_scale", resultant_scale, e.z.dtype, positive=True)
    means, exists = _views.group_means(e, q.shape[0])
    direction, resultant, kappa = _fit(means, scale, normalize_concentration)
    order = d / 2 - 1
    own = resultant[0] if mean_resultant == "estimate" else bessel_ratio(order, kappa[0])
    mean_kappa = lax.stop_gradient(_numerics.mean_where(kappa, exists, axis_name))
    # A constant added to every similarity changes nothing; this one keeps them small.
    offset = log_series(order, kappa[1]) - log_series(order, mean_kappa)
    flags = [None, None] if exists is None else [exists[0][None], exists[1][None]]
    x = _vectors((own[:, None] * direction[0])[None], None, flags[0])
    y = _vectors((kappa[1][:, None] * direction[1])[None], offset[None], flags[1])
    positive = jnp.sum(x.z * y.z, axis=-1)  # (1, n)
    # The positive, with terms of size κ, is summed once and not found again in a matrix product: its rounding
    # cancels.
    energies = [positive]
    if in_batch_negatives:
        energies.append(_across(x, y, axis_name, e.block_size, gathered=True))
    if queue is not None:
        extra = _queue(queue, mean_kappa, d)
        energies.append(_across(x, extra, axis_name, e.block_size, gathered=False))
    both = None if exists is None else exists.all(0)[None]
    return _numerics.mean_where(_views.join(*(energy - positive for energy in energies)), both, axis_name)


def _fit(
    means: jax.Array, scale: jax.Array, normalize_concentration: bool
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """μ (2, n, d), R and κ (2, n) of the groups' mean vectors (2, n, d)."""
    d = means.shape[2]
    resultant = scale * _length(means)
    kappa = resultant * (d - resultant**2) / (1 - resultant**2)
    return _numerics.unit(means), resultant, kappa / d if normalize_concentration else kappa


def _queue(queue: ArrayLike, mean_kappa: jax.Array, d: int) -> _lse.Vectors:
    """The queue's directions with the batch's mean concentration."""
    extra = _checks.array("queue", queue, "q d")
    if extra.shape[1] != d:
        raise ValueError(f"queue must have shape (q, {d}), got {extra.shape}")
    unit = _numerics.unit(lax.stop_gradient(extra)).astype(mean_kappa.dtype)
    zero = jnp.zeros((1, extra.shape[0]), mean_kappa.dtype)
    return _vectors(mean_kappa * unit[None], zero, None)


def _length(x: jax.Array) -> jax.Array:
    """||x|| with gradient zero at zero."""
    square = jnp.sum(x * x, axis=-1)
    some = square > 0
    return jnp.where(some, jnp.sqrt(jnp.where(some, square, 1)), 0)


def _vectors(z: jax.Array, offset: jax.Array | None, keep: jax.Array | None) -> _lse.Vectors:
    """One more feature turns <x, y> into <x, y> - offset_y."""
    last = jnp.ones(z.shape[:2], z.dtype) if offset is None else -offset
    z = jnp.concatenate([z, last[:, :, None]], axis=2)
    return _lse.Vectors(z, keep, jnp.max(jnp.sum(lax.stop_gradient(z) ** 2, axis=-1)))


def _across(
    x: _lse.Vectors,
    y: _lse.Vectors,
    axis_name: str | None,
    block_size: int | None,
    *,
    gathered: bool,
) -> jax.Array:
    """`(1, n)`: the log-sum-exp over the keys of other instances, or over the queue."""
    return _lse.across(
        x,
        y,
        ((0, 0),),
        diagonal=not gathered,
        columns=False,
        axis_name=axis_name,
        gathered=gathered,
        block_size=block_size,
    )[0]
