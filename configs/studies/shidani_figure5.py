"""Shidani 2024, Figure 5: ImageNet-1K accuracy by strength of colour jitter and of cropping at M = 4 views.

Appendix F.3: 128 epochs, growing batch. Needs ImageNet-1K (docs/how_to/data.md).
"""

from functools import partial
from typing import Any

import _shidani
from _shidani import ARITHMETIC, GEOMETRIC, SIMCLR

from mvcl import augment
from mvcl.studies import Factors, Measure, Study, Within, trained
from mvcl.training import Config

_ABOUT = """\
The paper's figure has no numbers, and the text does not name its strengths: those here are ours. Colour: the strength
of SimCLR's jitter, 1 in all other experiments, with crops of 8 % to 100 % of the area. Crop: the least area, with
jitter of strength 1. Geometric and arithmetic have M = 4 views, SimCLR 2. Accuracy is that of our linear probe on the
validation images. The paper sees no "significantly different qualitative behavior" between SimCLR and the poly-view
losses; here that is read as: from the strength of all other experiments, colour 1 and crop 0.08, to every other one,
accuracy changes as that of SimCLR, within 1 point, which is ours. One seed has no interval and decides nothing."""


def paper(seeds: int = 1) -> Study:
    """ImageNet-1K, ResNet-50, 128 epochs."""
    cost = "many accelerators; 320,000 PFLOP with one seed, estimated from 31,500 for M = 8 (--dry-run)"
    policies = _policies(224, (0.25, 0.5, 0.75, 1.0), (0.08, 0.25, 0.5, 0.75))
    base, names = _shidani.batches()["growing"], (SIMCLR, GEOMETRIC, ARITHMETIC)
    return _study(base, policies, _shidani.SGD, names, seeds=seeds, cost=cost)


def smoke(seeds: int = 2) -> Study:
    """Some steps of a small network on random images."""
    base, policies = _shidani.small(), _policies(32, (0.5, 1.0), (0.08, 0.5))
    return _study(base, policies, _shidani.KNN, (SIMCLR, GEOMETRIC), seeds=seeds, cost="seconds")


Policies = list[tuple[str, float, augment.Policy]]


def _policies(size: int, strengths: tuple[float, ...], areas: tuple[float, ...]) -> Policies:
    """Kind, strength and policy."""
    policy = partial(augment.simclr, image_size=size, blur_kernel=0)
    colours = [("colour", s, policy(strength=s)) for s in strengths]
    return colours + [("crop", area, policy(strength=1.0, crop_scale=(area, 1.0))) for area in areas]


def _study(
    base: Config, policies: Policies, accuracy: Measure, names: tuple[str, ...], **scale: Any
) -> Study:
    text = "As SimCLR between {augmentation} {strength} and {reference} (here: within 1 point): {objective}"
    reference = {"colour": 1.0, "crop": 0.08}
    cells = []
    for name in names:
        changes = {"views.k": 2 if name == SIMCLR else 4, "objective": _shidani.OBJECTIVES[name]}
        for kind, strength, policy in policies:
            factors: Factors = {"objective": name, "augmentation": kind, "strength": strength}
            cells.append(trained(factors, base, changes | {"views.policy": policy}))
    return Study(
        title="Shidani 2024, Figure 5: augmentation strength on ImageNet-1K at M = 4",
        about=_ABOUT,
        cells=cells,
        measures=(accuracy,),
        claims=[
            Within(
                text.format(augmentation=kind, strength=strength, reference=reference[kind], objective=name),
                "Appendix F.3, Figure 5",
                accuracy.name,
                {"objective": name, "augmentation": kind},
                [{"objective": SIMCLR}],
                *(-1.0, 1.0, "strength"),
                (strength, reference[kind]),
            )
            for name in names[1:]
            for kind, strength, _ in policies
            if strength != reference[kind]
        ],
        along="strength",
        reference={"objective": SIMCLR},
        **scale,
    )
