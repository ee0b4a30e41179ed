"""Geometry of the embeddings of k views: how they fill the sphere, and how far views and instances are apart."""

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.typing import ArrayLike

from mvcl import metrics
from mvcl.evaluation._evaluation import Result

BINS = 80  # of the histograms of cosines, of equal width in [-1, 1]
TOGETHER = "all views"
"""Name of the vectors of all views as one set."""
ROWS = 1_000  # of a view at most, whose distances of all pairs are measured
MOST = 50_000  # rows of a view that its ranks are of
_CHUNK = 4_096  # rows that are widened at once
_uniformity = jax.jit(metrics.uniformity)  # compiled once for all views
_FLAT = 1e-5  # variance in a direction that is not used

MEASURES: Mapping[str, str] = {
    "rank": "eigenvalues of the covariance above 1e-5",
    "effective rank": "RankMe: exponential of the entropy of the singular values",
    "LiDAR": "rank of what differs between instances (Thilak 2024), delta 1e-4, over instances with all views",
    "uniformity, Wasserstein": "distance of the cosines from those of uniform points, 0 is uniform",
    "uniformity, Gaussian": "log mean exp(-2 distance²) (Wang & Isola 2020), lower is more uniform",
    "alignment": "mean squared distance between two views of an instance, mean over pairs of views",
    "positive cosine": "mean cosine of two views of an instance, mean over pairs of views",
    "negative cosine": "mean cosine of two instances, within each view and between each two",
}
"""Measure -> how it is measured; all of vectors on the unit sphere."""
LOGGED = {
    "effective_rank": "effective rank",
    "uniformity": "uniformity, Gaussian",
    "alignment": "alignment",
    "positive_cosine": "positive cosine",
    "negative_cosine": "negative cosine",
}
"""Entry of the log of a run, behind `encoder_` or `head_` -> its measure."""


@dataclasses.dataclass(frozen=True)
class Geometry:
    """The geometry of the embeddings of k views of n instances, all projected onto the unit sphere."""

    names: tuple[str, ...]
    rows: dict[str, dict[str, float]]
    """Row name -> measure -> value: each view with its pairs; their mean; and, of embeddings of one length, all views
    as one set, whose uniformity is that of one random view of each instance."""
    spectra: dict[str, dict[str, Any]]
    """View, or all views -> number of "vectors", "dimension", "singular_values" (not centred) and "eigenvalues" of the
    covariance, both largest first."""
    alignment: np.ndarray
    """(k, k) mean squared distances of two views of an instance; NaN on the diagonal, and for different lengths."""
    positive: np.ndarray
    """(k, k) mean cosines of two views of an instance, likewise."""
    negative: np.ndarray
    """(k, k) mean cosines of two instances, each in its view."""
    positives: np.ndarray
    negatives: np.ndarray
    """(BINS,) counts of the cosines of positives and of a sample of negatives."""

    def numbers(self) -> dict[str, float]:
        """Measure -> mean over views, or over pairs; and "all views: MEASURE" for all vectors as one set."""
        means, together = self.rows.get("mean", self.rows[self.names[0]]), self.rows.get(TOGETHER, {})
        return means | {f"{TOGETHER}: {name}": value for name, value in together.items()}

    def results(self) -> dict[str, list[Result]]:
        """`rows` for `evaluation_table`."""
        return {
            row: [Result(name, values.get(name), None, how) for name, how in MEASURES.items()]
            for row, values in self.rows.items()
        }


def geometry(
    views: Sequence[ArrayLike], *, present: ArrayLike | None = None, names: Sequence[str] = (), seed: int = 0
) -> Geometry:
    """Measure the embeddings of k views.

    Args:
      views: k >= 1 arrays (n, d), finite, the embeddings of n instances in each view; d may differ between views.
      present: (n, k) bool, False where an instance lacks a view, whose vector is not read; None: all are there. Each
        view has two instances at least.
      names: of the views; (): view 1, view 2, ...
      seed: of the at most 1,000 instances whose distances are measured, and the 50,000 of the ranks.
    """
    unit, here = _checked(views, present)
    n, k = here.shape
    names = tuple(names) or tuple(f"view {l + 1}" for l in range(k))
    rng = np.random.default_rng(seed)
    order = rng.permutation(n)
    moments = [_moments(x[rows]) for x, rows in zip(unit, _samples(here, order, MOST))]
    samples = [x[rows] for x, rows in zip(unit, _samples(here, order, ROWS))]
    found = {name: _spread([of], some) for name, of, some in zip(names, moments, samples, strict=True)}
    alignment, positive, negative, *counts = _pairs(unit, here, order)
    rows = {name: dict(measures) for name, (measures, _) in found.items()}
    for l, row in enumerate(rows.values()):
        row |= {"alignment": _mean(alignment[l]), "positive cosine": _mean(positive[l])}
        row["negative cosine"] = float(negative[l, l])
    if k > 1:
        rows["mean"] = {name: _mean([row[name] for row in rows.values()]) for name in rows[names[0]]}
        rows["mean"]["negative cosine"] = _mean(negative)
    if k > 1 and len({x.shape[1] for x in unit}) == 1:
        # A view of each instance, among those that are there.
        drawn = np.where(here, rng.random(here.shape), -1)
        one = np.where(here.any(axis=1), drawn.argmax(axis=1), -1)
        some = order[one[order] >= 0][:ROWS]
        found[TOGETHER] = _spread(moments, np.stack(unit)[one[some], some])
        rows[TOGETHER] = found[TOGETHER][0]
        complete = np.sort(order[here[order].all(axis=1)][:ROWS])
        if len(complete) > 1:
            rows["mean"]["LiDAR"] = float(jax.jit(metrics.lidar)(np.stack([x[complete] for x in unit])))
    finite = {
        row: {name: of[name] for name in MEASURES if math.isfinite(of.get(name, math.nan))}
        for row, of in rows.items()
    }
    spectra = {name: spectrum for name, (_, spectrum) in found.items()}
    return Geometry(names, finite, spectra, alignment, positive, negative, *counts)


def _checked(views: Sequence[ArrayLike], present: ArrayLike | None) -> tuple[list[np.ndarray], np.ndarray]:
    """Unit vectors of the views, zero for missing ones, and the (n, k) mask."""
    arrays: list[np.ndarray] = [np.asarray(view, np.float32) for view in views]
    shapes = ", ".join(str(x.shape) for x in arrays)
    if not arrays or any(x.ndim != 2 or 0 in x.shape for x in arrays) or len({len(x) for x in arrays}) != 1:
        raise ValueError(f"views must be arrays (n, d) with the same n, got {shapes or 'none'}")
    n, k = len(arrays[0]), len(arrays)
    here = np.ones((n, k), bool) if present is None else np.asarray(present, bool)
    if here.shape != (n, k):
        raise ValueError(f"present must be ({n}, {k}), an entry for each instance and view, got {here.shape}")
    if here.sum(axis=0).min() < 2:
        raise ValueError(f"views must have at least 2 instances each, got {here.sum(axis=0).tolist()}")
    unit = []
    for l, x in enumerate(arrays):
        x = np.where(here[:, l, None], x, 0)
        if not np.isfinite(x).all():
            raise ValueError(f"views must be finite, got NaN or infinite values in view {l + 1}")
        unit.append(x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), np.finfo(np.float32).tiny))
    return unit, here


def _samples(here: np.ndarray, order: np.ndarray, most: int) -> list[np.ndarray]:
    """Of each view the first `most` rows of the order that are there, ascending."""
    return [np.sort(order[there[order]][:most]) for there in here.T]


_Moments = tuple[int, np.ndarray, np.ndarray]


def _moments(x: np.ndarray) -> _Moments:
    """Number, (d,) sum and (d, d) sum of outer products of vectors, in float64."""
    total, outer = np.zeros(x.shape[1:]), np.zeros(2 * x.shape[1:])
    for start in range(0, len(x), _CHUNK):
        part = x[start : start + _CHUNK].astype(np.float64)
        total += part.sum(axis=0)
        outer += part.T @ part
    return len(x), total, outer


def _spread(moments: Sequence[_Moments], some: np.ndarray) -> tuple[dict[str, float], dict[str, Any]]:
    """Measures and spectra of the vectors with these moments; `some` are those whose distances are measured."""
    count, total, outer = (sum(parts[1:], parts[0]) for parts in zip(*moments))
    mean = total / count
    covariance = (outer - count * np.outer(mean, mean)) / (count - 1)
    eigenvalues = np.maximum(np.linalg.eigvalsh(covariance)[::-1], 0)
    # Of float64 products: smaller errors than those of float32 vectors, and no decomposition of n rows.
    singular = np.sqrt(np.maximum(np.linalg.eigvalsh(outer)[::-1][:count], 0))
    measures = {
        "rank": float(np.sum(eigenvalues > _FLAT)),
        # A diagonal matrix has the same singular values as the vectors.
        "effective rank": float(metrics.effective_rank(np.diag(singular).astype(np.float32))),
        "uniformity, Wasserstein": metrics.wasserstein_uniformity(some) if some.shape[1] > 1 else math.nan,
        "uniformity, Gaussian": float(_uniformity(some)),
    }
    both = {"singular_values": singular, "eigenvalues": eigenvalues}
    return measures, {"vectors": count, "dimension": len(mean), **both}


def _pairs(unit: Sequence[np.ndarray], here: np.ndarray, order: np.ndarray) -> tuple[np.ndarray, ...]:
    """(k, k) alignment and mean cosines of positives and negatives, and (BINS,) counts of the cosines of all positives
    and of the negatives of about 1,000 vectors, as `Geometry` has them."""
    k = len(unit)
    alignment, positive, negative = np.full((3, k, k), np.nan)
    positives, negatives = np.zeros((2, BINS), np.int64)
    sums = [x.sum(axis=0, dtype=np.float64) for x in unit]
    some = order[: max(ROWS // k, 2)]
    others = ~np.eye(len(some), dtype=bool)
    for l, m in itertools.combinations_with_replacement(range(k), 2):
        if unit[l].shape != unit[m].shape:
            continue
        there = here[:, l] & here[:, m]
        both = int(there.sum())
        same = float(np.einsum("nd,nd->", unit[l], unit[m], dtype=np.float64))  # missing vectors are zero
        pairs = int(here[:, l].sum()) * int(here[:, m].sum()) - both
        # Σ_ij <x_i, y_j> = <Σ_i x_i, Σ_j y_j>: needs no matrix.
        negative[l, m] = negative[m, l] = (sums[l] @ sums[m] - same) / pairs
        if l != m and both:
            x, y = unit[l][there], unit[m][there]
            positive[l, m] = positive[m, l] = same / both
            # Not 2 - 2 cosine: that of views that nearly coincide is lost in the rounding of the cosine.
            alignment[l, m] = alignment[m, l] = np.einsum("nd,nd->", x - y, x - y, dtype=np.float64) / both
            positives += _counts(np.einsum("nd,nd->n", x, y))
        # Within a view each pair of instances once, between two views each of its two pairs of vectors.
        apart = (others if l != m else np.triu(others)) & np.outer(here[some, l], here[some, m])
        negatives += _counts((unit[l][some] @ unit[m][some].T)[apart])
    return alignment, positive, negative, positives, negatives


def _counts(cosines: np.ndarray) -> np.ndarray:
    return np.histogram(np.clip(cosines, -1, 1), np.linspace(-1, 1, BINS + 1))[0]  # rounding goes beyond 1


def _mean(values: Sequence[float] | np.ndarray) -> float:
    """Mean of the finite values; NaN without any."""
    array: np.ndarray = np.asarray(values, np.float64)
    finite = array[np.isfinite(array)]
    return float(finite.mean()) if len(finite) else math.nan
