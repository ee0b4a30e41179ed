"""Objectives as methods call them, and the number of views that they compare."""

from collections.abc import Callable

import jax

from mvcl import losses
from mvcl.losses import Operands, name

Measures = dict[str, jax.Array]
"""Scalars that a step logs, by name."""


OfViews = Callable[..., tuple[jax.Array, Measures]]
"""What `losses.of_views` makes: (k, n, d) views -> (loss, dict of scalars for the log).

Of an objective that declares `successive`: also (p, k, n, d), p problems -> (sum of their losses, dict).
Keywords, if the objective takes them: queue (q, d), mask (k, n), weights (k, k) or (k, k, n), key, axis_name.
"""


def check(objective: losses.Loss, k: int, global_views: int | None = None) -> None:
    """Raise `ValueError` if the objective does not accept k views, of which so many are global; None: all."""
    takes = losses.takes(objective)
    if takes.operands is Operands.PAIR and k != 2:
        what = f"objective {name(objective)} compares exactly 2 views, got views.k = {k}"
        raise ValueError(f"{what}; for more use objective:all_pairs objective.pair:{name(objective)}")
    if takes.views not in (None, k):
        raise ValueError(f"objective {name(objective)} compares {takes.views} views, got views.k = {k}")
    if takes.operands is Operands.GROUPS and global_views is None and k % 2:
        raise ValueError(
            f"objective {name(objective)} compares two groups of k/2 views; views.k must be even, got {k}. With "
            "views.global_views the groups are the global views and the others"
        )
    own = losses.unwrap(objective)[1].get("global_views")
    if takes.global_views and own not in (None, global_views):
        raise ValueError(
            f"objective.global_views must be None, so that {name(objective)} is given views.global_views = "
            f"{global_views}, or equal to it, got {own}"
        )
