"""Koromilas 2025, Fig. 4 (top) and Table V: accuracy at 4 views by images in a batch.

Source: Sections V-C4 and V-C6; recipes `koromilas/cifar` and `koromilas/imagenet`.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import _images
import _koromilas
import _rows
from _koromilas import ALL, DHEL

from mvcl.studies import SEEDS, Above, Claim, Factors, Study, trained

_ABOUT = """\
4 views of each of n images a batch. The figure prints no numbers, we do not have it, and the text does not name its
batch sizes: those here are Table V's, which has MV-DHEL alone. "More sensitive" is decided as a larger gain from the
smallest to the largest batch. The printed deviations of Table V, the largest difference between batches, are 0.05, 0.35
and 0.15."""
_PAPER = """ Here stable means that no two batches differ by more than 0.35. The learning rate is n / 256
(appendix E)."""
_SMALL = """ The paper does not say whether runs have equal epochs or equal updates; here all have the same number of
updates, with which a larger batch sees more images, and one learning rate. Stable means that no two
batches differ by more than one point."""
_BATCHES = (64, 128, 256)
_PRINTED = {
    "CIFAR-10": (89.49, 89.52, 89.47),
    "CIFAR-100": (62.43, 62.78, 62.73),
    "ImageNet-100": (77.32, 77.38, 77.23),
}
_TITLE = "Koromilas 2025, Fig. 4 (top) and Table V: accuracy at 4 views by images in a batch"
_SAME: Any = {
    "title": _TITLE,
    "unequal": "The batch is what is varied.",
    "columns": "batch",
    "along": "batch",
}


def paper(seeds: int = 1, *, released: bool = False) -> Study:
    """CIFAR-10 and -100 with ResNet-18, and MV-DHEL on ImageNet-100 with ResNet-50.

    Args:
      released: train as the authors' code does.
    """
    cells, claims, names = [], list[Claim](), dict.fromkeys(_PRINTED, ALL) | {"ImageNet-100": (DHEL,)}
    for data, base in _koromilas.images(*_PRINTED, released=released).items():
        for factors in _rows.grid(data=[data], objective=names[data], batch=_BATCHES):
            objective = _koromilas.objectives()[factors["objective"]]
            changes = {"objective": objective, "train.batch_size": factors["batch"]}
            value = _PRINTED[data][_BATCHES.index(factors["batch"])]
            printed = {"linear, SGD": value} if factors["objective"] == DHEL else {}
            cells.append(trained(factors, base(4), changes, printed))
        claims += _claims(names[data], "linear, SGD", 0.35, {"data": data})
    return Study(
        **_SAME,
        about=_ABOUT + _PAPER + _koromilas.RELEASED * released,
        cells=cells,
        measures=(_koromilas.SGD,),
        claims=claims,
        reference={"batch": 256},
        noise={"linear, SGD": _koromilas.NOISE},
        seeds=seeds,
        cost=_rows.of_gpus(10_500, "a seed"),
    )


def small(seeds: int = SEEDS, *, data: Path) -> Study:
    """Part of CIFAR-10, two objectives. `data` is its file, .npz."""
    names = ("pwe", DHEL)
    grid = _rows.grid(objective=names, k=(4,), batch=_BATCHES)
    claims = _claims(names, _images.LINEAR, 1.0, {})
    cells = [_koromilas.on_bench(data, factors, factors["batch"]) for factors in grid]
    same = {**_SAME, "reference": {"objective": "pwe"}}
    return _images.study(data, cells, _ABOUT + _SMALL, **same, claims=claims, seeds=seeds)


smoke = _images.smoke(small)


def _claims(names: Sequence[str], accuracy: str, stable: float, where: Mapping[str, str]) -> list[Claim]:
    found, dhel = list[Claim](), {**where, "objective": DHEL}
    for name in (name for name in names if name in _koromilas.PAIRS):
        text = f"{name} is more sensitive to the batch size than MV-DHEL{_koromilas.on(where)}"
        cells: Factors = {**where, "objective": name}
        source = "Fig. 4 (top), Section V-C4"
        found.append(Above(text, source, accuracy, cells, ({"objective": DHEL},), "batch"))
    text = f"MV-DHEL is stable: batches differ by at most {stable:g} points{_koromilas.on(where)}"
    row = (text, dhel, _rows.levels("batch", _BATCHES))
    return found + _rows.within("Table V, Section V-C6", accuracy, (-stable, stable), [row])
