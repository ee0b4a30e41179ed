"""What the studies of Jeon 2025 share: methods on digits, and what the log of a run has of its similarities."""

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Literal

import _digits
import numpy as np

from mvcl import losses, methods, models, training
from mvcl.studies import Claim, Factors, Measure, Noise, Values, Within, changed, results
from mvcl.training import Config

MARGINS = tuple(
    Measure(f"margin, {when}", digits=2, better="") for when in ("start", "end", "gain", "largest")
)
"""s+ - s- of `results_and_similarities`."""
ACCURACIES = (
    Measure("k-NN, head", percent=True, digits=2),
    Measure("linear, SGD", label="linear accuracy", percent=True, digits=2),
    Measure("k-NN", label="k-NN, encoder", percent=True, digits=2),
)
"""Those on images; the first two are printed."""
_TWICE = (
    "DSF at temperature 1 on CIFAR-10 is in Tables 1 and 3, k-NN 90.04 and 91.8, linear 91.21 and 92.5, in Table 3 of "
    "unknown epochs"
)
NOISE = {measure.name: Noise(1.09, _TWICE, 2) for measure in ACCURACIES[:2]}
"""Of one run, in points: the mean of d²/2 over both differences d."""
ON_DIGITS = """\
1,437 training and 360 test digits of 8 x 8 pixels; MoCo v2 with the paper's head, a queue of 512 whose keys are the
only negatives, and momentum 0.95, since a run has a few hundred steps, of whose start 0.99 would keep a tenth (the
paper: 0.99 for 49,000 steps); AdamW at 1e-3 for all methods. The encoder is a ConvNet of widths 16, 32 and 64 in place
of ResNet-18, with BatchNorm of 8 groups and keys in another order as there. The accuracy is that of 10 labels a class,
the mean of 10 draws, since all labels, the paper's linear layer, leave little to separate on digits."""
"""What the small scales have in common, for their `about`."""
Recipe = Literal["released", "paper"]
"""Of the rows on images: all settings of the released code, or the paper's where they differ."""
_SHARE = 0.1  # of a run, at its start and at its end


def digits_of(k: int) -> Config:
    """`digits:small` with k views, the paper's head, batch statistics of 8 groups, and 20 epochs of 11 steps."""
    changes = {"encoder.batch_groups": 8, "head": models.moco_v2_head(), "train.epochs": 20.0}
    return changed(_digits.digits_of(k), {**changes, "train.log_every": 5, "optimizer.learning_rate": 1e-3})


def on_digits(base: Config, queue: int = 512) -> dict[str, Config]:
    """MoCo v2, its two averages over views, and DSF: one recipe with the objectives of Jeon 2025, Algorithm 1.

    Returns:
      "MoCo", with two views, "loss_avg", "fea_avg" and "DSF", with those of the base.
    """
    pair = partial(losses.info_nce, temperature=0.1, in_batch_negatives=False)
    method = methods.MocoV2(
        momentum=0.95, end_momentum=0.95, queue=queue, queue_keys="one", shuffle_keys=True
    )
    objectives: Mapping[str, losses.Loss] = {
        "MoCo": pair,
        "loss_avg": losses.cross_pairs(pair),
        "fea_avg": losses.mean_pair(pair, renormalize=False),
        "DSF": partial(losses.dsf, in_batch_negatives=False),
    }
    found = {
        name: changed(base, {"method": method, "objective": objective})
        for name, objective in objectives.items()
    }
    return found | {"MoCo": changed(found["MoCo"], {"views.k": 2})}


def on_images(method: str, data: str = "cifar10", recipe: Recipe = "paper") -> Config:
    """The recipe of a method on CIFAR-10 or on ImageNet-100."""
    released = "_released" if recipe == "released" else ""
    if data == "imagenet100":
        return training.load(f"jeon/imagenet100:{method.lower()}{released}")
    of = "" if method == "DSF" else f"_{method.lower()}"
    return training.load(f"jeon/dsf:{data}{of}{released}")


def smoke(k: int = 2) -> dict[str, Config]:
    """`on_digits` of a tiny network on random vectors, for two steps."""
    return on_digits(_digits.vectors_of(k), queue=16)


def results_and_time(folder: Path) -> list[Values]:
    """`results`, and "hours" from the start of the training to its end."""
    [found] = results(folder)
    return [found | {"hours": _logged(folder)[-1]["seconds"] / 3600}]


def results_and_learning(folder: Path) -> list[Values]:
    """`results`, and how far the mean loss of the last tenth of the steps is "below chance".

    With DSF also its "effective temperature" and the "spread" of its log concentrations there.
    """
    [found] = results(folder)
    rows = _logged(folder)
    last = [row for row in rows if row["step"] > (1 - _SHARE) * rows[-1]["step"]]
    found |= {"below chance": float(np.mean([row["chance"] - row["loss"] for row in last]))}
    names = {"effective temperature": "effective_temperature", "spread": "log_concentration_deviation"}
    return [
        found | {n: float(np.mean([row[of] for row in last])) for n, of in names.items() if of in last[0]}
    ]


def results_and_similarities(folder: Path) -> list[Values]:
    """`results`, and means over the first and the last tenth of the steps of what DSF logs.

    Returns:
      One entry, with "margin", s+ - s-, "R" and "kappa" at their "start" and "end", their "gain" from start to end, and
      the "largest" of all logged steps: "margin, end", "kappa, largest".
    """
    [found] = results(folder)
    rows = _logged(folder)
    curves = {
        "margin": np.array([row["positive_similarity"] - row["negative_similarity"] for row in rows]),
        "R": np.array([row["resultant"] for row in rows]),
        "kappa": np.array([row["concentration"] for row in rows]),
    }
    steps = np.array([row["step"] for row in rows])
    first, last = steps <= max(_SHARE * steps[-1], steps[0]), steps > (1 - _SHARE) * steps[-1]
    for name, curve in curves.items():
        start, end = float(curve[first].mean()), float(curve[last].mean())
        found |= {f"{name}, start": start, f"{name}, end": end, f"{name}, gain": end - start}
        found |= {f"{name}, largest": float(curve.max())}
    return [found]


def margin_claims(cells: Factors) -> tuple[Claim, ...]:
    """What Jeon 2025 says of DSF's margin, for these cells."""
    source = "Figure 5, Proposition 1"
    passes = "the margin passes 2, the most that cosines have without a temperature"
    return (
        Within("the margin rises in training", source, "margin, gain", cells, low=0),
        Within(passes, source, "margin, largest", cells, low=2),
    )


def _logged(folder: Path) -> list[dict[str, Any]]:
    """The rows of the log that are of training steps."""
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [row for row in rows if "loss" in row]
