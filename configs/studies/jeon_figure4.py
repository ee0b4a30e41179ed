"""Jeon 2025, Figure 4: accuracy by number of views, with as many images in a batch.

Source: Figure 4, Section 5.4.2; recipes `jeon/dsf`, small `digits`.
"""

from collections.abc import Callable, Sequence

import _digits
import _jeon

from mvcl import studies, training
from mvcl.studies import Above, Claim, Measure, Study, Trend, trained
from mvcl.training import Config

_ABOUT = """\
CIFAR-10, 256 images a batch of M views, half of them queries and half keys. The figure prints no numbers, we do not
have it, and the text does not name its M: 4, 8 and 16 are ours, and so are the data set and the 250 epochs of Table
1. That the averages rise too is what the section cites of earlier work."""

_ABOUT_SMALL = """\
1,437 training and 360 test digits of 8 x 8 pixels, 128 images a batch of M = 2, 4 and 8 views, a ConvNet of widths
16, 32 and 64, MoCo v2 with a queue of 512 whose keys are the only negatives, momentum 0.99, 5 epochs of AdamW at 3e-3
for all cells (the paper: CIFAR-10, ResNet-18, SGD, twice the learning rate for DSF). At M = 2 a group is one view,
all concentrations are equal, and the averages are InfoNCE. The accuracy is that of 10 labels a class, the mean of 10
draws."""


def paper(seeds: int = 1) -> Study:
    """CIFAR-10, M = 4, 8 and 16."""
    measures = (Measure("k-NN", percent=True), Measure("linear, SGD", label="linear accuracy", percent=True))
    names = ("loss_avg", "fea_avg", "DSF")
    cost = "one GPU; 2,080 PFLOP a seed, estimated from the cost at M = 8"
    return _study(_cifar10, names, (4, 8, 16), measures, _ABOUT, seeds, cost)


def small(seeds: int = 5) -> Study:
    """Digits, M = 2, 4 and 8."""
    names = ("loss_avg", "fea_avg", "DSF")
    return _study(
        _on_digits,
        names,
        (2, 4, 8),
        _digits.ACCURACIES,
        _ABOUT_SMALL,
        seeds,
        "2 minutes on 2 cores, estimated",
    )


def smoke(seeds: int = 2) -> Study:
    """Two steps of a tiny network on random vectors."""
    measures = (Measure("linear", percent=True),)
    return _study(_random, ("loss_avg", "DSF"), (2,), measures, _ABOUT, seeds, "seconds on 2 cores")


def _cifar10(method: str, views: int) -> Config:
    variant = {"loss_avg": "_loss_avg", "fea_avg": "_fea_avg", "DSF": ""}[method]
    # strategy "fixed": n = 2 batch_size / k = 256.
    changes = {"views.k": views, "train.batch_size": 128 * views}
    return studies.changed(training.load(f"jeon/dsf:cifar10{variant}"), changes)


def _on_digits(method: str, views: int) -> Config:
    return _jeon.on_digits(studies.changed(_digits.digits_of(views), {"train.epochs": 5.0}))[method]


def _random(method: str, views: int) -> Config:
    return _jeon.on_digits(_digits.vectors_of(views), queue=16)[method]


def _study(
    config: Callable[[str, int], Config],
    names: Sequence[str],
    views: Sequence[int],
    measures: tuple[Measure, ...],
    about: str,
    seeds: int,
    cost: str,
) -> Study:
    claims: list[Claim] = []
    for measure in measures[:2]:
        claims.append(
            Above(
                "DSF is above the averages at every number of views",
                "Figure 4, Section 5.4.2",
                measure.name,
                {"method": "DSF"},
                tuple({"method": name} for name in names if name != "DSF"),
            )
        )
        claims += [
            Trend(
                f"{name} rises with the number of views", "Section 5.4.2", measure.name, {"method": name}, "M"
            )
            for name in names
            if len(views) > 1
        ]
    return Study(
        title="Jeon 2025, Figure 4: accuracy by number of views",
        about=about,
        cells=tuple(trained({"method": name, "M": m}, config(name, m)) for name in names for m in views),
        measures=measures,
        claims=claims,
        columns="M",
        reference={"method": "DSF"},
        along="M",
        seeds=seeds,
        cost=cost,
    )
