"""Writes signatures and docstrings into the pages of docs/reference: `python -m docs.reference`.

They stand between `<!-- api mvcl.losses: dcl, dhel -->` (without a list, all names) and `<!-- end of api -->`. The
site has links between them, so it makes that part anew.
"""

import inspect
import re
from collections.abc import Callable, Iterable
from pathlib import Path

import jax
from sphinx.util.inspect import stringify_signature
from sphinx.util.typing import stringify_annotation

from docs import site

ARRAY_LIKE = stringify_annotation(jax.typing.ArrayLike, "smart")
FOLDER = Path(__file__).parent / "reference"


def signature(name: str, value: Callable[..., object]) -> str:
    """A call with all parameters, in one line or one line each."""
    try:
        made = inspect.signature(value)
    except ValueError:  # an enumeration
        return name
    shown, named = [], False
    for parameter in made.parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and not named:
            shown.append("*")
        named = named or parameter.kind in (parameter.KEYWORD_ONLY, parameter.VAR_POSITIONAL)
        alone = made.replace(parameters=[parameter], return_annotation=made.empty)
        shown.append(short(alone).removeprefix("(").removesuffix(")").removeprefix("*, ").removesuffix(", /"))
    end = short(made.replace(parameters=[])).removeprefix("(")
    line = f"{name}({', '.join(shown)}{end}"
    return line if len(line) <= 100 else f"{name}(\n    " + ",\n    ".join(shown) + f",\n{end}"


def short(made: inspect.Signature) -> str:
    """A signature with the last part of each type's name."""
    full = stringify_signature(made, unqualified_typehints=True).replace(ARRAY_LIKE, "ArrayLike")
    return re.sub(r"~?\b(?:\w+\.)+(?=[A-Za-z_])", "", full).replace("(self, ", "(").replace("(self)", "()")


def text(line: str) -> str:
    """A line without markup but code in backticks."""
    spans = line.split("`")
    spans[::2] = [re.sub(r"([*<])", r"\\\1", span) for span in spans[::2]]
    return "`".join(spans)


def markdown(docstring: str) -> str:
    """A docstring: paragraphs, indented blocks as code, and its sections as lists."""
    head, *rest = re.split(r"^(Args|Attributes|Returns|Yields|Raises):\n", docstring, flags=re.MULTILINE)
    made = []
    for block in re.split(r"\n\n(?=\S)|(?<=\S)\n\n(?=    )", head.strip("\n")):
        code = block.startswith(("    ", ">>> "))
        made.append(f"```text\n{inspect.cleandoc(chr(10) + block)}\n```" if code else text(block.strip()))
    for section, body in zip(rest[::2], rest[1::2]):
        lines = inspect.cleandoc("\n" + body)
        items = [" ".join(item.split()) for item in re.split(r"\n(?=\S)", lines)]
        named = section in ("Args", "Attributes", "Raises")
        items = (
            [re.sub(r"^(\*{0,2}[\w., /]+):", r"`\1`:", item) for item in items]
            if named
            else [" ".join(items)]
        )
        made += [f"{section}:\n\n" + "\n".join(f"- {text(item)}" for item in items)]
    return "\n\n".join(made)


def entry(package: str, name: str, value: object) -> str:
    """One public name: its call, its docstring, and the methods of a class that have one."""
    constant = not (inspect.isclass(value) or inspect.isroutine(value))
    home = site.home(package, name, value)
    doc = (
        "\n".join(site.documented(home).get(("", name), []))
        if constant
        else inspect.cleandoc(value.__doc__ or "")
    )
    made = f"### {name}\n\n```text\n{name if constant else signature(name, value)}\n```\n\n{markdown(doc)}\n"
    methods = vars(value).items() if inspect.isclass(value) else ()
    for own, method in methods:
        function = method.fget if isinstance(method, property) else getattr(method, "__func__", method)
        if (
            not own.startswith("_")
            and own not in getattr(value, "__dataclass_fields__", ())
            and inspect.isfunction(function)
            and function.__doc__
        ):
            call = own if isinstance(method, property) else signature(own, function)
            made += f"\n```text\n{name}.{call}\n```\n\n{markdown(inspect.getdoc(function) or '')}\n"
    return made


def block(package: str, names: Iterable[str] = ()) -> str:
    """The part of a page with these names of a package, or all."""
    names = list(names)
    listed = f": {', '.join(names)}" if names else ""
    public = site.public(package)
    entries = [
        entry(package, name, value)
        for name, value in ((name, public[name]) for name in names or public)
        if site.home(package, name, value).startswith("mvcl.")
    ]
    return f"<!-- api mvcl.{package}{listed} -->\n\n" + "\n".join(entries) + "\n<!-- end of api -->\n"


def page(path: Path) -> str:
    """A page with its parts made anew."""
    old = path.read_text(encoding="utf-8")
    return re.sub(site.API, lambda found: block(found[1], site.names(found[2])), old)


def main() -> None:
    for path in sorted(FOLDER.glob("*.md")):
        path.write_text(page(path), encoding="utf-8")


if __name__ == "__main__":
    main()
