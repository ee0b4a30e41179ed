#!/usr/bin/env python3
"""Start one command as N processes of one run on this machine; if one process fails, the others are stopped.

    python launch/local.py --processes 2 -- mvcl train digits --workdir runs/two
    python launch/local.py --processes 2 --devices 4 -- mvcl train ...   # 4 virtual CPU devices in each
    python launch/local.py --processes 4 --gpus 8 -- mvcl train ...      # 2 GPUs for each
    python launch/local.py --processes 2 --dry-run -- mvcl train ...     # print the commands only

To fill in: nothing. The command is that of a single process; the script sets JAX_COORDINATOR_ADDRESS,
JAX_NUM_PROCESSES and JAX_PROCESS_ID to connect the processes. Each output line starts with the process number,
"[1] ". SIGTERM and Ctrl-C are forwarded once, so that the run saves a checkpoint. The exit code is that of the process
that failed first (128 + signal number if a signal killed it), or 0. Needs only Python.
"""

import argparse
import os
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from typing import IO, Any


def main(argv: list[str] | None = None) -> int:
    """Parse the options, run the processes, and return the exit code."""
    arguments, command = parse(sys.argv[1:] if argv is None else argv)
    address = f"127.0.0.1:{arguments.port or free_port()}"
    environments = [environment(arguments, address, rank) for rank in range(arguments.processes)]
    if arguments.dry_run:
        for added in environments:
            words = [f"{name}={shlex.quote(value)}" for name, value in sorted(added.items())]
            print(" ".join([*words, shlex.join(command)]))
        return 0
    return follow(command, environments, arguments.grace)


def parse(argv: list[str]) -> tuple[argparse.Namespace, list[str]]:
    """The options before `--` and the command after it."""
    parser = argparse.ArgumentParser(
        prog="local.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--processes", type=int, required=True, help="number of processes")
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--devices", type=int, help="virtual CPU devices of each process (default 1)")
    kind.add_argument("--gpus", type=int, help="number of GPUs of this machine, split evenly")
    parser.add_argument("--port", type=int, default=0, help="port of the coordinator; default any free one")
    parser.add_argument(
        "--grace", type=float, default=30.0, help="seconds for the others to exit after a failure"
    )
    parser.add_argument("--dry-run", action="store_true", help="print the commands and exit")
    own, command = (argv[: argv.index("--")], argv[argv.index("--") + 1 :]) if "--" in argv else (argv, [])
    arguments = parser.parse_args(own)
    if not command:
        parser.error("put the command after --, as in: local.py --processes 2 -- mvcl train digits")
    if arguments.processes < 1:
        parser.error(f"--processes must be at least 1, got {arguments.processes}")
    if arguments.devices is not None and arguments.devices < 1:
        parser.error(f"--devices must be at least 1, got {arguments.devices}")
    if arguments.gpus is not None and (arguments.gpus < 1 or arguments.gpus % arguments.processes):
        parser.error(
            f"--gpus must be a positive multiple of --processes {arguments.processes}, got {arguments.gpus}"
        )
    return arguments, command


def environment(arguments: argparse.Namespace, address: str, rank: int) -> dict[str, str]:
    """Variables added to the environment of process `rank`."""
    added = {
        "JAX_COORDINATOR_ADDRESS": address,
        "JAX_NUM_PROCESSES": str(arguments.processes),
        "JAX_PROCESS_ID": str(rank),
        "PYTHONUNBUFFERED": "1",
    }
    if arguments.gpus is None:
        added |= {"JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": str(arguments.devices or 1)}
    else:
        each = arguments.gpus // arguments.processes
        added["CUDA_VISIBLE_DEVICES"] = ",".join(str(rank * each + i) for i in range(each))
    return added


def follow(command: list[str], environments: list[dict[str, str]], grace: float) -> int:
    """Run the processes until all have ended or one has failed; return the exit code."""
    processes: list[subprocess.Popen[str]] = []
    signals: list[int] = []

    def forward(number: int, _: Any) -> None:
        signals.append(number)
        for process in processes:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, forward)
    tails: list[deque[str]] = []
    readers = []
    try:
        for rank, added in enumerate(environments):
            # A separate session, so that Ctrl-C reaches the processes once, through this script.
            process = subprocess.Popen(
                command,
                env=os.environ | added,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                start_new_session=True,
            )
            processes.append(process)
            tails.append(deque(maxlen=5))
            assert process.stdout is not None
            reader = threading.Thread(
                target=show, args=(rank, len(environments), process.stdout, tails[rank]), daemon=True
            )
            reader.start()
            readers.append(reader)
        failed = first_failure(processes)
        if failed is not None and any(process.poll() is None for process in processes):
            if not signals:
                print(f"local.py: {ending(processes, failed)}; stopping the others", flush=True)
            end(processes, grace)
    except OSError as error:
        end(processes, 0)
        print(f"local.py: {shlex.join(command)} cannot be started: {error}", file=sys.stderr)
        return 127
    for reader in readers:
        reader.join(timeout=5)
    if failed is None:
        return 0
    print(f"local.py: {ending(processes, failed)}; its last lines:", file=sys.stderr)
    for line in tails[failed]:
        print(f"  {line}", file=sys.stderr)
    return code(processes[failed].returncode)


def show(rank: int, world: int, stream: IO[str], tail: deque[str]) -> None:
    """Print the output of a process line by line."""
    width = len(str(world - 1))
    for line in stream:
        line = line.rstrip("\n")
        if line.strip():
            tail.append(line)
        sys.stdout.write(f"[{rank:>{width}}] {line}\n")
        sys.stdout.flush()


def first_failure(processes: list[subprocess.Popen[str]]) -> int | None:
    """Wait until all have ended with code 0 (returns None) or one has failed (returns its index)."""
    while True:
        codes = [process.poll() for process in processes]
        failed = [rank for rank, number in enumerate(codes) if number not in (None, 0)]
        if failed:
            # Of several failures, report a killed process before those that failed as a result.
            return min(failed, key=lambda rank: (processes[rank].returncode > 0, rank))
        if all(number == 0 for number in codes):
            return None
        time.sleep(0.05)


def end(processes: list[subprocess.Popen[str]], grace: float) -> None:
    """Wait for the processes to exit, then send SIGTERM, then SIGKILL."""
    for number, seconds in ((None, grace / 2), (signal.SIGTERM, grace / 2), (signal.SIGKILL, 10.0)):
        for process in processes:
            if number is not None and process.poll() is None:
                process.send_signal(number)
        deadline = time.monotonic() + seconds
        while any(process.poll() is None for process in processes) and time.monotonic() < deadline:
            time.sleep(0.05)


def ending(processes: list[subprocess.Popen[str]], rank: int) -> str:
    """How a process ended, as text."""
    number = processes[rank].returncode
    how = f"was killed by {signal.Signals(-number).name}" if number < 0 else f"ended with exit code {number}"
    return f"process {rank} of {len(processes)} {how}"


def code(number: int) -> int:
    """The exit code in the shell's convention."""
    return 128 - number if number < 0 else number


def free_port() -> int:
    """A free port of this machine."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


if __name__ == "__main__":
    sys.exit(main())
