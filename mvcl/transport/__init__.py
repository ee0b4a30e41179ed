"""Optimal transport between k marginals, without the tensor of all tuples where the cost allows it."""

from typing import TYPE_CHECKING, Any

from mvcl.transport._costs import Barycenter, CostName, SphericalBarycenter, SumOverPairs, TupleCosts
from mvcl.transport._output import (
    SinkhornOutput,
    Status,
    barycenter,
    conditional_means,
    true_tuple_mass,
)
from mvcl.transport._problem import ott, tuple_costs
from mvcl.transport._sinkhorn import multimarginal_sinkhorn

if TYPE_CHECKING:
    from ott.geometry.costs import CostFn
    from ott.geometry.epsilon_scheduler import Epsilon

__all__ = [
    "Barycenter",
    "CostFn",
    "CostName",
    "Epsilon",
    "SinkhornOutput",
    "SphericalBarycenter",
    "Status",
    "SumOverPairs",
    "TupleCosts",
    "barycenter",
    "conditional_means",
    "multimarginal_sinkhorn",
    "true_tuple_mass",
    "tuple_costs",
]


def __getattr__(name: str) -> Any:
    if name in ("CostFn", "Epsilon"):
        return ott(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
