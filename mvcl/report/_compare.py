"""Tables of results: of one run, and of several, in which runs that differ in the seed alone are one row."""

import json
import math
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pandas as pd

from mvcl import metrics, training
from mvcl.report import _curves
from mvcl.report._read import Run, flatten

_T = TypeVar("_T", bound=Hashable)
_TRAINED = "trained encoder"
# Entries of the log -> measure of geometry.json.
_LOGGED = {
    "effective_rank": "effective rank",
    "uniformity": "uniformity, Gaussian",
    "alignment": "alignment",
    "positive_cosine": "positive cosine",
    "negative_cosine": "negative cosine",
}


class Cell(NamedTuple):
    """A number of a table."""

    text: str
    value: float | None = None  # by which the table is sorted; None is last
    beside: str = ""  # in small type: an interval, a deviation
    below: str = ""  # in small type
    best: bool = False
    shade: float = 0.0  # of its background, in %


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
      notes: what its marks and intervals are.
      kind: "first" if the first row stands out, "several" if rows are of several runs, so that a reader may sort them;
        else "plain".
    """

    caption: str
    headings: Sequence[str]
    columns: Sequence[str]
    rows: Sequence[tuple[Sequence[str], Sequence[Cell]]]
    baselines: Sequence[tuple[str, Sequence[Cell]]] = ()
    better: Sequence[str] = ()
    sorted_by: int | None = None
    notes: str = ""
    kind: str = "plain"


class Group(NamedTuple):
    """Runs of one configuration, of different seeds, by their place in the list of runs.

    The name is that of the run, or what the runs have in common; a seed is None if the configuration does not tell.
    """

    name: str
    places: list[int]
    seeds: list[int | None]


def groups(runs: Sequence[Run], names: Sequence[str]) -> list[Group]:
    """The runs by configuration; two of the same seed are not one group."""
    found: dict[tuple[str, int], list[int]] = {}
    seeds: list[int | None] = []
    times: Counter[tuple[str, int | None]] = Counter()
    for place, run in enumerate(runs):
        fields = flatten(run.config or {})
        seed = fields.get("train.seed")
        seeds.append(seed if type(seed) is int else None)
        rest = {field: value for field, value in fields.items() if not _is_free(field)}
        key = names[place] if seeds[-1] is None else json.dumps(rest, sort_keys=True)
        found.setdefault((key, times[key, seeds[-1]]), []).append(place)
        times[key, seeds[-1]] += 1
    folders = Counter(runs[places[0]].path.parent for places in found.values())

    def name(places: Sequence[int]) -> str:
        """The folder of all the runs, if no other group is in it; else their names."""
        above = {runs[place].path.resolve().parent for place in places}
        if len(places) > 1 and len(above) == 1 and folders[runs[places[0]].path.parent] == 1:
            return above.pop().name
        of = [names[place] for place in places]
        return ", ".join(of) if len(of) <= 3 else f"{of[0]} to {of[-1]} ({len(of)} runs)"

    return [Group(name(places), places, [seeds[place] for place in places]) for places in found.values()]


def changed(runs: Sequence[Run], of: Sequence[Group]) -> dict[str, list[Any]]:
    """Field -> value of each group, of the fields in which the groups differ; `...` if a group has no such field."""
    configs = [flatten(runs[group.places[0]].config or {}) for group in of]
    fields = {field: [config.get(field, ...) for config in configs] for all_of in configs for field in all_of}
    return {
        field: values
        for field, values in fields.items()
        if not _is_free(field) and any(value != values[0] for value in values)
    }


def _is_free(field: str) -> bool:
    """Whether runs whose configurations differ in this field are of one group: the seed, or what changes no result."""
    return field.startswith(training.free("seeds"))


def of_run(run: Run) -> Table:
    """The evaluation table of one run."""
    columns = list(dict.fromkeys(run.evaluation["column"]))
    rows = [([row], _cells(results, columns)) for row, results in _by(run.evaluation, "row")]
    at = "" if run.step is None else f" at step {run.step}"
    return Table(f"Measured{at}", [""], columns, rows, kind="first")


def of_frame(caption: str, frame: pd.DataFrame, digits: str, shade: float = 0.0) -> Table:
    """A table of plain numbers; the background of a positive one is shaded by `shade` times it, in %."""
    rows = []
    for name, values in zip(frame.index, frame.to_numpy(float).tolist()):
        cells = [Cell(f"{x:{digits}}", x, shade=shade * max(x, 0.0)) for x in values]
        rows.append(([name], [NONE if math.isnan(x) else cell for x, cell in zip(values, cells)]))
    return Table(caption, [""], list(frame.columns), rows)


class Results:
    """The results of groups of runs: of each group those of one step, and of each measure those by one protocol."""

    def __init__(self, runs: Sequence[Run], of: Sequence[Group]) -> None:
        self.runs, self.groups = runs, of
        members = [(g, *member) for g, group in enumerate(of) for member in zip(group.places, group.seeds)]
        parts = [
            runs[p].evaluation.assign(group=g, place=p, seed=s, step=runs[p].step) for g, p, s in members
        ]
        every = pd.concat([part.astype({"seed": object, "step": object}) for part in parts])
        self.columns = list(dict.fromkeys(every["column"][every["row"] == _TRAINED]))
        self.steps: dict[int, int | None] = dict.fromkeys(range(len(of)))
        self.steps |= {g: _most(part.drop_duplicates("place")["step"]) for g, part in _by(every, "group")}
        same = [step == self.steps[group] for step, group in zip(every["step"], every["group"])]
        every = every[np.array(same, bool)]
        self.evaluated = every.groupby("group")["place"].nunique().to_dict()
        found = every.dropna(subset="value")
        usual = found.groupby(["group", "row", "column"])["protocol"].transform(_most)
        found = found[found["protocol"] == usual]
        self.trained, self.baselines = found[found["row"] == _TRAINED], found[found["row"] != _TRAINED]

    def table(self, fields: Mapping[str, Sequence[str]]) -> Table:
        """The results of the trained encoder, the best first, and the baselines."""
        counts = Counter(step for step in self.steps.values() if step is not None).most_common(2)
        usual = counts[0][0] if len({count for _, count in counts}) == len(counts) > 0 else None
        protocols = {column: _most(part["protocol"]) for column, part in _by(self.trained, "column")}
        ways = {column: part["better"].iloc[0] for column, part in _by(self.trained, "column")}
        better = [ways.get(column, "") for column in self.columns]
        cells = [_cells(self._of(g), self.columns) for g in range(len(self.groups))]
        for column, (name, way) in enumerate(zip(self.columns, better)):
            may = []  # have a comparable number
            for g, row in enumerate(cells):
                of = self._of(g, name)
                count, whole, cell = len(of), len(self.groups[g].places), row[column]
                if count and of["protocol"].iloc[0] != protocols[name]:
                    cell = cell._replace(text=f"{cell.text} ‡")
                elif cell.value is not None and self.steps[g] == usual:
                    may.append(g)
                row[column] = cell._replace(below=f"{count} of {whole} seeds" if 0 < count < whole else "")
            values = [cells[g][column].value or 0.0 for g in may]
            best = (max if way == "higher" else min)(values) if way and len(values) > 1 else None
            for g in may:
                cells[g][column] = cells[g][column]._replace(best=cells[g][column].value == best)
        rows = [(self._headings(g, fields, usual), row) for g, row in enumerate(cells)]
        main = next((i for i, way in enumerate(better) if way), None)
        caption = "Test results of the trained encoder"
        if main is not None:
            caption += f", the best by {self.columns[main]} first"
            sign = -1.0 if better[main] == "higher" else 1.0
            order = np.argsort(sign * np.array([of[main].value for _, of in rows], float), kind="stable")
            rows = [rows[i] for i in order]  # NaN is last
        headings = ["run", *fields]
        headings += ["seeds"] if self._has_seeds else []
        headings += ["step"] if self._has_steps else []
        notes = _notes([cell for row in cells for cell in row], set(self.steps.values()) - {usual, None})
        baselines = self._baselines()
        return Table(caption, headings, self.columns, rows, baselines, better, main, notes, "several")

    def _of(self, g: int, column: str | None = None) -> pd.DataFrame:
        of = self.trained[self.trained["group"] == g]
        return of if column is None else of[of["column"] == column]

    @property
    def _has_seeds(self) -> bool:
        return any(len(group.places) > 1 for group in self.groups)

    @property
    def _has_steps(self) -> bool:
        return len(set(self.steps.values())) > 1

    def _headings(self, g: int, fields: Mapping[str, Sequence[str]], usual: int | None) -> list[str]:
        """Name, fields, number of seeds and step of a row."""
        names = [self.groups[g].name, *(values[g] for values in fields.values())]
        if self._has_seeds:
            whole, evaluated = len(self.groups[g].places), self.evaluated.get(g, 0)
            names.append(str(whole) if evaluated == whole else f"{evaluated} of {whole}")
        if self._has_steps:
            step = self.steps[g]
            names.append("–" if step is None else f"{step:,}{'' if step == usual else ' †'}")
        return names

    def _baselines(self) -> list[tuple[str, list[Cell]]]:
        """A row for each baseline that all groups share, else one for each of its values."""
        rows = []
        for name, of in _by(self.baselines, "row"):
            kinds: dict[tuple[Cell, ...], list[str]] = {}
            for g, part in _by(of, "group"):
                kinds.setdefault(tuple(_cells(part, self.columns)), []).append(self.groups[g].name)
            for cells, whose in kinds.items():
                rows.append((name if len(kinds) == 1 else f"{name} of {', '.join(whose)}", list(cells)))
        return rows

    def singles(self, names: Sequence[str]) -> Table | None:
        """A row for each run, if there are seeds."""
        if not self._has_seeds:
            return None
        rows = []
        for place, seed in (member for group in self.groups for member in zip(group.places, group.seeds)):
            of, step = self.runs[place].evaluation, self.runs[place].step
            named = [names[place], "–" if seed is None else str(seed), "–" if step is None else f"{step:,}"]
            rows.append((named, _cells(of[of["row"] == _TRAINED], self.columns)))
        notes = "± is the standard deviation over the draws of a run."
        return Table("Each run", ["run", "seed", "step"], self.columns, rows, notes=notes, kind="several")

    def gaps(self) -> Table | None:
        """Differences to the first group, paired by seed; None where no group shares two seeds with it."""
        of, rows = self.trained.dropna(subset="seed"), []
        for g, group in enumerate(self.groups[1:], 1):
            pairs = of[of["group"] == g].merge(of[of["group"] == 0], on=["column", "seed"])
            cells, shared = [], 0
            for column in self.columns:
                both = pairs[pairs["column"] == column]
                same = self.steps[g] == self.steps[0] and both["protocol_x"].equals(both["protocol_y"])
                gaps = both["value_x"] - both["value_y"] if same and len(both) > 1 else ()
                shared = max(shared, len(gaps))
                cells.append(of_values(gaps, ".3f", "+"))
            if shared:
                rows.append(([group.name, str(shared)], cells))
        caption = f"Minus {self.groups[0].name}, the first run given"
        notes = "Mean of the differences of runs with the same seed, with [95 % interval, Student's t]."
        table = Table(caption, ["run", "seeds"], self.columns, rows, notes=notes, kind="several")
        return table if rows else None


def geometries(runs: Sequence[Run], of: Sequence[Group]) -> list[Table]:
    """A table for each output of the network: the mean over views of each measure, by geometry.json or the log."""
    found = [[_geometry(runs[place]) for place in group.places] for group in of]
    tables = []
    for output in dict.fromkeys(output for group in found for run in group for output in run):
        there = [[run[output] for run in group if output in run] for group in found]
        measures = list(dict.fromkeys(m for group in there for _, _, values in group for m in values))
        rows = []
        for group, results in zip(of, there):
            if results:
                steps = " to ".join(f"{step:,}" for step in sorted({step for step, _, _ in results}))
                source = ", ".join(dict.fromkeys(source for _, source, _ in results))
                values = [[values[m] for _, _, values in results if m in values] for m in measures]
                rows.append(([group.name, steps, source], [of_values(v, ".4g") for v in values]))
        caption = f"Geometry at the {output}, mean over views"
        tables.append(Table(caption, ["run", "step", "by"], measures, rows, kind="several"))
    return tables


def _geometry(run: Run) -> dict[str, tuple[int, str, dict[str, float]]]:
    """Output -> step, source and measures."""
    if run.geometry is not None:
        return {
            name: (run.geometry.step, "mvcl geometry", of.rows.get("mean", next(iter(of.rows.values()), {})))
            for name, of in run.geometry.outputs.items()
        }
    logged = {}
    for output in ("encoder", "head"):
        of = {m: _curves.series(run.log, f"{output}_{key}").dropna() for key, m in _LOGGED.items()}
        step = max((int(series.index[-1]) for series in of.values() if len(series)), default=None)
        if step is not None:
            logged[output] = (step, "log", {m: float(s[step]) for m, s in of.items() if step in s.index})
    return logged


def of_values(values: Iterable[float], digits: str = ".3f", sign: str = "") -> Cell:
    """The mean of the values of several seeds with its 95 % interval; of one value, or equal ones, the value."""
    values = list(values)
    if not values:
        return NONE
    mean, low, high, _ = metrics.interval(values)
    beside = f"[{low:{sign}{digits}}, {high:{sign}{digits}}]" if len(set(values)) > 1 else ""
    return Cell(f"{mean:{sign}{digits}}", mean, beside)


def _cells(results: pd.DataFrame, columns: Sequence[str]) -> list[Cell]:
    """The cells of the seeds of one config; of one seed, or equal ones, with the deviation over its draws."""
    cells = dict.fromkeys(columns, NONE)
    for column, of in _by(results, "column"):
        value, deviation = of[["value", "deviation"]].iloc[0]
        if len(of.drop_duplicates(["value", "deviation", "protocol", "better"])) > 1:
            cells[column] = of_values(of["value"])
        elif not np.isnan(value):
            beside = "" if np.isnan(deviation) else f"± {deviation:.3f}"
            cells[column] = Cell(f"{value:.3f}", float(value), beside)
    return [cells[column] for column in columns]


def _notes(cells: Sequence[Cell], other_steps: set[int | None]) -> str:
    """What the intervals and marks are."""
    notes = {
        "[ ] 95 % interval of the mean over seeds (Student's t)": any(c.beside[:1] == "[" for c in cells),
        "± standard deviation of the draws of one run, which is no interval over seeds": any(
            c.beside[:1] == "±" for c in cells
        ),
        "★ best of its column": True,
        "† of another step than the others: not comparable": bool(other_steps),
        "‡ by another protocol: not comparable": any("‡" in c.text for c in cells),
    }
    return "; ".join(note for note, holds in notes.items() if holds) + "."


def protocols(runs: Sequence[Run], names: Sequence[str]) -> list[tuple[str, str]]:
    """(columns, protocol); runs and rows are named where a column has several."""
    several = len(runs) > 1
    every = pd.concat([run.evaluation.assign(run=f"{n}, " if several else "") for run, n in zip(runs, names)])
    columns_of: dict[tuple[str, str], list[str]] = {}  # columns with the same protocol share a line
    for column, of in _by(every, "column"):
        for protocol, part in _by(of, "protocol"):
            whose = f" ({'; '.join(part['run'] + part['row'])})" if of["protocol"].nunique() > 1 else ""
            columns_of.setdefault((protocol, whose), []).append(column)
    return [(", ".join(columns) + whose, protocol) for (protocol, whose), columns in columns_of.items()]


def _by(frame: pd.DataFrame, column: str) -> Iterable[tuple[Any, pd.DataFrame]]:
    """The parts with equal values in this column, in the order of the frame."""
    return frame.groupby(column, sort=False)


def _most(values: Iterable[_T]) -> _T:
    """The most frequent value, the first of several."""
    return Counter(values).most_common(1)[0][0]
