"""Accuracy of a classifier's predictions, and errors of predicted scores."""

import dataclasses
from typing import Literal

import numpy as np

from mvcl.evaluation._protocols import Arrays, Evaluation, Splits
from mvcl.evaluation._regression import regression_measures, regression_results
from mvcl.evaluation._result import Result


@dataclasses.dataclass(frozen=True, kw_only=True)
class Predictions(Evaluation):
    """Test accuracy of the predictions of `method:supervised`, over all examples and averaged over classes; for scores,
    such as sentiment, MAE, correlation, binary accuracy and F1."""

    features: Literal["encoder", "head"] = "head"
    """Output to evaluate: the predictions are the head's."""

    @property
    def compared(self) -> bool:
        """False: untrained encoders and raw inputs have no predictions."""
        return False

    def check(self, splits: Splits) -> None:
        """Raise `ValueError` if train and test have different classes."""
        names = splits["train"].class_names
        if names != splits["test"].class_names:
            raise ValueError(
                f"evaluation:predictions needs the same classes in train and test, got {len(names)} and "
                f"{len(splits['test'].class_names)}"
            )

    def measure(self, features: Arrays, splits: Splits) -> list[Result]:
        """Accuracy of the class with the largest of the (N, classes) outputs; without classes, the measures of the
        (N, 1) outputs as scores."""
        labels = splits["test"].labels
        if not splits["test"].class_names:
            how = f"the network's output on {len(labels)} test rows"
            measures = regression_measures(features["test"][:, 0], labels)
            return regression_results(measures, how)
        right = features["test"].argmax(1) == labels
        by_class = [right[labels == label].mean() for label in np.unique(labels)]
        how = f"share of {len(labels)} test rows whose class has the largest output"
        return [
            Result("accuracy", float(right.mean()), None, how),
            Result(
                "accuracy, mean per class", float(np.mean(by_class)), None, f"{how}, the mean over classes"
            ),
        ]

    def score(self, features: Arrays, splits: Splits) -> tuple[str, float] | None:
        """Test accuracy; None without classes."""
        if not splits["test"].class_names:
            return None
        return "accuracy", self.measure(features, splits)[0].value or 0.0
