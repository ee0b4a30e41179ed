"""The page: plain values for its templates, which escape everything except `Markup`."""

import base64
import hashlib
import json
import math
import statistics
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from mvcl import _buckets, _files, metrics
from mvcl._progress import Track, duration, untracked
from mvcl.report import _curves, _figures, _several, _state, _table
from mvcl.report._read import DONE, Run, kind, number, read_geometry, read_run
from mvcl.report._state import State

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
_SHADE = 45  # % of the largest weight's background: numbers on it can be read
MATRICES = 6  # tables of view weights to show: the first, the last, and some between


def write_report(run_dirs: Sequence[Path], out: Path, track: Track = untracked) -> Path:
    """Write one self-contained HTML page for one run, or comparing several.

    One run: configuration, curves (the loss with its chance level), evaluation table with protocols, views of a few
    examples and a t-SNE plot of the test embeddings. Several: one table of results, in which runs that differ in the
    seed alone are one row, paired differences to the first run, the curves in common plots, geometry and refreshes.
    The page loads no other files; it lists missing files with the commands that write them.

    A run in progress, whose process holds the lock of the folder, has its state on the page, which then offers to
    reload itself, and no t-SNE plot. The page of runs that have ended depends on their files alone.

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
    names = _names([run.path for run in runs])
    shown: dict[str, object] = {"missing": _missing(runs, names), "times": _times(runs, names)}
    if len(runs) > 1:
        return render("several.html", shown | _several_runs(runs, names))
    return render("one.html", shown | _one_run(runs[0], names[0]))


def _names(paths: Sequence[Path]) -> list[str]:
    """The last parts of each path, as many as tell it from the others; a path that is given twice is whole."""
    parts = [str(path if _buckets.is_remote(path) else path.resolve()).split("/") for path in paths]

    def name(place: int) -> str:
        for last in range(1, len(parts[place])):
            tails = [of[-last:] for of in parts]
            if tails.count(tails[place]) == 1:
                return "/".join(tails[place])
        return str(paths[place])

    return [name(place) for place in range(len(paths))]


def _one_run(run: Run, name: str) -> dict[str, object]:
    weights, computed = _weights(run)
    columns, views = _views(run)
    state = _state.state_of(run)
    finished = state is not None and not state.live and run.beat is not None and run.beat.doing == DONE
    step = "" if run.evaluation_step is None else f" at step {run.evaluation_step}"
    return {
        "title": name,
        "subtitle": _subtitle(run) + (f" · {state.short}" if finished and state is not None else ""),
        "state": None if finished else state,
        "table": _table.of_rows(f"Measured{step}", run.evaluation) if run.evaluation else None,
        "protocols": _protocols([run], [name]),
        "curves": _curves.of_runs([run], [name]),
        "tiles": _tiles(run),
        "columns": columns,
        "views": views,
        "weights": weights,
        "computed_weights": computed,
        "alone": _view_accuracies(run),
        "warnings": run.warnings,
        "pairs": _pairs(run),
        "geometry": _geometry(run),
        "embeddings": _embeddings(run),
        "config": run.config,
    }


def _several_runs(runs: Sequence[Run], names: Sequence[str]) -> dict[str, object]:
    groups = _several.groups(runs, names)
    different = {
        field: [None if value is ... else _short(value) for value in values]
        for field, values in _several.changed(groups).items()
    }
    fields = {
        field: ["–" if value is None else value for value in values] for field, values in different.items()
    }
    seeds = any(len(group.runs) > 1 for group in groups)
    group_names = [group.name for group in groups]
    logs = [[run.scalars for run in group.runs] for group in groups]
    about = "Mean over seeds; the band is the 95 % interval of the mean."
    return {
        "title": f"{len(runs)} runs",
        "subtitle": ", ".join(group_names),
        "state": _state.state_of_all(runs, names),
        "results": _several.results(groups, _several.naming(fields)),
        "protocols": _protocols(runs, names),
        "singles": _several.singles(groups, {id(run): name for name, run in zip(names, runs)}),
        "gaps": _several.gaps(groups),
        "about": about if seeds else "",
        "curves": _curves.of_seeds(logs, "configurations", group_names)
        if seeds
        else _curves.of_runs(runs, names),
        "key": _legend(group_names),
        "geometries": _several.geometries(groups),
        "refreshes": [
            (title, _legend(pairs), plot) for title, pairs, plot in _several.refreshes(list(zip(names, runs)))
        ],
        "group_names": group_names,
        "differences": different,
        "seeds": seeds,
        "configs": [(name, run.config) for name, run in zip(names, runs) if run.config],
    }


def render(template: str, shown: Mapping[str, object]) -> str:
    """The page of a template with these values; its scripts are those that it has a use for."""
    templates = Environment(
        loader=PackageLoader("mvcl.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    templates.filters |= {"kind": kind, "short": _short, "indented": _indented, "digest": _digest}
    state = shown.get("state")
    uses = {
        "sort.js": any(map(_is_sortable, shown.values())),
        "reload.js": isinstance(state, State) and state.live,
    }
    folder = resources.files("mvcl.report") / "templates"
    scripts = [Markup((folder / name).read_text()) for name, used in uses.items() if used]
    return templates.get_template(template).render(shown, contents=[], scripts=scripts)


def _is_sortable(value: object) -> bool:
    """Whether something shown is a table that a reader may sort, or a list with one."""
    if isinstance(value, list):
        return any(map(_is_sortable, value))
    return isinstance(value, _table.Table) and value.sortable


def _digest(script: str) -> str:
    """Of a script that the page allows."""
    return f"sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}"


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
    last = _curves.last(run, "loss")
    if last is not None:
        chance = _curves.last(run, "chance")
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


def _protocols(runs: Sequence[Run], names: Sequence[str]) -> list[tuple[str, str]]:
    """(columns, protocol); runs and rows are named where a column has several."""
    protocols: dict[str, dict[str, list[str]]] = {}
    for run, name in zip(runs, names):
        for row, results in run.evaluation.items():
            for column, result in results.items():
                where = f"{name}, {row}" if len(runs) > 1 else row
                protocols.setdefault(column, {}).setdefault(result.protocol, []).append(where)
    columns_of: dict[tuple[str, str], list[str]] = {}  # columns with the same protocol share a line
    for column, by_protocol in protocols.items():
        for protocol, whose in by_protocol.items():
            only = "" if len(by_protocol) == 1 else f" ({'; '.join(whose)})"
            columns_of.setdefault((protocol, only), []).append(column)
    return [(", ".join(columns) + only, protocol) for (protocol, only), columns in columns_of.items()]


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
        rows = [[(_SHADE * max(w, 0.0) / max(largest, 1e-9), w) for w in row] for row in weights.tolist()]
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
    # t-SNE takes seconds, which a run in progress needs, and one that was told to stop has not.
    if run.embeddings is None or (run.beat is not None and run.beat.doing != DONE):
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
