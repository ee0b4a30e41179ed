"""SimCLR (Chen et al. 2020) for any number of views: one encoder and one head."""

import dataclasses
from typing import Any

from mvcl.methods._method import (
    Batch,
    Learner,
    LossAndMore,
    Params,
    Specification,
    Statistics,
    by_view,
    embed,
    one_network,
)
from mvcl.methods._objective import OfViews


@dataclasses.dataclass(frozen=True, kw_only=True)
class Simclr:
    """One encoder and one head embed all k views; the objective compares them.

    Images may have several sizes (`views.global_views`); those of one size pass the encoder together.
    """

    def build(self, spec: Specification) -> Learner:
        """The learner; given views have one shape."""
        return SimclrLearner(spec)


class SimclrLearner(Learner):
    def __init__(self, spec: Specification) -> None:
        self.module = one_network(spec, "simclr")
        self.dimension = self.module.abstract.head.features

    def loss(self, params: Params, statistics: Statistics, batch: Batch, objective: OfViews) -> LossAndMore:
        net = self.module.merge(params, statistics)
        z = by_view(net.head(embed(net.encoder, batch)), batch.size)
        value, measures = objective(z, **batch.mask)
        return value, (self.module.statistics(net), z, measures)

    def start_from(self, params: Params, statistics: Statistics, encoder: Any) -> tuple[Params, Statistics]:
        return self.module.start_from(params, statistics, encoder)
