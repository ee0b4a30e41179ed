"""One study in several processes, here and as SLURM jobs; and the command, of every study at its smoke scale."""

import json
import os
import re
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mvcl import cli, studies

STUDY = '''"""Numbers that need no training."""

import dataclasses
import os
import time
from pathlib import Path

from mvcl import studies


@dataclasses.dataclass(frozen=True, kw_only=True)
class Slow:
    """Its value; takes some time, so that several processes share the cells."""

    value: int

    def run(self, folder, seed):
        time.sleep(0.3)
        reserves = os.environ.get("XLA_PYTHON_CLIENT_PREALLOCATE") != "false"
        return [{"value": float(self.value + seed), "process": float(os.getpid()), "reserves": float(reserves)}]


def small(seeds: int = 2, *, scale_of: float = 1.0, data: Path | None = None) -> studies.Study:
    """Ten cells.

    Args:
      seeds: of each cell.
      scale_of: a number.
      data: a file.
    """
    cells = [studies.Cell(factors={"n": n}, task=Slow(value=n)) for n in range(10)]
    others = (studies.Measure(name=name, better="") for name in ("process", "reserves"))
    measures = (studies.Measure(name="value"), *others)
    cost = f"{scale_of:g} s" if data is None else f"those of {data}"
    return studies.Study(
        title="Numbers", about="None.", cells=cells, measures=measures, along="n", seeds=seeds, cost=cost
    )
'''


# The first of the processes that comes here, as by a kernel that is out of memory.
DIE = """

def die(folder):
    try:
        (folder / "dead").touch(exist_ok=False)
    except FileExistsError:
        return
    os.kill(os.getpid(), 9)
"""


@pytest.fixture
def study(tmp_path: Path, monkeypatch) -> Path:
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    file = tmp_path / "numbers_study.py"
    file.write_text(STUDY)
    return file


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mvcl", "study", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=900)


def content(folder: Path, name: str = "numbers_study", scale: str = "small") -> dict:
    return json.loads((folder / f"{name}_{scale}" / f"{name}.json").read_text())


@pytest.mark.slow
@pytest.mark.parametrize("file", studies.study_files(), ids=lambda file: file.stem)
def test_a_study_runs_at_its_smoke_scale(file: Path, tmp_path: Path, monkeypatch):
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    monkeypatch.setenv("MVCL_CACHE", str(tmp_path / "cache"))
    ended = run(file.stem, "--scale", "smoke", "--workdir", tmp_path / "w")
    assert ended.returncode == 0, ended.stdout[-3000:] + ended.stderr[-3000:]
    found = content(tmp_path / "w", file.stem, "smoke")
    assert {state for cell in found["cells"] for state in cell["status"].values()} == {"finished"}
    main = found["measures"][0]["name"]  # others are of some cells, such as the concentration, of DSF
    assert all(cell["intervals"][main]["seeds"] for cell in found["cells"]), main


def test_a_signal_ends_the_command_with_its_page(study, tmp_path, monkeypatch):
    work = tmp_path / "work"
    monkeypatch.setattr(time, "sleep", lambda _: signal.raise_signal(signal.SIGTERM))
    assert cli.main(["study", str(study), "--workdir", str(work)]) == 130
    assert {state for cell in content(work)["cells"] for state in cell["status"].values()} == {"missing"}


# What SLURM's command does with a job array, on this machine.
SBATCH = """#!/bin/bash
printf '%s\\n' "$@" > "$FAKE_SLURM/arguments"
for index in 0 1; do bash -c "${@: -1}" >"$FAKE_SLURM/$index.log" 2>&1 & done
echo "Submitted batch job 77"
wait
"""


def test_processes_share_the_cells_and_the_memory_of_a_gpu(study, tmp_path):
    ended = run(study, "--workdir", tmp_path / "work", "--jobs", 2, "--seeds", 1)
    assert ended.returncode == 0, ended.stderr + ended.stdout
    values = [seed for cell in content(tmp_path / "work")["cells"] for seed in cell["seeds"].values()]
    assert (len(values), len({seed["process"] for seed in values})) == (10, 2)
    assert not any(seed["reserves"] for seed in values)
    page = (tmp_path / "work" / "numbers_study_small" / "numbers_study.md").read_text()
    assert "Values of one seed." in page
    assert "95% interval" not in page


def test_a_killed_process_is_named_while_the_others_go_on(study, tmp_path):
    text = study.read_text().replace("time.sleep(0.3)", "time.sleep(0.3); die(folder.parent.parent)")
    study.write_text(text + DIE)
    ended = run(study, "--workdir", tmp_path / "work", "--jobs", 2)
    assert ended.returncode == 0
    told = r"(?m)^process [01] ended with exit code -9: killed, .*the others go on\n\n# Numbers"
    assert re.search(told, ended.stdout)
    states = [state for cell in content(tmp_path / "work")["cells"] for state in cell["status"].values()]
    assert states == ["finished"] * 20
    study.write_text(text + DIE.replace("exist_ok=False", "exist_ok=True"))  # every process
    ended = run(study, "--workdir", tmp_path / "other", "--jobs", 2)
    assert ended.returncode == 1
    assert "repeat the command" in ended.stderr.splitlines()[-1]


@pytest.mark.slow
def test_slurm_jobs_share_the_cells(study, tmp_path, monkeypatch):
    command = tmp_path / "bin" / "sbatch"
    command.parent.mkdir()
    command.write_text(SBATCH)
    command.chmod(stat.S_IRWXU)
    monkeypatch.setenv("FAKE_SLURM", str(tmp_path))
    monkeypatch.setenv("PATH", f"{command.parent}:{os.environ['PATH']}")
    work, slurm = tmp_path / "work", "--slurm=--partition gpu --comment 'a study'"
    ended = run(study, "--workdir", work, "--jobs", 2, slurm)
    assert ended.returncode == 0, ended.stderr + ended.stdout
    assert "Submitted batch job 77" in ended.stdout
    values = [seed for cell in content(work)["cells"] for seed in cell["seeds"].values()]
    assert (len(values), len({seed["process"] for seed in values})) == (20, 2)
    given = (tmp_path / "arguments").read_text().splitlines()
    assert given[:3] == ["--wait", "--array=0-1", "--signal=B:TERM@120"]  # "exec" hands SIGTERM on
    assert [*given[4:9], given[9][:5]] == ["--partition", "gpu", "--comment", "a study", "--wrap", "exec "]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ("nothing_like_it", "no study 'nothing_like_it'"),
        ("missing.py", "no study 'missing.py'"),
        ("FILE --scale paper", "--scale of numbers_study must be one of small, got 'paper'"),
        ("FILE --workdir gs://bucket/x", "--workdir of a study must be a folder on a disk"),
        ("--list nothing_like_it", "no study 'nothing_like_it'"),
        ("FILE --seeds 0", "seeds must be a whole number >= 1, got 0"),
        ("FILE --jobs 0", "--jobs must be at least 1, got 0"),
        ("FILE --dry-run --only m=1", "FACTOR=LEVEL,... of the factors n; got 'm=1'"),
        ("FILE --only n=1,n=11", "--only n is one of 0; 1; 2; 3; 4; 5; 6; 7; 8; 9; got '11'"),
        ("control_m3g", "control_m3g has several scales; give --scale small or smoke"),
        ("koromilas_table2 --scale small --data none.npz", "data.path must be an .npz file, got "),
        ("koromilas_table2 --dry-run", "has several scales; give --scale paper or small or smoke"),
        ("FILE --slurm=--gpus", "--slurm needs sbatch, got a PATH without it"),
    ],
)
def test_errors_name_the_argument(study, arguments, text, monkeypatch, capsys):
    monkeypatch.setenv("PATH", "")  # no sbatch
    assert cli.main(["study", *(str(study) if a == "FILE" else a for a in arguments.split())]) == 2
    assert text in capsys.readouterr().err


def test_a_dry_run_lists_the_runs_and_help_the_options_of_the_scale(study, tmp_path, monkeypatch, capsys):
    options = ["--workdir", str(tmp_path / "w"), "--dry-run", "--scale-of", "3"]
    assert cli.main(["study", str(study), *options]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "missing   n 0, seed 0"
    assert lines[-2:] == ["20 runs: 20 missing", "cost: all 20 runs: 3 s; 20 left, none finished"]
    assert cli.main(["study", str(study), *options, "--only", "n = 3, n=5"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.removeprefix("missing   ") for line in lines[:4]] == [
        f"n {n}, seed {seed}" for n in (3, 5) for seed in (0, 1)
    ]
    assert lines[-2:] == ["4 runs: 4 missing", "cost: all 20 runs: 3 s; 4 left, none finished"]
    assert not (tmp_path / "w").exists()
    monkeypatch.chdir(tmp_path)  # cells of the same data are the same, however they were named
    assert cli.main(["study", str(study), *options, "--data", "there.npz"]) == 0
    assert f"those of {tmp_path.resolve() / 'there.npz'}" in capsys.readouterr().out
    assert cli.main(["study", "koromilas_table2", "--scale", "small", "--data", "none.npz", "--dry-run"]) == 1
    assert capsys.readouterr().out.count("data absent: ") == 1
    with pytest.raises(SystemExit):
        cli.main(["study", str(study), "--help"])
    text = capsys.readouterr().out
    for word in ("--scale small: Ten cells.", "--scale-of", "of each cell", "--slurm"):
        assert word in text


@pytest.mark.parametrize(
    ("machine", "other", "hours"),
    [
        ("EPYC, 16 cores", "1 x H200 and EPYC, 16 cores", "32 hours on 2 cores"),
        ("1 x H200 and EPYC, 16 cores", "EPYC, 16 cores", "4 hours on one such"),
    ],
)
def test_a_dry_run_has_the_hours_of_the_machine_that_ran(
    machine, other, hours, study, tmp_path, monkeypatch, capsys
):
    """16 runs left, of a quarter of an hour; on CPUs 16 cores take as long as 2 do in eight times the time. One of the
    four runs was on the other machine and took long: it does not count."""
    monkeypatch.setattr(time, "sleep", lambda _: None)
    options = [str(study), "--workdir", str(tmp_path / "w"), "--only"]
    assert cli.main(["study", *options, "n=4,n=5"]) == 0
    for file in (tmp_path / "w" / "cells").rglob("[01].json"):
        odd = file.name == "1.json" and json.loads(file.read_text())["task"]["value"] == 5
        where = {"machine": other, "seconds": 9e6} if odd else {"machine": machine, "seconds": 900}
        file.write_text(json.dumps(json.loads(file.read_text()) | where | {"cores": 16}))
    assert cli.main(["study", *options, ",".join(f"n={n}" for n in range(10)), "--dry-run"]) == 0
    told = capsys.readouterr().out
    assert hours in told
    assert re.search(r"^finished  n 4, seed 1: value 5\.0, ", told, re.MULTILINE)


def test_a_study_of_some_cells_says_what_is_missing(study, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(time, "sleep", lambda _: None)
    assert cli.main(["study", str(study), "--workdir", str(tmp_path / "w"), "--only", "n=4"]) == 0
    states = {cell["name"]: {*cell["status"].values()} for cell in content(tmp_path / "w")["cells"]}
    assert [name for name, of in states.items() if of == {"finished"}] == ["n 4"]
    assert "18 of 20 runs not run" in capsys.readouterr().out
