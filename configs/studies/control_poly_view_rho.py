"""Control: poly-view contrast over rho, which mean of the likelihoods.

The paper's three are of one family, (1/rho) log mean l^rho, of which no paper trains others.
Source: ours; Shidani 2024, Eqs. 12 and 13 and its pseudocode.
"""

from functools import partial
from pathlib import Path
from typing import Any

import _images
import _koromilas
import _rows

from mvcl import losses
from mvcl.studies import SEEDS, Study, Trend

_ABOUT = """\
`poly_view(aggregation=rho)` takes the power mean of order rho of the likelihoods with which a view finds each of its
k - 1 partners. A low rho weighs the partner that is found worst, a high one that which is found best: as rho falls the
loss asks that every partner is found, as it rises that some partner is. rho = 1 is the paper's "arithmetic", 0 its
"geometric" mean, which is the pairwise loss with more negatives, and -1, "harmonic", what the paper's pseudocode
computes under the name of arithmetic. At k = 2 all are `nt_xent`. Temperature 0.5; images, epochs, batch and
learning rate are the same for all. The loss with a rho far from 0 has its gradient on fewer pairs, so effects of rho
are also effects of noise in the gradient."""


def small(seeds: int = SEEDS, *, data: Path) -> Study:
    """Part of CIFAR-10, 4 views. `data` is its file, .npz."""
    cells, of = [], {"mean": "power"}
    for rho in (-1.0, 0.0, 1.0, 4.0):
        loss = partial(losses.poly_view, temperature=0.5, aggregation=rho)
        # The geometric mean is PVC of koromilas_table2.
        loss = loss if rho else _koromilas.objectives()["PVC"]
        cells.append(_images.cell({**of, "rho": rho}, _images.bench(data, 4), {"objective": loss}))
    falls = "accuracy falls as rho rises, from every partner to some partner"
    geometric = "the geometric mean (rho 0) is better than the arithmetic (rho 1)"
    harmonic = "the harmonic mean (rho -1) is better than the geometric (rho 0)"
    rows = [(geometric, {**of, "rho": 0.0}, [{"rho": 1.0}]), (harmonic, {**of, "rho": -1.0}, [{"rho": 0.0}])]
    claims = _rows.above("ours", _images.KNN, rows)
    claims.append(Trend(falls, "ours", _images.KNN, of, "rho", rises=False))
    same: Any = {"title": "Control: poly-view contrast over rho", "reference": {"rho": 0.0}, "along": "rho"}
    return _images.study(data, cells, _ABOUT, claims=claims, seeds=seeds, **same)


smoke = _images.smoke(small)
