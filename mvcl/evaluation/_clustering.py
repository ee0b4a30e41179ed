"""Clustering of features: agreement of K-means with the classes."""

import csv
import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from mvcl import _files
from mvcl._progress import track
from mvcl.evaluation._protocols import Arrays, Evaluation, LabelledSplit, Splits
from mvcl.evaluation._result import Result
from mvcl.metrics import (
    adjusted_rand_index,
    clustering_accuracy,
    k_means,
    normalized_mutual_information,
    purity,
)

MEASURES: dict[str, Callable[[np.ndarray, np.ndarray], float]] = {
    "ACC": clustering_accuracy,
    "NMI": normalized_mutual_information,
    "ARI": adjusted_rand_index,
    "purity": purity,
}


def cluster_scores(
    features: np.ndarray,
    labels: np.ndarray,
    clusters: int,
    *,
    runs: int = 10,
    starts: int = 10,
    seed: int = 0,
    mini_batch_above: int = 0,
) -> dict[str, np.ndarray]:
    """Agreement of the clusters of several K-means runs with the classes.

    Args:
      features: (n, d) floating.
      labels: (n,) integers, the classes.
      clusters: number of clusters.
      runs: number of K-means runs.
      starts: k-means++ starts per run; the one with the least inertia is used.
      seed: of the first run; the following runs add 1 each.
      mini_batch_above: K-means takes mini-batches for more rows than this; 0: never.

    Returns:
      "ACC", "NMI", "ARI" and "purity", (runs,) each.
    """
    found = [
        k_means(features, clusters, seed=seed + run, starts=starts, mini_batch_above=mini_batch_above)[0]
        for run in track(range(runs), "K-means", runs, "runs")
    ]
    return {name: np.asarray([f(labels, c) for c in found]) for name, f in MEASURES.items()}


def svm_accuracy(
    features: np.ndarray, labels: np.ndarray, *, share: float = 0.3, draws: int = 10, seed: int = 0
) -> np.ndarray:
    """Accuracy of a linear support vector machine that is trained on a share of the examples and tested on the rest.

    Args:
      features: (n, d) floating.
      labels: (n,) integers, at least two per class.
      share: of the examples of each class for training, in (0, 1).
      draws: number of random training sets.
      seed: of the draws.

    Returns:
      (draws,) accuracies.
    """
    from sklearn.model_selection import StratifiedShuffleSplit
    from sklearn.svm import SVC

    if not 0 < share < 1:
        raise ValueError(f"share must be in (0, 1), got {share}")
    splits = StratifiedShuffleSplit(draws, train_size=share, random_state=seed).split(features, labels)
    return np.asarray(
        [
            SVC(kernel="linear").fit(features[train], labels[train]).score(features[test], labels[test])
            for train, test in splits
        ]
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Clustering(Evaluation):
    """K-means on the concatenated features of all views, and of each view; a linear SVM on few labels.

    All results are on the split `train`, as usual in clustering. The best view of the row `raw input` is called
    K-Means-BSV in papers.
    """

    scored: ClassVar[bool] = True
    clusters: int = 0
    """Number of clusters; 0: the number of classes, or the method's clusters for data without labels."""
    runs: int = 10
    """K-means runs to average over."""
    starts: int = 10
    """k-means++ starts per run; the one with the least inertia is used."""
    mini_batch_above: int = 10_000
    """K-means takes mini-batches of 5,000 rows for more rows than this, as the released code of Xu 2023; 0: never."""
    per_view: tuple[str, ...] = ("ACC",)
    """Measures shown for each single view: ACC, NMI, ARI, purity."""
    svm_share: float = 0.3
    """Share of the labels for training the SVM; 0: no SVM."""
    draws: int = 10
    """Number of draws of that share."""

    def of_clusters(self, clusters: int) -> "Clustering":
        """Use the method's number of clusters, unless `clusters` is set."""
        return dataclasses.replace(self, clusters=self.clusters or clusters)

    def splits(self, available: Sequence[str]) -> tuple[str, ...]:
        """All splits; `test` is for the embedding plot."""
        return ("train", "test")

    def check(self, splits: Splits) -> None:
        """Raise `ValueError` for options that are invalid for these splits."""
        self._check_options()
        split = splits["train"]
        clusters = self.clusters or len(split.class_names)
        if clusters < 2:
            raise ValueError(
                f"evaluation.clusters must be at least 2 for data without labels, got {self.clusters}"
            )
        if clusters > len(split):
            raise ValueError(f"evaluation.clusters must be at most the {len(split)} examples, got {clusters}")

    def _check_options(self) -> None:
        if unknown := sorted(set(self.per_view) - set(MEASURES)):
            raise ValueError(f"evaluation.per_view must be among {', '.join(MEASURES)}, got {unknown[0]!r}")
        for name in ("runs", "starts", "draws"):
            if getattr(self, name) < 1:
                raise ValueError(f"evaluation.{name} must be at least 1, got {getattr(self, name)}")
        if self.mini_batch_above < 0:
            raise ValueError(f"evaluation.mini_batch_above must be at least 0, got {self.mini_batch_above}")
        if not 0 <= self.svm_share < 1:
            raise ValueError(f"evaluation.svm_share must be in [0, 1), got {self.svm_share}")

    def measure(self, features: Arrays, splits: Splits) -> list[Result]:
        """ACC, NMI, ARI and purity of all views, of the best view and of each; accuracy of the SVM."""
        self._check_options()
        split, x = splits["train"], features["train"]
        classes = len(split.class_names)
        if classes < 2:
            why = "not measured: the data have no labels"
            return [Result(name, None, None, why) for name in MEASURES]
        clusters = self.clusters or classes
        options: dict[str, Any] = {
            "runs": self.runs,
            "starts": self.starts,
            "seed": self.seed,
            "mini_batch_above": self.mini_batch_above,
        }
        kind = "mini-batch K-means" if 0 < self.mini_batch_above < len(x) else "K-means"
        how = (
            f"{kind}, {clusters} clusters, mean and deviation of {self.runs} runs (seed {self.seed}), each the "
            f"best of {self.starts} starts, {len(x)} rows"
        )

        def together() -> list[Result]:
            scores = cluster_scores(x, split.labels, clusters, **options)
            return _results(scores, "", f"{how}, all views concatenated")

        def single() -> list[Result]:
            alone = {}
            for name, (rows, found) in view_features(x, split).items():
                if len(rows) >= clusters:
                    alone[name] = cluster_scores(found, split.labels[rows], clusters, **options)
            best = max(alone, key=lambda name: alone[name]["ACC"].mean(), default=None)
            results = []
            if best is not None:
                results += _results(alone[best], "best view ", f"{how}, the view with the highest ACC")
            for name, scores in alone.items():
                shown = {measure: scores[measure] for measure in self.per_view}
                results += _results(shown, f"{name} ", f"{how}, this view only")
            return results

        results = together()
        if len(view_features(x, split)) > 1:
            results += single()
        if self.svm_share:
            results += self._svm(x, split.labels, classes)
        return results

    def _svm(self, features: np.ndarray, labels: np.ndarray, classes: int) -> list[Result]:
        """Accuracy of the SVM, mean and deviation over draws."""
        name, smallest = f"SVM {self.svm_share:.0%}", np.bincount(labels, minlength=classes).min()
        if smallest < 4:
            return [Result(name, None, None, f"not measured: a class has {smallest} rows")]
        accuracies = svm_accuracy(features, labels, share=self.svm_share, draws=self.draws, seed=self.seed)
        how = (
            f"accuracy of a linear SVM trained on {self.svm_share:.0%} of {len(features)} labels, tested on the rest, "
            f"mean and standard deviation of {self.draws} draws (seed {self.seed})"
        )
        return _results({name: accuracies}, "", how)

    def score(self, features: Arrays, splits: Splits) -> tuple[str, float] | None:
        """Clustering accuracy of one K-means run on all views."""
        split = splits["train"]
        if len(split.class_names) < 2:
            return None
        found = self._labels(features["train"], self.clusters or len(split.class_names))
        return "acc", clustering_accuracy(split.labels, found)

    def warnings(self, rows: Mapping[str, Sequence[Result]]) -> tuple[str, ...]:
        """A warning if the trained features are below the raw input, all views or the best, in ACC or NMI."""
        values = {row: {r.name: r.value for r in results} for row, results in rows.items()}
        trained, raw = values["trained encoder"], values.get("raw input", {})
        below = []
        for name in ("ACC", "NMI"):
            for compared, whose in ((name, "all raw views"), (f"best view {name}", "the best raw view")):
                after, before = trained.get(name), raw.get(compared)
                if after is not None and before is not None and after < before:
                    below.append(f"{name} {after:.3f}, {whose} {before:.3f}")
        if not below:
            return ()
        return (
            f"the clusters of the trained features agree less with the classes than those of the raw input: "
            f"{'; '.join(below)}. refresh.jsonl has ACC and NMI over training; try fewer rounds, or for a table of few "
            "rows smaller batches and networks",
        )

    def _labels(self, features: np.ndarray, clusters: int) -> np.ndarray:
        """Clusters of one K-means run."""
        return k_means(
            features,
            clusters,
            seed=self.seed,
            starts=self.starts,
            mini_batch_above=self.mini_batch_above,
        )[0]

    def save(self, features: Arrays, splits: Splits, workdir: Path) -> None:
        """Write clusters.csv: id, label, cluster from all views, and cluster from each view of each example."""
        split, x = splits["train"], features["train"]
        clusters = self.clusters or len(split.class_names)
        ids = split.ids or range(len(x))
        columns: dict[str, Sequence[Any]] = {"id": ids}
        if len(split.class_names) > 1:
            columns["label"] = [split.class_names[label] for label in split.labels]
        columns["cluster"] = self._labels(x, clusters).tolist()
        for name, (rows, found) in view_features(x, split).items():
            if len(rows) >= clusters:
                column: list[Any] = [""] * len(x)
                for row, cluster in zip(rows, self._labels(found, clusters)):
                    column[row] = int(cluster)
                columns[f"cluster of {name}"] = column
        _write_clusters(workdir / "clusters.csv", columns)


def _write_clusters(path: Path, columns: Mapping[str, Sequence[Any]]) -> None:
    with _files.replacing(path) as temporary, open(temporary, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values()))


def view_features(features: np.ndarray, split: LabelledSplit) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """The columns of each view: name -> (rows that have the view, (rows, d_v) features).

    Concatenated features are either the views' own columns or k blocks of equal width; otherwise returns {}.
    """
    names, present = split.spec.view_names, split.present
    if not names:
        return {}
    widths = [math.prod(size or 0 for size in shape) for shape in split.spec.shapes]
    if sum(widths) != features.shape[1]:
        if features.shape[1] % len(names):
            return {}
        widths = [features.shape[1] // len(names)] * len(names)
    blocks = np.split(features, np.cumsum(widths)[:-1], axis=1)
    there = np.ones((len(features), len(names)), bool) if present is None else present
    rows = [np.flatnonzero(here) for here in there.T]
    return {name: (here, block[here]) for name, here, block in zip(names, rows, blocks)}


def _results(scores: Mapping[str, np.ndarray], prefix: str, how: str) -> list[Result]:
    return [
        Result(prefix + name, float(v.mean()), float(v.std(ddof=1)) if len(v) > 1 else None, how)
        for name, v in scores.items()
    ]
