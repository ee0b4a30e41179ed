"""Shidani 2024, Figures 3a, 6 and 7: ImageNet-1K accuracy against epochs, updates, relative compute and FLOPs.

Section 3.2 and F.3.1: M = 8 views against SimCLR's two, growing and fixed batch, and the headline run of the
abstract. Needs ImageNet-1K (docs/how_to/data.md).
"""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import _rows
import _shidani
from _shidani import GEOMETRIC, MULTI_CROP, SIMCLR, SUFFICIENT

from mvcl import metrics, training
from mvcl.studies import Claim, Measure, Study, Values, changed, results, trained
from mvcl.training import Config

_ABOUT = """\
The paper's figures have no numbers. Accuracy is that of our linear probe on the validation images, as the paper does
not give its protocol (docs/papers/shidani.md). Between 128 and 1024 epochs, which the text names, the values are
ours. Growing: K = 4096 instances a batch for every M. Fixed: K = (2 / M) 4096, 1024 at M = 8. The headline run has K
= 256, see the header of `shidani/imagenet1k`. Figures 6 and 7 show the same runs against total FLOPs: those of the
step by XLA's analysis, times the updates; the paper's are those of PyTorch's profiler. Relative compute is Eq. 29, M
/ 2 times epochs / 128; M = 8 views of e epochs compute as much as SimCLR of 4 e, and with fixed batch take as many
updates. The abstract's batch of 256 is read twice, as 256 instances at M = 8 and at M = 16, the largest M of Figure
3b, where it is also 4096 views. That gains "are minor" in the growing case, and that the conclusions for FLOPs are
"unchanged" have no number that could decide."""


def with_compute(folder: Path) -> list[Values]:
    """`results`, and what the run has cost.

    Returns:
      One entry: the results; "updates"; "relative compute", encoder passes by those of 128 epochs of two views
      (Shidani 2024, Eq. 29); "PFLOP" of all devices and updates, from XLA's analysis of the step, which counts the body
      of a loop once.
    """
    config = training.load(folder)
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    epochs = max(line["epoch"] for line in lines if "epoch" in line)
    cost = training.estimate(config)
    updates = json.loads((folder / "evaluation.json").read_text())["step"]
    spent = {
        "updates": updates,
        "relative compute": metrics.relative_compute(config.views.k, epochs),
        "PFLOP": updates * cost.flops * cost.devices / 1e15,
    }
    return [values | spent for values in results(folder)]


def paper(seeds: int = 3) -> Study:
    """ImageNet-1K, ResNet-50."""
    headline = training.load("shidani/imagenet1k:headline")
    bases = {**_shidani.batches(), "256": headline, "256, M = 16": changed(headline, {"views.k": 16})}
    cost = "many accelerators; 9,000,000 PFLOP with 3 seeds, estimated from 31,500 for 128 epochs of M = 8 (--dry-run)"
    names = (GEOMETRIC, SUFFICIENT, MULTI_CROP)
    return _study(bases, (128, 256, 512, 1024), _shidani.SGD, names, seeds=seeds, cost=cost)


def smoke(seeds: int = 2) -> Study:
    """Some steps of a small network on random images."""
    bases = {"growing": _shidani.small(steps=None)}
    return _study(bases, (1,), _shidani.KNN, (GEOMETRIC,), seeds=seeds, cost="seconds")


def _study(
    bases: Mapping[str, Config],
    epochs: tuple[int, ...],
    accuracy: Measure,
    names: tuple[str, ...],
    **scale: Any,
) -> Study:
    grid = _rows.grid(objective=[SIMCLR], batch=["growing"], epochs=epochs)
    for batch in bases:
        all_of = ([GEOMETRIC], epochs[:1]) if batch.startswith("256") else (names, epochs)
        grid += _rows.grid(objective=all_of[0], batch=[batch], epochs=all_of[1])
    two = {"views.k": 2, "views.strategy": "growing"}
    cells = []
    for factors in grid:
        name, batch, length = factors.values()
        changes = {"objective": _shidani.OBJECTIVES[name], "train.epochs": float(length)}
        changes |= two if name == SIMCLR else {}
        cells.append(trained(factors, bases[batch], changes, measure=with_compute))
    return Study(
        unequal="A fixed batch holds the number of views (Section 3.2), with fewer instances than a growing one.",
        title="Shidani 2024, Figures 3a, 6 and 7: ImageNet-1K at M = 8 by epochs",
        about=_ABOUT,
        cells=cells,
        measures=(
            accuracy,
            Measure("updates", digits=0, better=""),
            Measure("relative compute", digits=2, better=""),
            Measure("PFLOP", digits=0, better=""),
        ),
        claims=_claims(tuple(bases), epochs, accuracy.name, names),
        along="epochs",
        against=("updates", "relative compute", "PFLOP"),
        reference={"objective": SIMCLR, "batch": "growing"},
        **scale,
    )


def _claims(
    batches: tuple[str, ...], epochs: tuple[int, ...], accuracy: str, names: tuple[str, ...]
) -> list[Claim]:
    simclr, source = {"objective": SIMCLR, "batch": "growing"}, "Section 3.2, Figure 3a"
    same_compute = [(e, 4 * e) for e in epochs if 4 * e in epochs]
    found: list[Claim] = []
    for batch in batches:
        if batch.startswith("256"):
            text = f"Geometric at batch {batch} and 128 epochs is above SimCLR at batch 4096 and 1024 epochs"
            cells = {"objective": GEOMETRIC, "batch": batch, "epochs": epochs[0]}
            row = (text, cells, [{**simclr, "epochs": epochs[-1]}])
            found += _rows.above("Abstract; Section 3.2", accuracy, [row])
            continue
        every = f"At every number of epochs M = 8 is above M = 2, {batch} batch"
        equal = f"At equal relative compute M = 8 is above SimCLR, {batch} batch"
        crops = f"Multi-Crop is not better than SimCLR at equal compute, {batch} batch"
        ours = [name for name in (GEOMETRIC, SUFFICIENT) if name in names]
        rows = _rows.each(f"{every}: {{objective}}", {"batch": batch}, [simclr], objective=ours)
        rows += [
            (
                f"{equal}, {e} and {more} epochs: {name}",
                {"objective": name, "batch": batch, "epochs": e},
                [{**simclr, "epochs": more}],
            )
            for name in ours
            for e, more in same_compute
        ]
        found += _rows.above(source, accuracy, rows)
        rows = [
            (
                f"{crops}, {e} and {more} epochs (here: by 0.5 points at most)",
                {"objective": MULTI_CROP, "batch": batch, "epochs": e},
                [{**simclr, "epochs": more}],
            )
            for e, more in same_compute
        ]
        found += _rows.within(source, accuracy, (-math.inf, 0.5), rows)
    return found
