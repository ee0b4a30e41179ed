"""What the studies of Koromilas 2025 share: objectives, claims about accuracy, and the measures of Fig. 3."""

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path

from mvcl import losses, training
from mvcl.studies import Above, Cell, Claim, Factors, Gain, Trend, Values, changed, results, trained
from mvcl.training import Config

DHEL, INFO_NCE = "MV-DHEL", "MV-InfoNCE"
_BASELINES = ("pwe", "avg", "PVC")


def objectives(temperature: float = 0.5) -> dict[str, losses.Loss]:
    """The objectives of Koromilas 2025 (arXiv 2507.06979) as its released code computes them, in its tables' order."""
    pair = partial(losses.nt_xent, temperature=temperature)
    return {
        "pwe": losses.all_pairs(pair),
        "avg": losses.one_vs_rest(pair),
        "PVC": partial(losses.poly_view, temperature=temperature),
        "MV-CL1": partial(losses.mv_cl1, temperature=temperature),
        INFO_NCE: partial(losses.mv_infonce, temperature=temperature, negatives="all"),
        "MV-CL2": partial(losses.mv_cl2, temperature=temperature, energy="sum"),
        DHEL: partial(losses.mv_dhel, temperature=temperature),
    }


def recipe_of(name: str, k: int) -> Config:
    """A config by name, with k views."""
    return changed(training.load(name), {"views.k": k})


def best_claims(
    objectives: Collection[str], ks: Sequence[int], measure: str, source: str, where: Factors
) -> list[Claim]:
    """MV-DHEL is the best of the objectives; MV-InfoNCE is above the aggregations of pairs."""
    on = "".join(f", {level}" for level in where.values())
    others = tuple({"objective": name} for name in objectives if name != DHEL)
    aggregations = [name for name in _BASELINES if name in objectives]
    baselines = tuple({"objective": name} for name in aggregations)
    found: list[Claim] = [
        Above(
            f"MV-DHEL is above all others at every k{on}",
            source,
            measure,
            {**where, "objective": DHEL},
            others,
        )
    ]
    if INFO_NCE in objectives and baselines:
        # With two views MV-InfoNCE is NT-Xent but for the place of one sum, and the paper prints the same accuracy.
        found += [
            Above(
                f"MV-InfoNCE is above {', '.join(aggregations)} at k = {k}{on}",
                source,
                measure,
                {**where, "objective": INFO_NCE, "k": k},
                baselines,
            )
            for k in ks
            if k > 2
        ]
    return found


def rise_claims(names: Collection[str], measure: str, source: str, where: Factors) -> list[Claim]:
    """Each of the objectives rises with the number of views."""
    on = "".join(f", {level}" for level in where.values())
    return [
        Trend(f"{name} rises with k{on}", source, measure, {**where, "objective": name}, "k")
        for name in names
    ]


def gain_claim(first: str, others: Collection[str], measure: str, source: str, where: Factors) -> Gain:
    """An objective gains more from the fewest to the most views than each of the others."""
    on = "".join(f", {level}" for level in where.values())
    return Gain(
        f"{first} gains most from more views{on}",
        source,
        measure,
        {**where, "objective": first},
        tuple({"objective": name} for name in others if name != first),
        "k",
    )


def results_and_embeddings(folder: Path) -> list[Values]:
    """`results`, and what `mvcl embed --output head` measures of k random views of the test split.

    Returns:
      One entry, with "rank", "effective rank", "uniformity, Wasserstein" and "alignment" among its names.
    """
    run, state = training.open_run(folder, output="head")
    _, measured = training.embed(run, state, "test", folder / "head.npz", views=run.config.views.k)
    [found] = results(folder)
    return [found | {result.name: result.value for result in measured if result.value is not None}]


@dataclasses.dataclass(frozen=True, kw_only=True)
class TunedRate:
    """A run for each learning rate, of which the one with the least "validation MAE" counts; a `Task`."""

    config: Config
    """The experiment; its seed and learning rate are replaced. Its data have a validation split."""
    rates: tuple[float, ...]
    """Learning rates."""

    def run(self, folder: Path, seed: int) -> Sequence[Values]:
        """Train, or resume, and measure; "learning rate" is the one that was chosen."""
        found = []
        for rate in self.rates:
            config = changed(self.config, {"train.seed": seed, "optimizer.learning_rate": rate})
            training.train(config, folder / f"{rate:g}")
            found += [values | {"learning rate": rate} for values in results(folder / f"{rate:g}")]
        return [min(found, key=lambda values: values["validation MAE"])]


Bases = Mapping[str, tuple[Callable[[int], Config], float]]

# Data set -> recipe and temperature of the objectives.
_IMAGES = {
    "CIFAR-10": ("koromilas/cifar:cifar10", 0.5),
    "CIFAR-100": ("koromilas/cifar:cifar100", 0.5),
    "ImageNet-100": ("koromilas/imagenet:imagenet100", 0.5),
    "ImageNet-1K": ("koromilas/imagenet:imagenet1k", 0.1),
}


def images() -> Bases:
    """Data set -> (k -> config, temperature), of the four image sets."""
    return {
        name: (partial(recipe_of, recipe), temperature) for name, (recipe, temperature) in _IMAGES.items()
    }


def cells(
    bases: Bases,
    ks: Sequence[int],
    names: Sequence[str],
    measure: str,
    printed: Mapping[tuple[str, int], Sequence[float]],
) -> tuple[Cell, ...]:
    """A cell for each data set, k and objective."""
    found = []
    for data, (base, temperature) in bases.items():
        losses_of = objectives(temperature)
        for k in ks:
            values = dict(zip(names, printed.get((data, k), ())))
            found += [
                trained(
                    {"data": data, "k": k, "objective": name},
                    base(k),
                    {"objective": losses_of[name]},
                    printed={measure: values[name]} if name in values else {},
                )
                for name in names
            ]
    return tuple(found)
