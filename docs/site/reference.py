"""What pages of the reference hold that is made from the package: `{api}`, `{commands}` and `{choices}` blocks.

    ```{api} mvcl.losses
    mv_dhel, mv_infonce
    ```

is a table of the names, each with the first sentence of its docstring, and the docstrings.
"""

import contextlib
import dataclasses
import importlib
import inspect
import io
import os
import re
import types
from collections.abc import Sequence
from unittest import mock

from mvcl import cli
from mvcl.training import CHOICES

PACKAGES = (
    "losses",
    "transport",
    "metrics",
    "augment",
    "data",
    "models",
    "methods",
    "evaluation",
    "training",
    "report",
    "studies",
)

COMMANDS = (
    ("train", "digits"),
    ("evaluate",),
    ("finetune",),
    ("embed",),
    ("geometry",),
    ("report",),
    ("study", "digits"),
    ("export",),
    ("configs",),
    ("data", "prepare"),
    ("data", "prepare", "domainnet"),
    ("data", "prepare", "eeg"),
    ("data", "prepare", "sentiment"),
    ("data", "prepare", "transfer"),
)


def public(package: str) -> list[str]:
    """The public names of a package of mvcl: `__all__`, or all that it imports by name."""
    module = importlib.import_module(f"mvcl.{package}")
    shown = getattr(module, "__all__", None)
    if shown is not None:
        return sorted(shown)
    return sorted(
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and not isinstance(value, types.ModuleType)
    )


def directive(value: object) -> list[str]:
    """The kind of directive that describes a value, with its options."""
    if inspect.isclass(value):
        return ["autoclass", "   :members:"]
    if inspect.isroutine(value):
        return ["autofunction"]
    return ["autodata", *([] if isinstance(value, tuple | str) else ["   :no-value:"])]


def api(match: re.Match[str]) -> str:
    """The block as reStructuredText within Markdown."""
    module, names = match[1], match[2].replace(",", " ").split()
    here = importlib.import_module(module)
    gone = sorted(set(names) - set(dir(here)))
    if gone:
        raise ValueError(
            f"docs/reference/{module.removeprefix('mvcl.')}.md names {', '.join(gone)}, not in {module}"
        )
    lines = ["```{eval-rst}", f".. currentmodule:: {module}", ""]
    lines += [".. autosummary::", "   :nosignatures:", "", *(f"   {name}" for name in names), ""]
    for name in names:
        kind, *options = directive(getattr(here, name))
        lines += [f".. {kind}:: {name}", *options, ""]
    return "\n".join([*lines, "```"])


@dataclasses.dataclass(frozen=True)
class Help:
    """What `mvcl ... --help` prints: usage, the lines above the options, and options and a text by section."""

    usage: str
    head: str
    sections: dict[str, dict[str, str]]
    notes: dict[str, str]


def printed(arguments: Sequence[str]) -> str:
    """What a command prints with --help."""
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")  # tyro draws boxes where the encoding has them
    with mock.patch.dict(os.environ, COLUMNS="110"), contextlib.redirect_stdout(out):
        try:
            cli.main([*arguments, "--help"])
        except SystemExit as end:
            if end.code:
                raise ValueError(f"mvcl {' '.join(arguments)} --help ends with {end.code}") from end
    out.seek(0)
    return out.read()


def parsed(text: str) -> Help:
    """The boxes of options that tyro draws, read line by line."""
    head, *boxes = re.split(r"^╭─ (.*?) ─*╮$", text, flags=re.MULTILINE)
    sections: dict[str, dict[str, str]] = {}
    notes: dict[str, str] = {}
    for title, box in zip(boxes[::2], boxes[1::2]):
        name = title.removesuffix(" options")
        options = sections.setdefault(name, {})
        rows = [row.strip("│").rstrip() for row in box.splitlines() if row.startswith("│")]
        rules = [i for i, row in enumerate(rows) if re.fullmatch(" ─+", row)]
        if rules:  # what stands above the rule describes the section
            notes[name] = " ".join(" ".join(rows[: rules[0]]).split())
            rows = rows[rules[0] + 1 :]
        last = ""
        for line in rows:
            if option := re.match(r" (-\S.*?|[A-Z\[].*?)(  +\S.*)?$", line):
                last, first = option[1], (option[2] or "").strip()
                options[last] = first
            elif last:
                options[last] = f"{options[last]} {line.strip()}".strip()
        options.pop("-h, --help", None)
    usage, _, rest = head.partition("\n\n")
    return Help(usage.removeprefix("usage: "), rest.strip(), sections, notes)


def table(options: dict[str, str], column: str = "option") -> list[str]:
    """A table of options."""
    cell = [(name.replace("|", r"\|"), text.replace("|", r"\|")) for name, text in options.items()]
    return [f"| {column} | |", "| --- | --- |", *(f"| `{name}` | {text} |" for name, text in cell), ""]


def commands(match: re.Match[str]) -> str:
    """Every command with its options, as `--help` prints them."""
    lines = ["```text", printed([]).strip(), "```", ""]
    for arguments in COMMANDS:
        found = parsed(printed(arguments))
        lines += [f"## mvcl {' '.join(arguments)}", "", "```text", found.usage, "```", ""]
        lines += [found.head.split(" Fields with named choices")[0], ""]
        for section, options in found.sections.items():
            if section not in ("", "options", "positional arguments", "positional argument"):
                lines += [f"### {section}", "", found.notes.get(section, ""), ""]
            lines += table(options)
    return "\n".join(lines)


def choices(match: re.Match[str]) -> str:
    """The fields of a config whose value is chosen by name, with the names."""
    names = {f"{field}:NAME": ", ".join(f"`{name}`" for name in table) for field, table in CHOICES.items()}
    return "\n".join(table(names, "argument"))


# docs/studies/README.md is read on its own too, where this would be in the way.
STUDIES = "\n```{toctree}\n:hidden:\n:glob:\n\n[a-z]*\n```\n"


def expand(app, docname: str, source: list[str]) -> None:
    """Fills in the blocks of a page."""
    source[0] += STUDIES if docname == "studies/README" else ""
    for name, made in {"api": api, "commands": commands, "choices": choices}.items():
        pattern = r"^```\{" + name + r"\} ?(\S*)\n(.*?)^```$"
        source[0] = re.sub(pattern, made, source[0], flags=re.DOTALL | re.MULTILINE)


def setup(app):
    app.connect("source-read", expand)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
