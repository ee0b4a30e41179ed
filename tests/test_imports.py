"""Imports point one way, and private modules are imported only in their package."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest
from test_extras import imports

ROOT = Path(__file__).parents[1] / "mvcl"
# What each package may import from mvcl, besides itself and the root's private modules.
ALLOWED = {
    "__init__": {"training", "report"},
    "sklearn": {"training", "data", "metrics", "losses", "methods", "models"},
    "transport": set(),
    "metrics": set(),
    "losses": {"transport", "metrics"},
    "models": set(),
    "augment": set(),
    "data": {"augment"},
    "methods": {"losses", "metrics", "transport", "models", "augment"},
    "evaluation": {"metrics", "data", "augment"},
    "report": {"metrics", "evaluation", "training"},
    "training": {"augment", "data", "models", "methods", "evaluation", "metrics", "losses", "transport"},
    "studies": {"training", "metrics", "losses"},
    "cli": {"training", "data"},
    "_commands": {"training", "evaluation", "report", "data", "models", "studies"},
    "_of_run": {"training", "evaluation", "data", "models"},
    "__main__": {"cli"},
}
ROOT_PRIVATE = {path.stem for path in ROOT.glob("_*.py")}


@pytest.mark.parametrize("path", sorted(ROOT.rglob("*.py")), ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_point_one_way(path):
    home = path.relative_to(ROOT).parts[0].removesuffix(".py")
    allowed = ALLOWED.get(home, set())
    for _, name, _ in imports(ast.parse(path.read_text())):
        if not name.startswith("mvcl."):
            continue
        target, *inner = name.split(".")[1:]
        if target == "__version__" or target in ROOT_PRIVATE:
            continue
        assert target == home or target in allowed, f"{path.name} imports {name}"
        private = [part for part in inner if part.startswith("_") and not part.startswith("__")]
        assert not private or target == home, f"{path.name} imports the private {name}"


def printed(code, *arguments):
    """What a new process prints."""
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT.parent).stdout


def test_losses_import_no_data_packages():
    code = "import sys, mvcl.losses; print(*sorted(m.split('.')[0] for m in sys.modules))"
    heavy = {"tensorflow", "tensorflow_datasets", "grain", "orbax", "flax", "sklearn", "matplotlib"}
    assert not set(printed(code).split()) & heavy


MAIN = """
import sys
from mvcl.__main__ import main
try:
    code = main(sys.argv[1:])
except SystemExit as stop:
    code = stop.code
print(code, *{name.split(".")[0] for name in sys.modules})
"""


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("", 0),
        ("configs", 0),
        ("trian", 2),
        ("train --help", 0),
        ("train nothere.py", 2),
        ("evaluate nothere", 2),
    ],
)
def test_what_needs_no_arrays_is_answered_without_jax(command, code):
    answer, *modules = printed(MAIN, *command.split()).splitlines()[-1].split()
    assert int(answer) == code
    assert not set(modules) & {"jax", "numpy", "rich", "matplotlib", "sklearn"}
