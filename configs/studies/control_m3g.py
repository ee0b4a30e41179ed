"""Control: M3G of every pair of views against joint M3G.

The multi-marginal matching gap matches the k views jointly, in n^k. `all_pairs(m3g_pair)` matches each pair by
itself, in n². Piran 2024 compares M3G with InfoNCE and BYOL, of pairs and of averages, and not with its own pairwise
form, so that the gain of joint matching is not separated from that of optimal transport.
Source: ours.
"""

from functools import partial
from typing import Any

import _digits

from mvcl import losses, studies
from mvcl.studies import SEEDS, Study
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
    k = base.views.k
    return _digits.first_of(
        {
            (name, epsilon): _objectives(k, epsilon)[name]
            for name in _objectives(k, 1)
            for epsilon in epsilons
        },
        base,
        ("loss", "epsilon"),
        "joint matching is better than {}, at epsilon {}",
        title="Control: M3G of every pair of views against joint M3G",
        about=_ABOUT,
        reference={"loss": "joint"},
        **scale,
    )


def small(seeds: int = SEEDS) -> Study:
    """Digits, 4 views, groups of 64 examples as in Piran 2024."""
    base = studies.changed(_digits.digits_of(4), {"train.group": 64})
    cost = "24 minutes in one process, on 2 cores with other work"
    return _study(base, (0.05, 0.2), seeds=seeds, cost=cost)


def smoke(seeds: int = 2) -> Study:
    """Random vectors, 3 views."""
    return _study(_digits.vectors_of(3), (0.2,), seeds=seeds, cost="under a minute on 2 cores")
