"""Optimal transport between k marginals, without the tensor of n^k costs where the cost allows it."""

from mvcl.transport._ott import CostFn, Epsilon
from mvcl.transport._sinkhorn import SinkhornOutput, Status, multimarginal_sinkhorn

__all__ = ["CostFn", "Epsilon", "SinkhornOutput", "Status", "multimarginal_sinkhorn"]
