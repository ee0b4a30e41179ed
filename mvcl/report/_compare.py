"""Tables of results: of one run, and of several, in which runs that differ in the seed alone are one row."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from mvcl import metrics, training
from mvcl.report import _curves
from mvcl.report._read import Run, flatten

_TRAINED = "trained encoder"
FIELDS = 4  # of the configurations, in the table of results
# Entries of the log -> measure of geometry.json.
_LOGGED = {
    "effective_rank": "effective rank",
    "uniformity": "uniformity, Gaussian",
    "alignment": "alignment",
    "positive_cosine": "positive cosine",
    "negative_cosine": "negative cosine",
}


class Cell(NamedTuple):
    """A number of a table.

    Attributes:
      text: as it is shown.
      value: by which the table is sorted; None is last.
      beside: in small type after it: an interval, a deviation.
      below: in small type below.
      best: whether it is the best of its column.
      shade: strength of its background, in %.
    """

    text: str
    value: float | None = None
    beside: str = ""
    below: str = ""
    best: bool = False
    shade: float = 0.0


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
      kind: "first" if the first row stands out, "several" if a reader may sort it, and what is beside a number is
        below it; else "plain".
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

    @property
    def sortable(self) -> bool:
        """Whether a reader may sort it."""
        return self.kind == "several" and len(self.rows) > 1


class Group(NamedTuple):
    """Runs of one configuration, of different seeds, by their place in the list of runs.

    The name is that of the run, or what the runs have in common; a seed is None if the configuration does not tell.
    """

    name: str
    places: list[int]
    seeds: list[int | None]


def groups(runs: Sequence[Run], names: Sequence[str]) -> list[Group]:
    """The runs by configuration; two of the same seed are not one group."""
    found: dict[tuple[str, int], list[tuple[int, int | None]]] = {}
    times: Counter[tuple[str, int | None]] = Counter()
    for place, (run, name) in enumerate(zip(runs, names)):
        fields = flatten(run.config or {})
        seed = fields.get("train.seed")
        seed = seed if type(seed) is int else None
        free = {field: value for field, value in fields.items() if not _is_free(field)}
        key = name if seed is None else json.dumps(free, sort_keys=True)
        found.setdefault((key, times[key, seed]), []).append((place, seed))
        times[key, seed] += 1
    folders = Counter(runs[members[0][0]].path.parent for members in found.values())

    def name(places: list[int]) -> str:
        """The folder of all the runs, if no other group is in it; else their names."""
        above = {runs[place].path.resolve().parent for place in places}
        if len(places) > 1 and len(above) == 1 and folders[runs[places[0]].path.parent] == 1:
            return above.pop().name
        of = [names[place] for place in places]
        return ", ".join(of) if len(of) <= 3 else f"{of[0]} to {of[-1]} ({len(of)} runs)"

    members = [list(zip(*of)) for of in found.values()]
    return [Group(name(list(places)), list(places), list(seeds)) for places, seeds in members]


def changed(runs: Sequence[Run], of: Sequence[Group]) -> dict[str, list[Any]]:
    """Field -> value of each group, of the fields in which the groups differ; `...` if a group has no such field."""
    flat = [flatten(runs[group.places[0]].config or {}) for group in of]
    fields = {name: [config.get(name, ...) for config in flat] for name in {n: 0 for c in flat for n in c}}
    return {
        name: values
        for name, values in fields.items()
        if not _is_free(name) and any(value != values[0] for value in values)
    }


def _is_free(field: str) -> bool:
    """Whether runs whose configurations differ in this field are of one group: the seed, or what changes no result."""
    return field.startswith(training.free("seeds"))


def of_run(run: Run) -> Table:
    """The evaluation table of one run."""
    columns = list(dict.fromkeys(run.evaluation["column"]))
    cells = {
        (row, column): _of_seeds(result) for (row, column), result in _by(run.evaluation, "row", "column")
    }
    rows = [
        ([row], [cells.get((row, column), NONE) for column in columns])
        for row in dict.fromkeys(run.evaluation["row"])
    ]
    at = "" if run.step is None else f" at step {run.step}"
    return Table(f"Measured{at}", [""], columns, rows, kind="first")


class Results:
    """The results of groups of runs: of each group those of one step, and of each measure those by one protocol."""

    def __init__(self, runs: Sequence[Run], of: Sequence[Group]) -> None:
        self.runs, self.groups = runs, of
        every = pd.concat(
            [
                runs[place].evaluation.assign(group=g, place=place, seed=seed, step=runs[place].step)
                for g, group in enumerate(of)
                for place, seed in zip(group.places, group.seeds)
            ]
        ).astype({"step": object, "seed": object})
        trained = every[every["row"] == _TRAINED]
        self.columns = list(dict.fromkeys(trained["column"]))
        self.steps = {g: _most(part.drop_duplicates("place")["step"]) for (g,), part in _by(every, "group")}
        same = [step == self.steps[group] for step, group in zip(every["step"], every["group"])]
        self.evaluated = every[same].groupby("group")["place"].nunique().to_dict()
        found = every[same].dropna(subset="value")
        usual = found.groupby(["group", "row", "column"])["protocol"].transform(_most)
        found = found[found["protocol"] == usual]
        self.baselines = found[found["row"] != _TRAINED]
        self.trained = found[found["row"] == _TRAINED]

    def table(self, fields: Mapping[str, Sequence[str]]) -> Table:
        """The results of the trained encoder, the best first, and the baselines."""
        protocols = {column: _most(part["protocol"]) for (column,), part in _by(self.trained, "column")}
        better = [_first(self.trained[self.trained["column"] == c]["better"], "") for c in self.columns]
        known = Counter(step for step in self.steps.values() if step is not None).most_common(2)
        usual = known[0][0] if len({count for _, count in known}) == len(known) > 0 else None
        cells = {(g, c): NONE for g in range(len(self.groups)) for c in self.columns}
        comparable = set()
        for (g, c), part in _by(self.trained, "group", "column"):
            whole, other = len(self.groups[g].places), part["protocol"].iloc[0] != protocols[c]
            below = f"{len(part)} of {whole} seeds" if len(part) < whole else ""
            cell = _of_seeds(part)
            cells[g, c] = cell._replace(text=f"{cell.text} ‡" if other else cell.text, below=below)
            if not other and self.steps[g] == usual:
                comparable.add((g, c))
        for c, way in zip(self.columns, better):
            best = [cells[at].value for at in sorted(comparable) if at[1] == c and way]
            most = (max if way == "higher" else min)(best) if len(best) > 1 else None
            for at in comparable:
                if at[1] == c and cells[at].value == most:
                    cells[at] = cells[at]._replace(best=True)
        rows = [
            (self._headings(g, fields, usual), [cells[g, c] for c in self.columns])
            for g in range(len(self.groups))
        ]
        main = next((i for i, way in enumerate(better) if way), None)
        caption = "Test results of the trained encoder"
        if main is not None:
            caption += f", the best by {self.columns[main]} first"
            sign = -1 if better[main] == "higher" else 1
            values = [np.inf if row[1][main].value is None else sign * row[1][main].value for row in rows]
            rows = [rows[i] for i in np.argsort(values, kind="stable")]
        headings = ["run", *fields]
        headings += ["seeds"] if self._has_seeds else []
        headings += ["step"] if self._has_steps else []
        notes = _notes([cell for _, of in rows for cell in of], set(self.steps.values()) - {usual, None})
        return Table(
            caption, headings, self.columns, rows, self._baselines(), better, main, notes, kind="several"
        )

    @property
    def _has_seeds(self) -> bool:
        return any(len(group.places) > 1 for group in self.groups)

    @property
    def _has_steps(self) -> bool:
        return len({self.steps.get(g) for g in range(len(self.groups))}) > 1

    def _headings(self, g: int, fields: Mapping[str, Sequence[str]], usual: int | None) -> list[str]:
        """Name, fields, number of seeds and step of a row."""
        names = [self.groups[g].name, *(values[g] for values in fields.values())]
        if self._has_seeds:
            whole, evaluated = len(self.groups[g].places), self.evaluated.get(g, 0)
            names.append(str(whole) if evaluated == whole else f"{evaluated} of {whole}")
        if self._has_steps:
            step = self.steps.get(g)
            names.append("–" if step is None else f"{step:,}{'' if step == usual else ' †'}")
        return names

    def _baselines(self) -> list[tuple[str, list[Cell]]]:
        """A row for each baseline that all groups share, else one for each of its values."""
        rows = []
        for (name,), of in _by(self.baselines, "row"):
            kinds: dict[tuple[Cell, ...], list[str]] = {}
            for (g,), part in _by(of, "group"):
                cells = {column: _of_seeds(one) for (column,), one in _by(part, "column")}
                key = tuple(cells.get(column, NONE) for column in self.columns)
                kinds.setdefault(key, []).append(self.groups[g].name)
            for cells, whose in kinds.items():
                rows.append((name if len(kinds) == 1 else f"{name} of {', '.join(whose)}", list(cells)))
        return rows

    def singles(self, names: Sequence[str]) -> Table | None:
        """A row for each run, if there are seeds."""
        if not self._has_seeds:
            return None
        rows = []
        for place, seed in (of for group in self.groups for of in zip(group.places, group.seeds)):
            run = self.runs[place]
            of = run.evaluation[run.evaluation["row"] == _TRAINED]
            cells = {column: _of_seeds(result) for (column,), result in _by(of, "column")}
            step = "–" if run.step is None else f"{run.step:,}"
            named = [names[place], "–" if seed is None else str(seed), step]
            rows.append((named, [cells.get(column, NONE) for column in self.columns]))
        notes = "± is the standard deviation over the draws of a run."
        return Table("Each run", ["run", "seed", "step"], self.columns, rows, notes=notes, kind="several")

    def gaps(self) -> Table | None:
        """Differences to the first group, paired by seed; None where no group shares two seeds with it."""
        of = self.trained.dropna(subset="seed")
        rows = []
        for g, group in enumerate(self.groups[1:], 1):
            cells, shared = [], 0
            for column in self.columns:
                here, there = (of[(of["group"] == i) & (of["column"] == column)] for i in (g, 0))
                pairs = here.merge(there, on="seed")
                same = self.steps.get(g) == self.steps.get(0) and pairs["protocol_x"].equals(
                    pairs["protocol_y"]
                )
                gaps = pairs["value_x"] - pairs["value_y"] if same and len(pairs) > 1 else []
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


def _of_seeds(results: pd.DataFrame) -> Cell:
    """The cell of the results of the seeds of one config; of one seed with the deviation over its draws."""
    one = results.iloc[0]
    if len(results.drop_duplicates(["value", "deviation", "protocol", "better"])) > 1:
        return of_values(results["value"])
    if np.isnan(one["value"]):
        return NONE
    beside = "" if np.isnan(one["deviation"]) else f"± {one['deviation']:.3f}"
    return Cell(f"{one['value']:.3f}", float(one["value"]), beside)


def _notes(cells: Sequence[Cell], other_steps: set[int | None]) -> str:
    """What the intervals and marks are."""
    parts = []
    if any(cell.beside.startswith("[") for cell in cells):
        parts.append("[ ] 95 % interval of the mean over seeds (Student's t)")
    if any(cell.beside.startswith("±") for cell in cells):
        parts.append("± standard deviation of the draws of one run, which is no interval over seeds")
    parts.append("★ best of its column")
    if other_steps:
        parts.append("† of another step than the others: not comparable")
    if any("‡" in cell.text for cell in cells):
        parts.append("‡ by another protocol: not comparable")
    return "; ".join(parts) + "."


def protocols(runs: Sequence[Run], names: Sequence[str]) -> list[tuple[str, str]]:
    """(columns, protocol); runs and rows are named where a column has several."""
    every = pd.concat([run.evaluation.assign(run=name) for run, name in zip(runs, names)])
    every["where"] = every["row"] if len(runs) == 1 else every["run"] + ", " + every["row"]
    columns_of: dict[tuple[str, str], list[str]] = {}  # columns with the same protocol share a line
    for (column,), of in _by(every, "column"):
        for (protocol,), part in _by(of, "protocol"):
            only = f" ({'; '.join(part['where'])})" if of["protocol"].nunique() > 1 else ""
            columns_of.setdefault((protocol, only), []).append(column)
    return [(", ".join(columns) + only, protocol) for (protocol, only), columns in columns_of.items()]


def _by(frame: pd.DataFrame, *columns: str) -> Iterable[tuple[Any, pd.DataFrame]]:
    """The parts with equal values in these columns, in the order of the frame."""
    return frame.groupby(list(columns), sort=False)


def _most(values: Iterable[Any]) -> Any:
    """The most frequent value, the first of several."""
    return Counter(values).most_common(1)[0][0]


def _first(values: Iterable[Any], default: Any) -> Any:
    return next(iter(values), default)
