"""The numbers of a study from the records of its cells, and its files: Markdown, CSV, JSON and a figure."""

import dataclasses
import json
import math
import shlex
from collections.abc import Sequence
from pathlib import Path
from textwrap import dedent
from typing import Any

import pandas as pd

from mvcl import _files, _progress, metrics
from mvcl.studies import _figures, _run
from mvcl.studies._claims import difference
from mvcl.studies._figures import heading
from mvcl.studies._grid import Baseline, Cell, Found, Measure, Opened, chosen, partner

_ROWS = ("untrained encoder", "raw input")
_COPIED = ("about", "unequal", "cost", "seeds", "columns", "along", "reference")
_NOT_ABOVE = (
    "≈: not better than the untrained encoder and the raw input (the paired 95% interval to the better of them reaches "
    "0), so this value cannot tell objectives apart."
)


def run_study(opened: Opened, folder: Path, options: _run.Options) -> tuple[Path, int]:
    """Run what is missing or has failed, and write the page; after an interruption too, of what there is.

    Returns the page, and the number of the runs asked for that failed or are missing. Raises as `run`, and
    `RuntimeError` if another process ended by a signal.
    """
    try:
        if options.slurm is not None or options.jobs > 1:
            _run.in_processes(opened, folder, options)
        else:
            _run.run(opened.study, folder, again=options.again, only=options.only)
    finally:
        with _progress.during("writing the page"):
            content = numbers(opened, folder)
            page = write(content, folder, opened.name)
            if options.write is not None:
                write(content, options.write, f"{opened.name}_{opened.scale}")
    asked = chosen(opened.study, options.only)
    states = [
        state for cell in content["cells"] if cell["name"] in asked for state in cell["status"].values()
    ]
    return page, states.count("failed") + states.count("missing")


def numbers(opened: Opened, folder: Path) -> dict[str, Any]:
    """All that a page says, of plain types, from the cells in a folder.

    Values are in the unit of the table: per cent for measures in per cent. Ends of an interval of one seed are None.
    """
    study = opened.study
    every = [(place, _run.look(place)) for place in _run.places(study, folder)]
    looks = [every[i : i + study.seeds] for i in range(0, len(every), study.seeds)]  # of each cell
    # seed -> values of each cell; networks that were trained side by side count as further seeds
    values = [
        {
            place.seed + study.seeds * network: {name: float(x) for name, x in row.items() if x is not None}
            for place, look in of_cell
            for network, row in enumerate(look.record.get("values", ()))
        }
        for of_cell in looks
    ]
    found = Found(study, values, [{place.seed: place.folder for place, _ in of_cell} for of_cell in looks])
    records, given = [look.record for _, look in every if look.record], opened.arguments
    words = [a for before, a in zip(("", *given), given) if "--only" not in (before, a.partition("=")[0])]
    versions = records[-1]["versions"] if records else ()
    baselines = {m.name: _baselines(found, m) for m in study.measures}
    return {
        "name": opened.name,
        "scale": opened.scale,
        "title": f"{study.title} (smoke: random data, no result)" if opened.scale == "smoke" else study.title,
        **{name: getattr(study, name) for name in _COPIED},
        **{name: list(getattr(study, name)) for name in ("against", "maps")},
        "noise": {name: f"{of.deviation:.2f} ({of.source})" for name, of in study.noise.items()},
        # where files lie is of no use to readers, and the page has all cells
        "command": shlex.join(["mvcl", "study", *(a.rpartition("/")[2] for a in words)]),
        "commit": ", ".join(sorted({record["commit"] for record in records})),
        "machine": "; ".join(sorted({record["machine"] for record in records})),
        "versions": {n: ", ".join(sorted({record["versions"][n] for record in records})) for n in versions},
        "date": max((record["date"] for record in records), default=""),
        "seconds": round(sum(record.get("seconds", 0.0) for record in records)),
        "factors": list(study.cells[0].factors),
        "measures": [dataclasses.asdict(m) | {"label": m.label or m.name} for m in study.measures],
        "cells": [
            _cell(found, cell, of_cell) | {"separates": {m: of[0][i] for m, of in baselines.items()}}
            for i, (cell, of_cell) in enumerate(zip(study.cells, looks))
        ],
        "printed_only": [{"factors": dict(cell.factors), **_printed(cell)} for cell in study.printed_only],
        "baselines": {
            row: means
            for row in _ROWS
            if (means := {m: of[1][row] for m, of in baselines.items() if row in of[1]})
        },
        "claims": [
            {"text": claim.text, "source": claim.source, "measure": claim.measure, "rule": claim.rule}
            | claim.judge(found)._asdict()
            for claim in (() if opened.scale == "smoke" else study.claims)  # random data decide nothing
        ],
    }


def _cell(found: Found, cell: Cell, looks: Sequence[tuple[_run.Place, _run.Look]]) -> dict[str, Any]:
    study = found.study
    of = {m.name: found.of(cell, m.name) for m in study.measures}
    other = None if study.reference is None else partner(study, cell, study.reference)
    gaps = {} if other is None or other is cell else {m: difference(found, cell, other, m) for m in of}
    seeds = dict.fromkeys(seed for values in of.values() for seed in values)
    return {
        "name": cell.name,
        "factors": dict(cell.factors),
        "instances": getattr(cell.task, "instances", None),
        "folder": f"cells/{looks[0][0].folder.parent.name}",
        **_printed(cell),
        "seeds": {str(s): {m: _rounded(values[s]) for m, values in of.items() if s in values} for s in seeds},
        "status": {str(place.seed): look.state for place, look in looks},
        "reasons": sorted({reason for _, look in looks for reason in look.reasons}),
        "intervals": {m: _plain(metrics.interval(values.values())) for m, values in of.items()},
        "differences": {m: {"to": other.name, **_plain(gap)} for m, gap in gaps.items() if other},
    }


def _printed(cell: Cell) -> dict[str, dict[str, float]]:
    return {"printed": dict(cell.printed), "deviations": dict(cell.deviations)}


def _baselines(found: Found, measure: Measure) -> tuple[list[bool | None], dict[str, float]]:
    """Of each cell whether training changed a measure, and row -> mean of the untrained encoder and the raw input.

    It has, if the paired interval to the better baseline is above 0 (below, where less is better); None without
    baselines. A cell whose runs do not measure the baselines has those of other cells, if all that measure them have
    the same raw input; else there are several data sets, and no one baseline.
    """
    names = {measure.name: "own", **{f"{row}: {measure.name}": row for row in _ROWS}}
    lines, tasks = [], [cell.task for cell in found.study.cells]
    for place, (task, of) in enumerate(zip(tasks, found.values)):
        for seed, values in of.items():
            line = {known: values[name] for name, known in names.items() if name in values}
            if isinstance(task, Baseline) and "own" in line:
                line = {task.row: line["own"]}
            lines.append({"cell": place, "seed": seed, **line})
    every = pd.DataFrame(lines, columns=["cell", "seed", "own", *_ROWS], dtype=float)
    raw, means = every["raw input"].dropna().tolist(), {}
    if not raw or max(raw) - min(raw) <= 1e-6 * max(map(abs, raw)):
        own = [place for place, task in enumerate(tasks) if isinstance(task, Baseline)]
        mean = (100.0 if measure.percent else 1.0) * every.loc[~every["cell"].isin(own), [*_ROWS]].mean()
        means = {row: _rounded(value) for row, value in mean.dropna().items()}
        of_seed = every.groupby("seed")[[*_ROWS]].transform("first")  # of the first cell that has it
        every = every.fillna(of_seed)
    sign = {"higher": 1, "lower": -1}.get(measure.better, math.nan)
    gaps = (sign * every[[*_ROWS]].rsub(every["own"], axis=0)).min(axis=1).dropna().groupby(every["cell"])
    above = {place: metrics.interval(of).low > 0 for place, of in gaps if len(of) > 1}
    return [above.get(place) for place in range(len(tasks))], means


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
        _figures.plot(content, beside)
    if content.get("maps") and any(cell["seeds"] for cell in content["cells"]):
        _figures.heat_map(content, folder / f"{stem}_maps.svg", content["maps"])
    _files.write_whole(folder / f"{stem}.md", page(content, f"{stem}.svg"))
    return folder / f"{stem}.md"


def rows(content: dict[str, Any]) -> str:
    """CSV of every seed: the factors, the seed, its state, the measures."""
    names = [measure["name"] for measure in content["measures"]]
    lines = [
        # a further network of a run has no state of its own
        [*cell["factors"].values(), seed, cell["status"].get(seed, "finished"), *map(of.get, names)]
        for cell in content["cells"]
        for seed in sorted({*cell["status"], *cell["seeds"]}, key=int)
        for of in [cell["seeds"].get(seed, {})]
    ]
    frame = pd.DataFrame(lines, columns=[*content["factors"], "seed", "state", *names], dtype=object)
    return frame.to_csv(index=False, lineterminator="\n")


def page(content: dict[str, Any], figure: str) -> str:
    """Markdown of all tables of the content that `numbers` returns; `figure` is the file of the figure."""
    done = any(cell["seeds"] for cell in content["cells"])
    about = content["about"].strip().split("\n\n")
    parts = [
        f"# {content['title']}",
        f"```sh\n{content['command']}\n```",
        # indented paragraphs, formulas, are blocks with a language
        *(f"```text\n{dedent(part)}\n```" if part.startswith("    ") else part for part in about),
        content.get("unequal", ""),
        _state(content),
        f"![{content['measures'][0]['label']} of each cell, with 95% intervals]({figure})" if done else "",
        f"![Means, a block for each {content['columns']}]({figure.removesuffix('.svg')}_maps.svg)"
        if done and content.get("maps")
        else "",
        "Mean and 95% interval over seeds (Student's t).",
        *_noise(content),
        *_tables(content),
        *_notes(content),
    ]
    if content["commit"] or content["machine"]:
        versions = ", ".join(f"{name} {version}" for name, version in content["versions"].items())
        commit = content["commit"] or "unknown"
        parts.append(f"Each run on {content['machine']}; commit {commit}; {content['date']}; {versions}.")
    return "\n\n".join(part for part in parts if part) + "\n"


def _noise(content: dict[str, Any]) -> list[str]:
    """What takes the place of an interval over seeds in the claims of a study of one seed."""
    noise = content.get("noise", {}) if content["seeds"] == 1 else {}
    known = "; ".join(f"{name} {text}" for name, text in noise.items())
    text = "Of one seed: the interval of a claim is that of the deviation of one run which the paper's table shows"
    return [f"{text}: {known}."] if known else []


def _state(content: dict[str, Any]) -> str:
    """What was run, in a paragraph."""
    states = [state for cell in content["cells"] for state in cell["status"].values()]
    text = f"Scale `{content['scale']}`: {len(content['cells'])} cells, seeds: {content['seeds']}."
    if states.count("missing") == len(states):
        return f"{text} **Not run.** Cost: {content['cost']}."
    ran = _progress.duration(content["seconds"])
    text += f" Cost: {content['cost']}; {ran} of run time here, summed over all runs."
    lacking = {
        "missing": "not run",
        "failed": "failed",
        "stale": "made by an older config or code († in the tables; `--again` runs them again)",
    }
    named = [f"{states.count(s)} of {len(states)} runs {what}" for s, what in lacking.items() if s in states]
    return f"{text} {'; '.join(named)}." if named else text


def _tables(content: dict[str, Any]) -> list[str]:
    """One table, its columns the measures; or one of each measure, its columns the levels of a factor."""
    column, cells = content["columns"], content["cells"]
    factors = [factor for factor in content["factors"] if factor != column]
    tables = []
    for measures in [content["measures"]] if column is None else [[m] for m in content["measures"]]:
        lines: dict[tuple[Any, ...], dict[str, str]] = {}
        for cell in [*cells, *content.get("printed_only", ())]:
            line = lines.setdefault(tuple(cell["factors"][factor] for factor in factors), {})
            for measure in measures:
                place = heading(measure) if column is None else f"{column} = {cell['factors'][column]}"
                line[place] = _value(cell, measure) if "intervals" in cell else ""
                if (printed := cell["printed"].get(measure["name"])) is None:
                    continue
                deviation = cell.get("deviations", {}).get(measure["name"])
                text = f"{printed}" if deviation is None else f"{printed} ± {deviation}"
                if column is None:
                    line[f"paper: {measure['label']}"] = text
                else:
                    line[place] = f"{line[place]} (paper {text})".strip()
        head = list(dict.fromkeys(heading for line in lines.values() for heading in line))
        head.sort(key=lambda heading: heading.startswith("paper: "))
        table = [[*rest, *(line.get(heading, "") for heading in head)] for rest, line in lines.items()]
        for row, known in content["baselines"].items():
            of = {heading(m): f"{known[m['name']]:.{m['digits']}f}" for m in measures if m["name"] in known}
            values = [*of.values()] * len(head) if column else [of.get(h, "") for h in head]
            if any(values) or column is None:
                table.append([row, *[""] * (len(factors) - 1), *values])
        text = _markdown([*factors, *head], table, len(factors))
        tables.append(text if column is None else f"**{heading(measures[0])}**\n\n{text}")
    return tables


def _value(cell: dict[str, Any], measure: dict[str, Any]) -> str:
    """A mean with its 95% interval and marks: "89.5 [89.1, 89.9] †"; of one seed the value."""
    of = cell["intervals"][measure["name"]]
    text = _interval(of, f".{measure['digits']}f") or ("not finite" if of["seeds"] else "not run")
    marks = "†" * ("stale" in cell["status"].values()) + "≈" * (cell["separates"][measure["name"]] is False)
    return f"{text} {marks}" if marks else text


def _interval(of: dict[str, Any], digits: str) -> str:
    """The mean, and the interval where it is known; empty without a mean."""
    mean, low, high = ("" if of[end] is None else f"{of[end]:{digits}}" for end in ("mean", "low", "high"))
    return f"{mean} [{low}, {high}]" if low else mean


def _notes(content: dict[str, Any]) -> list[str]:
    """What the marks mean, what failed, the differences and the claims."""
    cells = content["cells"]
    parts = [_NOT_ABOVE] if any(False in cell["separates"].values() for cell in cells) else []
    if content.get("printed_only"):
        parts.append("Rows with the paper's numbers alone are not run here.")
    if any(cell.get("deviations") for cell in cells):
        parts.append("±: the standard deviation over runs that the paper prints.")
    for state, what in (("failed", "Failed"), ("stale", "† Stale")):
        named = [cell for cell in cells if state in cell["status"].values()]
        parts += [f"{what}: {cell['name']}: {'; '.join(cell['reasons'][:3])}" for cell in named[:10]]
    labels = {measure["name"]: measure["label"] for measure in content["measures"]}
    digits = {measure["name"]: f"+.{max(2, measure['digits'])}f" for measure in content["measures"]}
    lines = []
    for cell in cells:
        for name, gap in cell["differences"].items():
            if value := _interval(gap, digits[name]):
                lines.append([cell["name"], labels[name], gap["to"], value, gap["seeds"]])
    if lines:
        head = ["cell", "measure", "minus", "difference", "seeds"]
        parts += ["## Paired differences", "By seed, with 95% intervals.", _markdown(head, lines, 3)]
    if claims := content["claims"]:
        lines = [
            [of["text"], of["source"], labels[of["measure"]], f"**{of['answer']}**", of["reason"]]
            for of in claims
        ]
        rules = "\n".join(f"- {rule}" for rule in dict.fromkeys(claim["rule"] for claim in claims))
        head = ["claim", "source", "measure", "here", "decided by"]
        parts += ["## Claims", _markdown(head, lines, 5), f"Rules:\n\n{rules}"]
    return parts


def _markdown(head: Sequence[str], lines: Sequence[Sequence[Any]], texts: int) -> str:
    """A table; the first columns are text and the others numbers."""
    rule = ["---" if column < texts else "---:" for column in range(len(head))]
    table = [[str(cell).replace("|", "\\|") for cell in line] for line in (head, rule, *lines)]
    return "\n".join(f"| {' | '.join(line)} |" for line in table)
