"""What matching all views jointly costs over matching every pair of views by itself."""

from functools import partial

import jax
from jax.typing import ArrayLike

from mvcl import _checks
from mvcl.losses._higher_order import all_pairs
from mvcl.losses._m3g import m3g, m3g_pair


def m3g_pairwise_excess(
    z: ArrayLike,
    epsilon: ArrayLike = 0.2,
    tolerance: float = 1e-5,
    max_iterations: int = 1000,
    *,
    normalize: bool = True,
) -> jax.Array:
    """By how much the matching gaps of all pairs of views exceed the gap of matching the views jointly.

        Σ_{l<m} M3G_2(z_l, z_m; 2ε/k) - M3G_k(z; ε)  >= 0

    with the circular variance, of which a pair of unit vectors has `C_lm = ||z_l - z_m||² / k²` in both terms
    (`cost_scale = 4/k²` of `m3g_pair`); for vectors of other lengths the cost differs from that by functions of single
    points, which cancel in both gaps. It is 0 for k = 2 and for coinciding vectors, and tends to 0 for a large ε. As ε
    goes to 0 it is what the best joint plan, for k >= 3 not always a matching, costs more than the best matchings of
    the pairs: 0 if some best matchings of the pairs agree, that is if following them from view to view and back returns
    to the same point, and only then if each pair has one best matching. No source; Piran 2024 (ICML), Eqs. 3 and 14 are
    the two losses.

    The sign. With H the entropy, `M3G_k(z; ε) = max_P Σ_{l<m} <J_lm - P_lm, C_lm> + ε (H(P) - log n)`, and likewise
    for a pair. The pair marginals P_lm of the best joint P are plans of the pairs, maybe not their best, so the
    difference is at least `ε' Σ_{l<m} (H(P_lm) - log n) - ε (H(P) - log n)` if the pairs have ε'. All marginals are
    uniform, so that `H(P_lm) - log n` is the conditional entropy H(i_m | i_l), and by the chain rule
    `H(P) - log n <= Σ_{m != l} H(i_m | i_l)` for every view l. The mean of that over l is
    `H(P) - log n <= (2/k) Σ_{l<m} H(i_m | i_l)`: the sign holds for ε' = 2ε/k. It holds for a larger ε' too, such as
    ε, because a matching gap grows with its ε by H(P) - log n >= 0. It does not for a smaller one: coinciding vectors
    have `(k-1) (k ε'/2 - ε) log n`.

    Both terms are computed from the dual, which is concave with a gradient of 0 at its maximum: a solver that has not
    converged leaves it too low by at most its error times the largest error of a potential, so to second order. The
    sign holds up to that of the joint term.

    Cost: n^k for each sweep of the joint problem, k(k-1)/2 n² for each of the pairs.

    Args:
      z: (k, n, d) floating, k >= 2, n >= 2; half precision is computed in float32.
      epsilon: positive weight of the entropy of the joint plan, in the unit of the cost of Eq. 12.
      tolerance: Sinkhorn stops when Σ_l ||marginal_l - 1/n||_1 is below.
      max_iterations: sweeps over the views at most.
      normalize: project vectors onto the unit sphere first; zero stays zero.

    Returns:
      Scalar, float32 or wider, in the unit of the cost. Its gradient is that of the two losses.

    Raises:
      ValueError: for shapes, dtypes or values other than these.
    """
    z = _checks.views(z)
    k = z.shape[0]
    _checks.scalar("epsilon", epsilon, z.dtype, positive=True)
    pair = partial(
        m3g_pair,
        epsilon=2 * epsilon / k,
        tolerance=tolerance,
        max_iterations=max_iterations,
        cost_scale=4 / k**2,
    )
    pairs = all_pairs(pair, reduction="sum")(z, normalize=normalize)
    return pairs - m3g(z, epsilon, tolerance=tolerance, max_iterations=max_iterations, normalize=normalize)
