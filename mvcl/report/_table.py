"""Tables of the page as plain values."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from mvcl import metrics
from mvcl.report._read import Row


@dataclass(frozen=True)
class Cell:
    """A number of a table.

    Attributes:
      text: as it is shown.
      beside: in small type after it: an interval, a deviation.
      below: in small type below.
      value: by which the table is sorted; None is last.
      best: whether it is the best of its column.
    """

    text: str
    beside: str = ""
    below: str = ""
    value: float | None = None
    best: bool = False


NONE = Cell("–")


@dataclass(frozen=True)
class Table:
    """A table of numbers.

    Attributes:
      caption: what it shows.
      headings: of the columns that name a row.
      columns: of the numbers.
      rows: names and numbers.
      baselines: name and numbers of the rows below the others, which are not sorted.
      better: of each column which values are better: "higher", "lower" or "".
      sorted_by: the column of numbers by which the rows are sorted; None: they are in the order given.
      sortable: whether a reader may sort it.
      notes: what its marks and intervals are.
      kind: "first" if the first row stands out, "several" if what is beside a number is below it; else "plain".
    """

    caption: str
    headings: Sequence[str]
    columns: Sequence[str]
    rows: Sequence[tuple[Sequence[str], Sequence[Cell]]]
    baselines: Sequence[tuple[str, Sequence[Cell]]] = ()
    better: Sequence[str] = ()
    sorted_by: int | None = None
    sortable: bool = False
    notes: str = ""
    kind: str = "plain"


def of_rows(caption: str, rows: Mapping[str, Mapping[str, Row]]) -> Table:
    """The evaluation table of one run."""
    columns = list(dict.fromkeys(column for results in rows.values() for column in results))
    lines = [([name], [_single(results.get(column)) for column in columns]) for name, results in rows.items()]
    return Table(caption, [""], columns, lines, kind="first")


def _single(row: Row | None) -> Cell:
    if row is None or row.value is None:
        return NONE
    beside = "" if row.deviation is None else f"± {row.deviation:.3f}"
    return Cell(f"{row.value:.3f}", beside, value=row.value)


def of_values(values: Sequence[float], digits: str = ".3f", sign: str = "") -> Cell:
    """The mean of the values of several seeds with its 95 % interval; of one value, or equal ones, the value."""
    if not values:
        return NONE
    of = metrics.interval(values)
    if len(set(values)) == 1:
        return Cell(f"{of.mean:{sign}{digits}}", value=of.mean)
    return Cell(
        f"{of.mean:{sign}{digits}}", f"[{of.low:{sign}{digits}}, {of.high:{sign}{digits}}]", value=of.mean
    )


def of_seeds(rows: Sequence[Row]) -> Cell:
    """The cell of the results of the seeds of one config; of one seed with the deviation over its draws."""
    values = [row.value for row in rows if row.value is not None]
    if len(values) == 1 or (rows and len(set(rows)) == 1):
        return _single(rows[0])
    return of_values(values)


def with_best(
    rows: Iterable[tuple[Sequence[str], Sequence[Cell]]],
    better: Sequence[str],
    comparable: Sequence[Sequence[bool]],
) -> list[tuple[Sequence[str], list[Cell]]]:
    """The rows with the best of each column marked, of those cells that may be compared, if there are two."""
    lines = [(names, list(cells)) for names, cells in rows]
    for column, way in enumerate(better):
        found = [
            (cells[column].value, line)
            for line, (_, cells) in enumerate(lines)
            if cells[column].value is not None and comparable[line][column]
        ]
        if not way or len(found) < 2:
            continue
        most = (max if way == "higher" else min)(value for value, _ in found if value is not None)
        for value, line in found:
            if value == most:
                lines[line][1][column] = replace(lines[line][1][column], best=True)
    return lines
