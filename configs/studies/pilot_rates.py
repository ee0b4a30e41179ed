"""The learning rates of the bench of the small studies, on images for validation and with other seeds."""

from pathlib import Path

import _bench
import _images
import _jeon
import _koromilas
import _piran
import _shidani
import pilot

from mvcl.data import Source
from mvcl.studies import Cell, Study

_ABOUT = f"""\
The trained cells of the study `pilot`, and those of the other studies' objectives at k = 4 (MoCo: 2), each with three
learning rates. Of the first {_bench.TRAIN + _bench.VALIDATION:,} training images of CIFAR-10 the last
{_bench.VALIDATION:,} take the place of the test images, and the seeds are others: no test image and no run of another
study has a part in the choice. Where a page compares objectives at the one rate of the bench, 0.01, this page says how
much another would have given each of them."""


def small(seeds: int = 2, *, data: Path) -> Study:
    """Three rates of each objective and of training on labels. `data` is the file of CIFAR-10, .npz."""
    base = _bench.bench_of(2, _bench.Images(path=str(data)))
    supervised = _bench.baselines(base, {"objective": "", "k": 0})[-1]
    others = [*_of_views(data), *_of_students(data), *_of_queues(base.data)]
    return Study(
        title="Learning rates of the bench of the small studies",
        about=_ABOUT,
        cells=_bench.of_rates([*pilot.cells_of(base), supervised, *others]),
        measures=_bench.MEASURES,
        unequal="Only rates of one objective are compared. Losses of Piran see 16 images, of Jeon 64 (MoCo: 128).",
        along="learning rate",
        seeds=seeds,
        cost=f"{20 * seeds} minutes on 2 CPU cores",
    )


def _of_views(data: Path) -> list[Cell]:
    """Koromilas's objectives of which `pilot` has none, and Shidani's of its own."""
    names, further = ("avg", "PVC", _koromilas.INFO_NCE), {"objective": _shidani.SUFFICIENT, "k": 4}
    objective = {"objective": _shidani.on_bench(_shidani.SUFFICIENT, 4)}
    cells = [_koromilas.on_bench(data, {"objective": name, "k": 4}) for name in names]
    return [*cells, _images.cell(further, _images.bench(data, 4), objective)]


def _of_students(data: Path) -> list[Cell]:
    """Student and teacher, as in `piran_table1`."""
    return [
        _bench.cell(
            {"objective": f"{name}, student and teacher", "k": 4},
            _images.bench(data, 4),
            {**_piran.on_bench(), "objective": loss},
        )
        for name, loss in _piran.methods().items()
        if name != _piran.BYOL_PAIRS
    ]


def _of_queues(source: Source) -> list[Cell]:
    """MoCo v2 and Jeon's objectives, as in `jeon_table1` with 1,000 steps."""
    cells, objectives = list[Cell](), _jeon.objectives()
    rows = [("MoCo v2", "MoCo", 2, 128), *((f"{name}, MoCo v2", name, 4, 64) for name in _jeon.METHODS)]
    for row, name, k, images in rows:
        base = _jeon.bench_of(source, k, images)
        cells.append(_jeon.cell({"objective": row, "k": k}, base, {"objective": objectives[name]}))
    return cells


smoke = _images.smoke(small)
