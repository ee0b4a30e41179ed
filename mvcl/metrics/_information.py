"""Mutual information: the truth in a model where it is known, and what a contrastive loss proves about it."""

import math

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from mvcl import _checks, _numerics


def gaussian_information(views: int, variance_ratio: float) -> float:
    """One-vs-rest mutual information I(x_1; x_2, ..., x_M) of the one-dimensional Gaussian model, in nats.

        1/2 log[ (1 + r) (1 - r / (1 + M r)) ],   r = σ0² / σ²

    for M views x = c + noise of variance σ² of one c of variance σ0². Shidani 2024 (ICLR), Eq. 26.

    Args:
      views: M >= 2.
      variance_ratio: r > 0, signal by noise.

    Returns:
      Nats; grows with M towards 1/2 log(1 + r).

    Raises:
      ValueError: for other values.
    """
    _checks.whole("views", views, 2)
    r = _checks.real("variance_ratio", variance_ratio, positive=True)
    return 0.5 * (math.log1p(r) + math.log1p(-r / (1 + views * r)))


def poly_view_bound(loss: ArrayLike, instances: int, views: int) -> jax.Array:
    """Lower bound on I(x_1; x_2, ..., x_M) from `poly_view` or `sufficient_statistics`: log(B - M + 1) -
    loss, in nats.

    B = n k vectors in all, M = k: the logarithm is the loss's own chance level. Shidani 2024, Theorems 2.2
    and 2.4.

    Args:
      loss: the loss of a batch.
      instances: n >= 2.
      views: k >= 2.

    Returns:
      Nats, of the loss's shape.

    Raises:
      ValueError: for other values.
    """
    n, k = _checks.whole("instances", instances, 2), _checks.whole("views", views, 2)
    return math.log(n * k - k + 1) - jnp.asarray(loss)


def multi_crop_bound(loss: ArrayLike, instances: int, pair_loss: str = "info_nce") -> jax.Array:
    """Lower bound on I(x; y) from a mean of pair losses over the pairs of views, in nats.

        log K - loss  for "info_nce",   log(2K - 1) - loss  for "nt_xent",   K instances

    Shidani 2024, Eq. 1 and the proposition after it.

    Args:
      loss: `all_pairs(info_nce)` or `all_pairs(nt_xent)` of a batch.
      instances: K >= 2.
      pair_loss: "info_nce" or "nt_xent".

    Returns:
      Nats, of the loss's shape.

    Raises:
      ValueError: for other values.
    """
    _checks.option("pair_loss", pair_loss, ("info_nce", "nt_xent"))
    n = _checks.whole("instances", instances, 2)
    return math.log(n if pair_loss == "info_nce" else 2 * n - 1) - jnp.asarray(loss)


def information_gap(bound: ArrayLike, views: int, variance_ratio: float) -> jax.Array:
    """What a bound misses of the truth in the Gaussian model, in nats; >= 0 for a valid bound in expectation.

    Shidani 2024, Section 3.1.

    Args:
      bound: nats, of any shape.
      views: M >= 2.
      variance_ratio: signal by noise, > 0.

    Returns:
      Nats, of the bound's shape.

    Raises:
      ValueError: for other values.
    """
    return gaussian_information(views, variance_ratio) - jnp.asarray(bound)


def nwj_bound(joint_scores: ArrayLike, product_scores: ArrayLike) -> jax.Array:
    """Generalised NWJ lower bound on I(x; Y) of a view and a set of views, in nats.

        mean F(x, Y)  over the joint law  -  mean e^{F(x, Y) - 1}  over the product of the marginals

    Shidani 2024, Eq. 5. It is tight for F = 1 + log p(x | Y) / p(x).

    Args:
      joint_scores: floating, of any shape: F of pairs that belong together.
      product_scores: floating, of any shape: F of pairs that do not.

    Returns:
      Scalar, float32 or wider.

    Raises:
      ValueError: for an integer dtype.
    """
    scores = []
    for name, value in (("joint_scores", joint_scores), ("product_scores", product_scores)):
        scores.append(_numerics.widen(_checks.floating(name, value)))
    return jnp.mean(scores[0]) - jnp.mean(jnp.exp(scores[1] - 1))


def optimal_multiplicity(batch: int, variance_ratio: float) -> int:
    """Number of views M at which B vectors can prove most about the Gaussian model, B = M x instances fixed.

        argmax_M  min( I(M), log(B - M + 1) ),   2 <= M <= B / 2

    More views say more about an instance, I(M) of `gaussian_information`, but leave fewer instances to tell
    it from: the loss is never negative, so no bound of `poly_view_bound` passes log(B - M + 1), nor does it pass
    the truth. Both are one-sided, I grows with M and the logarithm falls, so the best M is where they meet: I(M)
    is at most log(1 + r) / 2, and where that is below log(B/2 + 1), as for any r < (B/2 + 1)² - 1, all of the
    range is worth its views. Shidani 2024, Eqs. 154 and 155, treat the same trade; this is derived from
    Eq. 26 and Theorem 2.2 and was not compared with their text.

    Args:
      batch: B >= 4 vectors in all.
      variance_ratio: signal by noise, > 0.

    Returns:
      M from 2 to B / 2; the smallest where several do equally well.

    Raises:
      ValueError: for other values.
    """
    b = _checks.whole("batch", batch, 4)

    def provable(views: int) -> float:
        return min(gaussian_information(views, variance_ratio), math.log(b - views + 1))

    # I grows and the logarithm falls, so the smaller of them has one maximum.
    low, high = 2, b // 2
    while low < high:
        middle = (low + high) // 2
        if provable(middle) < provable(middle + 1):
            low = middle + 1
        else:
            high = middle
    return low


def relative_compute(views: int, epochs: float, reference_epochs: float = 128) -> float:
    """Encoder passes of a run by those of SimCLR, two views, over `reference_epochs`. Shidani 2024, Eq. 29.

        (views / 2) (epochs / reference_epochs)

    Args:
      views: M >= 1.
      epochs: passes over the data, > 0.
      reference_epochs: those of the reference, > 0.

    Returns:
      A ratio: 1 for the reference itself.

    Raises:
      ValueError: for other values.
    """
    m = _checks.whole("views", views, 1)
    return (
        m
        / 2
        * _checks.real("epochs", epochs, positive=True)
        / _checks.real("reference_epochs", reference_epochs, positive=True)
    )
