"""Shidani 2024, Figure 5: ImageNet-1K accuracy by strength of colour jitter and of cropping at M = 4 views.

Appendix F.3: 128 epochs, growing batch. Needs ImageNet-1K (docs/how_to/data.md).
"""

import itertools
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import _bench
import _images
import _rows
import _shidani
from _shidani import ARITHMETIC, GEOMETRIC, SIMCLR

from mvcl import augment
from mvcl.studies import SEEDS, Claim, Factors, Study, Within, trained

_ABOUT = """\
The paper's figure has no numbers, and the text does not name its strengths: those here are ours. Colour: the strength
of SimCLR's jitter, {colour:g} in all other experiments, with crops of 8 % to 100 % of the area. Crop: the least area,
with jitter of strength {colour:g}. The poly-view losses have M = 4 views, SimCLR 2. The paper sees no
"significantly different qualitative behavior" between SimCLR and the poly-view losses; here that is read as: from the
strength of all other experiments, colour {colour:g} and crop 0.08, to every other one, accuracy changes as that of
SimCLR, within 1 point, which is ours. One seed has no interval and decides nothing."""
_policy = partial(augment.simclr, image_size=_bench.SIDE, blur_probability=0.0, mean=(0.0,), std=(1.0,))
Strengths = Sequence[tuple[str, float]]
_TITLE, _REFERENCE = "Shidani 2024, Figure 5: augmentation strength at M = 4", {"objective": SIMCLR}
_SAME: Any = {"title": _TITLE, "along": "strength", "reference": _REFERENCE}


def paper(seeds: int = 1) -> Study:
    """ImageNet-1K, ResNet-50, 128 epochs."""
    base, names = _shidani.batches()["growing"], (SIMCLR, GEOMETRIC, ARITHMETIC)
    policy = partial(augment.simclr, image_size=224, blur_kernel=0)
    levels = {"colour": (0.25, 0.5, 0.75, 1.0), "crop": (0.08, 0.25, 0.5, 0.75)}
    strengths = [(kind, s) for kind, of in levels.items() for s in of]
    cells = []
    for name, (kind, strength) in itertools.product(names, strengths):
        of = {"strength": strength} if kind == "colour" else {"strength": 1.0, "crop_scale": (strength, 1.0)}
        changes = {"views.k": 2 if name == SIMCLR else 4, "objective": _shidani.OBJECTIVES[name]}
        factors: Factors = {"objective": name, "augmentation": kind, "strength": strength}
        cells.append(trained(factors, base, changes | {"views.policy": policy(**of)}))
    return Study(
        **_SAME,
        about=_ABOUT.format(colour=1) + " Accuracy is that of our linear probe on the validation images.",
        cells=cells,
        measures=(_shidani.SGD,),
        claims=_claims("linear, SGD", names[1:], strengths, 1.0),
        seeds=seeds,
        cost=_rows.of_gpus(342_000, "a seed, from M = 8"),
    )


def small(seeds: int = SEEDS, *, data: Path) -> Study:
    """Part of CIFAR-10, two strengths of each. `data` is its file, .npz."""
    names, cells = (SIMCLR, GEOMETRIC), []
    policies: dict[tuple[str, float], dict[str, Any]] = {  # the recipe has colour 0.5 and crop 0.08
        ("colour", 0.5): {},
        ("colour", 1.0): {"views.policy": _policy(strength=1.0)},
        ("crop", 0.08): {},
        ("crop", 0.5): {"views.policy": _policy(strength=0.5, crop_scale=(0.5, 1.0))},
    }
    for name, (kind, strength) in itertools.product(names, policies):
        m = 2 if name == SIMCLR else 4
        changes = {"objective": _shidani.on_bench(name, m), **policies[kind, strength]}
        factors: Factors = {"objective": name, "augmentation": kind, "strength": strength}
        cells.append(_images.cell(factors, _images.bench(data, m), changes))
    claims = _claims(_images.LINEAR, names[1:], [*policies], 0.5)
    return _images.study(data, cells, _ABOUT.format(colour=0.5), **_SAME, claims=claims, seeds=seeds)


smoke = _images.smoke(small)


def _claims(accuracy: str, names: Sequence[str], strengths: Strengths, colour: float) -> list[Claim]:
    found: list[Claim] = []
    for name, (kind, strength) in itertools.product(names, strengths):
        reference = {"colour": colour, "crop": 0.08}[kind]
        if strength != reference:
            text = f"As SimCLR between {kind} {strength} and {reference} (here: within 1 point): {name}"
            cells, than = {"objective": name, "augmentation": kind}, [{"objective": SIMCLR}]
            ends = (-1.0, 1.0, "strength", (strength, reference))
            found.append(Within(text, "Appendix F.3, Figure 5", accuracy, cells, than, *ends))
    return found
