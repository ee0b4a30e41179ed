"""Traces of a run for XProf (TensorBoard's profile page) and Perfetto."""

import socket
import tempfile
from pathlib import Path
from typing import Any

import jax

from mvcl import _buckets

# Steps before a profile starts: they compile and fill queues.
_UNPROFILED = 3


class Profile:
    """Traces some steps of a session into a folder; called before its first step and after each."""

    def __init__(self, folder: Path, *, steps: int, step: int, last: int) -> None:
        """Trace `steps` steps of a session from `step` to `last`, which has as many."""
        self._folder = self._written = folder
        self._first = max(min(step + _UNPROFILED, last - steps), step)
        self._last = min(self._first + steps, last)
        if _buckets.is_remote(folder):
            self._temporary = tempfile.TemporaryDirectory(prefix="mvcl_")
            self._written = Path(self._temporary.name)
        self._running = False

    def __call__(self, step: int, state: Any, values: dict[str, jax.Array]) -> None:
        """Start or end the trace after `step` steps; the last one's values are waited for."""
        if step == self._first < self._last:
            jax.profiler.start_trace(str(self._written), create_perfetto_trace=True)
            self._running = True
        elif step == self._last:
            jax.block_until_ready(values)
            self.close()

    def close(self) -> None:
        """End the trace if it goes on."""
        if self._running:
            self._running = False
            jax.profiler.stop_trace()
            if self._written != self._folder:
                _buckets.upload(self._written, self._folder)


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
