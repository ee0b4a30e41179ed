"""The page of a study, Markdown, and its figures, intervals of the cells and maps of means, from its numbers."""

import math
from collections.abc import Sequence
from pathlib import Path
from textwrap import dedent
from typing import Any

import numpy as np
import pandas as pd

from mvcl import _files, _progress

_UNTRAINED = (
    "Comparisons with these cells decide nothing: in the measure, or in all accuracies, they are not above both the "
    "untrained encoder and the raw input (paired 95% intervals), or the loss of their last epoch is not below the "
    "chance level by 1% of that and one nat or, of runs that log no level, differs by less than 1% from that of the "
    "first."
)
_RULES = (
    "What follows is of one comparison. One that neither holds nor fails is equal within the margin where its interval "
    "lies within ± margin, else open. A claim of several does not hold if one does not; else it cannot be told if one "
    "is open; else it is equal within the margin if one is; else it holds."
)
_HALF_WIDTH = "± is the half-width of a 95% interval."
_NOT_ABOVE = (
    "≈: not better than the untrained encoder and the raw input (the paired 95% interval to the better of them reaches "
    "0), so this value cannot tell objectives apart."
)


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
        f"![{content['measures'][0]['label']} of each cell{_spread(content)}]({figure})" if done else "",
        f"![Means, a block for each {content['columns']}]({figure.removesuffix('.svg')}_maps.svg)"
        if done and content.get("maps")
        else "",
        "Mean and 95% interval over seeds (Student's t)." if _spread(content) else "Values of one seed.",
        *_tables(content),
        *_notes(content),
    ]
    if content["commit"] or content["machine"]:
        versions = ", ".join(f"{name} {version}" for name, version in content["versions"].items())
        commit = content["commit"] or "unknown"
        parts.append(f"Each run on {content['machine']}; commit {commit}; {content['date']}; {versions}.")
    return "\n\n".join(part for part in parts if part) + "\n"


def _state(content: dict[str, Any]) -> str:
    """What was run, in a paragraph."""
    states = [state for cell in content["cells"] for state in cell["status"].values()]
    scale = f"Scale `{content['scale']}`: " if content["scale"] else ""
    text = f"{scale}{len(content['cells'])} cells, {seeds(content)}."
    if states.count("missing") == len(states):
        return f"{text} **Not run.** Cost: {content['cost']}."
    ran = _progress.duration(content["seconds"])
    text += f" Cost: {content['cost']}; {ran} of run time here, summed over all runs."
    if taken := content.get("taken"):
        pages = "; ".join(f"{count} from [{page}]({page}.md)" for page, count in taken.items())
        text += f" Runs shared with other pages, with their commits and machines: {pages}."
    lacking = {
        "missing": "not run",
        "failed": "failed",
        "stale": "made by an older config or code († in the tables; `--again` runs them again)",
    }
    named = [f"{states.count(s)} of {len(states)} runs {what}" for s, what in lacking.items() if s in states]
    return f"{text} {'; '.join(named)}." if named else text


def seeds(content: dict[str, Any]) -> str:
    """Their number, or that of the networks of a cell that were trained side by side."""
    networks = max((len(cell["seeds"]) for cell in content["cells"]), default=0)
    return f"networks: {networks}" if networks > content["seeds"] else f"seeds: {content['seeds']}"


def _spread(content: dict[str, Any]) -> str:
    """That there are intervals, where a cell has more than one seed or network."""
    return ", with 95% intervals" if any(len(cell["seeds"]) > 1 for cell in content["cells"]) else ""


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
            one = "".join(of.values())  # in all columns with values, which are levels
            every = {h: one * any(line.get(h) for line in lines.values()) for h in head} if column else of
            values = [every.get(h, "") for h in head]
            if any(values) or column is None:
                table.append([row, *[""] * (len(factors) - 1), *values])
        text = _markdown([*factors, *head], table, len(factors))
        tables.append(text if column is None else f"**{heading(measures[0])}**\n\n{text}")
    return tables


def _value(cell: dict[str, Any], measure: dict[str, Any]) -> str:
    """A mean with its 95% interval and marks: "89.5 [89.1, 89.9] †"; of one seed the value."""
    of = cell["intervals"][measure["name"]]
    text = _interval(of, f".{measure['digits']}f")
    if not text and (of["seeds"] or not cell["seeds"]):  # what a cell that was run does not have stays empty
        text = "not finite" if of["seeds"] else "not run"
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
        parts += ["## Paired differences", f"By seed{_spread(content)}.", _markdown(head, lines, 3)]
    if untrained := content["not_trained"].items():
        lines = [
            [n, "all" if {*of} == {*labels} else ", ".join(labels[m] for m in of)] for n, of in untrained
        ]
        parts += ["## Not trained", _UNTRAINED, _markdown(["cell", "measures"], lines, 2)]
    if claims := content["claims"]:
        head = ["claim", "source", "measure", "here", "decided by"]
        shown = [of | {"measure": labels[of["measure"]], "answer": f"**{of['answer']}**"} for of in claims]
        lines = [[of[x] for x in ("text", "source", "measure", "answer", "reason")] for of in shown]
        rules = "\n".join(f"- {rule}" for rule in dict.fromkeys(claim["rule"] for claim in claims))
        only = f"Those about cells with {content['only']} alone." if content.get("only") else ""
        parts += ["## Claims", only, _coverage(content), _markdown(head, lines, 5)]
        parts.append(f"{_RULES if half_widths(content) else 'Rule:'}\n\n{rules}")
    return parts


def _coverage(content: dict[str, Any]) -> str:
    """Of the intervals of the claims, their largest half-widths and the margins, in a paragraph; empty without any."""
    n, known = content["comparisons"], half_widths(content)
    several = f"so that all {n} comparisons of this page together are covered with 95% (Bonferroni)"
    text = f"± is the half-width of an interval at {100 - 5 / n:.4g}%, {several}." if n > 1 else _HALF_WIDTH
    why = [f" The margin of {name}: {reason}." for name, reason in content["why"].items()]
    return "".join([f"{text} Largest half-widths: {'; '.join(known)}.", *why]) if known else ""


def half_widths(content: dict[str, Any], *, wide: bool = False) -> list[str]:
    """The largest of each measure, with its margin and the seeds that keep it; `wide`: of those above it alone."""
    found = []
    for measure in content["measures"]:
        claims = [claim for claim in content["claims"] if claim["measure"] == measure["name"]]
        half, seeds = (max((claim[of] for claim in claims), default=0) for of in ("half_width", "seeds"))
        margin = content["margins"].get(measure["name"])
        text = f"{measure['label']} {half:.3g}" + (f" (margin {margin:g}: {seeds:,} seeds)" if margin else "")
        if half > (margin or math.inf if wide else 0):
            found.append(text)
    return found


def _markdown(head: Sequence[str], lines: Sequence[Sequence[Any]], texts: int) -> str:
    """A table; the first columns are text and the others numbers."""
    rule = ["---" if column < texts else "---:" for column in range(len(head))]
    table = [[str(cell).replace("|", "\\|") for cell in line] for line in (head, rule, *lines)]
    return "\n".join(f"| {' | '.join(line)} |" for line in table)


_COLOURS = ("#0072b2", "#d55e00", "#00805c", "#cc79a7", "#7a5195", "#8a6d00", "#4d4d4d", "#56b4e9")
_MARKERS = "osD^vP*X"


def heading(measure: dict[str, Any]) -> str:
    """Label and unit."""
    return f"{measure['label']}, %" if measure["percent"] else str(measure["label"])


def plot(content: dict[str, Any], file: Path) -> None:
    """The first measure with its 95% intervals: against a factor of numbers, or a line for each cell."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    along, measure, cells = content["along"], content["measures"][0], content["cells"]
    against = ["", *content.get("against", ())]  # of the horizontal axes, the measures after `along`
    with rc_context({"svg.hashsalt": "mvcl", "svg.fonttype": "none", "font.size": 9}):
        height = 4 * len(against) if along else 0.28 * len(cells) + 1.0
        figure = Figure(figsize=(7, height), layout="constrained")
        for axes, other in zip(np.atleast_1d(figure.subplots(len(against))), against):
            if along:
                _plot_along(axes, content, measure["name"], other)
            else:
                _plot_cells(axes, content, measure["name"])
            known = [of for of in content["baselines"].items() if measure["name"] in of[1]]
            for (row, of), style in zip(known, (":", "--")):
                value = of[measure["name"]]
                (axes.axhline if along else axes.axvline)(value, color="#777777", ls=style, lw=1, label=row)
            (axes.set_ylabel if along else axes.set_xlabel)(heading(measure))
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
            bars, colour = _bars([of]), _COLOURS[0]
            axes.errorbar([of["mean"]], [place], xerr=bars, fmt="o", ms=4, capsize=2, color=colour)
        if content["scale"] == "paper" and measure in cell["printed"]:
            axes.plot([cell["printed"][measure]], [place], "x", color=_COLOURS[1])
    axes.set_yticks(range(len(cells)), [", ".join(map(str, cell["factors"].values())) for cell in cells])
    axes.set_ylim(len(cells) - 0.5, -0.5)


def _plot_along(axes: Any, content: dict[str, Any], measure: str, other: str) -> None:
    """Against the factor `along`, or where `other` names a measure, against its means."""
    along = content["along"]
    lines: dict[str, dict[Any, dict[str, Any]]] = {}
    for cell in content["cells"]:
        rest = ", ".join(str(level) for name, level in cell["factors"].items() if name != along)
        place = cell["intervals"][other]["mean"] if other else cell["factors"][along]
        points = lines.setdefault(rest, {})
        if place is not None and cell["intervals"][measure]["mean"] is not None:
            points[place] = cell["intervals"][measure]
    for number, (name, points) in enumerate(lines.items()):
        shown = {place: points[place] for place in sorted(points)}
        style = {"color": _COLOURS[number % len(_COLOURS)], "marker": _MARKERS[number % len(_MARKERS)]}
        y = [of["mean"] for of in shown.values()]
        bars = _bars([*shown.values()])
        axes.errorbar([*shown], y, yerr=bars, ms=4, capsize=2, lw=1.3, label=name or None, **style)
    levels = sorted({cell["factors"][along] for cell in content["cells"]})
    if other:
        axes.set_xscale("log")
    elif len(levels) <= 10 and max(levels) <= 16 * min(levels):
        axes.set_xticks(levels, [f"{level:g}" for level in levels])
    axes.set_xlabel(next((heading(m) for m in content["measures"] if m["name"] == other), along))


def _bars(intervals: Sequence[dict[str, Any]]) -> list[list[float]]:
    """Lengths below and above the means; none of one seed."""
    known = [of if of["low"] is not None else dict.fromkeys(of, 0) for of in intervals]
    return [[of["mean"] - of["low"] for of in known], [of["high"] - of["mean"] for of in known]]


def heat_map(content: dict[str, Any], file: Path, measures: Sequence[str]) -> None:
    """Draw the means of several measures: a line for each row of the table, a block for each of its columns.

    Colours span 0 to 1, or the values that there are of measures in per cent.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    column = content["columns"]
    labels = {m["name"]: m["label"] for m in content["measures"] if m["name"] in measures}
    percent = any(m["percent"] for m in content["measures"] if m["name"] in measures)
    means: dict[tuple[Any, str], dict[str, float]] = {}  # block and measure -> row -> mean
    for cell in content["cells"]:
        row = ", ".join(str(level) for name, level in cell["factors"].items() if name != column)
        for name in labels:
            means.setdefault((cell["factors"][column], name), {})[row] = cell["intervals"][name]["mean"]
    # What a block has no number for, two views no synergy, has no column.
    grid = pd.DataFrame(means, dtype=float).dropna(axis=1, how="all")
    numbers = grid.to_numpy(float)
    low, high = (np.nanmin(numbers), np.nanmax(numbers)) if percent else (0.0, 1.0)
    with rc_context({"svg.hashsalt": "mvcl", "svg.fonttype": "none", "font.size": 7}):
        figure = Figure(figsize=(0.3 * grid.shape[1] + 2.5, 0.17 * len(grid) + 1.6), layout="constrained")
        axes = figure.subplots()
        image = axes.imshow(numbers, vmin=low, vmax=high, cmap="viridis", aspect="auto")
        for (y, x), value in np.ndenumerate(numbers):
            if np.isfinite(value):
                share = "1" if value >= 0.995 else f"{max(value, 0):.2f}".lstrip("0")
                colour, text = "w" if value < low + 0.6 * (high - low) else "k", f"{value:.1f}"
                axes.text(x, y, text if percent else share, ha="center", va="center", size=5, color=colour)
        axes.set_yticks(range(len(grid)), grid.index)
        axes.set_xticks(range(grid.shape[1]), [labels[name] for _, name in grid], rotation=90)
        for block, places in pd.Series(range(grid.shape[1])).groupby([b for b, _ in grid], sort=False):
            axes.axvline(places.min() - 0.5, color="w", lw=2)
            axes.text(places.mean(), -1, block, ha="center", va="bottom")
        figure.colorbar(image, shrink=0.4, pad=0.01)
        with _files.replacing(file) as beside:
            figure.savefig(beside, format="svg", metadata={"Date": None})
