"""Xu 2023, Table 2: clusters of InfoNCE, PSCL, RINCE and CMC, with and without SEM's weights and reconstruction.

`--data DIR` has the paper's five sets, DHA.mat, CCV, NUSWIDE.mat, Caltech.mat and Video-3V.mat (docs/how_to/data.md).
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import _rows
import _sem

from mvcl.studies import Cell, Claim, Factors, Study, Training
from mvcl.training import Config

_BASELINE = "K-Means-BSV"
_SETS = ("DHA", "CCV", "NUSWIDE", "Caltech", "YoutubeVideo")
# ACC and NMI on each set, in its order.
_PRINTED: Mapping[str, tuple[float, ...]] = {
    _BASELINE: (66.6, 78.0, 19.5, 17.8, 39.7, 11.6, 85.1, 75.6, 16.5, 15.9),
    "InfoNCE": (54.9, 77.7, 25.8, 25.9, 56.3, 30.3, 79.9, 71.4, 19.6, 19.7),
    "PSCL": (39.8, 72.9, 21.5, 24.3, 53.4, 27.4, 67.8, 69.5, 15.4, 14.3),
    "RINCE": (49.9, 76.3, 22.5, 23.5, 56.6, 30.8, 80.3, 72.0, 14.7, 13.6),
    "CMC": (65.0, 79.2, 21.3, 21.8, 56.2, 24.7, 72.7, 60.3, 19.4, 19.6),
    "SEM+InfoNCE": (80.9, 84.1, 39.4, 35.5, 60.4, 34.9, 87.2, 80.3, 31.3, 31.1),
    "SEM+PSCL": (69.7, 81.4, 39.3, 35.9, 57.8, 32.6, 86.3, 78.6, 32.2, 32.2),
    "SEM+RINCE": (76.3, 82.8, 38.9, 34.6, 60.6, 35.6, 85.4, 76.7, 29.8, 29.5),
}
_ABOUT = f"""\
K-means on the embeddings of all views side by side; a value is the mean of 10 runs of K-means of 10 starts after one
training, where the released code has one run of 100 starts. K-Means-BSV is K-means on the best single raw table.

The rows without SEM have the weights 1 and no reconstruction, after the same 100 epochs of reconstruction and with the
pairs of a view with itself. Whether the paper's rows have either is not said. CMC is the sum over the pairs of
different views with InfoNCE, not CMC's own code. DCP, MFLVC and DSIMVC are not implemented.
{_sem.PAGE}"""


def paper(seeds: int = 10, *, data: Path) -> Study:
    """The five sets of the paper. `data` is the folder with DHA.mat, CCV, NUSWIDE.mat, Caltech.mat and Video-3V.mat."""
    bases = {name: _sem.clustered(name, data) for name in _SETS}
    cost = "160 hours on 2 CPU cores, of the estimates in `xu/sem`"
    return _study(bases, tuple(_PRINTED), about=_ABOUT, seeds=seeds, cost=cost)


def small(seeds: int = 5, *, data: Path) -> Study:
    """Handwritten numerals, small networks. `data` is handwritten.mat."""
    bases, cost = {"handwritten": _sem.tables(data)}, "2 CPU cores, 2 minutes"
    about = f"{_ABOUT}{_sem.SMALL}; a value is the mean of 3 runs of K-means of 3 starts."
    return _study(bases, tuple(_PRINTED), about=about, seeds=seeds, cost=cost)


def smoke(seeds: int = 2) -> Study:
    """Two epochs on random tables, three rows."""
    rows = (_BASELINE, "InfoNCE", "SEM+InfoNCE")
    return _study({"random": _sem.smoke()}, rows, about=_ABOUT, seeds=seeds, cost="seconds")


def _study(bases: Mapping[str, Config], rows: tuple[str, ...], **scale: Any) -> Study:
    cells = []
    for column, (name, base) in enumerate(bases.items()):
        methods = _sem.methods_of(base)
        for row in rows:
            task = _sem.BestView(config=base) if row == _BASELINE else Training(config=methods[row])
            values = dict(zip(("ACC", "NMI"), _PRINTED[row][2 * column :])) if name in _SETS else {}
            cells.append(Cell({"method": row, "data": name}, task, values))
    on = {f", {name}": {"data": name} for name in ("DHA", "Caltech") if name in bases}
    return Study(
        title="Xu 2023, Table 2: linear clustering",
        cells=cells,
        measures=_sem.CLUSTERS,
        claims=_claims(rows, on or {"": {}}),
        columns="data",
        reference={"method": _BASELINE},
        **scale,
    )


def _claims(rows: tuple[str, ...], on: Mapping[str, Factors]) -> list[Claim]:
    """Those whose rows are there; the loss of high-quality views is claimed on the sets `on`."""
    plain = [row for row in ("InfoNCE", "PSCL", "RINCE", "CMC") if row in rows]
    with_sem = [row for row in rows if row.startswith("SEM+")]
    raw, source = "the best single raw view", "Section 4.1, Table 2"
    found: list[Claim] = []
    for row in with_sem:
        for measure in ("ACC", "NMI"):
            text = f"{row} improves on {row[4:]} ({measure})"
            found += _rows.above(source, measure, [(text, {"method": row}, [{"method": row[4:]}])])
    for other, than in (("all multi-view contrastive methods without SEM", plain), (raw, [_BASELINE])):
        others = _rows.levels("method", than)
        texts = ((f"{row} outperforms {other} (ACC)", {"method": row}, others) for row in with_sem)
        found += _rows.above(source, "ACC", texts)
    for name, factors in on.items():
        worse = "is worse than the best single raw view"
        for row in plain[1:]:
            text = f"without SEM, {row} {worse} (ACC{name})"
            found += _rows.above(source, "ACC", [(text, {"method": _BASELINE, **factors}, [{"method": row}])])
    return found
