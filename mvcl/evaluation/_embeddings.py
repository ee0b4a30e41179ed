"""Rank, uniformity and alignment of embeddings of several views."""

import itertools

import jax
import numpy as np
from jax.typing import ArrayLike

from mvcl import metrics
from mvcl.evaluation._result import Result

_ROWS = 2_000  # of a view, for the distances of all pairs
_MOST = 50_000  # of a view, for the ranks
_ONE_VIEW = "not measured: it needs two views"


def embedding_measures(z: ArrayLike, *, seed: int = 0) -> list[Result]:
    """Rank, uniformity and alignment of embeddings, as in Koromilas 2025, Fig. 3b-d.

    All are of vectors projected onto the unit sphere. The rank is that of the authors' released metrics
    (github.com/pakoromilas/DHEL-KCL): the number of eigenvalues of the covariance above 1e-5, at most d. The uniformity
    is theirs too, the Wasserstein distance between the cosines of all pairs and those of uniform points: lower is
    more uniform. Alignment is the mean squared distance between two views of an instance.

    Args:
      z: (k, n, d) floating, k >= 1 views of n >= 2 instances.
      seed: of the at most 2,000 instances that the measures of uniformity and LiDAR use, and the 50,000 of the ranks.

    Returns:
      "rank", "effective rank", "LiDAR", "uniformity, Wasserstein", "uniformity, Gaussian" and "alignment". LiDAR is of
      all views, alignment the mean over pairs of views; the values of both are None for one view. The others are means
      over views.

    Raises:
      ValueError: z has another number of axes, is not finite, or has fewer than two instances.
    """
    vectors: np.ndarray = np.array(z, np.float32)
    if vectors.ndim != 3 or vectors.shape[1] < 2 or not np.isfinite(vectors).all():
        raise ValueError(f"z must be (k, n, d) with n >= 2 and finite, got {vectors.shape}")
    k, n, d = vectors.shape
    vectors /= np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), np.finfo(np.float32).tiny)
    order = np.random.default_rng(seed).permutation(n)
    some, most = np.sort(order[:_ROWS]), np.sort(order[:_MOST])
    over = f"mean over {k} views" if k > 1 else "one view"
    rows, few = (f"{len(used)} rows of {d} on the unit sphere, {over}" for used in (most, some))
    measured = {
        "rank": (
            [float(metrics.matrix_rank(x[most])) for x in vectors],
            f"eigenvalues of the covariance above 1e-5, {rows}",
        ),
        "effective rank": ([float(metrics.effective_rank(x[most])) for x in vectors], f"RankMe, {rows}"),
        "uniformity, Wasserstein": (
            [metrics.wasserstein_uniformity(x[some]) for x in vectors],
            f"distance of the cosines from those of uniform points, 0 is uniform, {few}",
        ),
        "uniformity, Gaussian": (
            [float(metrics.uniformity(x[some])) for x in vectors],
            f"log mean exp(-2 distance²) (Wang & Isola 2020), lower is more uniform, {few}",
        ),
    }
    rank, effective, *uniform = (
        Result(name, float(np.mean(values)), None, how) for name, (values, how) in measured.items()
    )
    results = [rank, effective, _lidar(vectors[:, some]), *uniform]
    if k == 1:
        return [*results, Result("alignment", None, None, _ONE_VIEW)]
    pairs = [float(metrics.alignment(vectors[l], vectors[m])) for l, m in itertools.combinations(range(k), 2)]
    how = (
        f"mean squared distance between two views of an instance, mean over {len(pairs)} pairs, {n} instances"
    )
    return [*results, Result("alignment", float(np.mean(pairs)), None, how)]


def _lidar(z: np.ndarray) -> Result:
    """LiDAR of (k, n, d) unit vectors."""
    k, n, d = z.shape
    if k == 1:
        return Result("LiDAR", None, None, _ONE_VIEW)
    how = (
        f"rank of what differs between instances (Thilak 2024), {n} instances of {k} views in {d} dimensions"
    )
    return Result("LiDAR", float(jax.jit(metrics.lidar)(z)), None, f"{how}, on the unit sphere, delta 1e-4")
