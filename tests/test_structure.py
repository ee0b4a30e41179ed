"""The house rules that a program can check."""

import ast
from pathlib import Path

import pytest

from docs import modules

ROOT = Path(__file__).parents[1]
FILES = [file for folder in ("mvcl", "configs") for file in sorted((ROOT / folder).rglob("*.py"))]


def functions(file):
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return [node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]


def body_lines(function):
    """Lines of a function's code, without its docstring."""
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    return body[-1].end_lineno - body[0].lineno + 1 if body else 0


def positional(function):
    """Positional arguments of a function, without `self`."""
    names = [argument.arg for argument in (*function.args.posonlyargs, *function.args.args)]
    return len(names) - (names[:1] in (["self"], ["cls"]))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.relative_to(ROOT).as_posix())
def test_modules_functions_and_signatures_are_short(file):
    assert len(file.read_text(encoding="utf-8").splitlines()) <= 400
    assert {function.name for function in functions(file) if body_lines(function) > 60} == set()
    assert {function.name for function in functions(file) if positional(function) > 7} == set()


def test_every_module_says_what_it_has():
    named = {line.split("`")[1] for line in modules.listing().splitlines()}
    found = {file.relative_to(ROOT).as_posix().removesuffix("__init__.py") for file in FILES}
    assert {name for name in found if not name.startswith("configs")} <= named
