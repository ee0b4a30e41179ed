"""Measurements of a run: time per part of the step, memory, device utilisation, heartbeat, profile."""

import json
import math
import os
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jax

from mvcl import _buckets, _files
from mvcl._progress import write_line
from mvcl.training._goodput import Goodput

# Dense bfloat16 TFLOP/s of one jax device, as the vendors state it, by the start of its `device_kind`.
PEAK_TFLOPS = {
    "TPU v2": 22.5,  # per core: jax has two devices per chip
    "TPU v3": 61.5,
    "TPU v4 lite": 138.0,
    "TPU v4": 275.0,
    "TPU v5 lite": 197.0,
    "TPU v5e": 197.0,
    "TPU v5": 459.0,
    "TPU v6 lite": 918.0,
    "TPU v6e": 918.0,
    "NVIDIA A100": 312.0,
    "NVIDIA H100 PCIe": 756.0,
    "NVIDIA H100": 989.0,
    "NVIDIA H200": 989.0,
    "NVIDIA L4": 121.0,
    "NVIDIA L40": 181.0,
    "NVIDIA L40S": 362.0,
    "Tesla V100": 125.0,
    "Tesla T4": 65.0,
}
_HEARTBEAT_SECONDS = 5.0


class Clock:
    """Wall time that never decreases, even if the machine's clock is set back.

    Starts at the current time, or at `last` if that is later, and advances with a monotonic clock.
    """

    def __init__(self, last: float = 0.0) -> None:
        self._start = max(time.time(), last)
        self._monotonic = time.monotonic()

    def now(self) -> float:
        """Seconds since 1970."""
        return self._start + time.monotonic() - self._monotonic


class Watch:
    """Splits the time between two log rows into parts.

    In seconds per step: `seconds_data`, waiting for a batch; `seconds_log`, logging; `seconds_step`, the rest, which
    is dispatching the steps and waiting for them. The sum is the time between the rows, without checkpoints and
    evaluations.
    """

    def __init__(self, devices: int, flops: float | None, peak: float | None, step: int = 0) -> None:
        self._devices, self._flops, self._peak = devices, flops, peak
        self.restart(step)

    def restart(self, step: int) -> None:
        """Reset the times after this step."""
        self._step, self._started = step, time.monotonic()
        self._data = self._log = 0.0

    @contextmanager
    def data(self) -> Iterator[None]:
        """Time within counts as waiting for data."""
        start = time.monotonic()
        yield
        self._data += time.monotonic() - start

    @contextmanager
    def log(self) -> Iterator[None]:
        """Time within counts as logging."""
        start = time.monotonic()
        yield
        self._log += time.monotonic() - start

    def row(self, step: int) -> dict[str, float]:
        """The values to log for the steps since the last row; resets the times."""
        whole, steps = time.monotonic() - self._started, max(step - self._step, 1)
        values = {
            "seconds_data": self._data / steps,
            "seconds_step": max(whole - self._data - self._log, 0.0) / steps,
            "seconds_log": self._log / steps,
        }
        if self._flops and self._peak:
            values["model_flops_utilisation"] = self._flops * steps / (whole * self._devices * self._peak)
        values |= memory()
        self.restart(step)
        return values


def memory() -> dict[str, float]:
    """GiB in use and peak GiB on the first device of this process; on CPU the memory of the process."""
    stats = jax.local_devices()[0].memory_stats()
    if stats:
        found = {"memory_gib": stats.get("bytes_in_use"), "memory_peak_gib": stats.get("peak_bytes_in_use")}
        return {name: value / 2**30 for name, value in found.items() if value is not None}
    try:
        with open("/proc/self/statm") as file:
            pages = int(file.read().split()[1])
    except OSError:  # not Linux
        return {}
    return {"memory_gib": pages * os.sysconf("SC_PAGE_SIZE") / 2**30}


def peak_flops(tflops: float | None = None) -> float | None:
    """Peak FLOP/s of one device: as given, or of the device's kind; None if unknown."""
    if tflops is not None:
        return tflops * 1e12
    kind = jax.devices()[0].device_kind
    known = [name for name in PEAK_TFLOPS if kind.startswith(name)]
    return PEAK_TFLOPS[max(known, key=len)] * 1e12 if known else None


def step_flops(step: Any, *arguments: Any) -> float | None:
    """FLOPs of one call of a jitted function over all devices, as XLA counts them; None if it does not."""
    analysis = step.lower(*arguments).cost_analysis()
    flops = (analysis or {}).get("flops", math.nan)
    return float(flops) if flops > 0 else None


class Heartbeat:
    """Writes heartbeat.json, with step, time and goodput, so that other programs can monitor the run."""

    def __init__(self, path: Path, steps: int, clock: Clock, goodput: Goodput) -> None:
        self._path, self._steps, self.clock, self.goodput = path, steps, clock, goodput
        self._every = 60.0 if _buckets.is_remote(path) else _HEARTBEAT_SECONDS
        self._last_beat = -math.inf
        self._step, self._doing = 0, "starting"

    def beat(self, step: int, doing: str = "training", *, now: bool = False) -> None:
        """Write the file after this step, at most every 5 seconds (in a bucket every minute) unless `now`."""
        self._step, self._doing = step, doing
        self.goodput.reached(step)
        if not now and time.monotonic() - self._last_beat < self._every:
            return
        self._last_beat = time.monotonic()
        wall = self.clock.now()
        beat = {
            "step": step,
            "steps": self._steps,
            "doing": doing,
            "time": datetime.fromtimestamp(wall, UTC).isoformat(timespec="milliseconds"),
            "unix_time": round(wall, 3),
            "process": os.getpid(),
            "goodput": self.goodput.record(),
        }
        # A failed heartbeat does not stop a run: a full disk also fails the checkpoint, whose error names the remedy.
        try:
            _files.write_whole(self._path, json.dumps(beat) + "\n", sync=False)
        except OSError as error:
            write_line(f"mvcl: heartbeat not written: {error}", sys.stderr)

    @property
    def is_done(self) -> bool:
        """Whether the run is done."""
        return self._doing == "done"

    def close(self) -> None:
        """Write the last heartbeat: the run is done, or has stopped."""
        self.beat(self._step, "done" if self.is_done else "stopped", now=True)


def say_done(path: Path) -> None:
    """Write into the heartbeat of a run that has ended that it is done, if it was killed before it said so."""
    try:
        beat = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return  # it says nothing else either
    if isinstance(beat, dict) and beat.get("doing") != "done":
        _files.write_whole(path, json.dumps(beat | {"doing": "done"}) + "\n")


def profiler_server(port: int) -> None:
    """Let TensorBoard and XProf capture traces of the first process through a port, while it runs.

    Raises:
      ValueError: the port is not a free one of this machine.
    """
    if jax.process_index() > 0:
        return
    try:
        with socket.socket() as free:
            free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            free.bind(("", port or -1))  # 0 would be any port
    except (OSError, OverflowError) as error:  # of which jax's server says nothing
        raise ValueError(
            f"--profiler-port must be a port from 1 to 65535 that no program of this machine uses, got {port}"
        ) from error
    jax.profiler.start_server(port)


class Profile:
    """A trace of some steps, for XProf (TensorBoard's profile page) and, as perfetto_trace.json.gz, for Perfetto."""

    def __init__(self, folder: Path, first: int, steps: int) -> None:
        self._folder = self._written = folder
        self._first, self._steps = first, steps
        if steps and _buckets.is_remote(folder):
            self._written = _buckets.beside(self)
        self._running = False

    @contextmanager
    def step(self, step: int) -> Iterator[None]:
        """Context of one step, numbered from 0; the step is traced if it is in the profile's range."""
        if self._steps and step == self._first:
            jax.profiler.start_trace(str(self._written), create_perfetto_trace=True)
            self._running = True
        if not self._running:
            yield
            return
        with jax.profiler.StepTraceAnnotation("train", step_num=step):
            yield

    def after(self, step: int, result: Any) -> None:
        """End the trace after the last step of the profile, when its result is ready."""
        if self._running and step + 1 >= self._first + self._steps:
            jax.block_until_ready(result)
            self.close()

    def close(self) -> None:
        """End the trace if it is running."""
        if self._running:
            self._running = False
            jax.profiler.stop_trace()
            if self._written != self._folder:
                _buckets.upload(self._written, self._folder)
