"""Write docs/which.md and its heat maps from the numbers of the studies `which_objective` and `which_in_pictures`.

python -m docs.which
"""

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from mvcl import metrics
from mvcl.studies import _page

PAGE = Path(__file__).with_name("which.md")
STUDIES = {
    name: Path(__file__).with_name("studies") / f"{name}_small.json"
    for name in ("which_objective", "which_in_pictures")
}
MAPS = {name: Path(__file__).with_name(f"{name}.svg") for name in STUDIES}
BASELINES = ("raw inputs", "untrained", "autoencoder", "supervised")
PAIRS = "all_pairs(info_nce)"
MEANING = {
    "shared": "all views share",
    "pair": "two neighbouring views share",
    "unique": "one view alone has",
    "part": "only three views together relate",
    "synergy": "no two views tell and three do",
}
MARGIN = 0.02
"""A difference of R² that is worth another objective: ours."""
TUNED = ("temperature", "epsilon", "scale")
_HEAD = """# Which objective for which views

`python -m docs.which` makes this page from {studies}
(`mvcl study NAME --scale small`): views of known information, an encoder for each view, equal steps. It says what these
encoders kept of these data, and nothing of others.

"""
_RULES = """## How to read it

Test R² of linear probes, mean over networks; [ ] is the 95% interval. Differences are paired by network. An
objective *keeps* information if its R² is above that of the untrained encoders, *drops* it if below, each with the
whole interval, at 95% for all objectives together (Bonferroni); else the study cannot tell. An objective whose `shared`
is not above that of the untrained encoders has not learned with these steps: it is named, and not counted. `part` is
what a view needs for the synergy, `synergy` the synergy itself.

n is the number of instances that an objective compares; one that compares fewer than most is named, and not among the
best. "Tuned" is the option chosen among four values on other networks, for each kind of views, by the mean of all
factors: temperature, epsilon of M3G or scale of the sigmoid losses. Every objective has the learning rate, the width
and the steps of all others.
"""
_SHORT = """## In short

For each kind of views the objective that keeps most of what you need, with its option and its R², and that of
`{pairs}`; "or N more" are not told apart from it, and keep it too. Where the best is not told apart from `{pairs}`, or
is less than {margin} above it, the cell says `{pairs}`: it is simpler. An autoencoder of each view is named where it
was run and keeps {margin} more than the best objective, by an interval at 95% for this difference alone. The last
number of a cell is what untrained encoders have: where an objective is hardly above it, training by it is no way to
that information, and where one is below it, training loses it.

| views | networks | what all share | what one view alone has | what no two views tell and three do |
| --- | ---: | --- | --- | --- |
"""


def _line(content: dict[str, Any], views: str) -> dict[str, dict[str, Any]]:
    """Objective -> its cell, for one kind of views; of those that were run."""
    of_views = [cell for cell in content["cells"] if cell["factors"]["views"] == views and cell["seeds"]]
    return {cell["factors"]["objective"]: cell for cell in of_views}


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


def leading(content: dict[str, Any], views: str, measure: str) -> list[dict[str, Any]]:
    """The cell with the largest mean among those that have learned from as many instances as most, and those that are
    not told apart from it; empty if none measures it."""
    cells, few = _line(content, views), fewer(content, views)
    of = {
        name: cells[name]["intervals"].get(measure, {})
        for name, has in learned(content, views).items()
        if has
    }
    known = [cells[name] for name in of if of[name].get("mean") is not None]
    equal = [cell for cell in known if cell["factors"]["objective"] not in few]
    best = max(equal, key=lambda cell: cell["intervals"][measure]["mean"], default=None)
    return [cell for cell in equal if cell is best or gap(best, cell, measure, len(known)).low <= 0]


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
    measured = {m["name"] for m in content["measures"]}
    for measure in (m for m in MEANING if m in measured):
        known = [cell for cell in trained.values() if cell["intervals"][measure]["mean"] is not None]
        if not known:
            continue
        untrained = cells["untrained"]
        gaps = {cell["name"]: gap(cell, untrained, measure, len(known)) for cell in known}
        near = leading(content, views, measure)
        keep = [cell for cell in known if gaps[cell["name"]].low > 0]
        drop = [cell for cell in known if gaps[cell["name"]].high < 0]
        base = untrained["intervals"][measure]["mean"]
        text = f"**What {MEANING[measure]}** (`{measure}`; untrained {base:.2f}): "
        text += f"{len(keep)} of {len(known)} objectives keep it, {len(drop)} drop it. "
        if keep:
            text += (
                f"Best, and not told apart from the best: {_named([c for c in near if c in keep], measure)}."
            )
        lines.append(text.rstrip())
    return lines


def page(contents: dict[str, dict[str, Any]]) -> str:
    """The page of the studies that were run, by name; without any it says so."""
    links = [f"[`{name}`](studies/{name}_small.md)" if name in contents else f"`{name}`" for name in STUDIES]
    head = _HEAD.format(studies=" and ".join(links))
    if not contents:
        return head + "**Not run.**\n"
    parts = [head + _RULES]
    for name, content in contents.items():
        networks = max(len(cell["seeds"]) for cell in content["cells"])
        parts += [
            f"## {content['title']}",
            "",
            f"![Heat map of objectives, factors and views]({name}.svg)",
            "",
            f"{networks} networks of each objective.",
            "",
        ]
        every = dict.fromkeys(cell["factors"]["objective"] for cell in content["cells"])
        for views in _kinds(content):
            parts += [f"### {_heading(views)}", ""]
            parts += [f"- {text}" for text in sentences(content, views)]
            planned = {c["factors"]["objective"] for c in content["cells"] if c["factors"]["views"] == views}
            for what, labels in (
                ("Not for these views", every.keys() - planned),
                ("Not run", _absent(content, views)),
            ):
                if labels:
                    parts += ["", f"{what}: {', '.join(f'`{label}`' for label in sorted(labels))}."]
            parts += ["", *_table(content, views), ""]
    rows = [
        f"| {_heading(views)}{f' ({len(absent)} not run)' if absent else ''} | "
        + f"{len(_line(content, views)['untrained']['seeds'])} | "
        + " | ".join(_advice(content, views, m) for m in ("shared", "unique", "synergy"))
        + " |"
        for content in contents.values()
        for views in _kinds(content)
        for absent in [_absent(content, views)]
    ]
    return "\n".join([*parts, _SHORT.format(pairs=PAIRS, margin=MARGIN) + "\n".join(rows), ""])


def _kinds(content: dict[str, Any]) -> list[str]:
    """The kinds of views of which the untrained encoders were run, with which all others are compared."""
    untrained = [cell for cell in content["cells"] if cell["factors"]["objective"] == "untrained"]
    return [cell["factors"]["views"] for cell in untrained if cell["seeds"]]


def _absent(content: dict[str, Any], views: str) -> set[str]:
    """The objectives of the study that were not run on these views."""
    of_views = (cell for cell in content["cells"] if cell["factors"]["views"] == views)
    return {cell["factors"]["objective"] for cell in of_views if not cell["seeds"]}


def _heading(views: str) -> str:
    return views if views.startswith("k =") else views[0].upper() + views[1:]


def measures(content: dict[str, Any]) -> list[str]:
    """What the page shows: the kinds of factors, and of pictures the factors themselves."""
    known = [m["name"] for m in content["measures"]]
    return [m for m in known if m not in TUNED and ", " not in m]


def _table(content: dict[str, Any], views: str) -> list[str]:
    """Lines of the table of one kind of views."""
    cells = _line(content, views)
    shown = [
        m for m in measures(content) if any(c["intervals"][m]["mean"] is not None for c in cells.values())
    ]
    lines = ["| objective | n | tuned | " + " | ".join(shown) + " |"]
    lines.append("| --- | ---: | --- |" + " ---: |" * len(shown))
    for name, cell in cells.items():
        values = " | ".join(_value(cell["intervals"][m]) for m in shown)
        lines.append(f"| {name} | {cell.get('instances') or ''} | {_tuned(cell)} | {values} |")
    return lines


def _tuned(cell: dict[str, Any]) -> str:
    """The options that were chosen for a cell."""
    means = {option: cell["intervals"].get(option, {}).get("mean") for option in TUNED}
    return ", ".join(f"{option} {mean:g}" for option, mean in means.items() if mean is not None)


def _advice(content: dict[str, Any], views: str, measure: str) -> str:
    """A cell of the last table: the best objective that keeps it, InfoNCE of pairs, an autoencoder that keeps more, and
    the untrained encoders."""
    cells, near = _line(content, views), leading(content, views, measure)
    if not near:
        return ""

    def mean(cell: dict[str, Any]) -> float:
        return float(cell["intervals"][measure]["mean"])

    count = sum(learned(content, views).values())
    near = [cell for cell in near if gap(cell, cells["untrained"], measure, count).low > 0]
    best, pairs = max(near, key=mean, default=None), cells.get(PAIRS)

    def said(cell: dict[str, Any]) -> str:
        option = _tuned(cell)
        return f"`{cell['factors']['objective']}`{f' ({option})' if option else ''} {mean(cell):.2f}"

    beside = [said(pairs)] if pairs else []  # it may not have been run
    if best is None:
        told = ["none keeps it"]
    elif pairs and (pairs in near or mean(best) < mean(pairs) + MARGIN):
        best, told = pairs, beside
    else:
        more = f" or {len(near) - 1} more" if len(near) > 1 else ""
        told = [f"{said(best)}{more}", *beside]
    if other := cells.get("autoencoder"):
        than = best or cells["untrained"]
        if mean(other) > mean(than) + MARGIN and gap(other, than, measure).low > 0:
            told.append(f"autoencoder {mean(other):.2f}")
    return "; ".join([*told, f"untrained {mean(cells['untrained']):.2f}"])


def _value(of: dict[str, Any]) -> str:
    if of["mean"] is None:
        return ""
    return (
        f"{of['mean']:.2f}" if of["low"] is None else f"{of['mean']:.2f} [{of['low']:.2f}, {of['high']:.2f}]"
    )


def published() -> dict[str, dict[str, Any]]:
    """Study -> its published numbers, of those that were run."""
    return {name: json.loads(file.read_text()) for name, file in STUDIES.items() if file.is_file()}


def main() -> None:
    """Write the page and the heat maps."""
    contents = published()
    PAGE.write_text(page(contents), encoding="utf-8")
    for name, content in contents.items():
        _page.heat_map(content, MAPS[name], measures(content))


if __name__ == "__main__":
    main()
