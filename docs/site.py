"""Sphinx for this project: docstrings are Markdown-like text, and pages name what is in the reference.

What stands between `<!-- api mvcl.losses -->` and `<!-- end of api -->` becomes the docstring of a package and all its
public names by module; of `<!-- api mvcl.losses: dcl, dhel -->` those names. A block `{commands}` becomes what
`mvcl --help` prints.
"""

import contextlib
import functools
import importlib
import inspect
import io
import os
import re
import sys
import types
from unittest import mock

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.pycode import ModuleAnalyzer
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util.nodes import make_refnode

PACKAGES = (
    *("losses", "transport", "metrics", "augment", "data", "models", "methods"),
    *("evaluation", "training", "report", "sklearn", "studies"),
)
COMMANDS = (
    *(
        "train digits",
        "evaluate",
        "finetune",
        "embed",
        "neighbours",
        "geometry",
        "decompose",
        "report",
        "study which_objective",
        "export",
        "configs",
    ),
    *(
        "data prepare",
        "data prepare eeg",
        "data prepare sentiment",
        "data prepare transfer",
    ),
)


API = re.compile(r"<!-- api mvcl\.(\w+)(?:: ([^>]*))? -->\n.*?<!-- end of api -->\n", flags=re.DOTALL)


def names(listed: str | None) -> list[str]:
    """The names of an `api` part; none stands for all."""
    return (listed or "").replace(",", " ").split()


def public(package: str) -> dict[str, object]:
    """The public names of a package of mvcl, with their values."""
    module = importlib.import_module(f"mvcl.{package}")
    names = getattr(module, "__all__", None) or [name for name in vars(module) if not name.startswith("_")]
    values = {name: getattr(module, name) for name in names}
    return {name: value for name, value in values.items() if not isinstance(value, types.ModuleType)}


@functools.cache
def documented(module: str) -> dict[tuple[str, str], list[str]]:
    """The docstrings of the values that a module assigns."""
    return ModuleAnalyzer.for_module(module).find_attr_docs()


def home(package: str, name: str, value: object) -> str:
    """The module that defines a public name."""
    if inspect.isclass(value) or inspect.isroutine(value):
        return value.__module__
    modules = sorted(module for module in sys.modules if module.startswith(f"mvcl.{package}._"))
    return next((module for module in modules if ("", name) in documented(module)), f"mvcl.{package}")


def api(match: re.Match[str]) -> str:
    """The names of a package below the first line of the module that defines them, as reStructuredText in Markdown."""
    package, listed = match[1], names(match[2])
    sections: dict[str, list[str]] = {}
    for name, value in public(package).items():
        if listed and name not in listed:
            continue
        module = home(package, name, value)
        if not module.startswith("mvcl."):  # of another project: the page describes it by hand
            continue
        title = (importlib.import_module(module).__doc__ or module).partition("\n")[0]
        kind = "class" if inspect.isclass(value) else "function" if inspect.isroutine(value) else "data"
        options = {"class": ["   :members:"], "data": ["   :no-value:"]}.get(kind, [])
        title = "" if listed else f"## {title.partition(':')[0].rstrip('.')}"
        sections.setdefault(title, []).extend([f".. auto{kind}:: {name}", *options, ""])
    text = "" if listed else f"```{{eval-rst}}\n.. automodule:: mvcl.{package}\n```\n"
    for title, lines in sections.items():
        text += "\n".join(
            ["", title, "", "```{eval-rst}", f".. currentmodule:: mvcl.{package}", "", *lines, "```", ""]
        )
    return text


def commands(match: re.Match[str]) -> str:
    """Every command with what it prints with `--help`."""
    from mvcl import cli

    parts = []
    for command in ("", *COMMANDS):
        out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")  # tyro draws boxes where the encoding has them
        wide = mock.patch.dict(os.environ, COLUMNS="110")
        with wide, contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
            cli.main([*command.split(), "--help"])
        out.seek(0)
        parts.append((f"## mvcl {command}\n\n" if command else "") + f"```text\n{out.read().strip()}\n```\n")
    return "\n".join(parts)


# docs/studies/README.md is read on its own too, where this would be in the way.
STUDIES = "\n```{toctree}\n:hidden:\n:glob:\n\n[a-z]*\n```\n"


def expanded(page: str) -> str:
    """A page with its blocks filled in."""
    return re.sub(r"^```\{commands\}\n```$", commands, API.sub(api, page), flags=re.MULTILINE)


def expand(app, docname: str, source: list[str]) -> None:
    source[0] = expanded(source[0]) + (STUDIES if docname == "studies/README" else "")


def docstring(app, what, name, obj, options, lines: list[str]) -> None:
    """Before napoleon: indented blocks are code, and all but code in backticks is text without markup."""
    if what == "data":
        package, _, own = name.rpartition(".")
        lines[:] = documented(home(package.removeprefix("mvcl."), own, obj)).get(("", own), [])
    found: list[str] = []
    code = section = example = False
    for line in joined(lines):
        blank, start = not line.strip(), not found or not found[-1].strip()
        section = section or re.fullmatch(r"(Args|Returns|Raises|Attributes|Yields):", line) is not None
        indented = line.startswith("    ") and not section
        if indented and start and not code:
            found += [".. code-block:: text", ""]
        code = (indented and (code or start)) or (blank and code)
        example = not blank and (example or line.lstrip().startswith(">>> "))  # to the next blank line
        if not (blank or code or example):
            spans = line.split("`")
            spans[::2] = [re.sub(r"([*|_\\])", r"\\\1", span) for span in spans[::2]]
            spans[1::2] = [f"\\ ``{span}``\\ " for span in spans[1::2]]  # "\ " is nothing, and ends a word
            line = "".join(spans)
        found.append(line)
    lines[:] = found


def joined(lines: list[str]) -> list[str]:
    """Lines in which no span of backticks is broken: such lines are joined with the next."""
    found: list[str] = []
    for line in lines:
        if found and found[-1].count("`") % 2:
            found[-1] = f"{found[-1]} {line.strip()}"
        else:
            found.append(line)
    return found


class Names(SphinxPostTransform):
    """A literal that is the name of one public object, such as `mv_dhel` or `losses.mv_dhel`, becomes a link to it."""

    default_priority = 700
    formats = ("html",)

    def run(self, **kwargs) -> None:
        domain, here = self.env.domains["py"], self.env.docname
        if here == "reference/command":  # its words are choices and splits
            return
        known = {full.removeprefix("mvcl."): full for full in domain.objects}
        ends: dict[str, list[str]] = {}
        for full in domain.objects:
            ends.setdefault(full.rpartition(".")[2], []).append(full)
        known |= {end: of[0] for end, of in ends.items() if len(of) == 1 and re.search("[A-Z_0-9]", end)}
        for literal in list(self.document.findall(nodes.literal)):
            full = known.get(literal.astext().removeprefix("mvcl.").removesuffix("()"))
            inside = (nodes.title, nodes.reference, nodes.term)
            if full is not None and not any(isinstance(node, inside) for node in above(literal)):
                place = domain.objects[full]
                link = make_refnode(
                    self.app.builder, here, place.docname, place.node_id, literal.deepcopy(), full
                )
                literal.replace_self(link)


def above(node: nodes.Node):
    """The nodes around a node."""
    while (node := node.parent) is not None:
        yield node


def source(app, package: str, name: str) -> str | None:
    """For viewcode: the module of an alias, which says that it is of `builtins`; None of all else."""
    value = public(package.removeprefix("mvcl.")).get(name)
    return home(package.removeprefix("mvcl."), name, value) if isinstance(value, types.GenericAlias) else None


def math(writer, node: nodes.Element) -> None:
    """A formula as MathML, which browsers draw by themselves: no script and no font is needed."""
    block = isinstance(node, nodes.math_block)
    formula = tex2mathml(node.astext(), as_block=block)
    writer.body.append(f'<div class="math">{formula}</div>' if block else formula)
    raise nodes.SkipNode


def setup(app):
    app.connect("source-read", expand)
    app.connect("autodoc-process-docstring", docstring, priority=400)  # napoleon's is 500
    app.connect("viewcode-follow-imported", source)
    app.add_post_transform(Names)
    app.add_html_math_renderer("mathml", (math, None), (math, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
