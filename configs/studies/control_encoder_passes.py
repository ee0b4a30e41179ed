"""Control: k views at equal encoder passes.

More views are compared at equal epochs in most tables (Koromilas 2025, Table II; Piran 2024, Table 1), where a run
with k views encodes k/2 times as many images as one with two. Jeon 2025 and Shidani 2024 hold the views of a batch.
Source: ours.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import _digits
import _rows

from mvcl import losses
from mvcl.studies import SEEDS, Study, trained
from mvcl.training import Config

_ABOUT = """\
The encoder passes of a run are k n steps, n the images of a batch. "passes" is their number in units of the run with
the fewest views and the fewest epochs. Batch n and learning rate are the same for all; k views at equal passes have
{few}/k times the steps, and the schedule ends with them. Down a column passes are equal; equal epochs are on the
diagonal: {diagonal}. The row with {few} views and the larger budget is trained longer, which the tables of
the papers lack: if more views at equal epochs are better only by their passes, it is as good."""

_OBJECTIVES: dict[str, losses.Loss] = {
    "all_pairs(nt_xent)": losses.all_pairs(partial(losses.nt_xent, temperature=0.5)),
    "mv_dhel": partial(losses.mv_dhel, temperature=0.5),
    "poly_view": partial(losses.poly_view, temperature=0.5),
}


def _study(base: Callable[[int], Config], names: tuple[str, ...], steps: int, **scale: Any) -> Study:
    """2 and 4 views with the encoder passes of 2 and of 4."""
    few, more = 2, 4
    better = f"{{}}: {more} views are better than {few} at equal {{}}"
    equal = (("passes (2)", {"k": few}), ("epochs", {"k": few, "passes": 1}))
    cells = []
    for factors in _rows.grid(objective=names, k=(few, more), passes=(1, 2)):
        name, k, passes = factors.values()
        changes = {"objective": _OBJECTIVES[name], "train.steps": steps * few * passes // k}
        cells.append(trained(factors, base(k), changes))
    return _digits.control(
        [
            (better.format(name, what), {"objective": name, "k": more, "passes": 2}, [than])
            for name in names
            for what, than in equal
        ],
        title="Control: k views at equal encoder passes",
        about=_ABOUT.format(few=few, diagonal=f"k {few} with 1, k {more} with 2"),
        cells=cells,
        columns="passes",
        reference={"k": few},
        along="k",
        **scale,
    )


def small(seeds: int = SEEDS) -> Study:
    """Digits, 2 and 4 views, 110 and 220 steps of 2."""
    cost = "36 minutes in one process, on 2 cores with other work"
    return _study(_digits.digits_of, tuple(_OBJECTIVES), 110, seeds=seeds, cost=cost)


def smoke(seeds: int = 2) -> Study:
    """Random vectors, 2 and 4 views, one objective."""
    return _study(_digits.vectors_of, ("mv_dhel",), 4, seeds=seeds, cost="under a minute on 2 cores")
