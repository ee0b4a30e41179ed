"""Accuracy of a classifier's predictions."""

import dataclasses
from typing import Literal

import numpy as np

from mvcl.evaluation._protocols import Arrays, Evaluation, Splits
from mvcl.evaluation._table import Result


@dataclasses.dataclass(frozen=True, kw_only=True)
class Predictions(Evaluation):
    """Test accuracy of the predictions of `method:supervised`, over all examples and averaged over classes."""

    features: Literal["encoder", "head"] = "head"
    """Output to evaluate: the predictions are the head's."""

    @property
    def compared(self) -> bool:
        """False: untrained encoders and raw inputs have no predictions."""
        return False

    def check(self, splits: Splits) -> None:
        """Raise `ValueError` if train and test have different classes or none."""
        names = splits["train"].class_names
        if not names or names != splits["test"].class_names:
            raise ValueError(
                f"evaluation:predictions needs the same classes in train and test, got {len(names)} and "
                f"{len(splits['test'].class_names)}"
            )

    def measure(self, features: Arrays, splits: Splits) -> list[Result]:
        """Accuracy of the class with the largest of the (N, classes) outputs."""
        labels, predicted = splits["test"].labels, features["test"].argmax(1)
        right = predicted == labels
        by_class = [right[labels == label].mean() for label in np.unique(labels)]
        how = f"share of {len(labels)} test rows whose class has the largest output"
        return [
            Result("accuracy", float(right.mean()), None, how),
            Result(
                "accuracy, mean per class", float(np.mean(by_class)), None, f"{how}, the mean over classes"
            ),
        ]

    def score(self, features: Arrays, splits: Splits) -> tuple[str, float]:
        """Test accuracy."""
        return "accuracy", self.measure(features, splits)[0].value or 0.0
