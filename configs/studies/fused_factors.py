"""What fused views keep: CoMM, InfMasking and FactorCL on views of known factors, and what fusion does without them.

Source: ours.
"""

import dataclasses
from functools import partial
from typing import Any

import _rows
from _factors import FACTORS, FactorViews
from _factors_task import Factored, to_bits, to_inputs
from _fused_task import Factorised, Fused, Tuned

from mvcl import losses
from mvcl.studies import Cell, Measure, Study

_ABOUT = """\
The views are those of the study which_objective: `shared` bits are in all views, `pair` bits in two neighbouring
ones, `unique` bits in one, and three neighbours tell a bit of `synergy` that no two of them tell. Encoders, steps
and probes are the same too: an MLP of 48 hidden units to 12 numbers of each view, 600 steps of Adam on 128 fresh
instances, test R² of ridge regressions, of the synergy the squared correlation with the product of what is read of
its parts.

Rows with "fused" have one more network: the numbers of each encoder are cut into 3 tokens, which one attention
layer of 4 heads fuses with a class token of as many numbers as all encoders give; the probes of all views read
that. Inputs are augmented twice: a tenth of the entries set to 0, noise of deviation 0.1. Objectives that compare
fusions, CoMM and InfMasking, have such a network. InfMasking has four maskings of half of the tokens, at its full
ratio. FactorCL, of two views, has a shared and a unique head of 6 numbers each and critics of 32 hidden units.

The controls separate network and loss: "fused, InfoNCE of pairs" has the network, and compares each view fused
alone; "comm, mean" has CoMM's loss, and the mean of the views' embeddings in place of the fusion.

Temperatures are chosen from 0.05, 0.1, 0.2 and 0.5 by validation, on other draws, renderings and first weights: the
best mean of the factors. Rows of one kind of views have the same data and first encoders, so that differences are
paired."""

_INFO_NCE = losses.all_pairs(losses.info_nce)


def _views() -> dict[str, FactorViews]:
    """Label -> the views."""
    return {
        "k = 2": FactorViews(views=2),
        "k = 3": FactorViews(views=3),
        "k = 3, no pair bits": FactorViews(views=3, shared=1, pair=0, unique=1),
        "k = 4": FactorViews(views=4),
        "k = 3, missing": FactorViews(views=3, present=0.7),
    }


def _tasks(data: FactorViews, temperatures: tuple[float, ...], **sizes: Any) -> dict[str, Any]:
    """Label -> the cell."""
    base, fused = Factored(data=data, **sizes), Fused(data=data, **sizes)
    tuned = partial(Tuned, temperatures=temperatures, validation=min(3, base.networks))
    compared = {
        "all_pairs(info_nce)": dataclasses.replace(base, objective=_INFO_NCE),
        "mv_infonce": dataclasses.replace(base, objective=losses.mv_infonce),
        "symile": dataclasses.replace(base, objective=partial(losses.symile, negatives="shuffled")),
        "comm, fused": dataclasses.replace(fused, objective=losses.comm),
        "inf_masking, fused": dataclasses.replace(fused, objective=losses.inf_masking),
        "fused, InfoNCE of pairs": dataclasses.replace(fused, objective=_INFO_NCE),
        "comm, mean": dataclasses.replace(fused, objective=losses.comm, fusion="mean"),
    }
    tasks: dict[str, Any] = {
        "raw inputs": dataclasses.replace(base, encoder=None),
        "untrained": dataclasses.replace(base, steps=0),
        "untrained, fused": dataclasses.replace(fused, steps=0),
        "autoencoder": dataclasses.replace(base, target=to_inputs),
        "supervised": dataclasses.replace(base, target=to_bits),
        **{label: tuned(task=task) for label, task in compared.items()},
    }
    if data.views == 2:
        tasks["factor_cl"] = Factorised(data=data, objective=losses.factor_cl, **sizes)
    return tasks


def _study(
    networks: int, views: dict[str, FactorViews], temperatures: tuple[float, ...], **scale: Any
) -> Study:
    sizes = {"networks": networks, **scale.pop("sizes", {})}
    grid = {name: _tasks(data, temperatures, **sizes) for name, data in views.items()}
    cells = (
        Cell({"objective": label, "views": name}, task)
        for name, tasks in grid.items()
        for label, task in tasks.items()
    )
    names = (*FACTORS, "shared, one view", "pair, one view")
    return Study(
        title="What fused views keep",
        about=_ABOUT,
        cells=tuple(cells),
        measures=(*(Measure(name, digits=2) for name in names), Measure("temperature", digits=2)),
        columns="views",
        seeds=1,
        **scale,
    )


def small(seeds: int = 20) -> Study:
    """All rows, five kinds of views, 20 networks each."""
    fused = [{"objective": f"{name}, fused", "views": "k = 3"} for name in ("comm", "inf_masking")]
    others = [{"objective": name} for name in ("all_pairs(info_nce)", "mv_infonce", "symile")]
    claims = []
    for at, name in zip(fused, ("CoMM", "InfMasking")):
        rows = [(f"{name} keeps unique bits better than objectives of the views", at, others)]
        rows += [
            (
                f"{name} keeps unique bits better than its network does",
                at,
                [{"objective": "fused, InfoNCE of pairs"}],
            )
        ]
        claims += _rows.above("ours", "unique", rows)
        kept = [(f"{name} keeps unique bits as the autoencoder does", at, [{"objective": "autoencoder"}])]
        claims += _rows.above("ours", "unique", kept)
    told = [("InfMasking tells more of the synergy than CoMM", fused[1], fused[:1])]
    claims += _rows.above("ours", "synergy", told)
    return _study(seeds, _views(), (0.05, 0.1, 0.2, 0.5), claims=claims, cost="not measured")


def smoke(seeds: int = 2) -> Study:
    """Some steps of every row, two and three views, the latter also with missing ones."""
    kinds = {name: _views()[name] for name in ("k = 2", "k = 3, missing")}
    sizes = {"steps": 3, "batch_size": 16}
    return _study(
        seeds, kinds, (0.1, 0.2), sizes=sizes, cost="two minutes on 2 cores, most of it compilation"
    )
