"""Optimal transport between k marginals, without the tensor of n^k costs where the cost allows it."""

from typing import TYPE_CHECKING, Any

from mvcl.transport import _ott
from mvcl.transport._sinkhorn import SinkhornOutput, Status, multimarginal_sinkhorn

if TYPE_CHECKING:
    from ott.geometry.costs import CostFn
    from ott.geometry.epsilon_scheduler import Epsilon

__all__ = ["CostFn", "Epsilon", "SinkhornOutput", "Status", "multimarginal_sinkhorn"]


def __getattr__(name: str) -> Any:
    return getattr(_ott, name)
