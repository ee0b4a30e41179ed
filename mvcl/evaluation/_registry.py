"""Protocols by name."""

from collections.abc import Callable

from mvcl import evaluation
from mvcl.evaluation._evaluation import Evaluation

EVALUATIONS: dict[str, Callable[[], Evaluation]] = {
    "channels": lambda: evaluation.Channels(),
    "classification": lambda: evaluation.Classification(),
    "clustering": lambda: evaluation.Clustering(),
    "domains": lambda: evaluation.Domains(),
    "predictions": lambda: evaluation.Predictions(),
    "regression": lambda: evaluation.Regression(),
    "retrieval": lambda: evaluation.Retrieval(),
    "single_views": lambda: evaluation.SingleViews(),
}
"""Protocols by the names that `evaluation:NAME` chooses."""
