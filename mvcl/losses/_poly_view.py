"""Poly-view contrastive learning."""

from typing import Literal

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from mvcl import _checks, _numerics
from mvcl.losses import _views
from mvcl.losses._declaration import declare


@declare(mask=True, axis_name=True, block_size=True, normalize=True, queue="extra_negatives")
def poly_view(
    z: ArrayLike,
    temperature: ArrayLike = 0.1,
    aggregation: Literal["geometric", "arithmetic", "harmonic"] | float = "geometric",
    negatives_of: Literal["other", "anchor"] = "other",
    *,
    normalize: bool = True,
    mask: ArrayLike | None = None,
    extra_negatives: ArrayLike | None = None,
    axis_name: str | None = None,
    block_size: int | None = None,
) -> jax.Array:
    """Poly-view: each view finds each other view of its instance among the views of all other instances.

        -mean_{i,α} (1/ρ) log [ 1/(k-1) Σ_{β != α} ℓ_iαβ^ρ ];   -mean_{i,α} 1/(k-1) Σ_{β != α} log ℓ_iαβ  at ρ = 0
        log ℓ_iαβ = s(z_αi, z_βi) - LSE( s(z_αi, z_βi), { s(z_γj, z_βi) : j != i, every γ } )

    with s(u, v) = <u, v> / temperature. Shidani 2024 (ICLR), Eqs. 12-14: ρ = 1 is the arithmetic mean of the
    likelihoods (Eq. 12), 0 the geometric (Eq. 13). ρ = -1, the harmonic, is what Algorithm 1 calls arithmetic: it takes
    +logsumexp of the losses. Algorithm 1 also sums the negatives of view α, negatives_of="anchor" (the same for the
    geometric mean), and subtracts log n for log (k-1), so that its value is log((k-1)/n) more, with the same gradient.
    Koromilas 2025, Eq. 6, is k times the geometric one. At k = 2 all equal `nt_xent`. The loss falls as ρ grows.

    Cost: k (k+1)/2 n² d multiply-adds in the forward pass.

    Args:
      z: (k, n, d) floating, k >= 2, n >= 2; half precision is summed in float32.
      temperature: positive divisor of the inner products, no unit.
      aggregation: mean of the likelihoods: "geometric", "arithmetic", "harmonic", or a number, its ρ.
      negatives_of: whose negatives join ℓ_iαβ: of the "other" view β, as in Eq. 14, or of the "anchor" α, as in
        Algorithm 1: { s(z_αi, z_γj) : j != i, every γ }.
      normalize: project vectors onto the unit sphere first; zero stays zero.
      mask: (k, n) bool, False for a view that an instance lacks. A term exists where both of its views do,
        and k is then the number of views that the instance has; vectors without a partner stay negatives.
      extra_negatives: (q, d) vectors that join every anchor's sum, for instance a queue. Inside `shard_map`
        every device holds all of them.
      axis_name: mesh axis over which the instances are split, inside `shard_map`.
      block_size: rows of similarities held at once; None decides.

    Returns:
      Scalar, float32 or wider. Where all vectors coincide it is log(k (n-1) + 1), the chance level.

    Raises:
      ValueError: for shapes, dtypes or values other than these.
    """
    z = _checks.views(z, axis_name)
    rho = _checks.aggregation("aggregation", aggregation)
    _checks.option("negatives_of", negatives_of, ("other", "anchor"))
    e = _views.embedded(z, normalize, mask, axis_name, block_size)
    s = _views.similarities(e, temperature, extra_negatives)
    negative = _views.with_queue(s, _views.within(s), _views.every_block(s, diagonal=False).energy)  # (k, n)
    same = _views.same_instance(s.vectors.z)
    negative = negative[None] if negatives_of == "other" else negative[:, None]
    log_likelihood = same - _views.join(same, jnp.broadcast_to(negative, same.shape))
    return aggregate(log_likelihood, e.keep, rho, axis_name)


def aggregate(
    log_likelihood: jax.Array, mask: jax.Array | None, rho: float, axis_name: str | None
) -> jax.Array:
    """-mean_{i,α} of the logarithm of the power mean over β != α of ℓ[α, β, i]; (k, k, n) logarithms."""
    k = log_likelihood.shape[0]
    exists = ~jnp.eye(k, dtype=bool)[:, :, None]
    if mask is not None:
        exists = exists & mask[:, None] & mask[None]
    terms = _numerics.log_power_mean(log_likelihood, rho, 1, jnp.broadcast_to(exists, log_likelihood.shape))
    return -_numerics.mean_where(terms, None if mask is None else exists.any(1), axis_name)
