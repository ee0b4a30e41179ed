"""What the studies of Shidani 2024 on ImageNet-1K share: objectives, batches, and the measure."""

from collections.abc import Mapping
from functools import partial

import _bench
import _koromilas

from mvcl import losses, training
from mvcl.studies import Measure
from mvcl.training import Config

GEOMETRIC, ARITHMETIC = "Poly-view, geometric", "Poly-view, arithmetic"
SUFFICIENT, MULTI_CROP, SIMCLR = "Sufficient statistics", "Multi-Crop", "SimCLR"
OBJECTIVES: Mapping[str, losses.Loss] = {
    GEOMETRIC: partial(losses.poly_view, temperature=0.1, aggregation="geometric"),
    ARITHMETIC: partial(losses.poly_view, temperature=0.1, aggregation="arithmetic"),
    SUFFICIENT: partial(losses.sufficient_statistics, temperature=0.1),
    MULTI_CROP: losses.all_pairs(partial(losses.nt_xent, temperature=0.1)),
    SIMCLR: partial(losses.nt_xent, temperature=0.1),
}
SGD = Measure("linear, SGD", label="accuracy", percent=True, digits=2)


def batches() -> dict[str, Config]:
    """Growing and fixed batch."""
    return {name: training.load(f"shidani/imagenet1k:{name}_batch") for name in ("growing", "fixed")}


def on_bench(name: str, views: int) -> losses.Loss:
    """The objective at the temperature of the bench; of two views all are one function (Appendix E.2)."""
    if views == 2:
        return _bench.NT_XENT
    objectives = _koromilas.objectives()
    found = {GEOMETRIC: objectives["PVC"], MULTI_CROP: objectives["pwe"]}
    return found.get(name, partial(losses.sufficient_statistics, temperature=0.5))
