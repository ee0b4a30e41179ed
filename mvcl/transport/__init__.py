"""Optimal transport between k marginals, without the tensor of all tuples where the cost allows it."""

from typing import TYPE_CHECKING

from mvcl import _lazy

if TYPE_CHECKING:
    from ott.geometry.costs import CostFn, SqEuclidean
    from ott.geometry.epsilon_scheduler import Epsilon

    from mvcl.transport._costs import Barycenter, CostName, SphericalBarycenter, SumOverPairs
    from mvcl.transport._geometry import Geometry
    from mvcl.transport._output import SinkhornOutput, true_tuple_mass
    from mvcl.transport._problem import Problem, Status
    from mvcl.transport._solver import MMSinkhorn, multimarginal_sinkhorn

__getattr__, __dir__, __all__ = _lazy.exports(__name__)
