"""Koromilas 2025, Table VII: MV-CL1, MV-InfoNCE, MV-CL2 and MV-DHEL on CH-SIMS.

There is no small scale: no offline data have three modalities of one scene. On digits the same objectives are `mvcl
study koromilas_table6 --scale small`.
Source: Table VII, appendix F; recipe `koromilas/sentiment:chsims`.
"""

from collections.abc import Sequence

import _koromilas
import _rows

from mvcl import training
from mvcl.studies import Cell, Claim, Study
from mvcl.training import Config

_ABOUT = """\
As Table IV on CH-SIMS, with MV-CL1 and MV-CL2. "MV-InfoNCE" has the negatives of the released code, all other
vectors; "MV-InfoNCE, Eq. 11" those of the formula, which are MV-CL1's, as appendix F says of both. MV-CL2 sums the
energies over the views, as the code does. The accuracy is "{accuracy}": the paper does not say which of the usual
binary accuracies it prints."""

_PRINTED = {
    "MV-CL1": (75.19, 0.434),
    "MV-InfoNCE": (76.56, 0.421),
    "MV-CL2": (79.08, 0.394),
    "MV-DHEL": (79.38, 0.392),
}


def paper(seeds: int = 3, *, accuracy: str = "accuracy positive") -> Study:
    """CH-SIMS; `seeds` trainings of each cell at each learning rate.

    Args:
      accuracy: "accuracy positive", MERBench's, or "accuracy above zero", MMSA's for CH-SIMS.
    """
    names = ("MV-CL1", "MV-InfoNCE", "MV-InfoNCE, Eq. 11", "MV-CL2", "MV-DHEL")
    base, cost = training.load("koromilas/sentiment:chsims"), "34 PFLOP, from the recipe's cost at 3 seeds"
    return _study(base, names, _koromilas.RATES, accuracy, seeds, f"one GPU; {cost}")


def smoke(seeds: int = 2) -> Study:
    """Some steps of tiny networks on random vectors of three kinds."""
    base, names, accuracy = _koromilas.sentiment_smoke(), ("MV-CL2", "MV-DHEL"), "accuracy positive"
    return _study(base, names, (1e-4,), accuracy, seeds, "seconds on 2 cores")


def _study(
    base: Config, names: Sequence[str], rates: tuple[float, ...], accuracy: str, trainings: int, cost: str
) -> Study:
    claims: list[Claim] = []
    for one, two in (("MV-DHEL", "MV-CL2"), ("MV-InfoNCE", "MV-CL1"), ("MV-InfoNCE, Eq. 11", "MV-CL1")):
        if one in names and two in names:
            first, second = {"objective": one}, {"objective": two}
            above, error = f"{one} is above {two}", f"{two} has a larger error than {one}"
            claims += _rows.above("Table VII, appendix F", accuracy, [(above, first, [second])])
            claims += _rows.above("Table VII, appendix F", "MAE", [(error, second, [first])])
    cells = []
    for name in names:
        printed = dict(zip((accuracy, "MAE"), _PRINTED.get(name, ())))
        task = _koromilas.sentiment(base, name, rates, trainings)
        cells.append(Cell({"objective": name}, task, printed))
    return Study(
        title="Koromilas 2025, Table VII: one term for an instance or one for each view, CH-SIMS",
        about=_ABOUT.format(accuracy=accuracy),
        cells=cells,
        measures=_koromilas.sentiment_measures(accuracy),
        claims=claims,
        reference={"objective": "MV-DHEL"},
        printed_runs=3,
        seeds=1,
        cost=cost,
    )
