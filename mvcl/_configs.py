"""Config files: path and variants, read without importing the file or jax."""

import ast
import difflib
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from mvcl import _buckets

CONFIGS = Path(__file__).resolve().parents[1] / "configs"
STUDIES = CONFIGS / "studies"


def split(source: str | Path) -> tuple[Path, str]:
    """File and variant of `FILE.py:VARIANT`; the variant of a plain file is `get_config`."""
    match = re.fullmatch(r"(.*\.py):(\w+)", str(source))
    return (_buckets.path(match[1]), match[2]) if match else (_buckets.path(source), "get_config")


def find(source: str | Path) -> tuple[Path, str]:
    """File and variant of a config; the file of a folder is its config.json.

    Raises:
      ValueError: there is no such file, it is not Python, or nothing in it has the variant's name.
    """
    file, variant = split(source)
    if file.is_dir():
        file = file / "config.json"
    if not file.is_file():
        raise ValueError(f"no config at {file}; `mvcl configs` lists the configs of the project")
    if file.suffix != ".json" and variant not in _bound(_parsed(file)):
        raise unknown_variant(file, variant, variants(file))
    return file, variant


def variants(file: Path) -> dict[str, str]:
    """Functions without parameters in a config file, with the first line of each docstring."""
    functions = [node for node in _parsed(file).body if isinstance(node, ast.FunctionDef)]
    return {
        node.name: _first_line(node)
        for node in functions
        if not node.name.startswith("_") and not ast.unparse(node.args)
    }


def summary(file: Path) -> str:
    """The first line of a config file's docstring."""
    return _first_line(_parsed(file))


def _first_line(node: ast.Module | ast.FunctionDef) -> str:
    return (ast.get_docstring(node) or "").partition("\n")[0]


def unknown_variant(file: Path, variant: str, known: Iterable[str]) -> ValueError:
    """The error of a config file without this variant."""
    known = list(known)
    close = difflib.get_close_matches(variant, known, n=1)
    hint = f"did you mean {close[0]}? " if close else ""
    return ValueError(
        f"{file} has no function {variant}() that returns a Config; {hint}It has {', '.join(known) or 'none'}"
    )


def unknown_study(name: str, known: Iterable[str]) -> ValueError:
    """The error of a study that the project does not have."""
    close = difflib.get_close_matches(name, list(known), n=1)
    hint = f"did you mean {close[0]}? " if close else ""
    return ValueError(
        f"no study {name!r}; {hint}`mvcl study --list` lists them; a file of your own ends with .py"
    )


def _parsed(file: Path) -> ast.Module:
    try:
        return ast.parse(file.read_bytes())
    except SyntaxError as error:
        raise ValueError(f"{file} has a syntax error: {error}") from error


def _bound(tree: ast.Module) -> Iterator[str]:
    """Names of functions and of variables; a variable may be a function that another one made."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
