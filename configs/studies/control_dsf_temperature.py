"""Control: DSF against InfoNCE by temperature.

DSF (Jeon 2025) has no temperature, but the lengths of the groups' means act as one. Is its gain that of another
temperature?
Source: ours; Jeon 2025, Sections 5.5 ("τ is not required") and 5.6.
"""

import math
from pathlib import Path
from typing import Any

import _bench
import _images
import _jeon
import _rows

from mvcl.studies import SEEDS, Factors, Measure, Study

# The effective temperature at T = 1, d = 128 and a mean of length 0.9: R = 0.855.
_R2 = (0.95 * 0.9) ** 2
_EXAMPLE = f"{(1 - _R2) / (_R2 * (1 - _R2 / 128)):.3f}"
_ABOUT = f"""\
{_jeon.SMALL} Two queries and two keys.

What depends on the query alone cancels in the softmax of DSF, whose logits are then

    A_i κ_j <μ_i, μ_j> / T - g(κ_j) / T,    g(κ) = log I_ν(κ) - ν log κ,

where InfoNCE of the same directions has <μ_i, μ_j> / t. So T / (A_i κ_j) has the place of InfoNCE's temperature t:
the *effective temperature* of a pair. With A = R and κ = R (d - R²) / (d (1 - R²)), as the released code trains, it
is (1 - R²) / (R² (1 - R²/d)) at T = 1: 0.109 at d = 128 for groups of one view, whose R is 0.95, and {_EXAMPLE} at a
mean of length 0.9. It differs from pair to pair, with their concentrations, and drifts in training, so that no t has
the temperature of a run of DSF; the measures are T / (mean A · mean κ), that of the mean pair, and the standard
deviation of log κ ("spread"), over the last tenth of the steps.

So DSF at its own T, of which the paper takes 1, is beside InfoNCE at several t: the t nearest to the measured effective
temperature, and the best, are read from the table. loss_avg compares single views, fea_avg the groups' means, shorter
than 1, whose directions have t over the product of two lengths, at 0.9 about t / 0.8. A row whose loss does not end
below the chance level, the mean over the last tenth of the steps, has learned nothing of the instances."""


def small(seeds: int = SEEDS, *, data: Path) -> Study:
    """Part of CIFAR-10, two queries and two keys; three T and three t. `data` is its file, .npz."""
    base, cells = _jeon.bench_of(_bench.Images(path=str(data))), []
    for t in (0.5, 1.0, 2.0):
        scaled = {"objective.temperature": t} if t != 1 else {}  # at 1 the run of jeon_table1
        changes = {"objective": _jeon.objectives()["DSF"], **scaled}
        cells.append(_jeon.cell({"similarity": "DSF", "t": t}, base, changes))
    dsf: Factors = {"similarity": "DSF", "t": 1.0}
    above: list[_rows.Row] = []
    for of in _rows.grid(similarity=_jeon.AVERAGES, t=(0.1, 0.2, 0.5)):
        cells.append(_jeon.cell(of, base, {"objective": _jeon.objectives(of["t"])[of["similarity"]]}))
        above.append((f"DSF at T = 1 is above {of['similarity']} at t = {of['t']:g}", dsf, [of]))
    learns = _rows.each("{similarity} learns: its loss ends below chance", {}, [], similarity=_jeon.METHODS)
    claims = _rows.within("ours", "below chance", (0, math.inf), learns)
    claims += _rows.above("ours", _images.KNN, above)
    measures = (
        Measure("below chance", digits=2),
        Measure("effective temperature", digits=3, better=""),
        Measure("spread", label="spread of log κ", digits=2, better=""),
    )
    same: Any = {"title": "Control: DSF against InfoNCE by temperature", "unequal": _jeon.UNEQUAL}
    same |= {"measures": (*_bench.MEASURES, *measures), "columns": "t", "reference": dsf, "along": "t"}
    return _images.study(data, cells, _ABOUT, claims=claims, seeds=seeds, **same)


smoke = _images.smoke(small)
