"""Figures as text for the page: inline SVG for plots, PNG data URLs for images."""

import base64
import io
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import resources
from itertools import pairwise
from typing import Any

import matplotlib
import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from PIL import Image

COLORS = 10  # --s0 to --s9 in the style sheet
MARKERS = ("o", "s", "^", "D", "v", "P", "X")  # 7 and 10 are coprime: 70 different pairs
SYMBOLS = ("●", "■", "▲", "◆", "▼", "✚", "✖")
POINTS = 2000  # t-SNE takes seconds for this many, minutes for more
_NAMED, _NAME = 6, 14  # lines that have names at their ends, and characters of a name
_APART = 0.085  # of the height, between two names

# Plots are drawn in these colours, which are then replaced by style sheet variables for light and dark mode.
_SERIES = [f"#fe01{i:02x}" for i in range(COLORS)]
_INK, _GRID = "#fe01f0", "#fe01f1"
_VARIABLES = {color: f"var(--s{i})" for i, color in enumerate(_SERIES)} | {
    _INK: "var(--ink)",
    _GRID: "var(--grid)",
}
_RC: Any = {
    "svg.fonttype": "none",  # keep text as text: small, selectable, in the page's font
    "svg.hashsalt": "mvcl",
    "text.parse_math": False,
    "font.size": 9.5,
    "axes.edgecolor": _GRID,
    "axes.labelcolor": _INK,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": _GRID,
    "grid.linewidth": 0.6,
    "text.color": _INK,
    "xtick.color": _GRID,
    "ytick.color": _GRID,
    "xtick.labelcolor": _INK,
    "ytick.labelcolor": _INK,
    "lines.linewidth": 1.6,
    "lines.markersize": 4,
}


def curves(
    series: Sequence[tuple[np.ndarray, np.ndarray]],
    dashed: Sequence[tuple[np.ndarray, np.ndarray]],
    label: str,
    alt: str,
    names: Sequence[str] = (),
    *,
    limits: tuple[float, float] | None = None,
) -> Markup:
    """One line per run over its steps, in the run's colour and marker, above the `dashed` lines.

    A few lines have their names at their ends; `limits` are those of the vertical axis.
    """
    with _axes((4.6, 2.7)) as (figure, axes):
        for i, (steps, values) in enumerate(dashed):
            color = _SERIES[i % COLORS] if len(dashed) > 1 else _INK
            axes.plot(steps, values, color=color, linestyle=(0, (5, 3)), linewidth=1.1, alpha=0.8)
        for i, (steps, values) in enumerate(series):
            few = len(steps) <= 30
            marker = MARKERS[i % len(MARKERS)] if few or len(series) > 1 else None
            every = 1 if few else max(1, len(steps) // 8)
            first = 0 if few else i * every // len(series)  # equal curves show the markers of both runs
            axes.plot(steps, values, color=_SERIES[i % COLORS], marker=marker, markevery=(first, every))
        axes.set_xlabel("step")
        axes.set_ylabel(label)
        axes.locator_params(axis="x", nbins=6, integer=True)
        if limits is not None and limits[0] < limits[1]:
            space = 0.05 * (limits[1] - limits[0])
            axes.set_ylim(limits[0] - space, limits[1] + space)
        _name_ends(axes, series, names)
        return _svg(figure, alt)


def _name_ends(axes: Axes, lines: Sequence[tuple[np.ndarray, np.ndarray]], names: Sequence[str]) -> None:
    """Write the names of a few lines beside their ends, at least a line of text apart."""
    if not 2 <= len(names) <= _NAMED:
        return
    texts: list[str] = []
    places: list[float] = []
    low, high = axes.get_ylim()
    for name, symbol, (_, values) in zip(names, SYMBOLS, lines):
        finite = values[np.isfinite(values)]
        if len(finite):
            short = name if len(name) <= _NAME else f"{name[: _NAME - 1]}…"
            texts.append(f"{symbol} {short}")
            places.append((float(finite[-1]) - low) / (high - low))
    order = np.argsort(places)
    for below, line in pairwise(order):
        places[line] = max(places[line], places[below] + _APART)
    over = max([0.0, *(place - 1 for place in places)])
    for place, text in zip(places, texts):
        axes.annotate(
            text,
            (1.01, place - over),
            xycoords="axes fraction",
            va="center",
            fontsize=8,
            annotation_clip=False,
        )


@contextmanager
def _axes(size: tuple[float, float]) -> Iterator[tuple[Figure, Axes]]:
    """A figure of one plot, in the style of the page."""
    with matplotlib.rc_context(_RC):
        figure = Figure(figsize=size, layout="constrained")
        yield figure, figure.add_subplot()


Band = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def bands(series: Sequence[Band], horizontal: str, label: str, alt: str, names: Sequence[str] = ()) -> Markup:
    """Lines with bands around them, (x, middle, low, high) each; NaN where there is no band.

    Line and band i are elements whose ids end in "-cell<i>" and "-band<i>", so that a style can hide them.
    """
    with _axes((4.6, 2.9)) as (figure, axes):
        for i, (x, middle, low, high) in enumerate(series):
            color = _SERIES[i % COLORS]
            if np.isfinite(low).any():
                axes.fill_between(x, low, high, color=color, alpha=0.18, linewidth=0, gid=f"band{i}")
            every = max(1, len(x) // 6)
            axes.plot(
                x,
                middle,
                color=color,
                marker=MARKERS[i % len(MARKERS)],
                markevery=(i * every // max(len(series), 1), every),
                linewidth=1.3,
                gid=f"cell{i}",
            )
        axes.set_xlabel(horizontal)
        axes.set_ylabel(label)
        _name_ends(axes, [(x, middle) for x, middle, _, _ in series], names)
        return _svg(figure, alt)


@dataclass(frozen=True)
class Embedded:
    """The embeddings of the views at one output of the network, to be drawn.

    Attributes:
      views: their names.
      spectra: name of a view, or of all views -> eigenvalues of the covariance, largest first.
      alignment: (k, k) mean squared distance of two views of an instance; NaN where it is not defined.
      positives: counts of the cosines of positives, in equal bins from -1 to 1.
      negatives: counts of those of negatives.
    """

    views: Sequence[str]
    spectra: Mapping[str, np.ndarray]
    alignment: np.ndarray
    positives: np.ndarray
    negatives: np.ndarray


def spectrum(of: Embedded, alt: str) -> Markup:
    """The eigenvalues of the covariance of each view."""
    with _axes((4.6, 3.0)) as (figure, axes):
        _draw_spectrum(axes, of)
        return _svg(figure, alt)


def cosines(of: Embedded, alt: str) -> Markup:
    """Histograms of the cosines of positives and negatives."""
    with _axes((4.6, 3.0)) as (figure, axes):
        _draw_cosines(axes, of)
        return _svg(figure, alt)


def alignment(of: Embedded, alt: str) -> Markup:
    """A heat map of the alignment of pairs of views."""
    with _axes((4.6, 3.4)) as (figure, axes):
        _draw_alignment(axes, of)
        return _svg(figure, alt)


def geometry_file(outputs: Mapping[str, Embedded], alt: str) -> str:
    """A picture of its own, as SVG: a row of three plots for each output, in light or dark as the reader has it."""
    style = resources.files("mvcl.report").joinpath("templates/style.css").read_text()
    variables = style[: style.index("* {")]
    with matplotlib.rc_context(_RC):
        figure = Figure(figsize=(12.5, 3.6 * len(outputs)), layout="constrained")
        for row, (name, of) in zip(figure.subplots(len(outputs), 3, squeeze=False), outputs.items()):
            for axes, draw in zip(row, (_draw_spectrum, _draw_cosines, _draw_alignment)):
                draw(axes, of)
            row[1].set_title(name)
        text = str(_svg(figure, alt))
    space = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
    own = f"<style>{variables} svg {{ background: var(--card); font-family: system-ui, sans-serif; }}</style>"
    end = text.index(">") + 1
    return text[:end].replace("<svg ", f"<svg {space}", 1) + own + text[end:]


def _draw_spectrum(axes: Axes, of: Embedded) -> None:
    for i, (name, values) in enumerate(of.spectra.items()):
        whole = name not in of.views
        shown = np.where(values > 1e-12, values, np.nan)  # nothing is exactly zero after rounding
        color, style = (_INK, (0, (5, 3))) if whole else (_SERIES[i % COLORS], "-")
        axes.plot(
            np.arange(1, len(values) + 1),
            shown,
            color=color,
            linestyle=style,
            label=name,
            marker=None if whole else MARKERS[i % len(MARKERS)],
            markevery=(i, max(1, len(values) // 8)),
        )
    axes.set_yscale("log")
    axes.set_xlabel("eigenvalue of the covariance, in order")
    axes.set_ylabel("variance")
    if len(of.spectra) <= COLORS + 1:
        axes.legend(fontsize=7.5, frameon=False)


def _draw_cosines(axes: Axes, of: Embedded) -> None:
    for counts, name, color, style in (
        (of.positives, "positives", _SERIES[2], "-"),
        (of.negatives, "negatives", _SERIES[1], (0, (4, 2))),
    ):
        if not counts.sum():
            continue
        edges = np.linspace(-1, 1, len(counts) + 1)
        density = counts / counts.sum() / np.diff(edges)
        axes.stairs(density, edges, fill=True, color=color, alpha=0.35)
        axes.stairs(density, edges, color=color, label=name, linestyle=style)
    axes.set_xlabel(
        "cosine of two views of an instance (positives), or of two instances (negatives)", fontsize=8
    )
    axes.set_ylabel("density")
    axes.legend(fontsize=7.5, frameon=False)


def _draw_alignment(axes: Axes, of: Embedded) -> None:
    k, most = len(of.views), float(np.nanmax(of.alignment, initial=0)) or 1.0
    for (row, column), value in np.ndenumerate(of.alignment):
        if not np.isfinite(value):
            continue
        # Opaque at 45 %, so that numbers in the colour of the text can be read on all.
        axes.add_patch(
            Rectangle((column - 0.5, row - 0.5), 1, 1, facecolor=_SERIES[0], alpha=0.45 * value / most)
        )
        if k <= 10:
            axes.text(column, row, f"{value:.3f}", ha="center", va="center", fontsize=min(9, 60 / k))
    axes.set_xlim(-0.5, k - 0.5)
    axes.set_ylim(k - 0.5, -0.5)
    axes.set_xticks(range(k), of.views, rotation=0 if k <= 4 else 60, fontsize=7.5)
    axes.set_yticks(range(k), of.views, fontsize=7.5)
    axes.grid(False)
    axes.set_aspect("equal")
    axes.set_xlabel("alignment: mean squared distance of the views of an instance", fontsize=8)


def scatter(points: np.ndarray, labels: np.ndarray, classes: int, alt: str) -> Markup:
    """Scatter plot of (n, 2) points, with a pair of colour and marker per class."""
    with _axes((5.4, 4.6)) as (figure, axes):
        for c in range(classes):
            chosen = points[labels == c]
            axes.scatter(
                chosen[:, 0],
                chosen[:, 1],
                s=11,
                color=_SERIES[c % COLORS],
                marker=MARKERS[c % len(MARKERS)],
                alpha=0.75,
                linewidths=0,
            )
        axes.set_aspect("equal", adjustable="datalim")
        axes.set_xticks([])
        axes.set_yticks([])
        axes.grid(False)
        for spine in axes.spines.values():
            spine.set_visible(False)
        return _svg(figure, alt)


def project(features: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(m, 2) t-SNE coordinates of unit-length features, and the m <= 2000 rows they belong to.

    The rows are a fixed sample, reduced to at most 50 dimensions by PCA first. One thread, so that sums have a fixed
    order and the result is reproducible.

    Raises:
      ValueError: there are fewer than 5 rows, or all have the same direction.
    """
    from sklearn.decomposition import PCA  # its import takes a second, which pages of runs in progress save
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
    channels = 3 if image.shape[2] >= 3 else 1
    picture = Image.fromarray(image[:, :, :3] if channels == 3 else image[:, :, 0])
    picture.thumbnail((128, 128))
    stream = io.BytesIO()
    picture.save(stream, "PNG")
    data = base64.b64encode(stream.getvalue()).decode()
    return f"data:image/png;base64,{data}", max(picture.size) < 64  # small images are shown with sharp pixels


def _svg(figure: Figure, alt: str) -> Markup:
    stream = io.StringIO()
    figure.patch.set_alpha(0)
    for axes in figure.axes:
        axes.patch.set_alpha(0)
    FigureCanvasSVG(figure).print_svg(stream, metadata={"Date": None, "Creator": None})
    text = stream.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r"font: ([\d.]+)px[^;\"]*", r"font-size: \1px", text)
    box = re.search(r'viewBox="[^"]*"', text)
    assert box is not None
    head = Markup('<svg class="plot" {} role="img" aria-label="{}">').format(Markup(box[0]), alt)
    text = str(head) + text[text.index(">") + 1 :]
    # Figures share a page, so their ids must differ; an id must not look like a colour, such as "#fe01...".
    own = f"id{zlib.crc32(text.encode()):08x}-"
    text = re.sub(r'( id="|href="#|url\(#)', lambda match: match[0] + own, text)
    return Markup(re.sub("|".join(_VARIABLES), lambda match: _VARIABLES[match[0]], text))
