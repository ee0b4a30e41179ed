"""Claims of a study that share their source and measure, as rows of (text, cells, those they are compared with)."""

from collections.abc import Iterable, Sequence
from itertools import product
from typing import Any

from mvcl.studies import Above, Baseline, Cell, Claim, Factors, Within
from mvcl.training import Config

Row = tuple[str, Factors, Sequence[Factors]]


def grid(**levels: Iterable[Any]) -> list[dict[str, Any]]:
    """The factors of all combinations of levels; the last factor changes fastest."""
    return [dict(zip(levels, combination)) for combination in product(*levels.values())]


def levels(factor: str, names: Iterable[str | int | float]) -> tuple[Factors, ...]:
    """The factors of cells to compare with: these levels of one factor."""
    return tuple({factor: name} for name in names)


def each(text: str, cells: Factors, than: Sequence[Factors], **levels: Iterable[Any]) -> list[Row]:
    """A row for each combination of levels, which the text names and the cells have beside their own."""
    return [(text.format(**of), {**cells, **of}, than) for of in grid(**levels)]


def against(text: str, cells: Factors, factor: str, others: Iterable[str | int | float]) -> list[Row]:
    """A row for each of the other levels of a factor, which the text names."""
    return [(text.format(other), cells, [{factor: other}]) for other in others]


def above(source: str, measure: str, rows: Iterable[Row]) -> list[Claim]:
    """In each row the cells are above all of the others."""
    return [Above(text, source, measure, cells, tuple(than)) for text, cells, than in rows]


def within(source: str, measure: str, bounds: tuple[float, float], rows: Iterable[Row]) -> list[Claim]:
    """In each row the difference to the others lies within bounds; without others the value."""
    return [Within(text, source, measure, cells, tuple(than), *bounds) for text, cells, than in rows]


def untrained(base: Config, factors: Factors, named: str = "objective") -> list[Cell]:
    """The cells of the raw input and of the untrained encoder, whose name is in one of the factors."""
    rows = ("raw input", "untrained encoder")
    return [Cell({**factors, named: row}, Baseline(config=base, row=row)) for row in rows]


def of_gpus(pflop: float, how: str) -> str:
    """The cost of a study at scale paper: PFLOP of training and evaluation, how they were estimated, and hours.

    30 TFLOP/s, of a GPU in float32, is ours, an assumption and no measurement.
    """
    hours = f"{float(f'{1e15 * pflop / 30e12 / 3600:.2g}'):,.0f}"
    return (
        f"{pflop:,} PFLOP of training and evaluation {how}, {hours} hours of one GPU at 30 TFLOP/s, estimated"
    )
