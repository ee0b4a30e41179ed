"""A classifier's predictions to accuracies."""

import dataclasses
from typing import Literal

import numpy as np

from mvcl.evaluation._protocols import Arrays, Evaluation, Splits
from mvcl.evaluation._table import Result


@dataclasses.dataclass(frozen=True, kw_only=True)
class Predictions(Evaluation):
    """Test accuracy of what `method:supervised` predicts, over all examples and as the mean over classes."""

    features: Literal["encoder", "head"] = "head"
    """Which output is measured: the head's are the predictions."""

    @property
    def compared(self) -> bool:
        """Untrained encoders and raw inputs predict nothing."""
        return False

    def check(self, splits: Splits) -> None:
        """Raise a `ValueError` where train and test have other classes, or none."""
        names = splits["train"].class_names
        if not names or names != splits["test"].class_names:
            raise ValueError(
                f"evaluation:predictions needs the same classes in train and test, got {len(names)} and "
                f"{len(splits['test'].class_names)}"
            )

    def measure(self, features: Arrays, splits: Splits) -> list[Result]:
        """Accuracy of the largest of the (N, classes) outputs."""
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
