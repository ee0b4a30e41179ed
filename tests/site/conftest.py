"""The site, built once."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def site(tmp_path_factory) -> Path:
    """The folder of the site, built as `make docs` does."""
    folder = tmp_path_factory.mktemp("site")
    command = ["-m", "sphinx", "--builder", "html", "--fail-on-warning", "--keep-going", "--quiet"]
    out = subprocess.run(
        [sys.executable, *command, "--doctree-dir", folder / "doctrees", ROOT / "docs", folder / "html"],
        env=os.environ | {"JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT)},
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert out.returncode == 0, out.stderr
    return folder / "html"
