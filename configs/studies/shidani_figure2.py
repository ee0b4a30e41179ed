"""Shidani 2024, Figure 2: bounds on the information of a Gaussian model by objective and number of views M.

Section 3.1. The runs are those of `shidani/gaussian`; networks are trained side by side, so --seeds is their number.
"""

from typing import Any

import _gaussian
import _rows
from _gaussian import ARITHMETIC, GEOMETRIC, MULTI_CROP

from mvcl.studies import SEEDS, Claim, Study, Trend

_ABOUT = """\
Each instance has M views x = c + noise, c ~ N(0, 1), noise ~ N(0, 0.5²). An MLP 1-32-32 with GELU embeds a view; unit
vectors, temperature 0.1. Every number is the library's loss or bound on new instances, K a batch, in nats. The
printed bound is log(MK - M + 1) - loss (Theorems 2.2 and 2.4), and log K - loss for Multi-Crop (Proposition 2.1); the
ratio, the paper's third panel, is the true one-vs-rest information (Eq. 26) by that bound. Bounds that hold contrast
whole groups of views (`metrics.info_nce_bound` of `metrics.group_scores`), with the objective's aggregation as score,
geometric for Multi-Crop: one view against the others, and half of the views against the other half, the two-set
information of Appendix E.1.

**Two gaps.** The paper's gap is that of Eq. 7, information minus the bound of Eq. 5, E[F] - E'[e^F] + 1, E' over the
product of the marginals; that of the figure may be information minus the printed bound E[F] (self-normalised). Both
are here, of the same critic F (Eq. 75). They differ by 1 - E'[e^F], which is measured by one view of another batch in
place of the own one. The proof of Theorem 2.2 takes E'[e^F] for 1: so it is for Multi-Crop, for the geometric mean it
is less (Eq. 85, Jensen's inequality).

**What can be expected.** `mvcl study shidani_gaps` computes both gaps without networks: for a given critic of pairs the
geometric mean has the smaller gap of Eq. 7 in this model, as the figure shows it, and always the larger self-normalised
one; and Theorem 2.3, whose gap never grows with M, is false for both. But here every mean trains its own critic. A term
of the geometric loss compares one pair of views, as Multi-Crop's does, so that its self-normalised bound is limited by
what two views share, 0.5108 nats for every M, and that gap rises as I(M) - I(2), by 0.2293 nats at M = 8 and 0.2426 at
M = 10 (`metrics.gaussian_information`). The mean of likelihoods (arithmetic) and of embeddings (sufficient statistics)
do not have this limit. Two things in the paper could explain a figure that is different; neither can be checked, as its
code, its deviations of the model and its temperature are not published. Algorithm 1's "arithmetic" is +logsumexp of the
losses, the logarithm of a harmonic mean of the likelihoods (`poly_view` with aggregation "harmonic"), which is below
the geometric one. And it subtracts log(k), k the instances, where the mean over the other views is log(M - 1).

**The printed theorems are no lower bounds.** Their proof takes the M views of another instance for exchangeable
negatives, and they are correlated. Two equally likely classes, every view its class: the information is log 2 =
0.6931 for any M, while the printed bound is 0.5493 at (K, M) = (2, 2), 1.0986 at (2, 8), 0.9301 at (4, 8), 0.6952 at
(5, 2), 0.6992 at (64, 8) and 0.6935 at (1024, 8); groups contrasted give 0.3466, 0.3466, 0.5411, 0.5770, 0.6853 and
0.6927 (`two_classes` in `tests/studies/test_gaussian.py`). `mvcl study shidani_fixed_batch` has small K.

**Differences from the paper.** Network, optimiser, K, M, epochs and number of runs are the paper's. Chosen here: both
deviations of the model, the temperature, an epoch of 20 new batches and a cosine decay of the learning rate to 0, so
that the loss is flat at the end: the last column is the mean loss of all networks in the ninth of the run before its
last third, minus that in its last ninth, one number for all networks of a cell. At this temperature unit vectors do not
reach the best critic of pairs: at M = 2 the loss is flat with a bound below the information. Training sums over
negatives on a grid of 64 inputs (`_gaussian_grid.py`; 5e-5 at most from the library's loss on trained networks),
because all pairs of M K = 10240 vectors take hours on two cores; measurements do not. Networks of one M see the same
data under every objective, so differences between objectives are paired; networks of two values of M share nothing."""

_THEOREM = dict.fromkeys((GEOMETRIC, ARITHMETIC), "; Theorem 2.3")


def paper(seeds: int = 16) -> Study:
    """The paper's settings."""
    cost = "one GPU, an hour, or 2 CPU cores, 13 hours, estimated from 55 minutes for 600 updates of 8 networks, for 16"
    return _study((2, 4, 8, 10), _ABOUT, cost, networks=seeds)


def small(seeds: int = SEEDS) -> Study:
    """Fewer updates at a higher learning rate, up to M = 8."""
    about = f"""{_ABOUT}

{_gaussian.SMALL}, three batches for each network's numbers in place of four, M up to 8. The loss gained in the last
third has a standard error of 0.002 to 0.003 nats, from the 10 logged losses of each ninth; values below 0 are that
noise."""
    cost = "one process on 2 CPU cores that did other work too, 1.5 hours for 20 networks"
    return _study((2, 3, 4, 8), about, cost, networks=seeds, **_gaussian.SHORT)


def smoke(seeds: int = 2) -> Study:
    """Some steps at K = 16."""
    names = ("geometric", "multi_crop")
    return _study((2, 3), _ABOUT, "seconds", 16, names, networks=seeds, epochs=1)


def _study(
    views: tuple[int, ...],
    about: str,
    cost: str,
    instances: int = 1024,
    names: tuple[str, ...] = tuple(_gaussian.OBJECTIVES),
    **options: Any,
) -> Study:
    figure = "Section 3.1, Figure 2"
    labels = [_gaussian.OBJECTIVES[name].label for name in names if name != "multi_crop"]
    crops = {"objective": MULTI_CROP}
    claims: list[Claim] = []
    for measure, gap in (("gap", "self-normalised gap"), ("gap, Eq. 7", "gap of Eq. 7")):
        for name in labels:
            source, cells = f"{figure}{_THEOREM.get(name, '')}", {"objective": name}
            claims.append(Trend(f"The {gap} falls with M: {name}", source, measure, cells, "M", rises=False))
        text = f"Geometric has the smallest {gap}, at M = {{M}}"
        others = _rows.each(text, {}, [{"objective": GEOMETRIC}], M=views[1:])
        claims += _rows.above(figure, measure, others)
        text = f"The {gap} of Multi-Crop rises with M"
        claims.append(Trend(text, f"{figure}; Proposition 2.1", measure, crops, "M"))
    same = "The expectation of Multi-Crop's loss does not depend on M (here: by 0.02 nats at most)"
    return Study(
        title="Shidani 2024, Figure 2: bounds on the information of a Gaussian model",
        about=about,
        cells=_gaussian.cells(names, [(m, instances) for m in views], **options),
        measures=[*_gaussian.MEASURES.values()],
        claims=(
            *claims,
            *_rows.within(figure, "loss", (-0.02, 0.02), [(same, crops, [{"M": views[0]}])]),
            _gaussian.not_above("The printed bounds", "Theorems 2.2 and 2.4, Proposition 2.1", "gap"),
            _gaussian.not_above("The bounds of Eq. 5", "Theorem 2.1", "gap, Eq. 7"),
        ),
        along="M",
        reference={"objective": GEOMETRIC},
        seeds=1,
        cost=cost,
    )
