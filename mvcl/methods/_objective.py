"""Objectives as methods call them: functions of (k, n, d) views, for all kinds of operands."""

from collections.abc import Callable
from typing import Any

import jax

from mvcl import losses
from mvcl.losses import Operands, name

Measures = dict[str, jax.Array]
"""Scalars that a step logs, by name."""


OfViews = Callable[..., tuple[jax.Array, Measures]]
"""(k, n, d) views -> (loss, dict of scalars for the log).

Of an objective that declares `successive`: also (p, k, n, d), p problems -> (sum of their losses, dict).
Keywords, if the objective takes them: queue (q, d), mask (k, n), weights (k, k) or (k, k, n), key, axis_name.
"""


def of_views(objective: losses.Loss, global_views: int | None = None) -> OfViews:
    """`losses.measured_on_views`, with a `queue` under the objective's own argument name, for `successive` ones too."""
    takes, loss = losses.takes(objective), losses.measured_on_views(objective, global_views)

    def value(z: jax.Array, /, **extra: Any) -> tuple[jax.Array, Measures]:
        if "mask" in extra and not takes.mask:
            raise ValueError(
                f"objective {name(objective)} takes no mask, but these examples may lack views; "
                "use objective:mv_infonce, for instance, or data without missing views"
            )
        if takes.queue is not None and "queue" in extra:
            extra = {takes.queue if name == "queue" else name: x for name, x in extra.items()}
        if z.ndim == 4 and takes.successive is not None:
            return takes.successive(z, **{**losses.unwrap(objective)[1], **extra})
        return loss(z, **extra)

    return value


def check(objective: losses.Loss, k: int, global_views: int | None = None) -> None:
    """Raise `ValueError` if the objective does not accept k views, of which so many are global; None: all."""
    takes = losses.takes(objective)
    if takes.operands is Operands.PAIR and k != 2:
        raise ValueError(
            f"objective {name(objective)} compares exactly 2 views, got views.k = {k}; "
            f"for more use objective:all_pairs objective.pair:{name(objective)}"
        )
    if takes.views not in (None, k):
        raise ValueError(
            f"objective {name(objective)} compares exactly {takes.views} views, got views.k = {k}"
        )
    if takes.operands is Operands.GROUPS and global_views is None and k % 2:
        raise ValueError(
            f"objective {name(objective)} compares two groups of k/2 views; views.k must be even, got {k}. With "
            "views.global_views the groups are the global views and the others"
        )
    if takes.global_views:
        _, bound = losses.unwrap(objective)
        own = bound.get("global_views")
        if own is not None and own != global_views:
            raise ValueError(
                f"objective.global_views must be None, so that {name(objective)} is given views.global_views = "
                f"{global_views}, or equal to it, got {own}"
            )
