"""Control: MV-DHEL, more views or more energy?

MV-DHEL is one alignment of all views and a sum of k energies, one for each view, so that more views also mean k times
the energy (Koromilas 2025, Eqs. 12 and 27). `energy_weight` w multiplies the sum: w = 1 is the paper's loss, w = 1/k
has the weight of Eq. 15. No paper separates the two.
Source: ours.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import _digits
import _rows

from mvcl import losses
from mvcl.studies import SEEDS, Study, Trend, trained
from mvcl.training import Config

_ABOUT = """\
MV-DHEL sums k energies, one for each view, and has one alignment: with k views it has k times the energy of the limit
that the paper derives. So k = 4 against k = 2 changes two things at once. `energy_weight` w multiplies the energies;
"energy" here is w k, the weight of all energies together: w = 1, the paper's loss, is energy = k, and w = 1/k is
energy = 1. At the smallest k the energies of the larger k are trained too. All rows have the same images, epochs,
batch and learning rate. AdamW does not depend on the scale of the loss, so only the ratio of energy to alignment
differs. A row with more views takes more encoder passes; control_encoder_passes separates that.

If accuracy depends on the energy and not on k, rows agree within a column; if on k and not on the energy, columns agree
within a row."""


def _study(base: Callable[[int], Config], ks: tuple[int, ...], **scale: Any) -> Study:
    few, loss = ks[0], partial(losses.mv_dhel, temperature=0.5)
    grid = [(few, energy) for energy in (1, *ks)] + [(k, energy) for k in ks[1:] for energy in (1, k)]
    trend = partial(Trend, source="ours", measure=_digits.FEW)
    above = partial(_rows.above, "ours", _digits.FEW)
    views = "{0} views are better than {1} at energy {0}"
    weight = "with {0} views weight 1, the paper's, is better than 1/{0}"
    return _digits.control(
        (),
        [
            trend(text="more views are better at energy 1 (weight 1/k)", cells={"energy": 1}, along="k"),
            *above((views.format(k, few), {"k": k, "energy": k}, [{"k": few}]) for k in ks[1:]),
            trend(text=f"more energy is better with {few} views", cells={"k": few}, along="energy"),
            *above((weight.format(k), {"k": k, "energy": k}, [{"energy": 1}]) for k in ks),
        ],
        title="Control: MV-DHEL, more views or more energy?",
        about=_ABOUT,
        cells=[
            trained(
                {"k": k, "energy": energy}, base(k), {"objective": partial(loss, energy_weight=energy / k)}
            )
            for k, energy in grid
        ],
        columns="energy",
        reference={"energy": 1},
        along="k",
        **scale,
    )


def small(seeds: int = SEEDS) -> Study:
    """Digits, 2, 4 and 8 views."""
    cost = "24 minutes in one process, on 2 cores with other work"
    return _study(_digits.digits_of, (2, 4, 8), seeds=seeds, cost=cost)


def smoke(seeds: int = 2) -> Study:
    """Random vectors, 2 and 3 views."""
    return _study(_digits.vectors_of, (2, 3), seeds=seeds, cost="under a minute on 2 cores")
