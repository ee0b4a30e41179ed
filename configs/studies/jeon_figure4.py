"""Jeon 2025, Figure 4: accuracy by number of views, with as many images in a batch.

Source: Figure 4, Section 5.4.2; recipes `jeon/dsf`, small `digits`.
"""

from collections.abc import Callable, Sequence
from typing import Any

import _digits
import _jeon
import _rows

from mvcl import studies
from mvcl.studies import SEEDS, Claim, Measure, Study, Trend, trained
from mvcl.training import Config

_ABOUT = """\
CIFAR-10, 256 images a batch of M views, half of them queries and half keys. The figure prints no numbers, we do not
have it, and the text does not name its M: 4, 8 and 16 are ours, and so are the data set and the 250 epochs of Table
1. The recipe is the released one. That the averages rise too is what the section cites of earlier work."""

_ABOUT_SMALL = f"""\
{_jeon.ON_DIGITS} 128 images a batch of M = 2, 4 and 8 views, 20 epochs. At M = 2 a group is one view, all
concentrations are equal, and the averages are InfoNCE."""


_NAMES = ("loss_avg", "fea_avg", "DSF")


def paper(seeds: int = 1) -> Study:
    """CIFAR-10, M = 4, 8 and 16."""
    cost = "one GPU; 2,080 PFLOP a seed, estimated from the cost at M = 8"
    measures = _jeon.ACCURACIES
    return _study(_cifar10, _NAMES, (4, 8, 16), measures, about=_ABOUT, seeds=seeds, cost=cost)


def small(seeds: int = SEEDS) -> Study:
    """Digits, M = 2, 4 and 8."""
    measures, cost = _digits.ACCURACIES, "32 minutes on 2 cores, estimated"
    return _study(_on_digits, _NAMES, (2, 4, 8), measures, about=_ABOUT_SMALL, seeds=seeds, cost=cost)


def smoke(seeds: int = 2) -> Study:
    """Two steps of a tiny network on random vectors."""
    names, measures, cost = ("loss_avg", "DSF"), _digits.LINEAR, "seconds on 2 cores"
    return _study(_random, names, (2,), measures, about=_ABOUT, seeds=seeds, cost=cost)


def _cifar10(method: str, views: int) -> Config:
    # strategy "fixed": n = 2 batch_size / k = 256.
    return studies.changed(
        _jeon.on_images(method, recipe="released"), {"views.k": views, "train.batch_size": 128 * views}
    )


def _on_digits(method: str, views: int) -> Config:
    return _jeon.on_digits(_jeon.digits_of(views))[method]


def _random(method: str, views: int) -> Config:
    return _jeon.smoke(views)[method]


def _study(
    config: Callable[[str, int], Config],
    names: Sequence[str],
    views: Sequence[int],
    measures: tuple[Measure, ...],
    **scale: Any,
) -> Study:
    claims: list[Claim] = []
    above, rises = "DSF is above the averages at every number of views", "rises with the number of views"
    row = (above, {"method": "DSF"}, _rows.levels("method", (name for name in names if name != "DSF")))
    for measure in (measure.name for measure in measures[:2]):
        claims += _rows.above("Figure 4, Section 5.4.2", measure, [row])
        for name in names if len(views) > 1 else ():
            claims.append(Trend(f"{name} {rises}", "Section 5.4.2", measure, {"method": name}, "M"))
    return Study(
        title="Jeon 2025, Figure 4: accuracy by number of views",
        cells=[trained({"method": name, "M": m}, config(name, m)) for name in names for m in views],
        measures=measures,
        claims=claims,
        columns="M",
        reference={"method": "DSF"},
        along="M",
        **scale,
    )
