"""Control: MV-DHEL, more views or more energy?

No paper separates more views from more energy.
Source: ours; Koromilas 2025, Eqs. 12 and 27 (w = 1), 15 (w = 1/k).
"""

from functools import partial
from pathlib import Path
from typing import Any

import _images
import _rows

from mvcl import losses
from mvcl.studies import SEEDS, Study, Trend

_ABOUT = """\
MV-DHEL sums k energies, one for each view, and has one alignment: with k views it has k times the energy of the limit
that the paper derives. So k = 4 against k = 2 changes two things at once. `energy_weight` w multiplies the energies;
"energy" here is w k, that of all together: w = 1, the paper's loss, is energy = k, and w = 1/k is energy = 1. At k = 2
the energies of k = 4 are trained too. All rows have the same images, epochs, batch and learning rate; as AdamW does not
depend on the scale of the loss, only the ratio of energy to alignment differs. A row with more views takes more encoder
passes; control_encoder_passes separates that.

If accuracy depends on the energy and not on k, rows agree within a column; if on k and not on the energy, columns agree
within a row."""


def small(seeds: int = SEEDS, *, data: Path) -> Study:
    """Part of CIFAR-10, 2 and 4 views. `data` is its file, .npz."""
    cells, few, more, measure = [], 2, 4, _images.KNN
    for k, energy in ((few, 1), (few, few), (few, more), (more, 1), (more, more)):
        # Of weight 1 the objective of koromilas_table2.
        loss = partial(losses.mv_dhel, temperature=0.5)
        loss = loss if energy == k else partial(loss, energy_weight=energy / k)
        factors = {"objective": "MV-DHEL", "k": k, "energy": energy}
        cells.append(_images.cell(factors, _images.bench(data, k), {"objective": loss}))
    rows: list[_rows.Row] = [
        ("more views are better at energy 1 (weight 1/k)", {"k": more, "energy": 1}, [{"k": few}]),
        ("4 views are better than 2 at energy 4", {"k": more, "energy": more}, [{"k": few}]),
    ]
    for k in (few, more):
        text = f"with {k} views weight 1, the paper's, is better than 1/{k}"
        rows.append((text, {"k": k, "energy": k}, [{"energy": 1}]))
    rises = Trend("more energy is better with 2 views", "ours", measure, {"k": few}, "energy")
    claims = [rises, *_rows.above("ours", measure, rows)]
    same: Any = {"title": "Control: MV-DHEL, more views or more energy?", "columns": "energy", "along": "k"}
    return _images.study(data, cells, _ABOUT, claims=claims, reference={"energy": 1}, seeds=seeds, **same)


smoke = _images.smoke(small)
