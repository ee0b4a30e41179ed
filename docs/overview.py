"""Draws the picture of the README from a run on the digits: docs/overview.svg, and overview_dark.svg for dark pages.

    mvcl train digits && python -m docs.overview runs/digits

From left to right: examples and their views, the pairs of views that the objective pulls together and pushes apart,
the test embeddings by t-SNE, and the accuracies of the run's evaluation.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np

from docs.objectives_pictures import pairwise_gradient
from mvcl import losses
from mvcl.report._figures import project

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes

FOLDER = Path(__file__).parent
EXAMPLES = 6
THEMES = {"overview": ("#1f2328", "#d0d7de", "#ffffff"), "overview_dark": ("#e6edf3", "#3d444d", "#0d1117")}
ROWS = {  # of the evaluation: colour and marker
    "trained encoder": ("#2f81f7", "o"),
    "untrained encoder": ("#8b949e", "s"),
    "raw input": ("#b8860b", "D"),
}


def _views(axes: Axes, run: Path, edge: str) -> None:
    with np.load(run / "views.npz", allow_pickle=False) as file:
        images, views = file["images"][:EXAMPLES, ..., 0], file["views"][:EXAMPLES, ..., 0]
    size = images.shape[1]
    for row, (image, of) in enumerate(zip(images, views)):
        for column, picture in enumerate((image, *of)):
            left = column * (size + 1) + (3 if column else 0)
            top = row * (size + 1)
            axes.imshow(picture, cmap="gray", extent=(left, left + size, top + size, top), vmin=0, vmax=255)
    width = (views.shape[1] + 1) * (size + 1) + 3
    axes.axvline(size + 1.5, color=edge, linewidth=1)
    axes.set(xlim=(0, width), ylim=(EXAMPLES * (size + 1), -1))
    axes.set_title(f"an image, and {views.shape[1]} views of it")


def _pairs(axes: Axes, views: int, ink: str) -> None:
    slope = pairwise_gradient(losses.mv_dhel, views)
    shade = np.sign(slope) * np.sqrt(np.abs(slope) / np.abs(slope).max())
    n = len(shade)
    axes.imshow(shade, cmap="RdBu_r", vmin=-1, vmax=1, extent=(0, n, n, 0))
    for edge in range(0, n + 1, n // views):
        axes.axhline(edge, color="#1f2328", linewidth=0.8)
        axes.axvline(edge, color="#1f2328", linewidth=0.8)
    axes.set_title("the objective pulls (blue)\nand pushes (red) pairs")
    axes.text(n / 2, n * 1.04, "view by view, 4 images each", ha="center", va="top", fontsize=8, color=ink)


def _embeddings(axes: Axes, run: Path, ink: str) -> None:
    with np.load(run / "embeddings.npz", allow_pickle=False) as file:
        points, rows = project(file["features"])
        labels, names = file["labels"][rows], file["class_names"]
    for c, name in enumerate(names):
        of = points[labels == c]
        color = plt.get_cmap("tab10")(c % 10)
        axes.scatter(*of.T, s=7, color=color, linewidths=0)
        middle, top = np.median(of[:, 0]), np.percentile(of[:, 1], 90)
        axes.annotate(str(name), (middle, top + 1.5), fontsize=9, color=ink, ha="center", va="bottom")
    axes.set_aspect("equal", adjustable="datalim")
    axes.set_title("test embeddings")


def _accuracy(axes: Axes, run: Path, ink: str) -> None:
    rows = json.loads((run / "evaluation.json").read_text())["rows"]
    measures = [result["name"] for result in rows["trained encoder"]]
    places = np.arange(len(measures))[::-1]
    for shift, (row, (color, marker)) in zip((0.2, 0.0, -0.2), ROWS.items()):
        values = [result["value"] for result in rows[row]]
        deviations = [result["deviation"] or 0.0 for result in rows[row]]
        axes.errorbar(
            values,
            places + shift,
            xerr=deviations,
            fmt=marker,
            color=color,
            markersize=6,
            linewidth=1.2,
            label=row,
        )
    axes.set_yticks(places, [name.replace("/", "\nper ") for name in measures])
    axes.set(xlim=(0.75, 1.01), xticks=[0.8, 0.9, 1.0], ylim=(-0.6, len(measures) - 0.4))
    axes.grid(axis="x", linewidth=0.6)
    axes.tick_params(length=0, labelsize=9)
    axes.legend(
        fontsize=8, frameon=False, loc="upper center", bbox_to_anchor=(0.4, -0.08), ncols=1, labelcolor=ink
    )
    axes.set_title("accuracy")


def draw(run: Path, ink: str, edge: str, page: str) -> plt.Figure:
    """The picture of a finished run, in the colours of a page."""
    views = json.loads((run / "config.json").read_text())["views"]["k"]
    colors: dict[Any, Any] = dict.fromkeys(
        ("text.color", "axes.labelcolor", "xtick.color", "ytick.color"), ink
    )
    style = {
        "svg.fonttype": "path",
        "svg.hashsalt": "mvcl",
        "axes.titlesize": 10,
        "axes.edgecolor": edge,
        "grid.color": edge,
    }
    with plt.rc_context(colors | style):
        figure, panels = plt.subplots(
            1, 4, figsize=(12, 3.1), width_ratios=(1.1, 1, 1.1, 0.9), layout="constrained"
        )
        _views(panels[0], run, edge)
        _pairs(panels[1], views, ink)
        _embeddings(panels[2], run, ink)
        for axes in panels[:3]:
            axes.set_axis_off()
        panels[3].spines[["top", "right", "left", "bottom"]].set_visible(False)
        panels[3].set_facecolor("none")
        _accuracy(panels[3], run, ink)
        figure.patch.set_facecolor(page)
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("run", type=Path, help="folder of a finished run on the digits")
    run = parser.parse_args().run
    for name, (ink, edge, page) in THEMES.items():
        figure = draw(run, ink, edge, page)
        figure.savefig(FOLDER / f"{name}.svg", metadata={"Date": None})
        plt.close(figure)
        print(f"docs/{name}.svg")


if __name__ == "__main__":
    main()
