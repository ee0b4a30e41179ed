"""Koromilas 2025, Fig. 4 (bottom): accuracy by number of views at a fixed number of views in a batch.

Source: Fig. 4 (bottom), Section V-C5; recipes `koromilas/cifar`, small `digits`.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import _digits
import _koromilas

from mvcl import studies
from mvcl.studies import Claim, Measure, Study
from mvcl.training import Config

_ABOUT = """\
CIFAR-10 and CIFAR-100. A batch has {budget} views, so that more views of an image leave fewer images: n = {budget} /
k, rounded down. The paper's figure prints no numbers and we do not have it; its text has 256 views as an example and
128 as the batch of all ablations (Section V-C), which is `--budget 128`. The learning rate is n / 256 (appendix E).
That only MV-DHEL rises is decided as: it rises, and it gains more than each other objective."""

_ABOUT_SMALL = """\
1,437 training and 360 test digits of 8 x 8 pixels, a ConvNet of widths 16, 32 and 64. A batch has 256 views: 128
images of 2 views, 32 of 8. 10 epochs of AdamW at 3e-3 for all cells (the paper: CIFAR, ResNet-18, 200 epochs
of SGD, a learning rate of n / 256), so that more views take more steps, as in the paper. The accuracy is that of 10
labels a class, the mean of 10 draws. That only MV-DHEL rises is decided as: it rises, and it gains more than each
other objective."""


def paper(seeds: int = 1, *, budget: int = 256) -> Study:
    """CIFAR-10 and -100 with ResNet-18, k = 2 to 8.

    Args:
      budget: views in a batch.
    """
    bases = {
        name: partial(_fixed, of, budget) for name, of in _koromilas.images("CIFAR-10", "CIFAR-100").items()
    }
    measures = (Measure("linear, SGD", percent=True),)
    about = _ABOUT.format(budget=budget)
    cost = "several GPUs; 10,300 PFLOP a seed, estimated from the recipes' cost at k = 4"
    return _study(bases, _koromilas.ALL, range(2, 9), measures, about=about, seeds=seeds, cost=cost)


def small(seeds: int = 5) -> Study:
    """Digits, 256 views in a batch, k = 2 and 8."""
    bases, names = {"digits": partial(_fixed, _digits.digits_of, 256)}, ("pwe", "MV-InfoNCE", "MV-DHEL")
    cost = "3 minutes on 2 cores, estimated"
    return _study(bases, names, (2, 8), _digits.ACCURACIES, about=_ABOUT_SMALL, seeds=seeds, cost=cost)


def smoke(seeds: int = 2) -> Study:
    """Two steps of a tiny network on random vectors."""
    bases, names = {"random": partial(_fixed, _digits.vectors_of, 48)}, ("pwe", "MV-DHEL")
    about, cost = _ABOUT.format(budget=48), "seconds on 2 cores"
    return _study(bases, names, (2, 3), _digits.LINEAR, about=about, seeds=seeds, cost=cost)


def _fixed(base: Callable[[int], Config], budget: int, k: int) -> Config:
    changes = {"views.strategy": "fixed", "views.reference_views": 1, "train.batch_size": budget}
    return studies.changed(base(k), changes)


def _study(
    bases: _koromilas.Bases,
    names: Sequence[str],
    ks: Sequence[int],
    measures: tuple[Measure, ...],
    **scale: Any,
) -> Study:
    claims: list[Claim] = []
    source = "Fig. 4 (bottom), Section V-C5"
    for where in ({"data": data} for data in bases):
        claims += _koromilas.rise_claims(["MV-DHEL"], measures[0].name, source, where)
        claims.append(_koromilas.gain_claim("MV-DHEL", names, measures[0].name, source, where))
    return Study(
        unequal="The number of views in a batch is fixed (Section V-C5), so that of instances falls with k.",
        title="Koromilas 2025, Fig. 4 (bottom): accuracy by number of views at a fixed number of views in a batch",
        cells=_koromilas.by_k(bases, names, ks),
        measures=measures,
        claims=claims,
        columns="k",
        reference={"objective": "pwe"},
        along="k",
        **scale,
    )
