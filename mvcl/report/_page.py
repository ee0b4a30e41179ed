"""The page: plain values for its template, which escapes everything except `Markup`."""

import base64
import functools
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jinja2 import Environment, PackageLoader
from markupsafe import Markup

from mvcl import _buckets, _files, evaluation, metrics
from mvcl._progress import track
from mvcl.report import _compare, _figures
from mvcl.report._read import IMAGES, Run, kind, read_run

_FIELDS = 4  # of the configurations, in the table of results
_SHADE = 45  # % of the largest weight's background: numbers on it can be read
_MATRICES = 6  # tables of view weights to show: the first, the last, and some between


def write_report(run_dirs: Sequence[Path], out: Path) -> Path:
    """Write one self-contained HTML page for one run, or comparing several; return `out`, which is written atomically.

    Of several, runs that differ in the seed alone are one row. The page loads no other files; it lists missing and
    damaged files of the run folders with the commands that write them. `ValueError` if one is no folder.
    """
    if not run_dirs:
        raise ValueError("run_dirs must name at least one run folder, got none")
    runs = [read_run(_buckets.path(path)) for path in track(run_dirs, "reading runs", len(run_dirs), "runs")]
    paths, names, several = [run.path for run in runs], [], len(runs) > 1
    parts = [str(path if _buckets.is_remote(path) else path.resolve()).split("/") for path in paths]
    # Of a path as many parts as tell it from the others; one given twice is whole.
    for path, own in zip(paths, parts):
        ends = (own[-last:] for last in range(1, len(own)))
        unique = (end for end in ends if [of[-len(end) :] for of in parts].count(end) == 1)
        names.append("/".join(next(unique, [str(path)])))
    of = [(name if several else "", run) for name, run in zip(names, runs)]
    # Where a column has several protocols, runs and rows are named.
    every = pd.concat([run.evaluation.assign(run=f"{name}, " if several else "") for name, run in of])
    found = evaluation.shared_protocols(every["run"] + every["row"], every["column"], every["protocol"])
    files = resources.files("mvcl.report") / "templates"
    script, style = ((files / name).read_text() for name in ("sort.js", "style.css"))
    text = _TEMPLATES.get_template("page.html").render(
        _several_runs(runs, names) if several else _one_run(runs[0], names[0]),
        several=several,
        protocols=[(", ".join(columns) + whose, protocol) for columns, whose, protocol in found],
        pairs=_pairs(runs, names) if any(run.refreshes for run in runs) else [],
        missing=[(n, *item) for n, run in of for item in run.missing if not several or item[0] != IMAGES],
        times=[(name, run.time) for name, run in of if run.time],
        configs=[(name, run.config) for name, run in zip(names, runs) if run.config],
        contents=[],
        variables=_figures.VARIABLES,
        script=Markup(script),
        style=Markup(style),
        digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )
    out = _buckets.path(out)
    out.parent.mkdir(parents=True, exist_ok=True)
    _files.write_whole(out, text.lstrip().encode(errors="replace"))
    return out


def _one_run(run: Run, name: str) -> dict[str, object]:
    own = "" if run.refreshes else "encoder"  # a method with refreshes has its own encoders
    of = {key: value for key, value in (run.config or {}).items() if isinstance(value, Mapping)}
    shown = [of[key] for key in ("data", own, "objective", "method") if key in of]
    parts = [str(value.get("name") or kind(value)) for value in shown if kind(value)]
    if "k" in (views := of.get("views", {})):
        parts.append(f"{views['k']} views")
    if len(run.log):
        parts.append(f"step {max(run.log.index):.0f}")
    tiles = []  # name, value, comparison or note
    loss, chance = (_figures.last(_figures.series(run.log, key)) for key in ("loss", "chance"))
    if loss is not None:
        tiles.append(("last loss", f"{loss:.4g}", "" if chance is None else f"chance {chance:.4g}"))
    values = {row: of.set_index("column")["value"].dropna() for row, of in run.evaluation.groupby("row")}
    raws = values.get("raw input", {})
    for column, value in values.get("trained encoder", {}).items():
        tiles.append((column, f"{value:.3f}", f"raw input {raws[column]:.3f}" if column in raws else ""))
    rates = _figures.series(run.log, "views_per_second")
    if rates.notna().any():
        tiles.append(("views per second", f"{rates.median():,.0f}", "median"))
    return {
        "title": name,
        "subtitle": " · ".join(parts) or str(run.path),
        "tiles": tiles,
        "warnings": run.warnings,
        "results": _compare.of_run(run) if len(run.evaluation) else None,
        "curves": _figures.of_runs([[run.log]], [name]),
        "views": run.views,
        "columns": _columns(run.view_names) if isinstance(run.view_names, Mapping) else None,
        "weights": _weights(run) if "weights" in run.refreshes else None,
        "clusters": _clusters(run, run.embeddings[1]) if run.refreshes and run.embeddings else None,
        "geometry": _geometry(run.geometry) if run.geometry else None,
        "decomposition": _decomposition(run.decomposition) if run.decomposition else None,
        "embeddings": _embeddings(*run.embeddings) if run.embeddings else None,
    }


def _columns(scaling: Mapping[str, Any]) -> list[list[str]]:
    """View, name, scaling, shift, scale and filling of empty entries of each column of tables."""
    rows = []
    for view, of in scaling.items():
        names, fill = of.get("columns") or range(len(of["shift"])), of.get("fill") or ()
        for i, (shift, scale) in enumerate(zip(of["shift"], of["scale"])):
            gaps = f"{fill[i]:.6g}" if fill else ""
            rows.append([view, str(names[i]), str(of.get("kind", "")), f"{shift:.6g}", f"{scale:.6g}", gaps])
    return rows


def _several_runs(runs: Sequence[Run], names: Sequence[str]) -> dict[str, object]:
    groups = _compare.groups(runs, names)
    group_names = [name for name, *_ in groups]
    different = _compare.changed(runs, groups)
    parts = [name for name in different if not any(name.startswith(f"{other}.") for other in different)]
    fields = {name: different[name] for name in parts[:_FIELDS]}
    return _compare.several(runs, names, groups, fields) | {
        "title": f"{len(runs)} runs",
        "subtitle": ", ".join(group_names),
        "seeds": len(groups) < len(runs),
        "key": _figures.legend(group_names),
        "curves": _figures.of_runs([[runs[i].log for i in places] for _, places, _ in groups], group_names),
        "geometry": {"parts": [("", table, []) for table in _compare.geometries(runs, groups)]},
        "differences": different,
        "group_names": group_names,
    }


def _weights(run: Run) -> dict[str, object]:
    """Tables of the weights of the pairs of views at some steps, and how many there are."""
    steps, every = run.refreshes["weights"]
    shown = np.linspace(0, len(steps) - 1, min(len(steps), _MATRICES)).round().astype(int)
    names, shade = _view_names(run, every.shape[1]), _SHADE / max(1e-9, every[shown].max())
    frames = {f"from step {steps[i]}": pd.DataFrame(every[i], names, names) for i in shown}
    return {"tables": [_compare.of_frame(*of, ".3f", shade) for of in frames.items()], "computed": len(steps)}


def _clusters(run: Run, labels: np.ndarray) -> dict[str, object] | None:
    """Clustering accuracy of each view over training."""
    steps, arrays = run.refreshes.get("clusters", ((), np.empty((0, 0, 0))))
    if len(steps) < 2 or labels.max() < 1 or arrays.shape[2] != len(labels):
        return None  # the embeddings are of other examples
    names = _view_names(run, arrays.shape[1])
    values = pd.DataFrame(math.nan, steps, names)
    for at in np.ndindex(values.shape):
        if (here := arrays[at] >= 0).any():
            values.iloc[at] = metrics.clustering_accuracy(labels[here], arrays[at][here])
    ends = ", ".join(f"{name} {of.iloc[0]:.3f} to {of.iloc[-1]:.3f}" for name, of in values.items())
    alt = f"Clustering accuracy of each view over training steps; {ends}"
    lines = [of.to_frame("value") for _, of in values.items()]
    return {"key": _figures.legend(names), "plot": _figures.curves(lines, "accuracy", alt), "ends": ends}


def _pairs(runs: Sequence[Run], names: Sequence[str]) -> list[tuple[str, Markup, _figures.Key]]:
    """(title, plot, legend) of the pairs of views over training, as many as there are colours: of one run similarity
    and loss; of several similarity, or without it the weight, on a common scale."""
    several, found = len(runs) > 1, []
    wanted = {"cosines": "cosine similarity"} | ({"weights": "weight"} if several else {"losses": "loss"})
    for run, name in zip(runs, names):
        there = {what: run.refreshes[what] for what in wanted if len(run.refreshes.get(what, [()])[0]) > 1}
        for what, (steps, arrays) in list(there.items())[: 1 if several else None]:
            places, views = np.triu_indices(arrays.shape[1], 1), _view_names(run, arrays.shape[1])
            pairs = [f"{views[m]}, {views[n]}" for m, n in zip(*places)]
            found.append((name, wanted[what], pd.DataFrame(arrays[:, *places], steps, pairs)))
    plots = []
    for name, label, frame in found:
        same = np.concatenate([of.to_numpy().ravel() for _, other, of in found if other == label])
        common = several and len(same) > 0 and np.isfinite(same).all()
        limits = (float(same.min()), float(same.max())) if common else None
        alt = f"{label.capitalize()} of pairs of views{f' of {name}' if several else ''} over training steps"
        shown = frame.iloc[:, : len(_figures.LINES)]
        plot = _figures.curves([of.to_frame("value") for _, of in shown.items()], label, alt, limits=limits)
        plots.append((f"{name}, {label}" if several else label.capitalize(), plot, _figures.legend(shown)))
    return plots


def _view_names(run: Run, k: int) -> list[str]:
    return list(run.view_names) if len(run.view_names) == k else [f"view {i + 1}" for i in range(k)]


def _geometry(geometry: Mapping[str, Any]) -> dict[str, object]:
    """Of the embeddings at each output: a heading, a table and plots."""
    parts = []
    for name, of in geometry["outputs"].items():
        frame = pd.DataFrame(list(of["rows"].values()), list(of["rows"]))
        parts.append((f"At the {name}", _compare.of_frame(name, frame, ".4g"), _figures.geometry(of, name)))
    about = "Embeddings of each view of {examples} examples of {split} at step {step}. "
    return {"about": about.format(**geometry), "parts": parts}


def _decomposition(found: Mapping[str, Any]) -> dict[str, object]:
    """A plot of all rows, and a table of each with how it was measured."""
    tables = []
    for name, of in found["rows"].items():
        frame = of["numbers"].rename(columns=lambda column: column.replace("_", " "))
        tables.append((_compare.of_frame(name, frame, ".3f"), of["protocol"]))
    key = _figures.legend(next(iter(found["rows"].values()))["parts"])
    return {"step": found["step"], "plot": _figures.parts(found["rows"]), "key": key, "tables": tables}


def _embeddings(features: np.ndarray, labels: np.ndarray, names: Sequence[str]) -> dict[str, object]:
    try:
        points, rows = _figures.project(features)
    except ValueError as error:
        return {"error": str(error)}
    legible = math.lcm(len(_figures.LINES), len(_figures.MARKERS))
    alt = f"t-SNE plot of {len(rows)} test embeddings of {len(names)} classes"
    return {
        "plot": _figures.scatter(points, labels[rows], alt),
        "key": _figures.legend(names) if len(names) <= legible else None,
        "classes": len(names),
        "legible": legible,
        "part": f"{len(rows)} of {len(labels)}" if len(rows) < len(labels) else f"All {len(labels)}",
    }


_FOLDER = PackageLoader("mvcl.report")
_TEMPLATES = Environment(loader=_FOLDER, autoescape=True, trim_blocks=True, lstrip_blocks=True)
_indented = functools.partial(json.dumps, indent=2, ensure_ascii=False)
_TEMPLATES.filters |= {"kind": kind, "short": _compare.short, "indented": _indented}
