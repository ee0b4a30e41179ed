"""The ways to measure features, by name."""

from collections.abc import Callable

from mvcl.evaluation._clustering import Clustering
from mvcl.evaluation._protocols import Classification, Evaluation

EVALUATIONS: dict[str, Callable[[], Evaluation]] = {"classification": Classification, "clustering": Clustering}
