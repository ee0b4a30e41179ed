"""Tables of results: of one run, and of several, in which runs that differ in the seed alone are one row.

A table is a dict for the page's template: `headings` of the columns that name a row, `columns` of numbers, `rows` of
names and cells, `kind` ("first" if the first row stands out, none if a reader may sort), and maybe `baselines`,
`better` of each column, and the column that it is `sorted_by`. A cell has its `text`, and maybe the `value` by which it
is sorted, small type `beside` or `below` it, and the `shade` of its background in %.
"""

import json
import math
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from mvcl import evaluation, metrics, training
from mvcl.report import _figures
from mvcl.report._read import Run, kind

Table = dict[str, Any]
Cell = dict[str, Any]
# Name, places in the list of runs and seeds (None: the configuration does not tell) of runs of one configuration.
Group = tuple[str, list[int], list[int | None]]
Groups = Sequence[Group]
Names = Sequence[str]
NONE: Cell = {"text": "–"}
_TRAINED = "trained encoder"


def of_run(run: Run) -> Table:
    """The evaluation table of one run."""
    columns = run.evaluation["column"].unique()
    rows = [([row], _cells(results, columns)) for row, results in run.evaluation.groupby("row", sort=False)]
    at = "" if run.step is None else f" at step {run.step}"
    return {"caption": f"Measured{at}", "headings": [""], "columns": columns, "rows": rows, "kind": "first"}


def of_frame(caption: str, frame: pd.DataFrame, digits: str, shade: float = 0.0) -> Table:
    """A table of plain numbers; the background of a positive one is shaded by `shade` times it, in %."""

    def cell(x: float) -> Cell:
        return NONE if math.isnan(x) else {"text": f"{x:{digits}}", "value": x, "shade": shade * max(x, 0.0)}

    rows = [([name], list(map(cell, of))) for name, of in zip(frame.index, frame.to_numpy(float).tolist())]
    return {"caption": caption, "headings": [""], "columns": [*frame], "rows": rows, "kind": "plain"}


def of_values(values: Iterable[float], digits: str = ".3f") -> Cell:
    """The mean of the values of several seeds with its 95 % interval; of one value, or equal ones, the value."""
    values = list(values)
    if not values:
        return NONE
    mean, low, high, _ = metrics.interval(values)
    beside = f"[{low:{digits}}, {high:{digits}}]" if len(set(values)) > 1 else ""
    return {"text": f"{mean:{digits}}", "value": mean, "beside": beside}


def _cells(results: pd.DataFrame, columns: Names) -> list[Cell]:
    """The cells of the seeds of one config; of one seed, or equal ones, with the deviation over its draws."""
    cells = dict.fromkeys(columns, NONE)
    for column, of in results.groupby("column", sort=False):
        value, deviation = of[["value", "deviation"]].iloc[0]
        if len(of.drop_duplicates(["value", "deviation", "protocol", "better"])) > 1:
            cells[column] = of_values(of["value"])
        elif not np.isnan(value):
            beside = "" if np.isnan(deviation) else f"± {deviation:.3f}"
            cells[column] = {"text": f"{value:.3f}", "value": float(value), "beside": beside}
    return [cells[column] for column in columns]


def groups(runs: Sequence[Run], names: Names) -> list[Group]:
    """The runs by configuration; two of the same seed are not one group.

    A group has the name of its run, or of the folder of all its runs if no other group is in it, or their names.
    """
    lines = []
    for run, name in zip(runs, names):
        seed, fields = _fields(run)
        config = name if seed is None else json.dumps(fields, sort_keys=True)
        lines.append((config, seed, run.path.resolve().parent))
    frame = pd.DataFrame(lines, columns=["config", "seed", "folder"]).astype(object)
    frame["twin"] = frame.groupby(["config", "seed"], dropna=False).cumcount()
    found = [of for _, of in frame.groupby(["config", "twin"], sort=False)]
    firsts = Counter(of["folder"].iloc[0] for of in found)
    named: list[Group] = []
    for of in found:
        whose = [names[place] for place in of.index]
        name = ", ".join(whose) if len(whose) <= 3 else f"{whose[0]} to {whose[-1]} ({len(whose)} runs)"
        folders = set(of["folder"])
        if len(whose) > 1 and len(folders) == 1 and firsts[of["folder"].iloc[0]] == 1:
            name = folders.pop().name
        named.append((name, of.index.tolist(), of["seed"].tolist()))
    return named


def changed(runs: Sequence[Run], of: Groups) -> dict[str, list[str]]:
    """Field -> value of each group as text, of the fields in which the groups differ; – where a group has none."""
    configs = [_fields(runs[places[0]])[1] for _, places, _ in of]
    fields = {field: [config.get(field, ...) for config in configs] for all_of in configs for field in all_of}
    return {
        field: ["–" if value is ... else short(value) for value in values]
        for field, values in fields.items()
        if any(value != values[0] for value in values)
    }


def _fields(run: Run) -> tuple[int | None, dict[str, Any]]:
    """The seed of a run, and what the runs of a group have in common: other fields, and digests of the user's code."""
    fields, free = training.flatten(run.config) | training.digests(run.config), training.free("seeds")
    seed, rest = fields.get("train.seed"), {f: x for f, x in fields.items() if not f.startswith(free)}
    return seed if type(seed) is int else None, rest


def several(
    runs: Sequence[Run], names: Names, of: Groups, fields: Mapping[str, Names]
) -> dict[str, Table | None]:
    """`results` of the groups, `singles`, a row for each run, and `gaps`, differences to the first group.

    Of each group the results of its most frequent step, and of each measure those by its most frequent protocol;
    `fields` are shown beside them, name -> value of each group.
    """
    members = [(g, *member) for g, (_, *both) in enumerate(of) for member in zip(*both)]
    of_each = ([runs[p].step for p in places if len(runs[p].evaluation)] for _, places, _ in of)
    steps = [statistics.mode(found) if found else None for found in of_each]
    trained = [runs[p].evaluation[runs[p].evaluation["row"] == _TRAINED] for _, p, _ in members]
    columns = pd.concat(trained)["column"].unique().tolist()
    every = pd.concat(
        runs[p].evaluation.assign(group=g, place=p, seed=s).astype({"seed": object})
        for g, p, s in members
        if runs[p].step == steps[g]
    )
    found = every.dropna(subset="value")
    usual = found.groupby(["group", "row", "column"])["protocol"].transform(statistics.mode)
    found = found[found["protocol"] == usual]
    singles = []
    for (_, place, seed), part in zip(members, trained):
        step = runs[place].step
        named = [names[place], "–" if seed is None else str(seed), "–" if step is None else f"{step:,}"]
        singles.append((named, _cells(part, columns)))
    notes = "± is the standard deviation over the draws of a run."
    alone: Table = {"caption": "Each run", "headings": ["run", "seed", "step"], "notes": notes}
    alone |= {"columns": columns, "rows": singles}
    return {
        "results": _results(found, columns, of, steps, fields, every) if columns else None,
        "singles": alone if len(members) > len(of) else None,
        "gaps": _gaps(found[found["row"] == _TRAINED], columns, of, steps),
    }


def _results(
    found: pd.DataFrame,
    columns: Names,
    of: Groups,
    steps: Sequence[int | None],
    fields: Mapping[str, Names],
    every: pd.DataFrame,
) -> Table:
    """The results of the trained encoder, the best first, and the baselines."""
    trained = found[found["row"] == _TRAINED]
    counts = Counter(step for step in steps if step is not None).most_common(2)
    usual = counts[0][0] if len({count for _, count in counts}) == len(counts) > 0 else None
    cells = [_cells(trained[trained["group"] == g], columns) for g in range(len(of))]
    better = [""] * len(columns)
    for column, name in enumerate(columns):
        here, may = trained[trained["column"] == name], []  # which have a comparable number
        for g, part in here.groupby("group"):
            cell, whole = cells[g][column], len(of[g][1])
            if part["protocol"].iloc[0] != statistics.mode(here["protocol"]):
                cell["text"] += " ‡"
            elif steps[g] == usual:
                may.append(cell)
            if len(part) < whole:
                cell["below"] = f"{len(part)} of {whole} seeds"
        better[column] = here["better"].iloc[0] if len(here) else ""
        if better[column] and len(may) > 1:
            best = (max if better[column] == "higher" else min)(cell["value"] for cell in may)
            for cell in may:
                cell["best"] = cell["value"] == best
    rows = [([name, *(values[g] for values in fields.values())], cells[g]) for g, (name, *_) in enumerate(of)]
    headings = ["run", *fields]
    if any(len(places) > 1 for _, places, _ in of):
        headings.append("seeds")
        for g, (names, _) in enumerate(rows):
            whole, there = len(of[g][1]), every["place"][every["group"] == g].nunique()
            names.append(str(whole) if there == whole else f"{there} of {whole}")
    if len(set(steps)) > 1:
        headings.append("step")
        for step, (names, _) in zip(steps, rows):
            names.append("–" if step is None else f"{step:,}{'' if step == usual else ' †'}")
    main = next((i for i, way in enumerate(better) if way), None)
    caption = "Test results of the trained encoder"
    if main is not None:
        caption += f", the best by {columns[main]} first"
        sign = -1.0 if better[main] == "higher" else 1.0
        order = np.argsort(sign * np.array([row[main].get("value") for row in cells], float), kind="stable")
        rows = [rows[i] for i in order]  # NaN is last
    return {
        "caption": caption,
        "headings": headings,
        "columns": columns,
        "rows": rows,
        "baselines": _baselines(found[found["row"] != _TRAINED], columns, of),
        "better": better,
        "sorted_by": main,
        "notes": _notes([cell for row in cells for cell in row], bool({*steps} - {usual, None})),
    }


def _baselines(found: pd.DataFrame, columns: Names, of: Groups) -> list[tuple[list[str], list[Cell]]]:
    """A row for each baseline that all groups share, else one for each of its values."""
    rows = []
    for name, results in found.groupby("row", sort=False):
        kinds: dict[str, tuple[list[Cell], list[str]]] = {}
        for g, part in results.groupby("group", sort=False):
            cells = _cells(part, columns)
            kinds.setdefault(str(cells), (cells, []))[1].append(of[g][0])
        for cells, whose in kinds.values():
            rows.append(([name if len(kinds) == 1 else f"{name} of {', '.join(whose)}"], cells))
    return rows


def _notes(cells: Sequence[Cell], other_steps: bool) -> str:
    """What the intervals and marks are."""
    beside = {cell.get("beside", "")[:1] for cell in cells}
    notes = {
        "[ ] 95 % interval of the mean over seeds (Student's t)": "[" in beside,
        "± standard deviation of the draws of one run, which is no interval over seeds": "±" in beside,
        "★ best of its column": True,
        "† of another step than the others: not comparable": other_steps,
        "‡ by another protocol: not comparable": any("‡" in cell["text"] for cell in cells),
    }
    return "; ".join(note for note, holds in notes.items() if holds) + "."


def _gaps(trained: pd.DataFrame, columns: Names, of: Groups, steps: Sequence[int | None]) -> Table | None:
    """Differences to the first group, paired by seed; None where no group shares two seeds with it."""
    known, rows = trained.dropna(subset="seed"), []
    for g, (name, *_) in enumerate(of[1:], 1):
        pairs = known[known["group"] == g].merge(known[known["group"] == 0], on=["column", "seed"])
        cells, shared = [], 0
        for column in columns:
            both = pairs[pairs["column"] == column]
            same = steps[g] == steps[0] and both["protocol_x"].equals(both["protocol_y"])
            gaps = both["value_x"] - both["value_y"] if same and len(both) > 1 else ()
            shared = max(shared, len(gaps))
            cells.append(of_values(gaps, "+.3f"))
        if shared:
            rows.append(([name, str(shared)], cells))
    notes = "Mean of the differences of runs with the same seed, with [95 % interval, Student's t]."
    named = {"caption": f"Minus {of[0][0]}, the first run given", "headings": ["run", "seeds"]}
    return named | {"notes": notes, "columns": columns, "rows": rows} if rows else None


def geometries(runs: Sequence[Run], of: Groups) -> list[Table]:
    """A table for each output of the network: the mean over views of each measure, by geometry.json or the log."""
    lines = [
        {"output": output, "group": g, "step": step, "source": source, **values}
        for g, (_, places, _) in enumerate(of)
        for place in places
        for output, (step, source, values) in _geometry(runs[place]).items()
    ]
    tables = []
    for output, part in pd.DataFrame(lines).groupby("output", sort=False) if lines else ():
        measures, rows = part.iloc[:, 4:].dropna(axis=1, how="all"), []
        for g, results in part.groupby("group"):
            steps = " to ".join(f"{step:,}" for step in sorted({*results["step"]}))
            named = [of[g][0], steps, ", ".join(results["source"].unique())]
            rows.append((named, [of_values(results[measure].dropna(), ".4g") for measure in measures]))
        caption = f"Geometry at the {output}, mean over views"
        headings = ["run", "step", "by"]
        tables.append({"caption": caption, "headings": headings, "columns": [*measures], "rows": rows})
    return tables


def _geometry(run: Run) -> dict[str, tuple[int, str, dict[str, float]]]:
    """Output -> step, source and measures."""
    if run.geometry is not None:
        found = {name: of["rows"] for name, of in run.geometry["outputs"].items()}
        means = {name: rows.get("mean", next(iter(rows.values()), {})) for name, rows in found.items()}
        return {name: (run.geometry["step"], "mvcl geometry", mean) for name, mean in means.items()}
    logged = {}
    for output in ("encoder", "head"):
        of = {m: _figures.series(run.log, f"{output}_{key}").dropna() for key, m in evaluation.LOGGED.items()}
        step = max((int(series.index[-1]) for series in of.values() if len(series)), default=None)
        if step is not None:
            logged[output] = (step, "log", {m: float(s[step]) for m, s in of.items() if step in s.index})
    return logged


def short(value: object) -> str:
    """A value on one line: class name for objects, long values truncated."""
    if isinstance(value, Mapping):
        return kind(value) or "{…}"
    if isinstance(value, list):
        return "[" + ", ".join(short(item) for item in value[:8]) + (", …]" if len(value) > 8 else "]")
    text = value if isinstance(value, str) else json.dumps(value)
    text = text.rpartition(".")[2] if text.startswith("mvcl.") else text
    return text if len(text) <= 60 else text[:59] + "…"
