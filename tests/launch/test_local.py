"""launch/local.py with small commands instead of a training run."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

LOCAL = Path(__file__).parents[2] / "launch" / "local.py"


def launch(*options, python=None):
    command = [] if python is None else ["--", sys.executable, "-S", "-c", python]
    words = [sys.executable, "-S", LOCAL, *options, *command]
    return subprocess.run(words, capture_output=True, text=True, timeout=60)


def test_processes_have_ranks_and_prefixes():
    names = ("COORDINATOR_ADDRESS", "NUM_PROCESSES", "PROCESS_ID", "NUM_CPU_DEVICES", "PLATFORMS")
    python = f"import os; print(*(os.environ['JAX_' + name] for name in {names}))"
    done = launch("--processes", "3", "--devices", "4", python=python)
    assert done.returncode == 0, done.stderr
    lines = sorted(done.stdout.splitlines())
    address = lines[0].split()[1]
    assert address.startswith("127.0.0.1:")
    assert lines == [f"[{rank}] {address} 3 {rank} 4 cpu" for rank in range(3)]
    assert done.stderr == ""


def test_a_failure_stops_all_with_its_message_and_code():
    begun = time.monotonic()
    done = launch(
        *("--processes", "3", "--grace", "1"),
        python="import os, sys, time\n"
        "if os.environ['JAX_PROCESS_ID'] == '1':\n"
        "    print('working')\n"
        "    print('mvcl: the disk is on fire', file=sys.stderr); sys.exit(7)\n"
        "time.sleep(60)",
    )
    assert done.returncode == 7
    assert time.monotonic() - begun < 20
    assert "[1] mvcl: the disk is on fire" in done.stdout
    assert "process 1 of 3 ended with exit code 7; its last lines:" in done.stderr
    assert "mvcl: the disk is on fire" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_forwards_signals(number):
    process = subprocess.Popen(
        [sys.executable, "-S", LOCAL, "--processes", "2", "--", sys.executable, "-S", "-c",
         "import signal, sys, time\n"
         "signal.signal(signal.SIGTERM, lambda *_: (print('saved', flush=True), sys.exit(143)))\n"
         "print('ready', flush=True); time.sleep(60)"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    assert sorted(process.stdout.readline() for _ in range(2)) == ["[0] ready\n", "[1] ready\n"]
    process.send_signal(number)
    output, errors = process.communicate(timeout=30)
    assert process.returncode == 143, errors
    assert sorted(output.splitlines()) == ["[0] saved", "[1] saved"]


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        ("--processes 0 -- true", 2, "--processes must be at least 1, got 0"),
        ("--processes 2 --devices 0 -- true", 2, "--devices must be at least 1"),
        ("--processes 3 --gpus 4 -- true", 2, "--gpus must be a positive multiple of --processes 3, got 4"),
        ("--processes 1", 2, "put the command after --"),
        ("--processes 1 -- no-such-program", 127, "no-such-program cannot be started"),
    ],
)
def test_errors_name_the_option_or_the_command(options, code, message):
    done = launch(*options.split())
    assert done.returncode == code
    assert message in done.stderr
