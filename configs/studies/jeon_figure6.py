"""Jeon 2025, Figure 6: resultant length and concentration during training, with and without their two scalings.

Source: Figure 6 (appendix C), of which Section 4.3 tells; small also Figure 5. Recipes `jeon/dsf`, small `digits`.
"""

from collections.abc import Mapping
from typing import Any

import _digits
import _jeon

from mvcl import studies, training
from mvcl.studies import Above, Claim, Measure, Study, Within, trained
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

Here on 1,437 training and 360 test digits of 8 x 8 pixels with 4 views, a ConvNet of widths 16, 32 and 64, a queue of
512, 10 epochs of AdamW at 3e-3 (the paper: CIFAR-10, 8 views, ResNet-18, SGD). The margins are Figure 5's, whose
network is another; cosines have at most 2."""

_PAPERS = "concentration / p, 0.95 R"
_FORMS: Mapping[str, Mapping[str, Any]] = {
    _PAPERS: {},
    "concentration, 0.95 R": {"objective.normalize_concentration": False},
    "concentration / p, 0.999 R": {"objective.resultant_scale": 0.999},
}


def paper(seeds: int = 1) -> Study:
    """CIFAR-10, M = 8."""
    base = training.load("jeon/dsf:cifar10")
    measures = (Measure("k-NN", percent=True),)
    return _study(
        base, list(_FORMS), measures, _ABOUT, seeds, "one GPU; 594 PFLOP a seed, from the recipe's cost"
    )


def small(seeds: int = 5) -> Study:
    """Digits, M = 4."""
    base = _jeon.on_digits(studies.changed(_digits.digits_of(4), {"train.log_every": 5}))["DSF"]
    return _study(
        base, list(_FORMS), _digits.ACCURACIES, _ABOUT_SMALL, seeds, "1 minute on 2 cores, estimated"
    )


def smoke(seeds: int = 2) -> Study:
    """Two steps of a tiny network on random vectors."""
    base = _jeon.on_digits(_digits.vectors_of(2), queue=16)["DSF"]
    measures = (Measure("linear", percent=True),)
    return _study(base, list(_FORMS)[:2], measures, _ABOUT, seeds, "seconds on 2 cores")


def _study(
    base: Config, forms: list[str], accuracies: tuple[Measure, ...], about: str, seeds: int, cost: str
) -> Study:
    cells: dict[str, str | int | float] = {"form": _PAPERS}
    claims: list[Claim] = [
        *(
            Within(f"{what} rises in training", "Section 4.3", f"{name}, gain", cells, low=0)
            for what, name in (("the resultant length", "R"), ("the concentration", "kappa"))
        ),
        *(
            Above(
                f"{form} has a larger concentration than the paper's form",
                "Section 4.3",
                "kappa, end",
                {"form": form},
                ({"form": _PAPERS},),
            )
            for form in forms
            if form != _PAPERS
        ),
        *(
            Above(
                f"the paper's form is more accurate than {form}",
                "Section 4.3: the scalings stabilise training",
                accuracies[0].name,
                cells,
                ({"form": form},),
            )
            for form in forms
            if form != _PAPERS
        ),
        *_jeon.margin_claims(cells),
    ]
    return Study(
        title="Jeon 2025, Figure 6: resultant length and concentration during training",
        about=about,
        cells=tuple(
            trained({"form": form}, base, _FORMS[form], measure=_jeon.results_and_similarities)
            for form in forms
        ),
        measures=(
            *accuracies,
            Measure("R, start", digits=3, better=""),
            Measure("R, end", digits=3, better=""),
            Measure("R, gain", digits=3, better=""),
            Measure("kappa, start", digits=2, better=""),
            Measure("kappa, end", digits=2, better=""),
            Measure("kappa, gain", digits=2, better=""),
            *_jeon.MARGINS,
        ),
        claims=claims,
        reference={"form": _PAPERS},
        seeds=seeds,
        cost=cost,
    )
