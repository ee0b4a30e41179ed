"""Control: k views at equal encoder passes.

More views are compared at equal epochs in most tables (Koromilas 2025, Table II; Piran 2024, Table 1), where a run
with k views encodes k/2 times as many images as one with two. Jeon 2025 and Shidani 2024 hold the views of a batch.
Source: ours.
"""

from collections.abc import Callable
from functools import partial

import _digits

from mvcl import losses
from mvcl.studies import Above, Study, trained
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


def _study(
    base: Callable[[int], Config],
    objectives: tuple[str, ...],
    ks: tuple[int, ...],
    steps: int,
    seeds: int,
    cost: str,
) -> Study:
    few, budgets = ks[0], tuple(k // ks[0] for k in ks)
    claim = partial(Above, source="ours", measure=_digits.ACCURACIES[0].name)
    more = tuple(zip(ks[1:], budgets[1:], strict=True))
    return Study(
        title="Control: k views at equal encoder passes",
        about=_ABOUT.format(
            few=few, diagonal=", ".join(f"k {k} with {b}" for k, b in zip(ks, budgets, strict=True))
        ),
        cells=tuple(
            trained(
                {"objective": name, "k": k, "passes": passes},
                base(k),
                {"objective": _OBJECTIVES[name], "train.steps": steps * few * passes // k},
            )
            for name in objectives
            for k in ks
            for passes in budgets
        ),
        measures=_digits.ACCURACIES,
        claims=tuple(
            one
            for name in objectives
            for k, passes in more
            for one in (
                claim(
                    text=f"{name}: {k} views are better than {few} at equal passes ({passes})",
                    cells={"objective": name, "k": k, "passes": passes},
                    than=({"k": few},),
                ),
                claim(
                    text=f"{name}: {k} views are better than {few} at equal epochs",
                    cells={"objective": name, "k": k, "passes": passes},
                    than=({"k": few, "passes": 1},),
                ),
            )
        ),
        columns="passes",
        reference={"k": few},
        along="k",
        seeds=seeds,
        cost=cost,
    )


def small(seeds: int = 5) -> Study:
    """Digits, 2 and 4 views, 110 and 220 steps of 2."""
    return _study(
        _digits.digits_of,
        tuple(_OBJECTIVES),
        (2, 4),
        110,
        seeds,
        "9 minutes in one process, on 2 cores with other work",
    )


def smoke(seeds: int = 2) -> Study:
    """Random vectors, 2 and 4 views, one objective."""
    return _study(_digits.vectors_of, ("mv_dhel",), (2, 4), 4, seeds, "under a minute on 2 cores")
