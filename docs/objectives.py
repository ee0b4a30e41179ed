"""Writes the parts of docs/reference/objectives.md and losses.md that follow from docstrings and declarations.

    python -m docs.objectives

They stand between lines `<!-- KIND -->` and `<!-- end -->`; all else on the pages is written by hand.
"""

import dataclasses
import inspect
import re
from collections.abc import Callable, Iterable
from pathlib import Path

import jax

from mvcl import losses

FOLDER = Path(__file__).parent
PAGE = FOLDER / "reference" / "objectives.md"
NAMES = FOLDER / "reference" / "losses.md"
# The arguments that the docstring of `mvcl.losses` explains, beside `temperature`; the table has a column for each.
COMMON = ("normalize", "mask", "extra_negatives", "axis_name", "block_size")
Loss = Callable[..., jax.Array]


@dataclasses.dataclass(frozen=True)
class Parts:
    """A docstring: what comes before its sections, and those sections by name."""

    summary: str
    formula: str
    text: list[str]
    sections: dict[str, str]


def parts(function: Callable[..., object]) -> Parts:
    """Reads a docstring: a sentence, the formula as an indented block, text with the source, Args, Returns.

    Raises:
      ValueError: a part is missing.
    """
    name, text = function.__name__, inspect.getdoc(function) or ""
    head, *rest = re.split(r"^(Args|Returns|Raises):\n", text, flags=re.MULTILINE)
    sections = dict(zip(rest[::2], rest[1::2]))
    summary, *blocks = [block for block in head.rstrip().split("\n\n") if block.strip()]
    formulas = [block for block in blocks if block.startswith("    ")]
    prose = [" ".join(block.split()) for block in blocks if not block.startswith("    ")]
    found = {
        "a formula, an indented block": formulas,
        "a source with its year": re.search(r"\b(19|20)\d\d\b", " ".join(prose)),
        "its cost, 'Cost: ...'": any(block.startswith("Cost: ") for block in prose),
        **{f"{section}:": sections.get(section) for section in ("Args", "Returns")},
    }
    missing = [part for part, there in found.items() if not there]
    if missing:
        raise ValueError(f"the docstring of {name} must have {', '.join(missing)}")
    return Parts(" ".join(summary.split()), inspect.cleandoc("\n" + "\n".join(formulas)), prose, sections)


def kinds() -> dict[str, dict[str, Loss]]:
    """The objectives by the part of the page that describes them."""
    made = losses.higher_order_functions()
    found = {operands.name.lower(): {} for operands in losses.Operands} | {"higher_order": made}
    for name, function in losses.objectives().items():
        if name not in made:
            found[losses.takes(function).operands.name.lower()][name] = function
    return found


def signature(function: Callable[..., object]) -> str:
    """Its parameters without those that nearly all objectives have."""
    parameters = [p for p in inspect.signature(function).parameters.values() if p.name not in COMMON]
    shown = [p.name if p.default is p.empty else f"{p.name}={p.default!r}" for p in parameters]
    named = [p.kind is p.KEYWORD_ONLY for p in parameters]
    if any(named):
        shown.insert(named.index(True), "*")
    return f"{function.__name__}({', '.join(shown)})"


def described(functions: Iterable[Loss]) -> str:
    """A section for each: signature, picture, summary, formula, text."""
    lines = []
    for function in functions:
        p = parts(function)
        lines += [f"### `{function.__name__}`", "", f"`{signature(function)}`", ""]
        if (FOLDER / "pictures" / f"{function.__name__}.png").exists():
            lines += [f"![{function.__name__}](../pictures/{function.__name__}.png)", ""]
        lines += [p.summary, "", "```text", p.formula, "```", ""]
        lines += [line for block in p.text for line in (block, "")]
        lines += ["Returns: " + " ".join(p.sections["Returns"].split()), ""]
    return "\n".join(lines)


def table() -> str:
    """What each objective takes of the common options."""
    lines = [f"| objective | {' | '.join(COMMON)} | other |", "| --- |" + " --- |" * (len(COMMON) + 1)]
    for kind, functions in kinds().items():
        for name, function in {} if kind == "higher_order" else functions.items():
            takes = losses.takes(function)
            declared = {
                "normalize": takes.normalize,
                "mask": takes.mask,
                "extra_negatives": takes.queue == "extra_negatives",
                "axis_name": takes.axis_name,
                "block_size": takes.block_size,
            }
            cells = ["yes" if declared[option] else "" for option in COMMON]
            other = ["`key`"] if takes.key else []
            other += ["`global_views`"] if takes.global_views else []
            other += [f"`{takes.queue}`"] if takes.queue and not declared["extra_negatives"] else []
            lines.append(f"| [`{name}`](#{name}) | {' | '.join(cells)} | {', '.join(other)} |")
    return "\n".join(lines) + "\n"


def pages() -> dict[Path, str]:
    """Both pages with their generated parts written anew."""
    from docs import reference  # which needs sphinx; `written` does not, nor the benchmarks that use it

    of_page = {kind: described(functions.values()) for kind, functions in kinds().items()} | {
        "table": table()
    }
    of_names = {kind: reference.block("losses", functions) for kind, functions in kinds().items()}
    return {PAGE: written(PAGE, of_page), NAMES: written(NAMES, of_names)}


def written(page: Path, generated: dict[str, str]) -> str:
    """The text of a page with these parts.

    Raises:
      ValueError: a part's place is not there, or there are two.
    """
    text = page.read_text(encoding="utf-8")
    for kind, new in generated.items():
        pattern = rf"(<!-- {kind} -->\n).*?(<!-- end -->)"
        text, count = re.subn(pattern, lambda m, new=new: f"{m[1]}\n{new}\n{m[2]}", text, flags=re.DOTALL)
        if count != 1:
            raise ValueError(f"{page.name} must have one part '<!-- {kind} -->', got {count}")
    return text


def main() -> None:
    for page, text in pages().items():
        page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
