"""SIGTERM and SIGINT stop a run after the step it is in."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Interrupted(RuntimeError):
    """A signal stopped the run, which saved before."""

    def __init__(self, number: int, step: int, steps: int) -> None:
        name = signal.Signals(number).name
        super().__init__(
            f"stopped by {name}; saved at step {step} of {steps}. The same command continues from there"
        )
        self.signal = number


@contextmanager
def stop_signals() -> Iterator[dict[str, int]]:
    """A dict whose `signal` becomes the number of SIGTERM or SIGINT when one comes, and is 0 before."""
    stop = {"signal": 0}

    def note(number: int, _: Any) -> None:
        if stop["signal"] == number == signal.SIGINT:
            raise KeyboardInterrupt  # twice: now
        stop["signal"] = number

    before = {number: signal.signal(number, note) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
