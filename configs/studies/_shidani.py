"""What the studies of Shidani 2024 on ImageNet-1K share: objectives, a small recipe, and the measure."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from mvcl import losses, models, training
from mvcl.studies import Measure, changed
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
KNN = Measure("k-NN", label="accuracy", percent=True, digits=2)


def batches() -> dict[str, Config]:
    """Growing and fixed batch."""
    return {name: training.load(f"shidani/imagenet1k:{name}_batch") for name in ("growing", "fixed")}


def small(variant: str = "smoke", **train: Any) -> Config:
    """Some steps of a small network on random images; fields of `train` may be replaced."""
    changes = {"encoder": models.ConvNet(widths=(4, 8)), "evaluation.linear": None}
    of_train = {f"train.{name}": value for name, value in train.items()}
    return changed(training.load(f"shidani/imagenet1k:{variant}"), changes | of_train)
