"""Koromilas 2025, Section IV: combinations of alignment, energy and negatives, and what P1, P2 and P3 change.

Source: Eqs. 4 and 6-10, P1 to P3 of Section IV-A1, L1 of Section III-F; the grid is ours.
"""

import itertools
from functools import partial
from pathlib import Path
from typing import Any

import _bench
import _conflict
import _images
import _koromilas
import _rows

from mvcl import losses
from mvcl.studies import SEEDS, Claim, Study

_ALIGNMENTS = ("instance", "view", "pair")
_ENERGIES = ("instance", "view", "view_sum", "pair", "positive")
_NEGATIVES = ("within_view", "cross_view", "all")
_NAMED = {  # points of the framework that other studies train too
    ("instance", "view_sum", "within_view"): _koromilas.DHEL,
    ("instance", "instance", "cross_view"): _koromilas.EQ_11,
    ("instance", "instance", "all"): _koromilas.INFO_NCE,
    ("view", "view", "cross_view"): "MV-CL1",
    ("view", "view_sum", "within_view"): "MV-CL2",
    ("pair", "positive", "all"): "PVC",
    ("pair", "pair", "all"): "pwe",
}
_TITLE = "Koromilas 2025, Section IV: alignment, energy and negatives, and the principles P1 to P3"
_ABOUT = """\
The paper's tables compare objectives that differ in several ways at once: MV-InfoNCE and MV-DHEL have all principles,
pwe and PVC none; MV-CL1 and MV-CL2 lack P3. Here `multi_view_contrast` has every combination, so that a claim changes
one choice and keeps the others. The alignment has a logarithm for an "instance" (Eq. 8), a "view" (Eq. 7) or a "pair"
(Eqs. 4, 6); the energy for an "instance" (Eq. 10), a "view" (Eq. 9; "view_sum" is k times as much, as in Eq. 12),
a "pair" with the negatives of its two views (Eq. 4) or a "positive" beside the negatives of all views (Eq. 6). Within
the view, the energy "pair" is "view". The 17 combinations that claims compare are trained, `--every` trains all 42.

P1, all other views of a view are aligned in one term: alignment "view" against "pair". P2, the energy has all
interactions: energy "view" against "pair" and "positive", which leave some out, and, within views, "view" against
"instance", which Section IV-B2 says violates it. P3, one term for an instance: "instance" against "view", of alignment
and of energy. The paper claims accuracy for none alone. Temperature 0.5 and 4 views; nothing else was tuned for any.

mv_dhel is instance, view_sum, within_view; mv_infonce instance, instance, cross_view (printed), all (released); mv_cl1
view, view, cross_view; mv_cl2 view, view, within_view (released: view_sum); poly_view pair, positive, all; pairs of
NT-Xent pair, pair, all, of InfoNCE pair, pair, cross_view. Rank, uniformity, alignment and gradients are those of
koromilas_table2, of NT-Xent's pair terms."""


def small(seeds: int = SEEDS, *, data: Path, every: bool = False) -> Study:
    """Part of CIFAR-10, 4 views. `data` is its file, .npz.

    Args:
      every: all 42 combinations and not only those that claims compare.
    """
    grid = _rows.grid(alignment=_ALIGNMENTS, energy=_ENERGIES, negatives=_NEGATIVES)
    grid = [f for f in grid if (f["energy"], f["negatives"]) != ("pair", "within_view")]
    compared = _compared(grid)
    used = [cell for _, cell, other, _ in compared for cell in (cell, other)]
    objectives, cells = _koromilas.objectives(), []
    for factors in grid if every else (factors for factors in grid if factors in used):
        loss = partial(losses.multi_view_contrast, temperature=0.5, **factors)
        loss = objectives.get(_NAMED.get((*factors.values(),), ""), loss)
        cells.append(_images.cell(factors, _images.bench(data, 4), {"objective": loss}))
    claims: list[Claim] = []
    for text, cell, _, than in compared:
        source = f"ours, after {text[:2]}, Section IV-A1"
        claims += _rows.above(source, _images.LINEAR, [(text, cell, [than])])
    text = "L1: pair terms agree more with an alignment for a view than for a pair, all negatives"
    row = (text, {"alignment": "view", "energy": "view", "negatives": "all"}, [{"alignment": "pair"}])
    claims += _rows.above("ours, after L1, Section III-F", _conflict.MEASURES[0], [row])
    same: Any = {"measures": (*_bench.MEASURES, *_images.GEOMETRY), "columns": "negatives"}
    return _images.study(data, cells, _ABOUT, title=_TITLE, claims=claims, seeds=seeds, **same)


smoke = _images.smoke(small)


def _compared(grid: list[dict[str, Any]]) -> list[tuple[str, dict[str, str], dict[str, str], dict[str, str]]]:
    """Text, cell, the cell that it is compared with, and the factor of that; with all negatives, and within views."""
    found = []
    for principle, factor, better, worse, others in (
        ("P1", "alignment", "view", ("pair",), (("instance", "view"), ("all",))),
        ("P1", "alignment", "view", ("pair",), (("view_sum",), ("within_view",))),
        ("P2", "energy", "view", ("pair", "positive"), (_ALIGNMENTS, ("all",))),
        ("P2", "energy", "view", ("instance",), (("instance",), ("within_view",))),
        ("P3", "alignment", "instance", ("view",), (("instance",), ("all",))),
        ("P3", "alignment", "instance", ("view",), (("view_sum",), ("within_view",))),
        ("P3", "energy", "instance", ("view",), (("instance",), ("all",))),
    ):
        other = "energy" if factor == "alignment" else "alignment"
        for worst, (level, of) in itertools.product(worse, itertools.product(*others)):
            cell = {factor: better, other: level, "negatives": of}
            text = f'{principle}: {factor} "{better}" is above "{worst}" with {other} "{level}", {of}'
            if cell in grid and cell | {factor: worst} in grid:
                found.append((text, cell, cell | {factor: worst}, {factor: worst}))
    return found
