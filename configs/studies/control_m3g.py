"""Control: M3G of every pair of views against joint M3G, and its epsilon by the number of instances n.

Piran 2024 compares M3G, in n^k, with InfoNCE and BYOL, of pairs and of averages, and not with its own pairwise form, in
n², so that the gain of joint matching is not separated from that of optimal transport.
Source: ours; Piran 2024, Sections 2.3 and 6.2.
"""

import itertools
import json
from functools import partial
from pathlib import Path

import _bench
import _images
import _rows
import numpy as np

from mvcl import losses
from mvcl.studies import SEEDS, Above, Claim, Factors, Measure, Study, Trend, Values, trained

_ABOUT = """\
Joint M3G solves one problem of k views, "pairs" the sum of M3G over the k (k-1)/2 pairs of views, each with the cost
that the pair has within the k views, ||z_l - z_m||² / k² (`cost_scale = 4/k²`). The pairs' epsilon is that of the joint
problem, or 2 epsilon / k, the smallest for which the pairwise sum is never below the joint gap; it equals it for
coinciding vectors (docs/design/transport.md, "Joint against pairwise"). For a large epsilon the excess of that sum
tends to 0 and the losses cannot be separated; so the pairs are trained at a small one. All rows have the same images,
epochs, batch, groups and learning rate.

Piran 2024 suspects that epsilon should scale with n, the instances of a group (Section 6.2), and says that a smaller
epsilon takes more sweeps (Section 2.3); neither is measured there. Every n sees as many images in as many steps. Sweeps
are those that the solver takes in a step, the mean over the logged steps, at most 100. Epsilon should grow with n if a
larger epsilon gains more at the largest n than at the smallest."""


def _objectives(k: int, epsilon: float) -> dict[str, losses.Loss]:
    pair = partial(losses.m3g_pair, cost_scale=4 / k**2)
    return {
        "joint": partial(losses.m3g, epsilon=epsilon),
        "pairs, epsilon": losses.all_pairs(partial(pair, epsilon=epsilon), reduction="sum"),
        "pairs, 2 epsilon / k": losses.all_pairs(partial(pair, epsilon=2 * epsilon / k), reduction="sum"),
    }


def results_and_sweeps(folder: Path) -> list[Values]:
    """Those of the bench, and of joint M3G "sweeps", the mean of `solver_iterations` over the logged steps."""
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    sweeps = [row["solver_iterations"] for row in rows if "solver_iterations" in row]
    measured = {"sweeps": float(np.mean(sweeps))} if sweeps else {}
    return [of | measured for of in _bench.measured(folder)]


def small(seeds: int = SEEDS, *, data: Path) -> Study:
    """Part of CIFAR-10, 3 views, groups of 64 images as in Piran 2024, and of 16. `data` is its file, .npz."""
    base, cells, joint, rows = _images.bench(data, 3), [], {"loss": "joint"}, list[_rows.Row]()
    for n, epsilon in itertools.product((16, 64), (0.05, 0.8)):
        for name, loss in _objectives(3, epsilon).items():
            if name != "joint" and (n, epsilon) != (64, 0.05):
                continue
            factors: Factors = {"loss": name, "n": n, "epsilon": epsilon}
            changes = {"train.group": n, "objective": loss}
            cells.append(trained(factors, base, changes, measure=results_and_sweeps))
            if name != "joint":
                text = f"joint matching is better than {name}, at epsilon {epsilon}"
                rows.append((text, {**factors, **joint}, [{"loss": name}]))
    grows, falls = "epsilon should grow with n", "a smaller epsilon takes more sweeps"
    claims: list[Claim] = [
        *(claim for m in (_images.KNN, _images.LINEAR) for claim in _rows.above("ours", m, rows)),
        Above(grows, "Section 6.2", _images.KNN, {"n": 64, **joint}, ({"n": 16},), "epsilon"),
        Trend(falls, "Section 2.3", "sweeps", joint, "epsilon", rises=False),
    ]
    return _images.study(
        data,
        cells,
        _ABOUT,
        title="Control: M3G of every pair of views against joint M3G, and its epsilon",
        unequal="The number of instances of a group is what is compared.",
        measures=(*_bench.MEASURES, Measure("sweeps", label="sweeps a step", better="")),
        claims=claims,
        seeds=seeds,
        **{"columns": "epsilon", "along": "epsilon", "reference": joint},
    )


smoke = _images.smoke(small)
