"""The numbers of a study from the records of its cells, and its files: Markdown, CSV, JSON and a figure."""

import csv
import dataclasses
import io
import json
import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import dedent
from typing import Any

from mvcl import _files, metrics
from mvcl._progress import duration
from mvcl.studies import _run
from mvcl.studies._claims import difference
from mvcl.studies._grid import Baseline, Cell, Found, Measure, Opened, Values, partner

_ROWS = ("untrained encoder", "raw input")
_COLOURS = ("#0072b2", "#d55e00", "#00805c", "#cc79a7", "#7a5195", "#8a6d00", "#4d4d4d", "#56b4e9")
_MARKERS = "osD^vP*X"
_NOT_ABOVE = (
    "≈: not better than the untrained encoder and the raw input (the paired 95% interval to the better of them reaches "
    "0), so this value cannot tell objectives apart."
)


def numbers(opened: Opened, folder: Path) -> dict[str, Any]:
    """All that a page says, of plain types, from the cells in a folder.

    Values are in the unit of the table: per cent for measures in per cent. Ends of an interval of one seed are None.
    """
    study = opened.study
    looks: dict[int, dict[_run.Place, _run.Look]] = {id(cell): {} for cell in study.cells}
    for place in _run.places(study, folder):
        looks[id(place.cell)][place] = _run.look(place)
    found = Found(study, [_by_network(of_cell, study.seeds) for of_cell in looks.values()])
    records = [look.record for of_cell in looks.values() for look in of_cell.values() if look.record]
    versions = records[-1]["versions"] if records else ()
    return {
        "name": opened.name,
        "scale": opened.scale,
        "title": study.title,
        "about": study.about,
        # where files lie is of no use to readers
        "command": " ".join(["mvcl study", *(a.rpartition("/")[2] for a in opened.arguments)]),
        "commit": ", ".join(sorted({record["commit"] for record in records})),
        "machine": "; ".join(sorted({record["machine"] for record in records})),
        "versions": {n: ", ".join(sorted({record["versions"][n] for record in records})) for n in versions},
        "date": max((record["date"] for record in records), default=""),
        "cost": study.cost,
        "seconds": round(sum(record.get("seconds", 0.0) for record in records)),
        "seeds": study.seeds,
        "factors": list(study.cells[0].factors),
        "columns": study.columns,
        "along": study.along,
        "reference": study.reference,
        "measures": [dataclasses.asdict(m) | {"label": m.label or m.name} for m in study.measures],
        "cells": [_cell(found, cell, looks[id(cell)]) for cell in study.cells],
        "baselines": _baselines(found),
        "claims": [
            {"text": claim.text, "source": claim.source, "measure": claim.measure, "rule": claim.rule}
            | claim.judge(found)._asdict()
            for claim in study.claims
        ],
    }


def _by_network(looks: Mapping[_run.Place, _run.Look], seeds: int) -> dict[int, Values]:
    """Seed -> values; the networks of a seed that were trained side by side count as further seeds."""
    return {
        place.seed + seeds * network: {name: float(value) for name, value in row.items() if value is not None}
        for place, look in looks.items()
        for network, row in enumerate(look.record.get("values", ()))
    }


def _cell(found: Found, cell: Cell, looks: Mapping[_run.Place, _run.Look]) -> dict[str, Any]:
    study = found.study
    of = {m.name: found.of(cell, m.name) for m in study.measures}
    other = None if study.reference is None else partner(study, cell, study.reference)
    gaps = {} if other is None or other is cell else {m: difference(found, cell, other, m) for m in of}
    seeds = dict.fromkeys(seed for values in of.values() for seed in values)
    return {
        "name": cell.name,
        "factors": dict(cell.factors),
        "folder": f"cells/{next(iter(looks)).folder.parent.name}",
        "printed": dict(cell.printed),
        "seeds": {str(s): {m: _rounded(values[s]) for m, values in of.items() if s in values} for s in seeds},
        "status": {str(place.seed): look.state for place, look in looks.items()},
        "reasons": sorted({reason for look in looks.values() for reason in look.reasons}),
        "intervals": {m: _plain(metrics.interval(values.values())) for m, values in of.items()},
        "differences": {m: {"to": other.name, **_plain(gap)} for m, gap in gaps.items() if other},
        "separates": {m.name: _separates(found, cell, m) for m in study.measures},
    }


def _separates(found: Found, cell: Cell, measure: Measure) -> bool | None:
    """Whether training changed a measure: the paired interval to the best baseline is above 0; None without baselines.

    Where less is better, it is below 0. A cell whose runs do not measure the baselines has those of other cells, if all
    that measure them have the same raw input.
    """
    sign = {"higher": 1, "lower": -1}.get(measure.better)
    if sign is None or isinstance(cell.task, Baseline):
        return None
    own = found.values[found.study.cells.index(cell)]
    rows = (own, *_with_baselines(found)) if _one_baseline(found, measure) else (own,)
    gaps = []
    for seed, values in own.items():
        of_seed = [[r[seed][name] for r in rows if name in r.get(seed, ())] for name in _names(measure)]
        if measure.name in values and any(of_seed):
            gaps.append(min(sign * (values[measure.name] - known[0]) for known in of_seed if known))
    return metrics.interval(gaps).low > 0 if len(gaps) > 1 else None


def _baselines(found: Found) -> dict[str, dict[str, float]]:
    """Row -> measure -> mean over cells and seeds of the untrained encoder and the raw input.

    Without the measures whose raw input differs between cells: they have several data sets, and no one baseline.
    """
    table: dict[str, dict[str, float]] = {}
    for measure in found.study.measures:
        for row, name in zip(_ROWS, _names(measure)):
            values = _measured(found.values, name)
            if values and _one_baseline(found, measure):
                mean = _rounded((100.0 if measure.percent else 1.0) * statistics.fmean(values))
                table.setdefault(row, {})[measure.name] = mean
    return {row: table[row] for row in _ROWS if row in table}


def _names(measure: Measure) -> list[str]:
    """Of a measure's baselines, among the values of a run."""
    return [f"{row}: {measure.name}" for row in _ROWS]


def _one_baseline(found: Found, measure: Measure) -> bool:
    """Whether the raw input has the same value in all runs that measure it."""
    raw = _measured(_with_baselines(found), _names(measure)[1])
    return not raw or max(raw) - min(raw) <= 1e-6 * max(map(abs, raw))


def _with_baselines(found: Found) -> list[Mapping[int, Values]]:
    """Of each cell, seed -> values; those of a cell that is a baseline under the name of the baseline."""
    return [
        {s: {f"{cell.task.row}: {name}": x for name, x in row.items()} for s, row in values.items()}
        if isinstance(cell.task, Baseline)
        else values
        for cell, values in zip(found.study.cells, found.values)
    ]


def _measured(rows: Sequence[Mapping[int, Values]], name: str) -> list[float]:
    return [row[name] for cell in rows for row in cell.values() if name in row]


def _plain(of: metrics.Interval) -> dict[str, float | int | None]:
    ends = (_rounded(end) if math.isfinite(end) else None for end in of[:3])
    return {**dict(zip(("mean", "low", "high"), ends)), "seeds": of.seeds}


def _rounded(value: float) -> float:
    return float(f"{value:.6g}")  # more than the spread over seeds justifies


def write(content: dict[str, Any], folder: Path, stem: str) -> Path:
    """Write STEM.json, STEM.csv, STEM.svg and STEM.md of the content from `numbers`; returns the path of the page."""
    folder.mkdir(parents=True, exist_ok=True)
    # JSON with a line for each cell: small, and readable as a difference of two versions.
    cells = ",\n".join(json.dumps(cell, separators=(",", ":")) for cell in content["cells"])
    rest = json.dumps({name: value for name, value in content.items() if name != "cells"}, indent=1)
    text = f'{rest.removesuffix("}").rstrip()},\n "cells": [\n{cells}\n]}}\n'
    _files.write_whole(folder / f"{stem}.json", text)
    _files.write_whole(folder / f"{stem}.csv", rows(content))
    with _files.replacing(folder / f"{stem}.svg") as beside:
        plot(content, beside)
    _files.write_whole(folder / f"{stem}.md", page(content, f"{stem}.svg"))
    return folder / f"{stem}.md"


def rows(content: dict[str, Any]) -> str:
    """CSV of every seed: the factors, the seed, its state, the measures."""
    out = io.StringIO()
    table = csv.writer(out, lineterminator="\n")
    names = [measure["name"] for measure in content["measures"]]
    table.writerow([*content["factors"], "seed", "state", *names])
    for cell in content["cells"]:
        for seed in sorted({*cell["status"], *cell["seeds"]}, key=int):
            state = cell["status"].get(seed, "finished")  # a further network of a run
            values = [cell["seeds"].get(seed, {}).get(name, "") for name in names]
            table.writerow([*cell["factors"].values(), seed, state, *values])
    return out.getvalue()


def page(content: dict[str, Any], figure: str) -> str:
    """Markdown of all tables of the content that `numbers` returns; `figure` is the file of the figure."""
    done = any(cell["seeds"] for cell in content["cells"])
    about = content["about"].strip().split("\n\n")
    parts = [
        f"# {content['title']}",
        f"```sh\n{content['command']}\n```",
        # indented paragraphs, formulas, are blocks with a language
        *(f"```text\n{dedent(part)}\n```" if part.startswith("    ") else part for part in about),
        _state(content),
        f"![{content['measures'][0]['label']} of each cell, with 95% intervals]({figure})" if done else "",
        "Mean and 95% interval over seeds (Student's t).",
        *(
            [_table_of_measures(content)]
            if content["columns"] is None
            else [_table_of_levels(content, measure) for measure in content["measures"]]
        ),
        *_notes(content),
        *_differences(content),
        *_claims(content),
    ]
    if content["commit"] or content["machine"]:
        versions = ", ".join(f"{name} {version}" for name, version in content["versions"].items())
        commit = content["commit"] or "unknown"
        parts.append(f"Each run on {content['machine']}; commit {commit}; {content['date']}; {versions}.")
    return "\n\n".join(part for part in parts if part) + "\n"


def _state(content: dict[str, Any]) -> str:
    """What was run, in a paragraph."""
    states = [state for cell in content["cells"] for state in cell["status"].values()]
    text = f"Scale `{content['scale']}`: {len(content['cells'])} cells, seeds: {content['seeds']}."
    if states.count("missing") == len(states):
        return f"{text} **Not run.** Cost: {content['cost']}."
    ran = duration(content["seconds"])
    text += f" Cost: {content['cost']}; {ran} of run time here, summed over all runs."
    lacking = {
        "missing": "not run",
        "failed": "failed",
        "stale": "made by an older config or code († in the tables; `--again` runs them again)",
    }
    named = [f"{states.count(s)} of {len(states)} runs {what}" for s, what in lacking.items() if s in states]
    return f"{text} {'; '.join(named)}." if named else text


def _table_of_measures(content: dict[str, Any]) -> str:
    factors, measures = content["factors"], content["measures"]
    printed = [m for m in measures if any(m["name"] in cell["printed"] for cell in content["cells"])]
    head = [*factors, *map(_heading, measures), *(f"paper: {m['label']}" for m in printed)]
    lines = []
    for cell in content["cells"]:
        values = [_value(cell, m) for m in measures]
        lines.append(
            [*cell["factors"].values(), *values, *(cell["printed"].get(m["name"], "") for m in printed)]
        )
    for row, known in content["baselines"].items():
        values = [_fixed(known.get(m["name"]), m) for m in measures]
        lines.append([row, *[""] * (len(factors) - 1), *values, *[""] * len(printed)])
    return _markdown(head, lines, len(factors))


def _table_of_levels(content: dict[str, Any], measure: dict[str, Any]) -> str:
    """A table of one measure, its columns the levels of a factor."""
    column, name = content["columns"], measure["name"]
    levels = list(dict.fromkeys(cell["factors"][column] for cell in content["cells"]))
    factors = [factor for factor in content["factors"] if factor != column]
    lines: dict[tuple[Any, ...], dict[Any, str]] = {}
    for cell in content["cells"]:
        paper = f" (paper {cell['printed'][name]})" if name in cell["printed"] else ""
        rest = tuple(cell["factors"][factor] for factor in factors)
        lines.setdefault(rest, {})[cell["factors"][column]] = _value(cell, measure) + paper
    cells = [[*rest, *(line.get(level, "") for level in levels)] for rest, line in lines.items()]
    for row, known in content["baselines"].items():
        if name in known:
            cells.append([row, *[""] * (len(factors) - 1), *[_fixed(known[name], measure)] * len(levels)])
    head = [*factors, *(f"{column} = {level}" for level in levels)]
    return f"**{_heading(measure)}**\n\n{_markdown(head, cells, len(factors))}"


def _fixed(value: float | None, measure: dict[str, Any]) -> str:
    return "" if value is None else f"{value:.{measure['digits']}f}"


def _value(cell: dict[str, Any], measure: dict[str, Any]) -> str:
    """A mean with its 95% interval and marks: "89.5 [89.1, 89.9] †"; of one seed the value."""
    of = cell["intervals"][measure["name"]]
    mean, low, high = (_fixed(of[end], measure) for end in ("mean", "low", "high"))
    text = mean + f" [{low}, {high}]" * bool(low) if mean else "not finite" if of["seeds"] else "not run"
    marks = "†" * ("stale" in cell["status"].values()) + "≈" * (cell["separates"][measure["name"]] is False)
    return f"{text} {marks}" if marks else text


def _heading(measure: dict[str, Any]) -> str:
    return f"{measure['label']}, %" if measure["percent"] else str(measure["label"])


def _notes(content: dict[str, Any]) -> list[str]:
    """What the marks mean, and what failed."""
    cells = content["cells"]
    notes = [_NOT_ABOVE] if any(False in cell["separates"].values() for cell in cells) else []
    for state, what in (("failed", "Failed"), ("stale", "† Stale")):
        named = [cell for cell in cells if state in cell["status"].values()]
        notes += [f"{what}: {cell['name']}: {'; '.join(cell['reasons'][:3])}" for cell in named[:10]]
    return notes


def _differences(content: dict[str, Any]) -> list[str]:
    lines = []
    for cell in content["cells"]:
        for measure in content["measures"]:
            gap = cell["differences"].get(measure["name"], {"mean": None})
            if gap["mean"] is not None:
                ends = "" if gap["low"] is None else f" [{gap['low']:+.2f}, {gap['high']:+.2f}]"
                value = f"{gap['mean']:+.2f}{ends}"
                lines.append([cell["name"], measure["label"], gap["to"], value, gap["seeds"]])
    if not lines:
        return []
    head = ["cell", "measure", "minus", "difference", "seeds"]
    return ["## Paired differences", "By seed, with 95% intervals.", _markdown(head, lines, 3)]


def _claims(content: dict[str, Any]) -> list[str]:
    if not (claims := content["claims"]):
        return []
    labels = {m["name"]: m["label"] for m in content["measures"]}
    lines = [
        [of["text"], of["source"], labels[of["measure"]], f"**{of['answer']}**", of["reason"]]
        for of in claims
    ]
    rules = "\n".join(f"- {rule}" for rule in dict.fromkeys(claim["rule"] for claim in claims))
    head = ["claim", "source", "measure", "here", "decided by"]
    return ["## Claims", _markdown(head, lines, 5), f"Rules:\n\n{rules}"]


def _markdown(head: Sequence[str], lines: Sequence[Sequence[Any]], texts: int) -> str:
    """A table; the first columns are text and the others numbers."""
    rule = ["---" if column < texts else "---:" for column in range(len(head))]
    table = [[str(cell).replace("|", "\\|") for cell in line] for line in (head, rule, *lines)]
    return "\n".join(f"| {' | '.join(line)} |" for line in table)


def plot(content: dict[str, Any], file: Path) -> None:
    """The first measure with its 95% intervals: against a factor of numbers, or a line for each cell."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    along, measure = content["along"], content["measures"][0]
    size = (7, 4) if along else (7, 0.28 * len(content["cells"]) + 1.0)
    known = [(row, of[measure["name"]]) for row, of in content["baselines"].items() if measure["name"] in of]
    with rc_context({"svg.hashsalt": "mvcl", "svg.fonttype": "none", "font.size": 9}):
        figure = Figure(figsize=size, layout="constrained")
        axes = figure.subplots()
        (_plot_along if along else _plot_cells)(axes, content, measure["name"])
        for (row, value), style in zip(known, (":", "--")):
            (axes.axhline if along else axes.axvline)(value, color="#777777", ls=style, lw=1, label=row)
        (axes.set_ylabel if along else axes.set_xlabel)(_heading(measure))
        axes.grid(axis="both" if along else "x", alpha=0.3)
        if along and len(axes.get_legend_handles_labels()[0]) > 0:
            axes.legend(fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5))
        elif known:
            axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncol=2, fontsize=8)
        figure.savefig(file, format="svg", metadata={"Date": None})


def _plot_cells(axes: Any, content: dict[str, Any], measure: str) -> None:
    cells = content["cells"]
    for place, cell in enumerate(cells):
        of = cell["intervals"][measure]
        if of["mean"] is not None:
            axes.errorbar(
                [of["mean"]], [place], xerr=_bars([of]), fmt="o", ms=4, capsize=2, color=_COLOURS[0]
            )
        if content["scale"] == "paper" and measure in cell["printed"]:
            axes.plot([cell["printed"][measure]], [place], "x", color=_COLOURS[1])
    axes.set_yticks(range(len(cells)), [", ".join(map(str, cell["factors"].values())) for cell in cells])
    axes.set_ylim(len(cells) - 0.5, -0.5)


def _plot_along(axes: Any, content: dict[str, Any], measure: str) -> None:
    along = content["along"]
    lines: dict[str, list[tuple[Any, dict[str, Any]]]] = {}
    for cell in content["cells"]:
        rest = ", ".join(str(level) for name, level in cell["factors"].items() if name != along)
        lines.setdefault(rest, []).append((cell["factors"][along], cell["intervals"][measure]))
    for number, (name, points) in enumerate(lines.items()):
        points = sorted(
            (point for point in points if point[1]["mean"] is not None), key=lambda point: point[0]
        )
        x, of = [level for level, _ in points], [interval for _, interval in points]
        style = {"color": _COLOURS[number % len(_COLOURS)], "marker": _MARKERS[number % len(_MARKERS)]}
        y = [interval["mean"] for interval in of]
        axes.errorbar(x, y, yerr=_bars(of), ms=4, capsize=2, lw=1.3, label=name or None, **style)
    levels = sorted({cell["factors"][along] for cell in content["cells"]})
    if len(levels) <= 10 and max(levels) <= 16 * min(levels):
        axes.set_xticks(levels, [f"{level:g}" for level in levels])
    axes.set_xlabel(along)


def _bars(intervals: Sequence[dict[str, Any]]) -> list[list[float]]:
    """Lengths below and above the means; none of one seed."""
    known = [
        (0, 0) if of["low"] is None else (of["mean"] - of["low"], of["high"] - of["mean"]) for of in intervals
    ]
    return [[bar[end] for bar in known] for end in (0, 1)]
