"""Figures as text for the page: plots, and small pictures."""

import base64
import io
import re
from collections.abc import Callable, Mapping, Sequence
from importlib import resources
from typing import Any

import numpy as np
import pandas as pd
from markupsafe import Markup
from matplotlib import rc_context, rc_params_from_file
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import LogFormatter
from PIL import Image

from mvcl.report._read import Output

_FILE = resources.files("mvcl.report") / "templates" / "plot.mplstyle"
_STYLE: Any = rc_params_from_file(str(_FILE), use_default_template=False)
LINES: Sequence[str] = _STYLE["axes.prop_cycle"].by_key()["color"]
INK, GRID = _STYLE["text.color"], _STYLE["grid.color"]
# Colour of a plot -> variable of style.css, which has one value for light and one for dark pages.
VARIABLES = {color: f"--s{i}" for i, color in enumerate(LINES)} | {INK: "--ink", GRID: "--grid"}
MARKERS = ("o", "s", "^", "D", "v", "P", "X")  # 7 and 10 lines are coprime: 70 different pairs
SYMBOLS = ("●", "■", "▲", "◆", "▼", "✚", "✖")
POINTS = 2000  # t-SNE takes seconds for this many, minutes for more
_NAMED, _NAME = 6, 14  # lines that have names at their ends, and characters of a name
_APART = 0.085  # of the height, between two names
_DASHES = (0, (5, 3))


def _svg(draw: Callable[[Figure], None], size: tuple[float, float], salt: str = "mvcl") -> str:
    """What `draw` draws; the ids of its markers and clip paths are hashes with this salt."""
    with rc_context(_STYLE | {"svg.hashsalt": salt}):
        figure, stream = Figure(figsize=size), io.StringIO()
        draw(figure)
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        FigureCanvasSVG(figure).print_svg(stream, metadata=nothing)
    return stream.getvalue()


def _plot(draw: Callable[[Figure], None], size: tuple[float, float], alt: str) -> Markup:
    """A drawing as part of a page, without the ids that every drawing has: `figure_1`, `axes_1`, ..."""
    text = re.sub(r' id="[A-Za-z.0-9]+_\d+"|\n *', "", _svg(draw, size, alt)).partition("<svg")[2]
    return Markup('<svg class="plot" role="img" aria-label="{}"{}').format(alt, Markup(text))


def curves(
    lines: Sequence[pd.DataFrame],
    label: str,
    alt: str,
    names: Sequence[str] = (),
    *,
    dashed: Sequence[pd.Series] = (),
    limits: tuple[float, float] | None = None,
) -> Markup:
    """Lines over their index, which has the name of the horizontal axis; a few have their names at their ends.

    Args:
      lines: column `value`, and where there is a band around it `low` and `high`.
      label: of the vertical axis.
      alt: the text in place of the picture.
      names: of the lines.
      dashed: series to draw below the lines.
      limits: of the vertical axis.
    """

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        for i, level in enumerate(dashed):
            color = LINES[i % len(LINES)] if len(dashed) > 1 else INK
            axes.plot(level.index, level, color=color, linestyle=_DASHES, linewidth=1.1, alpha=0.8)
        for i, line in enumerate(lines):
            color, few = LINES[i % len(LINES)], len(line) <= 30
            if "low" in line and line["low"].notna().any():
                axes.fill_between(line.index, line["low"], line["high"], color=color, alpha=0.18, linewidth=0)
            every = 1 if few else len(line) // 8
            first = 0 if few else i * every // len(lines)  # equal curves show the markers of both runs
            marker = MARKERS[i % len(MARKERS)] if few or len(lines) > 1 else None
            axes.plot(line.index, line["value"], color=color, marker=marker, markevery=(first, every))
        axes.set(xlabel=lines[0].index.name or "step", ylabel=label)
        axes.locator_params(axis="x", nbins=6, integer=True)
        if limits is not None and limits[0] < limits[1]:
            space = 0.05 * (limits[1] - limits[0])
            axes.set_ylim(limits[0] - space, limits[1] + space)
        if 2 <= len(names) <= _NAMED:
            _name_ends(axes, lines, names)

    return _plot(draw, (4.6, 2.7), alt)


def _name_ends(axes: Axes, lines: Sequence[pd.DataFrame], names: Sequence[str]) -> None:
    """Write the names of the lines beside their ends, at least a line of text apart."""
    low, high = axes.get_ylim()
    ends = [(line["value"].dropna(), name, symbol) for line, name, symbol in zip(lines, names, SYMBOLS)]
    ends.sort(key=lambda end: float(end[0].iloc[-1]) if len(end[0]) else np.inf)
    places: list[float] = []
    for values, _, _ in ends:
        if len(values):
            place = (values.iloc[-1] - low) / (high - low)
            places.append(max(place, places[-1] + _APART) if places else place)
    over = max(0.0, places[-1] - 1)
    for place, (_, name, symbol) in zip(places, ends):
        text = f"{symbol} {name if len(name) <= _NAME else f'{name[: _NAME - 1]}…'}"
        at = (1.01, place - over)
        axes.annotate(text, at, xycoords="axes fraction", va="center", fontsize=8, annotation_clip=False)


def geometry(of: Output, where: str) -> list[tuple[Markup, str, str]]:
    """(plot, title, note) of the spectrum, the cosines and the alignment at an output of the network."""
    alts = (
        f"Eigenvalues of the covariance at the {where}: {', '.join(of.views)}",
        f"Cosines of positives and negatives at the {where}",
        f"Alignment of pairs of views at the {where}: {', '.join(of.views)}",
    )
    shown = len(_GEOMETRY) if np.isfinite(of.alignment).any() else len(_GEOMETRY) - 1
    return [
        (_plot(lambda figure, draw=draw: draw(figure.add_subplot(), of), (4.6, 3.1), alt), title, note)  # type: ignore[misc]
        for alt, (title, draw, note) in list(zip(alts, _GEOMETRY))[:shown]
    ]


def geometry_file(outputs: Mapping[str, Output]) -> str:
    """A picture of its own, as SVG: a row of three plots for each output."""

    def draw(figure: Figure) -> None:
        figure.set_facecolor("white")
        for row, (name, of) in zip(figure.subplots(len(outputs), 3, squeeze=False), outputs.items()):
            for axes, (_, plot, _) in zip(row, _GEOMETRY):
                plot(axes, of)
            row[1].set_title(name)

    return _svg(draw, (12.5, 3.6 * len(outputs)))


def _spectrum(axes: Axes, of: Output) -> None:
    for i, (name, values) in enumerate(of.spectra.items()):
        shown = np.where(values > 1e-12, values, np.nan)  # nothing is exactly zero after rounding
        look: dict[str, Any] = {"color": INK, "linestyle": _DASHES}  # of all views
        if name in of.views:
            look = {"marker": MARKERS[i % len(MARKERS)], "markevery": (i, max(1, len(values) // 8))}
        axes.plot(np.arange(1, len(values) + 1), shown, label=name, **look)
    axes.set(yscale="log", xlabel="eigenvalue of the covariance, in order", ylabel="variance")
    axes.yaxis.set_major_formatter("{x:.0e}")
    axes.yaxis.set_minor_formatter(LogFormatter())  # the default writes formulas
    if len(of.spectra) <= len(LINES) + 1:
        axes.legend()


def _cosines(axes: Axes, of: Output) -> None:
    for counts, name, color, style in (
        (of.positives, "positives", LINES[2], "-"),
        (of.negatives, "negatives", LINES[1], (0, (4, 2))),
    ):
        if counts.sum():
            edges = np.linspace(-1, 1, len(counts) + 1)
            density = counts / counts.sum() / np.diff(edges)
            axes.stairs(density, edges, fill=True, color=color, alpha=0.35)
            axes.stairs(density, edges, color=color, label=name, linestyle=style)
    label = "cosine of two views of an instance (positives), or of two instances (negatives)"
    axes.set_xlabel(label, fontsize=8)
    axes.set_ylabel("density")
    axes.legend()


def _alignment(axes: Axes, of: Output) -> None:
    k, most = len(of.views), float(np.nanmax(of.alignment, initial=0)) or 1.0
    for (row, column), value in np.ndenumerate(of.alignment):
        if np.isfinite(value):
            # Opaque at 45 %, so that numbers in the colour of the text can be read on all.
            look: dict[str, Any] = {"facecolor": LINES[0], "alpha": 0.45 * value / most}
            axes.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, **look))
            if k <= 10:
                axes.text(column, row, f"{value:.3f}", ha="center", va="center", fontsize=min(9, 60 / k))
    axes.set(xlim=(-0.5, k - 0.5), ylim=(k - 0.5, -0.5), aspect="equal")
    axes.set_xticks(range(k), of.views, rotation=0 if k <= 4 else 60, fontsize=7.5)
    axes.set_yticks(range(k), of.views, fontsize=7.5)
    axes.grid(False)
    axes.set_xlabel("alignment: mean squared distance of the views of an instance", fontsize=8)


_GEOMETRY = (  # title, plot and note
    (
        "Spectrum",
        _spectrum,
        "variance of the embeddings in each direction, dashed for all views; where a line falls early, "
        "the rest is idle.",
    ),
    (
        "Cosines",
        _cosines,
        "of two views of an instance and of two instances; the less they overlap, the better views find their "
        "instance.",
    ),
    ("Alignment", _alignment, "mean squared distance of two views of an instance, on the unit sphere."),
)


def scatter(points: np.ndarray, labels: np.ndarray, alt: str) -> Markup:
    """Scatter plot of (n, 2) points, with a pair of colour and marker per class."""

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        for c in np.unique(labels):
            look: dict[str, Any] = {"color": LINES[c % len(LINES)], "marker": MARKERS[c % len(MARKERS)]}
            x, y = points[labels == c].T
            axes.scatter(x, y, s=11, alpha=0.75, linewidths=0, **look)
        axes.set_aspect("equal", adjustable="datalim")
        axes.set_axis_off()

    return _plot(draw, (5.4, 4.6), alt)


def project(features: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(m, 2) t-SNE coordinates of unit-length features, and the m <= 2000 rows they belong to.

    The rows are a fixed sample, reduced to at most 50 dimensions by PCA first. One thread, so that sums have a fixed
    order and the result is reproducible.

    Raises:
      ValueError: there are fewer than 5 rows, or all have the same direction.
    """
    from sklearn.decomposition import PCA  # its import takes a second, which pages without embeddings save
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits  # comes with scikit-learn

    rows = np.arange(len(features))
    if len(rows) > POINTS:
        rows = np.sort(np.random.default_rng(0).choice(rows, POINTS, replace=False))
    if len(rows) < 5:
        raise ValueError(f"the plot needs at least 5 embeddings, got {len(rows)}")
    unit = features[rows].astype(np.float64)
    unit /= np.maximum(np.linalg.norm(unit, axis=1, keepdims=True), 1e-30)
    if np.ptp(unit, axis=0).max() < 1e-6:
        raise ValueError("all embeddings have the same direction: the encoder has collapsed")
    with threadpool_limits(1):
        reduced = PCA(min(50, unit.shape[1], len(rows)), random_state=0).fit_transform(unit)
        start = np.pad(reduced, [(0, 0), (0, max(0, 2 - reduced.shape[1]))])[:, :2]
        start = start / start[:, 0].std() * 1e-4  # the scale of scikit-learn's PCA initialisation
        perplexity = min(30.0, (len(rows) - 1) / 3)
        points = TSNE(init=start, perplexity=perplexity, random_state=0, n_jobs=1).fit_transform(reduced)
    return points, rows


def photo(image: np.ndarray) -> tuple[str, bool]:
    """An (H, W, C) uint8 image as a data: URL, at most 128 pixels a side, and whether all sides are below 64."""
    picture = Image.fromarray(image[:, :, :3] if image.shape[2] >= 3 else image[:, :, 0])
    picture.thumbnail((128, 128))
    stream = io.BytesIO()
    picture.save(stream, "PNG")
    url = f"data:image/png;base64,{base64.b64encode(stream.getvalue()).decode()}"
    return url, max(picture.size) < 64  # small images are shown with sharp pixels
