"""Xu 2023, Table 3: SEM's weights of the pairs of views, CMI, JSD and MMD, and none.

`--data DIR` has DHA.mat and CCV (docs/how_to/data.md).
"""

from collections.abc import Mapping
from pathlib import Path

import _sem

from mvcl import data as sources
from mvcl.studies import Above, Study
from mvcl.training import Config

_WITHOUT = "without W"
_WEIGHTS = {_WITHOUT: "none", "CMI": "cmi", "JSD": "jsd", "MMD": "mmd"}
_PRINTED = {_WITHOUT: (71.3, 33.5), "CMI": (80.9, 39.4), "JSD": (80.5, 35.6), "MMD": (84.4, 33.9)}
_ABOUT = """\
The pair loss is InfoNCE and the reconstruction is that of plain autoencoders. Without W every pair of views has the
weight 1. K-means on the embeddings of all views side by side.

That CMI "generally achieves the best performance" is a statement of Appendix C, on more data sets, and no claim here.
The paper's times for the weights are in Appendix C too.
[The paper's page](../papers/xu.md) has the origin of every setting."""
_SMALL = """

**Small scale.** handwritten.mat, 2,000 digits in 6 tables, which is not from the paper, with networks of 64 units, 15
epochs of reconstruction and 2 rounds of 10 epochs."""


def paper(seeds: int = 10, *, data: Path) -> Study:
    """DHA and CCV.

    Args:
      data: folder with DHA.mat and CCV.
    """
    cost = "17 hours on 2 CPU cores, of the estimates in `xu/sem`"
    return _study(_sem.dha_ccv(data), _WEIGHTS, seeds, cost, _ABOUT, _PRINTED)


def small(seeds: int = 5, *, data: Path) -> Study:
    """Handwritten numerals, small networks.

    Args:
      data: handwritten.mat.
    """
    base = _sem.small(sources.Tables(path=str(data)))
    return _study({"handwritten": base}, _WEIGHTS, seeds, "2 CPU cores, 1 minute", _ABOUT + _SMALL)


def smoke(seeds: int = 2) -> Study:
    """Two epochs on random tables, two rows."""
    two = {row: _WEIGHTS[row] for row in (_WITHOUT, "CMI")}
    return _study({"random": _sem.smoke()}, two, seeds, "seconds", _ABOUT)


def _study(
    bases: Mapping[str, Config],
    weights: Mapping[str, str],
    seeds: int,
    cost: str,
    about: str,
    printed: Mapping[str, tuple[float, float]] | None = None,
) -> Study:
    claims = tuple(
        Above(
            f"weights by {row} improve on equal weights",
            "Section 4.2, Table 3",
            "ACC",
            {"weights": row},
            ({"weights": _WITHOUT},),
        )
        for row in weights
        if row != _WITHOUT
    )
    rows = {row: {"method.weights": name} for row, name in weights.items()}
    return _sem.ablation(
        "Xu 2023, Table 3: weighting strategies",
        about,
        rows,
        bases,
        claims,
        factor="weights",
        seeds=seeds,
        cost=cost,
        printed=printed,
    )
