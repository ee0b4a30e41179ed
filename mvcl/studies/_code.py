"""Which source files a task uses, and a digest of each: a change in one makes the results of the task stale.

Found without importing: a module uses the modules whose names it imports. `from mvcl import losses` uses of the package
only what is taken from it, `losses.info_nce`. What a package finds by going through its names, such as the choices of
the command line, is not followed.
"""

import ast
import hashlib
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from mvcl import training

_PACKAGE = Path(__file__).resolve().parents[1]
# They report, store, start and judge; they compute nothing that a study measures.
_WITHOUT_EFFECT = frozenset(
    f"mvcl/{name}.py"
    for name in (
        "_buckets",
        "_configs",
        "_extras",
        "_files",
        "_progress",
        "_untrusted",
        "studies/_open",
        "studies/_study",
        "studies/_verdicts",
        "training/_cache",
        "training/_folder",
        "training/_geometry",
        "training/_goodput",
        "training/_guard",
        "training/_lease",
        "training/_load",
        "training/_log",
        "training/_pictures",
        "training/_preemption",
        "training/_processes",
        "training/_saved",
        "training/_scores",
        "training/_signals",
        "training/_staging",
        "training/_watch",
    )
)


def code_of(task: Any) -> dict[str, str]:
    """Path of each file of mvcl that a task uses -> digest of its code, without comments and docstrings.

    Code from outside mvcl is not among them: a saved config holds its digest.
    """
    pending = [
        Path(sys.modules[item.__module__].__file__ or "")
        for item in (*training.definitions(task), training.train)
        if item.__module__.split(".")[0] == "mvcl"
    ]
    found: dict[str, str] = {}
    while pending:
        file = pending.pop()
        name = file.relative_to(_PACKAGE.parent).as_posix()
        if name not in found and name not in _WITHOUT_EFFECT:
            found[name] = digest(file)
            pending += used_by(file)
    return dict(sorted(found.items()))


@cache
def digest(file: Path) -> str:
    """Twelve hexadecimal digits of a file's code; comments, docstrings and layout do not count."""
    tree = _parsed(file)
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            # Strings that stand alone: docstrings of modules, functions and fields.
            node.body = [item for item in node.body if not _is_text(item)]
    return hashlib.sha256(ast.dump(tree).encode()).hexdigest()[:12]


@cache
def used_by(file: Path) -> tuple[Path, ...]:
    """The files of mvcl that a file takes names from."""
    tree = _parsed(file)
    used: set[Path] = set()
    packages: dict[str, Path] = {}
    for name, target in _imported(tree):
        if target.name == "__init__.py":
            packages[name] = target.parent
        else:
            used.add(target)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in packages:
            taken = _resolve(packages[node.value.id], node.attr)
            if taken is not None and taken.name != "__init__.py":
                used.add(taken)
    return tuple(sorted(used))


def _resolve(module: Path, name: str) -> Path | None:
    """The file that defines a name of a module or package, or that is the submodule or package of this name."""
    if (file := module.with_suffix(".py")).is_file():
        return file
    if (submodule := module / f"{name}.py").is_file():
        return submodule
    if (package := module / name / "__init__.py").is_file():
        return package
    return _exports(module).get(name)


@cache
def _exports(package: Path) -> dict[str, Path]:
    """Public name of a package -> the file that defines it."""
    return dict(_imported(_parsed(package / "__init__.py")))


def _imported(tree: ast.Module) -> Iterator[tuple[str, Path]]:
    """Names that a file imports from mvcl, with the file that defines each."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "mvcl":
            module = _PACKAGE.parent.joinpath(*(node.module or "").split("."))
            for alias in node.names:
                if (target := _resolve(module, alias.name)) is not None:
                    yield alias.asname or alias.name, target


def _parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_bytes())


def _is_text(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )
