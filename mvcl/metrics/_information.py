"""Mutual information: its exact value in a Gaussian model, and lower bounds from contrastive losses."""

import math

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from mvcl import _checks, _numerics


def gaussian_information(views: int, variance_ratio: float) -> float:
    """One-vs-rest mutual information I(x_1; x_2, ..., x_M) of the one-dimensional Gaussian model, in nats.

        1/2 log[ (1 + r) (1 - r / (1 + M r)) ],   r = σ0² / σ²

    for M views x = c + noise; c has variance σ0², the noise σ². Shidani 2024 (ICLR), Eq. 26.

    Args:
      views: M >= 2.
      variance_ratio: r > 0, signal variance / noise variance.

    Returns:
      Nats; increases with M to the limit 1/2 log(1 + r).

    Raises:
      ValueError: a value is out of range.
    """
    _checks.whole("views", views, 2)
    r = _checks.real("variance_ratio", variance_ratio, positive=True)
    return 0.5 * (math.log1p(r) + math.log1p(-r / (1 + views * r)))


def poly_view_bound(loss: ArrayLike, instances: int, views: int) -> jax.Array:
    """Lower bound on I(x_1; x_2, ..., x_M) from `poly_view` or `sufficient_statistics`: log(B - M + 1) -
    loss, in nats.

    B = n k vectors in total, M = k: the logarithm is the chance level of the loss. Shidani 2024, Theorems 2.2
    and 2.4.

    Args:
      loss: the loss of a batch.
      instances: n >= 2.
      views: k >= 2.

    Returns:
      Nats, with the loss's shape.

    Raises:
      ValueError: a value is out of range.
    """
    n, k = _checks.whole("instances", instances, 2), _checks.whole("views", views, 2)
    return math.log(n * k - k + 1) - jnp.asarray(loss)


def multi_crop_bound(loss: ArrayLike, instances: int, pair_loss: str = "info_nce") -> jax.Array:
    """Lower bound on I(x; y) from the mean of a pair loss over pairs of views, in nats.

        log K - loss  for "info_nce",   log(2K - 1) - loss  for "nt_xent",   K instances

    Shidani 2024, Eq. 1 and the proposition after it.

    Args:
      loss: `all_pairs(info_nce)` or `all_pairs(nt_xent)` of a batch.
      instances: K >= 2.
      pair_loss: "info_nce" or "nt_xent".

    Returns:
      Nats, with the loss's shape.

    Raises:
      ValueError: a value is out of range.
    """
    _checks.option("pair_loss", pair_loss, ("info_nce", "nt_xent"))
    n = _checks.whole("instances", instances, 2)
    return math.log(n if pair_loss == "info_nce" else 2 * n - 1) - jnp.asarray(loss)


def information_gap(bound: ArrayLike, views: int, variance_ratio: float) -> jax.Array:
    """Exact value minus bound in the Gaussian model, in nats; >= 0 in expectation for a valid bound.

    Shidani 2024, Section 3.1.

    Args:
      bound: nats, of any shape.
      views: M >= 2.
      variance_ratio: signal variance / noise variance, > 0.

    Returns:
      Nats, with the bound's shape.

    Raises:
      ValueError: a value is out of range.
    """
    return gaussian_information(views, variance_ratio) - jnp.asarray(bound)


def nwj_bound(joint_scores: ArrayLike, product_scores: ArrayLike) -> jax.Array:
    """Generalised NWJ lower bound on I(x; Y) of a view and a set of views, in nats.

        mean F(x, Y)  over the joint law  -  mean e^{F(x, Y) - 1}  over the product of the marginals

    Shidani 2024, Eq. 5. It is tight for F = 1 + log p(x | Y) / p(x).

    Args:
      joint_scores: floating, of any shape: F of pairs from the joint law.
      product_scores: floating, of any shape: F of pairs from the product of the marginals.

    Returns:
      Scalar, float32 or wider.

    Raises:
      ValueError: an integer dtype.
    """
    scores = []
    for name, value in (("joint_scores", joint_scores), ("product_scores", product_scores)):
        scores.append(_numerics.widen(_checks.floating(name, value)))
    return jnp.mean(scores[0]) - jnp.mean(jnp.exp(scores[1] - 1))


def optimal_multiplicity(batch: int, variance_ratio: float) -> int:
    """Number of views M with the largest provable bound in the Gaussian model, for fixed B = M x instances.

        argmax_M  min( I(M), log(B - M + 1) ),   2 <= M <= B / 2

    More views increase the information I(M) of `gaussian_information`, but decrease the number of instances. The loss
    is never negative, so `poly_view_bound` is at most log(B - M + 1); it is also at most I(M). I increases with M and
    the logarithm decreases, so the best M is where they cross. I(M) is at most log(1 + r) / 2; if that is below
    log(B/2 + 1), that is for r < (B/2 + 1)² - 1, they do not cross and the largest M is best. Shidani 2024, Eqs. 154
    and 155, treat the same trade-off; this is derived from Eq. 26 and Theorem 2.2 and was not compared with their
    text.

    Args:
      batch: B >= 4 vectors in total.
      variance_ratio: signal variance / noise variance, > 0.

    Returns:
      M from 2 to B / 2; the smallest of equal ones.

    Raises:
      ValueError: a value is out of range.
    """
    b = _checks.whole("batch", batch, 4)

    def provable(views: int) -> float:
        return min(gaussian_information(views, variance_ratio), math.log(b - views + 1))

    # I increases and the logarithm decreases, so their minimum has one maximum.
    low, high = 2, b // 2
    while low < high:
        middle = (low + high) // 2
        if provable(middle) < provable(middle + 1):
            low = middle + 1
        else:
            high = middle
    return low


def relative_compute(views: int, epochs: float, reference_epochs: float = 128) -> float:
    """Encoder passes of a run relative to SimCLR with two views over `reference_epochs`. Shidani 2024, Eq. 29.

        (views / 2) (epochs / reference_epochs)

    Args:
      views: M >= 1.
      epochs: passes over the data, > 0.
      reference_epochs: epochs of the reference, > 0.

    Returns:
      A ratio: 1 for the reference itself.

    Raises:
      ValueError: a value is out of range.
    """
    m = _checks.whole("views", views, 1)
    return (
        m
        / 2
        * _checks.real("epochs", epochs, positive=True)
        / _checks.real("reference_epochs", reference_epochs, positive=True)
    )
