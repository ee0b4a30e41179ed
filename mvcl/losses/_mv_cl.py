"""The two multi-view losses that keep one term per anchor: MV-CL1 and MV-CL2."""

from typing import Literal

import jax
from jax.typing import ArrayLike

from mvcl import _checks
from mvcl.losses import _views
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

        mean_{l,i} [ -LSE_{l' != l} s(z_li, z_l'i) + LSE_{m != l, j} s(z_li, z_mj) ],
        s(u, v) = <u, v> / temperature

    over instances i, j (j may be i) and views l, l', m. Koromilas 2025 (arXiv 2507.06979), Eq. 19, with the
    factor 1/(kn) of Eq. 7, which defines it; the second line of Eq. 19 prints 1/M.

    Cost: k (k-1)/2 n² d multiply-adds in the forward pass.

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
    e = _views.embedded(z, normalize, mask, axis_name, block_size)
    s = _views.similarities(e, temperature, extra_negatives)
    b = _views.every_block(s)
    energy = _views.with_queue(s, b.energy)
    return _views.mean_existing(energy, e, e.keep) - _views.mean_existing(b.alignment, e)


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

        mean_{l,i} [ -LSE_{l' != l} s(z_li, z_l'i) + LSE_{j != i} s(z_li, z_lj) ],
        s(u, v) = <u, v> / temperature

    over instances i, j and views l, l'. Koromilas 2025 (arXiv 2507.06979), Eq. 20, with the factor 1/(kn) of
    Eq. 9, which defines it. The released code sums the energy over l instead: `energy="sum"`, which at k = 2 has the
    gradient of MV-DHEL, as the equal numbers of Table VI suggest.

    Cost: k n² d multiply-adds in the forward pass.

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
    e = _views.embedded(z, normalize, mask, axis_name, block_size)
    s = _views.similarities(e, temperature, extra_negatives)
    spread = _views.with_queue(s, _views.within(s))
    alignment = _views.mean_existing(_views.alignment(s.vectors), e)
    if energy == "sum":
        return _views.mean_of_sums(spread, e) - alignment
    return _views.mean_existing(spread, e, e.keep) - alignment
