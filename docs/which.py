"""Write docs/which.md and its heat map from the numbers of the study `which_objective`.

python -m docs.which
"""

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from mvcl import metrics
from mvcl.studies import _figures

PAGE = Path(__file__).with_name("which.md")
NUMBERS = Path(__file__).with_name("studies") / "which_objective_small.json"
MAP = Path(__file__).with_name("which.svg")
BASELINES = ("raw inputs", "untrained", "autoencoder", "supervised")
MEANING = {
    "shared": "all views share",
    "pair": "two neighbouring views share",
    "unique": "one view alone has",
    "part": "only three views together relate",
    "synergy": "no two views tell and three do",
}
_HEAD = """# Which objective for which views

Every sentence and number below is made by `python -m docs.which` from {study},
`mvcl study which_objective --scale small`: synthetic views of known information, an MLP for each view, the same 600
steps, nothing tuned for any objective. It says what these encoders kept of these data, and nothing of others.

"""
_RULES = """
## How to read it

Test R² of linear probes, mean over {networks} networks; [ ] is the 95% interval. Differences are paired by network. An
objective *keeps* information if its R² is above that of the untrained encoders, *drops* it if below, each with the
whole interval, at 95% for all objectives together (Bonferroni); else the study cannot tell. An objective whose `shared`
is not above that of the untrained encoders has not learned with these steps: it is named, and not counted. `part` is
what a view needs for the synergy, `synergy` the synergy itself. An objective that compares fewer instances than most
is named, and not among the best.
"""


def _line(content: dict[str, Any], views: str) -> dict[str, dict[str, Any]]:
    """Objective -> its cell, for one kind of views."""
    return {c["factors"]["objective"]: c for c in content["cells"] if c["factors"]["views"] == views}


def gap(cell: dict[str, Any], other: dict[str, Any], measure: str, comparisons: int = 1) -> metrics.Interval:
    """Interval of the difference of two cells, paired by network; at 95% for so many comparisons together."""
    a, b = cell["seeds"], other["seeds"]
    paired = (a[s][measure] - b[s][measure] for s in a if s in b and measure in a[s] and measure in b[s])
    return metrics.interval(paired, 1 - 0.05 / comparisons)


def fewer(content: dict[str, Any], views: str) -> dict[str, int]:
    """Objective -> its number of instances, where it compares fewer than most do."""
    found = {name: n for name, cell in _line(content, views).items() if (n := cell.get("instances"))}
    usual = max(Counter(found.values()).most_common(1), default=(0, 0))[0]
    return {name: n for name, n in found.items() if n < usual}


def learned(content: dict[str, Any], views: str) -> dict[str, bool]:
    """Trained objective -> whether its `shared` is above that of the untrained encoders."""
    cells = _line(content, views)
    trained = {name: cell for name, cell in cells.items() if name not in BASELINES}
    untrained = cells["untrained"]
    return {name: gap(cell, untrained, "shared", len(trained)).low > 0 for name, cell in trained.items()}


def _named(cells: Iterable[dict[str, Any]], measure: str) -> str:
    found = sorted(cells, key=lambda cell: -cell["intervals"][measure]["mean"])
    return ", ".join(
        f"`{cell['factors']['objective']}` {cell['intervals'][measure]['mean']:.2f}" for cell in found
    )


def sentences(content: dict[str, Any], views: str) -> list[str]:
    """For one kind of views and each factor: who is best, who keeps and who drops it."""
    cells = _line(content, views)
    has_learned = learned(content, views)
    trained = {name: cells[name] for name, has in has_learned.items() if has}
    lines = []
    if idle := [f"`{name}`" for name, has in has_learned.items() if not has]:
        lines.append(f"Not above the untrained encoders in `shared`, and not counted: {', '.join(idle)}.")
    if few := fewer(content, views):
        named = ", ".join(f"`{name}` {n}" for name, n in few.items())
        lines.append(f"Compare fewer instances than the others, and are not among the best: {named}.")
    for measure, meaning in MEANING.items():
        known = [cell for cell in trained.values() if cell["intervals"][measure]["mean"] is not None]
        if not known:
            continue
        untrained = cells["untrained"]
        gaps = {cell["name"]: gap(cell, untrained, measure, len(known)) for cell in known}
        equal = [cell for cell in known if cell["factors"]["objective"] not in few]
        best = max(equal, key=lambda cell: cell["intervals"][measure]["mean"], default=None)
        near = [cell for cell in equal if cell is best or gap(best, cell, measure, len(known)).low <= 0]
        keep = [cell for cell in known if gaps[cell["name"]].low > 0]
        drop = [cell for cell in known if gaps[cell["name"]].high < 0]
        base = untrained["intervals"][measure]["mean"]
        text = f"**What {meaning}** (`{measure}`; untrained {base:.2f}): "
        text += f"{len(keep)} of {len(known)} objectives keep it, {len(drop)} drop it. "
        if keep:
            text += (
                f"Best, and not told apart from the best: {_named([c for c in near if c in keep], measure)}."
            )
        lines.append(text.rstrip())
    return lines


def page(content: dict[str, Any] | None) -> str:
    """The page; without numbers it says that the study was not run."""
    if content is None:
        return _HEAD.format(study="the study") + "**Not run.**\n"
    parts = [
        _HEAD.format(study="[the study](studies/which_objective_small.md)")
        + "![Heat map of all objectives, factors and kinds of views](which.svg)",
        "",
    ]
    networks = max(len(cell["seeds"]) for cell in content["cells"])
    parts.append(_RULES.format(networks=networks))
    kinds = list(dict.fromkeys(cell["factors"]["views"] for cell in content["cells"]))
    every = dict.fromkeys(cell["factors"]["objective"] for cell in content["cells"])
    for views in kinds:
        cells = _line(content, views)
        parts += [f"## {views if views.startswith('k =') else views[0].upper() + views[1:]}", ""]
        parts += [line for text in sentences(content, views) for line in (f"- {text}",)]
        lacking = [f"`{name}`" for name in every if name not in cells]
        if lacking:
            parts += ["", f"Not for these views: {', '.join(lacking)}."]
        measures = [m for m in MEANING if any(c["intervals"][m]["mean"] is not None for c in cells.values())]
        parts += ["", "| objective | " + " | ".join(measures) + " |"]
        parts.append("| --- |" + " ---: |" * len(measures))
        for name, cell in cells.items():
            parts.append(f"| {name} | " + " | ".join(_value(cell["intervals"][m]) for m in measures) + " |")
        parts.append("")
    return "\n".join(parts)


def _value(of: dict[str, Any]) -> str:
    if of["mean"] is None:
        return ""
    return (
        f"{of['mean']:.2f}" if of["low"] is None else f"{of['mean']:.2f} [{of['low']:.2f}, {of['high']:.2f}]"
    )


def main() -> None:
    """Write the page and the heat map."""
    content = json.loads(NUMBERS.read_text()) if NUMBERS.is_file() else None
    PAGE.write_text(page(content), encoding="utf-8")
    if content is not None:
        _figures.heat_map(content, MAP, [*MEANING])


if __name__ == "__main__":
    main()
