"""What the studies of Piran 2024 share: its baselines, recipes and measures."""

import dataclasses
import itertools
from functools import partial
from typing import Any

import _digits
import numpy as np
from scipy import ndimage, stats

from mvcl import data, losses, metrics, training
from mvcl.studies import Cell, Claim, Found, Measure, Study, Verdict, select, trained
from mvcl.training import Config

M3G = "M3G"


def methods(epsilon: float = 0.2) -> dict[str, losses.Loss]:
    """The rows of Tables 1 and 2, in their order."""
    return {
        "BYOL ave": losses.one_vs_rest(losses.byol),
        "BYOL pwe": losses.all_pairs(losses.byol),
        "InfoNCE ave": losses.one_vs_rest(losses.info_nce),
        "InfoNCE pwe": losses.all_pairs(losses.info_nce),
        M3G: partial(losses.m3g, epsilon=epsilon),
    }


SGD, FEW, KNN = (
    Measure(name, label="accuracy", percent=True, digits=2) for name in ("linear, SGD", _digits.FEW, "k-NN")
)
"""Accuracy at the scales paper, small and smoke."""
SMALL = """

**Small scale.** `digits:student_teacher`: scikit-learn's digits of 8 x 8 pixels, a ConvNet, groups of 16
examples, k views of one policy, 10 labels a class."""


def imagenet() -> Config:
    """ViT-B/16 on ImageNet-1K, student and teacher."""
    return training.load("piran/images:imagenet1k")


def digits() -> Config:
    """The scale small."""
    return training.load("digits:student_teacher")


Row = tuple[dict[str, Any], losses.Loss, dict[str, float], dict[str, float]]


LOOKS = ("plain", "inverted", "turned", "blurred", "thick", "noisy")


@dataclasses.dataclass(frozen=True, kw_only=True)
class DigitDomains:
    """scikit-learn's digits in six looks, each of other images: a small source of the form of DomainNet."""

    held_out: str = "noisy"
    """The domain that pre-training does not see."""
    draw_seed: int = 0
    """Seed of the draws of images."""

    def open(self) -> dict[str, data.Split]:
        """The splits of `data.by_domain`, of ten classes; the image of row r has the look r mod 6.

        Raises:
          ValueError: the held-out domain is not one of the looks.
        """
        if self.held_out not in LOOKS:
            raise ValueError(f"held_out must be one of {', '.join(LOOKS)}, got {self.held_out!r}")
        lists = {}
        for part, split in data.Digits().open().items():
            for number, look in enumerate(LOOKS):
                rows = range(number, len(split), len(LOOKS))
                images = np.stack([_seen_as(look, split.read(row, 0)[0][..., 0], row) for row in rows])
                labels = split.labels[number :: len(LOOKS)]
                lists[f"{look}/{part}"] = data.in_memory((images[..., None],), labels, split.class_names)
        seen = tuple(look for look in LOOKS if look != self.held_out)
        return data.by_domain(lists, seen, self.held_out, size=10, seed=self.draw_seed)


def _seen_as(look: str, image: np.ndarray, row: int) -> np.ndarray:
    """An image of 8 x 8 uint8 in one of the looks; the noise is that of its row."""
    if look == "inverted":
        return 255 - image
    if look == "turned":
        return ndimage.rotate(image, 30, reshape=False, order=1)
    if look == "blurred":
        return ndimage.uniform_filter(image, 3, mode="constant")
    if look == "thick":
        return ndimage.maximum_filter(image, 3)
    noise = np.random.default_rng(row).integers(0, 121, image.shape, np.uint8)
    return np.maximum(image, noise) if look == "noisy" else image


@dataclasses.dataclass(frozen=True)
class LowestRank(Claim):
    """Of the methods, those of `cells` have the lowest mean rank over all tasks, a level of `unseen` with a measure.

    1 is the best; ranks of equal values are averaged. `measure` is the first of the tasks' measures.
    """

    measures: tuple[str, ...]
    """One task for each, where it was measured."""
    than: tuple[str, ...] = ()
    """The other methods that are ranked; none: all."""

    @property
    def rule(self) -> str:
        """How the answer is found."""
        return (
            "mean rank over the tasks, paired by seed: the difference to the lowest of the other methods holds below "
            "0, does not hold above 0"
        )

    def about(self, study: Study) -> list[list[tuple[Cell, ...]]]:
        """The cells, alone."""
        return [[(cell,)] for cell in select(study, self.cells)]

    def ranks(self, found: Found) -> dict[str, dict[int, float]]:
        """Method -> seed -> mean rank over the tasks that all methods have of this seed."""
        tasks: dict[tuple[int, Any, str], dict[str, float]] = {}
        among = {str(self.cells["method"]), *self.than}
        cells = [cell for cell in found.study.cells if not self.than or cell.factors["method"] in among]
        for cell, measure in itertools.product(cells, self.measures):
            for seed, value in found.of(cell, measure).items():
                tasks.setdefault((seed, cell.factors["unseen"], measure), {})[str(cell.factors["method"])] = (
                    value
                )
        methods: dict[str, dict[int, list[float]]] = {str(cell.factors["method"]): {} for cell in cells}
        for (seed, *_), values in tasks.items():
            if len(values) == len(methods):
                for name, rank in zip(values, stats.rankdata([-value for value in values.values()])):
                    methods[name].setdefault(seed, []).append(float(rank))
        return {name: {s: float(np.mean(of)) for s, of in ranks.items()} for name, ranks in methods.items()}

    def judge(self, found: Found) -> Verdict:
        """The answer from what was measured, with the mean ranks."""
        ranks = self.ranks(found)
        means = {name: float(np.mean([*of.values()])) for name, of in ranks.items() if of}
        mine = str(self.cells["method"])
        if mine not in means:
            return Verdict("cannot tell", "not run")
        best = min((name for name in means if name != mine), key=lambda name: means[name])
        gaps = [rank - ranks[best][seed] for seed, rank in ranks[mine].items()]
        gap = metrics.interval(gaps, found.study.level)
        answer = "holds" if gap.high < 0 else "does not hold" if gap.low > 0 else "cannot tell"
        known = ", ".join(f"{name} {mean:.2f}" for name, mean in means.items())
        half = (gap.high - gap.low) / 2
        return Verdict(answer, f"{known}; {mine} - {best} {gap.mean:+.2f} ± {half:.2f}, seeds: {gap.seeds}")


def cells(base: Config, rows: list[Row]) -> list[Cell]:
    """A cell for each (factors, k among them; objective; printed values; printed deviations).

    The first measures the untrained encoder and the raw input for all, where the recipe does so in none.
    """
    found = []
    for number, (factors, objective, printed, deviations) in enumerate(rows):
        changes = {"objective": objective, "views.k": factors["k"]}
        changes["evaluation.baselines"] = base.evaluation.baselines or number == 0
        cell = trained(factors, base, changes, printed)
        found.append(dataclasses.replace(cell, deviations=deviations))
    return found
