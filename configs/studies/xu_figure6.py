"""Xu 2023, Figure 6: accuracy over the weight λ of the reconstruction, and over the clusters of the CMI weights.

`--data DIR` has Caltech.mat (docs/how_to/data.md).
"""

from collections.abc import Sequence
from pathlib import Path

import _sem

from mvcl import data as sources
from mvcl import studies
from mvcl.studies import Measure, Study, Within, trained
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
[The paper's page](../papers/xu.md) has the origin of every setting."""
_SMALL = """

**Small scale.** handwritten.mat, which is not from the paper, with networks of 64 units, 15 epochs of reconstruction
and 2 rounds of 10 epochs."""


def paper(seeds: int = 10, *, data: Path) -> Study:
    """Caltech.

    Args:
      data: folder with Caltech.mat.
    """
    base = studies.changed(_sem.paper("Caltech", data), {"evaluation.svm_share": 0})
    cost = "17 hours on 2 CPU cores, of the estimate in `xu/sem`"
    return _study(base, 7, _LAMBDAS, _FACTORS, seeds, cost, _ABOUT)


def small(seeds: int = 5, *, data: Path) -> Study:
    """Handwritten numerals, small networks.

    Args:
      data: handwritten.mat.
    """
    base = _sem.small(sources.Tables(path=str(data)))
    return _study(base, 10, _LAMBDAS, _FACTORS, seeds, "2 CPU cores, 2 minutes", _ABOUT + _SMALL)


def smoke(seeds: int = 2) -> Study:
    """Two epochs on random tables, three cells."""
    return _study(_sem.smoke(), 4, (0.1, 1.0), (1.0,), seeds, "seconds", _ABOUT)


def _study(
    base: Config,
    classes: int,
    lambdas: Sequence[float],
    factors: Sequence[float],
    seeds: int,
    cost: str,
    about: str,
) -> Study:
    cells = [
        trained({"varied": _LAMBDA, "value": value}, base, {"method.lam": value}) for value in lambdas
    ] + [
        trained({"varied": _CLUSTERS, "value": factor}, base, {"method.clusters": int(factor * classes)})
        for factor in factors
    ]
    insensitive = [(_LAMBDA, value) for value in (0.1, 10.0) if value in lambdas]
    insensitive += [(_CLUSTERS, factor) for factor in factors if factor != 1.0]
    return Study(
        title="Xu 2023, Figure 6: λ and the number of clusters",
        about=about,
        cells=cells,
        measures=(Measure("ACC", percent=True), Measure("NMI", percent=True)),
        claims=tuple(
            Within(
                f"SEM is not sensitive: {varied} of {value:g} against 1",
                "Section 4.3, Figure 6",
                "ACC",
                {"varied": varied, "value": value},
                ({"value": 1.0},),
                low=-_MARGIN,
                high=_MARGIN,
            )
            for varied, value in insensitive
        ),
        reference={"value": 1.0},
        along="value",
        seeds=seeds,
        cost=cost,
    )
