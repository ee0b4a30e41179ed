"""Which objective sees what in pictures: factors of a drawn scene, shared by all views or private to one.

`python -m docs.which` writes docs/which.md from the published numbers of this study and of `which_objective`. Source:
ours.
"""

import dataclasses
import itertools
from collections.abc import Collection
from typing import Any

import _rows
from _factors_task import to_bits
from _scenes import BITS, Seen, scenes
from which_objective import TUNED, objectives, tuned

from mvcl import models
from mvcl.studies import Cell, Measure, Study

_ABOUT = """\
A picture of 16 x 16 pixels shows one object on grey, with noise: a disc, square, triangle or cross (2 bits) of one of
four hues (2 bits), left or right and up or down (2 bits), small or large (1 bit). Its place and size vary by 5% about
those of their level in every picture anew. The views of an example share either shape and size, or colour and position,
and each view has the other factors for itself: so every factor is shared in one kind of views and private in the other.

Each view has an encoder, an MLP of the pixels with 64 hidden units to 12 numbers. Steps, batches, the choice of options
by other networks and the probes are those of `which_objective`, but for 400 steps. "untrained" and "supervised" (each
picture's own bits) are the baselines; pixels themselves are too many for the probes. `shared` and `unique` are test R²
of ridge regressions on the embeddings of all views together, the means over the bits; shape to size the same of each
factor."""

PAIRS = "all_pairs(info_nce)"
_OF_PAIRS = (PAIRS, "all_pairs(siglip)", "all_pairs(vicreg)", "all_pairs(barlow_twins)")
_JOINT = ("mv_infonce", "mv_dhel", "poly_view, geometric", "sufficient_statistics", "m3g", "dsf", "gram")
SHOWN = (*_OF_PAIRS, *_JOINT, "symile, shuffled", "mmcr")  # of `which_objective`, at least one of each kind
SHARED = {"shape, size": ("shape", "size"), "colour, position": ("colour", "position")}


def _study(ks: Collection[int], base: dict[str, Any], shown: Collection[str], **scale: Any) -> Study:
    cells = []
    for k, (label, together) in itertools.product(ks, SHARED.items()):
        task = Seen(data=scenes(k, *together), encoder=models.MLP(widths=(64, 12)), **base)
        tasks = {"untrained": dataclasses.replace(task, steps=0)}
        tasks["supervised"] = dataclasses.replace(task, target=to_bits)
        for name in shown:
            objective = objectives()[name][0]
            tasks[name] = dataclasses.replace(task, objective=objective, tuned=tuned(objective))
        cells += [Cell({"objective": of, "views": f"k = {k}, {label} shared"}, tasks[of]) for of in tasks]
    return Study(
        title="Which objective sees what in pictures",
        about=_ABOUT,
        cells=tuple(cells),
        measures=tuple(Measure(name, digits=2) for name in ("shared", "unique", *BITS, *TUNED)),
        columns="views",
        seeds=1,
        **scale,
    )


def small(seeds: int = 12) -> Study:
    """An objective of each kind, 2 and 4 views, either half of the factors shared; 12 networks each."""
    pairs, untrained = {"objective": PAIRS}, {"objective": "untrained"}
    keeps = ("InfoNCE of pairs keeps what all pictures share", pairs, [untrained])
    drops = ("InfoNCE of pairs drops what one picture alone has", untrained, [pairs])
    claims = [*_rows.above("ours", "shared", [keeps]), *_rows.above("ours", "unique", [drops])]
    sizes = {"networks": seeds, "steps": 400}
    return _study(
        (2, 4), sizes, SHOWN, claims=claims, cost="2 hours for 12 networks on 2 cores with --jobs 2"
    )


def smoke(seeds: int = 2) -> Study:
    """Some steps of the baselines and of two objectives."""
    sizes = {"networks": seeds, "steps": 3, "batch_size": 16}
    return _study((2,), sizes, SHOWN[:2], cost="a minute on 2 cores, most of it compilation")
