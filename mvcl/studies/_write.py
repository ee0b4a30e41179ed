"""The files of a study from its numbers: Markdown, CSV, JSON and a figure."""

import csv
import io
import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from textwrap import dedent
from typing import Any

from mvcl import _files
from mvcl._progress import duration

_COLOURS = ("#0072b2", "#d55e00", "#00805c", "#cc79a7", "#7a5195", "#8a6d00", "#4d4d4d", "#56b4e9")
_MARKERS = "osD^vP*X"


def write(content: dict[str, Any], folder: Path, stem: str) -> Path:
    """Write STEM.json, STEM.csv, STEM.svg and STEM.md.

    Args:
      content: from `numbers`.
      folder: of the files.
      stem: their name without the ending.

    Returns:
      The path of the page.
    """
    folder.mkdir(parents=True, exist_ok=True)
    _files.write_whole(folder / f"{stem}.json", _json(content))
    _files.write_whole(folder / f"{stem}.csv", rows(content))
    with _files.replacing(folder / f"{stem}.svg") as beside:
        plot(content, beside)
    file = folder / f"{stem}.md"
    _files.write_whole(file, page(content, f"{stem}.svg"))
    return file


def _json(content: dict[str, Any]) -> str:
    """The numbers as JSON, a line for each cell: small, and readable as a difference of two versions."""
    cells = ",\n".join(json.dumps(cell, separators=(",", ":")) for cell in content["cells"])
    rest = json.dumps({name: value for name, value in content.items() if name != "cells"}, indent=1)
    return f'{rest.removesuffix("}").rstrip()},\n "cells": [\n{cells}\n]}}\n'


def rows(content: dict[str, Any]) -> str:
    """CSV of every seed: the factors, the seed, its state, the measures."""
    out = io.StringIO()
    table = csv.writer(out, lineterminator="\n")
    names = [measure["name"] for measure in content["measures"]]
    table.writerow([*content["factors"], "seed", "state", *names])
    for cell in content["cells"]:
        for seed in sorted({*cell["status"], *cell["seeds"]}, key=int):
            values = cell["seeds"].get(seed, {})
            state = cell["status"].get(seed, "finished")  # a further network of a run
            table.writerow(
                [*cell["factors"].values(), seed, state, *(values.get(name, "") for name in names)]
            )
    return out.getvalue()


def page(content: dict[str, Any], figure: str) -> str:
    """Markdown of all tables.

    Args:
      content: from `numbers`.
      figure: file of the figure.
    """
    done = any(cell["seeds"] for cell in content["cells"])
    measure = content["measures"][0]["label"]
    parts = [
        f"# {content['title']}",
        f"```sh\n{content['command']}\n```",
        _fenced(content["about"].strip()),
        _state(content),
        *([f"![{measure} of each cell, with 95% intervals]({figure})"] if done else []),
        *_tables(content),
        *_notes(content),
        *_differences(content),
        *_claims(content),
        _provenance(content),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def shown(of: dict[str, Any], digits: int) -> str:
    """A mean with its 95% interval: "89.5 [89.1, 89.9]"; of one seed the value."""
    if not of["seeds"]:
        return "not run"
    if of["mean"] is None:
        return "not finite"
    if of["low"] is None:
        return f"{of['mean']:.{digits}f}"
    return f"{of['mean']:.{digits}f} [{of['low']:.{digits}f}, {of['high']:.{digits}f}]"


def _fenced(text: str) -> str:
    """A text whose indented paragraphs, formulas, are blocks with a language."""
    return "\n\n".join(
        f"```text\n{dedent(part)}\n```" if part.startswith("    ") else part for part in text.split("\n\n")
    )


def _state(content: dict[str, Any]) -> str:
    """What was run, in a paragraph."""
    states = [state for cell in content["cells"] for state in cell["status"].values()]
    count = {name: states.count(name) for name in ("finished", "stale", "failed", "missing")}
    text = f"Scale `{content['scale']}`: {len(content['cells'])} cells, seeds: {content['seeds']}."
    if count["missing"] == len(states):
        return f"{text} **Not run.** Cost: {content['cost']}."
    text += (
        f" Cost: {content['cost']}; {duration(content['seconds'])} of run time here, summed over all runs."
    )
    lacking = {
        "missing": "not run",
        "failed": "failed",
        "stale": "made by an older config or code († in the tables; `--again` runs them again)",
    }
    named = [
        f"{count[state]} of {len(states)} runs {what}" for state, what in lacking.items() if count[state]
    ]
    return f"{text} {'; '.join(named)}." if named else text


def _tables(content: dict[str, Any]) -> list[str]:
    """One table of all measures, or with a factor as columns one for each measure."""
    unit = "Mean and 95% interval over seeds (Student's t)."
    if content["columns"] is None:
        return [unit, _table_of_measures(content)]
    return [unit, *(_table_of_levels(content, measure) for measure in content["measures"])]


def _table_of_measures(content: dict[str, Any]) -> str:
    measures = content["measures"]
    printed = [m for m in measures if any(m["name"] in cell["printed"] for cell in content["cells"])]
    head = [*content["factors"], *(_heading(m) for m in measures), *(f"paper: {m['label']}" for m in printed)]
    lines = []
    for cell in content["cells"]:
        values = [_value(cell, m) for m in measures]
        lines.append(
            [*cell["factors"].values(), *values, *(cell["printed"].get(m["name"], "") for m in printed)]
        )
    for row, of_row in content["baselines"].items():
        cells = [f"{of_row[m['name']]:.{m['digits']}f}" if m["name"] in of_row else "" for m in measures]
        lines.append([row, *[""] * (len(content["factors"]) - 1), *cells, *[""] * len(printed)])
    return _markdown(head, lines, len(content["factors"]))


def _table_of_levels(content: dict[str, Any], measure: dict[str, Any]) -> str:
    """A table of one measure, its columns the levels of a factor."""
    column = content["columns"]
    levels = list(dict.fromkeys(cell["factors"][column] for cell in content["cells"]))
    factors = [factor for factor in content["factors"] if factor != column]
    lines: dict[tuple[Any, ...], dict[Any, str]] = {}
    for cell in content["cells"]:
        text = _value(cell, measure)
        if measure["name"] in cell["printed"]:
            text += f" (paper {cell['printed'][measure['name']]})"
        rest = tuple(cell["factors"][factor] for factor in factors)
        lines.setdefault(rest, {})[cell["factors"][column]] = text
    cells: list[list[Any]] = [
        [*rest, *(line.get(level, "") for level in levels)] for rest, line in lines.items()
    ]
    for row, of_row in content["baselines"].items():
        if measure["name"] in of_row:
            value = f"{of_row[measure['name']]:.{measure['digits']}f}"
            cells.append([row, *[""] * (len(factors) - 1), *[value] * len(levels)])
    head = [*factors, *(f"{column} = {level}" for level in levels)]
    return f"**{_heading(measure)}**\n\n{_markdown(head, cells, len(factors))}"


def _value(cell: dict[str, Any], measure: dict[str, Any]) -> str:
    text = shown(cell["intervals"][measure["name"]], measure["digits"])
    marks = "†" if "stale" in cell["status"].values() else ""
    marks += "≈" if cell["separates"][measure["name"]] is False else ""
    return f"{text} {marks}" if marks else text


def _heading(measure: dict[str, Any]) -> str:
    return f"{measure['label']}, %" if measure["percent"] else str(measure["label"])


def _notes(content: dict[str, Any]) -> list[str]:
    """What the marks mean, and what failed."""
    notes = []
    if any(flag is False for cell in content["cells"] for flag in cell["separates"].values()):
        notes.append(
            "≈: not better than the untrained encoder and the raw input (the paired 95% interval to the better of them "
            "reaches 0), so this value cannot tell objectives apart."
        )
    for state, what in (("failed", "Failed"), ("stale", "† Stale")):
        notes += [
            f"{what}: {cell['name']}: {'; '.join(cell['reasons'][:3])}"
            for cell in content["cells"]
            if state in cell["status"].values()
        ][:10]
    return notes


def _differences(content: dict[str, Any]) -> list[str]:
    lines = []
    for cell in content["cells"]:
        for measure in content["measures"]:
            gap = cell["differences"].get(measure["name"])
            if gap is not None and gap["seeds"] and gap["mean"] is not None:
                ends = "" if gap["low"] is None else f" [{gap['low']:+.2f}, {gap['high']:+.2f}]"
                lines.append(
                    [cell["name"], measure["label"], gap["to"], f"{gap['mean']:+.2f}{ends}", gap["seeds"]]
                )
    if not lines:
        return []
    head = ["cell", "measure", "minus", "difference", "seeds"]
    return ["## Paired differences", "By seed, with 95% intervals.", _markdown(head, lines, 3)]


def _claims(content: dict[str, Any]) -> list[str]:
    if not content["claims"]:
        return []
    labels = {m["name"]: m["label"] for m in content["measures"]}
    lines = [
        [
            claim["text"],
            claim["source"],
            labels.get(claim["measure"], claim["measure"]),
            f"**{claim['answer']}**",
            claim["reason"],
        ]
        for claim in content["claims"]
    ]
    rules = dict.fromkeys(claim["rule"] for claim in content["claims"])
    said = "\n".join(f"- {rule}" for rule in rules)
    head = ["claim", "source", "measure", "here", "decided by"]
    return ["## Claims", _markdown(head, lines, 5), f"Rules:\n\n{said}"]


def _provenance(content: dict[str, Any]) -> str:
    if not content["commit"] and not content["machine"]:
        return ""
    versions = ", ".join(f"{name} {version}" for name, version in content["versions"].items())
    return f"Each run on {content['machine']}; commit {content['commit'] or 'unknown'}; {content['date']}; {versions}."


def _markdown(head: Sequence[str], lines: Iterable[Sequence[Any]], texts: int) -> str:
    """A table; the first columns are text and the others numbers."""
    rule = ["---" if column < texts else "---:" for column in range(len(head))]
    table = [head, rule, *lines]
    return "\n".join(
        "| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in table
    )


def plot(content: dict[str, Any], file: Path) -> None:
    """The first measure with its 95% intervals: against a factor of numbers, or a line for each cell."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    measure = content["measures"][0]
    with rc_context({"svg.hashsalt": "mvcl", "svg.fonttype": "none", "font.size": 9}):
        if content["along"] is None:
            figure = Figure(figsize=(7, 0.28 * len(content["cells"]) + 1.0), layout="constrained")
            _plot_cells(figure.subplots(), content, measure)
        else:
            figure = Figure(figsize=(7, 4), layout="constrained")
            _plot_along(figure.subplots(), content, measure)
        figure.savefig(file, format="svg", metadata={"Date": None})


def _plot_cells(axes: Any, content: dict[str, Any], measure: dict[str, Any]) -> None:
    for place, cell in enumerate(content["cells"]):
        of = cell["intervals"][measure["name"]]
        if of["mean"] is not None:
            axes.errorbar(
                [of["mean"]],
                [place],
                xerr=[[bar] for bar in _bars(of)],
                fmt="o",
                ms=4,
                capsize=2,
                color=_COLOURS[0],
            )
        if content["scale"] == "paper" and measure["name"] in cell["printed"]:
            axes.plot([cell["printed"][measure["name"]]], [place], "x", color=_COLOURS[1])
    if _baselines(axes.axvline, content, measure):
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncol=2, fontsize=8)
    names = [", ".join(map(str, cell["factors"].values())) for cell in content["cells"]]
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_xlabel(_heading(measure))
    axes.grid(axis="x", alpha=0.3)


def _plot_along(axes: Any, content: dict[str, Any], measure: dict[str, Any]) -> None:
    along = content["along"]
    lines: dict[str, list[dict[str, Any]]] = {}
    for cell in content["cells"]:
        rest = ", ".join(str(level) for name, level in cell["factors"].items() if name != along)
        lines.setdefault(rest, []).append(cell)
    for number, (name, cells) in enumerate(lines.items()):
        known = [cell for cell in cells if cell["intervals"][measure["name"]]["mean"] is not None]
        known.sort(key=lambda cell: cell["factors"][along])
        style = {"color": _COLOURS[number % len(_COLOURS)], "marker": _MARKERS[number % len(_MARKERS)]}
        of = [cell["intervals"][measure["name"]] for cell in known]
        bars = [[bar[0] for bar in map(_bars, of)], [bar[1] for bar in map(_bars, of)]] if of else None
        x, y = [cell["factors"][along] for cell in known], [one["mean"] for one in of]
        axes.errorbar(x, y, yerr=bars, ms=4, capsize=2, lw=1.3, label=name or None, **style)
    _baselines(axes.axhline, content, measure)
    levels = sorted({cell["factors"][along] for cell in content["cells"]})
    if len(levels) <= 10 and max(levels) <= 16 * min(levels):
        axes.set_xticks(levels, [f"{level:g}" for level in levels])
    axes.set_xlabel(along)
    axes.set_ylabel(_heading(measure))
    axes.grid(alpha=0.3)
    if any(lines):
        axes.legend(fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5))


def _baselines(draw: Callable[..., Any], content: dict[str, Any], measure: dict[str, Any]) -> bool:
    """Draw a line for each baseline that has the measure; whether there are any."""
    known = [
        (row, values[measure["name"]])
        for row, values in content["baselines"].items()
        if measure["name"] in values
    ]
    for (row, value), style in zip(known, (":", "--")):
        draw(value, color="#777777", ls=style, lw=1, label=row)
    return bool(known)


def _bars(of: dict[str, Any]) -> tuple[float, float]:
    """Lengths below and above the mean; none of one seed."""
    return (0.0, 0.0) if of["low"] is None else (of["mean"] - of["low"], of["high"] - of["mean"])
