"""Koromilas 2025, Fig. 4 (top): accuracy at 4 views by batch size; on digits with Table V.

Source: Fig. 4 (top), Section V-C4; small also Table V. Recipes `koromilas/cifar`, small `digits`.
"""

from collections.abc import Mapping, Sequence

import _digits
import _koromilas

from mvcl.studies import Claim, Gain, Measure, Study, Within, trained
from mvcl.training import Config

_ABOUT = """\
CIFAR-10 and CIFAR-100, 4 views of each of n images a batch. The paper's figure prints no numbers, we do not have it,
and the text does not name its batch sizes: those here are Table V's, 64, 128 and 256. The learning rate is n / 256
(appendix E). "More sensitive" is decided as a larger gain from the smallest to the largest batch."""

_ABOUT_SMALL = """\
1,437 training and 360 test digits of 8 x 8 pixels, a ConvNet of widths 16, 32 and 64, 4 views of each of 32, 128 and
512 images a batch, 10 epochs of AdamW at 3e-3 for all cells (the paper: CIFAR, ResNet-18, 200 epochs of SGD, a
learning rate of n / 256). A larger batch takes fewer steps, as in the paper. The accuracy is that of 10 labels a
class, the mean of 10 draws. "More sensitive" is decided as a larger gain from the smallest to the largest batch;
"stable" of Table V as a difference of at most one point between batches, where the paper prints at most 0.35."""


def paper(seeds: int = 1) -> Study:
    """CIFAR-10 and -100 with ResNet-18, 200 epochs."""
    bases = {
        "CIFAR-10": _koromilas.recipe_of("koromilas/cifar:cifar10", 4),
        "CIFAR-100": _koromilas.recipe_of("koromilas/cifar:cifar100", 4),
    }
    names = ("pwe", "avg", "PVC", "MV-InfoNCE", "MV-DHEL")
    measures = (Measure("linear, SGD", percent=True),)
    cost = "several GPUs; 3,540 PFLOP a seed, estimated from the recipes' cost"
    return _study(bases, names, (64, 128, 256), measures, 0.35, _ABOUT, seeds, cost)


def small(seeds: int = 5) -> Study:
    """Digits, batches of 32, 128 and 512."""
    names = ("pwe", "MV-DHEL")
    bases = {"digits": _digits.digits_of(4)}
    return _study(
        bases,
        names,
        (32, 128, 512),
        _digits.ACCURACIES,
        1.0,
        _ABOUT_SMALL,
        seeds,
        "2 minutes on 2 cores, estimated",
    )


def smoke(seeds: int = 2) -> Study:
    """Two steps of a tiny network on random vectors."""
    bases = {"random": _digits.vectors_of(3)}
    measures = (Measure("linear", percent=True),)
    return _study(bases, ("pwe", "MV-DHEL"), (8, 16), measures, 1.0, _ABOUT, seeds, "seconds on 2 cores")


def _study(
    bases: Mapping[str, Config],
    names: Sequence[str],
    batches: Sequence[int],
    measures: tuple[Measure, ...],
    stable: float,
    about: str,
    seeds: int,
    cost: str,
) -> Study:
    objectives = _koromilas.objectives()
    cells = tuple(
        trained(
            {"data": data, "objective": name, "batch": batch},
            base,
            {"objective": objectives[name], "train.batch_size": batch},
        )
        for data, base in bases.items()
        for name in names
        for batch in batches
    )
    claims: list[Claim] = []
    for data in bases:
        claims += [
            Gain(
                f"{name} is more sensitive to the batch size than MV-DHEL, {data}",
                "Fig. 4 (top), Section V-C4",
                measures[0].name,
                {"data": data, "objective": name},
                ({"objective": "MV-DHEL"},),
                "batch",
            )
            for name in names
            if name in ("pwe", "avg", "PVC")
        ]
        claims.append(
            Within(
                f"MV-DHEL is stable: batches differ by at most {stable:g} points, {data}",
                "Section V-C4 and Table V, Section V-C6",
                measures[0].name,
                {"data": data, "objective": "MV-DHEL"},
                tuple({"batch": batch} for batch in batches),
                low=-stable,
                high=stable,
            )
        )
    return Study(
        title="Koromilas 2025, Fig. 4 (top): accuracy at 4 views by batch size",
        about=about,
        cells=cells,
        measures=measures,
        claims=claims,
        columns="batch",
        reference={"objective": "pwe"},
        along="batch",
        seeds=seeds,
        cost=cost,
    )
