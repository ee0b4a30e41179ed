"""What the small studies on digits share: their recipes, and their measures."""

from mvcl import training
from mvcl.studies import Measure, changed
from mvcl.training import Config

FEW = "10 labels/class"
# Few labels first: all labels leave little to separate on digits.
ACCURACIES = tuple(Measure(name, percent=True) for name in (FEW, "5 labels/class", "linear", "k-NN"))
"""Accuracies of a run on digits: with few labels, and with all."""
LINEAR = (Measure("linear", percent=True),)
"""Accuracy of a run at the scale smoke."""


def digits_of(k: int) -> Config:
    """`digits:small` with k views."""
    return changed(training.load("digits:small"), {"views.k": k})


def vectors_of(k: int) -> Config:
    """`digits:vectors` with k views, for the scale smoke."""
    return changed(training.load("digits:vectors"), {"views.k": k, "data.view_shapes": ((6,),) * k})
