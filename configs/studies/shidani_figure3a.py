"""Shidani 2024, Figures 3a, 6 and 7: ImageNet-1K accuracy against epochs, updates, relative compute and FLOPs.

Section 3.2 and F.3.1: M = 8 views against SimCLR's two, growing and fixed batch, and the headline run of the
abstract. Needs ImageNet-1K (docs/how_to/data.md).
"""

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from mvcl import losses, metrics, models, studies, training
from mvcl.studies import Above, Cell, Measure, Study, Values, Within, results, trained
from mvcl.training import Config

_ABOUT = """\
The paper's figures have no numbers. Accuracy is that of our linear probe on the validation images, as the paper does
not give its protocol (docs/papers/shidani.md). Between 128 and 1024 epochs, which the text names, the values are ours.
Growing: K = 4096 instances a batch for every M. Fixed: K = (2 / M) 4096, 1024 at M = 8. The headline run has K = 256 at
M = 8, see the header of `shidani/imagenet1k`. Figures 6 and 7 show the same runs against total FLOPs: those of
the step by XLA's analysis, times the updates; the paper's are those of PyTorch's profiler. Relative compute is Eq. 29,
M / 2 times epochs / 128; M = 8 views of e epochs compute as much as SimCLR of 4 e, and with fixed batch take as many
updates. That gains "are minor" in the growing case, and that the conclusions for FLOPs are "unchanged" have no number
that could decide."""

GEOMETRIC, SUFFICIENT, MULTI_CROP, SIMCLR = (
    "Poly-view, geometric",
    "Sufficient statistics",
    "Multi-Crop",
    "SimCLR",
)
_OBJECTIVES = {
    GEOMETRIC: partial(losses.poly_view, temperature=0.1, aggregation="geometric"),
    SUFFICIENT: partial(losses.sufficient_statistics, temperature=0.1),
    MULTI_CROP: losses.all_pairs(partial(losses.nt_xent, temperature=0.1)),
    SIMCLR: partial(losses.nt_xent, temperature=0.1),
}


def with_compute(folder: Path) -> list[Values]:
    """`results`, and what the run has cost.

    Args:
      folder: of the finished run.

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
    return [
        values
        | {
            "updates": updates,
            "relative compute": metrics.relative_compute(config.views.k, epochs),
            "PFLOP": updates * cost.flops * cost.devices / 1e15,
        }
        for values in results(folder)
    ]


def paper(seeds: int = 3) -> Study:
    """ImageNet-1K, ResNet-50."""
    bases = {name: training.load(f"shidani/imagenet1k:{name}_batch") for name in ("growing", "fixed")}
    headline = training.load("shidani/imagenet1k:headline")
    cost = "many accelerators; 9,000,000 PFLOP with 3 seeds, estimated from 31,500 for 128 epochs of M = 8 (--dry-run)"
    return _study({**bases, "256": headline}, (128, 256, 512, 1024), seeds, cost)


def smoke(seeds: int = 2) -> Study:
    """Some steps of a small network on random images."""
    small = studies.changed(
        training.load("shidani/imagenet1k:smoke"),
        {"encoder": models.ConvNet(widths=(4, 8)), "train.steps": None, "evaluation.linear": None},
    )
    return _study({"growing": small}, (1,), seeds, "seconds", "k-NN", (GEOMETRIC,))


def _study(
    bases: Mapping[str, Config],
    epochs: tuple[int, ...],
    seeds: int,
    cost: str,
    accuracy: str = "linear, SGD",
    names: tuple[str, ...] = (GEOMETRIC, SUFFICIENT, MULTI_CROP),
) -> Study:
    def cell(objective: str, batch: str, length: int) -> Cell:
        changes: dict[str, Any] = {"objective": _OBJECTIVES[objective], "train.epochs": float(length)}
        if objective == SIMCLR:
            changes |= {"views.k": 2, "views.strategy": "growing"}
        return trained(
            {"objective": objective, "batch": batch, "epochs": length},
            bases[batch],
            changes,
            measure=with_compute,
        )

    cells = [cell(SIMCLR, "growing", length) for length in epochs]
    for batch in bases:
        if batch == "256":
            cells.append(cell(GEOMETRIC, batch, epochs[0]))
        else:
            cells += [cell(name, batch, e) for name in names for e in epochs]
    return Study(
        title="Shidani 2024, Figures 3a, 6 and 7: ImageNet-1K at M = 8 by epochs",
        about=_ABOUT,
        cells=cells,
        measures=(
            Measure(accuracy, label="accuracy", percent=True, digits=2),
            Measure("updates", digits=0, better=""),
            Measure("relative compute", digits=2, better=""),
            Measure("PFLOP", digits=0, better=""),
        ),
        claims=_claims(tuple(bases), epochs, accuracy, names),
        along="epochs",
        reference={"objective": SIMCLR, "batch": "growing"},
        seeds=seeds,
        cost=cost,
    )


def _claims(
    batches: tuple[str, ...], epochs: tuple[int, ...], accuracy: str, names: tuple[str, ...]
) -> tuple[Above | Within, ...]:
    simclr = {"objective": SIMCLR, "batch": "growing"}
    same_compute = [(e, 4 * e) for e in epochs if 4 * e in epochs]
    claims: list[Above | Within] = []
    for batch in batches:
        if batch == "256":
            claims.append(
                Above(
                    "Geometric at batch 256 and 128 epochs is above SimCLR at batch 4096 and 1024 epochs",
                    "Abstract; Section 3.2",
                    accuracy,
                    {"objective": GEOMETRIC, "batch": batch, "epochs": epochs[0]},
                    ({**simclr, "epochs": epochs[-1]},),
                )
            )
            continue
        claims += [
            Above(
                f"At every number of epochs M = 8 is above M = 2, {batch} batch: {name}",
                "Section 3.2, Figure 3a",
                accuracy,
                {"objective": name, "batch": batch},
                (simclr,),
            )
            for name in (GEOMETRIC, SUFFICIENT)
            if name in names
        ]
        claims += [
            Above(
                f"At equal relative compute M = 8 is above SimCLR, {batch} batch, {e} and {more} epochs: {name}",
                "Section 3.2, Figure 3a",
                accuracy,
                {"objective": name, "batch": batch, "epochs": e},
                ({**simclr, "epochs": more},),
            )
            for name in (GEOMETRIC, SUFFICIENT)
            for e, more in same_compute
        ]
        claims += [
            Within(
                f"Multi-Crop is not better than SimCLR at equal compute, {batch} batch, {e} and {more} epochs "
                "(here: by 0.5 points at most)",
                "Section 3.2, Figure 3a",
                accuracy,
                {"objective": MULTI_CROP, "batch": batch, "epochs": e},
                ({**simclr, "epochs": more},),
                high=0.5,
            )
            for e, more in same_compute
        ]
    return tuple(claims)
