"""The shell, SLURM and Docker files of launch/: linters, dry runs, and runs with mocks of the cloud commands that
record their calls."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

LAUNCH = Path(__file__).parents[2] / "launch"
TOOLS = Path(sys.executable).parent


def run(*command, env=None):
    words, env = [str(word) for word in command], os.environ | (env or {})
    return subprocess.run(words, capture_output=True, text=True, timeout=60, env=env)


@pytest.fixture
def mocks(tmp_path):
    """Programs that record their arguments in calls.jsonl and then run a line of shell."""
    folder = tmp_path / "bin"
    folder.mkdir()
    calls = tmp_path / "calls.jsonl"

    def put(name, then="exit 0"):
        file = folder / name
        file.write_text(
            f"#!/bin/sh\n{shlex.quote(sys.executable)} -S -c 'import json, sys; print(json.dumps(sys.argv[1:]))' "
            f'{name} "$@" >> {shlex.quote(str(calls))}\n{then}\n'
        )
        file.chmod(0o755)

    put.env = {"PATH": f"{folder}:{os.environ['PATH']}"}
    put.calls = lambda: [json.loads(line) for line in calls.read_text().splitlines()]
    return put


@pytest.mark.parametrize("name", ["tpu_pod.sh", "slurm.sbatch", "Dockerfile"])
def test_a_linter_finds_nothing(name):
    checked = run(TOOLS / ("hadolint" if name == "Dockerfile" else "shellcheck"), LAUNCH / name)
    assert (checked.returncode, checked.stdout) == (0, "")


def test_dockerfile_copies_existing_files():
    text = (LAUNCH / "Dockerfile").read_text()
    copied = [word for line in re.findall(r"^COPY (.*)$", text, re.M) for word in line.split()[:-1]]
    assert copied
    kept = (LAUNCH / "Dockerfile.dockerignore").read_text().splitlines()
    for name in copied:
        assert (LAUNCH.parent / name).exists()
        assert f"!{name.removeprefix('./')}" in kept


def test_sbatch_reads_every_directive():
    """Those of other forms, and those after the first command, it would silently ignore."""
    head, _, commands = (LAUNCH / "slurm.sbatch").read_text().partition("\nset -")
    assert "SBATCH" not in commands
    assert not [line for line in head.splitlines() if line and not line.startswith("#")]
    lines = [line for line in head.splitlines() if re.match(r"#+\s*SBATCH\b", line)]
    options = [re.fullmatch(r"##?SBATCH --([a-z-]+)(=[\w%.:@,-]+)?", line)[1] for line in lines]
    assert set(options) >= {"nodes", "ntasks-per-node", "gpus-per-node", "time", "signal", "requeue"}
    assert set(options) <= {
        *("nodes", "ntasks-per-node", "gpus-per-node", "cpus-per-task", "mem", "time", "signal", "open-mode"),
        *("output", "job-name", "requeue", "partition", "account"),
    }


def test_slurm_dry_run_and_run(mocks):
    script = LAUNCH / "slurm.sbatch"
    words = ("digits", "--workdir", "runs/a b")
    dry = run("bash", script, *words, env={"DRY_RUN": "1", "VENV": "/opt/venv"})
    command = ("srun", "--kill-on-bad-exit=1", "--label", "/opt/venv/bin/mvcl", "train")
    assert shlex.split(dry.stdout) == [*command, *words]
    mocks("srun", "exit 5")
    mocks("scontrol")
    env = mocks.env | {"SLURM_JOB_ID": "77"}
    assert run("bash", script, *words, env=env).returncode == 5
    assert [call[0] for call in mocks.calls()] == ["srun"]  # a failed run is not queued again
    mocks("srun", f"exit {128 + signal.SIGTERM}")
    run("bash", script, *words, env=env)
    assert mocks.calls()[-1] == ["scontrol", "requeue", "77"]
    none = run("bash", script)
    assert none.returncode == 2
    assert "a config is required" in none.stderr


POD = {"PROJECT": "science", "ZONE": "z1", "NAME": "pod", "POLL_SECONDS": "0"}


def test_pod_dry_run_runs_nothing(mocks):
    for tool in ("gcloud", "git"):
        mocks(tool, "exit 9")
    for command in ("up", "keep", "status", "stop", "delete"):
        dry = run(LAUNCH / "tpu_pod.sh", "--dry-run", command, env=mocks.env | POD)
        assert dry.returncode == 0, dry.stderr
        assert "--project=science --zone=z1" in dry.stdout
    with pytest.raises(FileNotFoundError):
        mocks.calls()


def test_pod_needs_its_settings(mocks):
    refused = run(LAUNCH / "tpu_pod.sh", "up", env=mocks.env | {"PROJECT": "my-project"})
    assert refused.returncode == 2
    assert "set PROJECT" in refused.stderr
    assert run(LAUNCH / "tpu_pod.sh", "upp").returncode == 2
    assert "To fill in" in run(LAUNCH / "tpu_pod.sh", "--help").stdout


# A slice that exists after its creation. Commands for its workers run here, with a separate home folder.
GCLOUD = """
case "$*" in
  *" describe "*) cat "$STATE" 2>/dev/null; exit 0 ;;
  *" queued-resources create "*) echo ACTIVE > "$STATE"; exit 0 ;;
  *" create "*) echo READY > "$STATE"; exit 0 ;;
  *" delete "*) rm -f "$STATE"; exit 0 ;;
esac
for word; do
  case $word in
    *.tar.gz) cp "$word" "$HOME/mvcl.tar.gz"; exit ;;
    --command=*) cd "$HOME" && exec bash -c "${word#--command=}" ;;
  esac
done
"""


def verbs(mocks):
    calls = [[word for word in call if word != "alpha"] for call in mocks.calls()]
    return [call[4] for call in calls if call[0] == "gcloud"]


@pytest.fixture
def worker(mocks, tmp_path):
    """The environment of a slice of one worker with an existing virtual environment."""
    home = tmp_path / "worker"
    (home / "venv" / "bin").mkdir(parents=True)
    for name, text in {
        "pip": 'echo "pip $*" >> ~/pip.log',
        "mvcl": 'echo "mvcl $*"; trap "echo saved; exit 143" TERM; n=0; '
        "while [ $n -lt ${MVCL_TENTHS:-1} ]; do sleep 0.1; n=$((n+1)); done; exit ${MVCL_EXIT:-0}",
    }.items():
        file = home / "venv" / "bin" / name
        file.write_text(f"#!/bin/bash\n{text}\n")
        file.chmod(0o755)
    mocks("gcloud", GCLOUD)
    mocks("setsid", 'exec "$@"')
    return mocks.env | POD | {"HOME": str(home), "STATE": str(tmp_path / "state")}


def test_pod_creates_installs_and_runs(mocks, worker):
    options = "objective:m3g --train.epochs 3"
    env = worker | {"OPTIONS": options, "MVCL_EXIT": "0", "WORKDIR": "/mnt/share/runs/x"}
    up = run(LAUNCH / "tpu_pod.sh", "up", env=env)
    assert up.returncode == 0, up.stderr
    assert f"mvcl train koromilas/cifar --workdir /mnt/share/runs/x {options}" in up.stdout
    home = Path(worker["HOME"])
    assert (home / "mvcl" / "pyproject.toml").is_file()  # the archive arrived complete
    installed = (home / "pip.log").read_text()
    assert installed == "pip install --quiet --constraint constraints.txt --editable .[tpu]\n"
    assert verbs(mocks) == ["describe", "create", "scp", "ssh", "ssh", "ssh"]
    (create,) = [call for call in mocks.calls() if "create" in call]
    assert create[1] == "alpha"  # only there has `create` the option
    assert {"--autocheckpoint-enabled", "--spot", "--version=v2-alpha-tpuv6e"} < set(create)
    # a second call finds the slice, and the exit code of the run is that of the script
    again = run(LAUNCH / "tpu_pod.sh", "up", env=env | {"MVCL_EXIT": "3"})
    assert again.returncode == 3
    assert "slice pod exists" in again.stdout
    ended = run(LAUNCH / "tpu_pod.sh", "status", env=env)
    assert "ended with exit code 3" in ended.stdout


def test_pod_stop_sends_sigterm(worker):
    env = worker | {"MVCL_TENTHS": "300"}
    for command in ("create", "install", "run"):
        done = run(LAUNCH / "tpu_pod.sh", command, env=env)
        assert done.returncode == 0, done.stderr
    assert "running" in run(LAUNCH / "tpu_pod.sh", "status", env=env).stdout
    run(LAUNCH / "tpu_pod.sh", "stop", env=env)
    followed = run(LAUNCH / "tpu_pod.sh", "logs", env=env)
    assert followed.returncode == 143
    assert "saved" in followed.stdout


def test_pod_is_created_again_after_preemption(mocks, worker):
    # the first connection for the log breaks together with the slice
    mocks(
        "gcloud",
        'case "$*" in *tail*) if [ ! -f "$STATE.once" ]; then touch "$STATE.once"; echo PREEMPTED > "$STATE"; '
        f"exit 255; fi ;; esac\n{GCLOUD}",
    )
    kept = run(LAUNCH / "tpu_pod.sh", "keep", env=worker | {"MVCL_EXIT": "0"})
    assert kept.returncode == 0, kept.stderr
    assert "slice pod no longer exists" in kept.stderr
    assert [verb for verb in verbs(mocks) if verb in ("create", "delete")] == ["create", "delete", "create"]


def test_pod_without_the_options(mocks, worker):
    done = run(LAUNCH / "tpu_pod.sh", "create", env=worker | {"SPOT": "0", "AUTOCHECKPOINT": "0"})
    assert done.returncode == 0, done.stderr
    assert mocks.calls()[-1] == [
        *("gcloud", "compute", "tpus", "tpu-vm", "create", "pod", "--project=science", "--zone=z1"),
        *("--accelerator-type=v6e-64", "--version=v2-alpha-tpuv6e"),
    ]


def test_pod_of_several_slices_with_its_run_in_a_bucket(mocks, worker):
    env = worker | {"SLICES": "2", "WORKDIR": "gs://bucket/runs/x"}
    up = run(LAUNCH / "tpu_pod.sh", "up", env=env)
    assert up.returncode == 0, up.stderr
    assert "--workdir gs://bucket/runs/x --mesh.slices 2" in up.stdout
    calls = [call for call in mocks.calls() if call[0] == "gcloud"]
    assert all("queued-resources" in call for call in calls)
    (create,) = [call for call in calls if "create" in call]
    given = "--node-count=2 --node-prefix=pod --runtime-version=v2-alpha-tpuv6e --autocheckpoint-enabled"
    assert set(given.split()) < set(create)
    everywhere = [call for call in calls if "scp" in call or "ssh" in call]
    assert ["--node=all" in call for call in everywhere] == [True, True, True, False]
    assert "--node=0" in everywhere[-1]  # the log
    assert "mount" not in str(everywhere)
    assert ".[tpu,bucket]" in (Path(worker["HOME"]) / "pip.log").read_text()
    assert run(LAUNCH / "tpu_pod.sh", "delete", env=env).returncode == 0
    assert "--force" in mocks.calls()[-1]


@pytest.mark.parametrize(
    ("first", "second", "code", "printed"),
    [
        # stopped by the platform, and saved; then stopped by the user
        ("echo first; exit 143", "touch ~/mvcl.stopped; echo second; exit 143", 143, ("first", "second")),
        ("kill -9 $PPID; kill -9 $$", "exit 0", 0, ()),  # without an exit code: its machine ended with it
    ],
)
def test_pod_run_that_the_platform_ends_is_started_again(worker, first, second, code, printed):
    mvcl = Path(worker["HOME"]) / "venv" / "bin" / "mvcl"
    mvcl.write_text(f"#!/bin/bash\nif [ -f ~/once ]; then {second}; fi; touch ~/once; {first}\n")
    kept = run(LAUNCH / "tpu_pod.sh", "keep", env=worker)
    assert kept.returncode == code, kept.stderr
    assert kept.stderr.count("the platform has stopped the run") == 1
    assert all(word in kept.stdout for word in printed)
