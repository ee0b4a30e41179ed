"""Frozen features to numbers: k-nearest neighbours, linear probe, few-label probe."""

from mvcl.evaluation._encode import encode
from mvcl.evaluation._probe import draw_labels, few_label_probe, fit_logistic, linear_probe
from mvcl.evaluation._protocols import EVALUATIONS, Classification, Evaluation
from mvcl.evaluation._table import Result, evaluate_features, evaluation_table

__all__ = [
    "EVALUATIONS",
    "Classification",
    "Evaluation",
    "Result",
    "draw_labels",
    "encode",
    "evaluate_features",
    "evaluation_table",
    "few_label_probe",
    "fit_logistic",
    "linear_probe",
]
