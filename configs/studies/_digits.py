"""What the small studies on digits share: their recipes and measures, and the form of our controls."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import _rows

from mvcl import losses, training
from mvcl.studies import Claim, Measure, Study, changed, trained
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


def control(rows: Iterable[_rows.Row], claims: Sequence[Claim] = (), **study: Any) -> Study:
    """A question of our own: rows of cells that are better than others with few labels, and further claims."""
    return Study(measures=ACCURACIES, claims=[*_rows.above("ours", FEW, rows), *claims], **study)


def first_of(
    objectives: Mapping[tuple[str, float], losses.Loss],
    base: Config,
    factors: tuple[str, str],
    text: str,
    **study: Any,
) -> Study:
    """A control: at each level of the second factor, whether the first name of the other is better than the others.

    Args:
      objectives: (name, level) -> objective.
      base: the recipe.
      factors: of the names, and of the levels.
      text: of a claim, with the other's name and the level.
      **study: fields of the study.
    """
    (first, _), (name, along) = next(iter(objectives)), factors
    return control(
        [(text.format(o, x), {name: first, along: x}, [{name: o}]) for o, x in objectives if o != first],
        cells=[
            trained({name: o, along: x}, base, {"objective": loss}) for (o, x), loss in objectives.items()
        ],
        columns=along,
        **study,
    )
