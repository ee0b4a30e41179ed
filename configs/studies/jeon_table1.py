"""Jeon 2025, Table 1 and Figures 3 and 4: accuracy of MoCo, loss_avg, fea_avg and DSF, by length and number of views.

Source: Table 1, Sections 5.2 to 5.4; recipes `jeon/dsf` and `jeon/imagenet100`.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import _bench
import _images
import _jeon
import _rows
from _jeon import AVERAGES, METHODS

from mvcl.studies import SEEDS, Cell, Claim, Measure, Study, Trend, trained

_ABOUT = """\
At fixed memory a batch has as many views for all methods, so that MoCo, of two views, compares more images. Figure 3
has one number of views M and several lengths of training, Figure 4 several M with as many images in a batch, half of
the views queries and half keys. Neither prints numbers, and we do not have them. "Similar accuracy" is decided as: not
more than half a point below. That the averages rise with M too is what Section 5.4.2 cites of earlier work."""
_PAPER = """ Length is in epochs.

The epochs of Table 1 make the time about the same (512 x 2 and 128 x 8 on ImageNet-100, 1024 x 2 and 256 x 8 on
CIFAR-10). Learning rates of DSF are the released ones, those of the averages on CIFAR-10 ours (docs/papers/jeon.md).
All rows have the settings of the released code, also loss_avg and fea_avg, which it does not have; `--recipe paper` has
the paper's where the code differs. The printed k-NN is that of the head's output, as the released code measures it; the
encoder's is beside it. The paper gives no number of runs and no deviation.

The epochs of Figure 3 are those that its caption and Section 5.4.1 name (the text has 11 hours at 400 epochs, which at
5.5 hours for 250 would be 500). The caption's "over 3x" of the linear accuracy is 250 epochs against 800, its "over 2x"
400 against 800. Of Figure 4 the text does not name M: 4, 8 and 16 are ours, and so are data set and length. The margin
is that of Figure 5, of MoCo v3 with DSF on ImageNet-100, means over the first and the last tenth of the steps, of the
first of MoCo v3's two directions; cosines have at most 2 without a temperature (Proposition 1)."""
_SMALL = f""" Length is in steps.

{_jeon.SMALL} MoCo has 128 images of 2 views, so that each length takes the same encoder passes with 2 and 4 views. M =
8 has 64 images too, so twice the views and passes; Figure 4 is at more memory. "Over 2x" is 1,000 steps against 2,000,
of MoCo too, which in the paper takes 8000 epochs against 400, five times the time. k-NN is that of the encoder; the
printed one is the head's. The paper has twice the learning rate for DSF."""
_PRINTED = {  # k-NN and linear accuracy, ImageNet-100 and CIFAR-10
    "MoCo": {"ImageNet-100": (74.08, 81.52), "CIFAR-10": (88.44, 88.10)},
    "loss_avg": {"ImageNet-100": (76.62, 84.24), "CIFAR-10": (88.28, 88.58)},
    "fea_avg": {"ImageNet-100": (76.94, 84.06), "CIFAR-10": (87.47, 88.02)},
    "DSF": {"ImageNet-100": (79.00, 85.66), "CIFAR-10": (90.04, 91.21)},
}
Pairs = Sequence[tuple[int, int]]
_SAME: Any = {
    "title": "Jeon 2025, Table 1 and Figures 3 and 4: accuracy by method, length and number of views",
    "unequal": "The number of views in a batch is fixed (Section 5.3): MoCo compares more images.",
    "reference": {"method": "DSF"},
    "along": "length",
}
_HOURS = Measure("hours", label="hours of training", digits=2, better="lower")


def paper(seeds: int = 1, *, recipe: _jeon.Recipe = "released") -> Study:
    """ImageNet-100 with MoCo v3 and ViT-S/16, CIFAR-10 with MoCo v2 and ResNet-18, there up to 800 epochs."""
    cells, names = [], [measure.name for measure in _jeon.ACCURACIES]
    grid = [("ImageNet-100", method, 8, 100) for method in METHODS] + [("ImageNet-100", "MoCo", 2, 300)]
    lengths = [(8, 250), (8, 400), (8, 800), (4, 250), (16, 250)]
    grid += [("CIFAR-10", method, *of) for method in METHODS for of in lengths]
    grid += [("CIFAR-10", "MoCo", 2, epochs) for epochs in (800, 8000)]
    for data, method, m, epochs in grid:
        base = _jeon.on_images(method, {"ImageNet-100": "imagenet100", "CIFAR-10": "cifar10"}[data], recipe)
        first = (m, epochs) in ((8, 100), (2, 300), (8, 250), (2, 800))  # of Table 1
        printed = dict(zip(names, _PRINTED[method][data] if first else ()))
        # strategy "fixed": n = 2 batch_size / k = 256 images of M views
        images = {"train.batch_size": 128 * m} if data == "CIFAR-10" and method != "MoCo" else {}
        changes = {"views.k": m, "train.epochs": float(epochs), **images}
        factors = {"data": data, "method": method, "M": m, "length": epochs}
        cells.append(trained(factors, base, changes, printed, _jeon.results_and_log))
    dsf, moco = {"data": "ImageNet-100", "method": "DSF"}, {"method": "MoCo", "M": 2, "length": 300}
    claims = [*_jeon.margin_claims(dsf)]
    rows: list[_rows.Row] = [
        ("DSF is above the averages, ImageNet-100", dsf, _rows.levels("method", AVERAGES)),
        ("DSF is above MoCo, ImageNet-100", dsf, [moco]),
    ]
    for measure in names[:2]:
        claims += _rows.above("Table 1, Section 5.2", measure, rows)
        claims += _claims(measure, {"data": "CIFAR-10"}, lengths, (800, 8000))
    return Study(
        **_SAME,
        about=_ABOUT + _PAPER,
        cells=cells,
        measures=(*_jeon.ACCURACIES, _HOURS, *_jeon.MARGINS),
        claims=claims,
        noise=_jeon.NOISE,
        seeds=seeds,
        cost=_rows.of_gpus(19_200, "a seed"),
    )


def small(seeds: int = SEEDS, *, data: Path) -> Study:
    """Part of CIFAR-10, M = 4 for 1,000 and 2,000 steps, and M = 8. `data` is its file, .npz."""
    images, lengths = _bench.Images(path=str(data)), (_jeon.STEPS, 2 * _jeon.STEPS)
    several = [(4, lengths[0]), (4, lengths[1]), (8, lengths[0])]
    grid = [("MoCo", 2, length) for length in lengths]
    grid += [(method, *of) for of in several for method in METHODS]
    cells = list[Cell]()
    for method, m, steps in grid:
        base = _jeon.bench_of(images, m, 128 if method == "MoCo" else 64, steps)
        factors = {"method": method, "M": m, "length": steps}
        cells.append(_jeon.cell(factors, base, {"objective": _jeon.objectives()[method]}))
    claims = [claim for m in ("k-NN", "linear") for claim in _claims(m, {}, several, lengths)]
    measures = (*_bench.MEASURES, _HOURS)
    return _images.study(data, cells, _ABOUT + _SMALL, **_SAME, measures=measures, claims=claims, seeds=seeds)


smoke = _images.smoke(small)


def _claims(measure: str, where: dict[str, str], grid: Pairs, of_moco: tuple[int, int]) -> list[Claim]:
    """Of one data set: M and lengths of the averages and DSF, first all lengths of the first M; and MoCo's lengths."""
    m = grid[0][0]
    lengths = [length for views, length in grid if views == m]
    early, late, dsf = lengths[-2], lengths[-1], {**where, "method": "DSF"}
    at, averages = {**dsf, "M": m}, [{"method": name, "length": late} for name in AVERAGES]
    first, last = ({"method": "MoCo", "M": 2, "length": of_moco[end]} for end in (0, -1))
    same_time = f"DSF of {lengths[0]:,} is above MoCo of {of_moco[0]:,}, which takes the same time"
    rows: list[_rows.Row] = [(same_time, {**at, "length": lengths[0]}, [first])]
    for views, length in grid:
        text = f"DSF is above the averages, M = {views}, length {length:,}"
        rows.append((text, {**dsf, "M": views, "length": length}, _rows.levels("method", AVERAGES)))
    found = _rows.above("Table 1; Sections 5.4.1 and 5.4.2", measure, rows)
    similar = "DSF of {:,} is similar to or above {} of {:,}"
    earlier = [early] if measure == "k-NN, head" else dict.fromkeys((early, lengths[0]))
    rows = [(similar.format(e, "the averages", late), {**at, "length": e}, averages) for e in earlier]
    rows.append((similar.format(early, "MoCo", of_moco[-1]), {**at, "length": early}, [last]))
    found += _rows.within("Section 5.4.1; Figure 3, caption", measure, (-0.5, math.inf), rows)
    for name in METHODS:
        cells, text = {**where, "method": name, "length": lengths[0]}, "rises with the number of views"
        found.append(Trend(f"{name} {text}", "Figure 4, Section 5.4.2", measure, cells, "M"))
    return found
