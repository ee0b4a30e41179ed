"""Xu 2023, Figure 2: a good view gets worse when InfoNCE compares it with a bad one.

`--data DIR` has Caltech.mat (docs/how_to/data.md).
"""

from functools import partial
from pathlib import Path
from typing import Any

import _sem

from mvcl import methods, studies
from mvcl.studies import SEEDS, Claim, Measure, Study, Within, trained
from mvcl.training import Config

_ABOUT = """\
(a) Autoencoders alone are trained on all views; K-means clusters the hidden features of each view. (b), (c) InfoNCE
compares the worst view of (a) with the best, after the same reconstruction, without weights and without further
reconstruction; "before" is after the reconstruction, "after" the end of training, both of the hidden features H:
before the contrast Z is a random projection of H. The released code prints H before and Z after. The paper shows curves
without numbers, of which the text names one: the cosine of the two views converges to 1.0.
[The paper's page](../papers/xu.md) has the origin of every setting."""
_SMALL = f"""

**Small scale.** handwritten.mat, which is not from the paper, with {_sem.NETWORKS}.
View 4, whose clusters were the worst after the reconstruction of one run (seed 0: accuracy 57.5%, with the paper's
networks 59.0%), is compared with view 1, whose were the best (75.5%, 72.0%)."""


def paper(seeds: int = 10, *, data: Path) -> Study:
    """Caltech, views 1 and 4. `data` is the folder with Caltech.mat."""
    cost = "1.3 hours on 2 CPU cores, of the estimate in `xu/sem`"
    base, printed = _sem.clustered("Caltech", data), {"1-4 cosine after": 1.0}
    return _study(base, 6, (1, 4), printed, about=_ABOUT, seeds=seeds, cost=cost)


def small(seeds: int = SEEDS, *, data: Path) -> Study:
    """Handwritten numerals, views 4 and 1. `data` is handwritten.mat."""
    base = studies.changed(_sem.tables(data), {"method.watch_epochs": 10})
    about, cost = _ABOUT + _SMALL, "20 minutes on 2 CPU cores, estimated"
    return _study(base, 6, (4, 1), {}, about=about, seeds=seeds, cost=cost)


def smoke(seeds: int = 2) -> Study:
    """Two epochs on random tables; both cells have all four views."""
    return _study(_sem.smoke(), 4, (1, 4), {}, about=_ABOUT, seeds=seeds, cost="seconds")


def _study(
    base: Config, views: int, compared: tuple[int, int], printed: dict[str, float], **scale: Any
) -> Study:
    low, high = compared
    pair, every = f"{low}-{high}", tuple(range(1, views + 1))
    assert isinstance(base.method, methods.Sem)
    alone = studies.changed(base, {"train.epochs": float(base.method.pretrain_epochs)})
    without, numbers = studies.changed(base, _sem.WITHOUT_SEM), every
    if views > 4:  # the random tables of the scale smoke cannot be chosen
        without, numbers = studies.changed(without, {"data.views": (str(low), str(high))}), compared
    reconstruction, contrast = f"reconstruction, {views} views", f"InfoNCE, views {low} and {high}"
    first, after = (partial(_sem.over_time, numbers=of) for of in (every, numbers))
    measures = [Measure(f"view {v} before", percent=True) for v in every]
    measures += [Measure(f"view {v} change", percent=True) for v in compared]
    measures += [Measure(f"{pair} cosine {when}", digits=3, better="") for when in ("before", "after")]
    return Study(
        title="Xu 2023, Figure 2: representation degeneration",
        cells=(
            trained({"training": reconstruction}, alone, measure=first),
            trained({"training": contrast}, without, printed=printed, measure=after),
        ),
        measures=(*measures, Measure(f"{pair} loss change", digits=3, better="lower")),
        claims=_claims(low, high, {"training": contrast}),
        **scale,
    )


def _claims(low: int, high: int, cells: dict[str, str]) -> list[Claim]:
    b, c, pair = "Section 3.1, Figure 2(b)", "Section 3.1, Figure 2(c)", f"{low}-{high}"
    equal = f"the embeddings of views {low} and {high} become equal: their cosine ends above 0.9"
    falls = f"the loss of views {low} and {high} falls"
    return [
        Within(equal, f"{b}; the bound is ours", f"{pair} cosine after", cells, low=0.9),
        Within(falls, b, f"{pair} loss change", cells, high=0.0),
        Within(f"view {low}, the worse one, gets better", c, f"view {low} change", cells, low=0.0),
        Within(f"view {high}, the better one, gets worse", c, f"view {high} change", cells, high=0.0),
    ]
