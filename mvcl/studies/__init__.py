"""Studies: grids of runs, what is measured of each cell, and the claims of a paper that they decide."""

from mvcl import _extras

with _extras.needed("train", by="mvcl.studies"):
    import flax  # noqa: F401
    import optax  # noqa: F401

from mvcl import training
from mvcl.studies._claims import MultiCropVariance, printed_variance, two_classes
from mvcl.studies._gaussian import OBJECTIVES, Objective, each_network, gaussian
from mvcl.studies._grid import (
    arithmetic_on_grid,
    geometric_on_grid,
    multi_crop_on_grid,
    of_inputs,
    sufficient_statistics_on_grid,
)
from mvcl.studies._networks import GaussianViews, InformationBound, SideBySide
from mvcl.studies._study import (
    Cell,
    Factors,
    Found,
    Measure,
    Study,
    Task,
    Training,
    Values,
    changed,
    levels,
    partner,
    results,
    select,
)
from mvcl.studies._verdicts import Above, Claim, Interval, Trend, Verdict, Within, difference, interval

training.may_name(
    GaussianViews,
    InformationBound,
    SideBySide,
    arithmetic_on_grid,
    geometric_on_grid,
    multi_crop_on_grid,
    of_inputs,
    sufficient_statistics_on_grid,
)

__all__ = [
    "OBJECTIVES",
    "Above",
    "Cell",
    "Claim",
    "Factors",
    "Found",
    "GaussianViews",
    "InformationBound",
    "Interval",
    "Measure",
    "MultiCropVariance",
    "Objective",
    "SideBySide",
    "Study",
    "Task",
    "Training",
    "Trend",
    "Values",
    "Verdict",
    "Within",
    "arithmetic_on_grid",
    "changed",
    "difference",
    "each_network",
    "gaussian",
    "geometric_on_grid",
    "interval",
    "levels",
    "multi_crop_on_grid",
    "of_inputs",
    "partner",
    "printed_variance",
    "results",
    "select",
    "sufficient_statistics_on_grid",
    "two_classes",
]
