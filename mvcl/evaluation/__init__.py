"""Evaluation of features: neighbours, probes, domain transfer, regression, clustering, retrieval, predictions.

An argument of another shape or value than its docstring says raises a `ValueError` that names it.
"""

from typing import TYPE_CHECKING

from mvcl import _lazy

if TYPE_CHECKING:
    from mvcl.evaluation._channels import ChannelProbe, Channels, channel_probe
    from mvcl.evaluation._classification import Classification, LinearProbe, sgd_probe, shuffled
    from mvcl.evaluation._clustering import Clustering, cluster_scores
    from mvcl.evaluation._decomposition import Decomposition, Estimate, decompose, subsets
    from mvcl.evaluation._domains import Domains, Transfer, domain_transfer, transfer_table
    from mvcl.evaluation._evaluation import (
        EVALUATIONS,
        Augmented,
        Evaluation,
        Result,
        Unevaluated,
        averaged,
        encode,
        evaluation_table,
        shared_protocols,
    )
    from mvcl.evaluation._geometry import LOGGED, TOGETHER, Geometry, geometry
    from mvcl.evaluation._probe import draw_labels, few_label_probe, fit_logistic, linear_probe
    from mvcl.evaluation._regression import MaeProbe, Predictions, Regression, mae_probe, regression_measures
    from mvcl.evaluation._retrieval import Retrieval

__getattr__, __dir__, __all__ = _lazy.exports(__name__)
