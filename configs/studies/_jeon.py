"""What the studies of Jeon 2025 share: methods on digits, and what the log of a run has of its similarities."""

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import _digits
import numpy as np

from mvcl import losses, methods, training
from mvcl.studies import Claim, Factors, Measure, Noise, Values, Within, changed, results
from mvcl.training import Config

MARGINS = tuple(
    Measure(f"margin, {when}", digits=2, better="") for when in ("start", "end", "gain", "largest")
)
"""s+ - s- of `results_and_similarities`."""
ACCURACIES = (
    Measure("k-NN", percent=True),
    Measure("linear, SGD", label="linear accuracy", percent=True),
)
"""Those of the tables on images."""
_TWICE = (
    "DSF at temperature 1 on CIFAR-10 is in Tables 1 and 3, k-NN 90.04 and 91.8, linear 91.21 and 92.5, in Table 3 of "
    "unknown epochs"
)
NOISE = {measure.name: Noise(1.09, _TWICE, 2) for measure in ACCURACIES}
"""Of one run, in points: the mean of d²/2 over both differences d."""
_SHARE = 0.1  # of a run, at its start and at its end


def on_digits(base: Config, queue: int = 512) -> dict[str, Config]:
    """MoCo v2, its two averages over views, and DSF: one recipe with the objectives of Jeon 2025, Algorithm 1.

    Returns:
      "MoCo", with two views, "loss_avg", "fea_avg" and "DSF", with those of the base.
    """
    pair = partial(losses.info_nce, temperature=0.1, in_batch_negatives=False)
    method = methods.MocoV2(momentum=0.99, end_momentum=0.99, queue=queue, queue_keys="one")
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


def on_images(method: str, data: str = "cifar10") -> Config:
    """The recipe of a method on CIFAR-10 or on ImageNet-100."""
    variant = {"MoCo": "_moco", "loss_avg": "_loss_avg", "fea_avg": "_fea_avg", "DSF": ""}[method]
    return training.load(f"jeon/dsf:{data}{variant}")


def smoke(k: int = 2) -> dict[str, Config]:
    """`on_digits` of a tiny network on random vectors, for two steps."""
    return on_digits(_digits.vectors_of(k), queue=16)


def results_and_time(folder: Path) -> list[Values]:
    """`results`, and "hours" from the start of the training to its end."""
    [found] = results(folder)
    return [found | {"hours": _logged(folder)[-1]["seconds"] / 3600}]


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
