"""Control: poly-view contrast over rho, which mean of the likelihoods.

Shidani 2024 has the arithmetic (rho = 1) and the geometric mean (rho = 0) of the likelihoods of a view's k - 1
partners, and its pseudocode the harmonic one (rho = -1). They are three of one family, (1/rho) log mean l^rho, of
which no paper trains others.
Source: ours.
"""

from functools import partial
from pathlib import Path

import _bench
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
    base, cells = _bench.bench_of(4, _bench.Images(path=str(data))), []
    for rho in (-1.0, 0.0, 1.0, 4.0):
        loss = partial(losses.poly_view, temperature=0.5, aggregation=rho)
        # The geometric mean is PVC of koromilas_table2.
        loss = loss if rho else _koromilas.objectives()["PVC"]
        cells.append(_images.cell({"mean": "power", "rho": rho}, base, {"objective": loss}))
    falls = "accuracy falls as rho rises, from every partner to some partner"
    means = (("geometric", 0.0, "arithmetic (rho 1)"), ("harmonic", -1.0, "geometric (rho 0)"))
    better, of = "the {} mean (rho {:g}) is better than the {}", {"mean": "power"}
    rows = [
        (better.format(name, rho, other), {**of, "rho": rho}, [{"rho": rho + 1}])
        for name, rho, other in means
    ]
    return _images.study(
        data,
        cells,
        _ABOUT,
        title="Control: poly-view contrast over rho",
        claims=[
            *_rows.above("ours", _images.KNN, rows),
            Trend(falls, "ours", _images.KNN, of, "rho", rises=False),
        ],
        reference={"rho": 0.0},
        along="rho",
        seeds=seeds,
    )


smoke = _images.smoke(small)
