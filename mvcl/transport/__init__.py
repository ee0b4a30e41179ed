"""Optimal transport between k marginals, without the tensor of all tuples where the cost allows it."""

from typing import TYPE_CHECKING, Any

from mvcl.transport import _ott
from mvcl.transport._barycenter import barycenter, conditional_means
from mvcl.transport._costs import CostName, TupleCosts, tuple_costs
from mvcl.transport._output import SinkhornOutput, Status, true_tuple_mass
from mvcl.transport._pair_forms import Barycenter, SphericalBarycenter, SumOverPairs
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
    return getattr(_ott, name)
