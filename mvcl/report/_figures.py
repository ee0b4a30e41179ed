"""Figures as text for the page: inline SVG for plots, PNG data URLs for images."""

import base64
import io
import re
import zlib
from collections.abc import Sequence
from typing import Any

import matplotlib
import numpy as np
from markupsafe import Markup
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from PIL import Image
from sklearn.decomposition import PCA
from sklearn.manifold import TSNE
from threadpoolctl import threadpool_limits  # comes with scikit-learn

COLORS = 10  # --s0 to --s9 in the style sheet
MARKERS = ("o", "s", "^", "D", "v", "P", "X")  # 7 and 10 are coprime: 70 different pairs
SYMBOLS = ("●", "■", "▲", "◆", "▼", "✚", "✖")
POINTS = 2000  # t-SNE takes seconds for this many, minutes for more

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
) -> Markup:
    """One line per run over its steps, in the run's colour and marker, above the `dashed` lines."""
    with matplotlib.rc_context(_RC):
        figure = Figure(figsize=(4.6, 2.7), layout="constrained")
        axes = figure.add_subplot()
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
        return _svg(figure, alt)


def scatter(points: np.ndarray, labels: np.ndarray, classes: int, alt: str) -> Markup:
    """Scatter plot of (n, 2) points, with a pair of colour and marker per class."""
    with matplotlib.rc_context(_RC):
        figure = Figure(figsize=(5.4, 4.6), layout="constrained")
        axes = figure.add_subplot()
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
