"""Koromilas 2025, Table III: weighted k-NN accuracy on four image data sets by number of views.

With `--workdir` of the folder of koromilas_table2 this study uses its runs. Its
grid on digits is `mvcl study koromilas_figure3 --scale small`, which measures k-NN too.
Source: Table III, Section V-A2; recipes `koromilas/cifar` and `koromilas/imagenet`.
"""

from typing import Any

import _digits
import _koromilas

from mvcl.studies import Claim, Measure, Study

_ABOUT = """\
Top-1 accuracy of 200 neighbours, weighted by e^(cosine / 0.07) as in the paper's reference (Wu 2018), on the frozen
features of the runs of Table II with 3 and 4 views, and beside them that of the head's outputs: the paper says "learned
representations". The table has no row of avg. The paper gives no temperature of
the weights, no number of runs and no deviation.

In the paper's own numbers MV-InfoNCE is below pwe on ImageNet-100 at 3 views (64.7 and 65.3), and pwe falls there
from 3 to 4 views."""


_PRINTED = {
    ("CIFAR-10", 3): (82.3, 82.3, 83.0, 85.1),
    ("CIFAR-10", 4): (83.4, 83.6, 84.3, 86.7),
    ("CIFAR-100", 3): (43.9, 43.8, 44.9, 49.9),
    ("CIFAR-100", 4): (45.1, 45.3, 45.9, 51.8),
    ("ImageNet-100", 3): (65.3, 63.8, 64.7, 68.5),
    ("ImageNet-100", 4): (63.3, 65.6, 65.9, 70.1),
    ("ImageNet-1K", 3): (42.1, 42.4, 42.5, 42.6),
    ("ImageNet-1K", 4): (43.8, 43.7, 44.9, 46.3),
}


def paper(seeds: int = 1, *, released: bool = False) -> Study:
    """CIFAR-10 and -100 with ResNet-18, ImageNet-100 and -1K with ResNet-50.

    Args:
      released: train as the authors' code does.
    """
    cost = f"105,000 PFLOP a seed, estimated from the recipes' cost at k = 4{_koromilas.PROBE}; none beside Table II"
    names = ("pwe", "PVC", "MV-InfoNCE", "MV-DHEL")
    bases, about = _koromilas.images(released=released), _ABOUT + _koromilas.RELEASED * released
    more = (Measure("k-NN, head", percent=True),)
    scale = {"about": about, "noise": {"k-NN": _koromilas.NOISE}, "seeds": seeds, "more": more}
    return _study(bases, names, (3, 4), cost=f"several GPUs; {cost}", **scale)


def smoke(seeds: int = 2) -> Study:
    """Two steps of a tiny network on random vectors."""
    bases, cost = {"random": _digits.vectors_of}, "seconds on 2 cores"
    return _study(bases, ("pwe", "MV-DHEL"), (3,), about=_ABOUT, seeds=seeds, cost=cost)


def _study(bases: _koromilas.Bases, names: tuple[str, ...], ks: tuple[int, ...], **scale: Any) -> Study:
    claims: list[Claim] = []
    for data in bases:
        claims += _koromilas.best_claims(names, ks, "k-NN", "Table III, Section V-A2", {"data": data})
    title = "Koromilas 2025, Table III: k-NN accuracy by number of views"
    shown = Measure("k-NN", percent=True)
    return _koromilas.table(bases, names, ks, shown, _PRINTED, title=title, claims=claims, **scale)
