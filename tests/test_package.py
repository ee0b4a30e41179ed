"""The package as a user gets it: a wheel of mvcl and its configs, installed outside of the checkout; its version."""

import json
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest
import yaml
from test_extras import OPTIONAL

import mvcl

ROOT = Path(__file__).parents[1]
SHORT = ["--train.steps", "4", "--train.batch-size", "32", "--mesh.data", "1", "--evaluation.draws", "2"]


def call(*command, cwd, **environment):
    """Standard output of a command that succeeds, in an environment without the checkout."""
    known = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    options = {"cwd": cwd, "env": known | environment, "capture_output": True, "text": True}
    done = subprocess.run(list(map(str, command)), **options)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel, built from the source distribution, without a network."""
    folder = tmp_path_factory.mktemp("dist")
    build = (sys.executable, "-m", "hatchling", "build", "--directory", folder, "--target")
    call(*build, "sdist", cwd=ROOT)
    (source,) = folder.glob("*.tar.gz")
    with tarfile.open(source) as archive:
        archive.extractall(folder, filter="data")
    call(*build, "wheel", cwd=folder / source.name.removesuffix(".tar.gz"))
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """`mvcl` of a virtual environment with the wheel and with the packages of this one, but not with the checkout."""
    folder = tmp_path_factory.mktemp("venv")
    venv.create(folder, symlinks=True)
    python = folder / "bin" / "python"
    options = ("--no-deps", "--no-index", "--ignore-installed", "--quiet")
    call(sys.executable, "-m", "pip", "--python", python, "install", *options, wheel, cwd=folder)
    [site] = folder.glob("lib/python*/site-packages")
    packages = {sysconfig.get_path(kind) for kind in ("purelib", "platlib")}
    (site / "packages.pth").write_text("\n".join(packages))  # the .pth files in there are not read
    found = call(python, "-c", "import mvcl; print(mvcl.__file__)", cwd=folder).strip()
    assert Path(found).parent.parent == site
    return folder / "bin" / "mvcl"


def test_the_wheel_has_the_package_and_its_configs_and_nothing_else(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    files = [*(ROOT / "mvcl").rglob("*"), *(ROOT / "configs").rglob("*")]
    files = [file for file in files if file.is_file() and "__pycache__" not in file.parts]
    expected = {f"mvcl/{file.relative_to(ROOT).as_posix()}".replace("mvcl/mvcl/", "mvcl/") for file in files}
    information = f"mvcl-{mvcl.__version__}.dist-info/"
    assert {name for name in names if not name.startswith(information)} == expected
    assert {f"{information}licenses/LICENSE", f"{information}entry_points.txt"} <= names


@pytest.mark.exhaustive
def test_installed_it_trains_evaluates_and_reports_in_an_empty_folder_without_extras(installed, tmp_path):
    assert {"h5py", "safetensors", "mne", "pytest"} <= OPTIONAL
    hidden = sorted(OPTIONAL - {"sphinx"})  # which scipy looks up in sys.modules
    code = f"import sys; sys.modules.update(dict.fromkeys({hidden!r})); from mvcl import cli; "
    plain = (installed.with_name("python"), "-c", code + "sys.exit(cli.main())")

    def run(*arguments):
        return call(*plain, *arguments, cwd=tmp_path, TFDS_DATA_DIR=str(tmp_path / "data"))

    assert call(installed, "--version", cwd=tmp_path).strip() == mvcl.__version__
    table = run("train", "digits:small", *SHORT)
    row = re.search(r"^trained encoder +0\.\d+ .*$", table, re.MULTILINE)
    assert row is not None
    assert "report: runs/digits-small/report.html" in table
    assert "</html>" in (tmp_path / "runs" / "digits-small" / "report.html").read_text()
    assert row[0] in run("evaluate", "runs/digits-small")

    copied = run("configs", "--copy", "digits:small")
    assert copied.split() == ["digits.py", "mvcl", "train", "digits.py:small"]
    again = run("train", "digits.py:small", *SHORT)  # the same config and folder: the run is finished
    assert row[0] in again
    saved = json.loads((tmp_path / "runs" / "digits-small" / "config.json").read_text())
    assert "_digest" not in json.dumps(saved)  # nothing in it is from outside the package
    assert "MV-DHEL" in run("study", "koromilas_table4", "--scale", "smoke", "--dry-run")


def test_the_citation_and_the_changelog_name_the_version():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    changes = re.findall(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    latest = next(version for version in changes if version != "Unreleased")
    assert citation["version"] == latest == mvcl.__version__
