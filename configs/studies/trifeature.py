"""What fused views keep of pictures: shape shared by all, texture or colour of one alone, and what only all tell.

Source: ours, after the bimodal Trifeature of CoMM (Dufumier and Castillo-Navarro 2025).
"""

import dataclasses
import itertools
from typing import Any

import _rows
from _pictured import Pictured
from fused_factors import FUSED, PAIRWISE, TWICE

from mvcl import losses
from mvcl.studies import Cell, Measure, Study

_ABOUT = """\
Two or three pictures of an example, 16 x 16 pixels, each a coloured, textured shape at a random place, scale and
rotation: five shapes, textures and colours. All share the shape; picture 1 alone has its texture, picture 2 its colour,
picture 3 its texture. The synergy is a fair bit: whether the texture of picture 2 belongs, by a fixed table, to the
colour of picture 1, of three pictures to the sum of the colours of 1 and 3 (`configs/studies/_trifeature.py`).

Every row has the same encoder for each picture, an MLP of its 4 x 4 patches to 16 numbers, the same steps of Adam on
64 fresh examples, and a head of two layers. Rows with "fused" cut the 16 numbers of a picture into 2 tokens, which one
attention layer of 4 heads fuses to as many numbers as all encoders give: the library's `methods.Fused`, with three
maskings for InfMasking. A second augmentation is another picture of the same factors: the best that one can do, which
changes place, scale, rotation and noise alone. The released code crops, changes colours and blurs. For the synergy it
trains on matches alone; here half of the examples match in training too.

The controls separate network, augmentation and loss, as those of fused_factors do; "comm, mean" and "inf_masking, mean"
have the mean of the tokens in place of attention.

The autoencoder restores the picture, "supervised" tells the three factors of each picture. FactorCL has a shared and a
unique linear head of each view, which are probed, and critics of 32 hidden units. Temperatures are the best of 0.05,
0.1, 0.2 and 0.5 for another network on other draws, by the mean of all accuracies.

The numbers are accuracies of ridge regressions of each factor on the features, of 4,096 test examples, fitted on 4,096
others; training, fit and test have different pictures. Chance is 0.2, of the synergy 0.5. Raw is the mean of blocks of
2 x 2 pixels."""
_FACTORS = ("shared", "unique1", "unique2", "unique3", "synergy")


def _tasks(base: Pictured, temperatures: tuple[float, ...]) -> dict[str, Pictured]:
    """Label -> the cell."""
    compared: dict[str, dict[str, Any]] = {
        "comm, fused": {"objective": losses.comm, "fusion": "attention"},
        "inf_masking, fused": {"objective": losses.inf_masking, "fusion": "attention"},
        "fused, InfoNCE of pairs": {"objective": losses.all_pairs(losses.info_nce), "fusion": "attention"},
        TWICE: {"objective": losses.all_pairs(losses.info_nce), "sides": 2},
        "comm, mean": {"objective": losses.comm, "fusion": "mean"},
        "inf_masking, mean": {"objective": losses.inf_masking, "fusion": "mean"},
        **{label: {"objective": objective} for label, objective in PAIRWISE.items()},
    }
    rows: dict[str, dict[str, Any]] = {
        "raw": {"row": "raw"},
        "untrained, fused": {"fusion": "attention", "steps": 0},
        "autoencoder": {"row": "autoencoder"},
        "supervised": {"row": "supervised"},
    }
    if base.views == 2:
        rows["factor_cl"] = {"row": "factor_cl", "objective": losses.factor_cl, "sides": 2}
    for label, options in compared.items():
        tuned = "temperature" in losses.takes(options["objective"]).options
        rows[label] = {**options, "temperatures": temperatures if tuned else ()}
    return {label: dataclasses.replace(base, **options) for label, options in rows.items()}


def _study(views: dict[str, Pictured], temperatures: tuple[float, ...], **scale: Any) -> Study:
    return Study(
        title="What fused pictures keep",
        about=_ABOUT,
        cells=[
            Cell({"objective": label, "pictures": name}, task)
            for name, base in views.items()
            for label, task in _tasks(base, temperatures).items()
        ],
        measures=(*(Measure(name, digits=3) for name in _FACTORS), Measure("temperature", digits=2)),
        columns="pictures",
        seeds=1,
        **scale,
    )


def small(seeds: int = 20) -> Study:
    """Two and three pictures, 600 steps, 20 networks of each row."""
    claims, pairs = [], _rows.levels("objective", PAIRWISE)
    for label, k in itertools.product(FUSED, (2, 3)):
        at = {"objective": label, "pictures": f"k = {k}"}
        for name in _FACTORS[1 : k + 1]:
            kept = f"{label}, k = {k}, keeps {name} as the autoencoder does, or better"
            above = f"{label}, k = {k}, keeps {name} by 10 points better than objectives of pairs"
            claims += _rows.within("ours", name, (0.0, 1.0), [(kept, at, [{"objective": "autoencoder"}])])
            claims += _rows.within("ours", name, (0.1, 1.0), [(above, at, pairs)])
        if label == FUSED[1]:
            told: _rows.Row = (f"{label}, k = {k}, tells the synergy above 0.6", at, [])
            claims += _rows.within("ours", "synergy", (0.6, 1.0), [told])
    views = {f"k = {k}": Pictured(views=k, networks=seeds) for k in (2, 3)}
    cost = "an hour of one CPU for 20 networks, estimated from 5"
    return _study(views, (0.05, 0.1, 0.2, 0.5), claims=claims, cost=cost)


def smoke(seeds: int = 1) -> Study:
    """A few steps of some rows."""
    few = Pictured(views=3, networks=seeds, steps=2, batch_size=8)
    whole = _study({"k = 3": few}, (0.1,), cost="two minutes on 2 cores, most of it compilation")
    shown = ["raw", "autoencoder", "supervised", "comm, mean", FUSED[1], TWICE]
    cells = [c for c in whole.cells if c.factors["objective"] in shown]
    return dataclasses.replace(whole, cells=cells, measures=whole.measures[:-1])
