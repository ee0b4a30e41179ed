"""Jeon 2025, Table 3: DSF by temperature.

Source: Table 3, Section 5.5; recipes `jeon/dsf`, small `digits`.
"""

from collections.abc import Mapping, Sequence

import _digits
import _jeon

from mvcl import studies, training
from mvcl.studies import Above, Measure, Study, trained
from mvcl.training import Config

_ABOUT = """\
DSF with MoCo v2 on CIFAR-10, its similarities divided by a temperature. The text has 0.1 to 5.0, the table 0.8 to
1.1. At 1 the table prints more than Table 1 does for the same method (k-NN 91.8 and 90.04, linear 92.5 and 91.21),
and no epochs; here are Table 1's 250."""

_ABOUT_SMALL = """\
1,437 training and 360 test digits of 8 x 8 pixels with 4 views, a ConvNet of widths 16, 32 and 64, MoCo v2 with a
queue of 512 whose keys are the only negatives, momentum 0.99, 5 epochs of AdamW at 3e-3 (the paper: CIFAR-10, 8
views, ResNet-18, SGD). Temperatures span the text's range, 0.1 to 5, rather than the table's, whose printed
differences of half a point this small size cannot show. The accuracy is that of 10 labels a class, the mean of 10
draws."""

_PRINTED = {0.8: (91.2, 92.0), 0.9: (91.3, 92.3), 1.0: (91.8, 92.5), 1.1: (91.4, 92.0)}


def paper(seeds: int = 1) -> Study:
    """CIFAR-10, the table's temperatures."""
    measures = (Measure("k-NN", percent=True), Measure("linear, SGD", label="linear accuracy", percent=True))
    base = training.load("jeon/dsf:cifar10")
    cost = "one GPU; 792 PFLOP a seed, from the recipe's cost"
    return _study(base, tuple(_PRINTED), measures, _PRINTED, _ABOUT, seeds, cost)


def small(seeds: int = 5) -> Study:
    """Digits, temperatures 0.1 to 5."""
    base = _jeon.on_digits(studies.changed(_digits.digits_of(4), {"train.epochs": 5.0}))["DSF"]
    temperatures = (0.1, 0.5, 1.0, 2.0, 5.0)
    return _study(
        base, temperatures, _digits.ACCURACIES, {}, _ABOUT_SMALL, seeds, "1 minute on 2 cores, estimated"
    )


def smoke(seeds: int = 2) -> Study:
    """Two steps of a tiny network on random vectors."""
    base = _jeon.on_digits(_digits.vectors_of(2), queue=16)["DSF"]
    measures = (Measure("linear", percent=True),)
    return _study(base, (0.5, 1.0), measures, {}, _ABOUT, seeds, "seconds on 2 cores")


def _study(
    base: Config,
    temperatures: Sequence[float],
    measures: tuple[Measure, ...],
    printed: Mapping[float, tuple[float, ...]],
    about: str,
    seeds: int,
    cost: str,
) -> Study:
    return Study(
        title="Jeon 2025, Table 3: DSF by temperature",
        about=about,
        cells=tuple(
            trained(
                {"temperature": temperature},
                base,
                {"objective.temperature": temperature},
                printed=dict(zip((measure.name for measure in measures), printed.get(temperature, ()))),
            )
            for temperature in temperatures
        ),
        measures=measures,
        claims=tuple(
            Above(
                f"temperature 1 is above {temperature:g}",
                "Table 3, Section 5.5",
                measure.name,
                {"temperature": 1.0},
                ({"temperature": temperature},),
            )
            for measure in measures[:2]
            for temperature in temperatures
            if temperature != 1
        ),
        reference={"temperature": 1.0},
        along="temperature",
        seeds=seeds,
        cost=cost,
    )
