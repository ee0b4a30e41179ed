"""The clock of a run: seconds by phase; and what its devices can do."""

import json
import math
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax

from mvcl import _files
from mvcl._progress import duration

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


class Clock:
    """Seconds of a run by phase, over all its sessions.

    Time counts as the innermost phase that is entered, as `other` outside of all.
    """

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}
        self._doing = ["other"]
        self._last = time.monotonic()

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time within counts as this phase."""
        self.seconds()
        self._doing.append(name)
        try:
            yield
        finally:
            self.seconds()
            self._doing.pop()

    def seconds(self) -> dict[str, float]:
        """Seconds of each phase until now."""
        now = time.monotonic()
        doing = self._doing[-1]
        self._seconds[doing] = self._seconds.get(doing, 0.0) + now - self._last
        self._last = now
        return dict(self._seconds)

    def resume(self, path: Path) -> None:
        """Add the seconds of earlier sessions; nothing of a missing or damaged file."""
        try:
            earlier = {str(name): float(value) for name, value in _files.read_json(path).items()}
        except (OSError, ValueError, TypeError, AttributeError):
            return
        for name, value in earlier.items():
            self._seconds[name] = self._seconds.get(name, 0.0) + value

    def write(self, path: Path) -> None:
        """Write the seconds for `resume`."""
        rounded = {name: round(value, 3) for name, value in self.seconds().items()}
        _files.write_whole(path, json.dumps(rounded) + "\n")

    def __str__(self) -> str:
        seconds = self.seconds()
        whole = max(sum(seconds.values()), 1e-3)
        ordered = sorted(seconds.items(), key=lambda item: -item[1])
        shares = ", ".join(f"{name} {100 * value / whole:.0f} %" for name, value in ordered)
        return f"time: {duration(whole)}, {shares}"


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
    flops = (step.lower(*arguments).cost_analysis() or {}).get("flops", math.nan)
    return float(flops) if flops > 0 else None
