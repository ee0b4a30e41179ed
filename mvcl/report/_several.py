"""Several runs side by side: runs that differ in the seed alone are one row."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from markupsafe import Markup

from mvcl import _configs
from mvcl.report import _figures, _state
from mvcl.report._read import Row, Run, differences, flatten
from mvcl.report._table import NONE, Cell, Table, of_seeds, of_values, with_best

_T = TypeVar("_T")
_TRAINED = "trained encoder"
_SEED = "train.seed"
_FIELDS = 4  # of the configurations, in the table of results
# Entries of the log -> measure of geometry.json.
_LOGGED = {
    "effective_rank": "effective rank",
    "uniformity": "uniformity, Gaussian",
    "alignment": "alignment",
    "positive_cosine": "positive cosine",
    "negative_cosine": "negative cosine",
}


@dataclass(frozen=True)
class Group:
    """Runs of one configuration, of different seeds.

    Attributes:
      name: of the run, or of what the runs have in common.
      runs: in the order given.
      seeds: of each run; None if its configuration does not tell.
    """

    name: str
    runs: list[Run]
    seeds: list[int | None]

    @property
    def step(self) -> int | None:
        """The step of most evaluations; None without any."""
        return _most([run.evaluation_step for run in self.runs if run.evaluation])

    def results(self, row: str, column: str) -> dict[int | None, Row]:
        """Seed -> result, of the evaluations of that step which measured it, by the protocol of most."""
        found = {
            seed: result
            for seed, run in zip(self.seeds, self.runs)
            if run.evaluation_step == self.step
            and (result := run.evaluation.get(row, {}).get(column)) is not None
            and result.value is not None
        }
        protocol = _most([result.protocol for result in found.values()])
        return {seed: result for seed, result in found.items() if result.protocol == protocol}


def groups(runs: Sequence[Run], names: Sequence[str]) -> list[Group]:
    """The runs by configuration; two of the same seed are not one group."""
    found: dict[tuple[str, int], list[tuple[str, Run, int | None]]] = {}
    times: Counter[str] = Counter()
    for name, run in zip(names, runs):
        train = (run.config or {}).get("train")
        seed = train.get("seed") if isinstance(train, Mapping) else None
        key = name
        if run.config is not None and isinstance(train, Mapping) and type(seed) is int:
            rest = {field: value for field, value in flatten(run.config).items() if not _is_free(field)}
            key = json.dumps(rest, sort_keys=True)
        same = f"{key} {seed}"
        found.setdefault((key, times[same]), []).append((name, run, seed if type(seed) is int else None))
        times[same] += 1
    folders = Counter(members[0][1].path.parent for members in found.values())
    return [
        Group(
            _name(members, folders[members[0][1].path.parent] == 1),
            [run for _, run, _ in members],
            [seed for _, _, seed in members],
        )
        for members in found.values()
    ]


def _name(members: Sequence[tuple[str, Run, int | None]], alone: bool) -> str:
    """The folder of all the runs, if no other group is in it; else their names."""
    folders = {run.path.resolve().parent for _, run, _ in members}
    if len(members) > 1 and len(folders) == 1 and alone:
        return folders.pop().name
    names = [name for name, _, _ in members]
    return ", ".join(names) if len(names) <= 3 else f"{names[0]} to {names[-1]} ({len(names)} runs)"


def changed(of: Sequence[Group]) -> dict[str, list[object]]:
    """Field -> value of each group, of the fields in which the groups differ; `...` if a group has no such field."""
    found = differences([group.runs[0].config for group in of])
    return {name: values for name, values in found.items() if not _is_free(name)}


def _is_free(field: str) -> bool:
    """Whether runs whose configurations differ in this field are of one group: the seed, or what changes no result."""
    return field == _SEED or field.startswith(_configs.FREE)


def naming(fields: Mapping[str, Sequence[str]]) -> dict[str, Sequence[str]]:
    """The first few of these fields, without those of objects that differ themselves."""
    parts = [name for name in fields if not any(name.startswith(f"{other}.") for other in fields)]
    return {name: fields[name] for name in parts[:_FIELDS]}


def results(of: Sequence[Group], fields: Mapping[str, Sequence[str]]) -> Table | None:
    """The table of results; None if no run was evaluated."""
    columns = list(dict.fromkeys(c for g in of for run in g.runs for c in run.evaluation.get(_TRAINED, {})))
    if not columns:
        return None
    found = [{column: group.results(_TRAINED, column) for column in columns} for group in of]
    protocols = {
        column: _most([row.protocol for each in found for row in each[column].values()]) for column in columns
    }
    better = [next((row.better for each in found for row in each[column].values()), "") for column in columns]
    steps = [group.step for group in of]
    usual = _usual([step for step in steps if step is not None])
    rows, comparable = [], []
    for group, each in zip(of, found):
        others = {c for c in columns if any(row.protocol != protocols[c] for row in each[c].values())}
        cells = [_marked(each[c], len(group.runs), c in others) for c in columns]
        rows.append((_headings(group, of, fields, steps, usual), cells))
        comparable.append([group.step == usual and c not in others for c in columns])
    lines = with_best(rows, better, comparable)
    main = next((i for i, way in enumerate(better) if way), None)
    if main is not None:
        sign = -1 if better[main] == "higher" else 1
        known = [line for line in lines if line[1][main].value is not None]
        lines = sorted(known, key=lambda line: sign * (line[1][main].value or 0.0)) + [
            line for line in lines if line[1][main].value is None
        ]
    headings = ["run", *fields]
    headings += ["seeds"] if any(len(group.runs) > 1 for group in of) else []
    headings += ["step"] if len(set(steps)) > 1 else []
    return Table(
        "Test results of the trained encoder"
        + ("" if main is None else f", the best by {columns[main]} first"),
        headings,
        columns,
        lines,
        _baselines(of, columns),
        better,
        main,
        sortable=len(lines) > 1,
        notes=_notes(of, rows, usual),
        kind="several",
    )


def _headings(
    group: Group,
    of: Sequence[Group],
    fields: Mapping[str, Sequence[str]],
    steps: Sequence[int | None],
    usual: int | None,
) -> list[str]:
    """Name, fields, number of seeds and step of a row."""
    place = next(i for i, other in enumerate(of) if other is group)
    names = [group.name, *(values[place] for values in fields.values())]
    if any(len(other.runs) > 1 for other in of):
        evaluated = sum(run.evaluation_step == group.step for run in group.runs if run.evaluation)
        whole = len(group.runs)
        names.append(str(whole) if evaluated == whole else f"{evaluated} of {whole}")
    if len(set(steps)) > 1:
        names.append("–" if group.step is None else f"{group.step:,}{'' if group.step == usual else ' †'}")
    return names


def _marked(found: Mapping[int | None, Row], runs: int, other: bool) -> Cell:
    cell = of_seeds(list(found.values()))
    below = f"{len(found)} of {runs} seeds" if 0 < len(found) < runs else ""
    text = f"{cell.text} ‡" if other else cell.text
    return Cell(text, cell.beside, below, cell.value)


def _notes(
    of: Sequence[Group], rows: Sequence[tuple[Sequence[str], Sequence[Cell]]], usual: int | None
) -> str:
    """What the intervals and marks are."""
    beside = [cell.beside for _, cells in rows for cell in cells]
    parts = []
    if any(text.startswith("[") for text in beside):
        parts.append("[ ] 95 % interval of the mean over seeds (Student's t)")
    if any(text.startswith("±") for text in beside):
        parts.append("± standard deviation of the draws of one run, which is no interval over seeds")
    parts.append("★ best of its column")
    if any(group.step != usual for group in of if group.step is not None):
        parts.append("† of another step than the others: not comparable")
    if any("‡" in cell.text for _, cells in rows for cell in cells):
        parts.append("‡ by another protocol: not comparable")
    return "; ".join(parts) + "."


def _baselines(of: Sequence[Group], columns: Sequence[str]) -> list[tuple[str, list[Cell]]]:
    """A row for each baseline that all groups share, else one for each of its values."""
    names = dict.fromkeys(row for g in of for run in g.runs for row in run.evaluation if row != _TRAINED)
    rows = []
    for name in names:
        kinds: dict[tuple[Cell, ...], list[str]] = {}
        for group in of:
            cells = tuple(of_seeds(list(group.results(name, column).values())) for column in columns)
            if any(cell != NONE for cell in cells):
                kinds.setdefault(cells, []).append(group.name)
        for cells, whose in kinds.items():
            label = name if len(kinds) == 1 else f"{name} of {', '.join(whose)}"
            rows.append((label, list(cells)))
    return rows


def singles(of: Sequence[Group], names: Mapping[int, str]) -> Table | None:
    """A row for each run, if there are seeds; names are by the `id` of a run."""
    if all(len(group.runs) == 1 for group in of):
        return None
    runs = [(seed, run) for group in of for seed, run in zip(group.seeds, group.runs)]
    columns = list(dict.fromkeys(c for _, run in runs for c in run.evaluation.get(_TRAINED, {})))
    rows = []
    for seed, run in runs:
        found, state = run.evaluation.get(_TRAINED, {}), _state.state_of(run)
        names_of = [
            names[id(run)],
            "–" if seed is None else str(seed),
            "–" if run.evaluation_step is None else f"{run.evaluation_step:,}",
            "" if state is None else state.short,
        ]
        rows.append((names_of, [of_seeds([found[c]] if c in found else []) for c in columns]))
    notes = "± is the standard deviation over the draws of a run."
    return Table("Each run", ["run", "seed", "step", "state"], columns, rows, sortable=True, notes=notes)


def gaps(of: Sequence[Group]) -> Table | None:
    """Differences to the first group, paired by seed; None where no group shares two seeds with it."""
    first = of[0]
    columns = list(dict.fromkeys(c for run in first.runs for c in run.evaluation.get(_TRAINED, {})))
    rows = []
    for group in of[1:]:
        cells, shared = [], 0
        for column in columns:
            here, there = group.results(_TRAINED, column), first.results(_TRAINED, column)
            seeds = [seed for seed in here if seed is not None and seed in there]
            protocols = {row.protocol for row in (*here.values(), *there.values())}
            comparable = len(protocols) == 1 and group.step == first.step and len(seeds) > 1
            paired = [(here[s].value or 0.0) - (there[s].value or 0.0) for s in seeds] if comparable else []
            shared = max(shared, len(paired))
            cells.append(of_values(paired, ".3f", "+"))
        if shared:
            rows.append(([group.name, str(shared)], cells))
    notes = "Mean of the differences of runs with the same seed, with [95 % interval, Student's t]."
    table = Table(f"Minus {first.name}, the first run given", ["run", "seeds"], columns, rows, notes=notes)
    return replace(table, sortable=len(rows) > 1, kind="several") if rows else None


def geometries(of: Sequence[Group]) -> list[Table]:
    """A table for each output of the network: the mean over views of each measure, by geometry.json or the log."""
    found = [[_geometry(run) for run in group.runs] for group in of]
    outputs = list(dict.fromkeys(output for runs in found for run in runs for output in run))
    tables = []
    for output in outputs:
        measures = list(
            dict.fromkeys(m for runs in found for run in runs for m in run.get(output, (0, "", {}))[2])
        )
        rows = []
        for group, runs in zip(of, found):
            there = [run[output] for run in runs if output in run]
            if not there:
                continue
            steps = " to ".join(f"{step:,}" for step in dict.fromkeys(sorted({s for s, _, _ in there})))
            source = ", ".join(dict.fromkeys(source for _, source, _ in there))
            cells = [of_values([values[m] for _, _, values in there if m in values], ".4g") for m in measures]
            rows.append(([group.name, steps, source], cells))
        caption = f"Geometry at the {output}, mean over views"
        table = Table(caption, ["run", "step", "by"], measures, rows, sortable=len(rows) > 1, kind="several")
        tables.append(table)
    return tables


def _geometry(run: Run) -> dict[str, tuple[int, str, dict[str, float]]]:
    """Output -> step, source and measures."""
    if run.geometry is not None:
        return {
            name: (
                run.geometry.step,
                "mvcl geometry",
                found.rows.get("mean", next(iter(found.rows.values()), {})),
            )
            for name, found in run.geometry.outputs.items()
        }
    logged: dict[str, tuple[int, str, dict[str, float]]] = {}
    for step, values in run.scalars.items():
        for output in ("encoder", "head"):
            measures = {
                measure: values[f"{output}_{key}"]
                for key, measure in _LOGGED.items()
                if np.isfinite(values.get(f"{output}_{key}", np.nan))
            }
            if measures:
                logged[output] = (step, "log", measures)
    return logged


def refreshes(of: Sequence[tuple[str, Run]]) -> list[tuple[str, list[str], Markup]]:
    """(title, names of the pairs of views, plot) of each run with refreshes, on a common scale."""
    found = []
    for name, run in of:
        for what, label in (("cosines", "cosine similarity"), ("weights", "weight")):
            looks = [(look.step, getattr(look, what)) for look in run.looks]
            looks = [(step, array) for step, array in looks if array is not None]
            if len(looks) > 1 and len({array.shape for _, array in looks}) == 1:
                found.append((name, run, label, looks))
                break
    plots = []
    for name, run, label, looks in found:
        k = len(looks[0][1])
        views = run.view_names if len(run.view_names) == k else [f"view {i + 1}" for i in range(k)]
        pairs = [(m, n) for m in range(k) for n in range(m + 1, k)][: _figures.COLORS]
        steps, arrays = np.array([step for step, _ in looks], float), np.array([a for _, a in looks], float)
        limits = _limits([array for _, _, other, of in found if other == label for _, array in of])
        alt = f"{label.capitalize()} of pairs of views of {name} over training steps"
        series = [(steps, arrays[:, m, n]) for m, n in pairs]
        plot = _figures.curves(series, [], label, alt, limits=limits)
        plots.append((f"{name}, {label}", [f"{views[m]}, {views[n]}" for m, n in pairs], plot))
    return plots


def _limits(arrays: Sequence[np.ndarray]) -> tuple[float, float] | None:
    """The least and largest value of two different views; None if one is not finite."""
    values = np.concatenate([array[np.triu_indices(len(array), 1)] for array in arrays]).astype(float)
    return (float(values.min()), float(values.max())) if len(values) and np.isfinite(values).all() else None


def _most(values: Sequence[_T]) -> _T | None:
    """The most frequent value, the first of several; None of none."""
    return Counter(values).most_common(1)[0][0] if values else None


def _usual(steps: Sequence[int]) -> int | None:
    """The step of most rows; None if no step has more than the others."""
    counts = Counter(steps).most_common(2)
    return counts[0][0] if len({count for _, count in counts}) == len(counts) > 0 else None
