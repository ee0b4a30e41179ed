"""Koromilas 2025, Fig. 4 (bottom): accuracy by number of views at a fixed number of views in a batch.

Source: Fig. 4 (bottom), Section V-C5; recipe `koromilas/cifar`.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import _bench
import _images
import _koromilas
import _rows
from _koromilas import ALL, DHEL, INFO_NCE

from mvcl.studies import SEEDS, Claim, Study, trained

_ABOUT = """\
A batch has a fixed number of views, so that more views of an image leave fewer images: n = {budget} / k, rounded down.
The paper's figure prints no numbers and we do not have it; its text has 256 views as an example and 128 as the batch of
all ablations (Section V-C), which is `--budget 128`. The learning rate is the same for every k (appendix E; the
released code scales none). Whether runs have equal epochs or equal updates is not said{equal}. That only MV-DHEL rises
is decided as: it rises, it gains more than each other objective, and none of these ends higher with the most views than
with two."""
_SAME: Any = {
    "title": "Koromilas 2025, Fig. 4 (bottom): accuracy by number of views at a fixed number of views in a batch",
    "unequal": "The number of views in a batch is fixed (Section V-C5), so that of instances falls with k.",
    **_koromilas.BY_K,
}


def paper(seeds: int = 1, *, budget: int = 256, equal: Literal["epochs", "updates"] = "epochs") -> Study:
    """CIFAR-10 and -100 with ResNet-18, k = 2 to 8.

    Args:
      budget: views in a batch.
      equal: what the runs of all k have the same number of; of updates the 39,062 of the released configs.
    """
    cells, claims, ks = [], list[Claim](), range(2, 9)
    for data, base in _koromilas.images("CIFAR-10", "CIFAR-100").items():
        for factors in _rows.grid(data=[data], objective=ALL, k=ks):
            config = base(factors["k"])
            optimizer = config.optimizer  # one rate whatever k is, that of the batch (appendix E)
            rate = optimizer.learning_rate * budget / optimizer.reference_batch
            changes: dict[str, Any] = {"views.strategy": "fixed", "views.reference_views": 1}
            changes |= {"optimizer.learning_rate": rate, "optimizer.reference_batch": None}
            changes |= {
                "train.batch_size": budget,
                "objective": _koromilas.objectives()[factors["objective"]],
            }
            changes |= {"train.steps": 39_062} if equal == "updates" else {}
            cells.append(trained(factors, config, changes))
        claims += _claims(ALL, ks, "linear, SGD", {"data": data})
    return Study(
        **_SAME,
        about=_ABOUT.format(budget=budget, equal="; `--equal updates` has 39,062, as the released configs"),
        cells=cells,
        measures=(_koromilas.SGD,),
        claims=claims,
        seeds=seeds,
        cost=_rows.of_gpus(11_000, "a seed, from the recipes at k = 4"),
    )


def small(seeds: int = SEEDS, *, data: Path) -> Study:
    """Part of CIFAR-10, 256 views in a batch, k = 2, 4 and 8. `data` is its file, .npz."""
    names, ks, views = ("pwe", INFO_NCE, DHEL), (2, 4, 8), 2 * _bench.BATCH
    grid, claims = _rows.grid(objective=names, k=ks), _claims(names, ks, _images.LINEAR, {})
    cells = [_koromilas.on_bench(data, factors, views // factors["k"]) for factors in grid]
    about = _ABOUT.format(budget=views, equal="; here updates are equal, and with them encoder passes")
    return _images.study(data, cells, about, **_SAME, claims=claims, seeds=seeds)


smoke = _images.smoke(small)


def _claims(names: Sequence[str], ks: Sequence[int], accuracy: str, where: dict[str, str]) -> list[Claim]:
    source, others = "Fig. 4 (bottom), Section V-C5", [name for name in names if name != DHEL]
    return [
        *_koromilas.rise_claims([DHEL], accuracy, source, where),
        _koromilas.gain_claim(DHEL, names, accuracy, source, where),
        *_koromilas.no_rise_claims(others, ks, accuracy, source, where, 0.0),
    ]
