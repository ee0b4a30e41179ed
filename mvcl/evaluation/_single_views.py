"""Neighbours, few labels and clusters of the features of single views, of all views, and across views."""

import dataclasses
from collections.abc import Callable
from itertools import permutations

import numpy as np

from mvcl.evaluation._clustering import cluster_scores, view_features
from mvcl.evaluation._probe import few_label_probe
from mvcl.evaluation._protocols import Arrays, Evaluation, LabelledSplit, Splits
from mvcl.evaluation._result import Result
from mvcl.metrics import weighted_knn

Rows = tuple[np.ndarray, np.ndarray]


@dataclasses.dataclass(frozen=True, kw_only=True)
class SingleViews(Evaluation):
    """k-NN, few-label probes and K-means on given views: on all views side by side, and on each view alone.

    The results of one view are means over the views: what is known of an example of which one view is there. Across
    views, the neighbours of one view's rows are searched among another view's, mean over the ordered pairs of views:
    features of a common space are needed, and for raw tables of different widths it is not measured. The features are
    those of an encoder for each view, side by side; a missing view's rows are left out where the view is alone.
    """

    knn_k: int = 10
    """Neighbours of the weighted k-NN."""
    knn_temperature: float = 0.07
    """Temperature of the k-NN's weights e^{cos / temperature}."""
    labels_per_class: tuple[int, ...] = (1, 5, 10)
    """Labels per class of the few-label probes."""
    draws: int = 3
    """Draws of labels to average each few-label probe over."""
    starts: int = 5
    """k-means++ starts of the one K-means run, on the test split."""

    def check(self, splits: Splits) -> None:
        """Raise `ValueError` for splits without classes or given views."""
        self.splits(tuple(splits))
        train = splits["train"]
        if len(train.class_names) < 2 or not train.spec.view_names:
            raise ValueError(
                f"evaluation:single_views needs classes and views with names, got {len(train.class_names)} classes and "
                f"the views {', '.join(train.spec.view_names) or 'none'}"
            )

    def measure(self, features: Arrays, splits: Splits) -> list[Result]:
        """Results "all views NAME", "one view NAME" and "across views k-NN"; NAME as in `evaluation:classification` and
        `evaluation:clustering`."""
        train, test = splits["train"], splits["test"]
        each = [
            (x, y)
            for x, y in zip(
                view_features(features["train"], train).values(),
                view_features(features["test"], test).values(),
                strict=True,
            )
        ]
        whole = (_every(features["train"]), _every(features["test"]))
        results: list[Result] = []
        for name, compute in self._measures(train, test).items():

            def of_all(name: str = name, compute: Callable[[Rows, Rows], float] = compute) -> list[Result]:
                return [Result(f"all views {name}", compute(*whole), None, self._how(name))]

            def of_one(name: str = name, compute: Callable[[Rows, Rows], float] = compute) -> list[Result]:
                found = float(np.mean([compute(x, y) for x, y in each]))
                how = f"{self._how(name)}, of one view, mean over {len(each)} views"
                return [Result(f"one view {name}", found, None, how)]

            results += of_all() + of_one()
        return results + [self._across(each, train, test)]

    def _measures(
        self, train: LabelledSplit, test: LabelledSplit
    ) -> dict[str, Callable[[Rows, Rows], float]]:
        """Name -> function of training and test rows, each their numbers in the split and their features."""

        def few(count: int) -> Callable[[Rows, Rows], float]:
            def accuracy(x: Rows, y: Rows) -> float:
                given = (x[1], train.labels[x[0]], y[1], test.labels[y[0]])
                classes = len(train.class_names)
                found = few_label_probe(
                    *given, num_classes=classes, labels_per_class=count, draws=self.draws, seed=self.seed
                )
                return float(found.mean())

            return accuracy

        def agreement(name: str) -> Callable[[Rows, Rows], float]:
            def score(_: Rows, y: Rows) -> float:
                labels, clusters = test.labels[y[0]], len(test.class_names)
                found = cluster_scores(y[1], labels, clusters, runs=1, starts=self.starts, seed=self.seed)
                return float(found[name].mean())

            return score

        return {
            "k-NN": lambda x, y: self._knn(x, y, train, test),
            **{f"{count} labels/class": few(count) for count in self.labels_per_class},
            "ACC": agreement("ACC"),
            "NMI": agreement("NMI"),
        }

    def _knn(self, x: Rows, y: Rows, train: LabelledSplit, test: LabelledSplit) -> float:
        voted = weighted_knn(
            x[1],
            train.labels[x[0]],
            y[1],
            num_classes=len(train.class_names),
            k=min(self.knn_k, len(x[0])),
            temperature=self.knn_temperature,
        )
        return float(np.mean(np.asarray(voted) == test.labels[y[0]]))

    def _across(self, each: list[tuple[Rows, Rows]], train: LabelledSplit, test: LabelledSplit) -> Result:
        name = "across views k-NN"
        if len({x[1].shape[1] for x, _ in each}) > 1:
            return Result(name, None, None, "not measured: the views have different widths")
        found = [self._knn(x, y, train, test) for (x, _), (_, y) in permutations(each, 2)]
        how = f"{self._how('k-NN')}, training rows of one view and test rows of another, mean over {len(found)} pairs"
        return Result(name, float(np.mean(found)), None, how)

    def _how(self, name: str) -> str:
        if name == "k-NN":
            return f"test accuracy of a vote of {self.knn_k} neighbours by cosine"
        if name in ("ACC", "NMI"):
            return f"K-means on the test rows, best of {self.starts} starts (seed {self.seed})"
        return f"logistic regression on few labels, mean of {self.draws} draws (seed {self.seed})"


def _every(features: np.ndarray) -> Rows:
    return np.arange(len(features)), features
