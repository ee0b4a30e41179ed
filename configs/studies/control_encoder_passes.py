"""Control: k views at equal encoder passes.

More views are compared at equal epochs in most tables (Koromilas 2025, Table II; Piran 2024, Table 1), where a run
with k views encodes k/2 times as many images as one with two. Jeon 2025 and Shidani 2024 hold the views of a batch.
Source: ours.
"""

from pathlib import Path
from typing import Any

import _bench
import _images
import _koromilas
import _rows

from mvcl.studies import SEEDS, Study

_ABOUT = """\
The encoder passes of a run are k n steps, n the images of a batch. "passes" is their number in units of the run with
the fewest views and the fewest epochs. Batch n and learning rate are the same for all; k views at equal passes have 2/k
times the steps, and the schedule ends with them. Down a column passes are equal; equal epochs are on the diagonal: k 2
with 1, k 4 with 2. The row with 2 views and the larger budget is trained longer, which the tables of the papers lack:
if more views at equal epochs are better only by their passes, it is as good."""


def small(seeds: int = SEEDS, *, data: Path) -> Study:
    """Part of CIFAR-10, 2 and 4 views at two budgets. `data` is its file, .npz."""
    few, more, cells, names = 2, 4, [], ("pwe", _koromilas.DHEL)
    for factors in _rows.grid(objective=names, k=(few, more), passes=(1, 2)):
        name, k, passes = factors.values()
        loss = _bench.NT_XENT if (name, k) == ("pwe", 2) else _koromilas.objectives()[name]
        length = _images.lasting(_images.STEPS * few * passes // k)
        cells.append(_images.cell(factors, _images.bench(data, k), {"objective": loss, **length}))
    rows: list[_rows.Row] = []
    for name in names:
        text = f"{name}: 4 views are better than 2 at equal"
        cell = {"objective": name, "k": more, "passes": 2}
        rows.append((f"{text} passes (2)", cell, [{"k": few}]))
        rows.append((f"{text} epochs", cell, [{"k": few, "passes": 1}]))
    claims = [claim for m in (_images.KNN, _images.LINEAR) for claim in _rows.above("ours", m, rows)]
    same: Any = {"title": "Control: k views at equal encoder passes", "columns": "passes", "along": "k"}
    return _images.study(data, cells, _ABOUT, claims=claims, reference={"k": few}, seeds=seeds, **same)


smoke = _images.smoke(small)
