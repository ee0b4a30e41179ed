"""Poly-view contrast and sufficient statistics: each view finds the others of its instance, or their mean."""

import dataclasses
from typing import Literal, Unpack

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from mvcl import _checks, _numerics
from mvcl.losses import _critics, _lse
from mvcl.losses import _embeddings as emb
from mvcl.losses._critics import Aggregation, Critic
from mvcl.losses._declaration import Queued, declare
from mvcl.losses._lse import lse_union

__all__ = ["poly_view", "sufficient_statistics"]


@declare()
def poly_view(
    z: ArrayLike,
    temperature: ArrayLike = 0.1,
    aggregation: Literal["geometric", "arithmetic", "harmonic"] | float | Aggregation = "geometric",
    negatives_of: Literal["other", "anchor"] = "other",
    *,
    critic: Critic | None = None,
    **shared: Unpack[Queued],
) -> jax.Array:
    """Poly-view: each view finds each other view of its instance among the views of all other instances.

        -mean_{i,α} (1/ρ) log [ 1/(k-1) Σ_{β != α} ℓ_iαβ^ρ ];   -mean_{i,α} 1/(k-1) Σ_{β != α} log ℓ_iαβ  at ρ = 0
        log ℓ_iαβ = s(z_αi, z_βi) - LSE( s(z_αi, z_βi), { s(z_γj, z_βi) : j != i, every γ } )

    with s(u, v) = <u, v> / temperature. Shidani 2024 (ICLR), Eqs. 12-14: ρ = 1 is the arithmetic mean of the
    likelihoods (Eq. 12), 0 the geometric (Eq. 13). Algorithm 1 calls arithmetic what is the harmonic one, ρ = -1, sums
    the negatives of view α, negatives_of="anchor" (the same for the geometric mean), and subtracts log n for log (k-1):
    its value is log((k-1)/n) more. Koromilas 2025, Eq. 6, is k times the geometric one. At k = 2 all equal `nt_xent`.
    Theorem 2.2 holds for any score s, `critic`, Section 2.3.2 for other aggregations.

    Cost: k (k+1)/2 n² d multiply-adds in the forward pass; with a critic, its k² n² scores and (k n)² numbers, in
    blocks block_size k n.

    Args:
      temperature: not for a critic.
      aggregation: mean of the likelihoods: "geometric", "arithmetic", "harmonic", or a number, its ρ. Or a function of
        the log ℓ, (j, ...), of the other views of an instance, that returns (...), for j = 1 to k-1: `jnp.max`
        over axis 0 keeps the nearest view.
      negatives_of: whose negatives join ℓ_iαβ: of the "other" view β (Eq. 14), or of the "anchor" α (Algorithm 1).
      critic: function of (m, d) and (n, d) vectors that returns their (m, n) scores s, which need not be symmetric;
        None for <u, v> / temperature. Derivatives pass to arrays that it closes over. A missing view is a zero vector.
      mask: a term exists where both of its views do, and k is then the number of views that the instance has; vectors
        without a partner stay negatives.

    Returns:
      Scalar, float32 or wider. Where all vectors coincide it is log(k (n-1) + 1), the chance level.
    """
    rho = aggregation if callable(aggregation) else _checks.aggregation("aggregation", aggregation)
    e = emb.embedded(z, **shared)
    if critic is None:
        s = emb.scaled(e, temperature)
        across = _numerics.logsumexp(emb.against_other_views(s, diagonal=False), axis=1)
        negative = emb.with_queue(s, _lse.within(s), across)  # (k, n)
        same = emb.same_instance(s)
    else:
        f = _critics.checked(critic, temperature, poly_view)
        turned = f if negatives_of == "anchor" else lambda x, y: f(y, x).T
        same, every = _critics.same_instance(f, e.z, e.z), _critics.against_views(turned, e, e)
        negative = _numerics.logsumexp(every, axis=1)
    negative = negative[None] if negatives_of == "other" else negative[:, None]
    log_likelihood = same - lse_union(same, jnp.broadcast_to(negative, same.shape))
    return mean_log_likelihood(log_likelihood, e.keep, rho, e.axis_name)


def mean_log_likelihood(
    log_likelihood: jax.Array, mask: jax.Array | None, rho: float | Aggregation, axis_name: str | None
) -> jax.Array:
    """-mean_{i,α} of the logarithm of the power mean over β != α of ℓ[α, β, i], or of another; (k, k, n) logarithms."""
    k = log_likelihood.shape[0]
    exists = ~jnp.eye(k, dtype=bool)[:, :, None]
    if mask is not None:
        exists = exists & mask[:, None] & mask[None]
    if callable(rho):
        terms = _critics.of_others(rho, log_likelihood, None if mask is None else exists)
    else:
        terms = _numerics.log_power_mean(log_likelihood, rho, 1, exists)
    return -emb.mean_where(terms, None if mask is None else exists.any(1), axis_name)


@declare()
def sufficient_statistics(
    z: ArrayLike,
    temperature: ArrayLike = 0.1,
    normalize_rest: bool = True,
    *,
    critic: Critic | None = None,
    aggregation: Aggregation | None = None,
    **shared: Unpack[Queued],
) -> jax.Array:
    """Sufficient statistics: each view finds the mean of the other views of its instance.

        -mean_{i,α} [ s(z_αi, q_αi) - LSE( s(z_αi, q_αi), { s(z_αi, q_γj) : j != i, every γ } ) ]
        q_αi = mean_{β != α} z_βi

    with s(u, v) = <u, v> / temperature. Shidani 2024 (ICLR), Eqs. 21-24; q is renormalised as in the pseudocode.
    Eq. 22 lets j be i as well; Eq. 21 and the count of Theorem 2.4 do not. At k = 2 it equals `nt_xent`.

    Cost: k² n² d multiply-adds in the forward pass; with a critic as `poly_view`.

    Args:
      temperature: not for a critic.
      normalize_rest: renormalise the mean of the other views; False is Eq. 24 to the letter.
      critic: function of (m, d) and (n, d) vectors, the z and the q, that returns their (m, n) scores s; as in
        `poly_view`.
      aggregation: Q of Eq. 22 (2.4.2), a function of the other views, (j, ..., d), that returns q, (..., d), for j = 1
        to k-1; None for their mean, Eq. 24.
      mask: q_αi exists where view α and another view of i do; only those are positives and negatives.

    Returns:
      Scalar, float32 or wider. Where all vectors coincide it is log(k (n-1) + 1), the chance level.
    """
    e = emb.embedded(z, **shared)
    rest, rest_there = emb.mean_of_others(e)
    if aggregation is not None:
        shape = len(e.z), *e.z.shape
        there = None if e.keep is None else jnp.broadcast_to(e.keep[None], shape[:3])
        rest = _critics.of_others(aggregation, jnp.broadcast_to(e.z[None], shape), there)
    exists = None if e.keep is None or rest_there is None else e.keep & rest_there
    if normalize_rest:
        rest = _numerics.unit(rest)
    q = dataclasses.replace(e, z=rest, keep=exists)
    if critic is not None:
        f = _critics.checked(critic, temperature, sufficient_statistics)
        positive = jnp.diagonal(_critics.same_instance(f, e.z, rest)).T  # (k, n)
        energy = lse_union(positive, _numerics.logsumexp(_critics.against_views(f, e, q), axis=1))
        return emb.mean_where(energy - positive, exists, e.axis_name)
    s = emb.scaled(e, temperature)
    # The mean of projected vectors is no longer than they are; another aggregation may be.
    short = e.projected and (normalize_rest or aggregation is None)
    q = emb.scaled(dataclasses.replace(q, projected=short), temperature)
    positive = jnp.sum(s.z * q.z, axis=-1)  # (k, n)
    energy = emb.with_queue(s, positive, _lse.against_all(s, q))
    return emb.mean_where(energy - positive, exists, e.axis_name)
