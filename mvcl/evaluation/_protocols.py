"""Ways to measure frozen features, by name: which splits are encoded, and what is computed from them."""

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
    """What an example is: names and shapes of its views where it holds them."""

    @property
    def view_names(self) -> tuple[str, ...]: ...
    @property
    def shapes(self) -> tuple[tuple[int | None, ...], ...]: ...


class LabelledSplit(Protocol):
    """What a protocol knows of a split beside its features; `mvcl.data.Split` has it.

    Attributes:
      labels: (N,) class numbers, or targets of a regression.
      class_names: name of each class; () for a regression.
      spec: what an example is.
      present: (N, k) bool, which views are there; None: all.
      groups: (N,) subject or speaker of each example, or None.
      ids: name of each example, or ().
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
    """What every protocol has."""

    scored: ClassVar[bool] = False
    """Whether `score` may give a number."""
    features: Literal["encoder", "head"] = "encoder"
    """Which output is measured: the encoder's (as all five papers do) or the projection head's."""
    batch_size: int = 512
    """Examples encoded at once, over all devices."""
    seed: int = 0
    """Seed of draws and held-out parts; apart from train.seed, so that runs compare."""

    @property
    def compared(self) -> bool:
        """Whether an untrained encoder and the raw input are measured beside the trained one."""
        return True

    def of_clusters(self, clusters: int) -> "Evaluation":
        """This protocol for data without labels, in which the method found so many clusters; 0: it looked for none."""
        return self

    def splits(self, available: Sequence[str]) -> tuple[str, ...]:
        """The splits whose features `measure` needs."""
        return ("train", "test")

    def check(self, splits: Splits) -> None:
        """Raise a `ValueError` about options that cannot work with these splits, before anything is trained."""
        self.splits(tuple(splits))

    def measure(self, features: Arrays, splits: Splits) -> list[Result]:
        """The results of one set of features, (N, d) by split."""
        raise NotImplementedError(f"{type(self).__name__} is an interface; choose a protocol by its name")

    def score(self, features: Arrays, splits: Splits) -> tuple[str, float] | None:
        """Name and value of the number that is taken during training, higher being better; None takes none."""
        return None

    def save(self, features: Arrays, splits: Splits, workdir: Path) -> None:
        """Write to the run folder what else the trained features give, beside the numbers."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Classification(Evaluation):
    """Weighted k-NN, linear probe and few-label probes."""

    scored: ClassVar[bool] = True
    knn_k: int = 200
    """Neighbours of the weighted k-NN; fewer if the training split is smaller."""
    knn_temperature: float = 0.07
    """Temperature of its weights e^{cos / temperature}."""
    labels_per_class: tuple[int, ...] = (5, 10)
    """Labels a class of the few-label probes."""
    draws: int = 10
    """Draws of labels that a few-label probe is averaged over."""
    of: str = ""
    """Measure the splits OF/train and OF/test, as of a second data set that the source opens; empty: train and test."""
    sgd_learning_rate: float | None = None
    """Adds the papers' linear probe, trained by SGD on all labels, with this learning rate; None leaves it out."""
    sgd_epochs: int = 100
    """Its epochs."""

    def splits(self, available: Sequence[str]) -> tuple[str, ...]:
        """The two splits, by the names they have here."""
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
            f"{self.sgd_learning_rate:g} on a cosine, {self.sgd_epochs} epochs, batch 256, "
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
