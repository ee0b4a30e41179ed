"""Koromilas 2025, Fig. 4 (bottom): accuracy by number of views at a fixed number of views in a batch.

Source: Fig. 4 (bottom), Section V-C5; recipes `koromilas/cifar`, small `digits`.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import _digits
import _koromilas

from mvcl import studies
from mvcl.studies import Claim, Factors, Measure, Study, trained
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
    bases = {"CIFAR-10": partial(_cifar, "cifar10", budget), "CIFAR-100": partial(_cifar, "cifar100", budget)}
    names = ("pwe", "avg", "PVC", "MV-InfoNCE", "MV-DHEL")
    measures = (Measure("linear, SGD", percent=True),)
    cost = "several GPUs; 10,300 PFLOP a seed, estimated from the recipes' cost at k = 4"
    return _study(bases, names, range(2, 9), measures, _ABOUT.format(budget=budget), seeds, cost)


def small(seeds: int = 5) -> Study:
    """Digits, 256 views in a batch, k = 2 and 8."""
    names = ("pwe", "MV-InfoNCE", "MV-DHEL")
    bases = {"digits": partial(_fixed, _digits.digits_of, 256)}
    return _study(
        bases, names, (2, 8), _digits.ACCURACIES, _ABOUT_SMALL, seeds, "3 minutes on 2 cores, estimated"
    )


def smoke(seeds: int = 2) -> Study:
    """Two steps of a tiny network on random vectors."""
    bases = {"random": partial(_fixed, _digits.vectors_of, 48)}
    measures = (Measure("linear", percent=True),)
    about = _ABOUT.format(budget=48)
    return _study(bases, ("pwe", "MV-DHEL"), (2, 3), measures, about, seeds, "seconds on 2 cores")


def _cifar(variant: str, budget: int, k: int) -> Config:
    return _fixed(partial(_koromilas.recipe_of, f"koromilas/cifar:{variant}"), budget, k)


def _fixed(base: Callable[[int], Config], budget: int, k: int) -> Config:
    changes = {"views.strategy": "fixed", "views.reference_views": 1, "train.batch_size": budget}
    return studies.changed(base(k), changes)


def _study(
    bases: Mapping[str, Callable[[int], Config]],
    names: Sequence[str],
    ks: Sequence[int],
    measures: tuple[Measure, ...],
    about: str,
    seeds: int,
    cost: str,
) -> Study:
    objectives = _koromilas.objectives()
    claims: list[Claim] = []
    for data in bases:
        where: Factors = {"data": data}
        source = "Fig. 4 (bottom), Section V-C5"
        claims += _koromilas.rise_claims(["MV-DHEL"], measures[0].name, source, where)
        claims.append(_koromilas.gain_claim("MV-DHEL", names, measures[0].name, source, where))
    return Study(
        title="Koromilas 2025, Fig. 4 (bottom): accuracy by number of views at a fixed number of views in a batch",
        about=about,
        cells=tuple(
            trained({"data": data, "objective": name, "k": k}, base(k), {"objective": objectives[name]})
            for data, base in bases.items()
            for name in names
            for k in ks
        ),
        measures=measures,
        claims=claims,
        columns="k",
        reference={"objective": "pwe"},
        along="k",
        seeds=seeds,
        cost=cost,
    )
