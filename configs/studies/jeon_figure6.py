"""Jeon 2025, Figure 6: resultant length and concentration during training, with and without their two scalings.

Source: Figure 6 (appendix C), of which Section 4.3 tells; small also Figure 5. Recipes `jeon/dsf`, small `digits`.
"""

from collections.abc import Mapping
from typing import Any

import _digits
import _jeon
import _rows

from mvcl.studies import SEEDS, Claim, Measure, Study, Within, trained
from mvcl.training import Config

_ABOUT = """\
DSF divides the concentration by the dimension p and multiplies the resultant length R by 0.95, since R tends to 1 in
training and the concentration grows with p and as R nears 1, "often leading to numerical overflow" (Section 4.3).
Appendix C and its figure are not in our text. Here: MoCo v2 with DSF on CIFAR-10 as in the paper, and without either
scaling: all concentrations times p, and R times 0.999. R and the concentration are those that the similarity uses,
after the scalings; the values are means over the first and the last tenth of the steps; `mvcl report` draws the
curves. That the scalings stabilise training is decided by the accuracy; a run whose loss is not finite fails and is
listed as such."""

_ABOUT_SMALL = f"""\
{_ABOUT}

Here on {_jeon.ON_DIGITS} 4 views, 20 epochs. The margins are Figure 5's, whose network is another; cosines have at
most 2."""

_PAPERS = "concentration / p, 0.95 R"
_FORMS: Mapping[str, Mapping[str, Any]] = {
    _PAPERS: {},
    "concentration, 0.95 R": {"objective.normalize_concentration": False},
    "concentration / p, 0.999 R": {"objective.resultant_scale": 0.999},
}


def paper(seeds: int = 1) -> Study:
    """CIFAR-10, M = 8."""
    base, measures = _jeon.on_images("DSF", recipe="released"), _jeon.ACCURACIES[:1]
    cost = "one GPU; 594 PFLOP a seed, from the recipe's cost"
    return _study(base, list(_FORMS), measures, about=_ABOUT, seeds=seeds, cost=cost)


def small(seeds: int = SEEDS) -> Study:
    """Digits, M = 4."""
    base = _jeon.on_digits(_jeon.digits_of(4))["DSF"]
    measures, cost = _digits.ACCURACIES, "12 minutes on 2 cores, estimated"
    return _study(base, list(_FORMS), measures, about=_ABOUT_SMALL, seeds=seeds, cost=cost)


def smoke(seeds: int = 2) -> Study:
    """Two steps of a tiny network on random vectors."""
    base, forms, cost = _jeon.smoke()["DSF"], list(_FORMS)[:2], "seconds on 2 cores"
    return _study(base, forms, _digits.LINEAR, about=_ABOUT, seeds=seeds, cost=cost)


def _study(base: Config, forms: list[str], accuracies: tuple[Measure, ...], **scale: Any) -> Study:
    source, cells = "Section 4.3", {"form": _PAPERS}
    larger = "{form} has a larger concentration than the paper's form"
    claims: list[Claim] = [
        Within("the resultant length rises in training", source, "R, gain", cells, low=0),
        Within("the concentration rises in training", source, "kappa, gain", cells, low=0),
        *_rows.above(source, "kappa, end", _rows.each(larger, {}, [cells], form=forms[1:])),
        *_rows.above(
            f"{source}: the scalings stabilise training",
            accuracies[0].name,
            _rows.against("the paper's form is more accurate than {}", cells, "form", forms[1:]),
        ),
        *_jeon.margin_claims(cells),
    ]
    curves = [
        Measure(f"{name}, {when}", digits=digits, better="")
        for name, digits in (("R", 3), ("kappa", 2))
        for when in ("start", "end", "gain")
    ]
    measure = _jeon.results_and_similarities
    return Study(
        title="Jeon 2025, Figure 6: resultant length and concentration during training",
        cells=[trained({"form": form}, base, _FORMS[form], measure=measure) for form in forms],
        measures=(*accuracies, *curves, *_jeon.MARGINS),
        claims=claims,
        reference=cells,
        **scale,
    )
