"""Xu 2023, Figure 3: accuracy of a linear SVM on 30% of the labels of DHA.

`--data DIR` has DHA.mat (docs/how_to/data.md).
"""

from pathlib import Path

import _sem

from mvcl.studies import SEEDS, Study


def paper(seeds: int = 10, *, data: Path) -> Study:
    """DHA. `data` is the folder with DHA.mat."""
    cost = "5 hours on 2 CPU cores, of the estimates in `xu/sem`"
    return _sem.classification(_sem.paper("DHA", data), 3, "DHA", seeds=seeds, cost=cost)


def small(seeds: int = SEEDS, *, data: Path) -> Study:
    """Handwritten numerals, small networks. `data` is handwritten.mat."""
    base, cost = _sem.svm(_sem.tables(data), 3), "88 minutes on 2 CPU cores, estimated"
    about = f"{_sem.SMALL}, and 3 draws of labels."
    return _sem.classification(base, 3, "DHA", about=about, seeds=seeds, cost=cost)


def smoke(seeds: int = 2) -> Study:
    """Two epochs on random tables, two rows."""
    base, rows = _sem.svm(_sem.smoke(), 1), ("InfoNCE", "SEM+InfoNCE")
    return _sem.classification(base, 3, "DHA", *rows, seeds=seeds, cost="seconds")
