"""Claims of a study that share their source and measure, as rows of (text, cells, those they are compared with)."""

from collections.abc import Iterable, Sequence
from itertools import product
from typing import Any

from mvcl.studies import Above, Claim, Factors, Within

Row = tuple[str, Factors, Sequence[Factors]]


def grid(**levels: Iterable[Any]) -> list[dict[str, Any]]:
    """The factors of all combinations of levels; the last factor changes fastest."""
    return [dict(zip(levels, combination)) for combination in product(*levels.values())]


def levels(factor: str, names: Iterable[str | int | float]) -> tuple[Factors, ...]:
    """The factors of cells to compare with: these levels of one factor."""
    return tuple({factor: name} for name in names)


def above(source: str, measure: str, rows: Iterable[Row]) -> list[Claim]:
    """In each row the cells are above all of the others."""
    return [Above(text, source, measure, cells, tuple(than)) for text, cells, than in rows]


def within(source: str, measure: str, bounds: tuple[float, float], rows: Iterable[Row]) -> list[Claim]:
    """In each row the difference to the others lies within bounds; without others the value."""
    return [Within(text, source, measure, cells, tuple(than), *bounds) for text, cells, than in rows]
