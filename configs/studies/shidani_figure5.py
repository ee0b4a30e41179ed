"""Shidani 2024, Figure 5: ImageNet-1K accuracy by strength of colour jitter and of cropping at M = 4 views.

Appendix F.3: 128 epochs, growing batch. Needs ImageNet-1K (docs/how_to/data.md).
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import _bench
import _images
import _shidani
from _shidani import ARITHMETIC, GEOMETRIC, SIMCLR

from mvcl import augment
from mvcl.studies import SEEDS, Claim, Factors, Study, Within, trained

_ABOUT = """\
The paper's figure has no numbers, and the text does not name its strengths: those here are ours. Colour: the strength
of SimCLR's jitter, {colour:g} in all other experiments, with crops of 8 % to 100 % of the area. Crop: the least area,
with jitter of strength {colour:g}. Geometric and arithmetic have M = 4 views, SimCLR 2. The paper sees no
"significantly different qualitative behavior" between SimCLR and the poly-view losses; here that is read as: from the
strength of all other experiments, colour {colour:g} and crop 0.08, to every other one, accuracy changes as that of
SimCLR, within 1 point, which is ours. One seed has no interval and decides nothing."""


_policy = partial(augment.simclr, image_size=_bench.SIDE, blur_probability=0.0, mean=(0.0,), std=(1.0,))
_TITLE = "Shidani 2024, Figure 5: augmentation strength at M = 4"


def paper(seeds: int = 1) -> Study:
    """ImageNet-1K, ResNet-50, 128 epochs."""
    base, names = _shidani.batches()["growing"], (SIMCLR, GEOMETRIC, ARITHMETIC)
    policy = partial(augment.simclr, image_size=224, blur_kernel=0)
    strengths = [("colour", s) for s in (0.25, 0.5, 0.75, 1.0)] + [
        ("crop", s) for s in (0.08, 0.25, 0.5, 0.75)
    ]
    cells = []
    for name, (kind, strength) in ((name, of) for name in names for of in strengths):
        chosen = (
            policy(strength=strength)
            if kind == "colour"
            else policy(strength=1.0, crop_scale=(strength, 1.0))
        )
        changes = {"views.k": 2 if name == SIMCLR else 4, "objective": _shidani.OBJECTIVES[name]}
        factors: Factors = {"objective": name, "augmentation": kind, "strength": strength}
        cells.append(trained(factors, base, changes | {"views.policy": chosen}))
    return Study(
        title=_TITLE,
        about=_ABOUT.format(colour=1) + " Accuracy is that of our linear probe on the validation images.",
        cells=cells,
        measures=(_shidani.SGD,),
        claims=_claims("linear, SGD", names[1:], strengths, 1.0),
        along="strength",
        reference={"objective": SIMCLR},
        seeds=seeds,
        cost="many accelerators; 320,000 PFLOP with one seed, estimated from 31,500 for M = 8 (--dry-run)",
    )


def small(seeds: int = SEEDS, *, data: Path) -> Study:
    """Part of CIFAR-10, two strengths of each. `data` is its file, .npz."""
    names, cells = (SIMCLR, GEOMETRIC), []
    strengths = [("colour", 0.5), ("colour", 1.0), ("crop", 0.08), ("crop", 0.5)]
    for name, (kind, strength) in ((name, of) for name in names for of in strengths):
        m = 2 if name == SIMCLR else 4
        changed = {}  # of the recipe: colour 0.5, crop 0.08
        if (kind, strength) == ("colour", 1.0):
            changed = {"views.policy": _policy(strength=1.0)}
        if (kind, strength) == ("crop", 0.5):
            changed = {"views.policy": _policy(strength=0.5, crop_scale=(0.5, 1.0))}
        factors: Factors = {"objective": name, "augmentation": kind, "strength": strength}
        base = _bench.bench_of(m, _bench.Images(path=str(data)))
        cells.append(_images.cell(factors, base, {"objective": _shidani.on_bench(name, m), **changed}))
    return _images.study(
        data,
        cells,
        _ABOUT.format(colour=0.5),
        title=_TITLE,
        claims=_claims(_images.LINEAR, names[1:], strengths, 0.5),
        along="strength",
        reference={"objective": SIMCLR},
        seeds=seeds,
    )


smoke = _images.smoke(small)


def _claims(
    accuracy: str, names: Sequence[str], strengths: Sequence[tuple[str, float]], colour: float
) -> list[Claim]:
    found: list[Claim] = []
    for name, (kind, strength) in ((name, of) for name in names for of in strengths):
        reference = {"colour": colour, "crop": 0.08}[kind]
        if strength != reference:
            text = f"As SimCLR between {kind} {strength} and {reference} (here: within 1 point): {name}"
            cells, than = {"objective": name, "augmentation": kind}, [{"objective": SIMCLR}]
            ends = (-1.0, 1.0, "strength")
            of = (strength, reference)
            found.append(Within(text, "Appendix F.3, Figure 5", accuracy, cells, than, *ends, of))
    return found
