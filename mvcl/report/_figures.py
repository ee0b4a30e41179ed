"""Figures as text for the page: curves over training, and plots of embeddings."""

import io
import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
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

from mvcl import metrics

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


CURVES = (
    ("loss", "Loss", "loss"),
    ("knn", "k-NN accuracy", "accuracy"),
    ("recall_at_1", "Recall at 1 of a view by another", "recall"),
    ("acc_all", "Clustering accuracy, all views", "ACC"),
    ("nmi_all", "Normalised mutual information, all views", "NMI"),
    ("effective_rank", "Effective rank", "dimensions"),
    ("learning_rate", "Learning rate", "learning rate"),
    ("views_per_second", "Throughput", "views per second"),
    ("gradient_norm", "Gradient norm", "norm"),
    ("resultant", "Resultant length R of the groups of views", "R"),
    ("concentration", "Concentration κ of the groups of views", "κ"),
    ("effective_temperature", "Temperature of a cosine that weighs as much", "temperature"),
    ("log_concentration_deviation", "Spread of the concentrations", "deviation of log κ"),
    ("positive_similarity", "Similarity of positives, s+", "similarity"),
    ("negative_similarity", "Mean similarity of negatives, s-", "similarity"),
    *(
        (f"{output}_{key}", f"{title}, {output}", label)
        for key, title, label in (
            ("alignment", "Alignment of the views", "mean squared distance"),
            ("uniformity", "Uniformity of each view", "log mean exp(-2 distance²)"),
            ("effective_rank", "Effective rank of the views", "dimensions"),
            ("positive_cosine", "Cosine of positives", "cosine"),
            ("negative_cosine", "Cosine of negatives", "cosine"),
        )
        for output in ("encoder", "head")
    ),
)
_POINTS = 120  # of a curve over seeds
# Not of the result: of the machine, or of the optimiser.
_NOT_OF_SEEDS = ("learning_rate", "views_per_second", "gradient_norm")

Plot = tuple[Markup, str, str]  # with its title and note
Key = list[tuple[str, int, str]]  # symbol, number of the colour, name


def legend(names: Iterable[str]) -> Key:
    """The key of lines or classes in the order of their colours."""
    symbols, colors = itertools.cycle(SYMBOLS), itertools.cycle(range(len(LINES)))
    return list(zip(symbols, colors, names))


def _plot(figure: Figure, alt: str) -> Markup:
    """A figure as part of a page, without the ids that every figure has: `figure_1`, `axes_1`, ..."""
    stream = io.StringIO()
    with rc_context({"svg.hashsalt": alt}):  # of the ids of its markers and clip paths
        FigureCanvasSVG(figure).print_svg(stream)
    unused = r'(?s) id="[A-Za-z.0-9]+_\d+"|\n *|<metadata>.*?</metadata>'
    text = re.sub(unused, "", stream.getvalue())
    start = Markup('<svg class="plot" role="img" aria-label="{}"').format(alt)
    return start + Markup(text.partition("<svg")[2])


def of_runs(logs: Sequence[Sequence[pd.DataFrame]], names: Sequence[str]) -> list[Plot]:
    """A plot of each number in the logs of the runs of several configurations, a line for each configuration.

    Of several seeds it is their mean, over epochs where all runs have them.
    """
    plots, seeds, several, horizontal = [], any(len(of) > 1 for of in logs), len(logs) > 1, "step"
    rates = [[last(series(log, "epoch") / series(log, "epoch").index) or 0.0 for log in of] for of in logs]
    if seeds and all(rate > 0 for of in rates for rate in of):
        horizontal = "epoch"
        logs = [[log.set_axis(log.index * r) for log, r in zip(*pairs)] for pairs in zip(logs, rates)]
    for key, title, label in CURVES:
        of_each = [[series(log, key) for log in of] for of in logs]
        lines = [band(of, horizontal) if seeds else of[0].to_frame("value") for of in of_each]
        ends = [(name, x) for name, line in zip(names, lines) if (x := last(line["value"])) is not None]
        if not ends or (seeds and key in _NOT_OF_SEEDS):
            continue
        chance: list[pd.Series] = []
        if seeds:
            low, high = min(x for _, x in ends), max(x for _, x in ends)
            note = f"{len(ends)} of {len(logs)} configurations; last values from {low:.4g} to {high:.4g}"
            alt = f"{title} over the {horizontal}s of training, mean over seeds; {note}"
        else:
            note = "last value " + ", ".join(f"{name} {x:.4g}" if several else f"{x:.4g}" for name, x in ends)
            chance = [series(of[0], "chance") for of in logs] if key == "loss" else []
            if levels := [x for level in chance if (x := last(level)) is not None]:
                note += "; dashed: chance level" + ("" if several else f" {levels[0]:.4g}")
            for name, line in zip(names, lines):
                for step in line.index[line["value"].isna()][:1]:
                    note += f"; not finite{f' in {name}' if several else ''} at step {step:.0f}"
            alt = f"{title} over training steps; {note}"
        plots.append((curves(lines, label, alt, names, dashed=chance), title, note))
    return plots


def series(log: pd.DataFrame, key: str) -> pd.Series:
    """An entry of the log by step; NaN where it is not finite."""
    found = log[key].dropna() if key in log else pd.Series(dtype=float, index=pd.Index([], dtype=float))
    return found.where(np.isfinite(found))


def last(of: pd.Series) -> float | None:
    """The last finite value."""
    finite = of.dropna()
    return float(finite.iloc[-1]) if len(finite) else None


def band(seeds: Sequence[pd.Series], horizontal: str) -> pd.DataFrame:
    """Mean over the seeds that have a point, and the 95 % interval of the mean; NaN for one seed."""
    table = pd.concat([of.set_axis(of.index.astype(float).round(9)) for of in seeds], axis=1)
    table = table.sort_index().dropna(how="all")
    if len(table) > _POINTS:
        table = table.iloc[np.unique(np.linspace(0, len(table) - 1, _POINTS).astype(int))]
    intervals = [metrics.interval(row.dropna())[:3] for _, row in table.iterrows()]
    frame = pd.DataFrame(intervals, table.index, ["value", "low", "high"], float)
    return frame.where(np.isfinite(frame)).rename_axis(horizontal)


@rc_context(_STYLE)
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

    Lines have the column `value`, and where there is a band around it `low` and `high`; `dashed` are drawn below them.
    `label` and `limits` are of the vertical axis, `alt` is the text in place of the picture.
    """
    figure = Figure(figsize=(4.6, 2.7))
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
        low, high = axes.get_ylim()
        values = pd.Series([last(line["value"]) for line in lines], dtype=float)
        ends = values.dropna().sort_values(kind="stable")
        places: list[float] = []  # of the names, at least a line of text apart
        for place in (ends - low) / (high - low):
            places.append(max(place, places[-1] + _APART) if places else place)
        over = max(0.0, places[-1] - 1)
        for place, i in zip(places, ends.index):
            name = names[i] if len(names[i]) <= _NAME else f"{names[i][: _NAME - 1]}…"
            text, at = f"{SYMBOLS[i]} {name}", (1.01, place - over)
            axes.annotate(text, at, xycoords="axes fraction", va="center", fontsize=8, annotation_clip=False)
    return _plot(figure, alt)


@rc_context(_STYLE)
def geometry(of: Mapping[str, Any], where: str) -> list[Plot]:
    """Plots of the spectrum, the cosines and the alignment, where it is defined, at an output of the network."""
    plots = []
    for title, draw, alt, note in _GEOMETRY[: 3 if np.isfinite(of["alignment"]).any() else 2]:
        figure = Figure(figsize=(4.6, 3.1))
        draw(figure.add_subplot(), of)
        plots.append((_plot(figure, alt.format(where=where, views=", ".join(of["views"]))), title, note))
    return plots


def _spectrum(axes: Axes, of: Mapping[str, Any]) -> None:
    for i, (name, values) in enumerate(of["spectra"].items()):
        shown = np.where(values > 1e-12, values, np.nan)  # nothing is exactly zero after rounding
        look: dict[str, Any] = {"color": INK, "linestyle": _DASHES}  # of all views
        if name in of["views"]:
            look = {"marker": MARKERS[i % len(MARKERS)], "markevery": (i, max(1, len(values) // 8))}
        axes.plot(np.arange(1, len(values) + 1), shown, label=name, **look)
    axes.set(yscale="log", xlabel="eigenvalue of the covariance, in order", ylabel="variance")
    axes.yaxis.set_major_formatter("{x:.0e}")
    axes.yaxis.set_minor_formatter(LogFormatter())  # the default writes formulas
    if len(of["spectra"]) <= len(LINES) + 1:
        axes.legend()


def _cosines(axes: Axes, of: Mapping[str, Any]) -> None:
    for name, color, style in (("positives", LINES[2], "-"), ("negatives", LINES[1], (0, (4, 2)))):
        if (counts := of[name]).sum():
            edges = np.linspace(-1, 1, len(counts) + 1)
            density = counts / counts.sum() / np.diff(edges)
            axes.stairs(density, edges, fill=True, color=color, alpha=0.35)
            axes.stairs(density, edges, color=color, label=name, linestyle=style)
    label = "cosine of two views of an instance (positives), or of two instances (negatives)"
    axes.set_xlabel(label, fontsize=8)
    axes.set_ylabel("density")
    axes.legend()


def _alignment(axes: Axes, of: Mapping[str, Any]) -> None:
    k, most = len(of["views"]), float(np.nanmax(of["alignment"], initial=0)) or 1.0
    for (row, column), value in np.ndenumerate(of["alignment"]):
        if np.isfinite(value):
            # Opaque at 45 %, so that numbers in the colour of the text can be read on all.
            look: dict[str, Any] = {"facecolor": LINES[0], "alpha": 0.45 * value / most}
            axes.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, **look))
            if k <= 10:
                axes.text(column, row, f"{value:.3f}", ha="center", va="center", fontsize=min(9, 60 / k))
    axes.set(xlim=(-0.5, k - 0.5), ylim=(k - 0.5, -0.5), aspect="equal")
    axes.set_xticks(range(k), of["views"], rotation=0 if k <= 4 else 60, fontsize=7.5)
    axes.set_yticks(range(k), of["views"], fontsize=7.5)
    axes.grid(False)
    axes.set_xlabel("alignment: mean squared distance of the views of an instance", fontsize=8)


_GEOMETRY = (  # title, plot, text in place of it, and note
    (
        "Spectrum",
        _spectrum,
        "Eigenvalues of the covariance at the {where}: {views}",
        "variance of the embeddings in each direction, dashed for all views; behind a fall the rest is idle.",
    ),
    (
        "Cosines",
        _cosines,
        "Cosines of positives and negatives at the {where}",
        "of two views of an instance and of two instances; the less they overlap, the better views find theirs.",
    ),
    (
        "Alignment",
        _alignment,
        "Alignment of pairs of views at the {where}: {views}",
        "mean squared distance of two views of an instance, on the unit sphere.",
    ),
)


@rc_context(_STYLE)
def parts(rows: Mapping[str, Mapping[str, Any]]) -> Markup:
    """A bar of the parts of each row's information, and below it each part: estimate and 95 % interval, and a thin line
    between its bounds; dashed the entropy of the labels."""
    lines = sum(1 + len(of["parts"]) for of in rows.values())
    figure = Figure(figsize=(6.4, 0.8 + 0.26 * lines))
    axes, ends = figure.add_subplot(), []
    names: list[str] = []
    for name, of in rows.items():
        numbers = of["numbers"].loc[of["parts"]]
        left = numbers["value"].cumsum() - numbers["value"]
        colors = [LINES[i % len(LINES)] for i in range(len(left))]
        axes.barh(len(names), numbers["value"], left=left, color=colors, height=0.75)
        ends.append(f"{name} {numbers['value'].sum():.3f} bits")
        for i, (color, part) in enumerate(zip(colors, numbers.itertuples(index=False)), len(names) + 1):
            axes.plot([part.least, part.most], [i, i], color=color, linewidth=1)
            axes.plot([part.low, part.high], [i, i], color=color, linewidth=4, alpha=0.5)
            axes.plot(part.value, i, color=color, marker=MARKERS[(i - len(names) - 1) % len(MARKERS)])
        if of["entropy"] is not None:
            axes.axvline(of["entropy"], color=INK, linestyle=_DASHES, linewidth=1.1)
        names += [name, *of["parts"]]
    axes.set(xlabel="bits", ylim=(len(names) - 0.4, -0.6))
    axes.set_yticks(range(len(names)), names)
    axes.grid(axis="y", visible=False)
    return _plot(figure, f"Bits that the views tell alone, in common and only together; {', '.join(ends)}")


@rc_context(_STYLE)
def scatter(points: np.ndarray, labels: np.ndarray, alt: str) -> Markup:
    """Scatter plot of (n, 2) points, with a pair of colour and marker per class."""
    figure = Figure(figsize=(5.4, 4.6))
    axes = figure.add_subplot()
    for c in np.unique(labels):
        color, marker = LINES[c % len(LINES)], MARKERS[c % len(MARKERS)]
        x, y = points[labels == c].T
        axes.scatter(x, y, s=11, alpha=0.75, linewidths=0, color=color, marker=marker)
    axes.set_aspect("equal", adjustable="datalim")
    axes.set_axis_off()
    return _plot(figure, alt)


def project(features: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(m, 2) t-SNE coordinates of unit-length features, and the m <= 2000 rows they belong to, a fixed sample.

    They are reduced to at most 50 dimensions by PCA first. One thread, so that the result is reproducible. `ValueError`
    for fewer than 5 rows, and if all have the same direction.
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
