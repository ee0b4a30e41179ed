"""What the studies of Koromilas 2025 share: objectives, claims about accuracy, and the measures of Fig. 3."""

import dataclasses
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import _conflict
import _rows
import numpy as np

from mvcl import data, losses, models, training
from mvcl.studies import (
    Above,
    Cell,
    Claim,
    Factors,
    Measure,
    Noise,
    Study,
    Trend,
    Values,
    changed,
    results,
    trained,
)
from mvcl.training import Config

DHEL, INFO_NCE = "MV-DHEL", "MV-InfoNCE"
ALL = ("pwe", "avg", "PVC", INFO_NCE, DHEL)
"""The objectives of most tables."""
PAIRS = ("pwe", "avg", "PVC")
"""Those that aggregate pairs of views."""
PROBE = ", without the linear probe (1 / 3k more)"
"""What the costs of the studies leave out: beside the 3 k passes over an image and epoch one more."""
SGD = (Measure("linear, SGD", label="linear accuracy", percent=True),)


def objectives(temperature: float = 0.5) -> dict[str, losses.Loss]:
    """The objectives of Koromilas 2025 (arXiv 2507.06979) as its released code computes them, in its tables' order."""
    pair = partial(losses.nt_xent, temperature=temperature)
    return {
        "pwe": losses.all_pairs(pair),
        "avg": losses.one_vs_rest(pair),
        "PVC": partial(losses.poly_view, temperature=temperature),
        "MV-CL1": partial(losses.mv_cl1, temperature=temperature),
        INFO_NCE: partial(losses.mv_infonce, temperature=temperature, negatives="all"),
        f"{INFO_NCE}, Eq. 11": partial(losses.mv_infonce, temperature=temperature, negatives="cross_view"),
        "MV-CL2": partial(losses.mv_cl2, temperature=temperature, energy="sum"),
        DHEL: partial(losses.mv_dhel, temperature=temperature),
    }


@cache
def recipe_of(name: str, k: int) -> Config:
    """A config of this paper by name, with k views."""
    return changed(training.load(f"koromilas/{name}"), {"views.k": k})


def digits_of(k: int) -> Config:
    """`digits:small` with k views; the warm-up is a tenth of the run, of any length."""
    share = {"optimizer.warmup_share": 0.1, "optimizer.warmup_epochs": 0.0}
    return changed(training.load("digits:small"), {"views.k": k, **share})


def on(where: Factors) -> str:
    """These levels behind the text of a claim: ", CIFAR-10, updates"."""
    return "".join(f", {level}" for level in where.values())


def best_claims(
    names: Collection[str], ks: Sequence[int], measure: str, source: str, where: Factors
) -> list[Claim]:
    """MV-DHEL is the best of the objectives; MV-InfoNCE is above the aggregations of pairs."""
    text, others = f"MV-DHEL is above all others at k = {{k}}{on(where)}", [n for n in names if n != DHEL]
    rows = _rows.each(text, {**where, "objective": DHEL}, _rows.levels("objective", others), k=ks)
    return _rows.above(source, measure, rows) + pair_claims(INFO_NCE, names, ks, measure, source, where)


def pair_claims(
    first: str, names: Collection[str], ks: Sequence[int], measure: str, source: str, where: Factors
) -> list[Claim]:
    """MV-DHEL or MV-InfoNCE is above each aggregation of pairs, at each k."""
    pairs = [name for name in PAIRS if name in names]
    # With two views MV-InfoNCE is NT-Xent but for the place of one sum, and the paper prints the same accuracy.
    more = [k for k in ks if first in names and pairs and (k > 2 or first == DHEL)]
    text = f"{first} is above {', '.join(pairs)} at k = {{k}}{on(where)}"
    rows = _rows.each(text, {**where, "objective": first}, _rows.levels("objective", pairs), k=more)
    return _rows.above(source, measure, rows)


def no_rise_claims(
    names: Collection[str], ks: Sequence[int], measure: str, source: str, where: Factors, most: float
) -> list[Claim]:
    """None of the objectives gains more than `most` from the fewest to the most views."""
    text = f"{{objective}} gains at most {most:g} from k = {ks[0]} to {ks[-1]}{on(where)}"
    rows = _rows.each(text, {**where, "k": ks[-1]}, [{"k": ks[0]}], objective=names)
    return _rows.within(source, measure, (-math.inf, most), rows)


def rise_claims(names: Collection[str], measure: str, source: str, where: Factors) -> list[Claim]:
    """Each of the objectives rises with the number of views."""
    text = f"rises with k{on(where)}"
    return [Trend(f"{name} {text}", source, measure, {**where, "objective": name}, "k") for name in names]


def gain_claim(
    first: str, others: Collection[str], measure: str, source: str, where: Factors, ks: Sequence[int] = ()
) -> Above:
    """An objective gains more from the fewest to the most views, of those in `ks`, than each of the others."""
    than = _rows.levels("objective", (name for name in others if name != first))
    text = f"{first} gains most from more views{on(where)}"
    return Above(text, source, measure, {**where, "objective": first}, than, "k", ks)


def results_and_embeddings(folder: Path) -> list[Values]:
    """`results`, and what `mvcl embed --output head` measures of k random views of the test split.

    Returns:
      One entry, with "rank", "effective rank", "uniformity, Wasserstein" and "alignment" among its names; of three
      views or more also `_conflict.MEASURES`, of the first 1,000 images.
    """
    run, state = training.open_run(folder, output="head")
    _, measured = training.embed(run, state, "test", folder / "head.npz", views=run.config.views.k)
    with np.load(folder / "head.npz") as file:
        conflict = _conflict.conflict(file["features"][:1_000].swapaxes(0, 1))
    [found] = results(folder)
    return [found | {result.name: result.value for result in measured if result.value is not None} | conflict]


@dataclasses.dataclass(frozen=True, kw_only=True)
class TunedRate:
    """Trainings at each of several learning rates, of which those of one rate count: of the least "validation MAE", the
    mean over its trainings (appendix E tunes the rate "for each contrastive objective"); a `Task`."""

    config: Config
    """The experiment; its seed and learning rate are replaced. Its data have a validation split."""
    rates: tuple[float, ...]
    """Learning rates."""
    trainings: int = 3
    """Trainings at each rate, with seeds of their own."""

    @property
    def instances(self) -> int:
        """Number of instances that the objective compares."""
        return self.config.examples

    def run(self, folder: Path, seed: int) -> Sequence[Values]:
        """Train, or resume, and measure: an entry for each training; "learning rate" is the one that was chosen."""
        found = [self._at(rate, folder / f"{rate:g}", seed) for rate in self.rates]
        return min(found, key=lambda values: np.mean([each["validation MAE"] for each in values]))

    def _at(self, rate: float, folder: Path, seed: int) -> list[Values]:
        """The trainings at one rate."""
        found = []
        for number in range(self.trainings):
            seeds = {"train.seed": seed * self.trainings + number, "optimizer.learning_rate": rate}
            training.train(changed(self.config, seeds), folder / str(number))
            found += [values | {"learning rate": rate} for values in results(folder / str(number))]
        return found


NOISE = Noise(
    0.31, "at k = 2 pwe and PVC are one function, and Table II prints them 0.2, 0.8, 0.0 and 0.3 apart", 4
)
"""Of one run, in points: the mean of d²/2 over four differences d."""

Bases = Mapping[str, Callable[[int], Config]]
"""Data set -> k -> config."""
Lengths = Mapping[str, Mapping[str, Any]]
"""What all runs have the same number of, "epochs" or "updates" -> changes of the configs."""


def images(*names: str, released: bool = False) -> Bases:
    """The recipes of these image sets, or of all; with `released` as the authors' code trains them."""
    recipes = {
        "CIFAR-10": "cifar:cifar10",
        "CIFAR-100": "cifar:cifar100",
        "ImageNet-100": "imagenet:imagenet100",
        "ImageNet-1K": "imagenet:imagenet1k",
    }
    ending = "_released" * released
    return {name: partial(recipe_of, recipes[name] + ending) for name in names or recipes}


RELEASED = (
    "\n\nEvery run has the settings of the authors' code: the variants of the recipes that end in _released."
)
"""Ends the text of a study with --released."""


def by_k(
    bases: Bases,
    names: Sequence[str],
    ks: Sequence[int],
    measure: Callable[[Path], Sequence[Values]] = results,
) -> list[Cell]:
    """A cell for each data set, objective and k."""
    found = []
    for factors in _rows.grid(data=bases, objective=names, k=ks):
        on, name, k = factors.values()
        found.append(trained(factors, bases[on](k), {"objective": objectives()[name]}, measure=measure))
    return found


def table(
    bases: Bases,
    names: Sequence[str],
    ks: Sequence[int],
    measure: Measure,
    printed: Mapping[tuple[str, int], Sequence[float]],
    more: tuple[Measure, ...] = (),
    **study: Any,
) -> Study:
    """Tables II and III: a cell for each data set, k and objective, of temperature 0.1 on ImageNet-1K.

    The paper prints the measure; `more` are shown beside it.
    """
    cells = []
    for factors in _rows.grid(data=bases, k=ks, objective=names):
        on, k, name = factors.values()
        values = dict(zip(names, printed.get((on, k), ())))
        objective = objectives(0.1 if on == "ImageNet-1K" else 0.5)[name]
        known = {measure.name: values[name]} if name in values else {}
        cells.append(trained(factors, bases[on](k), {"objective": objective}, known))
    return Study(
        unequal="A batch of ImageNet-1K has 512 images, one of the other sets 256 (Appendix E).",
        cells=cells,
        measures=(measure, *more),
        columns="objective",
        reference={"objective": "pwe"},
        along="k",
        **study,
    )


RATES = (1e-5, 5e-5, 1e-4)
"""Learning rates of `TunedRate`."""


def sentiment(base: Config, objective: str, rates: tuple[float, ...], trainings: int) -> TunedRate:
    """The recipe of Tables IV and VII with an objective."""
    config = changed(base, {"objective": objectives()[objective]})
    return TunedRate(config=config, rates=rates, trainings=trainings)


def sentiment_measures(accuracy: str) -> tuple[Measure, ...]:
    """Those of Tables IV and VII."""
    return Measure(accuracy, label="accuracy", percent=True), Measure("MAE", digits=3, better="lower")


def sentiment_smoke() -> Config:
    """Some steps of tiny networks on random vectors of three kinds."""
    return changed(
        training.load("koromilas/sentiment:smoke"),
        {
            "data": data.Synthetic(regression=True, view_shapes=((5,), (7,), (6,)), groups=4),
            "encoder": models.MLP(widths=(8,)),
            "train.steps": 2,
            "evaluation.probe.epochs": 2,
        },
    )
