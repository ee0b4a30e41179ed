"""What the studies of Jeon 2025 share: methods on the bench, and what the log of a run has of its similarities."""

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Literal

import _bench
import _images
import numpy as np

from mvcl import data, losses, methods, models, training
from mvcl.studies import Cell, Claim, Factors, Measure, Noise, Values, Within, changed, results, trained
from mvcl.training import Config

AVERAGES, METHODS = ("loss_avg", "fea_avg"), ("loss_avg", "fea_avg", "DSF")
WHEN = ("start", "end", "gain")
MARGINS = tuple(Measure(f"margin, {when}", digits=2, better="") for when in (*WHEN, "largest"))
"""s+ - s- of `of_log`."""
ACCURACIES = (  # those at scale paper; the first two are printed
    Measure("k-NN, head", percent=True, digits=2),
    Measure("linear, SGD", label="linear accuracy", percent=True, digits=2),
    Measure("k-NN", label="k-NN, encoder", percent=True, digits=2),
)
_TWICE = (
    "DSF at temperature 1 on CIFAR-10 is in Tables 1 and 3, k-NN 90.04 and 91.8, linear 91.21 and 92.5, in Table 3 of "
    "unknown epochs"
)
NOISE = {measure.name: Noise(1.09, _TWICE, 2) for measure in ACCURACIES[:2]}
"""Of one run, in points: the mean of d²/2 over both differences d."""
STEPS = 1000  # of the small scales
SMALL = f"""\
MoCo v2 with the paper's head, a queue of 2,048 whose keys are the only negatives, and momentum 0.99, whose key encoder
keeps nothing of its start after {STEPS:,} steps; batch statistics of 8 groups, and keys in another order, as there;
batches of 64 images of 4 views, one learning rate for all methods."""
"""What the small scales have in common, for their `about`."""
Recipe = Literal["released", "paper"]
"""Of the rows on images: all settings of the released code, or the paper's where they differ."""
UNEQUAL = "All compare 64 images but for training on labels, which compares none."
_SHARE = 0.1  # of a run, at its start and at its end


def objectives(temperature: float = 0.1) -> Mapping[str, losses.Loss]:
    """The objectives of Jeon 2025, Algorithm 1, of queries and keys; the temperature is InfoNCE's."""
    pair = partial(losses.info_nce, temperature=temperature, in_batch_negatives=False)
    return {
        "MoCo": pair,
        "loss_avg": losses.cross_pairs(pair),
        "fea_avg": losses.mean_pair(pair, renormalize=False),
        "DSF": partial(losses.dsf, in_batch_negatives=False),
    }


def bench_of(source: data.Source, k: int = 4, images: int = 64, steps: int = STEPS) -> Config:
    """The recipe of the bench with MoCo v2, for so many images of k views."""
    return changed(
        _bench.bench_of(k, source),
        {
            "encoder.batch_groups": 8,
            "head": models.moco_v2_head(),
            "method": methods.MocoV2(
                momentum=0.99, end_momentum=0.99, queue=2048, queue_keys="one", shuffle_keys=True
            ),
            **_images.lasting(steps, images),
        },
    )


def cell(factors: Factors, base: Config, changes: Mapping[str, Any]) -> Cell:
    """A cell of the bench with changes, which measures its log too, whatever its study asks for."""
    return trained(factors, base, changes, measure=_measured)


def on_images(method: str, data: str = "cifar10", recipe: Recipe = "released") -> Config:
    """The recipe of a method on CIFAR-10 or on ImageNet-100."""
    released = "_released" if recipe == "released" else ""
    if data == "imagenet100":
        return training.load(f"jeon/imagenet100:{method.lower()}{released}")
    of = "" if method == "DSF" else f"_{method.lower()}"
    return training.load(f"jeon/dsf:{data}{of}{released}")


def results_and_log(folder: Path) -> list[Values]:
    """`results` and `of_log`."""
    [found] = results(folder)
    return [found | of_log(folder)]


def _measured(folder: Path) -> list[Values]:
    [found] = _bench.measured(folder)
    return [found | of_log(folder)]


def of_log(folder: Path) -> Values:
    """Means over the first and the last tenth of the steps of what a run logs.

    Returns:
      "hours" of training; how far the mean loss ends "below chance"; with DSF its "effective temperature" and the
      "spread" of its log concentrations at the end; and of "margin", s+ - s-, "R" and "kappa" the "start" and "end",
      their "gain", and the "largest" of all logged steps: "margin, end", "kappa, largest".
    """
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    rows = [row for row in rows if "loss" in row]
    for row in rows:
        if "chance" in row:
            row["below chance"] = row["chance"] - row["loss"]
        if "positive_similarity" in row:
            row["margin"] = row["positive_similarity"] - row["negative_similarity"]
    steps = np.array([row["step"] for row in rows])
    first, last = steps <= max(_SHARE * steps[-1], steps[0]), steps > (1 - _SHARE) * steps[-1]
    found = {"hours": rows[-1]["seconds"] / 3600} if "seconds" in rows[-1] else {}
    for name, key in (
        ("below chance", "below chance"),
        ("effective temperature", "effective_temperature"),
        ("spread", "log_concentration_deviation"),
    ):
        if key in rows[-1]:
            found[name] = float(np.mean([row[key] for row in np.array(rows)[last]]))
    for name, key in (("margin", "margin"), ("R", "resultant"), ("kappa", "concentration")):
        if key in rows[-1]:
            curve = np.array([row[key] for row in rows])
            start, end = float(curve[first].mean()), float(curve[last].mean())
            found |= {f"{name}, start": start, f"{name}, end": end, f"{name}, gain": end - start}
            found[f"{name}, largest"] = float(curve.max())
    return found


def margin_claims(cells: Factors) -> tuple[Claim, ...]:
    """What Jeon 2025 says of DSF's margin, for these cells."""
    source = "Figure 5, Proposition 1"
    passes = "the margin passes 2, the most that cosines have without a temperature"
    return (
        Within("the margin rises in training", source, "margin, gain", cells, low=0),
        Within(passes, source, "margin, largest", cells, low=2),
    )
