"""Evaluation of features: neighbours, probes, domain transfer, regression, clustering, retrieval,
predictions."""

from collections.abc import Callable

from mvcl.evaluation._channels import ChannelProbe, Channels, channel_probe
from mvcl.evaluation._classification import Classification, LinearProbe, Predictions, sgd_probe, shuffled
from mvcl.evaluation._clustering import Clustering, SingleViews, cluster_scores, svm_accuracy
from mvcl.evaluation._domains import Domains, Transfer, domain_transfer, transfer_heat_map, transfer_table
from mvcl.evaluation._evaluation import Augmented, Evaluation, Result, encode, evaluation_table, view_features
from mvcl.evaluation._geometry import (
    TOGETHER,
    Geometry,
    Spread,
    embedding_measures,
    geometry,
    geometry_scores,
)
from mvcl.evaluation._probe import (
    Probe,
    draw_labels,
    evaluate_features,
    few_label_probe,
    fit_logistic,
    fit_probe,
    linear_probe,
)
from mvcl.evaluation._regression import (
    MaeProbe,
    Regression,
    mae_probe,
    regression_measures,
    sentiment_regression,
)
from mvcl.evaluation._retrieval import Retrieval

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

__all__ = [
    "EVALUATIONS",
    "TOGETHER",
    "Augmented",
    "ChannelProbe",
    "Channels",
    "Classification",
    "Clustering",
    "Domains",
    "Evaluation",
    "Geometry",
    "LinearProbe",
    "MaeProbe",
    "Predictions",
    "Probe",
    "Regression",
    "Result",
    "Retrieval",
    "SingleViews",
    "Spread",
    "Transfer",
    "channel_probe",
    "cluster_scores",
    "domain_transfer",
    "draw_labels",
    "embedding_measures",
    "encode",
    "evaluate_features",
    "evaluation_table",
    "few_label_probe",
    "fit_logistic",
    "fit_probe",
    "geometry",
    "geometry_scores",
    "linear_probe",
    "mae_probe",
    "regression_measures",
    "sentiment_regression",
    "sgd_probe",
    "shuffled",
    "svm_accuracy",
    "transfer_heat_map",
    "transfer_table",
    "view_features",
]
