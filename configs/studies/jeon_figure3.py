"""Jeon 2025, Figure 3: accuracy by training time at fixed memory; on digits with Table 1.

Source: Figure 3, Section 5.4.1; small also Table 1. Recipes `jeon/dsf`, small `digits`.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import _digits
import _jeon
import _rows

from mvcl import studies
from mvcl.studies import SEEDS, Claim, Factors, Measure, Study, trained
from mvcl.training import Config

_ABOUT = """\
CIFAR-10 with 8 views in a batch of 2,048 views, MoCo v2 and ResNet-18: loss_avg, fea_avg and DSF for 250, 400 and 800
epochs, and MoCo with 2 views for 800 and 8,000. The figure prints no numbers and we do not have it; epochs are those
that its caption and Section 5.4.1 name (the text has 11 hours at 400 epochs, which at 5.5 hours for 250 would be
500). "Similar accuracy" is decided as: not more than half a point below. The caption's "over 3x" of the linear
accuracy is 250 epochs against 800, its "over 2x" 400 against 800. The recipe is the released one."""

_ABOUT_SMALL = f"""\
Table 1 and Figure 3 on {_jeon.ON_DIGITS} The paper has twice the learning rate for DSF. A batch has 512 views, 64
images of 8 or 256 of 2. The averages and DSF have 10, 15 and 30 epochs, MoCo, whose epoch has a quarter of the views,
40 and 120, the encoder passes of 10 and 30. "Similar accuracy" is decided as: not more than half a point below. The
caption's "over 3x" of the linear accuracy is 10 epochs against 30."""

_AVERAGES = ("loss_avg", "fea_avg")


def paper(seeds: int = 1) -> Study:
    """CIFAR-10, M = 8, up to 800 epochs, and MoCo up to 8,000."""
    bases = {method: _jeon.on_images(method, recipe="released") for method in (*_AVERAGES, "DSF", "MoCo")}
    measures = (*_jeon.ACCURACIES, Measure("hours", label="hours of training", digits=2, better="lower"))
    cost = "one GPU; 5,190 PFLOP a seed, estimated from the rows of Table 1"
    return _study(bases, (250, 400, 800), (800, 8000), measures, about=_ABOUT, seeds=seeds, cost=cost)


def small(seeds: int = SEEDS) -> Study:
    """Digits, M = 8, 10, 15 and 30 epochs, and MoCo with as many encoder passes as the first and the last."""
    changes = {"views.strategy": "fixed", "train.batch_size": 256}
    bases = _jeon.on_digits(studies.changed(_jeon.digits_of(8), changes))
    measures = (*_digits.ACCURACIES, Measure("hours", label="hours of training", digits=4, better="lower"))
    cost = "80 minutes on 2 cores, estimated"
    return _study(bases, (10, 15, 30), (40, 120), measures, about=_ABOUT_SMALL, seeds=seeds, cost=cost)


def smoke(seeds: int = 2) -> Study:
    """Two steps of a tiny network on random vectors, whatever the epochs."""
    bases = {name: _jeon.smoke()[name] for name in ("loss_avg", "DSF")}
    return _study(bases, (1,), (), _digits.LINEAR, about=_ABOUT, seeds=seeds, cost="seconds on 2 cores")


def _study(
    bases: Mapping[str, Config],
    epochs: Sequence[float],
    of_moco: Sequence[float],
    measures: tuple[Measure, ...],
    **scale: Any,
) -> Study:
    averages, cells = [name for name in _AVERAGES if name in bases], []
    for method, base in bases.items():
        for number in of_moco if method == "MoCo" else epochs:
            changes = {"train.epochs": float(number)}
            factors: Factors = {"method": method, "epochs": number}
            cells.append(trained(factors, base, changes, measure=_jeon.results_and_time))
    return Study(
        unequal="The number of views in a batch is fixed (Section 5.3): MoCo compares four times the images.",
        title="Jeon 2025, Figure 3: accuracy by training time at fixed memory",
        cells=cells,
        measures=measures,
        claims=[claim for m in measures[:2] for claim in _claims(averages, epochs, of_moco, m.name)],
        reference={"method": "DSF"},
        along="epochs",
        **scale,
    )


def _claims(
    averages: Sequence[str], epochs: Sequence[float], of_moco: Sequence[float], measure: str
) -> list[Claim]:
    early, late, dsf = epochs[-2:][0], epochs[-1], {"method": "DSF"}
    similar = f"DSF at {early:g} epochs is similar to or above"
    always = "DSF is above the averages at every length of training"
    table = "Section 5.4.1; Table 1 at the first length"
    found = _rows.above(table, measure, [(always, dsf, _rows.levels("method", averages))])
    rows: list[_rows.Row] = [
        (
            f"{similar} the averages at {late:g}",
            {**dsf, "epochs": early},
            [{"method": name, "epochs": late} for name in averages],
        )
    ]
    if len(epochs) > 2 and measure != "k-NN, head":
        text = f"DSF at {epochs[0]:g} epochs is similar to or above the averages at {late:g}: 3x faster"
        rows.append((text, {**dsf, "epochs": epochs[0]}, rows[0][2]))
    found += _rows.within("Section 5.4.1; Figure 3, caption", measure, (-0.5, math.inf), rows)
    if of_moco:
        same = f"DSF at {epochs[0]:g} epochs is above MoCo at {of_moco[0]:g}, which takes the same time"
        first, last = ({"method": "MoCo", "epochs": of_moco[end]} for end in (0, -1))
        found += _rows.above("Table 1, Figure 3", measure, [(same, {**dsf, "epochs": epochs[0]}, [first])])
        rows = [(f"{similar} MoCo at {of_moco[-1]:g}", {**dsf, "epochs": early}, [last])]
        found += _rows.within("Section 5.4.1", measure, (-0.5, math.inf), rows)
    return found
