"""Which objective sees what: every objective on views whose information is known.

`python -m docs.which` writes the heat maps and docs/which.md from the published numbers.
Source: ours. The parts of the synergy are the XOR data of Symile (Saporta 2024, arXiv 2411.01053) with some flips.
"""

import dataclasses
from collections.abc import Mapping
from functools import cache, partial
from typing import Any

import _rows
from _factors import FACTORS, FactorViews
from _factors_task import Factored, to_bits, to_inputs

from mvcl import losses
from mvcl.losses import Operands
from mvcl.studies import SEEDS, Cell, Measure, Study

_ABOUT = """\
The views are synthetic and their information is known (`FactorViews`). Factors are bits: `shared` bits are in all
views, `pair` bits in two neighbouring views, `unique` bits in one. Of each three neighbours each has a `part`; two
parts tell nothing of each other, and the three tell a bit, the `synergy`. All are fair but for the synergy, which is -1
with probability 0.1. A view is a random network of its bits, and noise. Two views have no pair bits and no synergy; one
kind of three views has no pair bits either, and one bit each of `shared` and `unique`.

Each view has an encoder, an MLP of 48 hidden units to 12 numbers; the inputs have 16 and a view at most 9 bits. Every
objective has the same encoders, Adam, peak learning rate 0.01 with a cosine, and 600 steps of 128 fresh instances. The
temperature of an objective of cosines and epsilon of `m3g` are one of 0.05, 0.1, 0.2 and 0.5, the temperature of `dsf`
and `symile`, whose similarities have no limit, one of 0.25, 0.5, 1 and 2, the scale of `siglip` one of 2, 5, 10 and 20:
for each kind of views that whose networks on other draws and renderings have the largest mean of all factors. Other
options are the defaults of the library but for: 64 slices for `lejepa` and `visreg`; each aggregation of `poly_view`;
vectors as they are, not projected, for `symile`. This, and the kind of views without pair bits, were chosen in trials
with 4 networks: on unit vectors at temperatures 0.02 and 0.1, and with pair bits and two shared bits also without
projection, Symile had kept hardly more of the parts than of what is unique after 300 and 600 steps.

Every objective compares the 128 instances of a batch but for `symile` with `negatives="all"` at k = 4, which compares
32, the mean over four parts of the batch; the row "all_pairs(info_nce), 32 instances" is there beside it. `m3g` and
this `symile` have no place at k = 8, with n^8 tuples. Objectives of groups compare the first half of the views with the
others, 1 with 2 at k = 3; of pair losses only `info_nce` has them, and one view against the rest. `byol` is the
distance alone: without its predictor and its target network nothing stops it from collapsing. `frossl` takes no mask
and is not trained with missing views. `triangle` is for three views.

The numbers are test R² of ridge regressions of each bit on the embeddings, 0 at chance and 1 at best, the mean over the
bits of a factor: of 2,048 instances with all views, fitted on 2,048 others. `shared` to `part` are read from the
embeddings of all views together, `one view` from that of one, the synergy from none: its number is the squared
correlation of it with the product of what the three probes of its parts read. Where the last view is noise, the bits
are those of the other views; at k = 3 no synergy is left. The networks of a cell differ in data, rendering of the views
and first weights, which are the same for all objectives, so that differences are paired.

Baselines: the inputs themselves; untrained encoders; encoders trained to restore the input (`autoencoder`), or the bits
themselves (`supervised`). An objective that leaves `unique` below the untrained encoders drops what views do not share.
A row whose `shared` is not above that of the untrained encoders has not learned with these steps, and its other numbers
tell nothing of what it prefers."""

TUNED = dict.fromkeys(("temperature", "epsilon"), (0.05, 0.1, 0.2, 0.5)) | {"scale": (2.0, 5.0, 10.0, 20.0)}
"""Options that an objective chooses among, and their values; others for the temperature of unlimited similarities."""
_UNLIMITED = (0.25, 0.5, 1.0, 2.0)
_SLICES = {losses.lejepa: {"slices": 64}, losses.visreg: {"slices": 64}}
# Parts of the batch, by number of views, for the tensor of all tuples that Symile forms, and for M3G, which has none.
_TUPLES, _JOINT = {2: 1, 3: 1, 4: 4}, {2: 1, 3: 1, 4: 1}
_FEWER = "all_pairs(info_nce), 32 instances"
_UNEQUAL = f"At k = 4 `symile, all` compares 32 instances, all others 128; `{_FEWER}` is the same number."


@cache  # the same functions for all views, so that their programs are compiled once
def objectives() -> dict[str, tuple[losses.Loss, Mapping[int, int] | None]]:
    """Label -> objective of (k, n, d) views, and of all tuples of instances the parts of a batch by number of views."""
    found: dict[str, tuple[losses.Loss, Mapping[int, int] | None]] = {}
    made = losses.higher_order_functions().values()
    for name, function in losses.objectives().items():
        if function in made or function is losses.multi_view_contrast:  # by its defaults it is mv_dhel
            continue
        if losses.takes(function).operands in (Operands.FUSED, Operands.MASKED, Operands.FACTORED):
            continue  # of other networks: fused_factors
        if losses.takes(function).operands is Operands.PAIR:
            found[f"all_pairs({name})"] = losses.all_pairs(function), None
        elif function is losses.poly_view:
            for aggregation in ("geometric", "arithmetic", "harmonic"):
                found[f"{name}, {aggregation}"] = partial(function, aggregation=aggregation), None
        elif function is losses.symile:
            free = partial(function, normalize=False)
            found[f"{name}, shuffled"] = partial(free, negatives="shuffled"), None
            found[f"{name}, all"] = partial(free, negatives="all"), _TUPLES
        else:
            options, parts = _SLICES.get(function), _JOINT if function is losses.m3g else None
            found[name] = partial(function, **options) if options else function, parts
    for of_views in (losses.one_vs_rest, losses.cross_pairs, losses.mean_pair):
        found[f"{of_views.__name__}(info_nce)"] = of_views(losses.info_nce), None
    return found


def _views() -> dict[str, FactorViews]:
    """Label -> the views."""
    return {
        "k = 2": FactorViews(views=2),
        "k = 3": FactorViews(views=3),
        "k = 3, no pair bits": FactorViews(views=3, shared=1, pair=0, unique=1),
        "k = 4": FactorViews(views=4),
        "k = 8": FactorViews(views=8),
        "k = 3, last view noise": FactorViews(views=3, gain=(1.0, 1.0, 0.0)),
        "k = 3, missing": FactorViews(views=3, present=0.7),
        "k = 3, unequal": FactorViews(views=3, noise=(0.1, 0.3, 1.0)),
    }


def tuned(objective: losses.Loss) -> tuple[str, tuple[float, ...]]:
    """The option of an objective that is chosen by validation, and its values."""
    function, options = losses.unwrap(objective)[0], losses.takes(objective).options
    of_sigmoid = "bias" in options
    option = next((name for name in TUNED if name in options and (name != "scale" or of_sigmoid)), "")
    unlimited = function in (losses.dsf, losses.symile)
    return option, _UNLIMITED if unlimited else TUNED.get(option, ())


def _tasks(base: Factored) -> dict[str, Factored | None]:
    """Label -> the cell of the baselines and of every objective; None if the objective cannot take these views."""
    data = base.data
    tasks: dict[str, Factored | None] = {
        "raw inputs": dataclasses.replace(base, encoder=None),
        "untrained": dataclasses.replace(base, steps=0),
        "autoencoder": dataclasses.replace(base, target=to_inputs),
        "supervised": dataclasses.replace(base, target=to_bits),
    }
    for label, (objective, of_tuples) in objectives().items():
        takes = losses.takes(objective)
        possible = takes.views in (None, data.views) and (takes.mask or data.present == 1)
        parts = 1 if of_tuples is None else of_tuples.get(data.views, 0)
        task = dataclasses.replace(base, objective=objective, parts=parts, tuned=tuned(objective))
        tasks[label] = task if possible and parts else None
    pairs = losses.all_pairs(losses.info_nce)
    few = dataclasses.replace(base, objective=pairs, parts=_TUPLES[4], tuned=tuned(pairs))
    tasks[_FEWER] = few if data.views == 4 else None
    return tasks


def _study(seeds: int, views: dict[str, FactorViews], sizes: dict[str, int], **scale: Any) -> Study:
    grid = {name: _tasks(Factored(data=data, networks=seeds, **sizes)) for name, data in views.items()}
    names = (*FACTORS, "shared, one view", "pair, one view", "shared, last view", *TUNED)
    return Study(
        title="Which objective sees what",
        about=_ABOUT,
        cells=tuple(
            Cell({"objective": label, "views": name}, task)
            for label in next(iter(grid.values()))
            for name, tasks in grid.items()
            if (task := tasks[label]) is not None
        ),
        measures=tuple(Measure(name, digits=2) for name in names),
        columns="views",
        unequal=_UNEQUAL if "k = 4" in views else "",
        seeds=1,
        **scale,
    )


def small(seeds: int = SEEDS) -> Study:
    """Every objective, eight kinds of views."""
    keeps = "Symile keeps what three views relate, more than untrained encoders and InfoNCE of pairs"
    symile = {"objective": "symile, shuffled", "views": "k = 3, no pair bits"}
    drops, untrained = "InfoNCE of pairs drops what one view alone has", {"objective": "untrained"}
    pairs = {"objective": "all_pairs(info_nce)"}
    claims = _rows.above("Saporta 2024, Section 5.1", "part", [(keeps, symile, [pairs, untrained])])
    claims += _rows.above("ours", "unique", [(drops, {**untrained, "views": "k = 3"}, [pairs])])
    return _study(
        seeds,
        _views(),
        {},
        claims=claims,
        cost="3.5 hours for 20 networks on 2 cores with --jobs 2: M3G at k = 4 alone takes 66 minutes of a core",
    )


def smoke(seeds: int = 2) -> Study:
    """Some steps of the baselines and of one objective of each kind, three views, complete and with missing ones."""
    kinds = {name: _views()[name] for name in ("k = 3", "k = 3, missing")}
    sizes, cost = {"steps": 4, "batch_size": 32}, "a minute on 2 cores, most of it compilation"
    whole = _study(seeds, kinds, sizes, cost=cost)
    shown = ["raw inputs", "untrained", "autoencoder", "supervised", "symile, shuffled", "dsf"]
    shown.append("all_pairs(info_nce)")
    return dataclasses.replace(whole, cells=[c for c in whole.cells if c.factors["objective"] in shown])
