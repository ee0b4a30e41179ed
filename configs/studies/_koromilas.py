"""What the studies of Koromilas 2025 share: objectives, recipes, and claims about accuracy."""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import _bench
import _images
import _rows

from mvcl import losses, training
from mvcl.studies import Above, Cell, Claim, Factors, Measure, Noise, Trend, changed
from mvcl.training import Config

DHEL, INFO_NCE, EQ_11 = "MV-DHEL", "MV-InfoNCE", "MV-InfoNCE, Eq. 11"
ALL = ("pwe", "avg", "PVC", INFO_NCE, DHEL)  # the objectives of most tables
PAIRS = ("pwe", "avg", "PVC")  # those that aggregate pairs of views
SGD = Measure("linear, SGD", label="linear accuracy", percent=True)
BY_K: Any = {"columns": "k", "reference": {"objective": "pwe"}, "along": "k"}
"""Of studies that have a column for each number of views."""


def objectives(temperature: float = 0.5) -> dict[str, losses.Loss]:
    """The objectives of Koromilas 2025 (arXiv 2507.06979) as its released code computes them, in its tables' order."""
    pair = partial(losses.nt_xent, temperature=temperature)
    return {
        "pwe": losses.all_pairs(pair),
        "avg": losses.one_vs_rest(pair),
        "PVC": partial(losses.poly_view, temperature=temperature),
        "MV-CL1": partial(losses.mv_cl1, temperature=temperature),
        INFO_NCE: partial(losses.mv_infonce, temperature=temperature, negatives="all"),
        EQ_11: partial(losses.mv_infonce, temperature=temperature, negatives="cross_view"),
        "MV-CL2": partial(losses.mv_cl2, temperature=temperature, energy="sum"),
        DHEL: partial(losses.mv_dhel, temperature=temperature),
    }


def on_bench(data: Path, factors: Factors, images: int = _bench.BATCH) -> Cell:
    """A cell of the bench with an objective and k views; of two views the aggregations of pairs are one function."""
    name, k = str(factors["objective"]), int(factors["k"])
    loss = _bench.NT_XENT if k == 2 and name in PAIRS else objectives()[name]
    changes = {"objective": loss, **_images.lasting(images=images)}
    return _images.cell(factors, _images.bench(data, k), changes)


NOISE = Noise(  # of one run, in points: the mean of d²/2 over four differences d
    0.31, "at k = 2 pwe and PVC are one function, and Table II prints them 0.2, 0.8, 0.0 and 0.3 apart", 4
)

Names = Collection[str]
Ints = Sequence[int]
Bases = Mapping[str, Callable[[int], Config]]  # data set -> k -> config
RELEASED = """\n
Every run has the settings of the authors' code: the variants of the recipes that end in _released."""
"""Ends the text of a study with --released."""


@cache
def _recipe(name: str, k: int) -> Config:
    return changed(training.load(f"koromilas/{name}"), {"views.k": k})


def images(*names: str, released: bool = False) -> Bases:
    """The recipes of these image sets, or of all; with `released` as the authors' code trains them."""
    recipes = {"CIFAR-10": "cifar:cifar10", "CIFAR-100": "cifar:cifar100"}
    recipes |= {"ImageNet-100": "imagenet:imagenet100", "ImageNet-1K": "imagenet:imagenet1k"}
    ending = "_released" * released
    return {name: partial(_recipe, recipes[name] + ending) for name in names or recipes}


def on(where: Factors) -> str:
    """These levels behind the text of a claim: ", CIFAR-10, updates"."""
    return "".join(f", {level}" for level in where.values())


def best_claims(names: Names, ks: Ints, measure: str, source: str, where: Factors) -> list[Claim]:
    """MV-DHEL is the best of the objectives; MV-InfoNCE is above the aggregations of pairs."""
    text, others = f"MV-DHEL is above all others at k = {{k}}{on(where)}", [n for n in names if n != DHEL]
    rows = _rows.each(text, {**where, "objective": DHEL}, _rows.levels("objective", others), k=ks)
    return _rows.above(source, measure, rows) + pair_claims(INFO_NCE, names, ks, measure, source, where)


def pair_claims(first: str, names: Names, ks: Ints, measure: str, source: str, where: Factors) -> list[Claim]:
    """MV-DHEL or MV-InfoNCE is above each aggregation of pairs, at each k."""
    pairs = [name for name in PAIRS if name in names]
    # With two views MV-InfoNCE is NT-Xent but for the place of one sum, and the paper prints the same accuracy.
    more = [k for k in ks if k > 2 or first == DHEL]
    text = f"{first} is above {', '.join(pairs)} at k = {{k}}{on(where)}"
    rows = _rows.each(text, {**where, "objective": first}, _rows.levels("objective", pairs), k=more)
    return _rows.above(source, measure, rows)


def no_rise_claims(
    names: Names, ks: Ints, measure: str, source: str, where: Factors, most: float
) -> list[Claim]:
    """None of the objectives gains more than `most` from the fewest to the most views."""
    text = f"{{objective}} gains at most {most:g} from k = {ks[0]} to {ks[-1]}{on(where)}"
    rows = _rows.each(text, {**where, "k": ks[-1]}, [{"k": ks[0]}], objective=names)
    return _rows.within(source, measure, (-math.inf, most), rows)


def rise_claims(names: Names, measure: str, source: str, where: Factors) -> list[Claim]:
    """Each of the objectives rises with the number of views."""
    text = f"rises with k{on(where)}"
    return [Trend(f"{name} {text}", source, measure, {**where, "objective": name}, "k") for name in names]


def gain_claim(first: str, others: Names, measure: str, source: str, where: Factors, ks: Ints = ()) -> Above:
    """An objective gains more from the fewest to the most views, of those in `ks`, than each of the others."""
    than = _rows.levels("objective", (name for name in others if name != first))
    text = f"{first} gains most from more views{on(where)}"
    return Above(text, source, measure, {**where, "objective": first}, than, "k", ks)
