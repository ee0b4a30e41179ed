"""Shidani 2024, Figures 3, 6 and 7: accuracy by epochs and relative compute, and by number of views M.

Section 3.2 and F.3.1: growing and fixed batch, and the headline run of the abstract. Needs ImageNet-1K
(docs/how_to/data.md).
"""

import itertools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import _bench
import _images
import _rows
import _shidani
from _shidani import GEOMETRIC, MULTI_CROP, SIMCLR, SUFFICIENT

from mvcl import training
from mvcl.studies import SEEDS, Cell, Claim, Measure, Study, Values, results, trained

_FEW = _bench.BATCH // 4
_LENGTHS = tuple(_bench.EPOCHS * times // 2 for times in (1, 2, 4, 8))  # of the scale small
_ABOUT = """\
The paper's figures have no numbers. Growing: as many instances a batch for every M; fixed: as many views, so that
instances fall with M. Relative compute is Eq. 29, M / 2 times epochs by those of the reference; M = 8 views of e epochs
compute as much as SimCLR of 4 e, and with fixed batch take as many updates. At M = 2 all objectives are SimCLR's loss
(Appendix E.2). "Never harmful" is read as: no M is below a smaller one by more than 0.5 points, which is ours. That
gains "are minor" in the growing case, and that the conclusions for FLOPs are "unchanged" have no number that could
decide."""
_PAPER = """

Accuracy is that of our linear probe on the validation images, as the paper does not give its protocol
(docs/papers/shidani.md). Between 128 and 1024 epochs, which the text names, the values are ours. Growing: K = 4096
instances; fixed: K = (2 / M) 4096, rounded down at M = 3, 6 and 12. The headline run has K = 256, see the header of
`shidani/imagenet1k`; the abstract's batch of 256 is read twice, as 256 instances at M = 8 and at M = 16, the largest M,
where it is also 4096 views. Figures 6 and 7 show the same runs against total FLOPs: those of the step by XLA's
analysis, times the updates; the paper's are those of PyTorch's profiler."""
_SMALL = f"""

Growing batches have {_bench.BATCH} images, fixed ones as many views as two of each. The headline's small form is
M = 8 at {_FEW} images and {_LENGTHS[0]} epochs against SimCLR at {_bench.BATCH} images and {_LENGTHS[3]} epochs: a
quarter of the batch and an eighth of the epochs, half of the compute (in the paper a sixteenth, an eighth and half).
Temperature 0.5, the bench's, in place of 0.1. Claims are decided by k-NN and by the linear classifier, as the paper
does not give its protocol. The learning rate is the bench's for every batch, as the paper's is the reference SimCLR
model's (Appendix B). By `control_encoder_passes` SimCLR still gains from the {_LENGTHS[1]}th to the {_LENGTHS[2]}th
epoch, so that training ends far before it no longer pays: the paper's Pareto front is against up to 1024 epochs. Runs
of {_LENGTHS[1]} epochs with growing batches were published before, by `koromilas_table2`."""
_SPENT = (Measure("updates", digits=0, better=""), Measure("relative compute", digits=2, better=""))
Ints = Sequence[int]
Names = Sequence[str]
_SIMCLR = {"objective": SIMCLR, "batch": "growing", "M": 2}
_SAME: Any = {
    "title": "Shidani 2024, Figures 3, 6 and 7: accuracy by epochs, relative compute and number of views",
    "unequal": "A fixed batch holds the number of views (Section 3.2), with fewer instances than a growing one.",
    "along": "epochs",
    "reference": _SIMCLR,
}


def with_compute(folder: Path) -> list[Values]:
    """`results`, `_images.spent`, and "PFLOP" of all devices and updates.

    From XLA's analysis of the step, which counts the body of a loop once.
    """
    [found], spent = results(folder), _images.spent(folder, 128)
    cost = training.estimate(training.load(folder))
    return [found | spent | {"PFLOP": spent["updates"] * cost.flops * cost.devices / 1e15}]


def paper(seeds: int = 3) -> Study:
    """ImageNet-1K, ResNet-50."""
    bases = {**_shidani.batches(), "256": training.load("shidani/imagenet1k:headline")}
    names, views = (GEOMETRIC, SUFFICIENT, MULTI_CROP), (2, 3, 4, 6, 8, 12, 16)
    lengths = (128, 256, 512, 1024)
    grid = _grid([SIMCLR], "growing", [2], lengths)
    for batch in ("growing", "fixed"):
        grid += _grid(names, batch, views, lengths[:1]) + _grid(names, batch, [8], lengths[1:])
    grid += _grid([GEOMETRIC], "256", [8, 16], lengths[:1])
    cells = []
    for factors in grid:
        name, batch, m, epochs = factors.values()
        changes = {"objective": _shidani.OBJECTIVES[name], "views.k": m, "train.epochs": float(epochs)}
        cells.append(trained(factors, bases[batch], changes, measure=with_compute))
    claims = _by_epochs("linear, SGD", ("growing", "fixed"), lengths, lengths, names)
    claims += _by_views("linear, SGD", {"growing": names, "fixed": names}, views, 128)
    for m in (8, 16):
        text = f"batch 256, M = {m}, and 128 epochs is above SimCLR at batch 4096"
        claims += _headline("linear, SGD", text, {"batch": "256", "M": m, "epochs": 128}, 1024)
    return Study(
        **_SAME,
        about=_ABOUT + _PAPER,
        cells=cells,
        measures=(_shidani.SGD, *_SPENT, Measure("PFLOP", digits=0, better="")),
        claims=claims,
        against=("updates", "relative compute", "PFLOP"),
        seeds=seeds,
        cost=_rows.of_gpus(12_200_000, "of 3 seeds, from 128 epochs of M = 8"),
    )


def small(seeds: int = SEEDS, *, data: Path) -> Study:
    """Part of CIFAR-10, M = 2, 4 and 8. `data` is its file, .npz."""
    names, views, first = (GEOMETRIC, SUFFICIENT, MULTI_CROP), (2, 4, 8), _LENGTHS[0]
    grid = _grid([SIMCLR], "growing", [2], _LENGTHS) + _grid(names, "growing", views, _LENGTHS[1:2])
    grid += _grid([GEOMETRIC], "fixed", views, _LENGTHS[1:2])
    grid += _grid((SUFFICIENT, MULTI_CROP), "fixed", [8], _LENGTHS[1:2])
    grid += [of for batch in ("growing", "fixed") for of in _grid([GEOMETRIC], batch, [8], [first])]
    cells: list[Cell] = []
    for factors in grid:
        name, batch, m, epochs = factors.values()
        images = 2 * _bench.BATCH // m if batch == "fixed" else _bench.BATCH
        changes: dict[str, Any] = _images.lasting(epochs * (_bench.TRAIN // images), images)
        changes |= {"objective": _shidani.on_bench(name, m)}
        cells.append(_images.cell(factors, _images.bench(data, m), changes))
    claims, text = [], f"{_FEW} images, M = 8, and {first} epochs is above SimCLR at {_bench.BATCH} images"
    for of in (_images.KNN, _images.LINEAR):
        claims += _by_epochs(of, ("growing", "fixed"), _LENGTHS, _LENGTHS[:2], (GEOMETRIC,))
        claims += _by_epochs(of, ("fixed",), _LENGTHS[1::2], _LENGTHS[1:2], (SUFFICIENT, MULTI_CROP))
        claims += _by_views(of, {"growing": names, "fixed": (GEOMETRIC,)}, views, _LENGTHS[1])
        claims += _headline(of, text, {"batch": "fixed", "M": 8, "epochs": first}, _LENGTHS[-1])
    same = {**_SAME, "measures": (*_bench.MEASURES, *_SPENT), "against": ("relative compute",)}
    return _images.study(data, cells, _ABOUT + _SMALL, **same, claims=claims, seeds=seeds)


smoke = _images.smoke(small)


def _grid(names: Sequence[str], batch: str, views: Ints, epochs: Ints) -> list[dict[str, Any]]:
    return _rows.grid(objective=names, batch=[batch], M=views, epochs=epochs)


def _headline(accuracy: str, text: str, cell: dict[str, Any], epochs: int) -> list[Claim]:
    than = [{**_SIMCLR, "epochs": epochs}]
    row = (f"Geometric at {text} and {epochs} epochs", {"objective": GEOMETRIC, **cell}, than)
    return _rows.above("Abstract; Section 3.2", accuracy, [row])


def _by_epochs(accuracy: str, batches: Names, epochs: Ints, of_8: Ints, names: Names) -> list[Claim]:
    """Figure 3a: M = 8 against SimCLR at equal epochs, those of M = 8, and at equal compute."""
    source, found = "Section 3.2, Figure 3a", list[Claim]()
    for batch, name in itertools.product(batches, names):
        at = {"objective": name, "batch": batch, "M": 8}
        if name != MULTI_CROP:
            text = f"M = 8 of {{epochs}} epochs is above M = 2, {batch} batch: {name}"
            found += _rows.above(source, accuracy, _rows.each(text, at, [_SIMCLR], epochs=of_8))
        for e in (e for e in epochs if 4 * e in epochs):
            than, more = [{**_SIMCLR, "epochs": 4 * e}], f"{batch} batch, {e} and {4 * e} epochs"
            cells = {**at, "epochs": e}
            if name == MULTI_CROP:
                text = f"Multi-Crop is not better than SimCLR at equal compute, {more}"
                row = (f"{text} (here: by 0.5 points at most)", cells, than)
                found += _rows.within(source, accuracy, (-math.inf, 0.5), [row])
            else:
                text = f"At equal relative compute M = 8 is above SimCLR, {more}: {name}"
                found += _rows.above(source, accuracy, [(text, cells, than)])
    return found


def _by_views(accuracy: str, batches: dict[str, Sequence[str]], views: Ints, epochs: int) -> list[Claim]:
    """Figure 3b."""
    found, source, most = list[Claim](), "Section 3.2, Figure 3b", f"M = {views[-1]}"
    for batch, names in batches.items():
        for name in names:
            text = f"More views are never harmful (here: by 0.5 points at most), {batch} batch, M = {{M}}: {name}"
            cells = {"objective": name, "batch": batch, "epochs": epochs}
            for place in range(1, len(views)):
                fewer = _rows.levels("M", views[:place])
                row = _rows.each(text, cells, fewer, M=views[place : place + 1])
                found += _rows.within(source, accuracy, (-0.5, math.inf), row)
        at: dict[str, str | int] = {"batch": batch, "M": views[-1], "epochs": epochs}
        best, crops = f"Geometric is the strongest, {batch} batch, {most}", {**at, "objective": MULTI_CROP}
        others = _rows.levels("objective", (SUFFICIENT, MULTI_CROP))
        found += _rows.above(source, accuracy, [(best, {**at, "objective": GEOMETRIC}, others)])
        if batch == "growing":
            text = f"Multi-Crop is above sufficient statistics, growing batch, {most}"
            found += _rows.above(source, accuracy, [(text, crops, others[:1])])
    return found
