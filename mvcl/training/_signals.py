"""SIGTERM and SIGINT stop a run after the current step."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Interrupted(RuntimeError):
    """A signal stopped the run after it saved a checkpoint."""

    def __init__(self, number: int, step: int, steps: int) -> None:
        name = signal.Signals(number).name
        super().__init__(f"stopped by {name}; saved at step {step} of {steps}. Repeat the command to resume")
        self.signal = number


@contextmanager
def stop_signals() -> Iterator[dict[str, int]]:
    """A dict whose `signal` is 0, and the signal's number after SIGTERM or SIGINT."""
    stop = {"signal": 0}

    def handle(number: int, _: Any) -> None:
        if stop["signal"] == number == signal.SIGINT:
            raise KeyboardInterrupt  # a second SIGINT stops at once
        stop["signal"] = number

    before = {number: signal.signal(number, handle) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
