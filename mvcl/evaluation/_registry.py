"""Evaluation protocols by name."""

from collections.abc import Callable

from mvcl.evaluation._channels import Channels
from mvcl.evaluation._clustering import Clustering
from mvcl.evaluation._domains import Domains
from mvcl.evaluation._predictions import Predictions
from mvcl.evaluation._protocols import Classification, Evaluation
from mvcl.evaluation._regression import Regression
from mvcl.evaluation._retrieval import Retrieval
from mvcl.evaluation._single_views import SingleViews

EVALUATIONS: dict[str, Callable[[], Evaluation]] = {
    "channels": Channels,
    "classification": Classification,
    "clustering": Clustering,
    "domains": Domains,
    "predictions": Predictions,
    "regression": Regression,
    "retrieval": Retrieval,
    "single_views": SingleViews,
}
"""Evaluations by the names that `evaluation:NAME` chooses."""
