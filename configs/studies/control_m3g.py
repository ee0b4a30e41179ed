"""Control: M3G of every pair of views against joint M3G.

The multi-marginal matching gap matches the k views jointly, in n^k. `all_pairs(m3g_pair)` matches each pair by
itself, in n². Piran 2024 compares M3G with InfoNCE and BYOL, of pairs and of averages, and not with its own pairwise
form, so that the gain of joint matching is not separated from that of optimal transport.
Source: ours.
"""

from functools import partial
from typing import Any

import _digits
import _rows

from mvcl import losses, studies
from mvcl.studies import Study, trained
from mvcl.training import Config

_ABOUT = """\
Joint M3G solves one problem of k views, "pairs" the sum of M3G over the k (k-1)/2 pairs of views, each with the cost
that the pair has within the k views, ||z_l - z_m||² / k² (`cost_scale = 4/k²`). Two values of the pairs' epsilon are
trained: that of the joint problem, and 2 epsilon / k. The second is the smallest for which the pairwise sum is never
below the joint gap; it equals it for coinciding vectors (docs/design/transport.md, "Joint against pairwise"). All rows
have the same images, epochs, batch, groups and learning rate.

The pairwise excess, sum of the pairs at 2 epsilon / k minus joint, tends to 0 for a large epsilon, where the losses
coincide and cannot be separated; so a small epsilon is trained too."""


def _objectives(k: int, epsilon: float) -> dict[str, losses.Loss]:
    pair = partial(losses.m3g_pair, cost_scale=4 / k**2)
    return {
        "joint": partial(losses.m3g, epsilon=epsilon),
        "pairs, epsilon": losses.all_pairs(partial(pair, epsilon=epsilon), reduction="sum"),
        "pairs, 2 epsilon / k": losses.all_pairs(partial(pair, epsilon=2 * epsilon / k), reduction="sum"),
    }


def _study(base: Config, epsilons: tuple[float, ...], **scale: Any) -> Study:
    objectives = {epsilon: _objectives(base.views.k, epsilon) for epsilon in epsilons}
    grid = [(name, epsilon) for name in objectives[epsilons[0]] for epsilon in epsilons]
    return Study(
        title="Control: M3G of every pair of views against joint M3G",
        about=_ABOUT,
        cells=[
            trained({"loss": name, "epsilon": epsilon}, base, {"objective": objectives[epsilon][name]})
            for name, epsilon in grid
        ],
        measures=_digits.ACCURACIES,
        claims=_rows.above(
            "ours",
            _digits.FEW,
            [
                (
                    f"joint matching is better than {name}, at epsilon {epsilon}",
                    {"loss": "joint", "epsilon": epsilon},
                    [{"loss": name}],
                )
                for name, epsilon in grid
                if name != "joint"
            ],
        ),
        columns="epsilon",
        reference={"loss": "joint"},
        **scale,
    )


def small(seeds: int = 5) -> Study:
    """Digits, 4 views, groups of 64 examples as in Piran 2024."""
    base = studies.changed(_digits.digits_of(4), {"train.group": 64})
    cost = "6 minutes in one process, on 2 cores with other work"
    return _study(base, (0.05, 0.2), seeds=seeds, cost=cost)


def smoke(seeds: int = 2) -> Study:
    """Random vectors, 3 views."""
    return _study(_digits.vectors_of(3), (0.2,), seeds=seeds, cost="under a minute on 2 cores")
