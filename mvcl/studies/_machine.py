"""Where results come from: machine, versions, commit, date."""

import os
import platform
import subprocess
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import jax

_PACKAGES = ("mvcl", "jax", "jaxlib", "flax", "optax", "numpy")


def provenance() -> dict[str, Any]:
    """Machine, versions, commit and date of a result that is made now."""
    return {
        "machine": machine(),
        "versions": versions(),
        "commit": commit(),
        "date": datetime.now(UTC).date().isoformat(),
    }


@cache
def machine() -> str:
    """The devices of this process and its processor, in words."""
    device, count = jax.devices()[0], jax.device_count()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    processor = f"{_processor()}, {cores} {'core' if cores == 1 else 'cores'}"
    return processor if device.platform == "cpu" else f"{count} x {device.device_kind}; {processor}"


@cache
def versions() -> dict[str, str]:
    """Versions of Python and of the packages that compute."""
    return {"python": platform.python_version(), **{name: metadata.version(name) for name in _PACKAGES}}


@cache
def commit() -> str:
    """The commit of the checkout, with "+" if files have changed since; "" outside a checkout."""
    folder = Path(__file__).resolve().parents[2]
    try:
        head = _git(folder, "rev-parse", "--short=10", "HEAD")
        changed = _git(folder, "status", "--porcelain", "--untracked-files=no", "--", "mvcl", "configs")
    except (OSError, subprocess.CalledProcessError):
        return ""
    return head + ("+" if changed else "")


def _git(folder: Path, *arguments: str) -> str:
    return subprocess.run(
        ["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=True
    ).stdout.strip()


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.machine())
