"""Evaluation protocols for frozen features: the splits to encode and the measures to compute."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Literal, Protocol

import numpy as np

from mvcl.evaluation._sgd_probe import sgd_probe
from mvcl.evaluation._table import Result, evaluate_features
from mvcl.metrics import weighted_knn

Arrays = Mapping[str, np.ndarray]


class Spec(Protocol):
    """Specification of an example: names and shapes of given views."""

    @property
    def view_names(self) -> tuple[str, ...]: ...
    @property
    def shapes(self) -> tuple[tuple[int | None, ...], ...]: ...


class LabelledSplit(Protocol):
    """The attributes of a split that protocols use; `mvcl.data.Split` has them.

    Attributes:
      labels: (N,) class numbers, or targets of a regression.
      class_names: name of each class; () for a regression.
      spec: specification of an example.
      present: (N, k) bool, False for missing views; None: all are present.
      groups: (N,) subject or speaker of each example, or None.
      ids: identifier of each example, or ().
    """

    @property
    def labels(self) -> np.ndarray: ...
    @property
    def class_names(self) -> tuple[str, ...]: ...
    @property
    def spec(self) -> Spec: ...
    @property
    def present(self) -> np.ndarray | None: ...
    @property
    def groups(self) -> np.ndarray | None: ...
    @property
    def ids(self) -> tuple[str, ...]: ...
    def __len__(self) -> int: ...


Splits = Mapping[str, LabelledSplit]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Base of all protocols."""

    scored: ClassVar[bool] = False
    """Whether `score` may return a number."""
    features: Literal["encoder", "head"] = "encoder"
    """Output to evaluate: the encoder's (as in all five papers) or the projection head's."""
    batch_size: int = 512
    """Examples encoded at once, over all devices."""
    seed: int = 0
    """Seed of draws and held-out parts; separate from train.seed, so that runs are comparable."""

    @property
    def compared(self) -> bool:
        """Whether an untrained encoder and the raw input are evaluated too."""
        return True

    def of_clusters(self, clusters: int) -> "Evaluation":
        """The protocol to use for data without labels; `clusters` is the method's number of clusters, 0 for none."""
        return self

    def splits(self, available: Sequence[str]) -> tuple[str, ...]:
        """The splits whose features `measure` needs."""
        return ("train", "test")

    def check(self, splits: Splits) -> None:
        """Raise `ValueError` for options that are invalid for these splits; called before training."""
        self.splits(tuple(splits))

    def measure(self, features: Arrays, splits: Splits) -> list[Result]:
        """The results of one set of features: split -> (N, d)."""
        raise NotImplementedError(f"{type(self).__name__} is an interface; choose a protocol by its name")

    def score(self, features: Arrays, splits: Splits) -> tuple[str, float] | None:
        """Name and value of the score during training, higher is better; None if there is none."""
        return None

    def warnings(self, rows: Mapping[str, Sequence[Result]]) -> tuple[str, ...]:
        """What is suspect in the rows of the table, `trained encoder` and, if compared, `raw input`; for the log."""
        return ()

    def save(self, features: Arrays, splits: Splits, workdir: Path) -> None:
        """Write further results of the trained features to the run folder."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Classification(Evaluation):
    """Weighted k-NN, linear probe and few-label probes."""

    scored: ClassVar[bool] = True
    knn_k: int = 200
    """Neighbours of the weighted k-NN; at most the size of the training split."""
    knn_temperature: float = 0.07
    """Temperature of the k-NN's weights e^{cos / temperature}."""
    labels_per_class: tuple[int, ...] = (5, 10)
    """Labels per class of the few-label probes."""
    draws: int = 10
    """Draws of labels to average each few-label probe over."""
    of: str = ""
    """Use the splits OF/train and OF/test, for example of a second data set; empty: train and test."""
    sgd_learning_rate: float | None = None
    """Learning rate of an additional linear probe trained by SGD on all labels, as in the papers; None: no such
    probe."""
    sgd_epochs: int = 100
    """Its epochs."""

    def splits(self, available: Sequence[str]) -> tuple[str, ...]:
        """The names of the two splits."""
        names = tuple(f"{self.of}/{part}" if self.of else part for part in ("train", "test"))
        if not set(names) <= set(available):
            raise ValueError(
                f"evaluation.of = {self.of!r} needs the splits {' and '.join(names)}, got {', '.join(available)}"
            )
        return names

    def measure(self, features: Arrays, splits: Splits) -> list[Result]:
        """Test accuracies."""
        features, splits = self._named(features, splits)
        classes = len(splits["train"].class_names)
        labels = {name: splits[name].labels for name in ("train", "test")}
        results = evaluate_features(
            features,
            labels,
            num_classes=classes,
            seed=self.seed,
            k=self.knn_k,
            temperature=self.knn_temperature,
            labels_per_class=self.labels_per_class,
            draws=self.draws,
        )
        if self.sgd_learning_rate is None:
            return results
        accuracy = sgd_probe(
            features["train"],
            labels["train"],
            features["test"],
            labels["test"],
            num_classes=classes,
            learning_rate=self.sgd_learning_rate,
            epochs=self.sgd_epochs,
            seed=self.seed,
        )
        how = (
            f"a linear layer on {len(labels['train'])} labels, SGD with momentum 0.9, learning rate "
            f"{self.sgd_learning_rate:g} with cosine decay, {self.sgd_epochs} epochs, batch 256, "
            f"{len(labels['test'])} test rows"
        )
        return [*results, Result("linear, SGD", accuracy, None, how)]

    def score(self, features: Arrays, splits: Splits) -> tuple[str, float]:
        """Test accuracy of the weighted k-NN."""
        features, splits = self._named(features, splits)
        train, test = splits["train"], splits["test"]
        voted = weighted_knn(
            features["train"],
            train.labels,
            features["test"],
            num_classes=len(train.class_names),
            k=self.knn_k,
            temperature=self.knn_temperature,
        )
        return "knn", float(np.mean(np.asarray(voted) == test.labels))

    def _named(self, features: Arrays, splits: Splits) -> tuple[Arrays, Splits]:
        """Features and splits as `train` and `test`."""
        train, test = self.splits(tuple(splits))
        return (
            {"train": features[train], "test": features[test]},
            {"train": splits[train], "test": splits[test]},
        )
