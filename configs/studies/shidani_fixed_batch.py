"""Shidani 2024, Appendix E.5: the best number of views M where B = M K vectors are fixed, down to K = 2 instances.

The Gaussian model of Section 3.1 at B = 64; networks are trained side by side, so --seeds is their number.
"""

from pathlib import Path
from typing import Any

import _gaussian
import _networks
import _rows
from _gaussian import ARITHMETIC, GEOMETRIC, SUFFICIENT

from mvcl import metrics, training
from mvcl.studies import Measure, Study, Values

_ABOUT = """\
Fewer instances as the views grow: K = B / M. The paper derives two best values of M for geometric PVC from p, the
likelihood of the true view at M = 2: sqrt(2 (B + 1)(1 - p)) (Eq. 154) and 1 + sqrt(B (1 - p)) (Eq. 155). It does not
measure them. At a loss of a few nats p = e^-loss is small; at B = 64 and any p below 0.3 both are nearest to M = 8 of
the values trained here (11.3 and 8.9 at the measured p; `metrics.optimal_multiplicity`), whatever the data.

The Gaussian model is that of `mvcl study shidani_figure2`, with its settings, and the losses of the library throughout:
no batch here has more vectors than the grid has nodes. The limit is the expectation of the bound that holds under the
best score for this K and M (`metrics.expected_info_nce`); `metrics.best_gaussian_multiplicity`, ours, is the M with the
largest limit, 8. The bound that holds contrasts whole groups of views, which are exchangeable between instances: a
lower bound in expectation for any score, K and M, and at most log K. The printed one is no bound (see the page of
Figure 2): with few instances it rises above the information, so that its largest value says nothing about it."""

BATCH = 64
_BEST = 8  # nearest to Eqs. 154 and 155


def paper(seeds: int = 16) -> Study:
    """The settings of Figure 2."""
    return _study((2, 4, 8, 16, 32), _ABOUT, "2 CPU cores, 10 minutes, estimated", networks=seeds)


def small(seeds: int = 8) -> Study:
    """Fewer updates at a higher learning rate."""
    about, cost = f"{_ABOUT}\n\n{_gaussian.SMALL}.", "2 CPU cores, 3 minutes, estimated"
    return _study((2, 4, 8, 16, 32), about, cost, networks=seeds, **_gaussian.SHORT)


def smoke(seeds: int = 2) -> Study:
    """Some steps."""
    names = ("geometric", "multi_crop")
    return _study((4, 8), _ABOUT, "seconds", names, networks=seeds, epochs=1)


def measured(folder: Path) -> list[Values]:
    """The results of each network, and the limit of the bound that holds."""
    bound = training.load(folder).evaluation
    assert isinstance(bound, _networks.InformationBound)
    limit = metrics.expected_info_nce(bound.instances, bound.information)
    return [values | {"limit": limit} for values in _gaussian.each_network(folder)]


def _study(
    views: tuple[int, ...],
    about: str,
    cost: str,
    names: tuple[str, ...] = tuple(_gaussian.OBJECTIVES),
    **options: Any,
) -> Study:
    others = _rows.levels("M", (m for m in views if m != _BEST))

    def best(text: str, *of: str) -> list[_rows.Row]:
        return [(f"{text}: M = {_BEST}, {name}", {"objective": name, "M": _BEST}, others) for name in of]

    equations = "Appendix E.5, Eqs. 154 and 155"
    at_equations = "is largest at the M of Eqs. 154 and 155"
    at_limit = "The bound that holds is largest at the M with the largest limit"
    labels = [_gaussian.OBJECTIVES[name].label for name in names]
    ours = [label for label in (ARITHMETIC, SUFFICIENT) if label in labels]
    return Study(
        unequal="B = M K vectors are fixed, so that of instances falls with M.",
        title=f"Shidani 2024, Appendix E.5: the best M at B = {BATCH}",
        about=about,
        cells=_gaussian.cells(names, [(m, BATCH // m) for m in views], measure=measured, **options),
        measures=(
            Measure("valid", label="bound that holds", digits=4),
            Measure("limit", label="its limit", digits=4, better=""),
            Measure("bound", label="printed bound", digits=4, better=""),
            Measure("gap", label="its gap", digits=4, better=""),
            Measure("valid gap", label="gap of the bound that holds", digits=4, better="lower"),
            Measure("information", label="true information", digits=4, better=""),
            Measure("loss", digits=4, better=""),
        ),
        claims=(
            *_rows.above(equations, "bound", best(f"The printed bound {at_equations}", GEOMETRIC)),
            *_rows.above(equations, "valid", best(f"The bound that holds {at_equations}", GEOMETRIC)),
            *_rows.above("ours", "valid", best(at_limit, *ours)),
            _gaussian.not_above("The printed bounds", "Theorems 2.2 and 2.4, Proposition 2.1", "gap"),
            _gaussian.not_above("The bounds from groups of views", "ours", "valid gap"),
        ),
        along="M",
        reference={"objective": GEOMETRIC},
        seeds=1,
        cost=cost,
    )
