"""Every study runs at its smoke scale, as a user would call it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mvcl import studies


@pytest.mark.slow
@pytest.mark.parametrize("file", studies.study_files(), ids=lambda file: file.stem)
def test_a_study_runs_at_its_smoke_scale(file: Path, tmp_path: Path):
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "MVCL_CACHE": str(tmp_path / "cache")}
    options = ("--scale", "smoke", "--workdir", str(tmp_path / "w"))
    command = [sys.executable, "-m", "mvcl", "study", file.stem, *options]
    ended = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=900)
    assert ended.returncode == 0, ended.stdout[-3000:] + ended.stderr[-3000:]
    content = json.loads((tmp_path / "w" / f"{file.stem}_smoke" / f"{file.stem}.json").read_text())
    assert {state for cell in content["cells"] for state in cell["status"].values()} == {"finished"}
    for cell in content["cells"]:
        for measure in content["measures"]:
            assert cell["intervals"][measure["name"]]["seeds"] >= 1, (cell["name"], measure["name"])
