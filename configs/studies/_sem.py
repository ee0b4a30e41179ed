"""What the studies of Xu 2023 share: data sets, small networks, the rows of Table 2, and measures over training."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from mvcl import data, evaluation, losses, metrics, training
from mvcl.studies import Baseline, Measure, Values, changed
from mvcl.training import Config

# Data set -> variant of `xu/sem`, and its file or folder in the folder of all.
_SETS = {
    "DHA": ("dha", "DHA.mat"),
    "CCV": ("ccv", "CCV"),
    "NUSWIDE": ("nuswide", "NUSWIDE.mat"),
    "Caltech": ("caltech", "Caltech.mat"),
    "YoutubeVideo": ("youtubevideo", "Video-3V.mat"),
}
_RATE = 1.2e-3  # ours: four times the released one, for networks of a quarter of the width
_CLUSTERS_ALONE = evaluation.Clustering(features="head", svm_share=0, baselines=False)
_LOSSES: Mapping[str, losses.Loss] = {
    "InfoNCE": partial(losses.nt_xent, temperature=1.0),
    "PSCL": losses.spectral,
    "RINCE": partial(losses.rince, temperature=0.5),
}


def paper(name: str, folder: Path) -> Config:
    """SEM on a data set of the paper, with the recipe of `xu/sem`."""
    variant, file = _SETS[name]
    found = training.load(f"xu/sem:{variant}")
    return changed(found, {"data.path": str(folder / file), "evaluation.baselines": False})


def tables(file: Path) -> Config:
    """SEM trained as in the paper's recipes on a file of tables, with smaller networks and 2 rounds of 50 epochs."""
    return changed(
        training.load("xu/sem:tables"),
        {
            "data": data.Tables(path=str(file)),
            "method.restart_optimizer": True,
            "method.last_batch": True,
            "method.uniform_biases": True,
            "method.k_means_starts": 10,
            "method.hidden": (125, 125, 250),
            "method.features": 64,
            "method.embedding": 32,
            "optimizer.learning_rate": _RATE,
            "optimizer.end_learning_rate": _RATE,
            "method.watch_epochs": 0,
            "checkpoint.every_steps": 2000,
            "evaluation": dataclasses.replace(_CLUSTERS_ALONE, runs=1, starts=10),
        },
    )


def smoke() -> Config:
    """Two epochs of tiny networks on four random tables."""
    return changed(
        training.load("xu/sem:smoke"),
        {
            "data": data.Synthetic(view_shapes=((6,), (9,), (4,), (5,))),
            "method.as_released": False,
            "method.k_means_starts": 1,
            "train.epochs": 2.0,
            "evaluation": dataclasses.replace(_CLUSTERS_ALONE, runs=1, starts=1),
        },
    )


WITHOUT_SEM = {"method.weights": "none", "method.lam": 0.0, "objective.pairs": "ordered"}
"""Changes of the rows without SEM: equal weights, no reconstruction after the pre-training, and only pairs of different
views, as of the methods [11, 17] that Section 4.1 names."""


def methods_of(base: Config) -> dict[str, Config]:
    """The methods of Table 2 and of Figures 3 and 4 that are implemented, `WITHOUT_SEM` and with it: name -> config."""
    alone = {name: changed(base, {"objective.pair": pair, **WITHOUT_SEM}) for name, pair in _LOSSES.items()}
    return alone | {f"SEM+{name}": changed(base, {"objective.pair": pair}) for name, pair in _LOSSES.items()}


@dataclasses.dataclass(frozen=True, kw_only=True)
class BestView:
    """K-Means-BSV: the clusters of the best single view of the raw tables, by accuracy; a `Task`."""

    config: Config
    """A run of the study, with evaluation Clustering."""

    def run(self, folder: Path, seed: int) -> Sequence[Values]:
        """The results of the best view, under the names of those of all views."""
        config = changed(self.config, {"evaluation.seed": seed})  # of K-means
        [found] = Baseline(config=config, row="raw input").run(folder, seed)
        best = "best view "
        return [{name.removeprefix(best): value for name, value in found.items() if name.startswith(best)}]


def over_time(
    folder: Path, *, numbers: Sequence[int], compared: tuple[tuple[int, int], tuple[int, int]] | None = None
) -> list[Values]:
    """What changes between the first weights, after the reconstruction, and the end of a run of SEM.

    Returns:
      One entry. "view 4 before", "after", "change": the accuracy of one K-means run on the hidden features of the view
      alone. "1-4 cosine before", "after": mean cosine of the two embeddings of an example. "1-4 loss before", "after",
      "change": the pair loss. "1-4 weight": the mean over the rounds, without the W of after the last step, which
      trains nothing. "1-4 loss left": the mean over the records of the part of the fall of the loss that is still
      ahead, 1 at the start; smaller is earlier. With `compared`, "weight gap" is the least difference of the two
      pairs' weights over the rounds, first minus second, and "lag" the second pair's loss left minus the first's.
    """
    lines = [json.loads(line) for line in (folder / "refresh.jsonl").read_text().splitlines()]
    first = next(i for i, line in enumerate(lines) if "weights" in line)
    lines = lines[first:]
    labels, afterwards = clusters_of_hidden(folder)
    found: Values = {}
    for number, *clusters in zip(numbers, lines[0]["clusters"], afterwards):
        before, after = (metrics.clustering_accuracy(labels, np.asarray(of)) for of in clusters)
        found |= {f"view {number} before": before, f"view {number} after": after}
        found[f"view {number} change"] = after - before
    curves = {
        name: np.asarray([line[name] for line in lines if name in line])
        for name in ("weights", "cosines", "losses")
    }
    rounds = curves["weights"][:-1] if len(curves["weights"]) > 1 else curves["weights"]
    for a, b in combinations(range(len(numbers)), 2):
        pair = f"{numbers[a]}-{numbers[b]}"
        cosine, loss = curves["cosines"][:, a, b], curves["losses"][:, a, b]
        found |= {f"{pair} cosine before": cosine[0], f"{pair} cosine after": cosine[-1]}
        found |= {f"{pair} loss before": loss[0], f"{pair} loss after": loss[-1]}
        found[f"{pair} loss change"] = loss[-1] - loss[0]
        found[f"{pair} weight"] = rounds[:, a, b].mean()
        if loss[0] != loss[-1]:
            found[f"{pair} loss left"] = np.mean((loss - loss[-1]) / (loss[0] - loss[-1]))
    if compared is not None:
        (a, b), (c, d) = ([numbers.index(number) for number in pair] for pair in compared)
        found["weight gap"] = np.min(rounds[:, a, b] - rounds[:, c, d])
        one, two = (f"{a}-{b} loss left" for a, b in compared)
        if one in found and two in found:
            found["lag"] = found[two] - found[one]
    return [{name: float(value) for name, value in found.items()}]


def clusters_of_hidden(folder: Path) -> tuple[np.ndarray, list[np.ndarray]]:
    """The labels of a run's examples, and the clusters of the hidden features H of each view after the last step.

    K-means is that of the record before the contrast, which is of H too; later records are of Z. Before the contrast Z
    is a random projection of H, so H is what can be compared.
    """
    run, state = training.open_run(folder, output="views")
    features, labels = training.encode(run, state, ("train",))
    learner: Any = run.program.learner
    method = learner.options
    starts = method.k_means_starts if method.weights == "cmi" else min(method.k_means_starts, 10)
    options = {"starts": starts, "mini_batch_above": method.mini_batch_above}
    views = np.split(features["train"], len(run.splits["train"].spec.view_names), axis=1)
    return labels["train"], [metrics.k_means(x, learner.clusters, **options)[0] for x in views]


CLUSTERS = (Measure("ACC", percent=True), Measure("NMI", percent=True))
"""Agreement of clusters with the classes."""
PAGE = "[The paper's page](../papers/xu.md) has the origin of every setting."
NETWORKS = """networks of a quarter and an eighth of the
paper's widths, trained as at scale paper for 2 rounds of 50 epochs, but for the learning rate: 0.0012, four times the
released one, as Adam's suits the inverse of the width. At 0.0003 the reconstruction is further from its end after 100
epochs (its error 0.128, not 0.098, on the way from 1.4; one run of each)"""
SMALL = f"""

**Small scale.** handwritten.mat, 2,000 digits in 6 tables, which is not from the paper, with {NETWORKS}"""
