"""SIGTERM, SIGINT and notices stop a run after the current step, or between two batches of an evaluation."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

PREEMPTED, MAINTENANCE = 1001, 1002
"""Reasons to stop that are no signals, numbered above them; see `_preemption`."""
_NOTICES = {
    PREEMPTED: "the platform's notice of a pre-emption",
    MAINTENANCE: "the platform's notice of maintenance",
}


class Interrupted(RuntimeError):
    """A signal or a notice stopped the run; the state of the last step is saved.

    `signal` is the number of the signal, SIGTERM for a notice.
    """

    def __init__(self, number: int, step: int, steps: int, doing: str = "training") -> None:
        name = _NOTICES.get(number) or signal.Signals(number).name
        where = "" if doing == "training" else f" while {doing}"
        super().__init__(
            f"stopped by {name}{where}; saved at step {step} of {steps}. Repeat the command to resume"
        )
        self.signal = signal.SIGTERM if number in _NOTICES else number


@contextmanager
def stop_signals() -> Iterator[dict[str, int]]:
    """A dict whose `signal` is 0, and the signal's number after SIGTERM or SIGINT; `notices` sets it too."""
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
