"""Dependencies: each import is of a declared package; errors name the missing extra."""

import ast
import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
DISTRIBUTIONS = metadata.packages_distributions().items()  # by top-level module
MODULES = {module: set(map(canonicalize_name, names)) for module, names in DISTRIBUTIONS}


def closure(requirements):
    """Installed distributions of requirements and their dependencies."""
    seen, todo = set(), [Requirement(r) for r in requirements]
    while todo:
        requirement = todo.pop()
        name = canonicalize_name(requirement.name)
        for extra in {"", *requirement.extras}:
            if (name, extra) in seen:
                continue
            seen.add((name, extra))
            try:
                required = EXTRAS.get(extra, []) if name == "mvcl" else metadata.requires(name) or []
            except metadata.PackageNotFoundError:
                continue  # of an extra that is not installed here
            found = map(Requirement, required)
            todo += [r for r in found if r.marker is None or r.marker.evaluate({"extra": extra})]
    return {name for name, _ in seen} - {"mvcl"}


BASE = {*closure(PROJECT["dependencies"]), "mvcl"}
OPTIONAL = {module for module, names in MODULES.items() if not names & BASE}


def test_functions_name_the_missing_extra(tmp_path):
    for view in "ab":
        (tmp_path / f"{view}.csv").write_text("id,x\n0,1\n")
    code = """
import sys
sys.modules.update(dict.fromkeys(["pyarrow"]))  # tensorflow is not installed
from mvcl import data
for f in (
    lambda: data.Tables(path=".").open(),
    lambda: data.prepare("caltech101", "."),
):
    try:
        f()
    except ImportError as error:
        print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "reading a.csv needs pyarrow: pip install 'mvcl[tables]'",
        "preparing caltech101 needs tensorflow: pip install 'mvcl[tensorflow]'",
    ]


def imports(node, extra=None):
    """Line and dotted name of each import, and the extra of the `with _lazy.needed` around it, or None."""
    if isinstance(node, ast.With):
        for call in (item.context_expr for item in node.items):
            if isinstance(call, ast.Call) and ast.unparse(call.func) == "_lazy.needed":
                extra = ast.literal_eval(call.args[0])
    elif isinstance(node, ast.Import):
        yield from ((node.lineno, alias.name, extra) for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        yield from ((node.lineno, f"{node.module}.{alias.name}", extra) for alias in node.names)
    for child in ast.iter_child_nodes(node):
        yield from imports(child, extra)


def test_every_import_is_declared_and_guarded():
    """Each import is in the base, or in the extra of a `with` around it."""
    for path in (ROOT / "mvcl").rglob("*.py"):
        for line, name, extra in imports(ast.parse(path.read_text())):
            module = name.partition(".")[0]
            declared = map(Requirement, [*PROJECT["dependencies"], *(EXTRAS[extra] if extra else [])])
            allowed = {canonicalize_name(requirement.name) for requirement in declared}
            known = module == "mvcl" or module in sys.stdlib_module_names
            where = f"{path.name}:{line}: {module} of no extra"
            assert known or MODULES.get(module, {module}) & allowed, where


def test_constraints_pin_all_dependencies_of_the_extras():
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    assert all(re.fullmatch(r"[A-Za-z0-9_.-]+==[A-Za-z0-9_.+!]+", line) for line in lines)
    pinned = {canonicalize_name(line.split("==")[0]) for line in lines}
    assert closure([f"mvcl[{','.join(EXTRAS)}]"]) - pinned <= {"setuptools"}
