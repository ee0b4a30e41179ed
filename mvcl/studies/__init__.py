"""A paper's synthetic study: a config in; a grid of training runs, and from them numbers, a figure and a page."""

from mvcl import _extras

with _extras.needed("train", by="mvcl.studies"):
    import flax  # noqa: F401
    import optax  # noqa: F401

from mvcl import training
from mvcl.studies._baseline import Baseline
from mvcl.studies._cifar import Cifar10Part, check_cifar10
from mvcl.studies._claims import multi_crop_variance, two_classes
from mvcl.studies._digits import ACCURACIES, digits_of, vectors_of
from mvcl.studies._engine import run
from mvcl.studies._gaussian import (
    OBJECTIVES,
    Gaussian,
    Objective,
    check,
    config_of,
    dry_run,
    numbers,
    plot,
    table,
    verdict,
)
from mvcl.studies._grid import (
    arithmetic_on_grid,
    geometric_on_grid,
    multi_crop_on_grid,
    of_inputs,
    sufficient_statistics_on_grid,
)
from mvcl.studies._jobs import Slurm
from mvcl.studies._networks import GaussianViews, InformationBound, SideBySide
from mvcl.studies._numbers import numbers as study_numbers
from mvcl.studies._open import Opened, costs, find, open_study, parameters, recipe, scales, study_files
from mvcl.studies._page import page
from mvcl.studies._page import run as run_gaussian
from mvcl.studies._run import Options, overview, run_study
from mvcl.studies._study import Cell, Factors, Found, Measure, Study, levels, partner, select
from mvcl.studies._task import Task, Training, Values, changed, results
from mvcl.studies._temperature import dsf_at_effective_temperature
from mvcl.studies._verdicts import Above, Claim, Interval, Trend, Verdict, difference, interval

training.may_name(
    Cifar10Part,
    GaussianViews,
    InformationBound,
    SideBySide,
    arithmetic_on_grid,
    dsf_at_effective_temperature,
    geometric_on_grid,
    multi_crop_on_grid,
    of_inputs,
    sufficient_statistics_on_grid,
)

__all__ = [
    "ACCURACIES",
    "OBJECTIVES",
    "Above",
    "Baseline",
    "Cell",
    "Cifar10Part",
    "Claim",
    "Factors",
    "Found",
    "Gaussian",
    "GaussianViews",
    "InformationBound",
    "Interval",
    "Measure",
    "Objective",
    "Opened",
    "Options",
    "SideBySide",
    "Slurm",
    "Study",
    "Task",
    "Training",
    "Trend",
    "Values",
    "Verdict",
    "arithmetic_on_grid",
    "changed",
    "check",
    "check_cifar10",
    "config_of",
    "costs",
    "difference",
    "digits_of",
    "dry_run",
    "dsf_at_effective_temperature",
    "find",
    "geometric_on_grid",
    "interval",
    "levels",
    "multi_crop_on_grid",
    "multi_crop_variance",
    "numbers",
    "of_inputs",
    "open_study",
    "overview",
    "page",
    "parameters",
    "partner",
    "plot",
    "recipe",
    "results",
    "run",
    "run_gaussian",
    "run_study",
    "scales",
    "select",
    "study_files",
    "study_numbers",
    "sufficient_statistics_on_grid",
    "table",
    "two_classes",
    "vectors_of",
    "verdict",
]
