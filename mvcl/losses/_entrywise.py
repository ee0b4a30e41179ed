"""Losses of inner products one by one, without a log-sum-exp: BYOL's, the sigmoid losses, the spectral loss."""

import dataclasses
from collections.abc import Callable
from typing import Literal, Unpack

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike

from mvcl import _checks, _numerics
from mvcl.losses import _embeddings as emb
from mvcl.losses import _lse
from mvcl.losses._critics import Aggregation
from mvcl.losses._declaration import OfUnitRows, Operands, Queued, Shared, declare
from mvcl.losses._joint import mean_log_likelihood
from mvcl.losses._lse import Pairs, Vectors

__all__ = ["byol", "poly_siglip", "siglip", "spectral"]


def _byol_terms(e: Vectors, pairs: Pairs) -> emb.Terms:
    positive, exists = emb.positives(e, pairs)
    return ((2 - 2 * positive, exists),)


@declare(operands=Operands.PAIR, terms=_byol_terms)
def byol(x: ArrayLike, y: ArrayLike, **shared: Unpack[OfUnitRows]) -> jax.Array:
    """BYOL: the squared distance of two unit vectors.

        2 - 2 mean_i <x_i, y_i>

    Piran 2024 (ICML), Eq. 2; Grill 2020. Stopping the gradient of the target is the caller's choice.

    Cost: n d multiply-adds in the forward pass.

    Args:
      x: (n, d): predictions.
      y: (n, d), of the same dtype: targets.
      mask: the mean runs over those with both.

    Returns:
      Scalar, float32 or wider: 0 for coinciding vectors, 2 for orthogonal ones, 4 for opposite ones.
    """
    return emb.loss_of_pair(_byol_terms, **locals())  # every argument, by name


def _sigmoid_energy(e: Vectors, pairs: Pairs, slope: jax.Array, shift: jax.Array) -> jax.Array:
    """`(pairs, n)`: -Σ log σ(-(scale <z_li, v> + bias)) over the other v of view m, and of the queue."""
    return _sum_over(lambda inner, a, b: jax.nn.softplus(a * inner + b), e, pairs, slope, shift)


def _siglip_terms(e: Vectors, pairs: Pairs, *, scale: ArrayLike, bias: ArrayLike) -> emb.Terms:
    slope, shift = _checks.scalar("scale", scale, e.z.dtype), _checks.scalar("bias", bias, e.z.dtype)
    negative = _sigmoid_energy(e, pairs, slope, shift)
    positive, exists = emb.positives(e, pairs)
    anchors = None if e.keep is None else e.keep[emb.sides(pairs)[0]]
    return (jax.nn.softplus(-slope * positive - shift), exists), (negative, anchors)


@declare(operands=Operands.PAIR, terms=_siglip_terms)
def siglip(
    x: ArrayLike, y: ArrayLike, scale: ArrayLike = 10.0, bias: ArrayLike = -10.0, **shared: Unpack[Queued]
) -> jax.Array:
    """SigLIP: each pair of vectors is classified on its own as of one instance or of two.

        -(1/n) Σ_i Σ_j log σ( t_ij (scale <x_i, y_j> + bias) ),   t_ij = +1 if i = j else -1

    Zhai 2023 (ICCV), the released code; the printed formula (Shidani 2024, Eq. 124) flips the sign of the bias.

    Cost: n² d multiply-adds in the forward pass.

    Args:
      scale: factor of the inner products, the inverse of a temperature.
      bias: added to them; the default makes the many negatives likely at the start.
      mask: positives are averaged over the instances with both views, the sums of negatives over the x that are there.

    Returns:
      Scalar, float32 or wider. For coinciding unit vectors, a = scale + bias: log(1 + e^-a) + (n-1) log(1 + e^a).
    """
    return emb.loss_of_pair(_siglip_terms, **locals())  # every argument, by name


@declare()
def poly_siglip(
    z: ArrayLike,
    scale: ArrayLike = 10.0,
    bias: ArrayLike = -10.0,
    aggregation: Literal["geometric", "arithmetic", "harmonic"] | float | Aggregation = "geometric",
    **shared: Unpack[Shared],
) -> jax.Array:
    """The sigmoid loss of many views, under the aggregations of poly-view learning.

        -mean_{i,α} (1/ρ) log [ 1/(k-1) Σ_{β != α} ℓ_iαβ^ρ ];   -mean_{i,α} 1/(k-1) Σ_{β != α} log ℓ_iαβ  at ρ = 0
        log ℓ_iαβ = log σ(a(z_αi, z_βi)) + Σ_{j != i} log σ(-a(z_αj, z_βi)),   a(u, v) = scale <u, v> + bias

    Shidani 2024 (ICLR), App. E.3, leaves it open. In the sigmoid model of Zhai 2023 the labels of all pairs of two
    views are independent: ℓ_iαβ, the likelihood that anchor z_βi labels all of view α right, takes the place of
    poly-view's in Eqs. 12 and 13. The geometric mean is that of `siglip` over pairs of views; at k = 2 all equal it.

    Cost: k² n² d multiply-adds in the forward pass.

    Args:
      scale: factor of the inner products, the inverse of a temperature.
      bias: added to them.
      aggregation: mean of the likelihoods: "geometric", "arithmetic", "harmonic", or a number, its ρ; or a function, as
        in `poly_view`.
      mask: a term exists where both of its views do, and k is then the number of views that the instance has; vectors
        without a partner stay negatives.

    Returns:
      Scalar, float32 or wider: that of `siglip` for coinciding unit vectors.
    """
    rho = aggregation if callable(aggregation) else _checks.aggregation("aggregation", aggregation)
    e = emb.embedded(z, **shared)
    slope, shift = _checks.scalar("scale", scale, e.z.dtype), _checks.scalar("bias", bias, e.z.dtype)
    k, n, _ = e.z.shape
    # Row α, column β: the negatives of anchor β in view α.
    pairs = tuple((b, a) for a in range(k) for b in range(k))
    negative = _sigmoid_energy(e, pairs, slope, shift).reshape(k, k, n)
    positive = jax.nn.softplus(-slope * emb.same_instance(e) - shift)
    return mean_log_likelihood(-positive - negative, e.keep, rho, e.axis_name)


def _spectral_terms(e: Vectors, pairs: Pairs, *, radius: ArrayLike | None) -> emb.Terms:
    e = _clipped(e, radius)
    (left, right), keep = emb.sides(pairs), e.keep
    squares = _sum_over(lambda inner: inner * inner, e, pairs)
    # By anchor: how many other instances the second view has.
    count = jnp.broadcast_to(emb.counts(e)[right][:, None], squares.shape)
    count = count - 1 if keep is None else jnp.where(keep[left], count - keep[right].astype(e.z.dtype), 0)
    if e.queue is not None:
        anchors = jnp.ones_like(count) if keep is None else keep[left].astype(e.z.dtype)
        count = count + anchors * e.queue.z.shape[1]
    positive, exists = emb.positives(e, pairs)
    return (squares, count), (-2 * positive, exists)


def _clipped(e: Vectors, radius: ArrayLike | None) -> Vectors:
    if radius is None:
        return e
    longest = _checks.scalar("radius", radius, e.z.dtype, positive=True)
    square = jnp.sum(e.z * e.z, axis=-1, keepdims=True)
    longer = square > longest
    factor = jnp.where(longer, jnp.sqrt(longest) * lax.rsqrt(jnp.where(longer, square, 1)), 1)
    return dataclasses.replace(e, z=e.z * factor, queue=e.queue and _clipped(e.queue, radius))


@declare(operands=Operands.PAIR, terms=_spectral_terms)
def spectral(x: ArrayLike, y: ArrayLike, radius: float | None = None, **shared: Unpack[Queued]) -> jax.Array:
    """Spectral contrastive loss: positives to inner product one, all others to zero.

        -2 mean_i <x_i, y_i> + mean_{i != j} <x_i, y_j>²

    the second mean over the n (n-1) entries off the diagonal. Xu 2023 (SEM), PSCL; HaoChen 2021.

    Cost: n² d multiply-adds in the forward pass.

    Args:
      radius: squared norm to which longer vectors are shortened, after the projection if there is one; None
        leaves them. The released code uses 3 with `normalize=False`.
      mask: the first mean is over the instances with both, the second over all pairs of different instances that are
        there.
      extra_negatives: their squared products with every x_i join the second mean.

    Returns:
      Scalar, float32 or wider: -1 for coinciding unit vectors, -2 where instances are orthogonal.
    """
    return emb.loss_of_pair(_spectral_terms, **locals())  # every argument, by name


def _sum_over(entry: Callable[..., jax.Array], e: Vectors, pairs: Pairs, *parameters: jax.Array) -> jax.Array:
    """`(pairs, n)`: Σ entry(<z_li, v>, *parameters) over the v of view m but z_mi that are there, and of the queue.

    Zero where z_li is not there. Blocks are computed again in the backward pass; `entry` must not close over what is
    differentiated.
    """
    n, (left, right) = e.z.shape[1], emb.sides(pairs)
    first = jnp.zeros((), jnp.int32) if e.axis_name is None else lax.axis_index(e.axis_name) * n
    given = tuple(_numerics.vary_as(p, e.z) for p in parameters)

    def rows(
        vectors: jax.Array,
        y: jax.Array,
        keep: jax.Array | None,
        r: jax.Array,
        places: jax.Array,
        *given: jax.Array,
    ) -> jax.Array:
        inner = _numerics.inner("id,jd->ij", vectors, y[r])
        same = places[:, None] == jnp.arange(y.shape[1])[None, :]
        values = jnp.where(same, 0, entry(inner, *given))
        return (values if keep is None else jnp.where(keep[r][None, :], values, 0)).sum(1)

    def sums(y: jax.Array, keep: jax.Array | None, right: np.ndarray, first: jax.Array) -> jax.Array:
        y = _numerics.vary_as(y, e.z)
        block = _lse.block_rows(len(pairs), n, y.shape[1], e.block_size)
        if block is None:
            of_pair = jax.vmap(lambda l, r: rows(e.z[l], y, keep, r, first + jnp.arange(n), *given))
            return of_pair(jnp.asarray(left), jnp.asarray(right))
        places = emb.in_blocks(first + jnp.arange(n), block)
        vectors = jax.vmap(lambda z: emb.in_blocks(z, block))(e.z)

        def step(at: tuple[jax.Array, jax.Array, jax.Array]) -> jax.Array:
            l, r, b = at
            return emb.recomputed(rows, vectors[l, b], y, keep, r, places[b], *given)

        blocks = np.arange(len(places))
        steps = [np.repeat(left, len(blocks)), np.repeat(right, len(blocks)), np.tile(blocks, len(pairs))]
        return lax.map(step, tuple(map(jnp.asarray, steps))).reshape(len(pairs), -1)[:, :n]

    keep = None if e.keep is None else _numerics.gather(e.keep, e.axis_name, 1)
    total = sums(_numerics.gather(e.z, e.axis_name, 1), keep, right, first)
    if e.queue is not None:  # none of its rows is at the place of an anchor
        total = total + sums(e.queue.z, None, np.zeros_like(right), first + e.queue.z.shape[1])
    return total if e.keep is None else jnp.where(e.keep[left], total, 0)
