"""The example at the head of docs/design/transport.md and the tutorial run; the notebooks are as they were executed."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
NOTEBOOKS = sorted(DOCS.glob("tutorials/*.ipynb"))


def code_cells(path):
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return [cell for cell in cells if cell["cell_type"] == "code"]


@pytest.mark.slow
def test_example_at_the_head():
    page = (DOCS / "design" / "transport.md").read_text(encoding="utf-8")
    names: dict = {}
    exec(re.findall(r"```python\n(.*?)```", page[: page.index("## The problem")], re.DOTALL)[0], names)
    assert names["out"].converged
    assert names["warm"].converged
    assert names["warm"].potentials[1][0] == -float("inf")
    assert names["loss"] > 0
    assert names["share"] > 0.5


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_is_executed(path):
    """All cells in order, without errors, warnings and paths of a machine in the output."""
    cells = code_cells(path)
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert all(output["output_type"] != "error" and output.get("name") != "stderr" for output in outputs)
    printed = "".join(line for output in outputs for line in output.get("text", []))
    assert not re.search(r"(/home|/root|/tmp|/work|/Users)/", printed)


@pytest.mark.slow
def test_tutorial_runs(tmp_path):
    cells = code_cells(DOCS / "tutorials" / "multimarginal_transport.ipynb")
    code = "\n\n".join("".join(cell["source"]) for cell in cells)
    script = tmp_path / "tutorial.py"
    script.write_text(code.replace("plt.show()", "plt.close()"), encoding="utf-8")
    paths = os.pathsep.join([str(DOCS.parent), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"MPLBACKEND": "Agg", "JAX_PLATFORMS": "cpu", "PYTHONPATH": paths}
    command = [sys.executable, script]
    found = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=tmp_path)
    assert found.returncode == 0, found.stderr
    assert found.stdout.count("12 of 12") == 1
