"""Evaluation of features: neighbours, probes, domain transfer, regression, clustering, retrieval,
predictions."""

from mvcl.evaluation._channels import ChannelProbe, Channels, channel_probe
from mvcl.evaluation._clustering import Clustering, cluster_scores, svm_accuracy, view_features
from mvcl.evaluation._domains import (
    Domains,
    Transfer,
    domain_transfer,
    transfer_heat_map,
    transfer_table,
)
from mvcl.evaluation._embeddings import embedding_measures
from mvcl.evaluation._encode import encode
from mvcl.evaluation._geometry import TOGETHER, Geometry, Spread, geometry, geometry_scores
from mvcl.evaluation._predictions import Predictions
from mvcl.evaluation._probe import Probe, draw_labels, few_label_probe, fit_logistic, fit_probe, linear_probe
from mvcl.evaluation._protocols import Classification, Evaluation
from mvcl.evaluation._registry import EVALUATIONS
from mvcl.evaluation._regression import (
    MaeProbe,
    Regression,
    mae_probe,
    regression_measures,
    ridge,
    sentiment_regression,
)
from mvcl.evaluation._result import Result
from mvcl.evaluation._retrieval import Retrieval
from mvcl.evaluation._sgd_probe import Augmented, LinearProbe, sgd_probe, shuffled
from mvcl.evaluation._single_views import SingleViews
from mvcl.evaluation._table import evaluate_features, evaluation_table

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
    "ridge",
    "sentiment_regression",
    "sgd_probe",
    "shuffled",
    "svm_accuracy",
    "transfer_heat_map",
    "transfer_table",
    "view_features",
]
