"""The page of a study: its tables, claims and figure, and learning curves of its runs."""

import base64
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup, escape

from mvcl import _buckets, _files
from mvcl._progress import Track, duration, untracked
from mvcl.report import _curves, _figures
from mvcl.report._page import render
from mvcl.report._read import Scalars, read_scalars
from mvcl.report._study_file import check
from mvcl.report._table import NONE, Cell, Table

_ANSWERS = {"holds": 2, "does not hold": 9, "cannot tell": 5}  # colours
_REST = {"failed": "failed", "stale": "made by an older config or code (†)", "missing": "not run"}


def write_study(folder: Path, out: Path | None = None, track: Track = untracked) -> Path:
    """Write one self-contained HTML page for the folder of a study.

    Title and text, the figure, tables with intervals and the paper's values, paired differences, claims with their
    answers, curves of loss and score over training with a band over seeds, machine, versions, commit and command. The
    page loads no other files. Runs whose log is missing or damaged are listed.

    Args:
      folder: as `mvcl study` writes it: NAME.json, NAME.svg, cells/CELL/SEED.
      out: file to write, atomically; its folder is created if missing. None: study.html in the folder.
      track: reports the cells that are read.

    Returns:
      The path of the page.

    Raises:
      ValueError: there is no NAME.json, there are several, or it is damaged.
    """
    folder = _buckets.path(folder)
    file, study = _content(folder)
    missing: list[tuple[str, str, str, str]] = []
    figure = _figure(file.with_suffix(".svg"), missing)
    again = f"repeat {study['command']} --workdir {folder}"
    cells = track(study["cells"], "reading cells", len(study["cells"]), "cells")
    logs = [_logs(folder, cell, missing, again) for cell in cells]
    curves = _curves.of_seeds([list(log.values()) for log in logs], "cells")
    choices, hidden = _choices(study)
    shown = {
        "title": study["title"],
        "subtitle": f"{study['name']} · scale {study['scale']} · {len(study['cells'])} cells · {study['seeds']} seeds",
        "missing": missing,
        "about": _markdown(study["about"]),
        "state": _state(study),
        "figure": figure,
        "figure_alt": f"{study['measures'][0]['label']} of each cell with 95 % intervals; the tables have the numbers",
        "tables": _tables(study),
        "marks": _marks(study),
        "differences": _differences(study),
        "claims": _claims(study),
        "rules": list(dict.fromkeys(claim["rule"] for claim in study["claims"])),
        "curves": curves,
        "choices": choices if curves else [],
        "hidden": hidden if curves else [],
        "key": _key(study, logs),
        "provenance": _provenance(study),
    }
    out = folder / "study.html" if out is None else _buckets.path(out)
    out.parent.mkdir(parents=True, exist_ok=True)
    _files.write_whole(out, render("study.html", shown).encode(errors="replace"))
    return out


def _content(folder: Path) -> tuple[Path, dict[str, Any]]:
    """The file of the study's numbers, and its content."""
    files = sorted(folder.glob("*.json"))
    if len(files) != 1:
        named = ", ".join(file.name for file in files) or "none"
        raise ValueError(
            f"{folder} must have one .json file, that of a study, got {named}; `mvcl study NAME --workdir {folder}` "
            "writes it"
        )
    with _files.reading(files[0], "file of a study"):
        return files[0], check(_files.read_json(files[0]))


def _figure(file: Path, missing: list[tuple[str, str, str, str]]) -> str | None:
    """The figure as a data: URL; an image runs no scripts, whatever the file holds."""
    if not file.is_file():
        missing.append(("", "The figure", f"{file.name} is missing", "repeat mvcl study to write it"))
        return None
    return f"data:image/svg+xml;base64,{base64.b64encode(file.read_bytes()).decode()}"


Log = dict[str, Scalars]


def _logs(
    folder: Path, cell: Mapping[str, Any], missing: list[tuple[str, str, str, str]], remedy: str
) -> Log:
    """Seed -> log of its run; a task that is no run of the trainer has none."""
    logs = {}
    for seed, state in cell["status"].items():
        run = folder / cell["folder"] / seed
        if state in ("failed", "missing"):
            what = "; ".join(cell["reasons"][:2]) or _REST[state]
            missing.append((cell["name"], f"Seed {seed}", what, remedy))
        if not (run / "config.json").is_file():
            continue
        file = run / "metrics.jsonl"
        try:
            with _buckets.at_hand(file) as there:
                logs[seed] = read_scalars(there)
        except (OSError, ValueError) as error:
            missing.append(
                (cell["name"], f"The curves of seed {seed}", f"{file.name} cannot be read ({error})", remedy)
            )
    return logs


def _choices(
    study: Mapping[str, Any],
) -> tuple[list[tuple[str, list[tuple[str, str]]]], list[tuple[str, list[int]]]]:
    """(factor, (id of a checkbox, level)), and for each checkbox the cells that are hidden without it."""
    choices, hidden = [], []
    for f, factor in enumerate(study["factors"]):
        levels = list(dict.fromkeys(cell["factors"][factor] for cell in study["cells"]))
        if len(levels) < 2:
            continue
        ids = [(f"factor{f}-level{i}", str(level)) for i, level in enumerate(levels)]
        choices.append((factor, ids))
        for (name, _), level in zip(ids, levels):
            cells = [i for i, cell in enumerate(study["cells"]) if cell["factors"][factor] == level]
            hidden.append((name, cells))
    return choices, hidden


def _key(study: Mapping[str, Any], logs: Sequence[Log]) -> list[tuple[str, int, str, int]]:
    """(symbol, number of the colour, name, number of the cell) of the cells with curves."""
    symbols, colors = _figures.SYMBOLS, _figures.COLORS
    return [
        (symbols[i % len(symbols)], i % colors, cell["name"], i)
        for i, (cell, log) in enumerate(zip(study["cells"], logs))
        if log
    ]


def _tables(study: Mapping[str, Any]) -> list[Table]:
    """One table of all measures; with a factor as columns one for each measure."""
    if study["columns"] is not None:
        return [_table_of_levels(study, measure) for measure in study["measures"]]
    measures = study["measures"]
    rows = [
        ([str(level) for level in cell["factors"].values()], [_cell(cell, m) for m in measures])
        for cell in study["cells"]
    ]
    baselines = [
        (name, [_baseline(values, m) for m in measures]) for name, values in study["baselines"].items()
    ]
    headings = [_heading(m) for m in measures]
    return [Table("", study["factors"], headings, rows, baselines, sortable=len(rows) > 1)]


def _table_of_levels(study: Mapping[str, Any], measure: Mapping[str, Any]) -> Table:
    column = study["columns"]
    levels = list(dict.fromkeys(cell["factors"][column] for cell in study["cells"]))
    factors = [factor for factor in study["factors"] if factor != column]
    lines: dict[tuple[Any, ...], dict[Any, Cell]] = {}
    for cell in study["cells"]:
        rest = tuple(cell["factors"][factor] for factor in factors)
        lines.setdefault(rest, {})[cell["factors"][column]] = _cell(cell, measure)
    rows = [
        ([str(level) for level in rest], [line.get(level, NONE) for level in levels])
        for rest, line in lines.items()
    ]
    baselines = [
        (name, [_baseline(values, measure)] * len(levels)) for name, values in study["baselines"].items()
    ]
    headings = [f"{column} = {level}" for level in levels]
    return Table(_heading(measure), factors, headings, rows, baselines, sortable=len(rows) > 1)


def _heading(measure: Mapping[str, Any]) -> str:
    return f"{measure['label']}, %" if measure["percent"] else str(measure["label"])


def _cell(cell: Mapping[str, Any], measure: Mapping[str, Any]) -> Cell:
    name, digits = measure["name"], measure["digits"]
    text = _shown(cell["intervals"][name], digits)
    text += " †" if "stale" in cell["status"].values() else ""
    text += " ≈" if cell["separates"].get(name) is False else ""
    printed = cell["printed"].get(name)
    below = "" if printed is None else f"paper {printed:.{digits}f}"
    return Cell(text, below=below, value=cell["intervals"][name]["mean"])


def _baseline(values: Mapping[str, float], measure: Mapping[str, Any]) -> Cell:
    value = values.get(measure["name"])
    return NONE if value is None else Cell(f"{value:.{measure['digits']}f}", value=value)


def _shown(of: Mapping[str, Any], digits: int, sign: str = "") -> str:
    """A mean with its interval; of one seed the value."""
    if of["mean"] is None:
        return "not run"
    text = f"{of['mean']:{sign}.{digits}f}"
    if of["low"] is None or of["high"] is None:
        return text
    return f"{text} [{of['low']:{sign}.{digits}f}, {of['high']:{sign}.{digits}f}]"


def _marks(study: Mapping[str, Any]) -> str:
    marks = []
    if any(flag is False for cell in study["cells"] for flag in cell["separates"].values()):
        marks.append(
            "≈: not better than the untrained encoder and the raw input, so it cannot tell objectives apart."
        )
    if any("stale" in cell["status"].values() for cell in study["cells"]):
        marks.append("†: made by an older config or code.")
    return " ".join(marks)


def _differences(study: Mapping[str, Any]) -> list[tuple[str, str, str, str, int]]:
    return [
        (cell["name"], measure["label"], gap["to"], _shown(gap, measure["digits"] + 1, "+"), gap["seeds"])
        for cell in study["cells"]
        for measure in study["measures"]
        if (gap := cell["differences"].get(measure["name"])) is not None and gap["seeds"]
    ]


def _claims(study: Mapping[str, Any]) -> list[tuple[dict[str, Any], int]]:
    """Each claim with the label of its measure, and the colour of its answer."""
    labels = {measure["name"]: measure["label"] for measure in study["measures"]}
    return [
        ({**claim, "label": labels.get(claim["measure"], claim["measure"])}, _ANSWERS.get(claim["answer"], 7))
        for claim in study["claims"]
    ]


def _state(study: Mapping[str, Any]) -> str:
    """What was run, in words."""
    states = [state for cell in study["cells"] for state in cell["status"].values()]
    lacking = [f"{states.count(name)} {what}" for name, what in _REST.items() if name in states]
    done = f"{len(states) - sum(states.count(name) for name in ('failed', 'missing'))} of {len(states)} runs"
    return f"{done}{' (' + '; '.join(lacking) + ')' if lacking else ''}. Cost: {study['cost']}."


def _provenance(study: Mapping[str, Any]) -> list[tuple[str, Markup | str]]:
    versions = ", ".join(f"{name} {version}" for name, version in study["versions"].items())
    rows: list[tuple[str, Markup | str]] = [
        ("command", Markup("<code>{}</code>").format(study["command"])),
        ("run time", f"{duration(study['seconds'])}, summed over all runs"),
        ("machine", study["machine"]),
        ("commit", study["commit"]),
        ("versions", versions),
        ("date", study["date"]),
    ]
    return [(name, value) for name, value in rows if value]


def _markdown(text: str) -> Markup:
    """Paragraphs, lists, indented code, `code` and **bold**; everything else is shown as it is."""
    blocks = []
    for block in re.split(r"\n\s*\n", text.strip("\n")):
        lines = block.split("\n")
        if all(line.startswith("    ") for line in lines):
            blocks.append(Markup("<pre>{}</pre>").format("\n".join(line[4:] for line in lines)))
        elif lines[0].lstrip().startswith("- "):
            items = re.split(r"^\s*- ", block, flags=re.MULTILINE)[1:]
            blocks.append(Markup("<ul>{}</ul>").format(Markup("").join(_line(item, "li") for item in items)))
        elif block.strip():
            blocks.append(_line(block, "p"))
    return Markup("\n").join(blocks)


def _line(text: str, tag: str) -> Markup:
    safe = str(escape(" ".join(text.split())))
    safe = re.sub(r"`([^`]+)`", r"<code>\1</code>", safe)
    safe = re.sub(r"\*\*([^*]+)\*\*", r"<b>\1</b>", safe)
    return Markup(f"<{tag}>{safe}</{tag}>")
