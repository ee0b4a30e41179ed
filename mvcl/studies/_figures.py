"""The figures of a study, from the content of its page: intervals of the cells, and maps of means."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from mvcl import _files

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
