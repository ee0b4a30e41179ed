"""A study: the cells of a table or a figure, what is measured of each, and what the paper prints."""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from mvcl.studies._task import Task, Values

if TYPE_CHECKING:
    from mvcl.studies._verdicts import Claim

Factors = Mapping[str, str | int | float]
"""What a cell of a grid varies, by name."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cell:
    """One place of a study: a task, trained once per seed."""

    factors: Factors
    """What distinguishes it from the other cells: {"objective": "MV-DHEL", "k": 4}."""
    task: Task
    printed: Mapping[str, float] = dataclasses.field(default_factory=dict)
    """Measure name -> value that the paper prints, in the unit of the table: per cent for a `Measure` in per cent."""

    @property
    def name(self) -> str:
        """The factors as text: "objective MV-DHEL, k 4"."""
        return ", ".join(f"{factor} {level}" for factor, level in self.factors.items())


@dataclasses.dataclass(frozen=True, kw_only=True)
class Measure:
    """A number that is measured in every cell, and how it is shown."""

    name: str
    """Key of the values that tasks return."""
    label: str = ""
    """Heading; empty: the name."""
    percent: bool = False
    """Whether the value is a share, shown in per cent."""
    digits: int = 1
    """Digits after the point."""
    better: str = "higher"
    """Which values are better, for readers: "higher", "lower" or ""."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Study:
    """A grid of cells with their measures; at one scale, as a function of a file in configs/studies returns it."""

    title: str
    """Such as "Koromilas 2025, Table II: linear accuracy by number of views"."""
    about: str
    """Markdown, one or more paragraphs: what the paper does, what is done here, and every difference."""
    cells: tuple[Cell, ...]
    measures: tuple[Measure, ...]
    """The first is that of the figure."""
    claims: "tuple[Claim, ...]" = ()
    """What the paper says that its cells show."""
    columns: str | None = None
    """Factor whose levels are columns; None: the measures are the columns."""
    reference: Factors | None = None
    """Paired differences are to the cell with these factors in place of its own; None: no differences."""
    along: str | None = None
    """Factor on the horizontal axis of the figure, of numbers; None: a line for each cell."""
    seeds: int = 5
    """Seeds 0 to seeds - 1 of every cell."""
    cost: str
    """Hardware and time of all cells, measured or estimated, and how: "25 minutes on 2 cores"."""

    def __post_init__(self) -> None:
        names = [cell.name for cell in self.cells]
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise ValueError(f"the cells of a study must differ in their factors, got {twice!r} twice")
        if not self.cells or not self.measures:
            raise ValueError(f"a study must have cells and measures, got none in {self.title!r}")
        if self.seeds < 1:
            raise ValueError(f"seeds must be at least 1, got {self.seeds}")
        factors = list(self.cells[0].factors)
        for cell in self.cells:
            if list(cell.factors) != factors:
                raise ValueError(
                    f"the cells must have the same factors, got {factors} and {list(cell.factors)}"
                )
        for field in ("columns", "along"):
            if getattr(self, field) not in (None, *factors):
                raise ValueError(f"{field} must be one of {', '.join(factors)}, got {getattr(self, field)!r}")
        self._check_measures()
        if self.reference is not None:
            select(self, self.reference)
        for claim in self.claims:
            claim.check(self)

    def _check_measures(self) -> None:
        """Raise `ValueError` for a measure that is named twice, or that a cell or a claim has and the study has not."""
        measures = [measure.name for measure in self.measures]
        if len(set(measures)) < len(measures):
            raise ValueError(f"the measures of a study must have different names, got {', '.join(measures)}")
        for what, used in (
            *((f"a printed value of {cell.name!r}", name) for cell in self.cells for name in cell.printed),
            *((f"the claim {claim.text!r}", claim.measure) for claim in self.claims),
        ):
            if used not in measures:
                raise ValueError(f"{what} must be of a measure of {', '.join(measures)}, got {used!r}")


@dataclasses.dataclass(frozen=True)
class Found:
    """What was measured so far.

    Attributes:
      study: the study.
      values: for each cell, seed -> measured values. Of tasks with several networks the seeds count all of them.
    """

    study: Study
    values: tuple[Mapping[int, Values], ...]

    def of(self, cell: Cell, measure: str) -> dict[int, float]:
        """Seed -> value of a measure, for the seeds that have it; per cent if the measure is in per cent."""
        shown = next((m for m in self.study.measures if m.name == measure), None)
        scale = 100.0 if shown is not None and shown.percent else 1.0
        rows = self.values[self.study.cells.index(cell)]
        return {seed: scale * row[measure] for seed, row in rows.items() if measure in row}


def select(study: Study, factors: Factors) -> tuple[Cell, ...]:
    """The cells with these levels of these factors.

    Raises:
      ValueError: cells have no such factor.
    """
    known = study.cells[0].factors
    if unknown := [name for name in factors if name not in known]:
        raise ValueError(f"cells are chosen by the factors {', '.join(known)}, got {unknown[0]!r}")
    return tuple(
        cell for cell in study.cells if all(cell.factors[name] == level for name, level in factors.items())
    )


def partner(study: Study, cell: Cell, factors: Factors) -> Cell | None:
    """The cell with these factors in place of its own; None if there is none."""
    found = select(study, {**cell.factors, **factors})
    return found[0] if found else None


def levels(cells: Iterable[Cell], factor: str) -> tuple[str | int | float, ...]:
    """The levels of a factor in the order of the cells."""
    return tuple(dict.fromkeys(cell.factors[factor] for cell in cells))
