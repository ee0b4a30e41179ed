"""Xu 2023, Tables 3 and 4 and Figure 6: SEM's weights, its reconstruction, λ, and the clusters of its weights.

`--data DIR` has DHA.mat, CCV and Caltech.mat (docs/how_to/data.md).
"""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import _rows
import _sem
import numpy as np

from mvcl.studies import SEEDS, Cell, Claim, Measure, Study, Values, changed, results, trained
from mvcl.training import Config

_WEIGHTS, _TERM, _LAMBDA, _CLUSTERS = "weights", "reconstruction", "λ", "clusters / K"
_WITHOUT, _HALF = "without", "without, λ = 2"
_OTHERS = "{}, different views"  # no pairs of a view with itself
# Part -> setting -> changes, and ACC on DHA and CCV.
_TABLES: Mapping[str, Mapping[str, tuple[Mapping[str, Any], float, float]]] = {
    _WEIGHTS: {
        _WITHOUT: ({"method.weights": "none"}, 71.3, 33.5),
        "CMI": ({"method.weights": "cmi"}, 80.9, 39.4),
        "JSD": ({"method.weights": "jsd"}, 80.5, 35.6),
        "MMD": ({"method.weights": "mmd"}, 84.4, 33.9),
    },
    _TERM: {
        _WITHOUT: ({"method.lam": 0.0}, 60.5, 28.7),
        "AE": ({"method.reconstruction": "ae"}, 80.9, 39.4),
        "DAE": ({"method.reconstruction": "dae"}, 81.5, 38.4),
        "MAE": ({"method.reconstruction": "mae"}, 83.0, 39.5),
    },
}
_ROWS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    **{part: {setting: of[0] for setting, of in settings.items()} for part, settings in _TABLES.items()},
    _LAMBDA: {f"{10.0**power:g}": {"method.lam": 10.0**power} for power in range(-3, 4)},
}
_MEASURES = (
    *_sem.CLUSTERS,
    Measure("ACC before", label="ACC before the contrast", percent=True, better=""),
    Measure("W", label="mean weight of two different views", digits=3, better=""),
    Measure("W, deviation", label="deviation of the weight over pairs", digits=3, better=""),
)
_MARGIN = 5.0  # points of accuracy that count as sensitive; the paper names none
_ABOUT = f"""\
SEM sums a contrastive loss over pairs of views, each with a weight, and adds λ times a reconstruction error. Each row
changes one part; the others are InfoNCE, the weights CMI, the reconstruction AE and λ = 1. Weights: CMI, the mutual
information of the clusters of two views; JSD, the Jensen-Shannon divergence of their features; MMD, their maximum mean
discrepancy; without, 1 for every pair. Reconstruction: AE, by plain autoencoders; DAE, of inputs with noise; MAE, of
inputs with 30% set to zero; without, λ = 0 after the 100 epochs of pre-training, which every row has. Whether the
paper's row without was pre-trained is not said. Clusters / K: the number of clusters of each view, from which CMI is
computed, over K, the number of classes; K/2 is rounded down, as in the released code. ACC and NMI are of K clusters of
the embeddings Z of all views side by side.

The text says that DAE and MAE perform better than AE; Table 4 prints DAE 1.0 below AE on CCV. It says that all three
weights improve significantly; Table 3 prints MMD 0.4 above none on CCV, and the two tables print no deviations. That
CMI "generally achieves the best performance" is a statement of Appendix C, on more data sets, and no claim here. Figure
6 has no numbers and its text names no data set; at scale paper it is Caltech, the set of Section 4.3. "Not sensitive"
means here within {_MARGIN:g} points of ACC of λ = 1 and of K clusters, a margin of ours.

Weights change three things: they differ between pairs of different views, which is the paper's reason for them; their
mean differs from 1, which is as another λ; and a pair of a view with itself, which only pushes examples apart, has a
weight of its own, e - 1 = 1.7 by CMI and JSD, 1 by MMD and without. On DHA, of two views, there is one weight of
different views, so that none of its gains is of weights that differ. By JSD the weights of embeddings, which have unit
length, are all near 1.7, as of equal weights and λ = 0.6; only the first ones, of the hidden features H, may differ.
The weight of two different views is the mean over pairs and rounds, its deviation that over pairs, a mean over
rounds.

ACC before the contrast is of H, as Z is a random projection of H before it is trained; with AE it is the same in all
rows. Where training ends below it, a row that performs better may just lose less. {_sem.PAGE}"""
_EQUAL = f"""

The row "{_HALF}", ours, has equal weights too. To Adam, which ignores the size of a loss, it is λ = 1 with all weights
0.5, in the encoders, the part that both terms train. CMI above both rows says that neither λ alone explains its gain;
it does not say that unequal weights do. The rows "different views", ours, leave out the pairs of a view with itself,
which leaves the first two of the three changes. They were added when the other rows had run: CMI and MMD, by which a
view with itself weighs twice as much as two views, are above JSD and the rows without, where both weigh the same. The
rows CMI, AE, λ = 1 and clusters / K = 1 are the same runs."""


def paper(seeds: int = 10, *, data: Path) -> Study:
    """DHA and CCV, and λ and clusters on Caltech. `data` is the folder with DHA.mat, CCV and Caltech.mat."""
    cells = []
    for place, name in enumerate(("DHA", "CCV")):
        for cell in _cells(_clustered(name, data), name, {part: _ROWS[part] for part in _TABLES}):
            _, *printed = _TABLES[str(cell.factors["part"])][str(cell.factors["setting"])]
            cells.append(dataclasses.replace(cell, printed={"ACC": printed[place]}))
    rows = {_LAMBDA: _ROWS[_LAMBDA], _CLUSTERS: _clusters(7)}
    cells += _cells(_clustered("Caltech", data), "Caltech", rows)
    return _study(
        cells,
        _ABOUT,
        seeds=seeds,
        cost=f"{4.6 * seeds:.2g} hours on 2 CPU cores, of the estimates in `xu/sem`",
    )


def small(seeds: int = SEEDS, *, data: Path) -> Study:
    """Handwritten numerals, small networks. `data` is handwritten.mat."""
    few = {setting: _ROWS[_LAMBDA][setting] for setting in ("0.1", "1", "10")}  # of the claims
    weights = {**_ROWS[_WEIGHTS], _HALF: {"method.weights": "none", "method.lam": 2.0}}
    others = {"objective.pairs": "ordered"}
    weights |= {_OTHERS.format(row): {**_ROWS[_WEIGHTS][row], **others} for row in (_WITHOUT, "CMI")}
    rows = {**_ROWS, _WEIGHTS: weights, _LAMBDA: few, _CLUSTERS: _clusters(10)}
    cells = _cells(_sem.tables(data), "handwritten", rows)
    about = f"{_ABOUT}{_EQUAL}{_sem.SMALL}, and 10 starts of K-means in place of 100, for W and for ACC."
    return _study(cells, about, seeds=seeds, cost=f"{0.15 * seeds:.2g} hours on 2 CPU cores")


def smoke(seeds: int = 2) -> Study:
    """Two epochs on random tables, two rows."""
    rows = {_WEIGHTS: {name: _ROWS[_WEIGHTS][name] for name in (_WITHOUT, "CMI")}}
    return _study(_cells(_sem.smoke(), "random", rows), _ABOUT, seeds=seeds, cost="seconds")


def with_weights(folder: Path) -> Sequence[Values]:
    """`results`, "ACC before" the contrast, and the mean "W" of two views with its "W, deviation" over pairs."""
    [found] = results(folder)
    lines = [json.loads(line) for line in (folder / "refresh.jsonl").read_text().splitlines()]
    weighted = {line["step"]: line for line in lines if "weights" in line}  # a resumed run repeats a line
    steps = sorted(weighted)
    used = steps[:-1] or steps  # after the last step none trains
    weights = np.array([weighted[step]["weights"] for step in used])
    pairs = weights[:, ~np.eye(weights.shape[1], dtype=bool)]
    found |= {"W": float(pairs.mean()), "W, deviation": float(pairs.std(axis=1).mean())}
    return [found | {"ACC before": weighted[steps[0]]["acc_all"]}]


def _clustered(name: str, data: Path) -> Config:
    return changed(_sem.paper(name, data), {"evaluation.svm_share": 0})


def _clusters(classes: int) -> dict[str, dict[str, Any]]:
    """K is the default, so that its runs are those of other rows."""
    changes = {share: {"method.clusters": int(share * classes)} for share in (0.5, 2, 4)} | {1: {}}
    return {f"{share:g}": changes[share] for share in sorted(changes)}


def _cells(base: Config, data: str, rows: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> list[Cell]:
    return [
        trained({"part": part, "setting": setting, "data": data}, base, changes, measure=with_weights)
        for part, settings in rows.items()
        for setting, changes in settings.items()
    ]


def _study(cells: Sequence[Cell], about: str, **scale: Any) -> Study:
    claims = list[Claim]()
    known = {(cell.factors["part"], cell.factors["setting"]) for cell in cells}
    tables = {_WEIGHTS: "Section 4.2, Table 3", _TERM: "Section 4.2, Table 4"}
    pairs = [(_WEIGHTS, setting, _WITHOUT) for setting in ("CMI", "JSD", "MMD")]
    pairs += [(_TERM, row, than) for than in (_WITHOUT, "AE") for row in ("AE", "DAE", "MAE") if row != than]
    pairs += [(_LAMBDA, setting, "1") for setting in ("0.1", "10")]
    pairs += [(_CLUSTERS, setting, "1") for setting in ("0.5", "2", "4")]
    for part, setting, than in (pair for pair in pairs if {pair[:2], pair[::2]} <= known):
        cell, others = {"part": part, "setting": setting}, [{"setting": than}]
        if part in tables:
            row = (f"{part}: {setting} performs better than {than}", cell, others)
            claims += _rows.above(tables[part], "ACC", [row])
        else:
            row = (f"SEM is not sensitive to {part}: {setting} against 1", cell, others)
            source = f"Section 4.3, Figure 6, with our bound of {_MARGIN:g} points"
            claims += _rows.within(source, "ACC", (-_MARGIN, _MARGIN), [row])
    for setting, than in (("CMI", _HALF), (_OTHERS.format("CMI"), _OTHERS.format(_WITHOUT))):
        if (_WEIGHTS, than) in known:
            text, cell = f"{_WEIGHTS}: {setting} performs better than {than}", {"part": _WEIGHTS}
            claims += _rows.above("ours", "ACC", [(text, cell | {"setting": setting}, [{"setting": than}])])
    return Study(
        title="Xu 2023, Tables 3 and 4 and Figure 6: the parts of SEM",
        about=about,
        cells=cells,
        measures=_MEASURES,
        claims=claims,
        columns="data",
        **scale,
    )
