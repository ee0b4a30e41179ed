"""Imports on demand: of a package's modules when one of their names is first used, and of extras."""

import ast
import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


def exports(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """`__getattr__`, `__dir__` and `__all__` of a package, from the imports under `if TYPE_CHECKING:` of its file.

    Type checkers see plain imports; a program imports only the modules that it uses.
    """
    module = sys.modules[package]
    tree = ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8"))
    blocks = [n for n in tree.body if isinstance(n, ast.If) and ast.unparse(n.test) == "TYPE_CHECKING"]
    nodes = [node for block in blocks for node in block.body if isinstance(node, ast.ImportFrom)]
    homes = {of.asname or of.name: (str(node.module), of.name) for node in nodes for of in node.names}

    def attribute(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        home, original = homes[name]
        found = getattr(importlib.import_module(home), original)
        setattr(module, name, found)  # the next use does not come here
        return found

    return attribute, lambda: sorted({*vars(module), *homes}), sorted(homes)


class MissingExtra(ImportError, ValueError):
    """A module of an extra is not installed. Also a `ValueError`, so that the command exits with code 2."""


@contextmanager
def needed(extra: str, by: str) -> Iterator[None]:
    """Context for imports that need an extra of pyproject.toml; `by`, for the message, is what needs them."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = str(error.name).partition(".")[0]
        raise MissingExtra(f"{by} needs {package}: pip install 'mvcl[{extra}]'", name=package) from error
