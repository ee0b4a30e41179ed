"""The page of a study: Markdown from its numbers."""

import math
from collections.abc import Sequence
from textwrap import dedent
from typing import Any

from mvcl import _progress
from mvcl.studies._figures import heading

_UNTRAINED = (
    "Comparisons with these cells decide nothing: in the measure, or in all accuracies, they are not above both the "
    "untrained encoder and the raw input (paired 95% intervals), or the loss of their last epoch is not below the "
    "chance level by 1% of that and one nat or, of runs that log no level, differs by less than 1% from that of the "
    "first."
)
_RULES = (
    "What follows is of one comparison. One that neither holds nor fails is equal within the margin where its interval "
    "lies within ± margin, else open. A claim of several does not hold if one does not; else it cannot be told if one "
    "is open; else it is equal within the margin if one is; else it holds."
)
_HALF_WIDTH = "± is the half-width of a 95% interval."
_NOT_ABOVE = (
    "≈: not better than the untrained encoder and the raw input (the paired 95% interval to the better of them reaches "
    "0), so this value cannot tell objectives apart."
)


def page(content: dict[str, Any], figure: str) -> str:
    """Markdown of all tables of the content that `numbers` returns; `figure` is the file of the figure."""
    done = any(cell["seeds"] for cell in content["cells"])
    about = content["about"].strip().split("\n\n")
    parts = [
        f"# {content['title']}",
        f"```sh\n{content['command']}\n```",
        # indented paragraphs, formulas, are blocks with a language
        *(f"```text\n{dedent(part)}\n```" if part.startswith("    ") else part for part in about),
        content.get("unequal", ""),
        _state(content),
        f"![{content['measures'][0]['label']} of each cell, with 95% intervals]({figure})" if done else "",
        f"![Means, a block for each {content['columns']}]({figure.removesuffix('.svg')}_maps.svg)"
        if done and content.get("maps")
        else "",
        "Mean and 95% interval over seeds (Student's t).",
        *_tables(content),
        *_notes(content),
    ]
    if content["commit"] or content["machine"]:
        versions = ", ".join(f"{name} {version}" for name, version in content["versions"].items())
        commit = content["commit"] or "unknown"
        parts.append(f"Each run on {content['machine']}; commit {commit}; {content['date']}; {versions}.")
    return "\n\n".join(part for part in parts if part) + "\n"


def _state(content: dict[str, Any]) -> str:
    """What was run, in a paragraph."""
    states = [state for cell in content["cells"] for state in cell["status"].values()]
    scale = f"Scale `{content['scale']}`: " if content["scale"] else ""
    text = f"{scale}{len(content['cells'])} cells, seeds: {content['seeds']}."
    if states.count("missing") == len(states):
        return f"{text} **Not run.** Cost: {content['cost']}."
    ran = _progress.duration(content["seconds"])
    text += f" Cost: {content['cost']}; {ran} of run time here, summed over all runs."
    if taken := content.get("taken"):
        pages = "; ".join(f"{count} from [{page}]({page}.md)" for page, count in taken.items())
        text += f" Runs shared with other pages, with their commits and machines: {pages}."
    lacking = {
        "missing": "not run",
        "failed": "failed",
        "stale": "made by an older config or code († in the tables; `--again` runs them again)",
    }
    named = [f"{states.count(s)} of {len(states)} runs {what}" for s, what in lacking.items() if s in states]
    return f"{text} {'; '.join(named)}." if named else text


def _tables(content: dict[str, Any]) -> list[str]:
    """One table, its columns the measures; or one of each measure, its columns the levels of a factor."""
    column, cells = content["columns"], content["cells"]
    factors = [factor for factor in content["factors"] if factor != column]
    tables = []
    for measures in [content["measures"]] if column is None else [[m] for m in content["measures"]]:
        lines: dict[tuple[Any, ...], dict[str, str]] = {}
        for cell in [*cells, *content.get("printed_only", ())]:
            line = lines.setdefault(tuple(cell["factors"][factor] for factor in factors), {})
            for measure in measures:
                place = heading(measure) if column is None else f"{column} = {cell['factors'][column]}"
                line[place] = _value(cell, measure) if "intervals" in cell else ""
                if (printed := cell["printed"].get(measure["name"])) is None:
                    continue
                deviation = cell.get("deviations", {}).get(measure["name"])
                text = f"{printed}" if deviation is None else f"{printed} ± {deviation}"
                if column is None:
                    line[f"paper: {measure['label']}"] = text
                else:
                    line[place] = f"{line[place]} (paper {text})".strip()
        head = list(dict.fromkeys(heading for line in lines.values() for heading in line))
        head.sort(key=lambda heading: heading.startswith("paper: "))
        table = [[*rest, *(line.get(heading, "") for heading in head)] for rest, line in lines.items()]
        for row, known in content["baselines"].items():
            of = {heading(m): f"{known[m['name']]:.{m['digits']}f}" for m in measures if m["name"] in known}
            values = [*of.values()] * len(head) if column else [of.get(h, "") for h in head]
            if any(values) or column is None:
                table.append([row, *[""] * (len(factors) - 1), *values])
        text = _markdown([*factors, *head], table, len(factors))
        tables.append(text if column is None else f"**{heading(measures[0])}**\n\n{text}")
    return tables


def _value(cell: dict[str, Any], measure: dict[str, Any]) -> str:
    """A mean with its 95% interval and marks: "89.5 [89.1, 89.9] †"; of one seed the value."""
    of = cell["intervals"][measure["name"]]
    text = _interval(of, f".{measure['digits']}f")
    if not text and (of["seeds"] or not cell["seeds"]):  # what a cell that was run does not have stays empty
        text = "not finite" if of["seeds"] else "not run"
    marks = "†" * ("stale" in cell["status"].values()) + "≈" * (cell["separates"][measure["name"]] is False)
    return f"{text} {marks}" if marks else text


def _interval(of: dict[str, Any], digits: str) -> str:
    """The mean, and the interval where it is known; empty without a mean."""
    mean, low, high = ("" if of[end] is None else f"{of[end]:{digits}}" for end in ("mean", "low", "high"))
    return f"{mean} [{low}, {high}]" if low else mean


def _notes(content: dict[str, Any]) -> list[str]:
    """What the marks mean, what failed, the differences and the claims."""
    cells = content["cells"]
    parts = [_NOT_ABOVE] if any(False in cell["separates"].values() for cell in cells) else []
    if content.get("printed_only"):
        parts.append("Rows with the paper's numbers alone are not run here.")
    if any(cell.get("deviations") for cell in cells):
        parts.append("±: the standard deviation over runs that the paper prints.")
    for state, what in (("failed", "Failed"), ("stale", "† Stale")):
        named = [cell for cell in cells if state in cell["status"].values()]
        parts += [f"{what}: {cell['name']}: {'; '.join(cell['reasons'][:3])}" for cell in named[:10]]
    labels = {measure["name"]: measure["label"] for measure in content["measures"]}
    digits = {measure["name"]: f"+.{max(2, measure['digits'])}f" for measure in content["measures"]}
    lines = []
    for cell in cells:
        for name, gap in cell["differences"].items():
            if value := _interval(gap, digits[name]):
                lines.append([cell["name"], labels[name], gap["to"], value, gap["seeds"]])
    if lines:
        head = ["cell", "measure", "minus", "difference", "seeds"]
        parts += ["## Paired differences", "By seed, with 95% intervals.", _markdown(head, lines, 3)]
    if untrained := content["not_trained"].items():
        lines = [
            [n, "all" if {*of} == {*labels} else ", ".join(labels[m] for m in of)] for n, of in untrained
        ]
        parts += ["## Not trained", _UNTRAINED, _markdown(["cell", "measures"], lines, 2)]
    if claims := content["claims"]:
        head = ["claim", "source", "measure", "here", "decided by"]
        shown = [of | {"measure": labels[of["measure"]], "answer": f"**{of['answer']}**"} for of in claims]
        lines = [[of[x] for x in ("text", "source", "measure", "answer", "reason")] for of in shown]
        rules = "\n".join(f"- {rule}" for rule in dict.fromkeys(claim["rule"] for claim in claims))
        only = f"Those about cells with {content['only']} alone." if content.get("only") else ""
        parts += ["## Claims", only, _coverage(content), _markdown(head, lines, 5)]
        parts.append(f"{_RULES if _half_widths(content) else 'Rule:'}\n\n{rules}")
    return parts


def _coverage(content: dict[str, Any]) -> str:
    """Of the intervals of the claims, their largest half-widths and the margins, in a paragraph; empty without any."""
    n, known = content["comparisons"], _half_widths(content)
    several = f"so that all {n} comparisons of this page together are covered with 95% (Bonferroni)"
    text = f"± is the half-width of an interval at {100 - 5 / n:.4g}%, {several}." if n > 1 else _HALF_WIDTH
    why = [f" The margin of {name}: {reason}." for name, reason in content["why"].items()]
    return "".join([f"{text} Largest half-widths: {'; '.join(known)}.", *why]) if known else ""


def _half_widths(content: dict[str, Any], *, wide: bool = False) -> list[str]:
    """The largest of each measure, with its margin and the seeds that keep it; `wide`: of those above it alone."""
    found = []
    for measure in content["measures"]:
        claims = [claim for claim in content["claims"] if claim["measure"] == measure["name"]]
        half, seeds = (max((claim[of] for claim in claims), default=0) for of in ("half_width", "seeds"))
        margin = content["margins"].get(measure["name"])
        text = f"{measure['label']} {half:.3g}" + (f" (margin {margin:g}: {seeds:,} seeds)" if margin else "")
        if half > (margin or math.inf if wide else 0):
            found.append(text)
    return found


def warning(content: dict[str, Any]) -> str:
    """That half-widths are above the margin, with the seeds that would do; empty: none is."""
    found = _half_widths(content, wide=True)
    return f"warning: half-widths above the margin: {'; '.join(found)}" if found else ""


def _markdown(head: Sequence[str], lines: Sequence[Sequence[Any]], texts: int) -> str:
    """A table; the first columns are text and the others numbers."""
    rule = ["---" if column < texts else "---:" for column in range(len(head))]
    table = [[str(cell).replace("|", "\\|") for cell in line] for line in (head, rule, *lines)]
    return "\n".join(f"| {' | '.join(line)} |" for line in table)
