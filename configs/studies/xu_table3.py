"""Xu 2023, Table 3: SEM's weights of the pairs of views, CMI, JSD and MMD, and none.

`--data DIR` has DHA.mat and CCV (docs/how_to/data.md).
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import _rows
import _sem

from mvcl.studies import SEEDS, Study
from mvcl.training import Config

_WITHOUT = "without W"
_WEIGHTS = {
    _WITHOUT: {"method.weights": "none"},
    "CMI": {"method.weights": "cmi"},
    "JSD": {"method.weights": "jsd"},
    "MMD": {"method.weights": "mmd"},
}
_PRINTED = {_WITHOUT: (71.3, 33.5), "CMI": (80.9, 39.4), "JSD": (80.5, 35.6), "MMD": (84.4, 33.9)}
_ABOUT = f"""\
The pair loss is InfoNCE and the reconstruction is that of plain autoencoders. Without W every pair of views has the
weight 1. K-means on the embeddings of all views side by side.

That CMI "generally achieves the best performance" is a statement of Appendix C, on more data sets, and no claim here.
The paper's times for the weights are in Appendix C too.
{_sem.PAGE}"""


def paper(seeds: int = 10, *, data: Path) -> Study:
    """DHA and CCV. `data` is the folder with DHA.mat and CCV."""
    cost = "17 hours on 2 CPU cores, of the estimates in `xu/sem`"
    return _study(_sem.dha_ccv(data), _WEIGHTS, about=_ABOUT, seeds=seeds, cost=cost)


def small(seeds: int = SEEDS, *, data: Path) -> Study:
    """Handwritten numerals, small networks. `data` is handwritten.mat."""
    bases, about = {"handwritten": _sem.tables(data)}, f"{_ABOUT}{_sem.SMALL}."
    return _study(bases, _WEIGHTS, about=about, seeds=seeds, cost="52 minutes on 2 CPU cores, estimated")


def smoke(seeds: int = 2) -> Study:
    """Two epochs on random tables, two rows."""
    two = {row: _WEIGHTS[row] for row in (_WITHOUT, "CMI")}
    return _study({"random": _sem.smoke()}, two, about=_ABOUT, seeds=seeds, cost="seconds")


def _study(bases: Mapping[str, Config], rows: Mapping[str, Mapping[str, str]], **scale: Any) -> Study:
    title, than = "Xu 2023, Table 3: weighting strategies", [{"weights": _WITHOUT}]
    others = [row for row in rows if row != _WITHOUT]
    better = _rows.each("weights by {weights} improve on equal weights", {}, than, weights=others)
    claims = _rows.above("Section 4.2, Table 3", "ACC", better)
    return _sem.ablation(rows, bases, _PRINTED, factor="weights", title=title, claims=claims, **scale)
