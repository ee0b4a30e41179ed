"""What the studies of Piran 2024 share: its baselines, recipes and measures."""

import dataclasses
from functools import partial
from typing import Any

import _digits

from mvcl import losses, training
from mvcl.studies import Cell, Measure, trained
from mvcl.training import Config

M3G = "M3G"


def methods(epsilon: float = 0.2) -> dict[str, losses.Loss]:
    """The rows of Tables 1 and 2, in their order."""
    return {
        "BYOL ave": losses.one_vs_rest(losses.byol),
        "BYOL pwe": losses.all_pairs(losses.byol),
        "InfoNCE ave": losses.one_vs_rest(losses.info_nce),
        "InfoNCE pwe": losses.all_pairs(losses.info_nce),
        M3G: partial(losses.m3g, epsilon=epsilon),
    }


SGD, FEW, KNN = (
    Measure(name, label="accuracy", percent=True, digits=2) for name in ("linear, SGD", _digits.FEW, "k-NN")
)
"""Accuracy at the scales paper, small and smoke."""
SMALL = """

**Small scale.** `digits:student_teacher`: scikit-learn's digits of 8 x 8 pixels, a ConvNet, groups of 16
examples, k views of one policy, 10 labels a class."""


def imagenet() -> Config:
    """ViT-B/16 on ImageNet-1K, student and teacher."""
    return training.load("piran/images:imagenet1k")


def digits() -> Config:
    """The scale small."""
    return training.load("digits:student_teacher")


Row = tuple[dict[str, Any], losses.Loss, dict[str, float], dict[str, float]]


def cells(base: Config, rows: list[Row]) -> list[Cell]:
    """A cell for each (factors, k among them; objective; printed values; printed deviations).

    The first measures the untrained encoder and the raw input for all, where the recipe does so in none.
    """
    found = []
    for number, (factors, objective, printed, deviations) in enumerate(rows):
        changes = {"objective": objective, "views.k": factors["k"]}
        changes["evaluation.baselines"] = base.evaluation.baselines or number == 0
        cell = trained(factors, base, changes, printed)
        found.append(dataclasses.replace(cell, deviations=deviations))
    return found
