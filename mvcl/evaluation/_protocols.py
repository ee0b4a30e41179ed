"""Evaluation protocols for frozen features: the splits to encode and the measures to compute."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Literal, Protocol

import numpy as np

from mvcl.evaluation._result import Result
from mvcl.evaluation._sgd_probe import Augmented, Batches, LinearProbe, sgd_probe, shuffled
from mvcl.evaluation._table import evaluate_features
from mvcl.metrics import weighted_knn

Arrays = Mapping[str, np.ndarray]


class Spec(Protocol):
    """Specification of an example: names and shapes of its arrays, and whether they are the views."""

    @property
    def view_names(self) -> tuple[str, ...]: ...
    @property
    def shapes(self) -> tuple[tuple[int | None, ...], ...]: ...
    @property
    def given(self) -> bool: ...


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


def named_splits(of: str, available: Sequence[str]) -> tuple[str, ...]:
    """The names of the training and the test split of the data set `of`; empty for the run's own.

    Raises:
      ValueError: one is not available.
    """
    names = tuple(f"{of}/{part}" if of else part for part in ("train", "test"))
    if not set(names) <= set(available):
        raise ValueError(
            f"evaluation.of = {of!r} needs the splits {' and '.join(names)}, got {', '.join(available)}"
        )
    return names


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Base of all protocols."""

    scored: ClassVar[bool] = False
    """Whether `score` may return a number."""
    features: Literal["encoder", "head", "views", "head_views"] = "encoder"
    """Output to evaluate: the encoder's (of given views, their mean; where each view has an encoder of its own, all
    outputs concatenated), the projection head's, or the encoder's (views) or the head's (head_views) of each given
    view, side by side."""
    batch_size: int = 512
    """Examples encoded at once, over all devices."""
    seed: int = 0
    """Seed of draws and held-out parts; separate from train.seed, so that runs are comparable."""
    baselines: bool = True
    """Evaluate an untrained encoder and the raw input too. Runs that differ only in what is trained share them."""

    @property
    def compared(self) -> bool:
        """Whether an untrained encoder and the raw input are evaluated too."""
        return self.baselines

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
        """The results of one set of features, split -> (N, d)."""
        raise NotImplementedError(f"{type(self).__name__} is an interface; choose a protocol by its name")

    def measure_raw(self, features: Arrays, splits: Splits) -> list[Result]:
        """The results of the raw input, given views side by side: split -> (N, numbers of an example)."""
        return self.measure(features, splits)

    def measure_augmented(self, features: Arrays, splits: Splits, augmented: Augmented) -> list[Result]:
        """Further results of the trained features that need the training split under fresh augmentations."""
        return []

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
    linear: LinearProbe | None = None
    """An additional linear probe trained by SGD on all labels, as in the papers; None: no such probe. With
    augmentation only the trained encoder is probed, since every epoch encodes the training split again."""

    def check(self, splits: Splits) -> None:
        """Raise `ValueError` for options that are invalid for these splits."""
        train, _ = self.splits(tuple(splits))
        spec = splits[train].spec
        if self.linear is not None and self.linear.augment and (spec.given or len(spec.shapes) > 1):
            what = (
                f"given views {', '.join(spec.view_names)}"
                if spec.given
                else f"{len(spec.shapes)} images an example"
            )
            raise ValueError(
                "evaluation.linear.augment crops and flips images, so the examples must be one image each, got "
                f"{what}; use augment=False (--evaluation.linear.augment False)"
            )
        if self.linear is not None:
            self.linear.check_processes(len(splits[train]))

    def splits(self, available: Sequence[str]) -> tuple[str, ...]:
        """The names of the two splits."""
        return named_splits(self.of, available)

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
        if self.linear is None or self.linear.augment:
            return results
        size, _ = self.linear.steps(len(labels["train"]))
        batches = shuffled(
            features["train"], labels["train"], batch_size=size, epochs=self.linear.epochs, seed=self.seed
        )
        return results + self._probed(self.linear, batches, features["test"], splits)

    def measure_augmented(self, features: Arrays, splits: Splits, augmented: Augmented) -> list[Result]:
        """Test accuracy of the SGD probe with augmentation."""
        if self.linear is None or not self.linear.augment:
            return []
        name, _ = self.splits(tuple(splits))
        features, splits = self._named(features, splits)
        size, per_epoch = self.linear.steps(len(splits["train"].labels))
        batches = augmented(
            name,
            batch_size=size,
            steps=self.linear.epochs * per_epoch,
            seed=self.seed,
            crop_padding=self.linear.crop_padding,
        )
        return self._probed(self.linear, batches, features["test"], splits)

    def _probed(
        self, options: LinearProbe, batches: Batches, test_features: np.ndarray, splits: Splits
    ) -> list[Result]:
        """The SGD probe's best test accuracy and, of several learning rates, each."""
        train, test = splits["train"], splits["test"]
        accuracies = sgd_probe(
            batches,
            test_features,
            test.labels,
            num_classes=len(train.class_names),
            rows=len(train.labels),
            options=options,
        )
        how = f"{options.described(len(train.labels))}, {len(test.labels)} test rows"
        each = [
            Result(f"linear, SGD {rate:g}", None, None, f"{how}; not measured: the weights became infinite")
            if np.isnan(accuracy)
            else Result(f"linear, SGD {rate:g}", float(accuracy), None, how)
            for rate, accuracy in zip(options.learning_rates, accuracies)
        ]
        if len(each) == 1:
            return [dataclasses.replace(each[0], name="linear, SGD")]
        known = [result for result in each if result.value is not None]
        best = max(known, key=lambda result: result.value or 0.0, default=each[0])
        chosen = f"{how}, the learning rate with the highest test accuracy"
        return [Result("linear, SGD", best.value, None, chosen), *each]

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
