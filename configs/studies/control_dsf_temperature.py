"""Control: DSF against InfoNCE at equal effective temperature.

DSF (Jeon 2025) has no temperature, but the lengths of the groups' means act as one. It was compared with InfoNCE of
one temperature, 0.1 or 0.2. Is its gain that of another temperature?
Source: ours.
"""

from functools import partial
from typing import Any

import _digits
import jax
from jax.typing import ArrayLike

from mvcl import losses
from mvcl.losses import Operands
from mvcl.studies import Study
from mvcl.training import Config

_ABOUT = """\
What depends on the query alone cancels in the softmax of DSF, whose logits are then

    A_i κ_j <μ_i, μ_j> / T - g(κ_j) / T,    g(κ) = log I_ν(κ) - ν log κ,

where InfoNCE of the same directions has <μ_i, μ_j> / t. So T / (A_i κ_j) has the place of InfoNCE's temperature t: the
*effective temperature* of a pair. With A = R and κ = R (d - R²) / (d (1 - R²)), as the released code trains, it is
(1 - R²) / (R² (1 - R²/d)) at T = 1. Groups of one view have R = 0.95 and 0.109 at d = 128; a group of scattered views
has a smaller R and a higher temperature, {example} at a mean of length 0.9. It differs from pair to pair and drifts
in training, so no one T has the temperature of a run of InfoNCE. Here T follows: in every batch it is t times
mean(R) mean(κ), without gradient, so that the mean pair has the effective temperature t
(`dsf_at_effective_temperature`); with one view in each group that is InfoNCE at t, exactly.

What then remains of DSF is that pairs of concentrated groups are compared more sharply than others, and the offset
g(κ_j). "InfoNCE of means" compares the same directions of the groups' means at t, "InfoNCE of pairs" the single
views (loss_avg) at t. No momentum encoder: two groups of two views from one network, the other group's batch as
negatives, gradient through both. Images, epochs, batch and learning rate are the same for all."""
# The effective temperature at T = 1, d = 128 and a mean of length 0.9: R = 0.855.
_R2 = (0.95 * 0.9) ** 2
_EXAMPLE = f"{(1 - _R2) / (_R2 * (1 - _R2 / 128)):.3f}"


def _measured(
    queries: ArrayLike, keys: ArrayLike, *, temperature: ArrayLike = 0.1, **options: Any
) -> tuple[jax.Array, dict[str, jax.Array]]:
    measured = losses.takes(losses.dsf).measured
    assert measured is not None
    _, seen = measured(queries, keys, **options)  # no gradient
    sharpness = seen["resultant"] * seen["concentration"]
    loss, measures = measured(queries, keys, temperature=temperature * sharpness, **options)
    return loss, measures | {"effective_temperature_at_1": 1 / sharpness}


@losses.declare(operands=Operands.GROUPS, measured=_measured, mask=True, axis_name=True, block_size=True)
def dsf_at_effective_temperature(
    queries: ArrayLike, keys: ArrayLike, *, temperature: ArrayLike = 0.1, **options: Any
) -> jax.Array:
    """`dsf` whose own temperature is set in every batch so that its effective temperature is `temperature`.

    See `_ABOUT`. For groups of one view this is `info_nce` at that temperature, exactly.

    Args:
      queries: (m, n, d) floating, m >= 1, n >= 2.
      keys: (m', n, d).
      temperature: positive divisor of the cosine of the mean pair, no unit.
      **options: of `dsf`.

    Returns:
      Scalar, float32 or wider.
    """
    return _measured(queries, keys, temperature=temperature, **options)[0]


def _objectives(temperature: float) -> dict[str, losses.Loss]:
    pair = partial(losses.info_nce, temperature=temperature)
    return {
        "DSF": partial(dsf_at_effective_temperature, temperature=temperature),
        "InfoNCE of means": losses.mean_pair(pair, renormalize=True),
        "InfoNCE of pairs": losses.cross_pairs(pair),
    }


def _study(base: Config, temperatures: tuple[float, ...], **scale: Any) -> Study:
    return _digits.first_of(
        {(name, t): _objectives(t)[name] for name in _objectives(1) for t in temperatures},
        base,
        ("similarity", "t"),
        "DSF is better than {} at effective temperature {}",
        title="Control: DSF against InfoNCE at equal effective temperature",
        about=_ABOUT.format(example=_EXAMPLE),
        reference={"similarity": "InfoNCE of means"},
        along="t",
        **scale,
    )


def small(seeds: int = 5) -> Study:
    """Digits, two groups of 2 views, temperatures 0.1 and 0.5."""
    cost = "5 minutes in one process, on 2 cores with other work"
    return _study(_digits.digits_of(4), (0.1, 0.5), seeds=seeds, cost=cost)


def smoke(seeds: int = 2) -> Study:
    """Random vectors, two groups of 2."""
    return _study(_digits.vectors_of(4), (0.5,), seeds=seeds, cost="under a minute on 2 cores")
