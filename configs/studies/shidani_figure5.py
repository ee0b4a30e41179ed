"""Shidani 2024, Figure 5: ImageNet-1K accuracy by strength of colour jitter and of cropping at M = 4 views.

Appendix F.3: 128 epochs, growing batch. Needs ImageNet-1K (docs/how_to/data.md).
"""

from functools import partial
from typing import Any

from mvcl import augment, losses, models, studies, training
from mvcl.studies import Above, Measure, Study, trained
from mvcl.training import Config

_ABOUT = """\
The paper's figure has no numbers, and the text does not name its strengths: those here are ours. Colour: the strength
of SimCLR's jitter, 1 in all other experiments, with crops of 8 % to 100 % of the area. Crop: the least area, with
jitter of strength 1. Geometric and arithmetic have M = 4 views, SimCLR 2. Accuracy is that of our linear probe on the
validation images. The paper sees no "significantly different qualitative behavior" between SimCLR and the poly-view
losses; here that is read as the same order at every strength."""

SIMCLR, GEOMETRIC, ARITHMETIC = "SimCLR", "Poly-view, geometric", "Poly-view, arithmetic"
_OBJECTIVES: dict[str, dict[str, Any]] = {
    SIMCLR: {"views.k": 2, "objective": partial(losses.nt_xent, temperature=0.1)},
    GEOMETRIC: {
        "views.k": 4,
        "objective": partial(losses.poly_view, aggregation="geometric", temperature=0.1),
    },
    ARITHMETIC: {
        "views.k": 4,
        "objective": partial(losses.poly_view, aggregation="arithmetic", temperature=0.1),
    },
}


def paper(seeds: int = 1) -> Study:
    """ImageNet-1K, ResNet-50, 128 epochs."""
    cost = "many accelerators; 320,000 PFLOP with one seed, estimated from 31,500 for M = 8 (--dry-run)"
    base = training.load("shidani/imagenet1k:growing_batch")
    return _study(base, 224, (0.25, 0.5, 0.75, 1.0), (0.08, 0.25, 0.5, 0.75), seeds, cost)


def smoke(seeds: int = 2) -> Study:
    """Some steps of a small network on random images."""
    small = studies.changed(
        training.load("shidani/imagenet1k:smoke"),
        {"encoder": models.ConvNet(widths=(4, 8)), "evaluation.linear": None},
    )
    return _study(small, 32, (1.0,), (0.5,), seeds, "seconds", "k-NN", (SIMCLR, GEOMETRIC))


def _study(
    base: Config,
    size: int,
    strengths: tuple[float, ...],
    areas: tuple[float, ...],
    seeds: int,
    cost: str,
    accuracy: str = "linear, SGD",
    names: tuple[str, ...] = tuple(_OBJECTIVES),
) -> Study:
    policy = partial(augment.simclr, image_size=size, blur_kernel=0)
    policies = [("colour", s, policy(strength=s)) for s in strengths]
    policies += [("crop", area, policy(strength=1.0, crop_scale=(area, 1.0))) for area in areas]
    cells = tuple(
        trained(
            {"objective": name, "augmentation": kind, "strength": strength},
            base,
            _OBJECTIVES[name] | {"views.policy": chosen},
        )
        for name in names
        for kind, strength, chosen in policies
    )
    return Study(
        title="Shidani 2024, Figure 5: augmentation strength on ImageNet-1K at M = 4",
        about=_ABOUT,
        cells=cells,
        measures=(Measure(accuracy, label="accuracy", percent=True, digits=2),),
        claims=tuple(
            Above(
                f"As SimCLR behaves (here: above SimCLR at every strength of {kind}): {name}",
                "Appendix F.3, Figure 5",
                accuracy,
                {"objective": name, "augmentation": kind},
                ({"objective": SIMCLR},),
            )
            for name in names
            if name != SIMCLR
            for kind in ("colour", "crop")
        ),
        along="strength",
        reference={"objective": SIMCLR},
        seeds=seeds,
        cost=cost,
    )
