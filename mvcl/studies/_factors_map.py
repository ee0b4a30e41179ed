"""All numbers of a study as one heat map."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mvcl import _files


def heat_map(content: Mapping[str, Any], file: Path, measures: Sequence[str] | None = None) -> None:
    """Draw the means of a study with a factor as columns: a line for each level of the rest, a block for each column.

    Args:
      content: of the study's JSON.
      file: the SVG.
      measures: those that each block shows, between 0 and 1; None: all.

    Raises:
      ValueError: the study has no factor as columns.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    column = content["columns"]
    if column is None:
        raise ValueError(
            f"a heat map needs a study with a factor as columns, got none in {content['title']!r}"
        )
    labels = {m["name"]: m["label"] for m in content["measures"] if measures is None or m["name"] in measures}
    rows: dict[str, None] = {}
    blocks: dict[Any, None] = {}
    means: dict[tuple[str, Any, str], float | None] = {}
    for cell in content["cells"]:
        row = ", ".join(str(level) for name, level in cell["factors"].items() if name != column)
        rows[row], blocks[cell["factors"][column]] = None, None
        for name in labels:
            means[row, cell["factors"][column], name] = cell["intervals"][name]["mean"]
    # What a block has no number for, two views no synergy, has no column.
    columns = [
        (b, name) for b in blocks for name in labels if any(means.get((r, b, name)) is not None for r in rows)
    ]
    grid = np.array([[means.get((r, *c)) for c in columns] for r in rows], np.float64)
    with rc_context({"svg.hashsalt": "mvcl", "svg.fonttype": "none", "font.size": 7}):
        figure = Figure(figsize=(0.3 * len(columns) + 2.5, 0.17 * len(rows) + 1.6), layout="constrained")
        axes = figure.subplots()
        image = axes.imshow(grid, vmin=0, vmax=1, cmap="viridis", aspect="auto")
        for (y, x), value in np.ndenumerate(grid):
            if np.isfinite(value):
                text = f"{max(value, 0):.2f}".lstrip("0") if value < 0.995 else "1"
                axes.text(x, y, text, ha="center", va="center", size=5, color="w" if value < 0.6 else "k")
        axes.set_yticks(range(len(rows)), list(rows))
        axes.set_xticks(range(len(columns)), [labels[name] for _, name in columns], rotation=90)
        starts = [next(i for i, (b, _) in enumerate(columns) if b == block) for block in blocks]
        for start, end, block in zip(starts, [*starts[1:], len(columns)], blocks):
            axes.axvline(start - 0.5, color="w", lw=2)
            axes.text((start + end - 1) / 2, -1, block, ha="center", va="bottom")
        figure.colorbar(image, shrink=0.4, pad=0.01)
        with _files.replacing(file) as beside:
            figure.savefig(beside, format="svg", metadata={"Date": None})
