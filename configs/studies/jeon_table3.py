"""Jeon 2025, Table 3 and Figures 5 and 6: DSF by temperature, without its scalings, and its similarities in training.

Source: Table 3, Sections 4.3, 4.5 and 5.5, appendix C; recipe `jeon/dsf`.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import _bench
import _images
import _jeon
import _rows

from mvcl.studies import SEEDS, Claim, Factors, Measure, Study, Within, trained

_ABOUT = """\
DSF with MoCo v2, its similarities divided by a temperature. The text has 0.1 to 5.0, the table 0.8 to 1.1. At 1 the
table prints more than Table 1 does for the same method (k-NN 91.8 and 90.04, linear 92.5 and 91.21), and no epochs.

DSF divides the concentration by the dimension p and multiplies the resultant length R by 0.95, since R tends to 1 in
training and the concentration grows with p and as R nears 1, "often leading to numerical overflow" (Section 4.3).
Appendix C and its figure are not in our text. Here are runs without either scaling: all concentrations times p, and R
times 0.999. R and the concentration are those after the scalings, means over the first and the last tenth of the steps;
`mvcl report` draws the curves. That the scalings stabilise training is decided by the accuracy; a run whose loss is not
finite fails and is listed as such. The margin is s+ - s-, the similarity of the positive less the mean of the
negatives; cosines have at most 2 without a temperature (Proposition 1)."""
_PAPER = """

Table 3 here has Table 1's 250 epochs. The recipe is the released one; `--recipe paper` has the paper's settings where
the code differs. Figure 5, of ImageNet-100, is in `mvcl study jeon_table1`."""
_SMALL = f"""

{_jeon.SMALL} Temperatures are further apart than the table's, whose printed differences to T = 1 are 0.2 to 0.6
points. The margins are Figure 5's, whose network is another."""
_PAPERS = "concentration / p, 0.95 R"
_FORMS: Mapping[str, Mapping[str, Any]] = {
    "concentration, 0.95 R": {"objective.normalize_concentration": False},
    "concentration / p, 0.999 R": {"objective.resultant_scale": 0.999},
}
_PRINTED = {0.8: (91.2, 92.0), 0.9: (91.3, 92.3), 1.0: (91.8, 92.5), 1.1: (91.4, 92.0)}
_CURVES = [Measure(f"R, {when}", digits=3, better="") for when in _jeon.WHEN]
_CURVES += [*(Measure(f"kappa, {when}", digits=2, better="") for when in _jeon.WHEN), *_jeon.MARGINS]
_TITLE = "Jeon 2025, Table 3 and Figures 5 and 6: DSF by temperature, and its similarities in training"
_REFERENCE = {"form": _PAPERS, "temperature": 1.0}
_SAME: Any = {"title": _TITLE, "reference": _REFERENCE, "along": "temperature"}


def paper(seeds: int = 1, *, recipe: _jeon.Recipe = "released") -> Study:
    """CIFAR-10, M = 8."""
    base, cells = _jeon.on_images("DSF", recipe=recipe), []
    for factors, changes in _grid([*_PRINTED]):
        known = _PRINTED[factors["temperature"]] if factors["form"] == _PAPERS else ()
        printed = dict(zip(("k-NN, head", "linear, SGD"), known))
        cells.append(trained(factors, base, changes, printed, _jeon.results_and_log))
    return Study(
        **_SAME,
        about=_ABOUT + _PAPER,
        cells=cells,
        measures=(*_jeon.ACCURACIES, *_CURVES),
        claims=_claims(("k-NN, head", "linear, SGD"), [*_PRINTED]),
        noise=_jeon.NOISE,
        seeds=seeds,
        cost=_rows.of_gpus(1_200, "a seed"),
    )


def small(seeds: int = SEEDS, *, data: Path) -> Study:
    """Part of CIFAR-10, M = 4, temperatures 0.5 to 2. `data` is its file, .npz."""
    base, temperatures = _jeon.bench_of(_bench.Images(path=str(data))), (0.5, 1.0, 2.0)
    cells = []
    for factors, changes in _grid(temperatures):
        # At 1 the objective of jeon_table1, whose run it shares.
        plain = {name: value for name, value in changes.items() if value != 1.0}
        cells.append(_jeon.cell(factors, base, {"objective": _jeon.objectives()["DSF"], **plain}))
    same = {**_SAME, "unequal": _jeon.UNEQUAL, "measures": (*_bench.MEASURES, *_CURVES)}
    claims = _claims(("k-NN", "linear"), temperatures)
    return _images.study(data, cells, _ABOUT + _SMALL, **same, claims=claims, seeds=seeds)


smoke = _images.smoke(small)


def _grid(temperatures: Sequence[float]) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    papers: Any = [({"form": _PAPERS, "temperature": t}, {"objective.temperature": t}) for t in temperatures]
    return papers + [({"form": name, "temperature": 1.0}, {**of}) for name, of in _FORMS.items()]


def _claims(accuracies: Sequence[str], temperatures: Sequence[float]) -> list[Claim]:
    source, papers = "Section 4.3", {"form": _PAPERS}
    cells: Factors = {**papers, "temperature": 1.0}
    others = [t for t in temperatures if t != 1]
    larger = "{form} has a larger concentration than the paper's form"
    found: list[Claim] = [
        Within("the resultant length rises in training", source, "R, gain", cells, low=0),
        Within("the concentration rises in training", source, "kappa, gain", cells, low=0),
        *_rows.above(source, "kappa, end", _rows.each(larger, {}, [papers], form=_FORMS)),
        *_jeon.margin_claims(cells),
    ]
    for measure in accuracies:
        rows = _rows.against("temperature 1 is above {:g}", cells, "temperature", others)
        found += _rows.above("Table 3, Section 5.5", measure, rows)
        rows = _rows.against("the paper's form is more accurate than {}", cells, "form", _FORMS)
        found += _rows.above(f"{source}: the scalings stabilise training", measure, rows)
    return found
