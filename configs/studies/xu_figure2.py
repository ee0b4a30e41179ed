"""Xu 2023, Figure 2: a good view gets worse when InfoNCE compares it with a bad one.

`--data DIR` has Caltech.mat (docs/how_to/data.md).
"""

from functools import partial
from pathlib import Path

import _sem

from mvcl import data as sources
from mvcl import studies
from mvcl.studies import Measure, Study, Within, trained
from mvcl.training import Config

_ABOUT = """\
(a) Autoencoders alone are trained on all views; K-means clusters the hidden features of each view. (b), (c) InfoNCE
compares the worst view of (a) with the best, after the same reconstruction, without weights and without further
reconstruction; "before" is after the reconstruction, "after" the end of training. The paper shows curves without
numbers, of which the text names one: the cosine of the two views converges to 1.0.
[The paper's page](../papers/xu.md) has the origin of every setting."""
_SMALL = """

**Small scale.** handwritten.mat, which is not from the paper, with networks of 64 units, 15 epochs of reconstruction
and 20 of contrast. View 5, whose clusters are the worst after this short reconstruction, is compared
with view 6, whose are the best."""


def paper(seeds: int = 10, *, data: Path) -> Study:
    """Caltech, views 1 and 4.

    Args:
      data: folder with Caltech.mat.
    """
    base = studies.changed(_sem.paper("Caltech", data), {"evaluation.svm_share": 0})
    cost = "1 hour on 2 CPU cores, of the estimate in `xu/sem`"
    return _study(base, 6, (1, 4), seeds, cost, _ABOUT, printed=True)


def small(seeds: int = 5, *, data: Path) -> Study:
    """Handwritten numerals, views 5 and 6.

    Args:
      data: handwritten.mat.
    """
    base = studies.changed(_sem.small(sources.Tables(path=str(data))), {"method.watch_epochs": 5})
    return _study(base, 6, (5, 6), seeds, "2 CPU cores, half a minute", _ABOUT + _SMALL)


def smoke(seeds: int = 2) -> Study:
    """Two epochs on random tables; both cells have all four views."""
    return _study(_sem.smoke(), 4, (1, 4), seeds, "seconds", _ABOUT, choose=False)


def _study(
    base: Config,
    views: int,
    compared: tuple[int, int],
    seeds: int,
    cost: str,
    about: str,
    *,
    printed: bool = False,
    choose: bool = True,
) -> Study:
    low, high = compared
    pair = f"{low}-{high}" if choose else f"{min(compared)}-{max(compared)}"
    every = tuple(range(1, views + 1))
    alone = studies.changed(base, {"train.epochs": float(_pretraining(base))})
    without = studies.changed(base, {"method.weights": "none", "method.lam": 0.0})
    if choose:
        without = studies.changed(without, {"data.views": (str(low), str(high))})
    numbers = compared if choose else every
    reconstruction, contrast = f"reconstruction, {views} views", f"InfoNCE, views {low} and {high}"
    cells = (
        trained({"training": reconstruction}, alone, measure=partial(_sem.over_time, numbers=every)),
        trained(
            {"training": contrast},
            without,
            printed={f"{pair} cosine after": 1.0} if printed else {},
            measure=partial(_sem.over_time, numbers=numbers),
        ),
    )
    accuracies = [Measure(f"view {v} before", percent=True) for v in every]
    changes = [Measure(f"view {v} change", percent=True) for v in sorted(compared)]
    return Study(
        title="Xu 2023, Figure 2: representation degeneration",
        about=about,
        cells=cells,
        measures=(
            *accuracies,
            *changes,
            *(Measure(f"{pair} cosine {when}", digits=3, better="") for when in ("before", "after")),
            Measure(f"{pair} loss change", digits=3, better="lower"),
        ),
        claims=(
            Within(
                f"the embeddings of views {low} and {high} become equal: their cosine ends above 0.9",
                "Section 3.1, Figure 2(b); the bound is ours",
                f"{pair} cosine after",
                {"training": contrast},
                low=0.9,
            ),
            Within(
                f"the loss of views {low} and {high} falls",
                "Section 3.1, Figure 2(b)",
                f"{pair} loss change",
                {"training": contrast},
                high=0.0,
            ),
            Within(
                f"view {low}, the worse one, gets better",
                "Section 3.1, Figure 2(c)",
                f"view {low} change",
                {"training": contrast},
                low=0.0,
            ),
            Within(
                f"view {high}, the better one, gets worse",
                "Section 3.1, Figure 2(c)",
                f"view {high} change",
                {"training": contrast},
                high=0.0,
            ),
        ),
        seeds=seeds,
        cost=cost,
    )


def _pretraining(base: Config) -> int:
    return _sem.of(base).pretrain_epochs
