"""The bench of the small studies: is there room between pixels and labels, and is it told apart by 2 and 4 views?"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import _bench
import _images
import _rows

from mvcl import losses
from mvcl.studies import Cell, Claim, Study
from mvcl.training import Config

_OBJECTIVES: dict[tuple[str, int], losses.Loss] = {
    ("nt_xent", 2): _bench.NT_XENT,
    ("all_pairs(nt_xent)", 4): losses.all_pairs(_bench.NT_XENT),
    ("mv_dhel", 4): partial(losses.mv_dhel, temperature=0.5),
}


def cells_of(base: Config) -> list[Cell]:
    """A cell for each objective, of the recipe with its views; `koromilas_table2` and others have the same runs."""
    return [
        _images.cell({"objective": name, "k": k}, base, {"objective": loss, "views.k": k})
        for (name, k), loss in _OBJECTIVES.items()
    ]


def _claims() -> list[Claim]:
    """What a bench must show, each a limit of ours."""
    below = [{"objective": name, "k": 0} for name in ("raw input", "untrained encoder")]
    above, two = "{} is above NT-Xent of 2 views", {"objective": "nt_xent", "k": 2}
    points = [(f"NT-Xent of 2 views is 5 points above the {of['objective']}", two, [of]) for of in below]
    rows = [
        (above.format("training on labels"), {"objective": "supervised", "k": 0}, [two]),
        (
            above.format("NT-Xent of 4 views, in as many steps,"),
            {"objective": "all_pairs(nt_xent)", "k": 4},
            [two],
        ),
        (above.format("MV-DHEL of 4 views, in as many steps,"), {"objective": "mv_dhel", "k": 4}, [two]),
    ]
    flat = ("the last third of training gains under a point", two, ())
    return [
        *_rows.within("ours", "k-NN", (5.0, 100.0), points),
        *_rows.within("ours", _bench.GAIN, (-1.0, 1.0), [flat]),
        *(claim for measure in ("k-NN", "linear") for claim in _rows.above("ours", measure, rows)),
    ]


def _study(cells: Sequence[Cell], claims: Sequence[Claim], seeds: int, cost: str) -> Study:
    return Study(
        title="The bench of the small studies: CIFAR-10 at 12 pixels",
        about=_bench.ABOUT,
        cells=cells,
        measures=_bench.MEASURES,
        claims=claims,
        reference={"objective": "nt_xent", "k": 2},
        seeds=seeds,
        cost=cost,
    )


def small(seeds: int = 20, *, data: Path) -> Study:
    """Part of CIFAR-10: 3 objectives, training on labels, and what is not trained. `data` is its file, .npz."""
    base = _bench.bench_of(2, _bench.Images(path=str(data)))
    cells = [*_bench.baselines(base, {"objective": "", "k": 0}), *cells_of(base)]
    return _study(cells, _claims(), seeds, f"{1.5 * seeds:.0f} minutes on 2 idle CPU cores, estimated")


def smoke(seeds: int = 2) -> Study:
    """Random images, one objective."""
    return _study(cells_of(_bench.smoke_of(2))[:1], (), seeds, "under a minute on 2 cores")
