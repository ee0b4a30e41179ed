"""Shidani 2024, Figure 3b: ImageNet-1K accuracy after 128 epochs against the number of views M.

Section 3.2: M = 2, 3, 4, 6, 8, 12, 16, growing and fixed batch. Needs ImageNet-1K (docs/how_to/data.md).
"""

import math
from collections.abc import Mapping
from typing import Any

import _rows
import _shidani
from _shidani import GEOMETRIC, MULTI_CROP, SUFFICIENT

from mvcl.studies import Claim, Measure, Study, trained
from mvcl.training import Config

_ABOUT = """\
The paper's figure has no numbers. Accuracy is that of our linear probe on the validation images, as the paper does not
give its protocol (docs/papers/shidani.md). Growing: K = 4096 instances a batch for every M; fixed: K = (2 / M) 4096,
rounded down at M = 3, 6 and 12. At M = 2 all objectives are SimCLR's loss (Appendix E.2). "Never harmful" is read as:
no M is below a smaller one by more than 0.5 points, which is ours."""


def paper(seeds: int = 3) -> Study:
    """ImageNet-1K, ResNet-50, 128 epochs."""
    cost = "many accelerators; 3,600,000 PFLOP with 3 seeds, estimated from 31,500 for M = 8 (--dry-run)"
    views, names = (2, 3, 4, 6, 8, 12, 16), (GEOMETRIC, SUFFICIENT, MULTI_CROP)
    return _study(_shidani.batches(), views, _shidani.SGD, names, seeds=seeds, cost=cost)


def smoke(seeds: int = 2) -> Study:
    """Some steps of a small network on random images."""
    bases, names = {"fixed": _shidani.small("smoke_fixed_batch")}, (GEOMETRIC, SUFFICIENT)
    return _study(bases, (2, 4), _shidani.KNN, names, seeds=seeds, cost="seconds")


def _study(
    bases: Mapping[str, Config],
    views: tuple[int, ...],
    accuracy: Measure,
    names: tuple[str, ...],
    **scale: Any,
) -> Study:
    claims: list[Claim] = []
    source, most = "Section 3.2, Figure 3b", f"M = {views[-1]}"
    for batch in bases:
        for name in names:
            text = f"More views are never harmful (here: by 0.5 points at most), {batch} batch, M = {{M}}: {name}"
            cells = {"objective": name, "batch": batch}
            for place in range(1, len(views)):
                fewer = _rows.levels("M", views[:place])
                row = _rows.each(text, cells, fewer, M=views[place : place + 1])
                claims += _rows.within(source, accuracy.name, (-0.5, math.inf), row)
        at: dict[str, str | int] = {"batch": batch, "M": views[-1]}
        best, crops = f"Geometric is the strongest, {batch} batch, {most}", {**at, "objective": MULTI_CROP}
        others = _rows.levels("objective", (SUFFICIENT, MULTI_CROP))
        rows: list[_rows.Row] = [(best, {**at, "objective": GEOMETRIC}, others)]
        if batch == "growing":
            rows.append(
                (f"Multi-Crop is above sufficient statistics, growing batch, {most}", crops, others[:1])
            )
        claims += _rows.above(source, accuracy.name, rows)
    return Study(
        unequal="A fixed batch holds the number of views (Section 3.2), so that of instances falls with M.",
        title="Shidani 2024, Figure 3b: ImageNet-1K after 128 epochs by number of views",
        about=_ABOUT,
        cells=[
            trained({"objective": name, "batch": batch, "M": m}, base, {"objective": loss, "views.k": m})
            for batch, base in bases.items()
            for name, loss in ((name, _shidani.OBJECTIVES[name]) for name in names)
            for m in views
        ],
        measures=(accuracy,),
        claims=claims,
        columns="M",
        along="M",
        reference={"objective": GEOMETRIC},
        **scale,
    )
