"""The page: plain values for its template, which escapes everything except `Markup`."""

import base64
import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from pathlib import Path

import numpy as np
from jinja2 import Environment, PackageLoader
from markupsafe import Markup

from mvcl import _buckets, _files, metrics
from mvcl._progress import duration, track
from mvcl.report import _compare, _curves, _figures
from mvcl.report._compare import Cell, Table
from mvcl.report._read import Run, kind, read_geometry, read_run

_EXAMPLES = 8  # rows of the grid of views
_WIDTH, _MIN_WIDTH = 72, 24  # of a picture in the grid, pixels
_SHADE = 45  # % of the largest weight's background: numbers on it can be read
_MATRICES = 6  # tables of view weights to show: the first, the last, and some between

Key = list[tuple[str, int, str]]  # symbol, number of the colour, name


def write_report(run_dirs: Sequence[Path], out: Path) -> Path:
    """Write one self-contained HTML page for one run, or comparing several.

    One run: configuration, curves (the loss with its chance level), evaluation table with protocols, views of a few
    examples and a t-SNE plot of the test embeddings. Several: one table of results, in which runs that differ in the
    seed alone are one row, paired differences to the first run, the curves in common plots, geometry and refreshes.
    The page loads no other files; it lists missing and damaged files with the commands that write them.

    Args:
      run_dirs: run folders as `mvcl train` writes them: config.json, metrics.jsonl, evaluation.json, views.npz,
        embeddings.npz, each of which may be missing or damaged.
      out: file to write, atomically; its folder is created if missing.

    Returns:
      `out`.

    Raises:
      ValueError: there are no run folders, or one of them is not a folder.
    """
    if not run_dirs:
        raise ValueError("run_dirs must name at least one run folder, got none")
    runs = [read_run(_buckets.path(path)) for path in track(run_dirs, "reading runs", len(run_dirs), "runs")]
    names = _names([run.path for run in runs])
    shown = _several_runs(runs, names) if len(runs) > 1 else _one_run(runs[0], names[0])
    missing = [
        (name if len(runs) > 1 else "", *item)
        for run, name in zip(runs, names)
        for item in run.missing
        if len(runs) == 1 or item[0] != "The images of the views"
    ]
    times = [
        (name if len(runs) > 1 else "", _time(run.seconds)) for run, name in zip(runs, names) if run.seconds
    ]
    text = _render(shown | {"missing": missing, "times": times})
    out = _buckets.path(out)
    out.parent.mkdir(parents=True, exist_ok=True)
    _files.write_whole(out, text.encode(errors="replace"))
    return out


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
    _files.write_whole(_buckets.path(out), _figures.geometry_file(found.outputs))
    return out


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


def _time(seconds: Mapping[str, float]) -> str:
    """`1h06m: training 75.0 % (50m00s), ...`, the longest phase first."""
    whole = sum(seconds.values())
    longest = sorted(seconds.items(), key=lambda phase: -phase[1])
    parts = [f"{phase} {100 * of / whole:.1f} % ({duration(of)})" for phase, of in longest if of > 0]
    return f"{duration(whole)}: {', '.join(parts)}" if parts else duration(whole)


def _one_run(run: Run, name: str) -> dict[str, object]:
    columns, views = _views(run)
    return {
        "several": False,
        "title": name,
        "subtitle": _subtitle(run),
        "tiles": _tiles(run),
        "warnings": run.warnings,
        "results": _compare.of_run(run) if len(run.evaluation) else None,
        "protocols": _compare.protocols([run], [name]) if len(run.evaluation) else [],
        "curves": _curves.of_runs([run.log], [name]),
        "columns": columns,
        "views": views,
        "weights": _weights(run),
        "clusters": _clusters(run),
        "pairs": _pairs([run], [name]),
        "geometry": _geometry(run),
        "embeddings": _embeddings(run),
        "configs": [(name, run.config)] if run.config else [],
    }


def _several_runs(runs: Sequence[Run], names: Sequence[str]) -> dict[str, object]:
    groups = _compare.groups(runs, names)
    group_names = [group.name for group in groups]
    seeds = any(len(group.places) > 1 for group in groups)
    different = {
        field: [None if value is ... else _short(value) for value in values]
        for field, values in _compare.changed(runs, groups).items()
    }
    parts = [name for name in different if not any(name.startswith(f"{other}.") for other in different)]
    fields = {name: ["–" if v is None else v for v in different[name]] for name in parts[: _compare.FIELDS]}
    results = _compare.Results(runs, groups)
    logs = [[runs[place].log for place in group.places] for group in groups]
    return {
        "several": True,
        "title": f"{len(runs)} runs",
        "subtitle": ", ".join(group_names),
        "results": results.table(fields) if results.columns else None,
        "protocols": _compare.protocols(runs, names),
        "singles": results.singles(names),
        "gaps": results.gaps(),
        "about": "Mean over seeds; the band is the 95 % interval of the mean." if seeds else "",
        "key": _legend(group_names),
        "curves": _curves.of_seeds(logs, group_names)
        if seeds
        else _curves.of_runs([run.log for run in runs], names),
        "pairs": _pairs(runs, names),
        "geometry": {"about": "", "parts": [("", t, []) for t in _compare.geometries(runs, groups)]},
        "differences": different,
        "group_names": group_names,
        "configs": [(name, run.config) for name, run in zip(names, runs) if run.config],
    }


def _render(shown: Mapping[str, object]) -> str:
    """The page with these values; that of several runs has a script, which sorts its tables."""
    templates = Environment(
        loader=PackageLoader("mvcl.report"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    templates.filters |= {"kind": kind, "short": _short, "indented": _indented}
    script = (resources.files("mvcl.report") / "templates" / "sort.js").read_text()
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    more = {"contents": [], "palette": _figures.palette(), "script": Markup(script), "digest": digest}
    return templates.get_template("page.html").render(shown, **more)


def _subtitle(run: Run) -> str:
    config, parts = run.config or {}, []
    for key in ("data", "encoder", "objective", "method"):
        value = config.get(key)
        if key == "encoder" and run.refreshes:
            continue  # the method has its own encoders
        if isinstance(value, Mapping) and kind(value):
            parts.append(str(value.get("name") or kind(value)))
    views = config.get("views")
    if isinstance(views, Mapping) and "k" in views:
        parts.append(f"{views['k']} views")
    if len(run.log):
        parts.append(f"step {max(run.log.index):.0f}")
    return " · ".join(parts) or str(run.path)


def _tiles(run: Run) -> list[tuple[str, str, str]]:
    """(name, value, comparison or note)."""
    tiles = []
    loss, chance = (_curves.last(_curves.series(run.log, key)) for key in ("loss", "chance"))
    if loss is not None:
        tiles.append(("last loss", f"{loss:.4g}", "" if chance is None else f"chance {chance:.4g}"))
    values = run.evaluation.set_index(["row", "column"])["value"].dropna()
    for (row, column), value in values.items():
        if row == "trained encoder":
            raw = values.get(("raw input", column))
            tiles.append((column, f"{value:.3f}", "" if raw is None else f"raw input {raw:.3f}"))
    rates = _curves.series(run.log, "views_per_second")
    if rates.notna().any():
        tiles.append(("views per second", f"{rates.median():,.0f}", "median"))
    return tiles


def _legend(names: Iterable[str]) -> Key:
    symbols, colors = _figures.SYMBOLS, _figures.COLORS
    return [(symbols[i % len(symbols)], i % colors, name) for i, name in enumerate(names)]


def _views(run: Run) -> tuple[list[str], list[tuple[str, list[tuple[str, bool, int]]]]]:
    """Names of the columns, and rows of a few examples: the class, and of the original and each view a picture, whether
    its pixels are shown sharp, and its width; smaller views are smaller."""
    if run.views is None:
        return [], []
    data = run.views
    widths = [_WIDTH, *(max(_MIN_WIDTH, round(_WIDTH * s / data.sizes.max())) for s in data.sizes.tolist())]
    rows = []
    for name, image, views in list(zip(data.names, data.images, data.views))[:_EXAMPLES]:
        pictures = [image, *(view[:size, :size] for view, size in zip(views, data.sizes))]
        rows.append((name, [(*_figures.photo(one), width) for one, width in zip(pictures, widths)]))
    return ["original", *data.view_names], rows


def _weights(run: Run) -> dict[str, object] | None:
    """Tables of the weights of the pairs of views at some steps, and how many there are."""
    taken = list(run.refreshes.get("weights", {}).items())
    if not taken:
        return None
    shown = [
        taken[i]
        for i in sorted({round(x) for x in np.linspace(0, len(taken) - 1, min(len(taken), _MATRICES))})
    ]
    largest = max(max(float(np.max(weights)) for _, weights in shown), 1e-9)
    tables = []
    for step, weights in shown:
        names = _view_names(run, len(weights))
        rows = [
            ([name], [Cell(f"{w:.3f}", w, shade=_SHADE * max(w, 0.0) / largest) for w in row])
            for name, row in zip(names, weights.tolist())
        ]
        tables.append(Table(f"from step {step}", [""], names, rows))
    return {"tables": tables, "computed": len(taken)}


def _clusters(run: Run) -> dict[str, object] | None:
    """Clustering accuracy of each view over training."""
    taken = run.refreshes.get("clusters", {})
    if run.embeddings is None or len(taken) < 2:
        return None
    labels = run.embeddings.labels
    if len(set(labels.tolist())) < 2 or any(clusters.shape[1] != len(labels) for clusters in taken.values()):
        return None  # the embeddings are of other examples
    values = np.array([[_accuracy(labels, view) for view in clusters] for clusters in taken.values()])
    names = _view_names(run, values.shape[1])
    ends = ", ".join(f"{n} {first:.3f} to {last:.3f}" for n, first, last in zip(names, values[0], values[-1]))
    alt = f"Clustering accuracy of each view over training steps; {ends}"
    plot = _figures.curves(_figures.frames(list(taken), values), "accuracy", alt)
    return {"key": _legend(names), "plot": plot, "ends": ends}


def _accuracy(labels: np.ndarray, clusters: np.ndarray) -> float:
    here = clusters >= 0
    return metrics.clustering_accuracy(labels[here], clusters[here]) if here.any() else float("nan")


def _pairs(runs: Sequence[Run], names: Sequence[str]) -> list[tuple[str, Markup, Key]]:
    """(title, plot, legend) of the pairs of views over training, as many as there are colours.

    Of one run similarity and loss; of several similarity, or without it the weight, on a common scale.
    """
    labels = {"cosines": "cosine similarity", "losses": "loss", "weights": "weight"}
    found = []
    for run, name in zip(runs, names):
        wanted = ("cosines", "losses") if len(runs) == 1 else ("cosines", "weights")
        there = [what for what in wanted if len(run.refreshes.get(what, {})) > 1]
        for what in there if len(runs) == 1 else there[:1]:
            arrays = np.array(list(run.refreshes[what].values()), float)
            upper = np.triu_indices(arrays.shape[1], 1)
            found.append((run, name, what, list(run.refreshes[what]), upper, arrays[:, *upper]))
    plots = []
    for run, name, what, steps, upper, values in found:
        label, views = labels[what], _view_names(run, 1 + int(max(upper[1], default=0)))
        same = np.concatenate([v.ravel() for _, _, other, _, _, v in found if other == what])
        common = len(runs) > 1 and len(same) > 0 and np.isfinite(same).all()
        limits = (float(same.min()), float(same.max())) if common else None
        of = f" of {name}" if len(runs) > 1 else ""
        lines = _figures.frames(steps, values[:, : _figures.COLORS])
        alt = f"{label.capitalize()} of pairs of views{of} over training steps"
        key = _legend([f"{views[m]}, {views[n]}" for m, n in zip(*upper)][: _figures.COLORS])
        title = f"{name}, {label}" if of else label.capitalize()
        plots.append((title, _figures.curves(lines, label, alt, limits=limits), key))
    return plots


def _view_names(run: Run, k: int) -> list[str]:
    return run.view_names if len(run.view_names) == k else [f"view {i + 1}" for i in range(k)]


def _geometry(run: Run) -> dict[str, object]:
    """Of the embeddings at each output: a heading, a table and plots."""
    if run.geometry is None:
        return {"about": "", "parts": []}
    parts = []
    for name, of in run.geometry.outputs.items():
        columns = list(dict.fromkeys(measure for row in of.rows.values() for measure in row))
        rows = [
            ([row], [Cell(f"{values[c]:.4g}", values[c]) if c in values else _compare.NONE for c in columns])
            for row, values in of.rows.items()
        ]
        parts.append((f"At the {name}", Table(name, [""], columns, rows), _figures.geometry(of, name)))
    found = run.geometry
    about = f"Embeddings of each view of {found.examples} examples of {found.split} at step {found.step}. "
    return {"about": about, "parts": parts}


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
