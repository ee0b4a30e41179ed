"""Control: SEM's training in the paper and in its released code, part by part.

Algorithm 1 of Xu 2023 leaves the last, smaller batch of an epoch out and has one Adam. The released code
(SubmissionsIn/SEM, train.py, network.py, metric.py) uses that batch, has a new Adam after every contrastive epoch,
draws the initial biases, and takes the best of 100 K-means for the weights.
Source: ours. `--data FILE` is handwritten.mat (docs/how_to/data.md).
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import _rows
import _sem

from mvcl import data as sources
from mvcl import training
from mvcl.studies import SEEDS, Measure, Study, Values, changed, trained
from mvcl.training import Config

_PAPER, _RELEASED = "paper", "as released"
_OFF: Mapping[str, Any] = {
    "method.restart_optimizer": False,
    "method.last_batch": False,
    "method.uniform_biases": False,
    "method.k_means_starts": 10,
}
_ROWS: Mapping[str, Mapping[str, Any]] = {
    _PAPER: {"method.paper": True},
    "+ new Adam every epoch": {"method.restart_optimizer": True},
    "+ last batch": {"method.last_batch": True},
    "+ drawn biases": {"method.uniform_biases": True},
    "+ 100 starts": {"method.k_means_starts": 100},
    _RELEASED: {"method.as_released": True},
}
_WHEN = ("reconstruction", "round 1", "round 2")
_ABOUT = """\
ACC and NMI of K-means on all views, 10 starts, after 100 epochs of reconstruction and after each of two rounds of 50
epochs of `xu/sem:handwritten`. "paper" is `--method.paper`: one Adam, whose moments of the embedding layer begin with
the contrast, since the reconstruction does not train it; no smaller last batch; biases zero; 10 K-means starts for the
weights. Each row with "+" adds one part of the released training; "as released", `--method.as-released`, has all four.

The rule for the default of `method:sem`, written before the runs: the highest mean NMI after round 2, the end of the
recipe; of rows whose paired difference to it has 0 in its 95% interval, the one with the fewest changes to the
paper."""


def of_rounds(folder: Path) -> Sequence[Values]:
    """ACC and NMI of all views where W is computed: after the reconstruction and after each round."""
    lines = [json.loads(line) for line in (folder / "refresh.jsonl").read_text().splitlines()]
    found = {line["step"]: line for line in lines if "weights" in line}  # a resumed run repeats a line
    ends = zip(_WHEN, (found[step] for step in sorted(found)), strict=True)
    return [
        {f"{name}, {when}": line[f"{name.lower()}_all"] for when, line in ends for name in ("ACC", "NMI")}
    ]


def small(seeds: int = SEEDS, *, data: Path) -> Study:
    """Handwritten numerals, small networks. `data` is handwritten.mat."""
    cost, about = f"{4 * seeds} minutes on 2 CPU cores, of `xu_figure2`", f"{_ABOUT}{_sem.SMALL}."
    return _study(_sem.tables(data), tuple(_ROWS), about=about, seeds=seeds, cost=cost)


def paper(seeds: int = 3, *, data: Path) -> Study:
    """Handwritten numerals with the paper's networks. `data` is handwritten.mat."""
    released = {"method.hidden": (500, 500, 2000), "method.features": 512, "method.embedding": 128}
    released |= {"optimizer.learning_rate": 3e-4, "optimizer.end_learning_rate": 3e-4}
    base, cost = changed(_sem.tables(data), released), f"{40 * seeds} minutes on 2 idle CPU cores, estimated"
    return _study(base, tuple(_ROWS), about=_ABOUT, seeds=seeds, cost=cost)


def smoke(seeds: int = 2) -> Study:
    """Three epochs of tiny networks on random tables, three rows."""
    views = sources.Synthetic(view_shapes=((6,), (9,), (4,)))
    few = {"data": views, "method.as_released": False, "evaluation.svm_share": 0}
    base = changed(training.load("xu/sem:smoke"), few)
    return _study(base, (_PAPER, "+ last batch", _RELEASED), about=_ABOUT, seeds=seeds, cost="seconds")


def _study(base: Config, rows: Sequence[str], **scale: Any) -> Study:
    end, paper = f"NMI, {_WHEN[-1]}", [{"training": _PAPER}]
    text = "{training} ends with a higher NMI than the paper's training"
    better = _rows.each(text, {}, paper, training=[row for row in rows if row != _PAPER])
    return Study(
        title="Control: SEM's training, the paper's and the released",
        cells=[trained({"training": row}, base, {**_OFF, **_ROWS[row]}, measure=of_rounds) for row in rows],
        measures=[Measure(f"{of}, {when}", percent=True) for of in ("NMI", "ACC") for when in _WHEN[::-1]],
        claims=_rows.above("ours", end, better),
        reference=paper[0],
        **scale,
    )
