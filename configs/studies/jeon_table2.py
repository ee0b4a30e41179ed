"""Jeon 2025, Table 2: the InfoNCE loss of the best cosines by temperature and number of negatives, computed.

Source: Table 2, Proposition 1 (Eqs. 14 and 15), Section 4.5.
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import jax.numpy as jnp

from mvcl import losses
from mvcl.studies import Cell, Claim, Found, Measure, Study, Values, Verdict

_ABOUT = """\
The loss log(1 + K e^(-2 / tau)) where the positive has cosine 1 and all K negatives -1, computed by `losses.info_nce`
from such vectors, and by the formula: an instance whose key is its query and a queue of K opposite vectors. DSF's
similarity has no such bound; its margin is measured in `mvcl study jeon_table3`. Nothing is random, so that there is
one seed and no interval. The paper cuts some numbers off after three digits (3.5736 is printed as 3.573) and prints
0.1706 in Eq. 15 where the table has 0.170."""

_PRINTED = {
    1.0: (3.573, 6.319, 9.090),
    0.5: (1.738, 4.331, 7.091),
    0.2: (0.011, 0.170, 1.380),
    0.1: (0.000, 0.000, 0.0001),
}
_NEGATIVES = (256, 4096, 65536)


@dataclasses.dataclass(frozen=True, kw_only=True)
class BestLoss:
    """InfoNCE where the positive has cosine 1 and the negatives -1; a `studies.Task`."""

    negatives: int
    """K, their number."""
    temperature: float
    """Divisor of the cosines."""

    def run(self, folder: Path, seed: int) -> Sequence[Values]:
        """Return the "loss" of `losses.info_nce` and the value of the "formula"."""
        del folder, seed
        z = jnp.array([[1.0, 0.0]] * 2)
        value = losses.info_nce(
            z,
            z,
            temperature=self.temperature,
            in_batch_negatives=False,
            extra_negatives=jnp.broadcast_to(-z[:1], (self.negatives, 2)),
        )
        least = losses.info_nce_minimum(self.negatives, self.temperature)
        return [{"loss": float(value), "formula": float(least)}]


@dataclasses.dataclass(frozen=True, kw_only=True)
class AsPrinted(Claim):
    """The values are those that the paper prints."""

    tolerance: float
    """Largest difference."""

    @property
    def rule(self) -> str:
        """How the answer is found."""
        return f"holds if every value is within {self.tolerance:g} of the printed one; else does not hold"

    def about(self, study: Study) -> list[list[tuple[Cell, ...]]]:
        """The cells that the paper prints."""
        return [[(cell,)] for cell in study.cells if self.measure in cell.printed]

    def judge(self, found: Found) -> Verdict:
        """The answer from what was computed."""
        cells = [cell for [(cell,)] in self.about(found.study)]
        off = {
            cell.name: max(abs(value - cell.printed[self.measure]) for value in values.values())
            for cell in cells
            if (values := found.of(cell, self.measure))
        }
        if len(off) < len(cells):
            return Verdict("cannot tell", "not all are computed")
        name = max(off, key=lambda cell: off[cell])
        reason = f"the largest of {len(off)} differences is {off[name]:.4f}, at {name}"
        return Verdict("holds" if off[name] <= self.tolerance else "does not hold", reason)


def paper(seeds: int = 1) -> Study:
    """All twelve values."""
    return _study(tuple(_PRINTED), _NEGATIVES, seeds)


def smoke(seeds: int = 1) -> Study:
    """Two of the values."""
    return _study((1.0, 0.2), _NEGATIVES[:1], seeds)


def _study(temperatures: Sequence[float], negatives: Sequence[int], seeds: int) -> Study:
    text = "the loss of the best cosines is as printed"
    return Study(
        title="Jeon 2025, Table 2: the least InfoNCE loss of cosines",
        about=_ABOUT,
        cells=[
            Cell(
                {"temperature": t, "K": k}, BestLoss(negatives=k, temperature=t), {"loss": _PRINTED[t][place]}
            )
            for t in temperatures
            for place, k in enumerate(negatives)
        ],
        measures=(Measure("loss", digits=4, better=""), Measure("formula", digits=4, better="")),
        claims=(AsPrinted(text, "Table 2, Section 4.5", "loss", {}, tolerance=0.001),),
        columns="K",
        along="temperature",
        seeds=seeds,
        cost="seconds on one core; nothing is trained",
    )
