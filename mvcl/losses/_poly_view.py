"""Poly-view contrastive learning."""

from typing import Literal

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from mvcl import _checks, _numerics
from mvcl.losses import _views
from mvcl.losses._declaration import declare

AGGREGATIONS = ("geometric", "arithmetic")


@declare(mask=True, axis_name=True, block_size=True, normalize=True, queue="extra_negatives")
def poly_view(
    z: ArrayLike,
    temperature: ArrayLike = 0.1,
    aggregation: Literal["geometric", "arithmetic"] = "geometric",
    *,
    normalize: bool = True,
    mask: ArrayLike | None = None,
    extra_negatives: ArrayLike | None = None,
    axis_name: str | None = None,
    block_size: int | None = None,
) -> jax.Array:
    """Poly-view: each view finds each other view of its instance among the views of all other instances.

        geometric   -mean_{i,α} 1/(k-1) Σ_{β != α} log ℓ_iαβ
        arithmetic  -mean_{i,α} log [ 1/(k-1) Σ_{β != α} ℓ_iαβ ]
        log ℓ_iαβ = s(z_αi, z_βi) - LSE( s(z_αi, z_βi), { s(z_γj, z_βi) : j != i, every γ } )

    with s(u, v) = <u, v> / temperature. Shidani 2024 (ICLR), Eqs. 12-14. The paper's pseudocode takes
    +logsumexp of the losses for the arithmetic mean, subtracts the log of another count, and anchors the
    negatives on view α (the same for the geometric mean); this is Eqs. 12 and 14. Koromilas 2025, Eq. 6, is k
    times the geometric one. At k = 2 both equal `nt_xent`.

    Cost: k (k+1)/2 n² d multiply-adds in the forward pass.

    Args:
      z: (k, n, d) floating, k >= 2, n >= 2; half precision is summed in float32.
      temperature: positive divisor of the inner products, no unit.
      aggregation: "geometric" or "arithmetic" mean of the likelihoods.
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
    _checks.option("aggregation", aggregation, AGGREGATIONS)
    e = _views.embedded(z, normalize, mask, axis_name, block_size)
    s = _views.similarities(e, temperature, extra_negatives)
    negative = _views.with_queue(
        s, _views.within(s), _views.every_block(s, diagonal=False).energy
    )  # (k, n), by β
    same = _views.same_instance(s.vectors.z)
    log_likelihood = same - _views.join(same, jnp.broadcast_to(negative[None], same.shape))
    return aggregate(log_likelihood, e.keep, aggregation, axis_name)


def aggregate(
    log_likelihood: jax.Array, mask: jax.Array | None, aggregation: str, axis_name: str | None
) -> jax.Array:
    """-mean_{i,α} of the geometric or arithmetic mean over β != α of ℓ[α, β, i]; (k, k, n) logarithms."""
    k = log_likelihood.shape[0]
    exists = ~jnp.eye(k, dtype=bool)[:, :, None]
    if mask is not None:
        exists = exists & mask[:, None] & mask[None]
    count = jnp.maximum(jnp.sum(exists, axis=1, dtype=log_likelihood.dtype), 1)
    if aggregation == "geometric":
        terms = jnp.sum(jnp.where(exists, log_likelihood, 0), axis=1) / count
    else:
        terms = _numerics.logsumexp(log_likelihood, axis=1, where=exists) - jnp.log(count)
    return -_numerics.mean_where(terms, None if mask is None else exists.any(1), axis_name)
