"""The page: plain values for its templates, which escape everything except `Markup`."""

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from mvcl import _buckets, _files, metrics
from mvcl._progress import Track, duration, untracked
from mvcl.report import _figures
from mvcl.report._read import Row, Run, differences, kind, number, read_geometry, read_run

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
# Part of the wall time -> its name on the page and the number of its colour.
PARTS = {
    "training": ("training", 2),
    "compiling": ("compiling", 5),
    "data": ("waiting for data", 1),
    "evaluating": ("evaluating", 0),
    "saving": ("saving", 3),
    "repeated": ("training again what was not saved", 9),
    "other": ("starting, stopping and the rest", 7),
}
EXAMPLES = 8  # rows of the grid of views
WIDTH, MIN_WIDTH = 72, 24  # of a picture in the grid, pixels
MATRICES = 6  # tables of view weights to show: the first, the last, and some between


def write_report(run_dirs: Sequence[Path], out: Path, track: Track = untracked) -> Path:
    """Write one self-contained HTML page for one run, or comparing several.

    One run: configuration, curves (the loss with its chance level), evaluation table with protocols, views of a few
    examples and a t-SNE plot of the test embeddings. Several: the fields in which the configurations differ, the
    curves in common plots and the evaluation tables. The page has no scripts and loads no other files; it lists
    missing files with the commands that write them.

    Args:
      run_dirs: run folders as `mvcl train` writes them: config.json, metrics.jsonl, evaluation.json, views.npz,
        embeddings.npz, each of which may be missing or damaged.
      out: file to write, atomically; its folder is created if missing.
      track: reports the folders that are read.

    Returns:
      `out`.

    Raises:
      ValueError: there are no run folders, or one of them is not a folder.
    """
    if not run_dirs:
        raise ValueError("run_dirs must name at least one run folder, got none")
    runs = [read_run(_buckets.path(path)) for path in track(run_dirs, "reading runs", len(run_dirs), "runs")]
    text = _render(runs)
    out = _buckets.path(out)
    out.parent.mkdir(parents=True, exist_ok=True)
    _files.write_whole(out, text.encode(errors="replace"))
    return out


def _render(runs: Sequence[Run]) -> str:
    names = [(run.path if _buckets.is_remote(run.path) else run.path.resolve()).name for run in runs]
    if len(set(names)) < len(names):
        names = [str(run.path) for run in runs]
    tables, protocols = _tables(runs, names)
    shown: dict[str, object] = {
        "names": names,
        "missing": _missing(runs, names),
        "tables": tables,
        "protocols": protocols,
        "curves": _curves(runs, names),
        "times": _times(runs, names),
    }
    if len(runs) > 1:
        shown |= {
            "title": f"{len(runs)} runs",
            "subtitle": ", ".join(names),
            "differences": _differences(runs),
            "key": _legend(names),
            "configs": [(name, run.config) for name, run in zip(names, runs) if run.config],
        }
    else:
        weights, computed = _weights(runs[0])
        columns, views = _views(runs[0])
        shown |= {
            "title": names[0],
            "subtitle": _subtitle(runs[0]),
            "tiles": _tiles(runs[0]),
            "columns": columns,
            "views": views,
            "weights": weights,
            "computed_weights": computed,
            "alone": _view_accuracies(runs[0]),
            "warnings": runs[0].warnings,
            "pairs": _pairs(runs[0]),
            "geometry": _geometry(runs[0]),
            "embeddings": _embeddings(runs[0]),
            "config": runs[0].config,
        }
    return render("several.html" if len(runs) > 1 else "one.html", shown)


def render(template: str, shown: Mapping[str, object]) -> str:
    """The page of a template with these values."""
    templates = Environment(
        loader=PackageLoader("mvcl.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    templates.filters |= {"kind": kind, "short": _short, "indented": _indented}
    return templates.get_template(template).render(shown)


def _subtitle(run: Run) -> str:
    config = run.config or {}
    parts = []
    for key in ("data", "encoder", "objective", "method"):
        value = config.get(key)
        if key == "encoder" and run.looks:
            continue  # the method has its own encoders
        if isinstance(value, Mapping) and kind(value):
            parts.append(str(value.get("name") or kind(value)))
    views = config.get("views")
    if isinstance(views, Mapping) and "k" in views:
        parts.append(f"{views['k']} views")
    if run.scalars:
        parts.append(f"step {max(run.scalars)}")
    return " · ".join(parts) or str(run.path)


def _tiles(run: Run) -> list[tuple[str, str, str]]:
    """(name, value, comparison or note)."""
    tiles = []
    last = _last(run, "loss")
    if last is not None:
        chance = _last(run, "chance")
        beside = "" if chance is None else f"chance {chance:.4g}"
        tiles.append(("last loss", f"{last:.4g}", beside))
    trained = run.evaluation.get("trained encoder", {})
    for name, row in trained.items():
        if row.value is not None:
            raw = run.evaluation.get("raw input", {}).get(name)
            beside = f"raw input {raw.value:.3f}" if raw is not None and raw.value is not None else ""
            tiles.append((name, f"{row.value:.3f}", beside))
    rates = [v for s in run.scalars.values() if (v := number(s.get("views_per_second"))) is not None]
    if rates:
        tiles.append(("views per second", f"{statistics.median(rates):,.0f}", "median"))
    return tiles


Bar = tuple[str, str, list[tuple[str, int, float, str]]]


def _times(runs: Sequence[Run], names: Sequence[str]) -> list[Bar]:
    """Of each run (name, summary, parts of its wall time), and of a part (name, colour, share in %, duration)."""
    bars = []
    for run, name in zip(runs, names):
        whole = sum(run.seconds.values())
        if whole <= 0:
            continue
        parts = [
            (title, color, 100 * run.seconds[part] / whole, duration(run.seconds[part]))
            for part, (title, color) in PARTS.items()
            if run.seconds.get(part, 0.0) > 0
        ]
        sessions = f" in {run.sessions} sessions" if run.sessions > 1 else ""
        trained = 100 * run.seconds.get("training", 0.0) / whole
        summary = f"{duration(whole)}{sessions}, of which {trained:.0f} % training"
        bars.append((name if len(runs) > 1 else "", summary, parts))
    return bars


def _missing(runs: Sequence[Run], names: Sequence[str]) -> list[tuple[str, str, str, str]]:
    """(run, missing part, reason, what to do); a comparison names the runs and omits images."""
    several = len(runs) > 1
    return [
        (name if several else "", *item)
        for run, name in zip(runs, names)
        for item in run.missing
        if not (several and item[0].startswith("The picture"))
    ]


Table = tuple[str, list[str], dict[str, dict[str, Row]]]


def _tables(runs: Sequence[Run], names: Sequence[str]) -> tuple[list[Table], list[tuple[str, str]]]:
    """(caption, columns, rows) of each run, and (columns, protocol)."""
    tables = []
    protocols: dict[str, dict[str, list[str]]] = {}
    for run, name in zip(runs, names):
        if not run.evaluation:
            continue
        for row, results in run.evaluation.items():
            for column, result in results.items():
                where = f"{name}, {row}" if len(runs) > 1 else row
                protocols.setdefault(column, {}).setdefault(result.protocol, []).append(where)
        step = "" if run.evaluation_step is None else f" at step {run.evaluation_step}"
        columns = list(dict.fromkeys(c for results in run.evaluation.values() for c in results))
        tables.append(((name if len(runs) > 1 else "Measured") + step, columns, run.evaluation))
    columns_of: dict[tuple[str, str], list[str]] = {}  # columns with the same protocol share a line
    for column, by_protocol in protocols.items():
        for protocol, whose in by_protocol.items():
            only = "" if len(by_protocol) == 1 else f" ({'; '.join(whose)})"
            columns_of.setdefault((protocol, only), []).append(column)
    return tables, [(", ".join(columns) + only, protocol) for (protocol, only), columns in columns_of.items()]


def _curves(runs: Sequence[Run], names: Sequence[str]) -> list[tuple[Markup, str, str]]:
    """(plot, title, note)."""
    figures = []
    for key, title, label in CURVES:
        series = [_series(run, key) for run in runs]
        if not any(np.isfinite(values).any() for _, values in series):
            continue
        dashed = [_series(run, "chance") for run in runs] if key == "loss" else []
        dashed = dashed if any(np.isfinite(values).any() for _, values in dashed) else []
        ends = [
            f"{name} {values[np.isfinite(values)][-1]:.4g}"
            for name, (_, values) in zip(names, series)
            if np.isfinite(values).any()
        ]
        note = "last value " + (ends[0].removeprefix(names[0] + " ") if len(runs) == 1 else ", ".join(ends))
        if dashed:
            note += "; dashed: chance level"
            chance = dashed[0][1][np.isfinite(dashed[0][1])]
            note += f" {chance[-1]:.4g}" if len(runs) == 1 else ""
        for name, (steps, values) in zip(names, series):
            bad = steps[~np.isfinite(values)]
            if len(bad):
                note += f"; not finite{'' if len(runs) == 1 else ' in ' + name} at step {bad[0]:.0f}"
        plot = _figures.curves(series, dashed, label, f"{title} over training steps; {note}")
        figures.append((plot, title, note))
    return figures


def _series(run: Run, key: str) -> tuple[np.ndarray, np.ndarray]:
    found = [(step, values[key]) for step, values in run.scalars.items() if key in values]
    steps, values = np.array(found, float).reshape(-1, 2).T
    return steps, np.where(np.isfinite(values), values, np.nan)


def _last(run: Run, key: str) -> float | None:
    _, values = _series(run, key)
    finite = values[np.isfinite(values)]
    return float(finite[-1]) if len(finite) else None


def _legend(names: Sequence[str]) -> list[tuple[str, int, str]]:
    """(symbol, number of the colour, name)."""
    symbols, colors = _figures.SYMBOLS, _figures.COLORS
    return [(symbols[i % len(symbols)], i % colors, name) for i, name in enumerate(names)]


def _views(run: Run) -> tuple[list[str], list[tuple[str, list[tuple[str, bool, int]]]]]:
    """Names of the columns, and rows of a few examples: the class, and of the original and each view a picture, whether
    its pixels are shown sharp, and its width; smaller views are smaller."""
    if run.views is None:
        return [], []
    data = run.views
    widths = [WIDTH, *(max(MIN_WIDTH, round(WIDTH * s / data.sizes.max())) for s in data.sizes.tolist())]
    rows = []
    for i, name in enumerate(data.names[:EXAMPLES]):
        views = [view[:size, :size] for view, size in zip(data.views[i], data.sizes)]
        photos = [_figures.photo(image) for image in (data.images[i], *views)]
        rows.append((name, [(*photo, width) for photo, width in zip(photos, widths)]))
    return ["original", *data.view_names], rows


Cells = list[tuple[str, list[tuple[float, float]]]]


def _weights(run: Run) -> tuple[list[tuple[int, list[str], Cells]], int]:
    """(step, names of the views, rows of (shade in %, weight)) of some steps, and the number of computed weights."""
    taken = [(look.step, look.weights) for look in run.looks if look.weights is not None]
    chosen = {round(x) for x in np.linspace(0, len(taken) - 1, min(len(taken), MATRICES))}
    shown = [taken[i] for i in sorted(chosen)]
    largest = max((float(np.max(weights)) for _, weights in shown), default=1.0)
    tables = []
    for step, weights in shown:
        names = _view_labels(run, len(weights))
        rows = [[(60 * max(w, 0.0) / max(largest, 1e-9), w) for w in row] for row in weights.tolist()]
        tables.append((step, names, list(zip(names, rows))))
    return tables, len(taken)


def _view_accuracies(run: Run) -> dict[str, object] | None:
    """Clustering accuracy of each view over training."""
    looks = [(look.step, look.clusters) for look in run.looks if look.clusters is not None]
    if run.embeddings is None or len(looks) < 2:
        return None
    labels = run.embeddings.labels
    if len(set(labels.tolist())) < 2 or any(clusters.shape[1] != len(labels) for _, clusters in looks):
        return None  # the embeddings are of other examples
    steps = np.array([step for step, _ in looks], float)
    values = np.array([[_accuracy(labels, view) for view in clusters] for _, clusters in looks])
    names = _view_labels(run, values.shape[1])
    ends = ", ".join(
        f"{name} {first:.3f} to {last:.3f}" for name, first, last in zip(names, values[0], values[-1])
    )
    series = [(steps, column) for column in values.T]
    alt = f"Clustering accuracy of each view over training steps; {ends}"
    return {"key": _legend(names), "plot": _figures.curves(series, [], "accuracy", alt), "ends": ends}


def _pairs(run: Run) -> dict[str, object] | None:
    """Similarity and loss of pairs of views over training, for as many pairs as there are colours."""
    looks = [look for look in run.looks if look.cosines is not None]
    if len(looks) < 2:
        return None
    steps = np.array([look.step for look in looks], float)
    names = _view_labels(run, len(np.asarray(looks[0].cosines)))
    upper = [(m, n) for m in range(len(names)) for n in range(m + 1, len(names))][: _figures.COLORS]
    plots = []
    for title, arrays in (
        ("Cosine similarity", [look.cosines for look in looks]),
        ("Loss", [look.losses for look in looks]),
    ):
        if any(array is None for array in arrays):
            continue
        values = np.asarray(arrays)
        series = [(steps, values[:, m, n]) for m, n in upper]
        alt = f"{title} of pairs of views over training steps"
        plots.append((title, _figures.curves(series, [], title.lower(), alt)))
    return {"key": _legend([f"{names[m]}, {names[n]}" for m, n in upper]), "plots": plots}


def _accuracy(labels: np.ndarray, clusters: np.ndarray) -> float:
    here = clusters >= 0
    return metrics.clustering_accuracy(labels[here], clusters[here]) if here.any() else float("nan")


def _view_labels(run: Run, k: int) -> list[str]:
    return run.view_names if len(run.view_names) == k else [f"view {i + 1}" for i in range(k)]


def _geometry(run: Run) -> dict[str, object] | None:
    """The tables and pictures of the geometry of the embeddings."""
    found = run.geometry
    if found is None:
        return None
    outputs = []
    for name, output in found.outputs.items():
        columns = list(dict.fromkeys(measure for row in output.rows.values() for measure in row))
        of, views = output.drawn, ", ".join(output.drawn.views)
        plots = [
            (_figures.spectrum(of, f"Eigenvalues of the covariance at the {name}: {views}"), _SPECTRUM),
            (_figures.cosines(of, f"Cosines of positives and negatives at the {name}"), _COSINES),
        ]
        if np.isfinite(of.alignment).any():
            pairs = f"Alignment of pairs of views at the {name}: {views}"
            plots.append((_figures.alignment(of, pairs), _ALIGNMENT))
        outputs.append((name, columns, output.rows, plots))
    return {"step": found.step, "split": found.split, "examples": found.examples, "outputs": outputs}


_SPECTRUM = (
    "Spectrum",
    "variance of the embeddings in each direction, dashed for all views; where a line falls early, the rest is idle.",
)
_COSINES = (
    "Cosines",
    "of two views of an instance and of two instances; the less they overlap, the better views find their instance.",
)
_ALIGNMENT = ("Alignment", "mean squared distance of two views of an instance, on the unit sphere.")


def write_geometry(source: Path, out: Path) -> Path:
    """Draw the geometry of a run's embeddings as one SVG picture.

    Args:
      source: the file that `mvcl geometry` has written.
      out: the .svg file to write, atomically.

    Returns:
      `out`.

    Raises:
      ValueError: the file is damaged.
    """
    found = read_geometry(_buckets.path(source))
    drawn = {name: output.drawn for name, output in found.outputs.items()}
    alt = f"Geometry of the embeddings of {found.examples} examples of {found.split} at step {found.step}"
    _files.write_whole(_buckets.path(out), _figures.geometry_file(drawn, alt))
    return out


def _embeddings(run: Run) -> dict[str, object] | None:
    if run.embeddings is None:
        return None
    data = run.embeddings
    try:
        points, rows = _figures.project(data.features)
    except ValueError as error:
        return {"error": str(error)}
    classes, total = len(data.class_names), len(data.features)
    legible = math.lcm(_figures.COLORS, len(_figures.MARKERS))
    alt = f"t-SNE plot of {len(rows)} test embeddings of {classes} classes"
    return {
        "error": None,
        "plot": _figures.scatter(points, data.labels[rows], classes, alt),
        "key": _legend(data.class_names) if classes <= legible else None,
        "classes": classes,
        "legible": legible,
        "part": f"{len(rows)} of {total}" if len(rows) < total else f"All {total}",
    }


def _differences(runs: Sequence[Run]) -> dict[str, list[str | None]]:
    """Field -> value per run, None if a configuration has no such field."""
    different = differences([run.config for run in runs])
    return {
        name: [None if value is ... else _short(value) for value in row] for name, row in different.items()
    }


def _short(value: object) -> str:
    """A value on one line: class name for objects, long values truncated."""
    if isinstance(value, Mapping):
        return kind(value) or "{…}"
    if isinstance(value, list):
        return "[" + ", ".join(_short(item) for item in value[:8]) + (", …]" if len(value) > 8 else "]")
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= 60 else text[:59] + "…"


def _indented(config: object) -> str:
    return json.dumps(config, indent=2, ensure_ascii=False)
