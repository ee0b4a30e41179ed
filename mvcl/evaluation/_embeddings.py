"""Rank, uniformity and alignment of embeddings of several views."""

import numpy as np
from jax.typing import ArrayLike

from mvcl.evaluation._geometry import MEASURES, MOST, ROWS, geometry
from mvcl.evaluation._result import Result

_MEASURES = (
    "rank",
    "effective rank",
    "LiDAR",
    "uniformity, Wasserstein",
    "uniformity, Gaussian",
    "alignment",
)
_LACKING = "not measured: it needs two views, or two dimensions"


def embedding_measures(z: ArrayLike, *, seed: int = 0) -> list[Result]:
    """Rank, uniformity and alignment of embeddings, as in Koromilas 2025, Fig. 3b-d.

    All are of vectors projected onto the unit sphere. The rank is that of the authors' released metrics
    (github.com/pakoromilas/DHEL-KCL): the number of eigenvalues of the covariance above 1e-5, at most d. The uniformity
    is theirs too, the Wasserstein distance between the cosines of all pairs and those of uniform points: lower is
    more uniform. Alignment is the mean squared distance between two views of an instance.

    Args:
      z: (k, n, d) floating, k >= 1 views of n >= 2 instances.
      seed: of the at most 1,000 instances that the measures of uniformity and LiDAR use, and the 50,000 of the ranks.

    Returns:
      "rank", "effective rank", "LiDAR", "uniformity, Wasserstein", "uniformity, Gaussian" and "alignment". LiDAR is of
      all views, alignment the mean over pairs of views; the values of both are None for one view. The others are means
      over views.

    Raises:
      ValueError: z has another number of axes, is not finite, or has fewer than two instances.
    """
    vectors: np.ndarray = np.asarray(z, np.float32)
    if vectors.ndim != 3 or vectors.shape[1] < 2 or not np.isfinite(vectors).all():
        raise ValueError(f"z must be (k, n, d) with n >= 2 and finite, got {vectors.shape}")
    k, n, d = vectors.shape
    values = geometry(list(vectors), seed=seed).numbers()
    over = f"mean over {k} views" if k > 1 else "one view"
    some = {"rank": MOST, "effective rank": MOST, "LiDAR": ROWS, "alignment": n}
    results = []
    for name in _MEASURES:
        how = f"{MEASURES[name]}, {min(n, some.get(name, ROWS))} rows of {d} on the unit sphere, {over}"
        results.append(Result(name, values.get(name), None, how if name in values else _LACKING, better=""))
    return results
