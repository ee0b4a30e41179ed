"""What the small studies on digits share: their recipes, and their measures."""

from mvcl import training
from mvcl.studies import Measure, changed
from mvcl.training import Config

# Few labels first: all labels leave little to separate on digits.
ACCURACIES = (
    Measure("10 labels/class", percent=True),
    Measure("5 labels/class", percent=True),
    Measure("linear", percent=True),
    Measure("k-NN", percent=True),
)
"""Accuracies of a run on digits: with few labels, and with all."""


def digits_of(k: int) -> Config:
    """`digits:small` with k views."""
    return changed(training.load("digits:small"), {"views.k": k})


def vectors_of(k: int) -> Config:
    """`digits:vectors` with k views, for the scale smoke."""
    return changed(training.load("digits:vectors"), {"views.k": k, "data.view_shapes": ((6,),) * k})
