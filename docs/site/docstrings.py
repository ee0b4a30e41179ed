"""Docstrings for Sphinx: they are Markdown-like text, and Sphinx expects reStructuredText.

A block that is indented is code, single backticks are code, an example begins with `>>>`, and nothing else is markup.
Signatures are printed as they stand in the source, so that types and defaults have their short names.
"""

import ast
import dataclasses
import enum
import functools
import inspect
import re
import sys
import textwrap

from sphinx.ext.napoleon import Config, GoogleDocstring
from sphinx.pycode import ModuleAnalyzer

NAPOLEON = Config(napoleon_use_ivar=True, napoleon_use_rtype=False)
FIELD = re.compile(r"^(\s*:(?:param|type|returns?|rtype|raises|ivar|vartype|yields)\b[^:]*:\s*)(.*)$")


def escaped(line: str) -> str:
    """A line of text without markup, except for code in backticks."""
    field = FIELD.match(line)
    head, text = field.groups() if field else ("", line)
    spans = text.split("`")
    spans[::2] = [re.sub(r"([*|_\\])", r"\\\1", span) for span in spans[::2]]
    spans[1::2] = [f"\\ ``{span}``\\ " for span in spans[1::2]]  # "\ " is nothing, and ends a word
    return head + "".join(spans)


def joined(lines: list[str]) -> list[str]:
    """Lines in which no span of backticks is broken: such lines are joined with the next."""
    found: list[str] = []
    for line in lines:
        if found and found[-1].count("`") % 2:
            found[-1] = f"{found[-1]} {line.strip()}"
        else:
            found.append(line)
    return found


class Docstring(GoogleDocstring):
    """Google style in which what is returned is text: "Scalar. For unit vectors: 0" names no type."""

    def _consume_returns_section(self, preprocess_types=False):
        return [("", "", self._dedent(self._consume_to_next_section()))]


def of_value(name: str) -> list[str]:
    """The docstring of a value that a package imports from one of its modules."""
    package, _, own = name.rpartition(".")
    modules = sorted(module for module in sys.modules if module.startswith(f"{package}._"))
    found = [documented(module)["", own] for module in modules if ("", own) in documented(module)]
    return found[0] if found else []


def process(app, what, name, obj, options, lines: list[str]) -> None:
    """Google-style sections become fields, indented blocks code, and the rest text without markup."""
    if what == "data":
        lines[:] = of_value(name)
    elif what not in ("attribute", "property"):
        lines[:] = Docstring(lines, NAPOLEON, None, what, name, obj, options).lines()
    out: list[str] = []
    code, fields, example = False, False, False
    for line in joined(lines):
        fields = fields or line.startswith((":", ".. "))
        blank = not line.strip()
        if not code and not fields and line.startswith("    ") and (not out or not out[-1].strip()):
            code = True
            out += [".. code-block:: text", ""]
        elif code and not blank and not line.startswith("    "):
            code = False
        example = not blank and (example or line.lstrip().startswith(">>> "))  # to the next blank line
        out.append(line if blank or code or example or line.startswith(".. ") else escaped(line))
    lines[:] = out


@functools.cache
def documented(module: str) -> dict[tuple[str, str], list[str]]:
    """The attributes of a module's classes that have a docstring of their own."""
    return ModuleAnalyzer.for_module(module).find_attr_docs()


def default(value: ast.expr) -> str:
    """What stands for the default of a field: a factory is called."""
    if isinstance(value, ast.Call) and ast.unparse(value.func).endswith("field"):
        given = {keyword.arg: keyword.value for keyword in value.keywords}
        if "default" in given:
            return ast.unparse(given["default"])
        factory = given.get("default_factory")
        if factory is None:
            return ""
        return ast.unparse(factory.body) if isinstance(factory, ast.Lambda) else f"{ast.unparse(factory)}()"
    return ast.unparse(value)


def declared(kind: type) -> dict[str, str]:
    """The fields of a dataclass as its source declares them, those of its bases first."""
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        if not dataclasses.is_dataclass(base):
            continue
        (node,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        for field in node.body:
            if isinstance(field, ast.AnnAssign) and field.target.id in {
                f.name for f in dataclasses.fields(base)
            }:
                text = f"{field.target.id}: {ast.unparse(field.annotation)}"
                value = default(field.value) if field.value is not None else ""
                found[field.target.id] = f"{text} = {value}" if value else text
    return found


def signature(app, what, name, obj, options, given, returns):
    """The signature as in the source; none for a class whose fields are all described below it."""
    if given is None:  # there is none to replace
        return None
    if what in ("class", "exception"):
        if issubclass(obj, enum.Enum | BaseException):
            return "", None
        if dataclasses.is_dataclass(obj):
            described = {field for kind, field in documented(obj.__module__) if kind == obj.__name__}
            fields = {} if {field.name for field in dataclasses.fields(obj)} <= described else declared(obj)
            return f"({', '.join(fields.values())})" if fields else "", None
        return None
    if what not in ("function", "method"):
        return None
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(obj))))
    except (OSError, TypeError, SyntaxError):  # not written in Python, or a lambda
        return None
    (node,) = tree.body
    if not isinstance(node, ast.FunctionDef):
        return None
    if what == "method" and node.args.args and node.args.args[0].arg in ("self", "cls"):
        del node.args.args[0]
    return f"({ast.unparse(node.args)})", node.returns and ast.unparse(node.returns)


def setup(app):
    app.connect("autodoc-process-docstring", process)
    app.connect("autodoc-process-signature", signature)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
