"""The page: runs in, HTML out. Everything that comes from a file is escaped on its way."""

import html
import json
import math
import os
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mvcl import metrics
from mvcl.report import _figures
from mvcl.report._read import Run, differences, number, read_run
from mvcl.report._style import STYLE

CURVES = (
    ("loss", "Loss", "loss"),
    ("knn", "k-NN accuracy", "accuracy"),
    ("effective_rank", "Effective rank", "dimensions"),
    ("learning_rate", "Learning rate", "learning rate"),
    ("views_per_second", "Throughput", "views per second"),
    ("gradient_norm", "Gradient norm", "norm"),
)
EXAMPLES = 8  # rows of the grid of views
MATRICES = 6  # weights of the views that are shown: the first, the last, and some between


def write_report(run_dirs: Sequence[Path], out: Path) -> Path:
    """Writes one self-contained HTML page on one run, or comparing several.

    One run: configuration, curves (the loss beside its chance level), evaluation table with protocols, views of
    a few examples and a t-SNE picture of the test embeddings. Several: the fields in which the configurations
    differ, the curves overlaid and the evaluation tables side by side. The page has no scripts and fetches
    nothing; what a run folder lacks is named with the command that makes it.

    Args:
      run_dirs: run folders as `mvcl train` writes them: config.json, metrics.jsonl, evaluation.json, views.npz,
        embeddings.npz, each of which may be missing or damaged.
      out: file to write; its folder is made if need be, and an old file is replaced in one go.

    Returns:
      `out`.

    Raises:
      ValueError: there are no run folders, or one of them is not a folder.
    """
    if not run_dirs:
        raise ValueError("run_dirs must name at least one run folder, got none")
    runs = [read_run(Path(path)) for path in run_dirs]
    text = _one(runs[0]) if len(runs) == 1 else _several(runs)
    out = Path(out)
    out.parent.mkdir(parents=True, exist_ok=True)
    partial = out.with_name(f".{out.name}.{os.getpid()}")
    try:
        partial.write_text(text, encoding="utf-8", errors="replace")
        partial.replace(out)
    finally:
        partial.unlink(missing_ok=True)
    return out


def _one(run: Run) -> str:
    name = run.path.resolve().name
    sections = [
        _tiles(run),
        _missing([run], [name]),
        _section("Evaluation", _tables([run], [name])),
        _section("Curves", _curves([run], [name])),
        _section("Views", _views(run)),
        _section("Pairs of views", _weights(run)),
        _section("Each view over time", _view_accuracies(run)),
        _section("Test embeddings", _embeddings(run)),
        _section("Configuration", _config(run)),
    ]
    return _document(name, _subtitle(run), sections)


def _several(runs: list[Run]) -> str:
    names = [run.path.resolve().name for run in runs]
    if len(set(names)) < len(names):
        names = [str(run.path) for run in runs]
    sections = [
        _missing(runs, names),
        _section("Runs", _differences(runs, names)),
        _section("Evaluation", _tables(runs, names)),
        _section("Curves", _curves(runs, names)),
        _section(
            "Configurations", "".join(_fold(n, run.config) for n, run in zip(names, runs) if run.config)
        ),
    ]
    return _document(f"{len(runs)} runs", ", ".join(names), sections)


def _document(title: str, subtitle: str, sections: Sequence[str]) -> str:
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        # Nothing is fetched and nothing runs, whatever a class name or a path says.
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; img-src data:; '
        "style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'\">\n"
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n<link rel="icon" href="data:,">\n'
        f"<title>{_text(title)} · mvcl</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n"
        f"<header><h1>{_text(title)}</h1><p>{_text(subtitle)}</p></header>\n"
        + "\n".join(section for section in sections if section)
        + "\n</main>\n</body>\n</html>\n"
    )


def _section(title: str, content: str) -> str:
    return f"<section><h2>{title}</h2>\n{content}\n</section>" if content else ""


def _subtitle(run: Run) -> str:
    config = run.config or {}
    parts = []
    for key in ("data", "encoder", "objective", "method"):
        value = config.get(key)
        if key == "encoder" and run.looks:
            continue  # such a method has encoders of its own
        if isinstance(value, Mapping) and "_type" in value:
            parts.append(str(value.get("name") or value["_type"]))
    views = config.get("views")
    if isinstance(views, Mapping) and "k" in views:
        parts.append(f"{views['k']} views")
    if run.scalars:
        parts.append(f"step {max(run.scalars)}")
    return " · ".join(parts) or str(run.path)


def _tiles(run: Run) -> str:
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
    cells = "".join(
        f"<div><dt>{_text(name)}</dt><dd>{_text(value)}</dd><small>{_text(beside)}</small></div>"
        for name, value, beside in tiles
    )
    return f'<dl class="tiles">{cells}</dl>' if cells else ""


def _missing(runs: Sequence[Run], names: Sequence[str]) -> str:
    items = []
    for run, name in zip(runs, names):
        whose = f"<b>{_text(name)}</b>: " if len(runs) > 1 else ""
        for lacks, why, remedy in run.missing:
            if len(runs) > 1 and lacks.startswith("The picture"):
                continue  # a comparison shows no pictures
            items.append(f"<li>{whose}{_text(lacks)}: {_text(why)}; {_text(remedy)}.</li>")
    return f'<aside class="missing"><h2>Not here</h2><ul>{"".join(items)}</ul></aside>' if items else ""


def _tables(runs: Sequence[Run], names: Sequence[str]) -> str:
    tables = []
    protocols: dict[str, dict[str, list[str]]] = {}
    for run, name in zip(runs, names):
        if not run.evaluation:
            continue
        columns = list(dict.fromkeys(c for results in run.evaluation.values() for c in results))
        head = "".join(f'<th scope="col">{_text(column)}</th>' for column in columns)
        body = ""
        for row, results in run.evaluation.items():
            cells = "".join(f"<td>{_cell(results.get(column))}</td>" for column in columns)
            body += f'<tr><th scope="row">{_text(row)}</th>{cells}</tr>'
            for column, result in results.items():
                where = f"{name}, {row}" if len(runs) > 1 else row
                protocols.setdefault(column, {}).setdefault(result.protocol, []).append(where)
        step = "" if run.evaluation_step is None else f" at step {run.evaluation_step}"
        caption = f"{_text(name)}{step}" if len(runs) > 1 else f"Measured{step}"
        tables.append(
            f'<div class="scroll"><table class="numbers"><caption>{caption}</caption>'
            f"<thead><tr><td></td>{head}</tr></thead><tbody>{body}</tbody></table></div>"
        )
    if not tables:
        return ""
    together: dict[tuple[str, str], list[str]] = {}  # columns that were measured alike share a line
    for column, by_protocol in protocols.items():
        for protocol, whose in by_protocol.items():
            only = "" if len(by_protocol) == 1 else f" ({'; '.join(whose)})"
            together.setdefault((protocol, only), []).append(column)
    notes = "".join(
        f"<dt>{_text(', '.join(columns) + only)}</dt><dd>{_text(protocol)}</dd>"
        for (protocol, only), columns in together.items()
    )
    return f'<div class="tables">{"".join(tables)}</div><dl class="protocols">{notes}</dl>'


def _cell(result: Any) -> str:
    if result is None or result.value is None:
        return "–"
    spread = "" if result.deviation is None else f" <small>± {result.deviation:.3f}</small>"
    return f"{result.value:.3f}{spread}"


def _curves(runs: Sequence[Run], names: Sequence[str]) -> str:
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
        figures.append(f"<figure>{plot}<figcaption><b>{title}</b>: {_text(note)}</figcaption></figure>")
    if not figures:
        return ""
    legend = _legend(names, lines=True) if len(runs) > 1 else ""
    return f'{legend}<div class="plots">{"".join(figures)}</div>'


def _series(run: Run, key: str) -> tuple[np.ndarray, np.ndarray]:
    found = [(step, values[key]) for step, values in run.scalars.items() if key in values]
    steps, values = np.array(found, float).reshape(-1, 2).T
    return steps, np.where(np.isfinite(values), values, np.nan)


def _last(run: Run, key: str) -> float | None:
    _, values = _series(run, key)
    finite = values[np.isfinite(values)]
    return float(finite[-1]) if len(finite) else None


def _legend(names: Sequence[str], *, lines: bool = False) -> str:
    items = ""
    for i, name in enumerate(names):
        symbol = _figures.SYMBOLS[i % len(_figures.SYMBOLS)]
        mark = f"━{symbol}━" if lines else symbol
        color = f"var(--s{i % _figures.COLORS})"
        items += f'<li><span aria-hidden="true" style="color:{color}">{mark}</span> {_text(name)}</li>'
    return f'<ul class="legend">{items}</ul>'


def _views(run: Run) -> str:
    if run.views is None:
        return ""
    data, k = run.views, run.views.views.shape[1]
    head = "".join(f'<th scope="col">view {j + 1}</th>' for j in range(k))
    body = ""
    for i, name in enumerate(data.names[:EXAMPLES]):
        cells = f"<td>{_figures.photo(data.images[i], f'original, example {i + 1}, {name}')}</td>"
        for j in range(k):
            cells += (
                f"<td>{_figures.photo(data.views[i, j], f'view {j + 1} of example {i + 1}, {name}')}</td>"
            )
        body += f'<tr><th scope="row">{_text(name)}</th>{cells}</tr>'
    return (
        f"<p>What the encoder sees: each row is one example, first as it is and then its {k} views.</p>"
        f'<div class="scroll"><table class="views"><thead><tr><td></td><th scope="col">original</th>{head}</tr>'
        f"</thead><tbody>{body}</tbody></table></div>"
    )


def _weights(run: Run) -> str:
    """The (k, k) weights of the pairs of views, one table for each time they were taken."""
    taken = [look for look in run.looks if look.weights is not None]
    if not taken:
        return ""
    shown = [
        taken[i]
        for i in sorted({round(x) for x in np.linspace(0, len(taken) - 1, min(len(taken), MATRICES))})
    ]
    largest = max(float(np.max(look.weights)) for look in shown if look.weights is not None)
    tables = ""
    for look in shown:
        assert look.weights is not None
        names = _view_labels(run, len(look.weights))
        head = "".join(f'<th scope="col">{_text(name)}</th>' for name in names)
        body = ""
        for name, row in zip(names, look.weights):
            shades = [f"{60 * max(float(w), 0) / max(largest, 1e-9):.0f}%" for w in row]
            cells = "".join(
                f'<td style="background: color-mix(in srgb, var(--s0) {shade}, transparent)">{float(w):.3f}</td>'
                for shade, w in zip(shades, row)
            )
            body += f'<tr><th scope="row">{_text(name)}</th>{cells}</tr>'
        tables += (
            f'<div class="scroll"><table class="numbers"><caption>from step {look.step}</caption>'
            f"<thead><tr><td></td>{head}</tr></thead><tbody>{body}</tbody></table></div>"
        )
    part = "" if len(shown) == len(taken) else f" {len(shown)} of {len(taken)} times are shown."
    return (
        f"<p>How much a pair of views counts: the more two views share, the more they are drawn together.{part}</p>"
        f'<div class="tables">{tables}</div>'
    )


def _view_accuracies(run: Run) -> str:
    """Clustering accuracy of each view by itself, over training."""
    looks = [look for look in run.looks if look.clusters is not None]
    if run.embeddings is None or len(looks) < 2:
        return ""
    labels = run.embeddings.labels
    if len(set(labels.tolist())) < 2 or any(
        np.asarray(look.clusters).shape[1] != len(labels) for look in looks
    ):
        return ""  # the embeddings are those of other examples
    steps = np.array([look.step for look in looks], float)
    values = np.array([[_accuracy(labels, view) for view in np.asarray(look.clusters)] for look in looks])
    names = _view_labels(run, values.shape[1])
    series = [(steps, column) for column in values.T]
    ends = ", ".join(
        f"{name} {first:.3f} to {last:.3f}" for name, first, last in zip(names, values[0], values[-1])
    )
    plot = _figures.curves(
        series, [], "accuracy", f"Clustering accuracy of each view over training steps; {ends}"
    )
    return (
        f'{_legend(names, lines=True)}<div class="plots"><figure style="max-width: 560px">{plot}<figcaption>'
        f"<b>Clustering accuracy</b> of each view by itself: {_text(ends)}. A falling curve is a view that the others "
        "drag down.</figcaption></figure></div>"
    )


def _accuracy(labels: np.ndarray, clusters: np.ndarray) -> float:
    here = clusters >= 0
    return metrics.clustering_accuracy(labels[here], clusters[here]) if here.any() else float("nan")


def _view_labels(run: Run, k: int) -> list[str]:
    return run.view_names if len(run.view_names) == k else [f"view {i + 1}" for i in range(k)]


def _embeddings(run: Run) -> str:
    if run.embeddings is None:
        return ""
    data = run.embeddings
    try:
        points, rows = _figures.project(data.features)
    except ValueError as error:
        return f"<p>No picture: {_text(error)}.</p>"
    classes = len(data.class_names)
    total = len(data.features)
    plot = _figures.scatter(
        points,
        data.labels[rows],
        classes,
        f"t-SNE picture of {len(rows)} test embeddings of {classes} classes",
    )
    legible = math.lcm(_figures.COLORS, len(_figures.MARKERS))
    legend = (
        _legend(data.class_names)
        if classes <= legible
        else f"<p>{classes} classes share {legible} pairs of colour and shape, so there is no key.</p>"
    )
    part = f"{len(rows)} of {total}" if len(rows) < total else f"All {total}"
    return (
        f'<figure class="map">{plot}<figcaption>{legend}<p>{part} test embeddings, scaled to unit length, reduced '
        "by PCA to at most 50 dimensions and by t-SNE to 2. Who is next to whom means something; distances "
        "between groups and their sizes do not.</p></figcaption></figure>"
    )


def _config(run: Run) -> str:
    if run.config is None:
        return ""
    rows = ""
    for key, value in run.config.items():
        if key == "_type":
            continue
        if isinstance(value, Mapping):
            parts = [f"<b>{_text(value['_type'])}</b>"] if "_type" in value else []
            parts += [
                f"<span>{_text(name)} <code>{_text(_short(field))}</code></span>"
                for name, field in value.items()
                if name != "_type"
            ]
            shown = " ".join(parts)
        else:
            shown = f"<code>{_text(_short(value))}</code>"
        rows += f'<tr><th scope="row">{_text(key)}</th><td>{shown}</td></tr>'
    return f'<table class="config"><tbody>{rows}</tbody></table>' + _fold(
        "The whole configuration", run.config
    )


def _short(value: Any) -> str:
    """A value on one line: an object by its class name, a long one cut."""
    if isinstance(value, Mapping):
        return str(value.get("_type", "{…}"))
    if isinstance(value, list):
        return "[" + ", ".join(_short(item) for item in value[:8]) + (", …]" if len(value) > 8 else "]")
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= 60 else text[:59] + "…"


def _fold(title: str, config: Mapping[str, Any] | None) -> str:
    text = json.dumps(config, indent=2, ensure_ascii=False)
    return f"<details><summary>{_text(title)}</summary><pre>{_text(text)}</pre></details>"


def _differences(runs: Sequence[Run], names: Sequence[str]) -> str:
    different = differences([run.config for run in runs])
    if not different:
        return "<p>The configurations are equal.</p>"
    head = "".join(f'<th scope="col">{_text(name)}</th>' for name in names)
    body = ""
    for name, values in different.items():
        cells = "".join(
            f"<td>{'–' if value is ... else f'<code>{_text(_short(value))}</code>'}</td>" for value in values
        )
        body += f'<tr><th scope="row"><code>{_text(name)}</code></th>{cells}</tr>'
    return (
        "<p>Fields in which the configurations differ:</p>"
        f'<div class="scroll"><table class="config"><thead><tr><td></td>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def _text(value: Any) -> str:
    return html.escape(str(value))
