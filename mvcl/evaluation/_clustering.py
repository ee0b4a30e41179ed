"""The protocol of clusters: agreement of K-means with the classes, of all views and of single views."""

import dataclasses
import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from mvcl import _checks, _files, data, evaluation, metrics
from mvcl._progress import track
from mvcl.evaluation._evaluation import Arrays, Augmented, Evaluation, Result, Rows, Splits, averaged

MEASURES: dict[str, Callable[[np.ndarray, np.ndarray], float]] = {
    "ACC": metrics.clustering_accuracy,
    "NMI": metrics.normalized_mutual_information,
    "ARI": metrics.adjusted_rand_index,
    "purity": metrics.purity,
}


def cluster_scores(
    features: np.ndarray, labels: np.ndarray, clusters: int, *, runs: int = 10, seed: int = 0, **options: int
) -> dict[str, np.ndarray]:
    """Agreement of several K-means runs with the classes: "ACC", "NMI", "ARI" and "purity", (runs,) each.

    Args:
      features, labels: (n, d) floating, and (n,) integers, the classes.
      seed: of the first run; the following runs add 1 each.
      options: `starts` and `mini_batch_above` of `metrics.k_means`.
    """
    found = [
        metrics.k_means(features, clusters, seed=seed + run, **options)[0]
        for run in track(range(runs), "K-means", runs, "runs")
    ]
    return {name: np.asarray([f(labels, c) for c in found]) for name, f in MEASURES.items()}


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
    svm_share: float = 0.3
    """Share of the labels for training the SVM; 0: no SVM."""
    draws: int = 10
    """Number of draws of that share."""

    def __post_init__(self) -> None:
        counts = dict.fromkeys(("runs", "starts", "draws"), "[1, inf)")
        _checks.fields("evaluation", self, **counts, mini_batch_above="[0, inf)", svm_share="[0, 1)")

    def of_clusters(self, clusters: int) -> Evaluation:
        if not self.clusters and not clusters:
            why = "the data have no classes; --evaluation.clusters sets a number"
            return evaluation.Unevaluated(reason=why)
        return dataclasses.replace(self, clusters=self.clusters or clusters)

    def check(self, splits: Splits) -> None:
        split = splits["train"]
        clusters = self.clusters or len(split.class_names)
        if clusters < 2:
            raise ValueError(f"evaluation.clusters must be at least 2 without labels, got {self.clusters}")
        if clusters > len(split):
            raise ValueError(f"evaluation.clusters must be at most the {len(split)} examples, got {clusters}")

    def measure_raw(self, features: Arrays, splits: Splits) -> list[Result]:
        return self.measure(features, splits, raw=True)

    def measure(self, features: Arrays, splits: Splits, *, raw: bool = False) -> list[Result]:
        """ACC, NMI, ARI and purity of all views, of the best view and of each; accuracy of the SVM."""
        split, x = splits["train"], features["train"]
        classes = len(split.class_names)
        if classes < 2:
            why = "not measured: the data have no labels"
            return [Result(name, None, None, why) for name in MEASURES]
        clusters = self.clusters or classes
        kind = "mini-batch K-means" if 0 < self.mini_batch_above < len(x) else "K-means"
        how = (
            f"{kind}, {clusters} clusters, mean and deviation of {self.runs} runs (seed {self.seed}), each the "
            f"best of {self.starts} starts, {len(x)} rows"
        )
        options = {"runs": self.runs, **self._k_means()}
        whole = cluster_scores(x, split.labels, clusters, **options)
        together, alone = f"{how}, all views concatenated", f"{how}, the view with the highest ACC"
        results = [averaged(name, values, together) for name, values in whole.items()]
        views = view_features(x, split, raw=raw)
        if len(views) > 1:
            single = {
                name: cluster_scores(found, split.labels[rows], clusters, **options)
                for name, (rows, found) in views.items()
                if len(rows) >= clusters
            }
            best = max(single.values(), key=lambda scores: scores["ACC"].mean(), default={})
            results += [averaged(f"best view {name}", values, alone) for name, values in best.items()]
            for name, scores in single.items():
                results.append(averaged(f"{name} ACC", scores["ACC"], f"{how}, this view only"))
        return results + ([self._svm(x, split.labels, classes)] if self.svm_share else [])

    def _svm(self, features: np.ndarray, labels: np.ndarray, classes: int) -> Result:
        from sklearn.model_selection import StratifiedShuffleSplit
        from sklearn.svm import SVC

        name, smallest = f"SVM {self.svm_share:.0%}", np.bincount(labels, minlength=classes).min()
        if smallest < 4:
            return Result(name, None, None, f"not measured: a class has {smallest} rows")
        rule = StratifiedShuffleSplit(self.draws, train_size=self.svm_share, random_state=self.seed)
        splits = track(rule.split(features, labels), "support vector machines", self.draws, "draws")
        accuracies = [
            SVC(kernel="linear").fit(features[train], labels[train]).score(features[test], labels[test])
            for train, test in splits
        ]
        how = (
            f"accuracy of a linear SVM trained on {self.svm_share:.0%} of {len(features)} labels, tested on the rest, "
            f"mean and standard deviation of {self.draws} draws (seed {self.seed})"
        )
        return averaged(name, accuracies, how)

    def score(self, features: Arrays, splits: Splits) -> tuple[str, float] | None:
        """Clustering accuracy of one K-means run on all views."""
        split, x = splits["train"], features["train"]
        if len(split.class_names) < 2:
            return None
        found, _ = metrics.k_means(x, self.clusters or len(split.class_names), **self._k_means())
        return "acc", metrics.clustering_accuracy(split.labels, found)

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
        what = "the clusters of the trained features agree less with the classes than those of the raw input"
        how = "try fewer rounds, or for a table of few rows smaller batches and networks"
        text = f"{what}: {'; '.join(below)}. refresh.jsonl has ACC and NMI over training; {how}"
        return (text,) if below else ()

    def _k_means(self) -> dict[str, int]:
        return {"seed": self.seed, "starts": self.starts, "mini_batch_above": self.mini_batch_above}

    def measure_trained(
        self, features: Arrays, splits: Splits, augmented: Augmented, folder: Path | None
    ) -> list[Result]:
        """`measure`; writes centres.npz, for new rows, and clusters.csv: id, label, and cluster from all views, from
        each view and, if there is a refresh.jsonl, at each of its steps."""
        if folder is None:
            return self.measure(features, splits)
        x, split = features["train"], splits["train"]
        clusters = self.clusters or len(split.class_names)
        columns: dict[str, Any] = {"id": split.ids or range(len(x))}
        if len(split.class_names) > 1:
            columns["label"] = [split.class_names[label] for label in split.labels]
        columns["cluster"], _ = metrics.k_means(x, clusters, **self._k_means())
        _files.save_arrays(folder / "centres.npz", centres=metrics.centres(x, columns["cluster"]))
        for name, (rows, found) in view_features(x, split).items():
            if len(rows) >= clusters:
                columns[f"cluster of {name}"] = column = np.full(len(x), "", object)
                column[rows], _ = metrics.k_means(found, clusters, **self._k_means())
        records = folder / "refresh.jsonl"
        for text in records.read_text().splitlines() if records.is_file() else ():
            if not text.endswith("}"):  # a killed run may leave part of a line
                continue
            line = json.loads(text)
            if len(line.get("clusters_all", ())) == len(x):
                columns[f"cluster at step {line['step']}"] = line["clusters_all"]
        with _files.replacing(folder / "clusters.csv") as file:
            pd.DataFrame(columns).to_csv(file, index=False, lineterminator="\r\n")
        return self.measure(features, splits)


def view_features(features: np.ndarray, split: data.Split, *, raw: bool = False) -> dict[str, Rows]:
    """The columns of each view: name -> (rows that have the view, (rows, d_v) features).

    Raw features are the views' own columns, others k blocks of equal width; {} if their width is another.
    """
    names, present = split.spec.view_names, split.present
    if not names:
        return {}
    widths = [math.prod(size or 0 for size in shape) for shape in split.spec.shapes]
    if sum(widths) != features.shape[1] if raw else features.shape[1] % len(names):
        return {}
    blocks = np.split(features, np.cumsum(widths)[:-1] if raw else len(names), axis=1)
    there = np.ones((len(features), len(names)), bool) if present is None else present
    rows = [np.flatnonzero(here) for here in there.T]
    return {name: (here, block[here]) for name, here, block in zip(names, rows, blocks)}
