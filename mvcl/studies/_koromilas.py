"""What the studies of Koromilas 2025 share: objectives, claims about accuracy, and the measures of Fig. 3."""

import dataclasses
from collections.abc import Collection, Sequence
from functools import partial
from pathlib import Path

from mvcl import losses, training
from mvcl._progress import Progress
from mvcl.studies._study import Factors
from mvcl.studies._task import Values, changed, results
from mvcl.studies._verdicts import Above, Claim, Gain, Trend
from mvcl.training import Config

DHEL, INFO_NCE = "MV-DHEL", "MV-InfoNCE"
_BASELINES = ("pwe", "avg", "PVC")


def koromilas_objectives(temperature: float = 0.5) -> dict[str, losses.Loss]:
    """The objectives of Koromilas 2025 (arXiv 2507.06979) as its released code computes them, in its tables' order.

    Args:
      temperature: positive divisor of the inner products.
    """
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
    """MV-DHEL is the best of the objectives; MV-InfoNCE is above the aggregations of pairs.

    Args:
      objectives: those that are compared.
      ks: numbers of views of the cells.
      measure: accuracy.
      source: of the paper.
      where: further factors of the cells, such as the data set.
    """
    on = "".join(f", {level}" for level in where.values())
    others = tuple({"objective": name} for name in objectives if name != DHEL)
    aggregations = [name for name in _BASELINES if name in objectives]
    baselines = tuple({"objective": name} for name in aggregations)
    found: list[Claim] = [
        Above(
            text=f"MV-DHEL is above all others at every k{on}",
            source=source,
            measure=measure,
            cells={**where, "objective": DHEL},
            than=others,
        )
    ]
    if INFO_NCE in objectives and baselines:
        # With two views MV-InfoNCE is NT-Xent but for the place of one sum, and the paper prints the same accuracy.
        found += [
            Above(
                text=f"MV-InfoNCE is above {', '.join(aggregations)} at k = {k}{on}",
                source=source,
                measure=measure,
                cells={**where, "objective": INFO_NCE, "k": k},
                than=baselines,
            )
            for k in ks
            if k > 2
        ]
    return found


def rise_claims(names: Collection[str], measure: str, source: str, where: Factors) -> list[Claim]:
    """Each of the objectives rises with the number of views."""
    on = "".join(f", {level}" for level in where.values())
    return [
        Trend(
            text=f"{name} rises with k{on}",
            source=source,
            measure=measure,
            cells={**where, "objective": name},
            along="k",
        )
        for name in names
    ]


def gain_claim(first: str, others: Collection[str], measure: str, source: str, where: Factors) -> Gain:
    """An objective gains more from the fewest to the most views than each of the others."""
    on = "".join(f", {level}" for level in where.values())
    return Gain(
        text=f"{first} gains most from more views{on}",
        source=source,
        measure=measure,
        cells={**where, "objective": first},
        than=tuple({"objective": name} for name in others if name != first),
        along="k",
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

    def run(self, folder: Path, seed: int, progress: Progress) -> Sequence[Values]:
        """Train, or resume, and measure; "learning rate" is the one that was chosen."""
        found = []
        for rate in self.rates:
            config = changed(self.config, {"train.seed": seed, "optimizer.learning_rate": rate})
            training.train(config, folder / f"{rate:g}")
            found += [values | {"learning rate": rate} for values in results(folder / f"{rate:g}")]
        return [min(found, key=lambda values: values["validation MAE"])]
