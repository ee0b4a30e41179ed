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


def pod(*words, env, code=0):
    done = run(LAUNCH / "tpu_pod.sh", *words, env=env)
    assert done.returncode == code, done.stderr
    return done


POD = {"PROJECT": "science", "ZONE": "z1", "NAME": "pod", "POLL_SECONDS": "0"}


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
    command = f"mvcl train koromilas/cifar --workdir /mnt/share/runs/x {options}"
    assert command in pod("up", env=env).stdout
    home = Path(worker["HOME"])
    assert (home / "mvcl" / "pyproject.toml").is_file()  # the archive arrived complete
    installed = (home / "pip.log").read_text()
    assert installed == "pip install --quiet --constraint constraints.txt --editable .[tpu]\n"
    assert verbs(mocks) == ["describe", "create", "scp", "ssh", "ssh", "ssh"]
    (create,) = [call for call in mocks.calls() if "create" in call]
    assert create[1] == "alpha"  # only there has `create` the option
    assert {"--autocheckpoint-enabled", "--spot", "--version=v2-alpha-tpuv6e"} < set(create)
    # a second call finds the slice, and the exit code of the run is that of the script
    assert "slice pod exists" in pod("up", env=env | {"MVCL_EXIT": "3"}, code=3).stdout
    assert "ended with exit code 3" in pod("status", env=env).stdout


def test_pod_stop_sends_sigterm(worker):
    env = worker | {"MVCL_TENTHS": "300"}
    for command in ("create", "install", "run"):
        pod(command, env=env)
    assert "running" in pod("status", env=env).stdout
    run(LAUNCH / "tpu_pod.sh", "stop", env=env)
    assert "saved" in pod("logs", env=env, code=143).stdout


@pytest.mark.exhaustive
def test_pod_is_created_again_after_preemption(mocks, worker):
    # the first connection for the log breaks together with the slice
    mocks(
        "gcloud",
        'case "$*" in *tail*) if [ ! -f "$STATE.once" ]; then touch "$STATE.once"; echo PREEMPTED > "$STATE"; '
        f"exit 255; fi ;; esac\n{GCLOUD}",
    )
    assert "slice pod no longer exists" in pod("keep", env=worker | {"MVCL_EXIT": "0"}).stderr
    assert [verb for verb in verbs(mocks) if verb in ("create", "delete")] == ["create", "delete", "create"]


def test_pod_of_several_slices_with_its_run_in_a_bucket(mocks, worker):
    env = worker | {"SLICES": "2", "WORKDIR": "gs://bucket/runs/x"}
    assert "--workdir gs://bucket/runs/x --mesh.slices 2" in pod("up", env=env).stdout
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
    pod("delete", env=env)
    assert "--force" in mocks.calls()[-1]


@pytest.mark.parametrize(
    ("first", "second", "code", "printed"),
    [
        # stopped by the platform, and saved; then stopped by the user
        ("echo first; exit 143", "touch ~/mvcl.stopped; echo second; exit 143", 143, ("first", "second")),
        pytest.param(  # without an exit code: its machine ended with it
            *("kill -9 $PPID; kill -9 $$", "exit 0", 0, ()), marks=pytest.mark.exhaustive
        ),
    ],
)
def test_pod_run_that_the_platform_ends_is_started_again(worker, first, second, code, printed):
    mvcl = Path(worker["HOME"]) / "venv" / "bin" / "mvcl"
    mvcl.write_text(f"#!/bin/bash\nif [ -f ~/once ]; then {second}; fi; touch ~/once; {first}\n")
    kept = pod("keep", env=worker, code=code)
    assert kept.stderr.count("the platform has stopped the run") == 1
    assert all(word in kept.stdout for word in printed)
