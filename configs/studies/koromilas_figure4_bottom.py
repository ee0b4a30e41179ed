"""Koromilas 2025, Fig. 4 (bottom): accuracy by number of views at a fixed number of views in a batch.

Source: Fig. 4 (bottom), Section V-C5; recipes `koromilas/cifar`, small `digits`.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal

import _digits
import _koromilas
import _rows

from mvcl import studies
from mvcl.studies import SEEDS, Claim, Measure, Study, trained
from mvcl.training import Config

_ABOUT = """\
CIFAR-10 and CIFAR-100. A batch has {budget} views, so that more views of an image leave fewer images: n = {budget} /
k, rounded down. The paper's figure prints no numbers and we do not have it; its text has 256 views as an example and
128 as the batch of all ablations (Section V-C), which is `--budget 128`. The learning rate is that of the batch of
views, {budget} / 256, for every k (appendix E; the released code scales none). Whether runs have equal epochs or equal
updates is not said: `--equal updates` has the 39,062 of the released configs. That only MV-DHEL rises is decided as: it
rises, it gains more than each other objective, and none of these ends higher with the most views than with two."""

_ABOUT_SMALL = """\
1,437 training and 360 test digits of 8 x 8 pixels, a ConvNet of widths 16, 32 and 64. A batch has 256 views: 128
images of 2 views, 32 of 8. AdamW at 3e-3 for all cells, since the batch of views is the same (the paper: CIFAR,
ResNet-18, 200 epochs of SGD). The paper does not say whether runs have equal epochs or equal updates, so there are
both, and each claim is decided for both: at 10 epochs 8 views take four times the steps of 2, at 220 updates they see
a quarter of the images. The accuracy is that of 10 labels a class, the mean of 10 draws. That only MV-DHEL rises is
decided as: it rises, it gains more than each other objective, and none of these ends higher with 8 views than with
two."""

_LENGTHS: _koromilas.Lengths = {"epochs": {}, "updates": {"train.steps": 39_062}}


def paper(seeds: int = 1, *, budget: int = 256, equal: Literal["epochs", "updates"] = "epochs") -> Study:
    """CIFAR-10 and -100 with ResNet-18, k = 2 to 8.

    Args:
      budget: views in a batch.
      equal: what the runs of all k have the same number of.
    """
    bases = {
        name: partial(_fixed, of, budget) for name, of in _koromilas.images("CIFAR-10", "CIFAR-100").items()
    }
    measures, lengths = (Measure("linear, SGD", percent=True),), {equal: _LENGTHS[equal]}
    about = _ABOUT.format(budget=budget)
    cost = f"several GPUs; 10,300 PFLOP a seed, estimated from the recipes' cost at k = 4{_koromilas.PROBE}"
    return _study(bases, _koromilas.ALL, range(2, 9), measures, lengths, about=about, seeds=seeds, cost=cost)


def small(seeds: int = SEEDS) -> Study:
    """Digits, 256 views in a batch, k = 2 and 8; 10 epochs, and 220 updates."""
    bases = {"digits": partial(_fixed, _koromilas.digits_of, 256)}
    names, lengths = ("pwe", "MV-InfoNCE", "MV-DHEL"), {"epochs": {}, "updates": {"train.steps": 220}}
    cost = "24 minutes on 2 cores, estimated"
    measures = _digits.ACCURACIES
    return _study(bases, names, (2, 8), measures, lengths, about=_ABOUT_SMALL, seeds=seeds, cost=cost)


def smoke(seeds: int = 2) -> Study:
    """Two steps of a tiny network on random vectors."""
    bases, names = {"random": partial(_fixed, _digits.vectors_of, 48)}, ("pwe", "MV-DHEL")
    about, cost = _ABOUT.format(budget=48), "seconds on 2 cores"
    lengths: _koromilas.Lengths = {"epochs": {}}
    return _study(bases, names, (2, 3), _digits.LINEAR, lengths, about=about, seeds=seeds, cost=cost)


def _fixed(base: Callable[[int], Config], budget: int, k: int) -> Config:
    """With so many views in a batch, and the learning rate of that batch (appendix E), whatever k is."""
    config = base(k)
    optimizer = config.optimizer
    scale = budget / optimizer.reference_batch if optimizer.reference_batch else 1.0
    return studies.changed(
        config,
        {
            "views.strategy": "fixed",
            "views.reference_views": 1,
            "train.batch_size": budget,
            "optimizer.learning_rate": scale * optimizer.learning_rate,
            "optimizer.reference_batch": None,
        },
    )


def _study(
    bases: _koromilas.Bases,
    names: Sequence[str],
    ks: Sequence[int],
    measures: tuple[Measure, ...],
    lengths: _koromilas.Lengths,
    **scale: Any,
) -> Study:
    claims: list[Claim] = []
    source, accuracy = "Fig. 4 (bottom), Section V-C5", measures[0].name
    for where in _rows.grid(data=bases, equal=lengths):
        claims += _koromilas.rise_claims(["MV-DHEL"], accuracy, source, where)
        claims.append(_koromilas.gain_claim("MV-DHEL", names, accuracy, source, where))
        others = [name for name in names if name != "MV-DHEL"]
        claims += _koromilas.no_rise_claims(others, ks, accuracy, source, where, 0.0)
    cells = []
    for factors in _rows.grid(data=bases, equal=lengths, objective=names, k=ks):
        data, equal, name, k = factors.values()
        objective = {"objective": _koromilas.objectives()[name]}
        cells.append(trained(factors, bases[data](k), {**lengths[equal], **objective}))
    return Study(
        unequal="The number of views in a batch is fixed (Section V-C5), so that of instances falls with k.",
        title="Koromilas 2025, Fig. 4 (bottom): accuracy by number of views at a fixed number of views in a batch",
        cells=cells,
        measures=measures,
        claims=claims,
        columns="k",
        reference={"objective": "pwe"},
        along="k",
        **scale,
    )
