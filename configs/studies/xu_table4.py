"""Xu 2023, Table 4: SEM's reconstruction by plain, denoising and masked autoencoders, and none.

`--data DIR` has DHA.mat and CCV (docs/how_to/data.md).
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import _rows
import _sem

from mvcl.studies import SEEDS, Study
from mvcl.training import Config

_WITHOUT = "without R"
_TERMS: Mapping[str, Mapping[str, Any]] = {
    _WITHOUT: {"method.lam": 0.0},
    "AE": {"method.reconstruction": "ae"},
    "DAE": {"method.reconstruction": "dae"},
    "MAE": {"method.reconstruction": "mae"},
}
_PRINTED = {_WITHOUT: (60.5, 28.7), "AE": (80.9, 39.4), "DAE": (81.5, 38.4), "MAE": (83.0, 39.5)}
_ABOUT = f"""\
The pair loss is InfoNCE and the weights are CMI's. Without R nothing is reconstructed after the pre-training, which is
that of plain autoencoders there; whether the paper's row has the pre-training is not said. K-means on the embeddings of
all views side by side.

The text says that DAE and MAE perform better than AE; the table prints DAE 1.0 below AE on CCV.
{_sem.PAGE}"""


def paper(seeds: int = 10, *, data: Path) -> Study:
    """DHA and CCV. `data` is the folder with DHA.mat and CCV."""
    cost = "17 hours on 2 CPU cores, of the estimates in `xu/sem`"
    return _study(_sem.dha_ccv(data), _TERMS, about=_ABOUT, seeds=seeds, cost=cost)


def small(seeds: int = SEEDS, *, data: Path) -> Study:
    """Handwritten numerals, small networks. `data` is handwritten.mat."""
    bases, about = {"handwritten": _sem.tables(data)}, f"{_ABOUT}{_sem.SMALL}."
    return _study(bases, _TERMS, about=about, seeds=seeds, cost="52 minutes on 2 CPU cores, estimated")


def smoke(seeds: int = 2) -> Study:
    """Two epochs on random tables, two rows."""
    two = {row: _TERMS[row] for row in (_WITHOUT, "MAE")}
    return _study({"random": _sem.smoke()}, two, about=_ABOUT, seeds=seeds, cost="seconds")


def _study(bases: Mapping[str, Config], rows: Mapping[str, Mapping[str, Any]], **scale: Any) -> Study:
    title, factor = "Xu 2023, Table 4: reconstruction terms", "reconstruction"
    pairs = [(row, than) for than in (_WITHOUT, "AE") for row in ("AE", "DAE", "MAE") if row != than]
    claims = _rows.above(
        "Section 4.2, Table 4",
        "ACC",
        [
            (f"{row} performs better than {than}", {factor: row}, [{factor: than}])
            for row, than in pairs
            if {row, than} <= rows.keys()
        ],
    )
    return _sem.ablation(rows, bases, _PRINTED, factor=factor, title=title, claims=claims, **scale)
