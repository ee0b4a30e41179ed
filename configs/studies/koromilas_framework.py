"""Koromilas 2025, Section IV: every combination of alignment, energy and negatives, and what P1, P2 and P3 change.

Source: Eqs. 4 and 6-10, P1 to P3 of Section IV-A1, L1 of Section III-F; the grid and the recipe `digits` are ours.
"""

import itertools
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import _conflict
import _digits
import _koromilas
import _rows

from mvcl import losses, training
from mvcl.studies import SEEDS, Measure, Study, changed, trained
from mvcl.training import Config

_base = _digits.digits_of  # the recipe of the scale small

_ALIGNMENTS = ("instance", "view", "pair")
_ENERGIES = ("instance", "view", "view_sum", "pair", "positive")
_NEGATIVES = ("within_view", "cross_view", "all")
_ABOUT = """\
The paper's tables compare objectives that differ in several ways at once: MV-InfoNCE and MV-DHEL have all principles,
pwe and PVC none; MV-CL1 and MV-CL2 lack P3. Here `multi_view_contrast` has every combination, so that a claim changes
one choice and keeps the others. The alignment has a logarithm for an "instance" (Eq. 8), a "view" (Eq. 7) or a "pair"
(Eqs. 4, 6); the energy for an "instance" (Eq. 10), a "view" (Eq. 9; "view_sum" is k times as much, as in Eq. 12),
a "pair" with the negatives of its two views (Eq. 4) or a "positive" beside the negatives of all views (Eq. 6). Within
the view, the energy "pair" is "view".

P1, all other views of a view are aligned in one term: alignment "view" against "pair". P2, the energy has all
interactions: energy "view" against "pair" and "positive", which leave some out, and, within views, "view" against
"instance", which Section IV-B2 says violates it. P3, one term for an instance: alignment "instance" against "view", and
energy "instance" against "view". Temperature 0.5 and 4 views for all; nothing else was tuned for any.

mv_dhel is instance, view_sum, within_view; mv_infonce instance, instance, cross_view (printed), all (released); mv_cl1
view, view, cross_view; mv_cl2 view, view, within_view (released: view_sum); poly_view pair, positive, all; pairs of
NT-Xent pair, pair, all, of InfoNCE pair, pair, cross_view. Rank, uniformity, alignment and gradients, of NT-Xent's
pair terms, are of the head's outputs of the test images, as in koromilas_figure3."""

_GEOMETRY = (
    Measure("effective rank", digits=1),
    Measure("uniformity, Wasserstein", digits=4, better="lower"),
    Measure("alignment", label="squared distance of views", digits=3, better="lower"),
    *(Measure(name, digits=3) for name in _conflict.MEASURES[:1]),
)


def small(seeds: int = SEEDS) -> Study:
    """Digits, 4 views, all 42 combinations."""
    cost = "90 minutes on 2 cores, estimated"
    every = (_ALIGNMENTS, _ENERGIES, _NEGATIVES)
    return _study(_base, 4, every, (*_digits.ACCURACIES, *_GEOMETRY), about=_ABOUT, seeds=seeds, cost=cost)


def smoke(seeds: int = 2) -> Study:
    """Two steps of a tiny network on random images, 3 views."""
    some, measures = (("view", "pair"), ("view", "pair"), ("all",)), (*_digits.LINEAR, *_GEOMETRY)
    return _study(_random, 3, some, measures, about=_ABOUT, seeds=seeds, cost="a minute on 2 cores")


def _random(k: int) -> Config:
    steps = {"train.steps": 2, "train.evaluate_every": 0.0, "evaluation.draws": 2}
    return changed(training.load("digits:smoke"), {"views.k": k, **steps})


def _study(
    base: Callable[[int], Config],
    k: int,
    levels: tuple[Sequence[str], Sequence[str], Sequence[str]],
    measures: tuple[Measure, ...],
    **scale: Any,
) -> Study:
    loss, measure = partial(losses.multi_view_contrast, temperature=0.5), _koromilas.results_and_embeddings
    cells = [
        trained(factors, base(k), {"objective": partial(loss, **factors)}, measure=measure)
        for factors in _rows.grid(**dict(zip(("alignment", "energy", "negatives"), levels)))
        if (factors["energy"], factors["negatives"]) != ("pair", "within_view")
    ]
    present = [cell.factors for cell in cells]
    found = []
    for principle, factor, better, worse, others in (
        ("P1", "alignment", "view", ("pair",), (("instance", "view"), ("cross_view", "all"))),
        ("P1", "alignment", "view", ("pair",), (("view_sum",), ("within_view",))),
        ("P2", "energy", "view", ("pair", "positive"), (_ALIGNMENTS, ("cross_view", "all"))),
        ("P2", "energy", "view", ("instance",), (("instance",), ("within_view",))),
        ("P3", "alignment", "instance", ("view",), (("instance",), ("cross_view", "all"))),
        ("P3", "alignment", "instance", ("view",), (("view_sum",), ("within_view",))),
        ("P3", "energy", "instance", ("view",), (("instance",), ("cross_view", "all"))),
    ):
        other = "energy" if factor == "alignment" else "alignment"
        for worst, (level, of) in itertools.product(worse, itertools.product(*others)):
            cell = {factor: better, other: level, "negatives": of}
            if all(one in present for one in (cell, cell | {factor: worst})):
                text = f'{principle}: {factor} "{better}" is above "{worst}" with {other} "{level}", {of}'
                rows = [(text, cell, [{factor: worst}])]
                found += _rows.above(f"{principle}, Section IV-A1", measures[0].name, rows)
    text = "L1: pair terms agree more with an alignment for a view than for a pair, all negatives"
    cell = {"alignment": "view", "energy": "view", "negatives": "all"}
    found += _rows.above("L1, Section III-F", _conflict.MEASURES[0], [(text, cell, [{"alignment": "pair"}])])
    return Study(
        title="Koromilas 2025, Section IV: alignment, energy and negatives, and the principles P1 to P3",
        cells=cells,
        measures=measures,
        claims=found,
        columns="negatives" if len(levels[2]) > 1 else None,
        **scale,
    )
