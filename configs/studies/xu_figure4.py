"""Xu 2023, Figure 4: accuracy of a linear SVM on 30% of the labels of CCV.

`--data DIR` has the folder CCV (docs/how_to/data.md).
"""

from pathlib import Path

import _sem

from mvcl import data as sources
from mvcl import studies
from mvcl.studies import Study
from mvcl.training import Config

_ABOUT = """\
A linear support vector machine is trained on the embeddings of 30% of the examples, all views side by side, and tested
on the rest, over 10 draws that are stratified; the released code's are not. The paper shows bars without numbers.

The rows without SEM have the weights 1 and no reconstruction, after the same 100 epochs of reconstruction. CMC is the
sum over the pairs of different views with InfoNCE, not CMC's own code. DCP, MFLVC and DSIMVC are not implemented.
[The paper's page](../papers/xu.md) has the origin of every setting."""
_SMALL = """

**Small scale.** scikit-learn's 1,797 digits in 6 tables of features, which are not from the paper, with networks of 64
units, 15 epochs of reconstruction and 2 rounds of 10 epochs, and 3 draws of labels."""


def paper(seeds: int = 10, *, data: Path) -> Study:
    """CCV.

    Args:
      data: folder with the folder CCV.
    """
    cost = "27 hours on 2 CPU cores, of the estimates in `xu/sem`"
    return _study(_sem.paper("CCV", data), None, seeds, cost, _ABOUT)


def small(seeds: int = 5) -> Study:
    """Six tables of features of scikit-learn's digits, small networks."""
    base = _sem.small(sources.DigitsViews())
    base = studies.changed(base, {"evaluation.svm_share": 0.3, "evaluation.draws": 3})
    return _study(base, None, seeds, "2 CPU cores, 2 minutes", _ABOUT + _SMALL)


def smoke(seeds: int = 2) -> Study:
    """Two epochs on random tables, two rows."""
    base = studies.changed(_sem.smoke(), {"evaluation.svm_share": 0.3, "evaluation.draws": 1})
    return _study(base, ("InfoNCE", "SEM+InfoNCE"), seeds, "seconds", _ABOUT)


def _study(base: Config, names: tuple[str, ...] | None, seeds: int, cost: str, about: str) -> Study:
    return _sem.classification(
        "Xu 2023, Figure 4: classification on CCV",
        about,
        base,
        "Section 4.1, Figure 4",
        names=names,
        seeds=seeds,
        cost=cost,
    )
