"""Xu 2023, Figure 6: accuracy over the weight λ of the reconstruction, and over the clusters of the CMI weights.

`--data DIR` has Caltech.mat (docs/how_to/data.md).
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import _rows
import _sem

from mvcl.studies import SEEDS, Study, trained
from mvcl.training import Config

_LAMBDAS = (1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0, 1000.0)
_FACTORS = (0.5, 1.0, 2.0, 4.0)
_LAMBDA, _CLUSTERS = "λ", "clusters / K"
_MARGIN = 5.0  # points of accuracy that count as sensitive; the paper names none
_ABOUT = f"""\
λ is the weight of the reconstruction; the clusters are those of single views, for the CMI weights, where all views
together have K, the number of classes. K/2 is rounded down, as in the released code. The paper shows a figure without
numbers, and says that SEM is "not sensitive"; here that means within {_MARGIN:g} points of ACC of λ = 1 and of K
clusters, a margin of ours. The text names no data set; here it is Caltech, the set of Section 4.3.
{_sem.PAGE}"""


def paper(seeds: int = 10, *, data: Path) -> Study:
    """Caltech. `data` is the folder with Caltech.mat."""
    base, cost = _sem.clustered("Caltech", data), "20 hours on 2 CPU cores, of the estimate in `xu/sem`"
    return _study(base, 7, _LAMBDAS, _FACTORS, about=_ABOUT, seeds=seeds, cost=cost)


def small(seeds: int = SEEDS, *, data: Path) -> Study:
    """Handwritten numerals, small networks. `data` is handwritten.mat."""
    base, about, cost = _sem.tables(data), f"{_ABOUT}{_sem.SMALL}.", "2.5 hours on 2 CPU cores, estimated"
    return _study(base, 10, _LAMBDAS, _FACTORS, about=about, seeds=seeds, cost=cost)


def smoke(seeds: int = 2) -> Study:
    """Two epochs on random tables, three cells."""
    return _study(_sem.smoke(), 4, (0.1, 1.0), (1.0,), about=_ABOUT, seeds=seeds, cost="seconds")


def _study(
    base: Config, classes: int, lambdas: Sequence[float], factors: Sequence[float], **scale: Any
) -> Study:
    changes = [(_LAMBDA, value, {"method.lam": value}) for value in lambdas]
    changes += [(_CLUSTERS, value, {"method.clusters": int(value * classes)}) for value in factors]
    text, one = "SEM is not sensitive: {varied} of {value:g} against 1", [{"value": 1.0}]
    rows = _rows.each(text, {}, one, varied=[_LAMBDA], value=[x for x in lambdas if x in (0.1, 10.0)])
    rows += _rows.each(text, {}, one, varied=[_CLUSTERS], value=[x for x in factors if x != 1])
    return Study(
        title="Xu 2023, Figure 6: λ and the number of clusters",
        cells=[trained({"varied": name, "value": value}, base, of) for name, value, of in changes],
        measures=_sem.CLUSTERS,
        claims=_rows.within("Section 4.3, Figure 6", "ACC", (-_MARGIN, _MARGIN), rows),
        reference={"value": 1.0},
        along="value",
        **scale,
    )
