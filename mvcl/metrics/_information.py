"""Mutual information: its exact value in a Gaussian model, bounds from losses; and intervals over seeds."""

import math
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from mvcl import _checks, _numerics


def gaussian_information(views: int, variance_ratio: float, group: int = 1) -> float:
    """Mutual information of some views and the others in the one-dimensional Gaussian model, in nats.

        1/2 log[ (1 + g r) (1 + (M - g) r) / (1 + M r) ],   r = σ0² / σ²

    for M views x = c + noise; c has variance σ0², the noise σ². Shidani 2024 (ICLR): g = 1 is the one-vs-rest
    information, Eq. 26; other g the two-set information of Definition E.1.

    Args:
      views: M >= 2.
      variance_ratio: r > 0, signal variance / noise variance.
      group: g, views on one side, 1 <= g < M.

    Returns:
      Nats; at g = 1 it increases with M to the limit 1/2 log(1 + r).
    """
    m, g = _checks.whole("views", views, 2), _checks.whole("group", group)
    r = _checks.real("variance_ratio", variance_ratio, positive=True)
    if g >= m:
        raise ValueError(f"group must be less than views = {m}, got {g}")
    return 0.5 * (math.log1p(g * r) + math.log1p(-g * r / (1 + m * r)))


def printed_poly_view_bound(loss: ArrayLike, instances: int, views: int) -> jax.Array:
    """Theorems 2.2 and 2.4 of Shidani 2024 as printed: log(B - M + 1) - loss, in nats. It is not a lower bound.

    B = n k vectors in total, M = k: the logarithm is the chance level of the loss. The proof needs E[N ℓ] = 1 under the
    product of the marginals, N = B - M + 1; the M views of one negative instance are correlated, and it can exceed 1.
    Two equally likely classes, every view its class, I = log 2 = 0.693: this is 1.10 for 2 instances of 8 views, 0.695
    for 5 of 2 views (SimCLR). With many instances the excess vanishes. `info_nce_bound` holds for any number.

    The loss is `poly_view`, `sufficient_statistics` or, with two views, `nt_xent` of a batch; the result has its shape.
    """
    n, k = _checks.whole("instances", instances, 2), _checks.whole("views", views, 2)
    return math.log(n * k - k + 1) - jnp.asarray(loss)


def multi_crop_bound(loss: ArrayLike, instances: int) -> jax.Array:
    """Lower bound on I(x; y) of two views from the mean of `info_nce` over pairs of views, in nats: log K - loss.

    Shidani 2024, Eq. 1 and Proposition 2.1. The loss is `all_pairs(info_nce)` of a batch of K instances (`nt_xent`: no
    bound); the result has its shape.
    """
    return math.log(_checks.whole("instances", instances, 2)) - jnp.asarray(loss)


def group_scores(
    z: ArrayLike,
    group: Sequence[int] = (0,),
    temperature: ArrayLike = 0.1,
    critic: Literal["geometric", "arithmetic", "harmonic", "sufficient_statistics"] | float = "geometric",
    *,
    normalize: bool = True,
) -> jax.Array:
    """Scores of one group of views of each instance with the other views of each instance, for `info_nce_bound`.

        F_ij = (1/ρ) log mean_{α in A, β not in A} e^{ρ <z_αi, z_βj> / temperature}

    and, for "sufficient_statistics", <unit(mean_{α in A} z_αi), unit(mean_{β not in A} z_βj)> / temperature. The
    aggregations are those of `poly_view` (Shidani 2024, Eqs. 9 and 10), of scores and not of likelihoods.

    Args:
      z: (k, n, d) floating, k >= 2, n >= 2.
      group: A, some of the k views, at least one and not all.
      temperature: positive divisor of the inner products, no unit.
      critic: "geometric" (ρ = 0), "arithmetic" (1), "harmonic" (-1), a number ρ, or "sufficient_statistics".

    Returns:
      (n, n) float32 or wider: row i is the group of instance i, column j the others of instance j.
    """
    z = _checks.views(z)
    inside = [v for v in range(len(z)) if v in group]
    outside = [v for v in range(len(z)) if v not in group]
    if not outside or len(inside) != len(group) or not inside:
        raise ValueError(f"group must be some of the views 0 to {len(z) - 1}, got {tuple(group)}")
    z = _numerics.unit(z) if normalize else _numerics.widen(z)
    t = _checks.scalar("temperature", temperature, z.dtype, positive=True)
    left, right = z[np.asarray(inside)], z[np.asarray(outside)]
    if critic == "sufficient_statistics":
        means = (_numerics.unit(side.mean(0)) for side in (left, right))
        return _numerics.inner("id,jd->ij", *means) / t
    rho = _checks.aggregation("critic", critic)
    if rho == 0:  # the mean of the scores is the score of the means
        return _numerics.inner("id,jd->ij", left.mean(0), right.mean(0)) / t
    scores = _numerics.inner("aid,bjd->abij", left, right) / t
    return _numerics.log_power_mean(scores.reshape(-1, *scores.shape[2:]), rho, 0)


def info_nce_bound(scores: ArrayLike) -> jax.Array:
    """Lower bound on I(X; Y), in expectation, from scores of K independent pairs (X_i, Y_i), in nats.

        log K + mean_i log( e^{F_ii} / Σ_j e^{F_ij} )

    For any score, any K >= 2, and X and Y of any kind, such as groups of views (`group_scores`): with r_i =
    K e^{F_ii} / Σ_j e^{F_ij}, I(X_i; Y_1...Y_K) = I(X; Y), and Donsker and Varadhan give I >= E[log r_i] - log E'[r_i],
    E' with X_i independent of all Y. There Y_1...Y_K are exchangeable, so E'[r_i] = mean_j E'[K e^{F_ij} / Σ] = 1,
    however correlated Y's own views are, unlike in `printed_poly_view_bound`. van den Oord 2018; Poole 2019, Eq. 10.

    Args:
      scores: (..., K, K) floating: F_ij of X_i and Y_j.

    Returns:
      (...), at most log K.
    """
    f = _numerics.widen(_checks.array("scores", scores))
    if f.ndim < 2 or f.shape[-1] != f.shape[-2] or f.shape[-1] < 2:
        raise ValueError(f"scores must have shape (..., K, K), K >= 2, got {f.shape}")
    own = jnp.diagonal(f, axis1=-2, axis2=-1)
    return math.log(f.shape[-1]) + jnp.mean(own - _numerics.logsumexp(f, axis=f.ndim - 1), axis=-1)


def generalized_nwj_bound(joint_scores: ArrayLike, product_scores: ArrayLike) -> jax.Array:
    """Generalised NWJ lower bound on I(x; Y) of a view and a set of views, in nats.

        mean F(x, Y)  over the joint law  -  mean e^{F(x, Y)}  over the product of the marginals  +  1

    Shidani 2024, Eq. 5; of two sets of views, Eq. 121. It is tight for F = log p(x | Y) / p(x), and holds in
    expectation for any F, of any sign. `nwj_bound` is the same of F - 1, with the same arguments.
    """
    joint = _checks.array("joint_scores", joint_scores)
    return nwj_bound(1 + joint, 1 + _checks.array("product_scores", product_scores))


def nwj_bound(joint_scores: ArrayLike, product_scores: ArrayLike) -> jax.Array:
    """NWJ lower bound on I(x; Y), in nats.

        mean F(x, Y)  over the joint law  -  mean e^{F(x, Y) - 1}  over the product of the marginals

    Nguyen, Wainwright and Jordan 2010, as Poole 2019 (arXiv 1905.06922), Eq. 7, writes it. It is tight for
    F = 1 + log p(x | Y) / p(x). Shidani's Eq. 5 is `generalized_nwj_bound`.

    The scores F, floating, of any shape, are of pairs from the joint law and from the product of the marginals; the
    result is a scalar, float32 or wider.
    """
    joint = _numerics.widen(_checks.array("joint_scores", joint_scores))
    product = _numerics.widen(_checks.array("product_scores", product_scores))
    return jnp.mean(joint) - jnp.mean(jnp.exp(product - 1))


def optimal_multiplicity(batch: int, two_view_loss: float, equation: Literal[154, 155] = 155) -> float:
    """Number of views M that Shidani 2024 (Appendix E.5) finds best for B = M K vectors in total.

        Eq. 154:  sqrt( 2 (B + 1) (1 - p) )      from  ℓ(M) = p + (1 - p) (M - 2) / M   (Eq. 145)
        Eq. 155:  1 + sqrt( B (1 - p) )          from  ℓ(M) = 1 - (1 - p) / (M - 1)     (Eq. 146)

    the maximum of log(B - M + 1) + log ℓ(M), p = ℓ(2) = e^{-loss} the likelihood at two views. Both forms of ℓ are the
    paper's assumptions, and the maximised quantity is `printed_poly_view_bound`, which is not a bound.

    Args:
      batch: B >= 4 vectors in total.
      two_view_loss: measured `poly_view` or `nt_xent` of a trained network with M = 2 and K = B / 2, >= 0.
      equation: 154 or 155.

    Returns:
      M, not rounded. For B = 8192 and p = 0.5: 90.5 (154) and 65.0 (155).
    """
    b = _checks.whole("batch", batch, 4)
    loss = _checks.real("two_view_loss", two_view_loss)
    if loss < 0:
        raise ValueError(f"two_view_loss must be at least 0, got {two_view_loss}")
    if equation not in (154, 155):
        raise ValueError(f"equation must be 154 or 155, got {equation!r}")
    missed = -math.expm1(-loss)  # 1 - p
    return math.sqrt(2 * (b + 1) * missed) if equation == 154 else 1 + math.sqrt(b * missed)


def expected_info_nce(instances: int, information: float) -> float:
    """Expectation of `info_nce_bound` under the best score, for K pairs of Gaussians with this information, in nats.

    The exponential of the best score is the density ratio, whose law depends on the information alone. Of the sum S of
    the K ratios of an instance E[log S] is the integral of (e^-t - E[e^(-t S)]) / t over t > 0, and given the instance
    E[e^(-t S)] is a product over the K: integrals of one variable, by sums to four digits or more.

    Args:
      instances: K >= 2.
      information: I > 0, nats.

    Returns:
      Nats, less than both the information and log K.
    """
    k = _checks.whole("instances", instances, 2)
    information = _checks.real("information", information, positive=True)
    variance, log_sum = math.exp(-2 * information), 0.0
    t, normal = np.exp(np.arange(-60, 40, 0.5)), np.linspace(-9, 9, 2001)
    points, weights = np.polynomial.hermite_e.hermegauss(64)
    half = points > 0  # the law is that of the opposite instance
    for mean, weight in zip(math.sqrt(1 - variance) * points[half], weights[half] / weights[half].sum()):
        y = np.sort(np.concatenate([normal, mean + math.sqrt(variance) * normal]))
        of_others = np.exp(-(y**2) / 2) * np.gradient(y)
        of_true = np.exp(-((y - mean) ** 2) / (2 * variance)) * np.gradient(y)
        ratio = np.exp(y**2 / 2 - (y - mean) ** 2 / (2 * variance) + information)
        decay = np.exp(-np.outer(t, ratio))
        others, true = (decay @ (law / law.sum()) for law in (of_others, of_true))
        log_sum += weight * 0.5 * np.sum(np.exp(-t) - true * others ** (k - 1))
    return float(math.log(k) + information - log_sum)


def best_gaussian_multiplicity(batch: int, variance_ratio: float, candidates: Sequence[int]) -> int:
    """Number of views M with the largest `expected_info_nce` in the Gaussian model, for fixed B = M K. Ours.

    More views increase the information I(M) of `gaussian_information`, and leave fewer instances K = B / M to contrast,
    which lowers the bound, at most log K.

    Args:
      batch: B >= 4 vectors in total.
      variance_ratio: signal variance / noise variance, > 0.
      candidates: values of M to choose from, 2 <= M <= B / 2.
    """
    b = _checks.whole("batch", batch, 4)
    views = [_checks.whole(f"candidates[{i}]", m, 2) for i, m in enumerate(candidates)]
    if not views or max(views) > b // 2:
        raise ValueError(f"candidates must be in [2, {b // 2}], got {tuple(candidates)}")
    return max(views, key=lambda m: expected_info_nce(b // m, gaussian_information(m, variance_ratio)))


def relative_compute(views: int, epochs: float, reference_epochs: float = 128) -> float:
    """(views / 2) (epochs / reference_epochs): encoder passes relative to SimCLR. Shidani 2024, Eq. 29."""
    m, epochs = _checks.whole("views", views, 1), _checks.real("epochs", epochs, positive=True)
    return m / 2 * epochs / _checks.real("reference_epochs", reference_epochs, positive=True)


class Interval(NamedTuple):
    """A mean over seeds with the ends of its confidence interval, and the number of seeds."""

    mean: float
    low: float
    high: float
    seeds: int


def interval(values: Iterable[float], level: float = 0.95) -> Interval:
    """Mean and confidence interval by Student's t, for independent values of one normal distribution, one per seed.

    Of one value it is from minus to plus infinity, of none, or where one is not finite, all NaN.
    """
    from scipy.special import stdtrit  # its import is slow

    x = np.asarray(list(values), np.float64)
    if not len(x) or not np.isfinite(x).all():
        return Interval(math.nan, math.nan, math.nan, len(x))
    mean = float(x.mean())
    if len(x) == 1:
        return Interval(mean, -math.inf, math.inf, 1)
    half = float(stdtrit(len(x) - 1, 0.5 + level / 2) * x.std(ddof=1) / math.sqrt(len(x)))
    return Interval(mean, mean - half, mean + half, len(x))
