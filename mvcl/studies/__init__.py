"""Studies: grids of runs, what is measured of each cell, and the claims of a paper that they decide."""

from mvcl import training
from mvcl.studies._baseline import Baseline
from mvcl.studies._cifar import Cifar10Part, check_cifar10
from mvcl.studies._claims import MultiCropVariance, printed_variance, two_classes
from mvcl.studies._code import code_of
from mvcl.studies._compute import with_compute
from mvcl.studies._digits import ACCURACIES, digits_of, vectors_of
from mvcl.studies._engine import Look, Place, look, places, run
from mvcl.studies._factors import FACTORS, FactorViews
from mvcl.studies._factors_map import heat_map
from mvcl.studies._factors_task import Factored, to_bits, to_inputs
from mvcl.studies._gaussian import OBJECTIVES, Objective, each_network, gaussian
from mvcl.studies._grid import (
    arithmetic_on_grid,
    geometric_on_grid,
    multi_crop_on_grid,
    of_inputs,
    sufficient_statistics_on_grid,
)
from mvcl.studies._jeon import MARGINS, jeon_digits, margin_claims, results_and_similarities, results_and_time
from mvcl.studies._jobs import Slurm
from mvcl.studies._koromilas import (
    TunedRate,
    best_claims,
    gain_claim,
    koromilas_objectives,
    recipe_of,
    results_and_embeddings,
    rise_claims,
)
from mvcl.studies._koromilas_grid import koromilas_cells, koromilas_images
from mvcl.studies._networks import GaussianViews, InformationBound, SideBySide
from mvcl.studies._open import Opened, costs, find, open_study, parameters, scales, study_files
from mvcl.studies._run import Options, overview, run_study
from mvcl.studies._sem import (
    SemBestView,
    sem_ablation,
    sem_classification,
    sem_dha_ccv,
    sem_methods,
    sem_of,
    sem_over_time,
    sem_paper,
    sem_small,
    sem_smoke,
)
from mvcl.studies._steps import Running, StepTime, running, turns
from mvcl.studies._study import Cell, Factors, Found, Measure, Study, levels, partner, select
from mvcl.studies._task import Task, Training, Values, changed, results
from mvcl.studies._temperature import dsf_at_effective_temperature
from mvcl.studies._transfer import Finetuned, Transfer
from mvcl.studies._verdicts import Above, Claim, Gain, Trend, Verdict, Within, difference

training.may_name(
    Cifar10Part,
    FactorViews,
    Factored,
    GaussianViews,
    InformationBound,
    SideBySide,
    arithmetic_on_grid,
    dsf_at_effective_temperature,
    geometric_on_grid,
    multi_crop_on_grid,
    of_inputs,
    sufficient_statistics_on_grid,
    to_bits,
    to_inputs,
)

__all__ = [
    "ACCURACIES",
    "FACTORS",
    "MARGINS",
    "OBJECTIVES",
    "Above",
    "Baseline",
    "Cell",
    "Cifar10Part",
    "Claim",
    "FactorViews",
    "Factored",
    "Factors",
    "Finetuned",
    "Found",
    "Gain",
    "GaussianViews",
    "InformationBound",
    "Look",
    "Measure",
    "MultiCropVariance",
    "Objective",
    "Opened",
    "Options",
    "Place",
    "Running",
    "SemBestView",
    "SideBySide",
    "Slurm",
    "StepTime",
    "Study",
    "Task",
    "Training",
    "Transfer",
    "Trend",
    "TunedRate",
    "Values",
    "Verdict",
    "Within",
    "arithmetic_on_grid",
    "best_claims",
    "changed",
    "check_cifar10",
    "code_of",
    "costs",
    "difference",
    "digits_of",
    "dsf_at_effective_temperature",
    "each_network",
    "find",
    "gain_claim",
    "gaussian",
    "geometric_on_grid",
    "heat_map",
    "jeon_digits",
    "koromilas_cells",
    "koromilas_images",
    "koromilas_objectives",
    "levels",
    "look",
    "margin_claims",
    "multi_crop_on_grid",
    "of_inputs",
    "open_study",
    "overview",
    "parameters",
    "partner",
    "places",
    "printed_variance",
    "recipe_of",
    "results",
    "results_and_embeddings",
    "results_and_similarities",
    "results_and_time",
    "rise_claims",
    "run",
    "run_study",
    "running",
    "scales",
    "select",
    "sem_ablation",
    "sem_classification",
    "sem_dha_ccv",
    "sem_methods",
    "sem_of",
    "sem_over_time",
    "sem_paper",
    "sem_small",
    "sem_smoke",
    "study_files",
    "sufficient_statistics_on_grid",
    "to_bits",
    "to_inputs",
    "turns",
    "two_classes",
    "vectors_of",
    "with_compute",
]
