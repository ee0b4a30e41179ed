"""Jeon 2025, Figure 5: the margin of DSF's similarities during training.

On digits the margin is measured in `mvcl study jeon_figure6 --scale small`.
Source: Figure 5, Section 4.5 (Proposition 1); recipe `jeon/imagenet100`.
"""

from typing import Any

import _jeon

from mvcl.studies import Study, trained
from mvcl.training import Config

_ABOUT = """\
s+ - s-, the similarity of the positive less the mean of the negatives, of MoCo v3 with DSF on ImageNet-100, 128
images of 8 views: means over the first and the last tenth of the steps; `mvcl report` draws the whole curve. MoCo
v3's is that of the first of its two directions. The figure prints no numbers and we do not have it. Cosines, of any
network, have a margin of at most 2 without a temperature (Proposition 1), and Section 4.5 points to the figure for
DSF having no such limit."""


def paper(seeds: int = 1) -> Study:
    """ImageNet-100, MoCo v3 with ViT-S/16."""
    base, cost = (
        _jeon.on_images("DSF", "imagenet100", "released"),
        "several GPUs; 3,790 PFLOP a seed, the recipe's cost",
    )
    return _study(base, seeds=seeds, cost=cost)


def smoke(seeds: int = 2) -> Study:
    """Two steps of a tiny network on random vectors."""
    return _study(_jeon.smoke()["DSF"], seeds=seeds, cost="seconds on 2 cores")


def _study(base: Config, **scale: Any) -> Study:
    return Study(
        title="Jeon 2025, Figure 5: the margin of DSF's similarities during training",
        about=_ABOUT,
        cells=(trained({"method": "DSF"}, base, measure=_jeon.results_and_similarities),),
        measures=_jeon.MARGINS,
        claims=_jeon.margin_claims({"method": "DSF"}),
        **scale,
    )
