"""Xu 2023, Figure 4: accuracy of a linear SVM on 30% of the labels of CCV.

`--data DIR` has the folder CCV (docs/how_to/data.md).
"""

from pathlib import Path

import _sem

from mvcl import data as sources
from mvcl.studies import SEEDS, Study

_SMALL = f"""

**Small scale.** scikit-learn's 1,797 digits in 6 tables of features, which are not from the paper, with
{_sem.NETWORKS}, and 3 draws of labels."""


def paper(seeds: int = 10, *, data: Path) -> Study:
    """CCV. `data` is the folder with the folder CCV."""
    cost = "27 hours on 2 CPU cores, of the estimates in `xu/sem`"
    return _sem.classification(_sem.paper("CCV", data), 4, "CCV", seeds=seeds, cost=cost)


def small(seeds: int = SEEDS) -> Study:
    """Six tables of features of scikit-learn's digits, small networks."""
    base, cost = _sem.svm(_sem.small(sources.DigitsViews()), 3), "88 minutes on 2 CPU cores, estimated"
    return _sem.classification(base, 4, "CCV", about=_SMALL, seeds=seeds, cost=cost)


def smoke(seeds: int = 2) -> Study:
    """Two epochs on random tables, two rows."""
    base, rows = _sem.svm(_sem.smoke(), 1), ("InfoNCE", "SEM+InfoNCE")
    return _sem.classification(base, 4, "CCV", *rows, seeds=seeds, cost="seconds")
