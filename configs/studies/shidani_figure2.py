"""Shidani 2024, Figure 2: bounds on the information of a Gaussian model by objective and number of views M.

Section 3.1. The runs are those of `shidani/gaussian`; networks are trained side by side, so --seeds is their number.
"""

from functools import partial
from typing import Any

import _gaussian
import _rows
from _gaussian import ARITHMETIC, GEOMETRIC, MULTI_CROP, SUFFICIENT

from mvcl.studies import Measure, Study, Trend

_ABOUT = """\
Each instance has M views x = c + noise, c ~ N(0, 1), noise ~ N(0, 0.5²). An MLP 1-32-32 with GELU embeds a view; unit
vectors, temperature 0.1. Every number is the library's loss or bound on new instances, K a batch, in nats. The printed
bound is log(MK - M + 1) - loss (Theorems 2.2 and 2.4), and log K - loss for Multi-Crop (Proposition 2.1); the gap is
the true one-vs-rest information (Eq. 26) minus that bound, and the ratio, the paper's third panel, is the information
by the bound. Bounds that hold contrast whole groups of views (`metrics.info_nce_bound` of `metrics.group_scores`), with
the objective's aggregation as score, geometric for Multi-Crop: one view against the others, and half of the views
against the other half, the two-set information of Appendix E.1.

**Why the printed order cannot hold.** For any fixed network the arithmetic bound is at least the geometric one, because
log mean l >= mean log l. So a geometric bound above the arithmetic one can only come from better trained networks, not
from the bound. And a term of the geometric mean compares one pair of views, as Multi-Crop's does: in expectation it is
bounded by what two views share, 0.5108 nats for every M, up to the excess of the next paragraph. So its gap is expected
to rise as I(M) - I(2), by 0.2426 nats at M = 10 (`metrics.gaussian_information`), and Theorem 2.3, whose gap falls with
M, cannot hold for it. The mean of likelihoods over the other views (arithmetic) and of their embeddings (sufficient
statistics) do not have this limit. Two things in the paper could explain its figure; neither can be checked, as its
code, its deviations of the model and its temperature are not published. Algorithm 1's "arithmetic" is +logsumexp of the
losses, the logarithm of a harmonic mean of the likelihoods (`poly_view` with aggregation "harmonic"), which is below
the geometric one. And it subtracts log(k), k the instances, where the mean over the other views is log(M - 1).

**The printed theorems are no lower bounds.** Their proof takes the M views of another instance for exchangeable
negatives, and they are correlated. Two equally likely classes, every view its class: the information is log 2 = 0.6931
for any M, while the printed bound is 0.5493 at (K, M) = (2, 2), 1.0986 at (2, 8), 0.9301 at (4, 8), 0.6952 at (5, 2),
0.6992 at (64, 8) and 0.6935 at (1024, 8); groups contrasted give 0.3466, 0.3466, 0.5411, 0.5770, 0.6853 and 0.6927
(`two_classes` in `configs/studies/_gaussian.py`). At K = 1024 the excess is small; `mvcl study shidani_fixed_batch`
has small K.

**Differences from the paper.** Network, optimiser, K, M, epochs and number of runs are the paper's. Chosen here: both
deviations of the model, the temperature, and an epoch of 3 new batches. Training sums over negatives on a grid of 64
inputs (`_gaussian_grid.py`; 5e-5 at most from the library's loss on trained networks), because all pairs of M K =
10240 vectors take hours on two cores. Measurements use the library's losses. Networks of one M see the same data under
every objective, so differences between objectives are paired; networks of two values of M share nothing."""

MEASURES = (
    Measure("gap", label="gap", digits=4, better="lower"),
    Measure("bound", label="printed bound", digits=4, better=""),
    Measure("ratio", label="truth / bound", digits=4, better=""),
    Measure("loss", digits=4, better=""),
    Measure("information", label="true information", digits=4, better=""),
    Measure("valid", label="bound that holds", digits=4),
    Measure("two sets", label="half; half, bound that holds", digits=4),
)


def paper(seeds: int = 16) -> Study:
    """The paper's settings."""
    cost = "2 CPU cores, about 2 hours, estimated from 55 minutes with 8 networks on busy cores"
    return _study((2, 4, 8, 10), _ABOUT, cost, networks=seeds)


def small(seeds: int = 8) -> Study:
    """A third of the steps at 6 times the learning rate."""
    options: dict[str, Any] = {"epochs": 67, "learning_rate": 3e-3, "evaluation_batches": 1}
    about = f"{_ABOUT}\n\n{_gaussian.SMALL}, and one batch for each network's numbers in place of four."
    cost = "2 CPU cores, 4 minutes, estimated from 7 of the 16 runs"
    return _study((2, 4, 8, 10), about, cost, networks=seeds, **options)


def smoke(seeds: int = 2) -> Study:
    """Some steps at K = 16."""
    names = ("geometric", "multi_crop")
    return _study((2, 3), _ABOUT, "seconds", 16, names, networks=seeds, epochs=1, evaluation_batches=1)


def _study(
    views: tuple[int, ...],
    about: str,
    cost: str,
    instances: int = 1024,
    names: tuple[str, ...] = tuple(_gaussian.OBJECTIVES),
    **options: Any,
) -> Study:
    figure = "Section 3.1, Figure 2"
    sources = {GEOMETRIC: f"{figure}; Theorem 2.3", ARITHMETIC: f"{figure}; Theorem 2.3", SUFFICIENT: figure}
    labels = [_gaussian.OBJECTIVES[name].label for name in names if name != "multi_crop"]
    falls = partial(Trend, measure="gap", along="M", rises=False)
    crops, smallest = {"objective": MULTI_CROP}, f"Geometric has the smallest gap, at M = {views[-1]}"
    same = "The expectation of Multi-Crop's loss does not depend on M (here: by 0.02 nats at most)"
    return Study(
        title="Shidani 2024, Figure 2: bounds on the information of a Gaussian model",
        about=about,
        cells=_gaussian.cells(names, [(m, instances) for m in views], **options),
        measures=MEASURES,
        claims=(
            *(
                falls(f"The gap falls with M: {name}", sources[name], cells={"objective": name})
                for name in labels
            ),
            Trend("The gap of Multi-Crop rises with M", f"{figure}; Proposition 2.1", "gap", crops, "M"),
            *_rows.above(figure, "gap", [(smallest, {"M": views[-1]}, [{"objective": GEOMETRIC}])]),
            *_rows.within(figure, "loss", (-0.02, 0.02), [(same, crops, [{"M": views[0]}])]),
            _gaussian.not_above("The printed bounds", "Theorems 2.2 and 2.4, Proposition 2.1", "gap"),
        ),
        along="M",
        reference={"objective": GEOMETRIC},
        seeds=1,
        cost=cost,
    )
