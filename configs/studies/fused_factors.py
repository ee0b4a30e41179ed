"""What fused views keep: CoMM, InfMasking and FactorCL on views of known factors, and what fusion does without them."""

import dataclasses
import itertools
from typing import Any

import _rows
from _factors import FACTORS, FactorViews
from _factors_task import Factored, to_bits, to_inputs
from _fused_task import Factorised, Fused

from mvcl import losses
from mvcl.studies import Cell, Measure, Study

_ABOUT = """\
Views, encoders, steps and probes are those of the study which_objective: `shared` bits are in all views, `pair` bits in
two neighbouring ones, `unique` bits in one, and three neighbours tell a bit of `synergy` that no two of them tell; an
MLP of 48 hidden units to 12 numbers of each view, 600 steps of Adam on 128 fresh instances, test R² of ridge
regressions, of the synergy the squared correlation with the product of what is read of its parts.

Rows with "fused" have one more network: the numbers of each encoder are cut into 3 tokens, which one attention layer of
4 heads fuses with a class token of as many numbers as all encoders give; the probes of all views read that. Inputs are
augmented twice: a tenth of the entries set to 0, noise of deviation 0.1. InfMasking has four maskings of half of the
tokens, at its full ratio. FactorCL, of two views, has a shared and a unique head of 6 numbers each and critics of 32
hidden units.

The controls separate network, augmentation and loss: "fused, InfoNCE of pairs" has the network, and compares each view
fused alone; "two augmentations, InfoNCE of pairs" has no fusion, and compares both augmentations of all views, those of
one view too; "comm, mean" and "inf_masking, mean" have the loss, and the mean of the views' embeddings in place of the
fusion. Rows without "fused" are probed on the embeddings side by side.

Temperatures are the best of 0.05, 0.1, 0.2 and 0.5 on other draws, renderings and first weights, by the mean of the
factors. Rows of one kind of views have the same data and first encoders, so that differences are paired."""

Floats = tuple[float, ...]
TWICE = "two augmentations, InfoNCE of pairs"
FUSED = ("comm, fused", "inf_masking, fused")
PAIRWISE = {  # label -> objectives of pairs of views
    f"all_pairs({of.__name__})": losses.all_pairs(of)
    for of in (losses.info_nce, losses.siglip, losses.vicreg)
} | {"mv_infonce": losses.mv_infonce}


def _tasks(data: FactorViews, temperatures: Floats, **sizes: Any) -> dict[str, Any]:
    """Label -> the cell."""
    base, fused = Factored(data=data, **sizes), Fused(data=data, **sizes)
    pairs = PAIRWISE["all_pairs(info_nce)"]
    tuned: dict[str, Any] = {"tuned": ("temperature", temperatures)}
    tasks: dict[str, Any] = {
        "raw inputs": dataclasses.replace(base, encoder=None),
        "untrained": dataclasses.replace(base, steps=0),
        "untrained, fused": dataclasses.replace(fused, steps=0),
        "autoencoder": dataclasses.replace(base, target=to_inputs),
        "supervised": dataclasses.replace(base, target=to_bits),
    }
    for label, objective in PAIRWISE.items():
        options = tuned if "temperature" in losses.takes(objective).options else {}
        tasks[label] = dataclasses.replace(base, objective=objective, **options)
    compared: dict[str, dict[str, Any]] = {
        TWICE: {"objective": pairs, "fusion": "none"},
        "fused, InfoNCE of pairs": {"objective": pairs},
        "comm, mean": {"objective": losses.comm, "fusion": "mean"},
        "inf_masking, mean": {"objective": losses.inf_masking, "fusion": "mean"},
        FUSED[0]: {"objective": losses.comm},
        FUSED[1]: {"objective": losses.inf_masking},
    }
    tasks |= {label: dataclasses.replace(fused, **options, **tuned) for label, options in compared.items()}
    if data.views == 2:
        tasks["factor_cl"] = Factorised(data=data, objective=losses.factor_cl, **sizes)
    return tasks


def _study(views: dict[str, FactorViews], temperatures: Floats, sizes: dict[str, int], **scale: Any) -> Study:
    return Study(
        title="What fused views keep",
        about=_ABOUT,
        cells=[
            Cell({"objective": label, "views": name}, task)
            for name, data in views.items()
            for label, task in _tasks(data, temperatures, **sizes).items()
        ],
        measures=(*(Measure(name, digits=2) for name in FACTORS), Measure("temperature", digits=2)),
        columns="views",
        seeds=1,
        **scale,
    )


def small(seeds: int = 10) -> Study:
    """All rows, two, three and four views, 10 networks each."""
    rows: list[_rows.Row] = []
    for label, k in itertools.product(FUSED, (2, 3, 4)):
        at, keeps = {"objective": label, "views": f"k = {k}"}, f"{label}, k = {k}, keeps unique bits"
        rows.append((f"{keeps} as the autoencoder does", at, [{"objective": "autoencoder"}]))
        rows.append((f"{keeps} better than objectives of pairs", at, _rows.levels("objective", PAIRWISE)))
    claims = _rows.above("ours", "unique", rows)
    cost = "85 minutes for 10 networks on 2 CPU cores that had other work too"
    views = {f"k = {k}": FactorViews(views=k) for k in (2, 3, 4)}
    return _study(views, (0.05, 0.1, 0.2, 0.5), {"networks": seeds}, claims=claims, cost=cost)


def smoke(seeds: int = 2) -> Study:
    """Some steps of every row, three views of which some are missing."""
    views = {"k = 3, missing": FactorViews(views=3, present=0.7)}
    sizes = {"networks": seeds, "steps": 3, "batch_size": 16}
    whole = _study(views, (0.1, 0.2), sizes, cost="two minutes on 2 cores, most of it compilation")
    return dataclasses.replace(whole, measures=whole.measures[:-1])
