"""The two multi-view losses that keep one term per anchor: MV-CL1 and MV-CL2."""

from typing import Literal

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from mvcl import _checks
from mvcl.losses import _lse, _views
from mvcl.losses._declaration import declare


@declare(mask=True, axis_name=True, block_size=True, normalize=True, queue="extra_negatives")
def mv_cl1(
    z: ArrayLike,
    temperature: ArrayLike = 0.5,
    *,
    normalize: bool = True,
    mask: ArrayLike | None = None,
    extra_negatives: ArrayLike | None = None,
    axis_name: str | None = None,
    block_size: int | None = None,
) -> jax.Array:
    """CL_1: each vector is aligned with its other views and contrasted with all vectors of the other views.

        mean_{l,i} [ -LSE_{l' != l} s(z_li, z_l'i) + LSE_{m != l, j} s(z_li, z_mj) ],   s(u, v) = <u, v> /
        temperature

    over instances i, j (j may be i) and views l, l', m. Koromilas 2025 (arXiv 2507.06979), Eq. 19, with the
    factor 1/(kn) of Eq. 7, which defines it; the second line of Eq. 19 prints 1/M.

    Args:
      z: (k, n, d) floating, k >= 2, n >= 2; half precision is summed in float32.
      temperature: positive divisor of the inner products, no unit.
      normalize: project vectors onto the unit sphere first; zero stays zero.
      mask: (k, n) bool, False for a view that an instance lacks. Alignment is averaged over the vectors that
        have a partner, the energy over all vectors that are there.
      extra_negatives: (q, d) vectors that join every anchor's sum, for instance a queue. Inside `shard_map`
        every device holds all of them.
      axis_name: mesh axis over which the instances are split, inside `shard_map`.
      block_size: rows of similarities held at once; None decides.

    Returns:
      Scalar, float32 or wider. Where all vectors coincide it is log(n), the chance level.

    Raises:
      ValueError: for shapes, dtypes or values other than these.
    """
    z = _checks.views(z, axis_name)
    mask, block_size = _checks.mask(mask, z.shape[:2]), _checks.block_size(block_size)
    v = _views.scaled(_views.embeddings(z, normalize, mask), temperature, normalize, mask)
    queue = _views.queue_vectors(extra_negatives, v, temperature, normalize)
    b = _views.every_block(v, axis_name=axis_name, block_size=block_size)
    energy = b.energy
    if queue is not None:
        energy = _views.join(energy, _views.to_queue(v, queue, axis_name=axis_name, block_size=block_size))
    if mask is not None:
        energy = jnp.where(mask, energy, -jnp.inf)
    masked = mask is not None
    return _views.mean_existing(energy, axis_name, masked) - _views.mean_existing(
        b.alignment, axis_name, masked
    )


@declare(mask=True, axis_name=True, block_size=True, normalize=True, queue="extra_negatives")
def mv_cl2(
    z: ArrayLike,
    temperature: ArrayLike = 0.5,
    energy: Literal["mean", "sum"] = "mean",
    *,
    normalize: bool = True,
    mask: ArrayLike | None = None,
    extra_negatives: ArrayLike | None = None,
    axis_name: str | None = None,
    block_size: int | None = None,
) -> jax.Array:
    """CL_2: each vector is aligned with its other views and spread within its own.

        mean_{l,i} [ -LSE_{l' != l} s(z_li, z_l'i) + LSE_{j != i} s(z_li, z_lj) ],   s(u, v) = <u, v> /
        temperature

    over instances i, j and views l, l'. Koromilas 2025 (arXiv 2507.06979), Eq. 20, with the factor 1/(kn) of
    Eq. 9, which defines it. The released code sums the energy over l instead: `energy="sum"`, with which the
    published numbers were made.

    Args:
      z: (k, n, d) floating, k >= 2, n >= 2; half precision is summed in float32.
      temperature: positive divisor of the inner products, no unit.
      energy: "mean" or "sum" of the energies over the views.
      normalize: project vectors onto the unit sphere first; zero stays zero.
      mask: (k, n) bool, False for a view that an instance lacks. Alignment is averaged over the vectors that
        have a partner, the energy over all vectors that are there ("sum": over the instances).
      extra_negatives: (q, d) vectors that join every anchor's sum, for instance a queue. Inside `shard_map`
        every device holds all of them.
      axis_name: mesh axis over which the instances are split, inside `shard_map`.
      block_size: rows of similarities held at once; None decides.

    Returns:
      Scalar, float32 or wider. Where all vectors coincide it is log((n-1) / (k-1)).

    Raises:
      ValueError: for shapes, dtypes or values other than these.
    """
    z = _checks.views(z, axis_name)
    _checks.option("energy", energy, ("mean", "sum"))
    mask, block_size = _checks.mask(mask, z.shape[:2]), _checks.block_size(block_size)
    v = _views.scaled(_views.embeddings(z, normalize, mask), temperature, normalize, mask)
    queue = _views.queue_vectors(extra_negatives, v, temperature, normalize)
    spread = _lse.within(v, axis_name=axis_name, block_size=block_size)
    if queue is not None:
        spread = _views.join(spread, _views.to_queue(v, queue, axis_name=axis_name, block_size=block_size))
    alignment = _views.mean_existing(_views.alignment(v), axis_name, mask is not None)
    if energy == "sum":
        return _views.mean_of_sums(spread, mask, axis_name) - alignment
    if mask is not None:
        spread = jnp.where(mask, spread, -jnp.inf)
    return _views.mean_existing(spread, axis_name, mask is not None) - alignment
