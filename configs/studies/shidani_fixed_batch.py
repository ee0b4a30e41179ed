"""Shidani 2024, Appendix E.5: the best number of views M where B = M K vectors are fixed, at three B, down to K = 4.

The Gaussian model of Section 3.1 at B = 72, 288, 1152; networks are trained side by side, so --seeds is their number.
"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import _gaussian
import _networks
import _rows
from _gaussian import ARITHMETIC, GEOMETRIC

from mvcl import metrics, training
from mvcl.studies import SEEDS, Claim, Measure, Study, Values

_ABOUT = """\
Fewer instances as the views grow: K = B / M. The paper derives two best values of M for geometric PVC from p, the
likelihood of the true view at M = 2: sqrt(2 (B + 1)(1 - p)) (Eq. 154) and 1 + sqrt(B (1 - p)) (Eq. 155). It does not
measure them. At a loss of some nats p = e^-loss is small, so that whatever the data, of the values trained here Eq. 155
is nearest to M = 9, 18 and 36 at B = 72, 288 and 1152, and Eq. 154 to 12, 24 and 48 (`metrics.optimal_multiplicity`):
B is four times the last one, so that both double. A claim is decided for each B; the two equations follow from two
assumptions, so that at most one of them holds.

The Gaussian model is that of `mvcl study shidani_figure2`, with its settings; training sums over negatives on the grid
at B = 1152 and exactly at the smaller ones. The limit is the expectation of the bound that holds under the best score
for this K and M (`metrics.expected_info_nce`); `metrics.best_gaussian_multiplicity`, ours, is the M with the largest
limit, 6, 12 and 24 of the values at scale paper; at scale small, without M = 24 at B = 1152, it is 16 there. The bound
that holds contrasts whole groups of views, which are exchangeable between instances: a lower bound in expectation for
any score, K and M, and at most log K. The printed one is no bound (see `mvcl study shidani_figure2`): with few
instances it rises above the information, so that its largest value says nothing about it."""

VIEWS = {72: (2, 3, 4, 6, 9, 12, 18), 288: (2, 6, 8, 12, 18, 24, 36), 1152: (2, 12, 16, 24, 36, 48, 72)}
"""B -> values of M, of which B is a multiple."""
BEST = {"Eq. 154": {72: 12, 288: 24, 1152: 48}, "Eq. 155": {72: 9, 288: 18, 1152: 36}}
"""Equation -> B -> the nearest of them."""
LARGEST_LIMIT = {72: (6,), 288: (12,), 1152: (24, 16)}
"""B -> the M with the largest limit of all values, and of those at scale small."""


def paper(seeds: int = 16) -> Study:
    """The settings of Figure 2."""
    cost = "one GPU, two hours, or 2 CPU cores, 10 hours, estimated for 16 networks"
    return _study(VIEWS, _ABOUT, cost, networks=seeds)


def small(seeds: int = SEEDS) -> Study:
    """Fewer updates at a higher learning rate."""
    about = f"""{_ABOUT}

{_gaussian.SMALL}, five values of M at each B in place of seven. Evaluated on at most 60 times 1024 instances,
at B = 1152 on a third: the embeddings of M = 72 views would take 11 GB."""
    few = {72: (2, 6, 9, 12, 18), 288: (2, 12, 18, 24, 36), 1152: (2, 16, 36, 48, 72)}
    batches = {72: 60, 288: 60, 1152: 20}  # the two largest limits differ by .015, .010 and .004
    cost = "one process on 2 CPU cores, 5 hours for 20 networks beside other work; it takes 20 GB of memory"
    return _study(few, about, cost, batches, networks=seeds, **_gaussian.SHORT)


def smoke(seeds: int = 2) -> Study:
    """Some steps at one B."""
    return _study({72: (9, 12)}, _ABOUT, "seconds", networks=seeds, epochs=1)


def measured(folder: Path) -> list[Values]:
    """The results of each network, and the limit of the bound that holds."""
    bound = training.load(folder).evaluation
    assert isinstance(bound, _networks.InformationBound)
    limit = metrics.expected_info_nce(bound.instances, bound.information)
    return [values | {"limit": limit} for values in _gaussian.each_network(folder)]


def _study(
    views: Mapping[int, tuple[int, ...]],
    about: str,
    cost: str,
    evaluated: Mapping[int, int] | None = None,
    **options: Any,
) -> Study:
    cells, claims, known = [], list[Claim](), _gaussian.MEASURES
    for b, of_batch in views.items():
        of_this = {**options, **({} if b > 1000 else {"grid": 0})}
        of_this |= {} if evaluated is None else {"evaluation_batches": evaluated[b]}
        batches = [(m, b // m) for m in of_batch]
        of_b = _gaussian.cells(("geometric", "arithmetic"), batches, measure=measured, **of_this)
        cells += [dataclasses.replace(cell, factors={"B": b, **cell.factors}) for cell in of_b]
        text = "The printed bound is largest at the M of"
        best = [(f"Appendix E.5, {of}", "bound", f"{text} {of}", GEOMETRIC, m[b]) for of, m in BEST.items()]
        limit = "The bound that holds is largest at the M with the largest limit"
        best += [("ours", "valid", limit, ARITHMETIC, m) for m in LARGEST_LIMIT[b] if m in of_batch][:1]
        for source, measure, text, objective, m in (row for row in best if row[-1] in of_batch):
            others = _rows.levels("M", (other for other in of_batch if other != m))
            of = {"B": b, "objective": objective, "M": m}
            claims += _rows.above(source, measure, [(f"{text}: B = {b}, M = {m}, {objective}", of, others)])
    return Study(
        unequal="B = M K vectors are fixed, so that of instances falls with M.",
        title="Shidani 2024, Appendix E.5: the best M at a fixed number of vectors B",
        about=about,
        cells=cells,
        measures=(
            known["valid"],
            Measure("limit", label="its limit", digits=4, better=""),
            known["bound"],
            Measure("gap", label="its gap", digits=4, better=""),
            Measure("valid gap", label="gap of the bound that holds", digits=4, better="lower"),
            *(known["information"], known["loss"], _gaussian.FLAT),
        ),
        claims=(
            *claims,
            _gaussian.not_above("The printed bounds", "Theorem 2.2", "gap"),
            _gaussian.not_above("The bounds from groups of views", "ours", "valid gap"),
        ),
        along="M",
        reference={"objective": GEOMETRIC},
        seeds=1,
        cost=cost,
    )
