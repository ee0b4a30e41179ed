"""The tutorials are as they were executed, name what exists, and run from scratch (slow, `make test-docs`)."""

import ast
import json
import re
from types import ModuleType

import pytest

from docs.tutorials import __main__ as tutorials

NAMES = [path.stem for path in tutorials.NOTEBOOKS]


def stored(name: str) -> dict:
    return json.loads((tutorials.FOLDER / f"{name}.ipynb").read_text(encoding="utf-8"))


def cells(name: str, kind: str) -> list[dict]:
    return [cell for cell in stored(name)["cells"] if cell["cell_type"] == kind]


@pytest.mark.parametrize("name", NAMES)
def test_tutorial_is_executed(name):
    """All cells in order, without errors, warnings, and paths, times or versions of a machine."""
    found = cells(name, "code")
    assert [cell["execution_count"] for cell in found] == list(range(1, len(found) + 1))
    assert all("execution" not in cell["metadata"] for cell in found)
    outputs = [output for cell in found for output in cell["outputs"]]
    assert all(output["output_type"] != "error" and output.get("name") != "stderr" for output in outputs)
    printed = "".join(line for output in outputs for line in output.get("text", []))
    assert not re.search(r"(/home|/root|/tmp|/work|/Users)/", printed)
    assert "version" not in stored(name)["metadata"]["language_info"]


@pytest.mark.parametrize("name", NAMES)
def test_names_of_a_tutorial_exist(name):
    """What it imports, and what it takes from the modules that it imports."""
    sources = ["".join(cell["source"]) for cell in cells(name, "code")]
    python = "\n\n".join(source for source in sources if not source.startswith("%%"))  # not of a shell
    nodes, imported = list(ast.walk(ast.parse(python))), {}
    for node in nodes:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            exec(ast.unparse(node), imported)
    modules = {bound: value for bound, value in imported.items() if isinstance(value, ModuleType)}
    for node in nodes:
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in modules:
            assert hasattr(modules[node.value.id], node.attr), f"{node.value.id}.{node.attr}"


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_tutorial_runs(name):
    """Its cells, and the checks in them, pass on this machine; it has outputs where the stored one has."""
    notebook, _ = tutorials.execute(tutorials.FOLDER / f"{name}.ipynb")
    shown = [{o["output_type"] for o in c.outputs} for c in notebook.cells if c.cell_type == "code"]
    assert shown == [{o["output_type"] for o in cell["outputs"]} for cell in cells(name, "code")]
