"""Koromilas 2025, Fig. 4 (top): accuracy at 4 views by batch size; on digits with Table V.

Source: Fig. 4 (top), Section V-C4; small also Table V. Recipes `koromilas/cifar`, small `digits`.
"""

from collections.abc import Sequence
from typing import Any

import _digits
import _koromilas
import _rows

from mvcl.studies import SEEDS, Above, Claim, Measure, Study, trained

_ABOUT = """\
CIFAR-10 and CIFAR-100, 4 views of each of n images a batch. The paper's figure prints no numbers, we do not have it,
and the text does not name its batch sizes: those here are Table V's, 64, 128 and 256. The learning rate is n / 256
(appendix E). "More sensitive" is decided as a larger gain from the smallest to the largest batch."""

_ABOUT_SMALL = """\
1,437 training and 360 test digits of 8 x 8 pixels, a ConvNet of widths 16, 32 and 64, 4 views of each of 32, 64 and 128
images a batch: a factor of 4, as in Table V (the paper: CIFAR, ResNet-18, 200 epochs of SGD). At equal updates, 440, a
larger batch sees more images; at equal epochs, 10, it takes fewer steps: each claim is decided for both. At equal
epochs AdamW's learning rate is 3e-3 n / 128, the paper's linear rule; at equal updates it is 3e-3 for all batches. The
accuracy is that of 10 labels a class, the mean of 10 draws. "More sensitive" is decided as a larger gain from the
smallest to the largest batch; "stable" of Table V as a difference of at most one point between batches, where the
paper prints at most 0.35."""


def paper(seeds: int = 1) -> Study:
    """CIFAR-10 and -100 with ResNet-18, 200 epochs."""
    bases, measures = _koromilas.images("CIFAR-10", "CIFAR-100"), (Measure("linear, SGD", percent=True),)
    cost = f"several GPUs; 3,540 PFLOP a seed, estimated from the recipes' cost{_koromilas.PROBE}"
    names, batches = _koromilas.ALL, (64, 128, 256)
    lengths: _koromilas.Lengths = {"epochs": {}}
    scale: dict[str, Any] = {"measures": measures, "about": _ABOUT, "seeds": seeds, "cost": cost}
    return _study(bases, names, batches, lengths, 0.35, **scale)


def small(seeds: int = SEEDS) -> Study:
    """Digits, batches of 32, 64 and 128; 10 epochs, and 440 updates."""
    bases, names, batches = {"digits": _koromilas.digits_of}, ("pwe", "MV-DHEL"), (32, 64, 128)
    lengths = {"epochs": {"optimizer.reference_batch": 128}, "updates": {"train.steps": 440}}
    cost, measures = "40 minutes on 2 cores, estimated", _digits.ACCURACIES
    scale: dict[str, Any] = {"measures": measures, "about": _ABOUT_SMALL, "seeds": seeds, "cost": cost}
    return _study(bases, names, batches, lengths, 1.0, **scale)


def smoke(seeds: int = 2) -> Study:
    """Two steps of a tiny network on random vectors."""
    bases, names, batches = {"random": lambda k: _digits.vectors_of(3)}, ("pwe", "MV-DHEL"), (8, 16)
    scale: dict[str, Any] = {
        "measures": _digits.LINEAR,
        "about": _ABOUT,
        "seeds": seeds,
        "cost": "seconds on 2 cores",
    }
    return _study(bases, names, batches, {"epochs": {}}, 1.0, **scale)


def _study(
    bases: _koromilas.Bases,
    names: Sequence[str],
    batches: Sequence[int],
    lengths: _koromilas.Lengths,
    stable: float,
    *,
    measures: tuple[Measure, ...],
    **scale: Any,
) -> Study:
    accuracy, objectives = measures[0].name, _koromilas.objectives()
    claims: list[Claim] = []
    for where in _rows.grid(data=bases, equal=lengths):
        on = _koromilas.on(where)
        for name in (name for name in names if name in ("pwe", "avg", "PVC")):
            text = f"{name} is more sensitive to the batch size than MV-DHEL{on}"
            cells, than = {**where, "objective": name}, ({"objective": "MV-DHEL"},)
            claims.append(Above(text, "Fig. 4 (top), Section V-C4", accuracy, cells, than, "batch"))
        text = f"MV-DHEL is stable: batches differ by at most {stable:g} points{on}"
        row = (text, {**where, "objective": "MV-DHEL"}, _rows.levels("batch", batches))
        source = "Section V-C4 and Table V, Section V-C6"
        claims += _rows.within(source, accuracy, (-stable, stable), [row])
    grid = []
    for factors in _rows.grid(data=bases, equal=lengths, objective=names, batch=batches):
        data, equal, name, batch = factors.values()
        changes = {**lengths[equal], "objective": objectives[name], "train.batch_size": batch}
        grid.append(trained(factors, bases[data](4), changes))
    return Study(
        unequal="The batch is what the figure varies.",
        title="Koromilas 2025, Fig. 4 (top): accuracy at 4 views by batch size",
        cells=grid,
        measures=measures,
        claims=claims,
        columns="batch",
        reference={"objective": "pwe"},
        along="batch",
        **scale,
    )
