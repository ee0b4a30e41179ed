"""Xu 2023, Figure 2: a good view gets worse when InfoNCE compares it with a bad one.

`--data DIR` has Caltech.mat (docs/how_to/data.md).
"""

from functools import partial
from pathlib import Path
from typing import Any

import _sem

from mvcl import methods, studies
from mvcl.studies import Claim, Measure, Study, Within, trained
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
    """Caltech, views 1 and 4. `data` is the folder with Caltech.mat."""
    cost = "1 hour on 2 CPU cores, of the estimate in `xu/sem`"
    base, printed = _sem.clustered("Caltech", data), {"1-4 cosine after": 1.0}
    return _study(base, 6, (1, 4), printed, about=_ABOUT, seeds=seeds, cost=cost)


def small(seeds: int = 5, *, data: Path) -> Study:
    """Handwritten numerals, views 5 and 6. `data` is handwritten.mat."""
    base = studies.changed(_sem.tables(data), {"method.watch_epochs": 5})
    about, cost = _ABOUT + _SMALL, "2 CPU cores, half a minute"
    return _study(base, 6, (5, 6), {}, about=about, seeds=seeds, cost=cost)


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
