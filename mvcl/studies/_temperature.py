"""DSF at a given effective temperature, for the comparison with InfoNCE at the same one."""

from typing import Any

import jax
from jax.typing import ArrayLike

from mvcl import losses
from mvcl.losses import Operands


def _at(
    queries: ArrayLike, keys: ArrayLike, temperature: ArrayLike, options: dict[str, Any]
) -> tuple[jax.Array, dict[str, jax.Array]]:
    measured = losses.takes(losses.dsf).measured
    assert measured is not None
    _, seen = measured(queries, keys, **options)  # no gradient
    sharpness = seen["resultant"] * seen["concentration"]
    loss, measures = measured(queries, keys, temperature=temperature * sharpness, **options)
    return loss, measures | {"effective_temperature_at_1": 1 / sharpness}


def _measured(
    queries: ArrayLike, keys: ArrayLike, *, temperature: ArrayLike = 0.1, **options: Any
) -> tuple[jax.Array, dict[str, jax.Array]]:
    return _at(queries, keys, temperature, options)


@losses.declare(operands=Operands.GROUPS, measured=_measured, mask=True, axis_name=True, block_size=True)
def dsf_at_effective_temperature(
    queries: ArrayLike, keys: ArrayLike, *, temperature: ArrayLike = 0.1, **options: Any
) -> jax.Array:
    """`dsf` whose own temperature is set in every batch so that its effective temperature is `temperature`.

    What depends on the query alone cancels in the softmax of `dsf`, whose logits are then

        A_i κ_j <μ_i, μ_j> / T - g(κ_j) / T,    g(κ) = log I_ν(κ) - ν log κ,  ν = d/2 - 1.

    InfoNCE of the same directions has <μ_i, μ_j> / t. So T / (A_i κ_j) has the place of t: it differs between pairs,
    since a group of scattered views has a small R, thus a small A = R and κ, and is compared softly. Here T is
    `temperature` times mean(R) mean(κ) of the batch, held constant in the gradient, so that the mean pair has
    t = `temperature`. For groups of one view all R and κ are equal, g cancels, and this is `info_nce` at that
    temperature, exactly.

    Args:
      queries: (m, n, d) floating, m >= 1, n >= 2.
      keys: (m', n, d).
      temperature: positive divisor of the cosine of the mean pair, no unit.
      **options: of `dsf`.

    Returns:
      Scalar, float32 or wider.
    """
    return _at(queries, keys, temperature, options)[0]
