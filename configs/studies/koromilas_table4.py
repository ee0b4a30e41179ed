"""Koromilas 2025, Table IV: sentiment from text, audio and vision.

There is no small scale: no offline data have three modalities of one scene, and views drawn from images are not the
paper's question.
Source: Table IV, Section V-B; recipe `koromilas/sentiment`. Features of CMU-MOSEI and CH-SIMS are prepared by `mvcl
data prepare sentiment` (docs/how_to/data.md).
"""

from collections.abc import Mapping, Sequence

import _koromilas
import _rows

from mvcl import evaluation, methods, studies, training
from mvcl.studies import Cell, Claim, Study, Task
from mvcl.training import Config

_ABOUT = """\
A linear layer on the concatenated features of three frozen transformers, the mean of 3 layers and 3 trainings
(appendix E). Each row has the one learning rate of {{1e-5, 5e-5, 1e-4}} whose trainings have the least mean error on
the validation split; the paper tunes them in this range "for each contrastive objective independently" and does not say
by what. "Supervised", an upper bound, trains everything on the labels for 100 epochs; the paper gives no rate, so it
has the same three. The accuracy is {accuracies}: the paper does not say which of the usual binary accuracies it prints.

In the paper's own numbers MV-InfoNCE's MAE on CMU-MOSEI (0.708) is above that of PWE (0.707)."""

_NAMES = {"PWE": "pwe", "AVG": "avg", "PVC": "PVC", "MV-InfoNCE": "MV-InfoNCE", "MV-DHEL": "MV-DHEL"}
_SUPERVISED = "Supervised"
_PRINTED = {
    "CMU-MOSEI": {
        "Supervised": (82.9, 0.587),
        "PWE": (75.4, 0.707),
        "AVG": (75.7, 0.713),
        "PVC": (74.3, 0.755),
        "MV-InfoNCE": (76.8, 0.708),
        "MV-DHEL": (79.6, 0.668),
    },
    "CH-SIMS": {
        "Supervised": (83.2, 0.354),
        "PWE": (76.1, 0.448),
        "AVG": (76.3, 0.468),
        "PVC": (68.1, 0.563),
        "MV-InfoNCE": (76.6, 0.421),
        "MV-DHEL": (79.4, 0.392),
    },
}


def paper(seeds: int = 3, *, accuracy: str = "accuracy positive") -> Study:
    """CMU-MOSEI and CH-SIMS; `seeds` trainings of each cell at each learning rate.

    Args:
      accuracy: "accuracy positive", MERBench's, or "accuracy above zero", MMSA's for CH-SIMS.
    """
    bases = {
        "CMU-MOSEI": training.load("koromilas/sentiment:mosei"),
        "CH-SIMS": training.load("koromilas/sentiment:chsims"),
    }
    cost = "one GPU; 1,150 PFLOP, from the recipes' cost at 3 seeds"
    return _study(bases, (*_NAMES, _SUPERVISED), _koromilas.RATES, accuracy, seeds, cost)


def smoke(seeds: int = 2) -> Study:
    """Some steps of tiny networks on random vectors of three kinds."""
    bases, names, accuracy = {"random": _koromilas.sentiment_smoke()}, ("PWE", "MV-DHEL"), "accuracy positive"
    return _study(bases, names, (1e-4,), accuracy, seeds, "seconds on 2 cores")


def _task(base: Config, name: str, rates: tuple[float, ...], trainings: int) -> Task:
    if name != _SUPERVISED:
        return _koromilas.sentiment(base, _NAMES[name], rates, trainings)
    alone = {"method": methods.Supervised(), "evaluation": evaluation.Predictions(), "train.epochs": 100.0}
    return _koromilas.TunedRate(config=studies.changed(base, alone), rates=rates, trainings=trainings)


def _study(
    bases: Mapping[str, Config],
    names: Sequence[str],
    rates: tuple[float, ...],
    accuracy: str,
    trainings: int,
    cost: str,
) -> Study:
    cells = []
    for data, base in bases.items():
        for name in names:
            printed = dict(zip((accuracy, "MAE"), _PRINTED.get(data, {}).get(name, ())))
            cells.append(Cell({"data": data, "method": name}, _task(base, name, rates, trainings), printed))
    return Study(
        title="Koromilas 2025, Table IV: sentiment from text, audio and vision",
        about=_ABOUT.format(accuracies=f'"{accuracy}"'),
        cells=cells,
        measures=_koromilas.sentiment_measures(accuracy),
        claims=[claim for data in bases for claim in _claims(data, names, accuracy)],
        reference={"method": "PWE"},
        printed_runs=3,
        seeds=1,
        cost=cost,
    )


def _claims(data: str, names: Sequence[str], accuracy: str) -> list[Claim]:
    """(text, first, others, whether of MAE too): the first is better than each of the others."""
    contrastive = [name for name in names if name != _SUPERVISED]
    rows = [
        ("MV-DHEL is the best objective", "MV-DHEL", [name for name in contrastive if name != "MV-DHEL"]),
        ("MV-InfoNCE is second", "MV-InfoNCE", ["PWE", "AVG", "PVC"]),
        ("supervised training is an upper bound", _SUPERVISED, contrastive),
        *((f"PVC is worse than {name}", name, ["PVC"]) for name in ("PWE", "AVG")),
    ]
    found: list[Claim] = []
    for text, first, others in rows:
        others = [name for name in others if name in names]
        if first not in names or not others:
            continue
        row = (f"{text}, {data}", {"data": data, "method": first}, _rows.levels("method", others))
        found += _rows.above("Table IV, Section V-B", accuracy, [row])
        error = _rows.each(
            f"{text}, {data}: {{method}} has a larger error",
            {"data": data},
            [{"method": first}],
            method=others,
        )
        found += _rows.above("Table IV, Section V-B", "MAE", error)
    return found
