"""Jeon 2025, Table 3: DSF by temperature.

Source: Table 3, Section 5.5; recipes `jeon/dsf`, small `digits`.
"""

from collections.abc import Sequence
from typing import Any

import _digits
import _jeon
import _rows

from mvcl.studies import SEEDS, Claim, Measure, Study, trained
from mvcl.training import Config

_ABOUT = """\
DSF with MoCo v2 on CIFAR-10, its similarities divided by a temperature. The text has 0.1 to 5.0, the table 0.8 to
1.1. At 1 the table prints more than Table 1 does for the same method (k-NN 91.8 and 90.04, linear 92.5 and 91.21),
and no epochs; here are Table 1's 250. The recipe is the released one; `--recipe paper` has the paper's settings where
the code differs."""

_ABOUT_SMALL = f"""\
{_jeon.ON_DIGITS} 4 views, 20 epochs. Temperatures span the text's range, 0.1 to 5, rather than the table's, whose
printed differences of half a point this small size cannot show."""

_PRINTED = {0.8: (91.2, 92.0), 0.9: (91.3, 92.3), 1.0: (91.8, 92.5), 1.1: (91.4, 92.0)}


def paper(seeds: int = 1, *, recipe: _jeon.Recipe = "released") -> Study:
    """CIFAR-10, the table's temperatures."""
    base, cost = _jeon.on_images("DSF", recipe=recipe), "one GPU; 792 PFLOP a seed, from the recipe's cost"
    return _study(
        base, tuple(_PRINTED), _jeon.ACCURACIES, about=_ABOUT, noise=_jeon.NOISE, seeds=seeds, cost=cost
    )


def small(seeds: int = SEEDS) -> Study:
    """Digits, temperatures 0.1 to 5."""
    base = _jeon.on_digits(_jeon.digits_of(4))["DSF"]
    measures, cost = _digits.ACCURACIES, "20 minutes on 2 cores, estimated"
    return _study(base, (0.1, 0.5, 1.0, 2.0, 5.0), measures, about=_ABOUT_SMALL, seeds=seeds, cost=cost)


def smoke(seeds: int = 2) -> Study:
    """Two steps of a tiny network on random vectors."""
    base, cost = _jeon.smoke()["DSF"], "seconds on 2 cores"
    return _study(base, (0.5, 1.0), _digits.LINEAR, about=_ABOUT, seeds=seeds, cost=cost)


def _study(base: Config, temperatures: Sequence[float], measures: tuple[Measure, ...], **scale: Any) -> Study:
    printed = _PRINTED if measures == _jeon.ACCURACIES else {}
    names = [measure.name for measure in measures]
    claims: list[Claim] = []
    for measure in names[:2]:
        others = [t for t in temperatures if t != 1]
        rows = _rows.against("temperature 1 is above {:g}", {"temperature": 1.0}, "temperature", others)
        claims += _rows.above("Table 3, Section 5.5", measure, rows)
    cells = []
    for t in temperatures:
        known = dict(zip(names, printed.get(t, ())))
        cells.append(trained({"temperature": t}, base, {"objective.temperature": t}, known))
    return Study(
        title="Jeon 2025, Table 3: DSF by temperature",
        cells=cells,
        measures=measures,
        claims=claims,
        reference={"temperature": 1.0},
        along="temperature",
        **scale,
    )
